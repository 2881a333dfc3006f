//! `plan test`: two plans on the same values, against an evaluator of the tests' own, and every
//! proof of a rung against all orders.

use bitproof::numerics::Dtype;
use bitproof::numerics::ladder::Rung;
use bitproof::plan::identify::compare;
use bitproof::plan::{Arithmetic, Op, Piece, Plan, Tree};
use plan_verb::{object, plan};
use proptest::prelude::*;

#[path = "support/evaluate.rs"]
mod evaluate;
#[path = "support/plan_verb.rs"]
mod plan_verb;

use evaluate::{Build, evaluate};

/// Any tree over the ranks, by picks of which two values are joined.
fn tree(ranks: u32, picks: &[u32]) -> Tree {
    let mut parts: Vec<Vec<Op>> = (0..ranks).map(|rank| vec![Op::Push(rank)]).collect();
    let mut picks = picks.iter();
    while parts.len() > 1 {
        let mut take = || {
            let pick = *picks.next().expect("two a join") as usize;
            parts.swap_remove(pick % parts.len())
        };
        let (left, right) = (take(), take());
        parts.push([left, right, vec![Op::Combine]].concat());
    }
    Tree::Ops(parts.remove(0).into())
}

#[derive(Clone, Debug)]
struct Case {
    dtype: Dtype,
    inputs: Vec<Vec<u32>>,
    plans: [Plan; 2],
}

const ELEMENTS: u64 = 60;

fn any_case() -> impl Strategy<Value = Case> {
    let dtype = prop::sample::select(vec![Dtype::F32, Dtype::Bf16, Dtype::F16]);
    // Few exponents: exact sums; many: orders show.
    let spread = prop::sample::select(vec![1u32, 4, 12]);
    (2u32..=5, dtype, spread, any::<bool>()).prop_flat_map(|(ranks, dtype, spread, wide)| {
        let picks = prop::collection::vec(any::<u32>(), 6 * 2 * ranks as usize);
        let words = prop::collection::vec(any::<u32>(), ranks as usize * ELEMENTS as usize);
        (picks, words, 1..ELEMENTS, 1..ELEMENTS).prop_map(move |(picks, words, cut, other)| {
            let value = |word: &u32| {
                let exponent = 127 + (word >> 8) % spread;
                let mantissa = (word >> 12 & 0xff) << 15;
                let bits = (word & 1) << 31 | exponent << 23 | mantissa;
                dtype.round(f32::from_bits(bits)).to_bits()
            };
            let partial = if wide { Dtype::F32 } else { dtype };
            let plan = |picks: &[u32], cut: u64| Plan {
                addend_count: ranks,
                element_count: ELEMENTS,
                arithmetic: Arithmetic::sum(dtype, partial, dtype),
                pieces: vec![
                    Piece {
                        range: 0..cut,
                        tree: tree(ranks, picks),
                    },
                    Piece {
                        range: cut..ELEMENTS,
                        tree: tree(ranks, &picks[2 * ranks as usize..]),
                    },
                ],
            };
            let half = picks.len() / 2;
            Case {
                dtype,
                inputs: words
                    .chunks(ELEMENTS as usize)
                    .map(|own| own.iter().map(value).collect())
                    .collect(),
                plans: [plan(&picks, cut), plan(&picks[half..], other)],
            }
        })
    })
}

impl Case {
    fn addends(&self, element: u64) -> Vec<f32> {
        let ranks = self.inputs.iter();
        ranks
            .map(|rank| f32::from_bits(rank[element as usize]))
            .collect()
    }

    fn value(&self, side: usize, element: u64) -> u32 {
        let plan = &self.plans[side];
        let addends = self.addends(element);
        evaluate(
            plan.tree_at(element),
            &plan.arithmetic,
            &addends,
            0.0,
            Build::Plain,
        )
    }
}

/// All left folds over so many addends.
fn orders(count: u32) -> Vec<Vec<u32>> {
    (0..count).fold(vec![Vec::new()], |orders, next| {
        let with = |order: &Vec<u32>| {
            (0..=order.len())
                .map(|at| {
                    let mut order = order.clone();
                    order.insert(at, next);
                    order
                })
                .collect::<Vec<_>>()
        };
        orders.iter().flat_map(with).collect()
    })
}

/// Values of the type between two, by walking from one to the other.
fn walked(dtype: Dtype, a: u32, b: u32) -> u64 {
    let step = match dtype {
        Dtype::Bf16 => 1 << 16,
        _ => 1,
    };
    let (mut low, high) = (
        f32::from_bits(a).min(f32::from_bits(b)),
        f32::from_bits(a).max(f32::from_bits(b)),
    );
    let mut steps = 0;
    while low.total_cmp(&high).is_lt() {
        let bits = low.to_bits();
        let next = match (dtype, bits) {
            (_, 0x8000_0000) => 0,
            (Dtype::F16, _) => {
                let own = half::f16::from_f32(low).to_bits();
                let next = if own >> 15 == 1 { own - 1 } else { own + 1 };
                half::f16::from_bits(next).to_f32().to_bits()
            }
            _ if bits >> 31 == 1 => bits - step,
            _ => bits + step,
        };
        low = f32::from_bits(next);
        steps += 1;
        assert!(steps < 10_000_000, "{a:x} {b:x}");
    }
    steps
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn what_differs_is_what_another_evaluator_finds(case in any_case()) {
        let [a, b] = &case.plans;
        let found = compare(&case.inputs, a, b).expect("sums");
        let differing: Vec<u64> = (0..ELEMENTS)
            .filter(|element| case.value(0, *element) != case.value(1, *element))
            .collect();
        prop_assert_eq!(found.elements, ELEMENTS);
        prop_assert_eq!(found.differing, differing.len() as u64);
        prop_assert_eq!(found.equal.values().sum::<u64>() + found.differing, ELEMENTS);
        prop_assert_eq!(found.first.map(|one| one.element), differing.first().copied());
        // -0 against +0 is walked in one step, as no float lies between.
        let near = |element: &u64| {
            let (a, b) = (case.value(0, *element), case.value(1, *element));
            (f32::from_bits(a) - f32::from_bits(b)).abs() < 1e-3 || case.dtype != Dtype::F32
        };
        if differing.iter().all(near) {
            let far = differing
                .iter()
                .map(|element| walked(case.dtype, case.value(0, *element), case.value(1, *element)))
                .max();
            prop_assert_eq!(found.largest.and_then(|one| one.ulps), far);
        }
        prop_assert_eq!(found.is_for_all_inputs(), a.same_bits(b) || case.inputs.len() == 2);
    }

    /// Where L0 to L3 are said, every left fold gives the bits of the two plans.
    #[test]
    fn what_a_rung_proves_holds_for_every_order(case in any_case()) {
        let [a, b] = &case.plans;
        for element in 0..ELEMENTS {
            // One element at a time, so that its rung is known.
            let column = |rank: &Vec<u32>| vec![rank[element as usize]];
            let inputs: Vec<Vec<u32>> = case.inputs.iter().map(column).collect();
            let alone = |plan: &Plan| Plan {
                element_count: 1,
                pieces: vec![Piece { range: 0..1, tree: plan.tree_at(element).clone() }],
                ..plan.clone()
            };
            let found = compare(&inputs, &alone(a), &alone(b)).expect("sums");
            let Some((rung, _)) = found.equal.first_key_value() else { continue };
            if !(Rung::L0..=Rung::L3).contains(rung) {
                continue;
            }
            let addends = case.addends(element);
            for order in orders(addends.len() as u32) {
                let tree = Tree::Chain { ring: order.into(), start: 0 };
                let value = evaluate(&tree, &a.arithmetic, &addends, 0.0, Build::Plain);
                prop_assert_eq!(value, case.value(0, element), "{:?}", rung);
            }
        }
    }
}

/// Four data-parallel ranks of the two shipped allocations, whose rings part.
#[test]
fn captured_values_are_tried_on_two_allocations() {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |values: &dyn Fn(u32, u32) -> f32| {
        for rank in 0..4 {
            let bytes: Vec<u8> = (0..4096)
                .flat_map(|at| values(rank, at).to_le_bytes())
                .collect();
            let path = folder.path().join(format!("grad.{rank}.bin"));
            std::fs::write(path, bytes).expect("it is written");
        }
    };
    let path = folder.path().display().to_string();
    let sides = [
        "--topology",
        "topologies/block-2x8.toml",
        "--topology",
        "topologies/plane2-2x8.toml",
    ];
    let group = [
        "test", "--inputs", &path, "--dtype", "f32", "--ranks", "0,2,4,6",
    ];
    let test = [&group[..], &sides].concat();
    // Small whole numbers: exact whatever the order.
    write(&|rank, at| (rank * 7 + at % 5) as f32);
    let exact = object(&test, 6);
    assert_eq!(exact["differing"], 0);
    // One block of four has the same tree on both.
    assert_eq!(exact["equal"][1]["rung"], "L1", "{exact}");
    assert_eq!(
        object(&[&test[..], &["--accept", "input"]].concat(), 0)["differing"],
        0
    );
    // Numbers that round.
    write(&|rank, at| (rank as f32 + 0.1) * (at as f32 + 0.7) / 3.0);
    let other = object(&test, 1);
    assert!(other["differing"].as_u64() > Some(100), "{other}");
    assert!(other["largest"]["ulps"].as_u64() >= Some(1), "{other}");
    assert!(
        other["assumed"].to_string().contains("rings within a node"),
        "{other}"
    );
    let human = String::from_utf8(plan(&test).stdout).expect("text");
    assert!(
        human.contains(" differ\n") && human.contains("farthest apart: element"),
        "{human}"
    );
    // One allocation twice: one tree, whatever the values.
    let same = [&group[..], &sides[..2], &sides[..2]].concat();
    assert_eq!(object(&same, 0)["equal"][0]["rung"], "P");
    // An all-reduce by another number of channels.
    let env = [&group[..], &sides[..2], &["--env", "NCCL_ALGO=Tree"]].concat();
    object(&env, 1);
    let documentation = std::fs::read_to_string("docs/plan.md").expect("it is part of the tree");
    for key in other.as_object().expect("an object").keys() {
        assert!(documentation.contains(&format!("`{key}`")), "{key}");
    }
}

#[test]
fn what_is_wrong_is_said() {
    let folder = tempfile::tempdir().expect("a folder");
    for rank in 0..3 {
        std::fs::write(folder.path().join(format!("{rank}.bin")), [0; 8]).expect("it is written");
    }
    let path = folder.path().display().to_string();
    let said = |more: &[&str]| {
        let output = plan(&[&["test", "--inputs", &path, "--dtype", "f32"], more].concat());
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        String::from_utf8(output.stderr).expect("text")
    };
    let block = "topologies/block-2x8.toml";
    assert!(said(&["--topology", block]).contains("two sides are compared"));
    let both = ["--topology", block, "--topology", block];
    assert!(said(&both).contains("16 ranks are placed, and there are inputs of 3"));
    let twice = [&both[..], &["--ranks", "0,1,1"]].concat();
    assert!(said(&twice).contains("names 2 different ranks"));
    let beyond = [&both[..], &["--ranks", "0,1,16"]].concat();
    assert!(said(&beyond).contains("the job has 17 ranks"));
    let blocks = [
        &both[..],
        &["--ranks", "0,1,2", "--operation", "reduce-scatter"],
    ]
    .concat();
    assert!(said(&blocks).contains("2 elements do not divide into 3 blocks"));
    let env = [&both[..], &["--ranks", "0,1,2", "--env", "NCCL_BUFSIZE=1"]].concat();
    assert!(said(&env).contains("did you mean `NCCL_BUFFSIZE`?"));
}
