//! Folds whose addends stand ready against the same folds gathered from scattered places.

mod parts;

use std::sync::Arc;

use crate::engine::cpu::CpuEngine;
use crate::engine::{Engine, Span};
use crate::kernel::Registry;
use crate::numerics::Dtype;
use crate::plan::{Arithmetic, Init, Op, Piece, Plan, Tree};
use crate::world::order::{Choice, NodeId, Owner};
use crate::world::rank::COMPUTE_STREAM;
use crate::world::site::{Family, Phase, Site};

use super::slots::strided;
use super::{FoldJob, FoldLab, FoldNode, FoldOrder, FoldPrograms, SlotsJob};

/// A fold of `n` addends of `count` elements, and where its addends stand.
#[derive(Clone, Copy, Debug)]
struct Case {
    n: u32,
    count: u32,
    stride: u32,
    start: u32,
    init: Init,
    tree: bool,
    partial: Dtype,
}

const CASES: [Case; 6] = [
    case(3, 64, 64, 0, Init::First),
    case(4, 1028, 1088, 64, Init::Accumulator),
    case(16, 4, 4, 128, Init::Zero),
    Case {
        tree: true,
        ..case(5, 32, 96, 4, Init::Accumulator)
    },
    Case {
        tree: true,
        partial: Dtype::Bf16,
        ..case(8, 12, 16, 0, Init::Zero)
    },
    Case {
        partial: Dtype::F16,
        ..case(2, 8, 8, 0, Init::First)
    },
];

const fn case(n: u32, count: u32, stride: u32, start: u32, init: Init) -> Case {
    Case {
        n,
        count,
        stride,
        start,
        init,
        tree: false,
        partial: Dtype::F32,
    }
}

impl Case {
    /// Values of many sizes and both signs, so that another order has other bits.
    fn words(&self, k: u32) -> Vec<u32> {
        let value = |element: u32| {
            let mixed = (k * 7919 + element + 1).wrapping_mul(0x9e37_79b9);
            let exponent = 120 + mixed % 17;
            (mixed & 0x8000_0000) | exponent << 23 | (mixed >> 9 & 0x7f_ffff)
        };
        (0..self.count).map(value).collect()
    }

    /// Two pieces with orders of their own where they can be cut at a vec4.
    fn plan(&self) -> Arc<Plan> {
        let elements = u64::from(self.count);
        let cut = elements / 2 / 4 * 4;
        let pieces = [0..cut, cut..elements]
            .into_iter()
            .filter(|range| !range.is_empty())
            .enumerate();
        let ring: Arc<[u32]> = (0..self.n).rev().collect();
        let piece = |(number, range): (usize, std::ops::Range<u64>)| {
            let tree = match self.tree && number == 0 {
                true => Tree::Ops(left_fold(self.n)),
                false => Tree::Chain {
                    ring: ring.clone(),
                    start: number as u32 % self.n,
                },
            };
            Piece { range, tree }
        };
        Arc::new(Plan {
            addend_count: self.n,
            element_count: elements,
            arithmetic: Arithmetic {
                init: self.init,
                partial: self.partial,
                ..Arithmetic::sum(Dtype::F32, self.partial, Dtype::F32)
            },
            pieces: pieces.map(piece).collect(),
        })
    }
}

fn left_fold(n: u32) -> Arc<[Op]> {
    let later = (1..n).flat_map(|k| [Op::Push(k), Op::Combine]);
    std::iter::once(Op::Push(0)).chain(later).collect()
}

fn programs(engine: &mut dyn Engine) -> FoldPrograms {
    let registry = Registry::new().unwrap();
    let kernel = |name: &str| registry.get(name).unwrap();
    FoldPrograms::new(engine, kernel("fold"), kernel("fold_segments")).unwrap()
}

fn node(job: SlotsJob) -> FoldNode {
    FoldNode {
        id: NodeId {
            step: 1,
            owner: Owner::Rank(0),
            ordinal: 0,
        },
        wave: 0,
        site: Arc::new(Site {
            step: 1,
            microbatch: None,
            phase: Phase::GradReduce,
            module: "main_grad".into(),
            op: "accumulate".into(),
        }),
        stream: COMPUTE_STREAM,
        family: Family::MicrobatchAccumulation,
        group: None,
        ranks: Arc::new([0]),
        choice: Choice::Pinned,
        shape: None,
        job: FoldJob::Slots(job),
    }
}

/// The job with its addends in one arena, evenly apart, the result behind them.
fn ready(engine: &mut dyn Engine, case: &Case) -> SlotsJob {
    let end = case.start + case.n * case.stride;
    let arena = engine.alloc(end + case.count, 0).unwrap();
    let at = |offset_words| Span {
        arena,
        offset_words,
        words: case.count,
    };
    let addends = (0..case.n).map(|k| at(case.start + k * case.stride));
    job(engine, case, addends.collect(), at(end))
}

/// The same job with each addend in an arena of its own.
fn scattered(engine: &mut dyn Engine, case: &Case) -> SlotsJob {
    let mut own = || Span {
        arena: engine.alloc(case.count, 0).unwrap(),
        offset_words: 0,
        words: case.count,
    };
    let spans = (0..case.n).map(|_| own()).collect();
    let out = own();
    job(engine, case, spans, out)
}

fn job(engine: &mut dyn Engine, case: &Case, addends: Vec<Span>, out: Span) -> SlotsJob {
    for (k, span) in addends.iter().enumerate() {
        engine.write(*span, &case.words(k as u32)).unwrap();
    }
    engine.write(out, &case.words(case.n)).unwrap();
    SlotsJob {
        addends,
        accumulator: (case.init == Init::Accumulator).then_some(out),
        plan: case.plan(),
        outs: vec![(0..u64::from(case.count), out)],
    }
}

/// What evaluation says, and what execution leaves at the destination.
fn results(lab: &mut FoldLab<'_>, job: SlotsJob) -> (Vec<u32>, Vec<u32>) {
    let order = FoldOrder::Plan(job.plan.clone());
    let out = job.outs[0].1;
    let node = node(job);
    let evaluated = lab.evaluate(&node, &order).unwrap();
    lab.execute(&[(&node, order)]).unwrap();
    (evaluated, lab.engine.read(out).unwrap())
}

#[test]
fn addends_that_stand_ready_give_the_bits_of_gathered_ones() {
    let mut engine = CpuEngine::new(1).unwrap();
    let programs = programs(&mut engine);
    for case in CASES {
        let (a, b) = (ready(&mut engine, &case), scattered(&mut engine, &case));
        assert!(strided(&a, 0, case.count).is_some(), "{case:?}");
        assert!(strided(&b, 0, case.count).is_none(), "{case:?}");
        let engine = &mut engine as &mut dyn Engine;
        let mut lab = FoldLab {
            engine,
            programs: programs.clone(),
        };
        let (evaluated, executed) = results(&mut lab, a);
        assert_eq!(evaluated, executed, "{case:?}");
        assert_eq!((evaluated, executed), results(&mut lab, b), "{case:?}");
    }
}

#[test]
fn addends_off_the_grid_are_gathered() {
    let mut engine = CpuEngine::new(1).unwrap();
    let good = case(3, 64, 64, 0, Init::First);
    let off = [
        Case { start: 2, ..good },
        Case { stride: 66, ..good },
        Case { count: 62, ..good },
    ];
    for case in off {
        let job = ready(&mut engine, &case);
        assert!(strided(&job, 0, case.count).is_none(), "{case:?}");
    }
    // An addend that is taken twice, a step backwards, an uneven step.
    let job = ready(&mut engine, &good);
    for places in [[0, 0, 1], [2, 1, 0], [0, 2, 2]] {
        let addends = places.map(|place| job.addends[place]).to_vec();
        let other = SlotsJob {
            addends,
            ..job.clone()
        };
        assert!(strided(&other, 0, good.count).is_none(), "{places:?}");
    }
    assert!(strided(&job, 0, good.count).is_some());
}

/// The comparison above can fail: another order has other bits on these values.
#[test]
fn another_order_has_other_bits() {
    let mut engine = CpuEngine::new(1).unwrap();
    let programs = programs(&mut engine);
    let job = ready(&mut engine, &CASES[1]);
    let engine = &mut engine as &mut dyn Engine;
    let mut lab = FoldLab {
        engine,
        programs: programs.clone(),
    };
    let plan = FoldOrder::Plan(job.plan.clone());
    let node = node(job);
    let ascending = FoldOrder::Permutation((0..CASES[1].n).collect());
    let (a, b) = (lab.evaluate(&node, &plan), lab.evaluate(&node, &ascending));
    assert_ne!(a.unwrap(), b.unwrap());
}
