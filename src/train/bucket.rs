//! How parameters lie in the flat buffers, and the buckets that gradients are reduced in: the
//! buffers of [`crate::job::buffers`], which lays a job out as Megatron-LM does.
//!
//! Chunks of the interleaved schedule have buffers of their own there; here they lie one after
//! another, so that the optimizer takes one run of words. Two things are ours: without the
//! distributed optimizer, which would align them to 64 elements, parameters start at multiples of
//! four, as the kernels' vec4 do; and all parameters have one type, so each chunk has one buffer.

use std::ops::Range;

use crate::job::{BucketError, BucketOptions, Buffer, DataParallelSizes, Param, Storage, buffers};
use crate::model::{Parameter, stage_parameters};
use crate::numerics::Dtype;
use crate::train::options::TrainOptions;

/// Elements that a kernel takes at once.
const VECTOR: u32 = 4;

/// Consecutive words of the flat buffers, reduced together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// The model chunk that its parameters are of.
    pub chunk: usize,
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

/// One model chunk's part of the flat buffers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkRange {
    /// The stage of the model that this chunk is, virtual stages counted.
    pub virtual_stage: u32,
    /// Places of its parameters in the rank's list.
    pub parameters: Range<usize>,
    pub words: Range<u32>,
}

/// The parameters of one rank, chunk after chunk, and their places.
///
/// Within a chunk parameters lie in reverse order of their modules, as gradients become ready in
/// backward. Invariant: every bucket's length is a multiple of the number of shards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlatLayout {
    /// In the order of the modules.
    pub parameters: Vec<Parameter>,
    /// First word of each parameter, in the order of the parameters.
    pub offsets: Vec<u32>,
    pub buckets: Vec<Bucket>,
    pub chunks: Vec<ChunkRange>,
    /// Parts that the distributed optimizer cuts each bucket into; 1 without it.
    shards: u32,
}

impl FlatLayout {
    /// The layout of a rank of pipeline stage `stage`, for options that pass
    /// [`TrainOptions::check`].
    pub fn of(options: &TrainOptions, stage: u32) -> FlatLayout {
        let mut flat = FlatLayout {
            parameters: Vec::new(),
            offsets: Vec::new(),
            buckets: Vec::new(),
            chunks: Vec::new(),
            shards: match options.use_distributed_optimizer {
                true => options.layout.instance_size(),
                false => 1,
            },
        };
        for chunk in 0..options.layout.num_virtual_stages_per_pipeline_rank {
            let virtual_stage = options.layout.virtual_stage(stage, chunk);
            let parameters = stage_parameters(&options.model, virtual_stage);
            let buffer = buffer(&parameters, options, stage, chunk);
            flat.add(virtual_stage, parameters, &buffer);
        }
        flat
    }

    fn add(&mut self, virtual_stage: u32, parameters: Vec<Parameter>, buffer: &Buffer) {
        let (start, first) = (self.len(), self.parameters.len());
        let at = |element: u64| start + element as u32;
        let mut offsets = vec![0; parameters.len()];
        for placed in &buffer.params {
            offsets[placed.param] = at(placed.range.start);
        }
        for bucket in &buffer.buckets {
            let range = at(bucket.offset)..at(bucket.offset + bucket.elements);
            assert_eq!((range.end - range.start) % self.shards, 0);
            let chunk = self.chunks.len();
            self.buckets.push(Bucket { chunk, range });
        }
        self.offsets.extend(offsets);
        self.parameters.extend(parameters);
        self.chunks.push(ChunkRange {
            virtual_stage,
            parameters: first..self.parameters.len(),
            words: start..self.len(),
        });
    }

    /// The number of the bucket that holds a flat word.
    pub fn bucket_at(&self, word: u32) -> usize {
        self.buckets
            .partition_point(|bucket| bucket.range.end <= word)
    }

    /// Words of a flat buffer.
    pub fn len(&self) -> u32 {
        self.buckets.last().map_or(0, |bucket| bucket.range.end)
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Words that one rank's optimizer state covers.
    pub fn shard_len(&self) -> u32 {
        self.len() / self.shards
    }

    /// The flat words that the rank at `place` of its optimizer instance owns: its part of each
    /// bucket, in order. Without the distributed optimizer place 0 owns all.
    pub fn shard(&self, place: u32) -> Vec<Range<u32>> {
        assert!(place < self.shards, "shard {place} of {}", self.shards);
        let part = |bucket: &Bucket| {
            let words = bucket.len() / self.shards;
            let start = bucket.range.start + place * words;
            start..start + words
        };
        self.buckets.iter().map(part).collect()
    }
}

/// Megatron's buffer of one chunk.
fn buffer(parameters: &[Parameter], options: &TrainOptions, stage: u32, chunk: u32) -> Buffer {
    let elements = |parameter: &Parameter| {
        u64::from(match options.use_distributed_optimizer {
            true => parameter.len(),
            false => parameter.len().next_multiple_of(VECTOR),
        })
    };
    let buffers = chunk_buffers(parameters, options, stage, chunk, elements);
    let mut buffers = buffers.expect("the options were checked").into_iter();
    match (buffers.next(), buffers.next()) {
        (Some(buffer), None) => buffer,
        _ => unreachable!("all parameters of a chunk have one type"),
    }
}

/// The buffers of model chunk `chunk` of pipeline stage `stage`, by Megatron's rules; `elements` of
/// each parameter.
///
/// # Errors
/// Options that Megatron would not lay out.
pub fn chunk_buffers(
    parameters: &[Parameter],
    options: &TrainOptions,
    stage: u32,
    chunk: u32,
    elements: impl Fn(&Parameter) -> u64,
) -> Result<Vec<Buffer>, BucketError> {
    let storage = match options.model.params_dtype {
        Dtype::Bf16 => Storage::Bf16,
        Dtype::F16 => Storage::Fp16,
        _ => Storage::Fp32,
    };
    let params: Vec<Param> = parameters
        .iter()
        .map(|parameter| Param {
            shared_embedding: parameter.is_shared_embedding(),
            ..Param::dense(elements(parameter), storage)
        })
        .collect();
    let sizes = DataParallelSizes {
        num_distributed_optimizer_instances: options.layout.num_distributed_optimizer_instances,
        ..DataParallelSizes::plain(options.layout.data_parallel_size)
    };
    let bucket_options = BucketOptions {
        bucket_size: options.ddp_bucket_size.map(u64::from),
        overlap_grad_reduce: options.overlap_grad_reduce,
        use_distributed_optimizer: options.use_distributed_optimizer,
        pad_buckets_for_high_nccl_busbw: false,
        grad_reduce_in_fp32: options.reduce_dtype == Dtype::F32,
        average_in_collective: false,
        // Only the first chunk's gradients become ready while others are still computed.
        disable_bucketing: chunk > 0,
        reduce_scatter_with_fp32_accumulation: options.ddp_reduce_scatter_with_fp32_accumulation,
        pipeline_rank: stage,
    };
    buffers(&params, &sizes, &bucket_options)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::train::options::tests::options;

    /// Every layout of these, with what it has of shards.
    fn layouts() -> Vec<(FlatLayout, u32)> {
        let mut list = Vec::new();
        for (distributed, instances, bucket, chunks) in [
            (true, 1, None, 1),
            (true, 2, Some(700), 1),
            (true, 1, Some(1), 2),
            (false, 1, Some(900), 1),
            (false, 1, None, 2),
        ] {
            let mut options = options();
            options.use_distributed_optimizer = distributed;
            options.layout.num_distributed_optimizer_instances = instances;
            options.overlap_grad_reduce = bucket.is_some();
            options.ddp_bucket_size = bucket;
            options.layout.num_virtual_stages_per_pipeline_rank = chunks;
            options.model.pipeline_model_parallel_size *= chunks;
            options.check().expect("sound options");
            let shards = if distributed { 4 / instances } else { 1 };
            list.extend([0, 1].map(|stage| (FlatLayout::of(&options, stage), shards)));
        }
        list
    }

    #[test]
    fn parameters_do_not_overlap_and_shards_cover_once() {
        for (flat, shards) in layouts() {
            let mut owners = vec![0; flat.len() as usize];
            for (offset, parameter) in flat.offsets.iter().zip(&flat.parameters) {
                assert_eq!(offset % VECTOR, 0);
                for word in *offset..offset + parameter.len() {
                    owners[word as usize] += 1;
                }
            }
            assert!(owners.iter().all(|count| *count <= 1));
            let elements: u32 = flat.parameters.iter().map(Parameter::len).sum();
            assert_eq!(owners.iter().sum::<u32>(), elements);
            let mut covered = vec![0; flat.len() as usize];
            for place in 0..shards {
                let shard = flat.shard(place);
                let words: usize = shard.iter().map(ExactSizeIterator::len).sum();
                assert_eq!(words as u32, flat.shard_len());
                shard
                    .into_iter()
                    .flatten()
                    .for_each(|word| covered[word as usize] += 1);
            }
            assert!(covered.iter().all(|count| *count == 1));
        }
    }

    /// Chunks hold the virtual stages they should, each in words of its own.
    #[test]
    fn chunks_partition_words_and_parameters() {
        let mut interleaved = 0;
        for (flat, _) in layouts() {
            let (mut word, mut parameter) = (0, 0);
            for chunk in &flat.chunks {
                assert_eq!(
                    (chunk.words.start, chunk.parameters.start),
                    (word, parameter)
                );
                (word, parameter) = (chunk.words.end, chunk.parameters.end);
                for place in chunk.parameters.clone() {
                    let end = flat.offsets[place] + flat.parameters[place].len();
                    assert!(flat.offsets[place] >= chunk.words.start && end <= word);
                }
            }
            assert_eq!((word, parameter), (flat.len(), flat.parameters.len()));
            interleaved += usize::from(flat.chunks.len() > 1);
        }
        assert!(interleaved > 0);
    }

    /// First and last stage cut their shared embedding alike, wherever it lies.
    #[test]
    fn a_shared_embedding_is_alone_in_its_bucket() {
        let mut options = options();
        options.use_distributed_optimizer = true;
        let mut found = Vec::new();
        for stage in [0, 1] {
            let flat = FlatLayout::of(&options, stage);
            let shared = flat
                .parameters
                .iter()
                .position(Parameter::is_shared_embedding);
            let place = shared.expect("both ends have one");
            let holds = |bucket: &&Bucket| bucket.range.contains(&flat.offsets[place]);
            let own = flat.buckets.iter().find(holds).unwrap();
            assert_eq!(own.range.start, flat.offsets[place]);
            found.push((own.len(), flat.parameters[place].len()));
        }
        assert_eq!(found[0], found[1]);
    }

    /// The first chunk of the first stage is cut, in reverse order; no other one is.
    #[test]
    fn only_what_overlaps_is_cut_into_buckets() {
        let mut options = options();
        (options.overlap_grad_reduce, options.ddp_bucket_size) = (true, Some(1));
        let flat = FlatLayout::of(&options, 0);
        assert_eq!(flat.buckets.len(), flat.parameters.len());
        assert!(flat.offsets.is_sorted_by(|a, b| a > b));
        // A shared embedding apart.
        assert_eq!(FlatLayout::of(&options, 1).buckets.len(), 2);
        options.overlap_grad_reduce = false;
        assert_eq!(FlatLayout::of(&options, 0).buckets.len(), 2);
    }
}
