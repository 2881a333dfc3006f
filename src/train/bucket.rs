//! How parameters lie in the flat buffers, and the buckets that gradients are reduced in.
//!
//! The order (last parameter first) and the rule that a full bucket closes are those of
//! [`crate::job::buckets`], which lays a job out at full size as Megatron-LM does. This layout, of
//! models that are simulated, deviates where a small one would show padding and nothing else:
//!
//! - A bucket is padded to a multiple of `64 * dp` words, so that every shard starts where a
//!   parameter may; Megatron-LM pads to a common multiple of `dp` and 128, or 65,536 for NCCL's
//!   bandwidth, of which a toy buffer would mostly consist.
//! - The padding is there without the distributed optimizer too: switching it moves no parameter.
//! - `ddp_bucket_size` acts on every pipeline stage, with or without overlap, and the gaps that
//!   align parameters do not count towards it: in a toy they are as large as parameters.
//! - A word embedding that the last stage has a copy of is alone in its bucket, so that both stages
//!   cut it into the same shards; Megatron-LM does so with the distributed optimizer only.
//! - All parameters have one type: there is one buffer.

use std::ops::Range;

use crate::model::Parameter;

/// Parameters start at multiples of this, as with Megatron-LM's distributed optimizer
/// (`_ParamAndGradBuffer`), and so does every data-parallel shard.
const ALIGNMENT: u32 = 64;

/// Consecutive words of the flat buffers, reduced together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bucket {
    pub range: Range<u32>,
}

impl Bucket {
    pub fn len(&self) -> u32 {
        self.range.end - self.range.start
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Places of all parameters of one stage.
///
/// Parameters lie in reverse order of their modules, as gradients become ready in backward.
/// Invariant: every bucket's length is a multiple of `64 * data_parallel_size`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlatLayout {
    /// First word of each parameter, in the order of the parameters.
    pub offsets: Vec<u32>,
    pub buckets: Vec<Bucket>,
    data_parallel_size: u32,
}

impl FlatLayout {
    /// Buckets close once they hold at least `bucket_size` parameters; `None` is one bucket.
    pub fn new(
        parameters: &[Parameter],
        bucket_size: Option<u32>,
        data_parallel_size: u32,
    ) -> Self {
        assert!(data_parallel_size > 0 && !parameters.is_empty());
        let whole = ALIGNMENT * data_parallel_size;
        let mut offsets = vec![0; parameters.len()];
        let mut buckets = Vec::new();
        let (mut start, mut end, mut held) = (0u32, 0u32, 0u32);
        for place in (0..parameters.len()).rev() {
            let alone = parameters[place].is_shared_embedding();
            if alone && held > 0 {
                end = start + (end - start).next_multiple_of(whole);
                buckets.push(Bucket { range: start..end });
                (start, held) = (end, 0);
            }
            let offset = end.next_multiple_of(ALIGNMENT);
            offsets[place] = offset;
            end = offset + parameters[place].len();
            held += parameters[place].len();
            let full = bucket_size.is_some_and(|size| held >= size);
            if full || alone || place == 0 {
                end = start + (end - start).next_multiple_of(whole);
                buckets.push(Bucket { range: start..end });
                (start, held) = (end, 0);
            }
        }
        FlatLayout {
            offsets,
            buckets,
            data_parallel_size,
        }
    }

    /// Words of a flat buffer.
    pub fn len(&self) -> u32 {
        self.buckets.last().map_or(0, |bucket| bucket.range.end)
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The flat words that data-parallel rank `place` owns under the distributed optimizer: its
    /// part of each bucket, in order.
    pub fn shard(&self, place: u32) -> Vec<Range<u32>> {
        let part = |bucket: &Bucket| {
            let words = bucket.len() / self.data_parallel_size;
            let start = bucket.range.start + place * words;
            start..start + words
        };
        self.buckets.iter().map(part).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Partition, Role};

    fn parameters(sizes: &[u32]) -> Vec<Parameter> {
        let one = |(place, columns): (usize, &u32)| Parameter {
            name: format!("p{place}"),
            rows: 1,
            columns: *columns,
            partition: Partition::Replicated,
            decays: false,
            role: Role::Bias,
            sequence_parallel: false,
        };
        sizes.iter().enumerate().map(one).collect()
    }

    #[test]
    fn parameters_do_not_overlap_and_shards_cover_once() {
        for (sizes, bucket_size, dp) in [
            (vec![100, 7, 64, 1, 300], None, 4),
            (vec![100, 7, 64, 1, 300], Some(70), 3),
            (vec![5], Some(1), 1),
        ] {
            let list = parameters(&sizes);
            let flat = FlatLayout::new(&list, bucket_size, dp);
            let mut owners = vec![0; flat.len() as usize];
            for (offset, parameter) in flat.offsets.iter().zip(&list) {
                assert_eq!(offset % 64, 0);
                for word in *offset..offset + parameter.len() {
                    owners[word as usize] += 1;
                }
            }
            assert!(owners.iter().all(|count| *count <= 1));
            assert_eq!(owners.iter().sum::<u32>(), sizes.iter().sum::<u32>());
            let mut shards = vec![0; flat.len() as usize];
            for place in 0..dp {
                for range in flat.shard(place) {
                    assert_eq!(range.len() % 64, 0);
                    range.for_each(|word| shards[word as usize] += 1);
                }
            }
            assert!(shards.iter().all(|count| *count == 1));
        }
    }

    /// First and last stage cut their shared embedding alike, wherever it lies.
    #[test]
    fn a_shared_embedding_is_alone_in_its_bucket() {
        for (place, sizes) in [(0, [100, 7, 64]), (2, [64, 7, 100]), (1, [7, 100, 64])] {
            let mut list = parameters(&sizes);
            list[place].role = Role::SharedCopy;
            let flat = FlatLayout::new(&list, None, 2);
            let holds = |bucket: &&Bucket| bucket.range.contains(&flat.offsets[place]);
            let own = flat.buckets.iter().find(holds).unwrap();
            assert_eq!((own.range.start, own.len()), (flat.offsets[place], 128));
            assert_eq!(flat.buckets.len(), if place == 1 { 3 } else { 2 });
        }
    }

    #[test]
    fn buckets_close_in_reverse_order() {
        let flat = FlatLayout::new(&parameters(&[64, 64, 64]), Some(128), 1);
        assert_eq!(flat.offsets, [128, 64, 0]);
        assert_eq!(
            flat.buckets,
            [Bucket { range: 0..128 }, Bucket { range: 128..192 }]
        );
    }
}
