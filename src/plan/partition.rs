//! Which channel carries which elements of one NCCL operation, and in what chunks.
//!
//! Read in NCCL 2.30.7 (`scheduleCollTasksToPlan`, `calcCollChunking`) for one operation launched
//! on its own; operations grouped into one launch continue on the channel where the one before
//! stopped, which is not modelled here.

use std::ops::Range;

use crate::recipe::nccl::Protocol;

impl Protocol {
    /// Bytes of one ring chunk. `buffer` is `NCCL_BUFFSIZE`, which only Simple uses: a chunk is 4
    /// of its 8 steps. LL fills half of one 64 KiB step, LL128 15/16 of its 614,400-byte one.
    pub const fn ring_chunk_bytes(self, buffer: u64) -> u64 {
        match self {
            Protocol::Simple => buffer / 8 * 4,
            Protocol::Ll => 32 * 1024,
            Protocol::Ll128 => 576_000,
        }
    }

    /// Bytes that NCCL wants a channel to have before it takes one more.
    fn bytes_per_channel(self, algorithm: PartitionedBy, ranks: u64) -> u64 {
        match (self, algorithm) {
            (Protocol::Simple, _) => 512 * 64,
            (Protocol::Ll, PartitionedBy::Ring) => 512 * 8 * ranks,
            (Protocol::Ll, _) => 512 * 8,
            (Protocol::Ll128, _) => 640 * 8,
        }
    }
}

/// The algorithms that this module splits operations for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartitionedBy {
    Ring,
    Tree,
    Pat,
}

/// The size of one operation, as the partition sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// Elements of the count argument (all-reduce: of the buffer; reduce-scatter: of one block).
    pub count: u64,
    pub element_bytes: u64,
    /// Blocks of `count` that the operation's size is counted in: the ranks for reduce-scatter
    /// and all-gather, else 1.
    pub blocks: u64,
    /// Bytes that pass a rank for each byte of the count argument (`ncclFuncTrafficPerByte`): 2
    /// for all-reduce, the ranks for reduce-scatter and all-gather, else 1.
    pub traffic: u64,
}

/// Channels that NCCL limits an operation to because it is small (`topoGetAlgoInfo`).
pub fn channel_limit(
    operation: &Operation,
    algorithm: PartitionedBy,
    protocol: Protocol,
    ranks: u64,
    channels: u64,
) -> u64 {
    assert!(channels >= 1, "a communicator has at least one channel");
    if algorithm == PartitionedBy::Pat {
        // The number of threads in NCCL's table is 0 for it, so no channel has too few bytes.
        return channels;
    }
    let bytes = operation.count * operation.element_bytes * operation.blocks;
    (bytes / protocol.bytes_per_channel(algorithm, ranks)).clamp(1, channels)
}

/// The elements of the count argument on channels 0, 1, ...: one range a channel, none empty.
pub fn channel_ranges(
    operation: &Operation,
    protocol: Protocol,
    limit: u64,
    channels: u64,
) -> Vec<Range<u64>> {
    assert!(
        1 <= limit && limit <= channels,
        "limit {limit} of {channels} channels"
    );
    const CELL_TRAFFIC: u64 = 32 * 1024;
    let bytes = operation.count * operation.element_bytes;
    if bytes == 0 {
        return Vec::new();
    }
    let traffic = operation.traffic * if protocol == Protocol::Ll { 4 } else { 1 };
    let cell = CELL_TRAFFIC.div_ceil(traffic).next_multiple_of(16);
    let per_channel = (CELL_TRAFFIC.max(bytes * traffic) / limit).next_multiple_of(16);
    let cells = bytes.div_ceil(cell);
    let first = cells.min(per_channel.div_ceil(cell * traffic));
    let after = cells - first;
    let (mut middles, mut middle, mut last) = (after / first, first, after % first);
    if 1 + middles + u64::from(last > 0) > channels {
        middles = channels.saturating_sub(2);
        middle = after / (middles + 1);
        last = middle + after % (middles + 1);
    }
    let shares = std::iter::once(first)
        .chain(std::iter::repeat_n(middle, middles as usize))
        .chain(std::iter::once(last));
    let mut at = 0;
    let mut ranges = Vec::new();
    for share in shares.filter(|share| *share > 0) {
        let start = at;
        at = (at + share * cell / operation.element_bytes).min(operation.count);
        ranges.push(start..at);
    }
    assert_eq!(at, operation.count, "every element is on a channel");
    ranges
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn channels_cover_every_element_once_and_in_order(
            count in 1u64..40_000_000,
            element_bytes in prop::sample::select(vec![1u64, 2, 4, 8]),
            traffic in prop::sample::select(vec![1u64, 2, 3, 8, 19, 2432]),
            channels in 1u64..=64,
            limit in 1u64..=64,
            protocol in prop::sample::select(Protocol::ALL.to_vec()),
        ) {
            let operation = Operation { count, element_bytes, blocks: 1, traffic };
            let ranges = channel_ranges(&operation, protocol, limit.min(channels), channels);
            prop_assert!(ranges.len() as u64 <= channels);
            let mut at = 0;
            for range in &ranges {
                prop_assert!(range.start == at && range.end > at);
                prop_assert_eq!(range.start * element_bytes % 16, 0);
                at = range.end;
            }
            prop_assert_eq!(at, count);
        }
    }
}
