//! Another order of what is ready, drawn from a seed: streams and ranks overtake each other, and
//! collectives and messages are late. What has no hazard computes the same all the same.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// Draws nothing without a seed: then everything ready runs at once, in its canonical order.
pub(super) struct Shuffle {
    random: Option<ChaCha8Rng>,
    /// Something that was ready waits for a later wave.
    delayed: bool,
}

impl Shuffle {
    pub fn new(seed: Option<u64>) -> Shuffle {
        Shuffle {
            random: seed.map(ChaCha8Rng::seed_from_u64),
            delayed: false,
        }
    }

    /// Whether what is ready waits for a later wave.
    pub fn delays(&mut self) -> bool {
        let late = self.flips();
        self.delayed |= late;
        late
    }

    /// A coin; false without a seed.
    pub fn flips(&mut self) -> bool {
        let random = self.random.as_mut();
        random.is_some_and(|random| random.next_u32() % 2 == 1)
    }

    /// Which of `count` is next: the first without a seed.
    pub fn pick(&mut self, count: usize) -> usize {
        match &mut self.random {
            Some(random) if count > 1 => random.next_u32() as usize % count,
            _ => 0,
        }
    }

    /// Whether anything was delayed since this was last asked.
    pub fn take_delayed(&mut self) -> bool {
        std::mem::take(&mut self.delayed)
    }
}
