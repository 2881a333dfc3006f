//! Ranks' memory: one arena a rank, canaries at both ends, and which bytes a later step still reads.

mod accesses;
mod clock;
mod hazard;
mod intervals;
mod live_in;

use crate::engine::{ArenaId, Engine, EngineError, Span};
use crate::world::rank::{Allocation, Tensor};

pub(crate) use accesses::AccessTracker;
pub(crate) use hazard::HazardLog;
pub use hazard::{Access, Hazard, HazardKind};
pub(crate) use live_in::LiveInTracker;
pub use live_in::{LiveIn, LiveInWords};

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
    pub fn new(engine: &mut dyn Engine) -> Result<Self, EngineError> {
        let arena = engine.alloc(2 * CANARY_WORDS, FRESH)?;
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

    pub fn canaries_hold(&self, engine: &dyn Engine) -> Result<bool, EngineError> {
        let intact = |words: Vec<u32>| words.iter().all(|word| *word == CANARY);
        Ok(intact(engine.read(self.head())?) && intact(engine.read(self.tail())?))
    }
}
