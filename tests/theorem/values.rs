//! Seeded numbers, biased to where the order of a sum does and does not matter.

use bitproof::numerics::Dtype;

/// SplitMix64 (Steele, Lea and Flood, 2014).
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d)
    }

    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    pub fn below(&mut self, bound: u32) -> u32 {
        (self.word() >> 32) as u32 % bound
    }

    pub fn one_in(&mut self, count: u32) -> bool {
        self.below(count) == 0
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u32) as usize]
    }
}

/// How the numbers of one tensor are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Zeros of both signs.
    Zeros,
    Integers,
    Powers,
    /// Large values that cancel, with small ones between.
    Cancelling,
    /// Full significands, magnitudes far apart.
    Rough,
    /// Subnormal and nearly so.
    Tiny,
}

/// Kinds whose sums stay exact for a while.
pub const CALM: [Kind; 3] = [Kind::Zeros, Kind::Integers, Kind::Powers];
pub const ANY: [Kind; 6] = [
    Kind::Zeros,
    Kind::Integers,
    Kind::Powers,
    Kind::Cancelling,
    Kind::Rough,
    Kind::Tiny,
];

impl Kind {
    pub fn value(self, random: &mut Random, dtype: Dtype) -> f32 {
        let bits = random.word();
        let small = (bits >> 8) as u32 % 16;
        let magnitude = match self {
            Kind::Zeros => 0.0,
            Kind::Integers => small as f32,
            Kind::Powers => (1u32 << (small % 7)) as f32,
            Kind::Cancelling if small < 8 => 16_777_216.0,
            Kind::Cancelling => small as f32 / 8.0,
            Kind::Rough => f32::from_bits((120 + small) << 23 | bits as u32 & 0x7f_ffff),
            Kind::Tiny => f32::from_bits(bits as u32 & 0x00ff_ffff),
        };
        dtype.round(if bits >> 63 == 1 {
            -magnitude
        } else {
            magnitude
        })
    }

    pub fn values(self, random: &mut Random, dtype: Dtype, count: u32) -> Vec<f32> {
        (0..count).map(|_| self.value(random, dtype)).collect()
    }
}
