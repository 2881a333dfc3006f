//! Folds that are cut by elements against the same folds in one piece.

use super::*;
use crate::world::fold::{FoldLimits, SegmentsJob, parts};
use crate::world::rank::Segments;

/// Every fold of `CASES` with its addends ready and scattered, and one whose results go where
/// addends of other elements lie: what it evaluates and what it leaves, and all its arenas hold.
fn all_results(engine: &mut dyn Engine, limits: Option<FoldLimits>) -> Vec<Vec<u32>> {
    let mut programs = programs(engine);
    programs.limits = limits.unwrap_or(programs.limits);
    let mut found = Vec::new();
    for case in CASES {
        for job in [
            ready(engine, &case),
            scattered(engine, &case),
            shifted(engine, &case),
        ] {
            let spans: Vec<Span> = job
                .addends
                .iter()
                .chain(job.outs.iter().map(|out| &out.1))
                .copied()
                .collect();
            let mut lab = FoldLab {
                engine: &mut *engine,
                programs: programs.clone(),
            };
            let (evaluated, executed) = results(&mut lab, job);
            found.extend([evaluated, executed]);
            found.extend(spans.iter().map(|span| engine.read(*span).unwrap()));
        }
    }
    found
}

/// The scattered job, its result shifted by four elements against its first addend.
fn shifted(engine: &mut dyn Engine, case: &Case) -> SlotsJob {
    let arena = engine.alloc(case.count + 4, 0).unwrap();
    let at = |offset_words| Span {
        arena,
        offset_words,
        words: case.count,
    };
    let mut job = scattered(engine, case);
    engine.write(at(0), &case.words(0)).unwrap();
    job.addends[0] = at(0);
    job.outs[0].1 = at(4);
    job
}

/// So few words that each case of two pieces needs several parts, some of which end inside one.
const SMALL: FoldLimits = FoldLimits {
    words: 400,
    workgroups: 1,
};

#[test]
fn a_fold_in_parts_has_the_bits_of_the_whole() {
    let mut engine = CpuEngine::new(1).unwrap();
    let whole = all_results(&mut engine, None);
    assert_eq!(all_results(&mut engine, Some(SMALL)), whole);
    for case in CASES {
        let job = scattered(&mut engine, &case);
        let parts = parts::parts(&job, &job.plan.pieces, SMALL.words).unwrap();
        let covered: Vec<u64> = parts
            .iter()
            .flatten()
            .flat_map(|piece| piece.range.clone())
            .collect();
        assert_eq!(covered, (0..u64::from(case.count)).collect::<Vec<_>>());
        assert_eq!(parts.len() > 1, case.count > 4, "{case:?}: {}", parts.len());
        // A piece keeps its order.
        for piece in parts.iter().flatten() {
            let whole = |of: &&Piece| of.range.contains(&piece.range.start);
            let whole = job.plan.pieces.iter().find(whole).unwrap();
            assert!(piece.tree == whole.tree && piece.range.end <= whole.range.end);
        }
    }
}

#[test]
fn a_fold_in_parts_has_the_same_bits_on_an_adapter() {
    use crate::engine::wgpu::{WgpuEngine, skip};
    let Some(mut adapter) = skip::unless_missing(WgpuEngine::new()) else {
        return;
    };
    let whole = all_results(&mut CpuEngine::new(1).unwrap(), None);
    assert_eq!(all_results(&mut adapter, Some(SMALL)), whole);
    assert_eq!(all_results(&mut adapter, None), whole);
}

/// Trees of a plan are by element: with those of its second piece first, the bits are others.
#[test]
fn a_piece_in_the_wrong_place_has_other_bits() {
    let mut engine = CpuEngine::new(1).unwrap();
    let mut programs = programs(&mut engine);
    programs.limits = SMALL;
    let job = scattered(&mut engine, &CASES[1]);
    let mut plan = job.plan.as_ref().clone();
    let (first, second) = plan.pieces.split_at_mut(1);
    std::mem::swap(&mut first[0].tree, &mut second[0].tree);
    let node = node(job.clone());
    let mut lab = FoldLab {
        engine: &mut engine,
        programs,
    };
    let right = lab.evaluate(&node, &FoldOrder::Plan(job.plan)).unwrap();
    let wrong = lab
        .evaluate(&node, &FoldOrder::Plan(Arc::new(plan)))
        .unwrap();
    assert_ne!(right, wrong);
}

#[test]
fn addends_of_which_no_four_fit_are_refused() {
    let mut engine = CpuEngine::new(1).unwrap();
    let job = scattered(&mut engine, &CASES[2]);
    let refused = parts::parts(&job, &job.plan.pieces, 64);
    assert!(
        matches!(&refused, Err(crate::engine::EngineError::OutOfMemory { reason, .. })
            if reason.contains("16 addends")),
        "{refused:?}"
    );
}

#[test]
fn rows_in_several_launches_and_batches_have_the_bits_of_one() {
    let mut engine = CpuEngine::new(1).unwrap();
    let (rows, out_rows, width) = (24u32, 70u32, 8u32);
    let words: Vec<u32> = (0..rows * width)
        .map(|k| (1.0 / (k + 1) as f32).to_bits())
        .collect();
    let mut found = Vec::new();
    for limits in [None, Some(SMALL), Some(FoldLimits { words: 1, ..SMALL })] {
        let mut programs = programs(&mut engine);
        programs.limits = limits.unwrap_or(programs.limits);
        let nodes: Vec<FoldNode> = (1..4u32)
            .map(|step| {
                let mut place = |words: u32| engine.alloc(words, 0).unwrap().first(words);
                let (from, out) = (place(rows * width), place(out_rows * width));
                engine.write(from, &words).unwrap();
                let landed = |row: u32| (row * step + row / 7) % out_rows;
                let mut sorted: Vec<u32> = (0..rows).collect();
                sorted.sort_by_key(|row| landed(*row));
                let before = |out: u32| (0..rows).filter(|row| landed(*row) < out).count() as u32;
                let segments = Segments {
                    pointers: (0..=out_rows).map(before).collect(),
                    indices: sorted.into(),
                };
                FoldNode {
                    job: FoldJob::Segments(SegmentsJob {
                        rows: from,
                        width,
                        segments,
                        out,
                        out_dtype: Dtype::F32,
                    }),
                    ..node(scattered(&mut engine, &CASES[0]))
                }
            })
            .collect();
        let order = || FoldOrder::Permutation((0..rows).rev().collect());
        let folds: Vec<(&FoldNode, FoldOrder)> = nodes.iter().map(|node| (node, order())).collect();
        let mut lab = FoldLab {
            engine: &mut engine,
            programs,
        };
        lab.execute(&folds).unwrap();
        let outs = nodes.iter().map(|node| match &node.job {
            FoldJob::Segments(job) => lab.engine.read(job.out).unwrap(),
            FoldJob::Slots(_) => unreachable!("rows were asked for"),
        });
        found.push(outs.collect::<Vec<_>>());
    }
    assert!(found[0].iter().all(|out| out.iter().any(|word| *word != 0)));
    assert_eq!(found[0], found[1]);
    assert_eq!(found[0], found[2]);
}
