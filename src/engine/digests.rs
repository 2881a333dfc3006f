//! Digests computed where the words lie: the WGSL twin of [`Digest::of_words`], bit for bit.
//!
//! A host that hashes has to read every word back; this reads sixteen bytes a span. BLAKE3 hashes
//! chunks of 1,024 bytes and then a binary tree over them: one launch for all chunks, one a level.

use super::{ArenaId, CopyWords, Engine, EngineError, Launch, ProgramId, Span};
use crate::kernel::digest_kernels;
use crate::numerics::Digest;

/// Words of a chunk, of a node, and of a digest, which is the first half of the root.
const CHUNK: u32 = 256;
const NODE: u32 = 8;
const DIGEST: u32 = 4;
/// Invocations of a workgroup of both kernels.
const WORKGROUP: u32 = 64;
/// Nodes of one launch: adapters take 65,535 workgroups along an axis.
const NODES_MAX: u32 = 65_535 * WORKGROUP;
/// Words of scratch that one batch of spans takes, unless one span alone takes more.
const BATCH_WORDS: u64 = 1 << 22;

/// The kernels on one engine, with scratch in each of its memories.
#[derive(Debug)]
pub struct DigestPrograms {
    chunks: ProgramId,
    parents: ProgramId,
    scratch: Vec<Scratch>,
}

#[derive(Clone, Copy, Debug)]
struct Scratch {
    arena: ArenaId,
    words: u32,
}

/// A span on its way up the tree.
#[derive(Clone, Copy, Debug)]
struct Climb {
    /// Whose digest it is.
    place: usize,
    nodes: u32,
    /// Where the nodes are, and where the next level goes.
    here: Span,
    next: Span,
}

impl DigestPrograms {
    /// # Errors
    /// A kernel that the engine refuses, or no memory.
    pub fn new(engine: &mut dyn Engine) -> Result<DigestPrograms, EngineError> {
        let kernels = digest_kernels();
        let kernel = |name: &str| kernels.get(name).expect("a shipped kernel");
        let chunks = engine.load(kernel("digest_chunks"))?;
        let parents = engine.load(kernel("digest_parents"))?;
        let scratch = (0..engine.shards()).map(|shard| {
            let words = 4 * CHUNK;
            let arena = engine.alloc_on(shard, words, 0)?;
            Ok(Scratch { arena, words })
        });
        let scratch = scratch.collect::<Result<_, EngineError>>()?;
        Ok(DigestPrograms {
            chunks,
            parents,
            scratch,
        })
    }

    /// The digest of the words of each span.
    ///
    /// # Errors
    /// A span outside of its arena, no memory, or what the engine says.
    pub fn digests(
        &mut self,
        engine: &mut dyn Engine,
        spans: &[Span],
    ) -> Result<Vec<Digest>, EngineError> {
        let mut found = vec![Digest::default(); spans.len()];
        for shard in 0..engine.shards() {
            let mut batch: Vec<usize> = Vec::new();
            let mut words = 0;
            for (place, span) in spans.iter().enumerate() {
                if engine.shard_of(span.arena) != shard {
                    continue;
                }
                let own = scratch_words(*span);
                if nodes_of(*span) > NODES_MAX || own > u64::from(engine.arena_words_max()) {
                    found[place] = engine.digests(&[*span])?[0];
                    continue;
                }
                if words + own > BATCH_WORDS.min(engine.arena_words_max().into()) {
                    self.batch(engine, shard, (spans, &batch), &mut found)?;
                    (batch, words) = (Vec::new(), 0);
                }
                batch.push(place);
                words += own;
            }
            self.batch(engine, shard, (spans, &batch), &mut found)?;
        }
        Ok(found)
    }

    fn batch(
        &mut self,
        engine: &mut dyn Engine,
        shard: u32,
        (spans, places): (&[Span], &[usize]),
        found: &mut [Digest],
    ) -> Result<(), EngineError> {
        if places.is_empty() {
            return Ok(());
        }
        let own = places.iter().map(|place| scratch_words(spans[*place]));
        let words = own.sum::<u64>();
        let words = u32::try_from(words).expect("a batch fits an arena");
        let scratch = &mut self.scratch[shard as usize];
        if scratch.words < words {
            engine.grow(scratch.arena, words, 0)?;
            scratch.words = words;
        }
        let arena = scratch.arena;
        // The digests first, side by side, so that one read gets them all.
        let mut free = rounded(DIGEST * places.len() as u32);
        let mut take = |words: u32| {
            let span = at(arena, free, words);
            free += rounded(words);
            span
        };
        let mut climbs: Vec<Climb> = places
            .iter()
            .map(|place| {
                let nodes = nodes_of(spans[*place]);
                Climb {
                    place: *place,
                    nodes,
                    here: take(NODE * nodes),
                    next: take(NODE * nodes.div_ceil(2)),
                }
            })
            .collect();
        let leaves = climbs.iter().map(|climb| Launch {
            program: self.chunks,
            grid: [climb.nodes.div_ceil(WORKGROUP), 1, 1],
            operands: vec![spans[climb.place], climb.here],
            params: vec![spans[climb.place].words, climb.nodes],
        });
        engine.run(&leaves.collect::<Vec<_>>())?;
        while climbs.iter().any(|climb| climb.nodes > 1) {
            self.level(engine, &mut climbs)?;
        }
        let roots = climbs.iter().enumerate().map(|(number, climb)| CopyWords {
            from: part(climb.here, DIGEST),
            to: at(arena, DIGEST * number as u32, DIGEST),
        });
        engine.copy(&roots.collect::<Vec<_>>())?;
        let all = engine.read(at(arena, 0, DIGEST * places.len() as u32))?;
        for (climb, words) in climbs.iter().zip(all.chunks_exact(DIGEST as usize)) {
            let words = std::array::from_fn(|place| words[place]);
            found[climb.place] = Digest::of_root(words);
        }
        Ok(())
    }

    /// One level up, for every span that has more than its root.
    fn level(&self, engine: &mut dyn Engine, climbs: &mut [Climb]) -> Result<(), EngineError> {
        let mut launches = Vec::new();
        for climb in climbs.iter_mut().filter(|climb| climb.nodes > 1) {
            let parents = climb.nodes.div_ceil(2);
            launches.push(Launch {
                program: self.parents,
                grid: [parents.div_ceil(WORKGROUP), 1, 1],
                operands: vec![
                    part(climb.here, NODE * climb.nodes),
                    part(climb.next, NODE * parents),
                ],
                params: vec![climb.nodes],
            });
            climb.nodes = parents;
            std::mem::swap(&mut climb.here, &mut climb.next);
        }
        engine.run(&launches)
    }
}

/// Chunks of a span: no words are one.
fn nodes_of(span: Span) -> u32 {
    span.words.div_ceil(CHUNK).max(1)
}

/// Room for both levels of a span's tree and its digest.
fn scratch_words(span: Span) -> u64 {
    let nodes = u64::from(nodes_of(span));
    // Each part is rounded up.
    u64::from(NODE) * (nodes + nodes.div_ceil(2)) + 3 * u64::from(WORKGROUP)
}

/// Operands begin at places that any vector may.
fn rounded(words: u32) -> u32 {
    words.next_multiple_of(WORKGROUP)
}

fn at(arena: ArenaId, offset_words: u32, words: u32) -> Span {
    Span {
        arena,
        offset_words,
        words,
    }
}

fn part(span: Span, words: u32) -> Span {
    Span { words, ..span }
}

#[cfg(test)]
mod tests;
