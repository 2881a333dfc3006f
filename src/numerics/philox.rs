//! Philox4x32-10, the counter-based generator of Salmon et al., "Parallel random numbers: as easy
//! as 1, 2, 3" (SC'11), and the ways PyTorch, cuRAND and Triton turn its words into values.
//!
//! Counter and key are little-endian in words: word 0 is the least significant.

/// Four 32-bit words: a counter, or one block of output.
pub type Block = [u32; 4];

const MULTIPLIER: [u32; 2] = [0xd251_1f53, 0xcd9e_8d57];
const WEYL: [u32; 2] = [0x9e37_79b9, 0xbb67_ae85];
/// Words a `curandStatePhilox4_32_10` hands out before it moves its counter.
const BLOCK_WORDS: u64 = 4;

/// The block of Philox4x32-10 at `counter` under `key`.
pub fn philox4x32(counter: Block, key: [u32; 2]) -> Block {
    rounds(10, counter, key)
}

fn rounds(count: u32, mut counter: Block, mut key: [u32; 2]) -> Block {
    for round in 0..count {
        if round > 0 {
            key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
        }
        let [high0, low0] = wide_product(MULTIPLIER[0], counter[0]);
        let [high1, low1] = wide_product(MULTIPLIER[1], counter[2]);
        counter = [
            high1 ^ counter[1] ^ key[0],
            low1,
            high0 ^ counter[3] ^ key[1],
            low0,
        ];
    }
    counter
}

fn wide_product(a: u32, b: u32) -> [u32; 2] {
    let product = u64::from(a) * u64::from(b);
    [(product >> 32) as u32, product as u32]
}

fn words(x: u64) -> [u32; 2] {
    [x as u32, (x >> 32) as u32]
}

/// The four words that a cuRAND Philox state gives next after `curand_init(seed, subsequence,
/// offset)`: the seed is the key, `offset / 4` the low and `subsequence` the high half of the
/// counter.
///
/// `offset_words` counts 32-bit words; PyTorch keeps it a multiple of 4, so this does too.
pub fn curand_block(seed: u64, subsequence: u64, offset_words: u64) -> Block {
    assert!(
        offset_words.is_multiple_of(BLOCK_WORDS),
        "offset {offset_words} splits a block"
    );
    let [low0, low1] = words(offset_words / BLOCK_WORDS);
    let [high0, high1] = words(subsequence);
    philox4x32([low0, low1, high0, high1], words(seed))
}

/// A key of PyTorch's stateless random functions (`torch.func._random`): a seed and a counter of
/// blocks, two `u64`. Value `i` of a draw depends on the key and `i` alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StatelessKey {
    pub seed: u64,
    pub offset_blocks: u64,
}

impl StatelessKey {
    /// Block `index` of the stream: `index` is added to the offset, modulo 2^64.
    pub fn block(self, index: u64) -> Block {
        let [low0, low1] = words(self.offset_blocks.wrapping_add(index));
        philox4x32([low0, low1, 0, 0], words(self.seed))
    }

    /// 32-bit word `index` of the stream: `randint` of 32-bit types.
    pub fn word(self, index: u64) -> u32 {
        self.block(index / BLOCK_WORDS)[(index % BLOCK_WORDS) as usize]
    }

    /// Value `index` of `uniform` in f32: in [0, 1), a multiple of 2^-24, one word each.
    pub fn uniform_f32(self, index: u64) -> f32 {
        uniform_from_low_bits(self.word(index), 24)
    }

    /// Value `index` of `uniform` in bf16: a multiple of 2^-8, one word each.
    pub fn uniform_bf16(self, index: u64) -> f32 {
        uniform_from_low_bits(self.word(index), 8)
    }

    /// Value `index` of `uniform` in f16: a multiple of 2^-11, one word each.
    pub fn uniform_f16(self, index: u64) -> f32 {
        uniform_from_low_bits(self.word(index), 11)
    }

    /// The key that `fold_in(key, data)` gives: the words of block `data`.
    pub fn fold_in(self, data: u64) -> StatelessKey {
        let [a, b, c, d] = self.block(data);
        let join = |low: u32, high: u32| u64::from(high) << 32 | u64::from(low);
        StatelessKey {
            seed: join(a, b),
            offset_blocks: join(c, d),
        }
    }
}

/// The low `bits` (at most 24) of `word` as a fraction of `2^bits`: exact.
fn uniform_from_low_bits(word: u32, bits: u32) -> f32 {
    debug_assert!((1..=24).contains(&bits));
    let scale = 1u32 << bits;
    (word & (scale - 1)) as f32 / scale as f32
}

/// `curand_uniform`: in (0, 1]. The word is rounded to f32 first, then one fused multiply-add with
/// 2^-32 and 2^-33 follows; f64 holds that product and sum exactly.
pub fn curand_uniform(word: u32) -> f32 {
    const STEP: f64 = 1.0 / 4_294_967_296.0;
    (f64::from(word as f32) * STEP + STEP / 2.0) as f32
}

/// Triton's `tl.rand`: in [0, 1). The word is read as signed, negative ones complemented.
pub fn triton_uniform(word: u32) -> f32 {
    const STEP: f32 = 4.656_612_7e-10;
    let signed = word as i32;
    let magnitude = if signed < 0 { !signed } else { signed };
    magnitude as f32 * STEP
}

/// How CUDA's `native_dropout` walks a contiguous tensor: blocks of 256 threads, four values a
/// thread, a grid no larger than the device holds at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DropoutGrid {
    pub elements: u64,
    /// Streaming multiprocessors of the device. The mask depends on it once `elements` exceeds
    /// 1024 a block of the grid: other hardware then gives another mask.
    pub multiprocessors: u32,
}

impl DropoutGrid {
    const BLOCK_THREADS: u64 = 256;
    /// 2048 threads fit one multiprocessor at once.
    const RESIDENT_BLOCKS: u64 = 8;

    /// Threads of the grid, each with a cuRAND subsequence of its own.
    pub fn threads(self) -> u64 {
        let resident = u64::from(self.multiprocessors) * Self::RESIDENT_BLOCKS;
        let needed = self.elements.div_ceil(Self::BLOCK_THREADS);
        Self::BLOCK_THREADS * resident.min(needed).max(1)
    }

    /// Words the generator's offset moves by: 4 for each round of the grid.
    pub fn offset_words(self) -> u64 {
        self.elements.div_ceil(self.threads() * BLOCK_WORDS).max(1) * BLOCK_WORDS
    }

    /// Whether element `index` is kept, with probability `1 - drop`.
    pub fn keeps(self, index: u64, drop: f64, seed: u64, offset_words: u64) -> bool {
        let thread = index / BLOCK_WORDS % self.threads();
        let round = index / (BLOCK_WORDS * self.threads());
        let block = curand_block(seed, thread, offset_words + BLOCK_WORDS * round);
        curand_uniform(block[(index % BLOCK_WORDS) as usize]) < (1.0 - drop) as f32
    }
}

#[cfg(test)]
mod tests;
