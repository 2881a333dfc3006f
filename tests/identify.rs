//! Which plan ran: trees are read back from probes, and real results of gloo and Open MPI name the
//! algorithm that gave them.

use bitproof::numerics::Dtype;
use bitproof::plan::identify::{
    Candidate, Folded, Identification, NotCounted, Operation, Probe, RANDOM_PROBES, Shards, Why,
    candidates, met_under, reconstruct,
};
use bitproof::plan::{Arithmetic, Op, Piece, Plan, Tree};
use golden::{edge_table, golden};
use proptest::prelude::*;
use rayon::prelude::*;
use serde_json::Value;

#[path = "support/ctr64.rs"]
mod ctr64;
#[path = "support/golden.rs"]
mod golden;
#[path = "support/sha256.rs"]
mod sha256;

use ctr64::{format, hex, input};

/// A random tree: two values that are there are joined, again and again. `picks` choose them.
fn any_tree(ranks: u32) -> impl Strategy<Value = Tree> {
    prop::collection::vec(any::<u32>(), 2 * ranks as usize).prop_map(move |picks| {
        let mut parts: Vec<Vec<Op>> = (0..ranks).map(|rank| vec![Op::Push(rank)]).collect();
        let mut picks = picks.into_iter();
        while parts.len() > 1 {
            let mut take = || {
                let pick = picks.next().expect("two a join") as usize;
                parts.swap_remove(pick % parts.len())
            };
            let (left, right) = (take(), take());
            parts.push([left, right, vec![Op::Combine]].concat());
        }
        Tree::Ops(parts.remove(0).into())
    })
}

fn one_element(tree: &Tree, arithmetic: Arithmetic) -> Plan {
    Plan {
        addend_count: tree.addend_count(),
        element_count: 1,
        arithmetic,
        pieces: vec![Piece {
            range: 0..1,
            tree: tree.clone(),
        }],
    }
}

/// What a library that adds like this would give in each run of a probe, at several elements.
fn outputs(probe: Probe, trees: &[(&Tree, Arithmetic)]) -> Vec<Vec<u32>> {
    let inputs: Vec<Vec<f32>> = (0..probe.ranks).map(|rank| probe.inputs(rank)).collect();
    let folded: Vec<Folded> = trees
        .iter()
        .map(|(tree, arithmetic)| Folded::new(tree, *arithmetic).expect("a sum"))
        .collect();
    (0..probe.runs() as usize)
        .map(|run| {
            let addends: Vec<f32> = inputs.iter().map(|rank| rank[run]).collect();
            folded.iter().map(|folded| folded.value(&addends)).collect()
        })
        .collect()
}

fn any_dtype() -> impl Strategy<Value = Dtype> {
    prop::sample::select(vec![Dtype::F32, Dtype::Bf16, Dtype::F16])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn a_probed_tree_is_the_tree(
        (tree, other) in (3u32..24).prop_flat_map(|ranks| (any_tree(ranks), any_tree(ranks))),
        dtype in any_dtype(),
    ) {
        let ranks = tree.addend_count();
        let own = Arithmetic::sum(dtype, dtype, dtype);
        let probe = Probe::new(ranks, dtype).expect("a probe");
        let outputs = outputs(probe, &[(&tree, own), (&tree, own), (&other, own), (&tree, own)]);
        let read = probe.read(&outputs);
        let is_one = one_element(&tree, own).same_bits(&one_element(&other, own));
        prop_assert_eq!(read.len(), if is_one { 1 } else { 3 });
        for one in &read {
            let (found, arithmetic) = one.tree.clone().expect("a tree");
            let expected = if one.range.contains(&2) { &other } else { &tree };
            prop_assert_eq!(arithmetic, Some(own));
            prop_assert!(one_element(&found, own).same_bits(&one_element(expected, own)));
        }
        let plan = probe.plan(&read).expect("one plan");
        prop_assert_eq!(plan.check(), Ok(()));
    }

    /// bf16 is masked in f32 too: the order shows, and random numbers tell where it is rounded.
    #[test]
    fn a_sum_in_f32_is_told_from_one_in_the_type(tree in (4u32..16).prop_flat_map(any_tree)) {
        let wide = Arithmetic::sum(Dtype::Bf16, Dtype::F32, Dtype::Bf16);
        let probe = Probe::new(tree.addend_count(), Dtype::Bf16).expect("a probe");
        let read = probe.read(&outputs(probe, &[(&tree, wide)]));
        let (found, arithmetic) = read[0].tree.clone().expect("a tree");
        prop_assert_eq!(arithmetic, Some(wide));
        prop_assert!(one_element(&found, wide).same_bits(&one_element(&tree, wide)));
    }

    #[test]
    fn sizes_give_back_their_tree(tree in (1u32..64).prop_flat_map(any_tree)) {
        let sizes = met_under(&tree);
        let found = reconstruct(tree.addend_count(), &|i, j| sizes[i as usize][j as usize]);
        let found = found.expect("sizes of a tree");
        let rules = Arithmetic::sum(Dtype::F32, Dtype::F32, Dtype::F32);
        prop_assert!(one_element(&found, rules).same_bits(&one_element(&tree, rules)));
    }

    /// Negative control: one wrong count is no tree, or another one.
    #[test]
    fn a_wrong_count_is_seen(
        tree in (4u32..16).prop_flat_map(any_tree),
        pick in any::<u32>(),
        change in 1u32..4,
    ) {
        let own = Arithmetic::sum(Dtype::F32, Dtype::F32, Dtype::F32);
        let probe = Probe::new(tree.addend_count(), Dtype::F32).expect("a probe");
        let mut outputs = outputs(probe, &[(&tree, own)]);
        let run = (pick % (probe.runs() - RANDOM_PROBES)) as usize;
        let count = f32::from_bits(outputs[run][0]) as u32;
        outputs[run][0] = (((count + change) % probe.ranks) as f32).to_bits();
        match &probe.read(&outputs)[0].tree {
            Err(_) => {}
            Ok((found, arithmetic)) => {
                let is_same = one_element(found, own).same_bits(&one_element(&tree, own));
                prop_assert!(!is_same && arithmetic.is_none());
            }
        }
    }
}

/// A switch that adds exactly and rounds once has no tree, and is not given one.
#[test]
fn an_exact_sum_has_no_tree() {
    let probe = Probe::new(4, Dtype::F32).expect("a probe");
    let inputs: Vec<Vec<f32>> = (0..4).map(|rank| probe.inputs(rank)).collect();
    let exact = |run: usize| {
        let sum: f64 = inputs.iter().map(|rank| f64::from(rank[run])).sum();
        // Masks of 2^100 and units: what cancels cancels exactly, the rest is small.
        let masked = run < 6;
        let value = if masked { 2.0 } else { sum as f32 };
        vec![value.to_bits()]
    };
    let read = probe.read(&(0..probe.runs() as usize).map(exact).collect::<Vec<_>>());
    assert!(
        matches!(read[0].tree, Err(NotCounted::NotATree(_))),
        "{read:?}"
    );
    assert!(probe.plan(&read).is_none());
}

/// A recorded call, its inputs made again.
struct Case {
    operation: Operation,
    dtype: Dtype,
    shards: Shards,
    sha256: String,
}

/// Elements of the largest case that is made again here.
const ELEMENTS_MAX: u64 = 100_000;

fn case(json: &Value, file: &Value) -> Option<Case> {
    let text = |key: &str| json[key].as_str().unwrap_or_default();
    let dtype = match text("dtype") {
        "float32" => Dtype::F32,
        "bfloat16" => Dtype::Bf16,
        "float16" => Dtype::F16,
        // Plans have no type of 64 bits.
        _ => return None,
    };
    let ranks = json["n"].as_u64().expect("a number") as u32;
    let root = json["root"].as_u64().unwrap_or(0) as u32;
    let (operation, blocks) = match text("op") {
        "all_reduce" | "allreduce" => (Operation::AllReduce, 1),
        "reduce_scatter" | "reduce_scatter_block" if json["counts"].is_null() => {
            (Operation::ReduceScatter, u64::from(ranks))
        }
        "reduce" => (Operation::Reduce { root }, 1),
        "reduce_dst0" => (Operation::Reduce { root: 0 }, 1),
        "reduce_dstlast" => (Operation::Reduce { root: ranks - 1 }, 1),
        // Averages, several tensors in one call, uneven blocks.
        _ => return None,
    };
    let elements = json["count"].as_u64()? * blocks;
    if elements > ELEMENTS_MAX {
        return None;
    }
    let table = || edge_table(file, text("dtype"));
    let edge = (text("profile") == "edge").then(table);
    let seed = json["seed"].as_u64().expect("a number");
    let format = format(text("dtype"));
    let word = |bits: u64| match dtype {
        Dtype::Bf16 => (bits as u32) << 16,
        Dtype::F16 => half::f16::from_bits(bits as u16).to_f32().to_bits(),
        _ => bits as u32,
    };
    let of_rank = |rank| {
        (0..elements)
            .map(|element| word(input(seed, rank, element, &format, edge.as_deref())))
            .collect()
    };
    Some(Case {
        operation,
        dtype,
        shards: Shards {
            dtype,
            inputs: (0..ranks).map(of_rank).collect(),
            output: Vec::new(),
        },
        sha256: text("sha256").to_string(),
    })
}

impl Case {
    fn candidates(&self) -> Vec<Candidate> {
        let ranks = self.shards.inputs.len() as u32;
        let members: Vec<u32> = (0..ranks).collect();
        let elements = self.shards.inputs[0].len() as u64;
        candidates(self.operation, self.dtype, elements, &members, None)
    }

    /// The real result: that of a candidate whose bytes have the recorded hash.
    fn output(&self, candidates: &[Candidate]) -> Option<Vec<u32>> {
        candidates.iter().find_map(|candidate| {
            let plan = &candidate.plan;
            let mut out = Vec::new();
            for piece in &plan.pieces {
                let folded = Folded::new(&piece.tree, plan.arithmetic).expect("a sum");
                out.extend(piece.range.clone().map(|element| {
                    let addends = self.shards.inputs.iter();
                    let addends = addends.map(|rank| f32::from_bits(rank[element as usize]));
                    folded.value(&addends.collect::<Vec<f32>>())
                }));
            }
            let packed = out.iter().flat_map(|word| packed(self.dtype, *word));
            (sha256::hex(&packed.collect::<Vec<u8>>()) == self.sha256).then_some(out)
        })
    }
}

fn packed(dtype: Dtype, word: u32) -> Vec<u8> {
    match dtype {
        Dtype::Bf16 => ((word >> 16) as u16).to_le_bytes().to_vec(),
        Dtype::F16 => half::f16::from_f32(f32::from_bits(word))
            .to_le_bytes()
            .to_vec(),
        _ => word.to_le_bytes().to_vec(),
    }
}

/// What each case's result is identified as: the names of the plans that are left.
fn identified(file: &Value) -> Vec<(Value, Vec<Vec<String>>)> {
    let cases = file["cases"].as_array().expect("a list");
    cases
        .par_iter()
        .filter_map(|json| {
            let mut case = case(json, file)?;
            let list = case.candidates();
            let Some(output) = case.output(&list) else {
                return Some((json.clone(), Vec::new()));
            };
            case.shards.output = output;
            let found = Identification::of_values(&case.shards, list);
            let left = found.left().map(|one| one.names.clone()).collect();
            Some((json.clone(), left))
        })
        .collect()
}

#[test]
fn results_of_gloo_are_identified_as_gloos() {
    let found = identified(&golden("gloo_allreduce.json"));
    assert!(found.len() > 100, "{}", found.len());
    let mut alone = 0;
    for (json, left) in &found {
        let is_gloo = |names: &Vec<String>| names.iter().any(|name| name.starts_with("Gloo"));
        // Values at the edge of the type overflow: no order, or NaN whatever the order.
        let seed = hex(&[json["seed"].as_u64().expect("a number")], 8);
        assert!(left.iter().any(is_gloo), "seed {seed}, {json}: {left:?}");
        alone += usize::from(left.len() == 1);
    }
    assert!(alone > found.len() / 2, "{alone} of {}", found.len());
}

#[test]
fn results_of_open_mpi_are_identified_by_their_algorithm() {
    let found = identified(&golden("mpi_allreduce.json"));
    assert!(found.len() > 400, "{}", found.len());
    let mut alone = 0;
    for (json, left) in &found {
        let algorithm = json["algorithm"].as_str().expect("a name");
        assert!(!left.is_empty(), "{json}");
        alone += usize::from(left.len() == 1);
        // What the library chose itself has another's tree.
        if algorithm.starts_with("default") {
            continue;
        }
        let wanted = algorithm.replace("segmented_ring", "ring");
        let is_it = |names: &Vec<String>| {
            names
                .iter()
                .any(|name| name.starts_with("Open MPI") && name.contains(&wanted))
        };
        assert!(left.iter().any(is_it), "{json}: {left:?}");
    }
    assert!(alone > found.len() / 2, "{alone} of {}", found.len());
}

/// A result of no known plan is not given one: two ranges keep their trees, one element none.
#[test]
fn ranges_are_told_where_no_plan_fits() {
    let rules = Arithmetic::sum(Dtype::F32, Dtype::F32, Dtype::F32);
    let ranks = 5u32;
    let format = format("float32");
    let of_rank = |rank| {
        let element = |element| input(7, rank, element, &format, None) as u32;
        (0..600).map(element).collect::<Vec<u32>>()
    };
    let inputs: Vec<Vec<u32>> = (0..ranks).map(of_rank).collect();
    let turn = |start| Tree::Chain {
        ring: (0..ranks).collect(),
        start,
    };
    let value = |tree: &Tree, element: usize| {
        let addends: Vec<f32> = inputs
            .iter()
            .map(|rank| f32::from_bits(rank[element]))
            .collect();
        Folded::new(tree, rules).expect("a sum").value(&addends)
    };
    let mut output: Vec<u32> = (0..600)
        .map(|element| value(&turn(if element < 377 { 2 } else { 4 }), element))
        .collect();
    output[590] ^= 1 << 20;
    let shards = Shards {
        dtype: Dtype::F32,
        inputs: inputs.clone(),
        output,
    };
    let members: Vec<u32> = (0..ranks).collect();
    let list = candidates(Operation::AllReduce, Dtype::F32, 600, &members, None);
    let found = Identification::of_values(&shards, list);
    assert_eq!(found.left().count(), 0);
    let excluded = found.excluded.iter().flatten();
    assert!(excluded.clone().all(|why| matches!(why, Why::Value(_))));
    let ranges: Vec<_> = found
        .explained
        .iter()
        .map(|one| one.range.clone())
        .collect();
    assert_eq!(ranges.len(), 4, "{ranges:?}");
    assert!(ranges[0].end.abs_diff(377) < 10, "{ranges:?}");
    assert_eq!(ranges[2], 590..591);
    assert!(found.explained[2].trees.is_empty());
    let trees = &found.explained[0].trees;
    let is_turn = |(tree, _): &(Tree, Option<Arithmetic>)| {
        one_element(tree, rules).same_bits(&one_element(&turn(2), rules))
    };
    assert!(trees.len() == 1 && is_turn(&trees[0]), "{trees:?}");
}
