//! Ranks' memory: one arena a rank with canaries at both ends, hazards, and which words a later
//! step still reads.

mod accesses;
mod clock;
mod hazard;
mod intervals;
mod live_in;
mod mutation;
mod role;

use crate::engine::{ArenaId, Engine, EngineError, Span};
use crate::world::rank::{Allocation, Tensor};

use accesses::AccessTracker;
pub(crate) use accesses::Conflict;
pub(crate) use hazard::HazardLog;
pub use hazard::{Access, Hazard, HazardKind};
pub(crate) use intervals::Intervals;
pub(crate) use live_in::LiveInTracker;
pub use live_in::{LiveIn, LiveInWords};
pub(crate) use mutation::{Mutant, Mutation};
pub(crate) use role::{AccessLog, Roles};

/// Words before and after a rank's memory that nothing may write.
const CANARY_WORDS: u32 = 64;
const CANARY: u32 = 0xc0de_cafe;

/// What an arena holds before anything is written: a quiet NaN with a payload.
const FRESH: u32 = 0x7fc0_b17f;

/// One rank's arena.
#[derive(Debug)]
pub(crate) struct RankMemory {
    arena: ArenaId,
    words: u32,
}

impl RankMemory {
    /// Nothing yet, in the given memory of the engine.
    pub fn new(engine: &mut dyn Engine, shard: u32) -> Result<Self, EngineError> {
        let arena = engine.alloc_on(shard, 2 * CANARY_WORDS, FRESH)?;
        let memory = RankMemory { arena, words: 0 };
        memory.write_canaries(engine)?;
        Ok(memory)
    }

    /// Makes room for `words` words.
    pub fn grow(&mut self, engine: &mut dyn Engine, words: u32) -> Result<(), EngineError> {
        if words > self.words {
            engine.grow(self.arena, words + 2 * CANARY_WORDS, FRESH)?;
            let tail = self.tail();
            engine.write(tail, &[FRESH; CANARY_WORDS as usize])?;
            self.words = words;
            self.write_canaries(engine)?;
        }
        Ok(())
    }

    pub fn arena(&self) -> ArenaId {
        self.arena
    }

    pub fn words(&self) -> u32 {
        self.words
    }

    pub fn span(&self, tensor: Tensor) -> Span {
        self.words_at(tensor.start, tensor.len)
    }

    pub fn allocation(&self, allocation: &Allocation) -> Span {
        self.words_at(allocation.offset_words, allocation.words)
    }

    fn words_at(&self, start: u32, words: u32) -> Span {
        assert!(
            start + words <= self.words,
            "{start}+{words} in {} words",
            self.words
        );
        Span {
            arena: self.arena,
            offset_words: CANARY_WORDS + start,
            words,
        }
    }

    fn head(&self) -> Span {
        Span {
            arena: self.arena,
            offset_words: 0,
            words: CANARY_WORDS,
        }
    }

    fn tail(&self) -> Span {
        Span {
            arena: self.arena,
            offset_words: CANARY_WORDS + self.words,
            words: CANARY_WORDS,
        }
    }

    fn write_canaries(&self, engine: &mut dyn Engine) -> Result<(), EngineError> {
        engine.write(self.head(), &[CANARY; CANARY_WORDS as usize])?;
        engine.write(self.tail(), &[CANARY; CANARY_WORDS as usize])
    }

    pub fn canaries_hold(&self, engine: &mut dyn Engine) -> Result<bool, EngineError> {
        let intact = |words: Vec<u32>| words.iter().all(|word| *word == CANARY);
        Ok(intact(engine.read(self.head())?) && intact(engine.read(self.tail())?))
    }
}

#[cfg(test)]
mod tests {
    use super::{CANARY_WORDS, RankMemory};
    use crate::engine::cpu::CpuEngine;
    use crate::engine::{Engine, Span};

    /// Each word on either side of the memory, and none inside it, is a canary.
    #[test]
    fn a_write_outside_a_ranks_memory_is_seen() {
        let mut engine = CpuEngine::new(1).expect("this machine has an engine");
        let mut memory = RankMemory::new(&mut engine, 0).expect("a little memory");
        memory.grow(&mut engine, 64).expect("a little memory");
        memory.grow(&mut engine, 192).expect("a little more");
        let total = 192 + 2 * CANARY_WORDS;
        for offset_words in 0..total {
            let (arena, words) = (memory.arena(), 1);
            let span = Span {
                arena,
                offset_words,
                words,
            };
            let before = engine.read(span).expect("in the arena");
            engine.write(span, &[!before[0]]).expect("in the arena");
            let inside = (CANARY_WORDS..total - CANARY_WORDS).contains(&offset_words);
            let hold = memory.canaries_hold(&mut engine).expect("in the arena");
            assert_eq!(hold, inside, "word {offset_words}");
            engine.write(span, &before).expect("in the arena");
        }
        assert!(memory.canaries_hold(&mut engine).expect("in the arena"));
    }
}
