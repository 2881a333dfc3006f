//! What kernels really write: measured in a run, and by poisoning an operand twice.

use bitproof::engine::cpu::CpuEngine;
use bitproof::engine::{Engine, Launch, Span};
use bitproof::numerics::Dtype;
use bitproof::world::{HazardKind, Rank, RankError};

use crate::cluster::{Cluster, Seen, scale_add, show, tensor};
use crate::kernels::registry;

/// Words of each write-only operand that the launch leaves alone: those that still hold whichever
/// poison was there before. Operands are given by their first words; write-only ones by length.
fn untouched(kernel: &str, operands: &[&[u32]], params: &[u32], grid: u32) -> Vec<Vec<usize>> {
    let registry = registry();
    let kernel = registry.get(kernel).expect("the kernel is sound");
    let mut engine = CpuEngine::new(1).expect("this machine has an engine");
    let program = engine.load(kernel).expect("it compiles");
    let mut after: Vec<Vec<Vec<u32>>> = Vec::new();
    for poison in [0x7fc1_2345, 0xffd4_3210] {
        let mut spans = Vec::new();
        for (operand, words) in kernel.operands.iter().zip(operands) {
            let (words_count, offset_words) = (words.len() as u32, 0);
            let arena = engine.alloc(words_count, poison).expect("a little memory");
            let span = Span {
                arena,
                offset_words,
                words: words_count,
            };
            if operand.reads {
                engine.write(span, words).expect("in the arena");
            }
            spans.push(span);
        }
        let launch = Launch {
            program,
            grid: [grid, 1, 1],
            operands: spans.clone(),
            params: params.to_vec(),
        };
        engine.run(&[launch]).expect("it runs");
        let words = spans
            .iter()
            .map(|span| engine.read(*span).expect("in the arena"));
        after.push(words.collect());
    }
    let written_only = |place: &usize| {
        let operand = &kernel.operands[*place];
        operand.writes && !operand.reads
    };
    (0..operands.len())
        .filter(written_only)
        .map(|place| {
            let (one, two) = (&after[0][place], &after[1][place]);
            (0..one.len())
                .filter(|word| one[*word] != two[*word])
                .collect()
        })
        .collect()
}

#[test]
fn kernels_write_all_words_of_the_operands_they_only_write() {
    let none: [Vec<usize>; 1] = [Vec::new()];
    let ones = [1.0f32.to_bits(); 130];
    let scale = 2.0f32.to_bits();
    assert_eq!(untouched("ramp", &[&ones], &[130, scale, 0], 3), none);
    let operands: [&[u32]; 3] = [&ones, &ones, &ones];
    assert_eq!(untouched("scale_add", &operands, &[130, scale], 3), none);
    let (pointers, indices) = ([0, 2, 2, 3], [0, 3, 1]);
    let operands: [&[u32]; 4] = [&ones[..32], &pointers, &indices, &ones[..24]];
    assert_eq!(untouched("fold_segments", &operands, &[3, 2, 0], 1), none);
    let ring = [2, 0, 1];
    let operands: [&[u32]; 4] = [&ones[..96], &ring, &ones[..32], &ones[..32]];
    let params = [8, 3, 8, 0, 1, 3, 0, 0, 0, 0, 0, 0];
    assert_eq!(untouched("fold", &operands, &params, 1), none);
}

/// The control: a kernel with holes is found out, and so is a grid that is too small.
#[test]
fn a_kernel_with_holes_is_found_out() {
    let holes: Vec<usize> = (0..100).filter(|word| word % 3 == 2).collect();
    assert_eq!(untouched("gaps", &[&[0; 100]], &[100], 2), [holes]);
    let rest: Vec<usize> = (64..100).collect();
    assert_eq!(untouched("ramp", &[&[0; 100]], &[100, 0, 0], 1), [rest]);
}

/// Writes every word but each third of x, then reads x.
fn holes(rank: &mut Rank, seen: &Seen) -> Result<(), RankError> {
    let x = rank.alloc("x", Dtype::F32, 9);
    let y = tensor(rank, "y", &[0.0; 9]);
    rank.end_setup()?;
    rank.launch("fill", "gaps", [9, 1, 1], &[x], &[9]);
    rank.upload_f32("mend", x.slice(2, 1), &[5.0]);
    rank.launch("fill again", "gaps", [9, 1, 1], &[x], &[9]);
    let out = rank.alloc("out", Dtype::F32, 9);
    scale_add(rank, "use", [x, y, out], 1.0);
    show(rank, seen, "out", out.slice(0, 3))?;
    rank.end_step()
}

#[test]
fn measured_writes_leave_holes_unwritten() {
    let believed = Cluster::new(2).watched().run(holes);
    assert_eq!(believed.record().hazards, []);
    let cluster = Cluster::new(2).watched();
    let measured = cluster
        .options(|options| options.measure_writes = true)
        .run(holes);
    let found = &measured.record().hazards;
    assert_eq!(found.len(), 1, "{found:#?}");
    assert_eq!(found[0].kind, HazardKind::UninitialisedRead);
    assert_eq!((found[0].words, &*found[0].second.site.op), ((5, 6), "use"));
    // Words 5..6 and 8..9 on each of two ranks.
    assert_eq!(found[0].occurrences, 4);
    // What the first write mended is still there: measuring changes nothing.
    assert_eq!(measured.values(1, "out"), [1.0, 1.0, 5.0]);
    assert_eq!(measured.record().root(), believed.record().root());
}
