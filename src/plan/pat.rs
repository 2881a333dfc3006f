//! NCCL's PAT reduce-scatter: binomial trees of offsets, so that every rank does the same.
//!
//! Read in NCCL 2.30.7 (`PatRSAlgorithm` in `include/collectives.h`, `calcCollChunking` in
//! `enqueue.cc`). For the block of rank d, rank d - s is at offset s. An offset sends its partial
//! sum to the one without its lowest set bit, so what offset s meets comes from s + 2^k for each k
//! below that bit. Steps are aggregated: a rank first goes round within a `delta` of offsets, then
//! joins those. It takes k from below the delta (or the bit) down to 1, then from the delta up, and
//! 0 last: those whose messages come latest. Small messages aggregate more, so for 33 ranks and
//! more the order follows from the size.

use crate::plan::Tree;
use crate::plan::shape::Shape;

/// NCCL's `NCCL_STEPS`: the most steps in flight on a connection.
const STEPS: u64 = 8;
/// The least chunk of PAT.
const CHUNK_MIN: u64 = 64 * 1024;

/// Bytes of a chunk on a channel that carries so many bytes of each block.
pub fn chunk_bytes(buffer: u64, ranks: u64, channel_bytes: u64) -> u64 {
    let mut chunk = buffer / STEPS;
    while chunk * 16 > ranks * channel_bytes && chunk > CHUNK_MIN {
        chunk /= 2;
    }
    chunk
}

/// The logarithm of the delta of offsets within which steps are not aggregated.
pub fn delta_log2(ranks: u64, channel_bytes: u64, chunk_bytes: u64) -> u32 {
    let mut delta = ranks.next_power_of_two().ilog2();
    let mut factor = 1;
    while chunk_bytes / (channel_bytes.max(1) * factor) >= 2 && factor < ranks / 2 {
        factor *= 2;
        delta -= 1;
    }
    let mut depth = STEPS;
    while depth > 1 && factor < ranks / 2 {
        depth /= 2;
        factor *= 2;
        delta -= 1;
    }
    delta
}

/// The block of rank `owner`.
pub fn reduce_scatter_tree(ranks: u32, owner: u32, delta_log2: u32) -> Tree {
    let all = ranks.next_power_of_two().ilog2();
    let mut shape = Shape::new();
    let mut sums = vec![0; ranks as usize];
    for offset in (0..ranks).rev() {
        let bit = offset.trailing_zeros().min(all);
        let mut sum = shape.leaf((owner + ranks - offset) % ranks);
        for k in met_in_order(bit, delta_log2) {
            let from = u64::from(offset) + (1 << k);
            if from < u64::from(ranks) {
                sum = shape.pair(sums[from as usize], sum);
            }
        }
        sums[offset as usize] = sum;
    }
    shape.into_tree()
}

/// Which bits an offset meets, one after the other, where `bit` is its lowest set one.
fn met_in_order(bit: u32, delta_log2: u32) -> impl Iterator<Item = u32> {
    let within = (1..bit.min(delta_log2)).rev();
    let joined = delta_log2.max(1)..bit;
    let last = (bit > 0).then_some(0);
    within.chain(joined).chain(last)
}
