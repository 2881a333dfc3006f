use proptest::prelude::*;

use super::*;
use crate::engine::cpu::CpuEngine;

const ARENA: u32 = 6000;

/// An engine whose arena holds words that all differ.
fn filled(engine: &mut dyn Engine, seed: u32) -> (ArenaId, Vec<u32>) {
    let arena = engine.alloc(ARENA, 0).unwrap();
    let words = (0..ARENA).map(|place| (place ^ seed).wrapping_mul(0x9e37_79b1));
    let words: Vec<u32> = words.collect();
    engine.write(arena.first(ARENA), &words).unwrap();
    (arena, words)
}

fn run(bytes: (u32, u32)) -> (u32, u32) {
    let (start, length) = bytes;
    (start, length.min(ARENA - start))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Kernel and host agree bit for bit: any number of spans, anywhere, of any length.
    #[test]
    fn a_digest_on_an_engine_is_the_hosts(
        runs in prop::collection::vec((0..ARENA, 0..ARENA).prop_map(run), 0..9),
        seed in any::<u32>(),
    ) {
        let mut engine = CpuEngine::new(1).unwrap();
        let (arena, words) = filled(&mut engine, seed);
        let spans = runs.iter().map(|(start, length)| at(arena, *start, *length));
        let spans: Vec<Span> = spans.collect();
        let mut programs = DigestPrograms::new(&mut engine).unwrap();
        let found = programs.digests(&mut engine, &spans).unwrap();
        let host = runs.iter().map(|(start, length)| {
            Digest::of_words(&words[*start as usize..(start + length) as usize])
        });
        prop_assert_eq!(found, host.collect::<Vec<_>>());
    }

    /// Two words that change places change the digest.
    #[test]
    fn a_digest_knows_places(
        (start, length) in (0..ARENA - 2, 2..ARENA).prop_map(run),
        picks in any::<[prop::sample::Index; 2]>(),
    ) {
        let mut engine = CpuEngine::new(1).unwrap();
        let (arena, words) = filled(&mut engine, 7);
        let span = at(arena, start, length);
        let mut programs = DigestPrograms::new(&mut engine).unwrap();
        let before = programs.digests(&mut engine, &[span]).unwrap();
        let [x, y] = picks.map(|pick| start + pick.index(length as usize) as u32);
        let swap = [(x, words[y as usize]), (y, words[x as usize])];
        for (place, word) in swap {
            engine.write(at(arena, place, 1), &[word]).unwrap();
        }
        let after = programs.digests(&mut engine, &[span]).unwrap();
        prop_assert_eq!(before == after, x == y);
    }
}

/// Every length around blocks, chunks and levels of the tree, up to past four chunks.
#[test]
fn every_length_up_to_five_chunks() {
    let mut engine = CpuEngine::new(1).unwrap();
    let (arena, words) = filled(&mut engine, 1);
    let mut programs = DigestPrograms::new(&mut engine).unwrap();
    let spans: Vec<Span> = (0..=5 * CHUNK).map(|length| at(arena, 3, length)).collect();
    let found = programs.digests(&mut engine, &spans).unwrap();
    for (span, digest) in spans.iter().zip(found) {
        let host = Digest::of_words(&words[3..3 + span.words as usize]);
        assert_eq!(digest, host, "{} words", span.words);
    }
}

/// A span that no arena has is refused, as by the host's.
#[test]
fn a_span_outside_is_refused() {
    let mut engine = CpuEngine::new(1).unwrap();
    let (arena, _) = filled(&mut engine, 1);
    let mut programs = DigestPrograms::new(&mut engine).unwrap();
    let outside = at(arena, ARENA - 1, 2);
    assert!(programs.digests(&mut engine, &[outside]).is_err());
}
