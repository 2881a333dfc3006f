//! One fold at a time, on the real world: what the sweep says of it.

use std::sync::{Arc, OnceLock};

mod plans;
mod vacuity;

use super::*;
use crate::engine::cpu::CpuEngine;
use crate::kernel::Registry;
use crate::numerics::Dtype;
use crate::numerics::ladder::{Order, OrderClass, Verdict, portfolio, prove};
use crate::plan::{Arithmetic, Combine, Init, Piece, Plan, Tree};
use crate::world::{
    CollectiveShape, Communicator, LocalOrder, PlanSource, Rank, RankError, RunOptions, Segments,
    SlotFold, World,
};

/// Words of every tensor here; all elements are alike but where a test says otherwise.
const LEN: u32 = 4;

struct FullSizeOf(u32);

impl FullSizeAddends for FullSizeOf {
    fn addends(&self, _: Family, _: Option<GroupId>, here: u32) -> u32 {
        here.max(self.0)
    }
}

fn options(element_budget: u64, full_size: u32) -> SweepOptions {
    SweepOptions {
        seed: 3,
        element_budget,
        groups: ["all".to_string()].into(),
        full_size: Arc::new(FullSizeOf(full_size)),
        plans: None,
        sums: None,
    }
}

/// Every collective takes these.
struct Plans(Arc<[Arc<Plan>]>);

impl PlanSource for Plans {
    fn plans(&self, _: CollectiveShape) -> Result<Arc<[Arc<Plan>]>, String> {
        Ok(self.0.clone())
    }
}

fn registry() -> Arc<Registry> {
    static REGISTRY: OnceLock<Arc<Registry>> = OnceLock::new();
    REGISTRY
        .get_or_init(|| Arc::new(Registry::new().expect("the kernels link")))
        .clone()
}

fn swept(
    options: SweepOptions,
    ranks: u32,
    plans: &[Plan],
    program: impl Fn(&mut Rank) -> Result<(), RankError> + Sync,
) -> Sweep {
    let world = World {
        ranks,
        communicators: Arc::new([Communicator {
            name: "all".into(),
            ranks: (0..ranks).collect(),
        }]),
        registry: registry(),
        plans: Arc::new(Plans(plans.iter().cloned().map(Arc::new).collect())),
    };
    let mut engine = CpuEngine::new(1).expect("this machine has an engine");
    let mut sweep = Sweep::new(options);
    let run = world.run(&mut engine, &RunOptions::default(), &program, &mut sweep);
    run.expect("the program runs");
    assert_eq!(sweep.points(), 1);
    sweep
}

/// A local fold over slots of one value each.
#[derive(Clone)]
struct Slots {
    values: Vec<f32>,
    addend: Dtype,
    out: Dtype,
    init: Init,
    held: f32,
    order: LocalOrder,
}

impl Slots {
    fn arrival(values: &[f32]) -> Slots {
        Slots {
            values: values.to_vec(),
            addend: Dtype::F32,
            out: Dtype::F32,
            init: Init::First,
            held: 0.0,
            order: LocalOrder::Arrival,
        }
    }

    fn swept(&self, options: SweepOptions) -> Sweep {
        swept(options, 1, &[], |rank| {
            let slots = self.values.len() as u32;
            let addends = rank.alloc("addends", self.addend, slots * LEN);
            let all: Vec<f32> = self
                .values
                .iter()
                .flat_map(|x| [*x; LEN as usize])
                .collect();
            rank.upload_f32("load", addends, &all);
            let out = rank.alloc("out", self.out, LEN);
            rank.upload_f32("hold", out, &[self.held; LEN as usize]);
            let fold = SlotFold {
                family: Family::WgradSplitK,
                addends,
                slots,
                out,
                init: self.init,
                order: self.order,
            };
            rank.fold("fold", fold);
            rank.end_step()
        })
    }

    fn rung(&self) -> Option<Rung> {
        rung(&self.swept(options(1 << 12, 0)))
    }
}

/// What the one point was proved by.
fn rung(sweep: &Sweep) -> Option<Rung> {
    let key = sweep.tallies.keys().next().expect("one point");
    let sensitive: u64 = sweep.sensitive.values().sum();
    assert_eq!(key.rung.is_none(), sensitive == 1);
    key.rung
}

/// `rank k` adds `values[k]`, by each of `plans`.
fn reduced(values: &[f32], dtype: Dtype, plans: &[Plan], options: SweepOptions) -> Sweep {
    swept(options, values.len() as u32, plans, |rank| {
        let tensor = rank.alloc("x", dtype, LEN);
        rank.upload_f32("load", tensor, &[values[rank.id as usize]; LEN as usize]);
        let family = Family::DpGradients;
        let handle = rank.all_reduce("reduce", family, GroupId(0), tensor, Combine::Sum);
        rank.wait(handle);
        rank.end_step()
    })
}

fn chain(ring: &[u32], arithmetic: Arithmetic) -> Plan {
    Plan {
        addend_count: ring.len() as u32,
        element_count: LEN.into(),
        arithmetic,
        pieces: vec![Piece {
            range: 0..LEN.into(),
            tree: Tree::Chain {
                ring: ring.into(),
                start: 0,
            },
        }],
    }
}

fn f32_sum() -> Arithmetic {
    Arithmetic::sum(Dtype::F32, Dtype::F32, Dtype::F32)
}

/// Half a unit in the last place of 1.
const HALF_ULP: f32 = f32::EPSILON / 2.0;
const TINY: f32 = f32::EPSILON / 1024.0;

/// Values with full bf16 significands, and their sum nowhere near a rounding boundary of bf16.
const ROUGH_BF16: [f32; 5] = [1.0078125, 130.0, 0.00390625, 3.984375e-6, 2.515625];

#[test]
fn each_rung_is_seen_on_a_suitable_fold() {
    assert_eq!(Slots::arrival(&[0.1, 0.7]).rung(), Some(Rung::L0));
    assert_eq!(Slots::arrival(&[1.0, 2.0, 5.0]).rung(), Some(Rung::L1));
    let absorbed = Slots {
        addend: Dtype::Bf16,
        out: Dtype::Bf16,
        ..Slots::arrival(&ROUGH_BF16)
    };
    assert_eq!(absorbed.rung(), Some(Rung::L2));
    assert_eq!(Slots::arrival(&[1.0, TINY, TINY]).rung(), Some(Rung::L3));
    assert_eq!(
        Slots::arrival(&[1.0, TINY, f32::NAN]).rung(),
        Some(Rung::L4)
    );
    let many = [&[1.0][..], &[TINY; 15]].concat();
    assert_eq!(Slots::arrival(&many).rung(), Some(Rung::L5));
    let ordered = Slots {
        order: LocalOrder::Ordered,
        ..Slots::arrival(&[1.0, HALF_ULP, HALF_ULP])
    };
    assert_eq!(ordered.rung(), Some(Rung::Plan));
}

#[test]
fn the_accumulator_is_an_addend_unless_it_is_a_proven_zero() {
    let of = |init, held| Slots {
        init,
        held,
        ..Slots::arrival(&[HALF_ULP, HALF_ULP])
    };
    assert_eq!(of(Init::Zero, 1.0).rung(), Some(Rung::L0));
    assert_eq!(of(Init::First, 1.0).rung(), Some(Rung::L0));
    // 1 + u + u is 1 either way round, but that is for the data to show.
    assert_eq!(of(Init::Accumulator, 1.0).rung(), Some(Rung::L3));
    let parting = Slots {
        values: vec![HALF_ULP, -1.0],
        ..of(Init::Accumulator, 1.0)
    };
    let sweep = parting.swept(options(1 << 12, 0));
    assert_eq!(rung(&sweep), None);
    assert_eq!(sweep.first[&Reach::Within].held, Some(1.0));
}

#[test]
fn a_budget_too_small_is_stated_as_a_sample() {
    let fold = Slots::arrival(&[1.0, TINY, TINY]);
    let sweep = fold.swept(options(0, 0));
    assert_eq!(rung(&sweep), Some(Rung::L5));
    assert_eq!(
        sweep.orders_sampled_min,
        Some(crate::numerics::ladder::RANDOM_ORDERS)
    );
    assert_eq!(sweep.input_point_count, 0, "a sample proves no input");
}

/// The finding's results, evaluated by the ladder in the finding's orders.
fn evaluated(finding: &Finding) -> [f32; 2] {
    [0, 1].map(|side| {
        let side = &finding.sides[side];
        let values: Vec<f32> = finding.addends.iter().map(|addend| addend.value).collect();
        let Tree::Chain { ring, .. } = &side.tree else {
            panic!("chains were swept")
        };
        let sum = sum_of(&side.arithmetic, finding.held, &values);
        sum.evaluate(&Order::Chain(ring.to_vec())).unwrap()
    })
}

#[test]
fn a_witness_is_one_swap_where_that_suffices_and_reproduces() {
    let fold = Slots::arrival(&[1.0, 0.0, HALF_ULP, HALF_ULP, -1.0]);
    let sweep = fold.swept(options(1 << 12, 0));
    let finding = &sweep.first[&Reach::Within];
    let Variable::Arrival { permutation, swap } = &finding.variable else {
        panic!("the order of arrival varies")
    };
    assert_eq!((&permutation[..], *swap), (&[0, 1, 2, 4, 3][..], Some(3)));
    assert_eq!(adjacent_swaps(permutation), 1);
    assert_eq!(
        (finding.sides[0].result, finding.sides[1].result),
        (0.0, HALF_ULP)
    );
    assert_eq!(evaluated(finding), [0.0, HALF_ULP]);
    assert_eq!((finding.element, finding.differing_elements), (0, 4));
}

/// Addends that no order tried without a look at the data parts, and the ladder does.
fn parted_by_the_ladder_only() -> Vec<f32> {
    let parts = |values: &Vec<f32>| {
        let arithmetic = f32_sum();
        let sum = sum_of(&arithmetic, None, values);
        let blind = portfolio(&[0.0; 8], 3).into_iter();
        let mut results = blind.map(|order| sum.evaluate(&Order::Chain(order)).unwrap().to_bits());
        let first = results.next();
        let same = results.all(|result| Some(result) == first);
        let verdict = prove(&sum, OrderClass::Chains, 1 << 12, 3);
        same && matches!(verdict, Verdict::Different(_))
    };
    let mut counter = 0u64;
    let mut value = || {
        counter = counter.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (counter ^ counter >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let bits = (mixed >> 32) as u32;
        f32::from_bits((110 + (bits >> 16) % 18) << 23 | (bits & 0xff) << 15)
    };
    let candidates = (0..20_000).map(|_| (0..8).map(|_| value()).collect::<Vec<f32>>());
    candidates
        .into_iter()
        .find(parts)
        .expect("nearly exact sums hide from random orders")
}

#[test]
fn what_the_engines_orders_miss_the_ladder_finds() {
    let fold = Slots::arrival(&parted_by_the_ladder_only());
    let sweep = fold.swept(options(1 << 12, 0));
    assert_eq!(rung(&sweep), None);
    let finding = &sweep.first[&Reach::Within];
    let results = [0, 1].map(|side: usize| finding.sides[side].result);
    assert_eq!(evaluated(finding), results);
    assert_ne!(results[0], results[1]);
    // Without the budget for it, the same fold is a sample.
    assert_eq!(rung(&fold.swept(options(0, 0))), Some(Rung::L5));
}

#[test]
fn rows_of_a_segment_land_in_any_order_and_only_its_own() {
    let rows = [1.0, 64.0, HALF_ULP, HALF_ULP];
    let of = |pointers: &[u32], indices: &[u32]| {
        let segments = Segments {
            pointers: pointers.into(),
            indices: indices.into(),
        };
        swept(options(1 << 12, 0), 1, &[], |rank| {
            let addends = rank.alloc("rows", Dtype::F32, LEN * rows.len() as u32);
            let all: Vec<f32> = rows.iter().flat_map(|x| [*x; LEN as usize]).collect();
            rank.upload_f32("load", addends, &all);
            let out = rank.alloc(
                "out",
                Dtype::F32,
                LEN * (segments.pointers.len() as u32 - 1),
            );
            let (family, order) = (Family::EmbeddingGrad, LocalOrder::Arrival);
            rank.fold_segments("add", family, addends, LEN, &segments, out, order);
            rank.end_step()
        })
    };
    // Two rows each, which is this input's doing: not a proof for all inputs.
    assert_eq!(rung(&of(&[0, 2, 4], &[0, 1, 2, 3])), Some(Rung::L1));
    let sweep = of(&[0, 1, 4], &[1, 0, 2, 3]);
    let finding = &sweep.first[&Reach::Within];
    let names: Vec<&str> = finding
        .addends
        .iter()
        .map(|addend| &addend.name[..])
        .collect();
    assert_eq!((finding.element, names), (4, vec!["row0", "row2", "row3"]));
    assert_eq!(
        evaluated(finding),
        [finding.sides[0].result, finding.sides[1].result]
    );
    // A row that is added three times: the sum has orders that no landing of whole rows gives.
    assert_eq!(rung(&of(&[0, 4], &[0, 2, 2, 2])), None);
}
