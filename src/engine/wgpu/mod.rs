//! The second engine: any Vulkan, Metal or DX12 adapter, through wgpu.
//!
//! Arenas lie in heaps, which are bound whole. Launches of one kernel with one grid on the same
//! heaps become one dispatch, an instance along z for each (`kernel::lower`). On Vulkan the SPIR-V
//! goes to the driver as it is, with NoContraction and float controls; elsewhere through naga, and
//! the engine calls itself not strict.
//!
//! Work is recorded and submitted, and waited for only when the host reads: a fault is told by a
//! later call than the `run` that it belongs to.

mod adapter;
mod batch;
mod float_controls;
mod heap;
mod native;
mod program;
mod shard;
#[cfg(test)]
pub(crate) mod skip;
mod spirv;
mod stream;
#[cfg(test)]
mod tests;

pub use adapter::{AdapterInfo, Devices, WgpuOptions, adapters};
pub use native::NativeAdapter;

use std::sync::Arc;

use rayon::prelude::*;

use super::launch::{self, Signature};
use super::threads;
use super::{
    ArenaId, CopyWords, Engine, EngineError, EngineIdentity, Launch, ProgramId, Ran, Span,
};
use crate::kernel::Kernel;
use crate::numerics::Digest;
use batch::Placed;
use heap::Place;
use shard::{Shard, Words};

/// Runs kernels on a graphics adapter.
pub struct WgpuEngine {
    identity: EngineIdentity,
    shards: Vec<Shard>,
    signatures: Vec<Arc<Signature>>,
    arenas: Vec<Arena>,
    /// Runs begun.
    runs: u64,
    /// Digests that were asked for and not fetched yet; those of logged words come with `noted`.
    noted: Vec<Digest>,
    /// Takes digests; `None` where the calling thread does.
    pool: Option<rayon::ThreadPool>,
}

struct Arena {
    shard: u32,
    /// `None` once it was released.
    place: Option<Place>,
    words: u32,
}

/// Spans that lie on one shard, with their places in the list that they are from.
#[derive(Clone, Default)]
struct OnShard {
    places: Vec<usize>,
    words: Vec<Words>,
}

impl WgpuEngine {
    /// The best adapter there is.
    ///
    /// # Errors
    /// No adapter, with the reason: the caller shows it and skips, or fails.
    pub fn new() -> Result<WgpuEngine, EngineError> {
        WgpuEngine::open(&WgpuOptions::default())
    }

    /// # Errors
    /// No such adapter, or one that the engine cannot use.
    pub fn open(options: &WgpuOptions) -> Result<WgpuEngine, EngineError> {
        let pool = threads::pool(options.workers, "wgpu")?;
        let (devices, identity) = adapter::open(options)?;
        let shards = devices.into_iter().map(Shard::new);
        Ok(WgpuEngine {
            identity,
            shards: shards.collect::<Result<_, EngineError>>()?,
            signatures: Vec::new(),
            arenas: Vec::new(),
            runs: 0,
            noted: Vec::new(),
            pool,
        })
    }

    fn check(&self, at: Ran, launch: &Launch) -> Result<(), EngineError> {
        let signature = self
            .signatures
            .get(launch.program.0 as usize)
            .ok_or_else(|| launch::unknown_program(launch, at))?;
        let words = |arena: u32| {
            let arena = self.arenas.get(arena as usize);
            arena.map(|arena| arena.words as usize)
        };
        launch::check(signature, launch, at, words)?;
        let bad = |reason: String| EngineError::BadLaunch {
            kernel: signature.name.clone(),
            reason,
            at,
        };
        for (span, operand) in launch.operands.iter().zip(&signature.operands) {
            if span.offset_words % operand.element_words != 0 {
                let (name, words) = (&operand.name, operand.element_words);
                return Err(bad(format!(
                    "operand `{name}` does not begin at {words} words"
                )));
            }
        }
        if launch::overlap_in_part(launch) {
            return Err(bad("two operands share a part of their words".to_owned()));
        }
        let shards = launch.operands.iter().map(|span| self.shard_of(span.arena));
        if shards
            .clone()
            .any(|shard| Some(shard) != shards.clone().next())
        {
            return Err(bad("its operands are on more than one device".to_owned()));
        }
        let limits = |shard: &Shard| shard.device.limits.max_compute_workgroups_per_dimension;
        let most = self.shards.iter().map(limits).min().unwrap_or(0);
        match launch.grid.iter().find(|size| **size > most) {
            Some(size) => Err(bad(format!(
                "{size} workgroups along an axis, {most} at most"
            ))),
            None => Ok(()),
        }
    }

    /// Where a span lies: its shard, and the words there.
    fn resolve(&self, span: Span) -> Result<(usize, Words), EngineError> {
        let inside = |arena: &&Arena| {
            u64::from(span.offset_words) + u64::from(span.words) <= u64::from(arena.words)
        };
        let arena = self.arenas.get(span.arena.0 as usize).filter(inside);
        let arena = arena.ok_or_else(|| span.outside())?;
        let place = arena.place.ok_or_else(|| span.outside())?;
        let words = Words {
            heap: place.heap,
            start: place.start + span.offset_words,
            len: span.words,
        };
        Ok((arena.shard as usize, words))
    }

    /// The spans of each shard.
    fn by_shard(&self, spans: &[Span]) -> Result<Vec<OnShard>, EngineError> {
        let mut of = vec![OnShard::default(); self.shards.len()];
        for (place, span) in spans.iter().enumerate() {
            let (shard, words) = self.resolve(*span)?;
            of[shard].places.push(place);
            of[shard].words.push(words);
        }
        Ok(of)
    }

    /// Copies through the host, all sources first.
    fn copy_on_host(&mut self, copies: &[CopyWords]) -> Result<(), EngineError> {
        let sources: Vec<Span> = copies.iter().map(|copy| copy.from).collect();
        let mut words: Vec<Vec<u32>> = vec![Vec::new(); copies.len()];
        for (shard, on) in self.by_shard(&sources)?.into_iter().enumerate() {
            let held: Vec<Vec<u32>> = self.shards[shard].with_words(&on.words, |held| {
                held.iter().map(|words| words.to_vec()).collect()
            })?;
            for (place, held) in on.places.into_iter().zip(held) {
                words[place] = held;
            }
        }
        let targets: Vec<Span> = copies.iter().map(|copy| copy.to).collect();
        for (shard, on) in self.by_shard(&targets)?.into_iter().enumerate() {
            let pieces: Vec<(Words, &[u32])> = on
                .words
                .into_iter()
                .zip(on.places)
                .map(|(to, place)| (to, &words[place][..]))
                .collect();
            self.shards[shard].write(&pieces)?;
        }
        Ok(())
    }

    /// Digests what a shard has logged.
    fn take_logged(&mut self, shard: usize) -> Result<(), EngineError> {
        let (noted, pool) = (&mut self.noted, self.pool.as_ref());
        self.shards[shard].with_logged(|places, words| {
            for (place, digest) in places.iter().zip(digests_of(pool, 1, words)) {
                noted[*place] = digest;
            }
        })
    }

    fn copy_on_device(&mut self, copies: &[CopyWords]) -> Result<(), EngineError> {
        let mut of: Vec<Vec<(Words, Words)>> = vec![Vec::new(); self.shards.len()];
        for copy in copies {
            let ((shard, from), (_, to)) = (self.resolve(copy.from)?, self.resolve(copy.to)?);
            of[shard].push((from, to));
        }
        for (shard, copies) in self.shards.iter_mut().zip(of) {
            shard.copy(&copies)?;
        }
        Ok(())
    }
}

/// Digests of each, in order; a thread takes at least so many.
fn digests_of(pool: Option<&rayon::ThreadPool>, least: usize, words: &[&[u32]]) -> Vec<Digest> {
    let of = |words: &&[u32]| Digest::of_words(words);
    match pool {
        Some(pool) if words.len() > least => pool.install(|| {
            let shared = words.par_iter().with_min_len(least);
            shared.map(of).collect()
        }),
        _ => words.iter().map(of).collect(),
    }
}

/// Whether no copy writes what a later one reads or writes: then all may be read first.
fn are_independent(copies: &[CopyWords]) -> bool {
    let begin = |span: Span| (span.arena, span.offset_words);
    let mut targets: Vec<Span> = copies.iter().map(|copy| copy.to).collect();
    targets.sort_unstable_by_key(|span| begin(*span));
    let apart = |pair: &[Span]| !pair[0].meets(&pair[1]);
    targets.windows(2).all(apart)
        && copies.iter().all(|copy| {
            // Targets do not overlap, so only two neighbours can meet a source's beginning.
            let place = targets.partition_point(|to| begin(*to) <= begin(copy.from));
            let before = place.checked_sub(1).map(|before| targets[before]);
            let after = targets.get(place).copied();
            !before
                .into_iter()
                .chain(after)
                .any(|to| to.meets(&copy.from))
        })
}

impl Engine for WgpuEngine {
    fn identity(&self) -> EngineIdentity {
        self.identity.clone()
    }

    fn runs(&self) -> u64 {
        self.runs
    }

    fn shard_of(&self, arena: ArenaId) -> u32 {
        let arena = self.arenas.get(arena.0 as usize);
        arena.map_or(0, |arena| arena.shard)
    }

    fn shards(&self) -> u32 {
        self.shards.len() as u32
    }

    fn arena_words_max(&self) -> u32 {
        let most = |shard: &Shard| heap::arena_words_max(&shard.device);
        self.shards.iter().map(most).min().unwrap_or(0)
    }

    fn load(&mut self, kernel: &Kernel) -> Result<ProgramId, EngineError> {
        let known = |signature: &Arc<Signature>| signature.hash == kernel.hash;
        if let Some(known) = self.signatures.iter().position(known) {
            return Ok(ProgramId(known as u32));
        }
        for shard in &mut self.shards {
            shard.load(kernel)?;
        }
        self.signatures.push(Arc::new(Signature::of(kernel)));
        Ok(ProgramId(self.signatures.len() as u32 - 1))
    }

    fn alloc_on(&mut self, shard: u32, words: u32, poison: u32) -> Result<ArenaId, EngineError> {
        assert!((shard as usize) < self.shards.len(), "shard {shard}");
        let place = Some(self.shards[shard as usize].take(words)?);
        let empty = Arena {
            shard,
            place,
            words: 0,
        };
        self.arenas.push(empty);
        let arena = ArenaId(self.arenas.len() as u32 - 1);
        self.grow(arena, words, poison)?;
        Ok(arena)
    }

    fn grow(&mut self, arena: ArenaId, words: u32, poison: u32) -> Result<(), EngineError> {
        let Some(old) = self.arenas.get(arena.0 as usize) else {
            return Err(arena.first(words).outside());
        };
        let (shard, old_words) = (old.shard as usize, old.words);
        if words <= old_words {
            return Ok(());
        }
        let fits = |place: &Place| words <= place.words;
        let shard = &mut self.shards[shard];
        let place = match old.place.filter(fits) {
            Some(place) => place,
            None => {
                let place = shard.take(words)?;
                if let Some(old) = old.place {
                    let at = |place: Place| Words {
                        heap: place.heap,
                        start: place.start,
                        len: old_words,
                    };
                    shard.moved(at(old), at(place))?;
                    shard.give(old);
                }
                place
            }
        };
        let fresh = Words {
            heap: place.heap,
            start: place.start + old_words,
            len: words - old_words,
        };
        shard.fill(fresh, poison)?;
        let arena = &mut self.arenas[arena.0 as usize];
        (arena.place, arena.words) = (Some(place), words);
        Ok(())
    }

    fn release(&mut self, arena: ArenaId) -> Result<(), EngineError> {
        let Some(arena) = self.arenas.get_mut(arena.0 as usize) else {
            return Err(arena.first(0).outside());
        };
        arena.words = 0;
        if let Some(place) = arena.place.take() {
            self.shards[arena.shard as usize].give(place);
        }
        Ok(())
    }

    fn run(&mut self, launches: &[Launch]) -> Result<(), EngineError> {
        let run = self.runs;
        self.runs += 1;
        for (launch, asked) in launches.iter().enumerate() {
            self.check(Ran { run, launch }, asked)?;
        }
        let mut of: Vec<Vec<Placed<'_>>> = (0..self.shards.len()).map(|_| Vec::new()).collect();
        let with_work = launches
            .iter()
            .enumerate()
            .filter(|(_, launch)| !launch.grid.contains(&0));
        for (number, launch) in with_work {
            let mut shard = 0;
            let mut operands = Vec::with_capacity(launch.operands.len());
            for span in &launch.operands {
                let (of, words) = self.resolve(*span)?;
                shard = of;
                operands.push(words);
            }
            of[shard].push(Placed {
                number,
                launch,
                operands,
            });
        }
        for (shard, placed) in self.shards.iter_mut().zip(of) {
            batch::record(shard, &self.signatures, run, placed)?;
        }
        // Devices that work side by side must not wait for each other's encoding.
        if self.shards.len() > 1 {
            self.shards.iter_mut().for_each(Shard::submit);
        }
        Ok(())
    }

    fn settle(&mut self) -> Result<(), EngineError> {
        // Each is waited for, so that no fault is left to a later call; the first launch is told.
        let settled = self.shards.iter_mut().map(Shard::settle);
        let failures = settled.filter_map(Result::err);
        let place = |error: &EngineError| error.launch().map(|at| (at.run, at.launch));
        match failures.min_by_key(|error| place(error).map_or((true, None), |at| (false, Some(at))))
        {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    fn copy(&mut self, copies: &[CopyWords]) -> Result<(), EngineError> {
        for copy in copies {
            self.resolve(copy.from)?;
            self.resolve(copy.to)?;
            if copy.from.words != copy.to.words {
                return Err(copy.to.outside());
            }
        }
        let crosses =
            |copy: &CopyWords| self.shard_of(copy.from.arena) != self.shard_of(copy.to.arena);
        let mapped = self.shards.iter().all(|shard| shard.device.mappable);
        if !mapped && !copies.iter().any(crosses) {
            self.copy_on_device(copies)
        } else if are_independent(copies) {
            self.copy_on_host(copies)
        } else {
            copies
                .iter()
                .try_for_each(|copy| self.copy_on_host(std::slice::from_ref(copy)))
        }
    }

    fn read(&mut self, span: Span) -> Result<Vec<u32>, EngineError> {
        let (shard, words) = self.resolve(span)?;
        self.shards[shard].with_words(&[words], |held| held[0].to_vec())
    }

    fn write(&mut self, span: Span, words: &[u32]) -> Result<(), EngineError> {
        let (shard, to) = self.resolve(span)?;
        if words.len() != span.words as usize {
            return Err(span.outside());
        }
        match words {
            [] => Ok(()),
            _ => self.shards[shard].write(&[(to, words)]),
        }
    }

    fn note(&mut self, spans: &[Span]) -> Result<(), EngineError> {
        if self.shards.iter().all(|shard| shard.device.mappable) {
            // The host reads them in place, which is cheaper than a copy.
            let digests = self.digests(spans)?;
            self.noted.extend(digests);
            return Ok(());
        }
        let begin = self.noted.len();
        self.noted.resize(begin + spans.len(), Digest::default());
        for (shard, on) in self.by_shard(spans)?.into_iter().enumerate() {
            for (place, words) in on.places.into_iter().zip(on.words) {
                if !self.shards[shard].has_room_to_log(words) {
                    self.take_logged(shard)?;
                }
                self.shards[shard].log(begin + place, words)?;
            }
        }
        Ok(())
    }

    fn noted(&mut self) -> Result<Vec<Digest>, EngineError> {
        // Every log is emptied, whatever becomes of the others.
        let taken: Vec<Result<(), EngineError>> = (0..self.shards.len())
            .map(|shard| self.take_logged(shard))
            .collect();
        let noted = std::mem::take(&mut self.noted);
        taken.into_iter().collect::<Result<(), EngineError>>()?;
        self.settle()?;
        Ok(noted)
    }

    fn digests(&mut self, spans: &[Span]) -> Result<Vec<Digest>, EngineError> {
        let mut digests = vec![Digest::default(); spans.len()];
        // Every device begins before the first is waited for.
        self.shards.iter_mut().for_each(Shard::submit);
        for (shard, on) in self.by_shard(spans)?.into_iter().enumerate() {
            let pool = self.pool.as_ref();
            let held = self.shards[shard].with_words(&on.words, |held| {
                // Those of a step are many and small.
                digests_of(pool, 64, held)
            })?;
            for (place, digest) in on.places.into_iter().zip(held) {
                digests[place] = digest;
            }
        }
        Ok(digests)
    }
}
