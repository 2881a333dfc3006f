//! Gradient buffers and buckets of Megatron's DistributedDataParallel.
//!
//! Rules read in megatron-core 0.19.2 (`distributed/param_and_grad_buffer.py`,
//! `distributed_data_parallel.py`). Parameters enter a buffer from last to first.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::recipe::default_ddp_bucket_size;

/// How a parameter is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Storage {
    Fp32,
    Bf16,
    Fp16,
    /// Quantised to fp8: bytes, with gradients in `high_precision`.
    Fp8,
}

/// A parameter, as far as buckets are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Param {
    pub elements: u64,
    pub storage: Storage,
    /// Type of its gradient without `grad_reduce_in_fp32` (for fp8 the type before quantisation).
    pub grad: Storage,
    /// An expert's parameter: reduced over the expert data-parallel group.
    pub expert: bool,
    /// The word embedding of a tied model: gets a bucket of its own with the distributed optimizer.
    pub shared_embedding: bool,
    /// `requires_grad = False`: in no buffer.
    pub frozen: bool,
}

impl Param {
    /// A dense parameter.
    pub const fn dense(elements: u64, storage: Storage) -> Param {
        let (expert, shared_embedding, frozen) = (false, false, false);
        Param {
            elements,
            storage,
            grad: storage,
            expert,
            shared_embedding,
            frozen,
        }
    }
}

/// The switches that shape buckets, under Megatron's names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BucketOptions {
    /// Elements. `None`: `max(40,000,000, 1,000,000 dp)`.
    pub bucket_size: Option<u64>,
    pub overlap_grad_reduce: bool,
    pub use_distributed_optimizer: bool,
    pub pad_buckets_for_high_nccl_busbw: bool,
    pub grad_reduce_in_fp32: bool,
    pub average_in_collective: bool,
    pub disable_bucketing: bool,
    pub reduce_scatter_with_fp32_accumulation: bool,
    pub pipeline_rank: u32,
}

/// Sizes of the groups that gradients are reduced over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataParallelSizes {
    /// Without context parallelism.
    pub dp: u32,
    pub dp_cp: u32,
    pub expert_dp: u32,
    pub num_distributed_optimizer_instances: u32,
}

impl DataParallelSizes {
    /// `dp` ranks and nothing else.
    pub const fn plain(dp: u32) -> DataParallelSizes {
        let num_distributed_optimizer_instances = 1;
        DataParallelSizes {
            dp,
            dp_cp: dp,
            expert_dp: dp,
            num_distributed_optimizer_instances,
        }
    }
}

/// A ratio that gradients are multiplied by before the reduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    pub numerator: u32,
    pub denominator: u32,
}

/// One parameter's place in its buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacedParam {
    /// Index in the list that was given.
    pub param: usize,
    pub range: Range<u64>,
    pub bucket: usize,
}

/// One contiguous part of a buffer that is reduced by one collective.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// First element in the buffer.
    pub offset: u64,
    /// Elements, padding included.
    pub elements: u64,
    /// Elements without the padding at the end; gaps between parameters count.
    pub unpadded: u64,
    /// Indices in the list that was given, in the order in which they lie.
    pub params: Vec<usize>,
}

/// One gradient buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Buffer {
    pub storage: Storage,
    pub grad: Storage,
    pub expert: bool,
    /// Ranks that a bucket is sharded over.
    pub dp_size: u32,
    pub gradient_scale: Scale,
    pub elements: u64,
    pub params: Vec<PlacedParam>,
    pub buckets: Vec<Bucket>,
}

/// Why buffers cannot be laid out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BucketError {
    #[error("several distributed optimizer instances need the distributed optimizer")]
    InstancesWithoutDistributedOptimizer,
    #[error(
        "{instances} distributed optimizer instances do not divide {ranks} data-parallel ranks"
    )]
    UnevenInstances { instances: u32, ranks: u32 },
    #[error("a data-parallel size of 0")]
    NoRanks,
    #[error("buffers of more than {} elements", MAX_ELEMENTS)]
    TooLarge,
}

/// Elements of all parameters together.
const MAX_ELEMENTS: u64 = 1 << 48;
/// Most ranks: keeps every padding small beside `MAX_ELEMENTS`.
const MAX_DP: u32 = 65_536;

/// Buckets of one buffer over `dp` ranks: lengths are `elements`, in the order of the model.
pub fn buckets(
    elements: &[u64],
    dp: u32,
    options: &BucketOptions,
) -> Result<Vec<Bucket>, BucketError> {
    let params: Vec<Param> = elements
        .iter()
        .map(|elements| Param::dense(*elements, Storage::Bf16))
        .collect();
    let buffers = buffers(&params, &DataParallelSizes::plain(dp), options)?;
    Ok(buffers
        .into_iter()
        .next()
        .map_or_else(Vec::new, |buffer| buffer.buckets))
}

/// All gradient buffers of a rank's parameters, dense ones first: one for each storage and
/// gradient type, in order of first appearance.
pub fn buffers(
    params: &[Param],
    sizes: &DataParallelSizes,
    options: &BucketOptions,
) -> Result<Vec<Buffer>, BucketError> {
    check(params, sizes, options)?;
    let instances = sizes.num_distributed_optimizer_instances;
    let mut buffers = Vec::new();
    for expert in [false, true] {
        let mut kinds: Vec<((Storage, Storage), Vec<usize>)> = Vec::new();
        for (index, param) in params.iter().enumerate() {
            if param.frozen || param.expert != expert {
                continue;
            }
            let grad = if options.grad_reduce_in_fp32 {
                Storage::Fp32
            } else {
                param.grad
            };
            let kind = (param.storage, grad);
            match kinds.iter_mut().find(|(known, _)| *known == kind) {
                Some((_, members)) => members.push(index),
                None => kinds.push((kind, vec![index])),
            }
        }
        let ranks = if expert { sizes.expert_dp } else { sizes.dp_cp };
        let dp_size = ranks / instances;
        for ((storage, grad), members) in kinds {
            let layout = Filling::of(params, &members, dp_size, sizes.dp, options);
            buffers.push(Buffer {
                storage,
                grad,
                expert,
                dp_size,
                gradient_scale: gradient_scale(expert, sizes, options),
                elements: layout.bucket_start,
                params: layout.placed,
                buckets: layout.buckets,
            });
        }
    }
    Ok(buffers)
}

fn check(
    params: &[Param],
    sizes: &DataParallelSizes,
    options: &BucketOptions,
) -> Result<(), BucketError> {
    let instances = sizes.num_distributed_optimizer_instances;
    let all = [sizes.dp, sizes.dp_cp, sizes.expert_dp, instances];
    if all.contains(&0) {
        return Err(BucketError::NoRanks);
    }
    if instances > 1 && !options.use_distributed_optimizer {
        return Err(BucketError::InstancesWithoutDistributedOptimizer);
    }
    for ranks in [sizes.dp_cp, sizes.expert_dp] {
        if !ranks.is_multiple_of(instances) {
            return Err(BucketError::UnevenInstances { instances, ranks });
        }
    }
    let total = params
        .iter()
        .try_fold(0u64, |sum, param| sum.checked_add(param.elements));
    let too_many_ranks = all.iter().any(|ranks| *ranks > MAX_DP);
    if too_many_ranks || total.is_none_or(|total| total > MAX_ELEMENTS) {
        return Err(BucketError::TooLarge);
    }
    Ok(())
}

fn gradient_scale(expert: bool, sizes: &DataParallelSizes, options: &BucketOptions) -> Scale {
    let numerator = match (options.average_in_collective, expert) {
        (true, true) => sizes.expert_dp,
        (true, false) => sizes.dp_cp,
        (false, _) => 1,
    };
    Scale {
        numerator,
        denominator: sizes.dp_cp,
    }
}

impl BucketOptions {
    /// Elements at which a bucket closes; `None`: one bucket.
    pub fn effective_bucket_size(&self, dp: u32) -> Option<u64> {
        if !self.overlap_grad_reduce || self.disable_bucketing || self.pipeline_rank > 0 {
            return None;
        }
        Some(
            self.bucket_size
                .unwrap_or_else(|| default_ddp_bucket_size(dp)),
        )
    }
}

/// A buffer while parameters are put into it.
struct Filling {
    distributed: bool,
    /// What bucket ends are rounded up to.
    divisor: u64,
    bucket_start: u64,
    open: Vec<usize>,
    placed: Vec<PlacedParam>,
    buckets: Vec<Bucket>,
}

impl Filling {
    fn of(
        params: &[Param],
        members: &[usize],
        dp_size: u32,
        dp: u32,
        options: &BucketOptions,
    ) -> Filling {
        let padding = if options.pad_buckets_for_high_nccl_busbw {
            1 << 16
        } else {
            128
        };
        let mut filling = Filling {
            distributed: options.use_distributed_optimizer,
            divisor: least_common_multiple(u64::from(dp_size), padding),
            bucket_start: 0,
            open: Vec::new(),
            placed: Vec::new(),
            buckets: Vec::new(),
        };
        let limit = options.effective_bucket_size(dp);
        let mut at = 0;
        for index in members.iter().rev().copied() {
            let param = &params[index];
            if filling.distributed {
                at = u64::next_multiple_of(at, 64);
            }
            let alone = param.shared_embedding && filling.distributed;
            if alone && !filling.open.is_empty() {
                at = filling.close(at);
            }
            let range = at..at + param.elements;
            at = range.end;
            let bucket = filling.buckets.len();
            filling.placed.push(PlacedParam {
                param: index,
                range,
                bucket,
            });
            filling.open.push(index);
            if alone || limit.is_some_and(|limit| at - filling.bucket_start >= limit) {
                at = filling.close(at);
            }
        }
        if !filling.open.is_empty() {
            filling.close(at);
        }
        filling
    }

    /// Closes the open bucket at `end` and returns where the next one starts.
    fn close(&mut self, end: u64) -> u64 {
        let padded = if self.distributed {
            end.next_multiple_of(self.divisor)
        } else {
            end
        };
        self.buckets.push(Bucket {
            offset: self.bucket_start,
            elements: padded - self.bucket_start,
            unpadded: end - self.bucket_start,
            params: std::mem::take(&mut self.open),
        });
        self.bucket_start = padded;
        padded
    }
}

fn least_common_multiple(a: u64, b: u64) -> u64 {
    let (mut divisor, mut rest) = (a, b);
    while rest != 0 {
        (divisor, rest) = (rest, divisor % rest);
    }
    a / divisor * b
}

/// Which buckets share a coalesced collective: (buffer, bucket) pairs of the dense groups, then
/// those of the expert groups.
pub fn bucket_groups(buffers: &[Buffer], options: &BucketOptions) -> [Vec<Vec<(usize, usize)>>; 2] {
    [false, true].map(|expert| {
        let mut by_fp8: BTreeMap<bool, Vec<(usize, usize)>> = BTreeMap::new();
        for (index, buffer) in buffers.iter().enumerate() {
            if buffer.expert == expert {
                let pairs = (0..buffer.buckets.len()).map(|bucket| (index, bucket));
                by_fp8
                    .entry(buffer.storage == Storage::Fp8)
                    .or_default()
                    .extend(pairs);
            }
        }
        let fp8 = by_fp8.remove(&true).unwrap_or_default();
        let others = by_fp8.remove(&false).unwrap_or_default();
        grouped(fp8, others, options)
    })
}

fn grouped(
    fp8: Vec<(usize, usize)>,
    others: Vec<(usize, usize)>,
    options: &BucketOptions,
) -> Vec<Vec<(usize, usize)>> {
    if options.disable_bucketing {
        let mut all = [fp8, others].concat();
        all.sort_unstable();
        return if all.is_empty() {
            Vec::new()
        } else {
            vec![all]
        };
    }
    let mut groups: Vec<Vec<(usize, usize)>> = fp8.into_iter().map(|pair| vec![pair]).collect();
    match groups.last_mut() {
        // The few parameters that stay in high precision wait for the last fp8 bucket.
        Some(last) if !options.reduce_scatter_with_fp32_accumulation => last.extend(others),
        _ => groups.extend(others.into_iter().map(|pair| vec![pair])),
    }
    groups
}
