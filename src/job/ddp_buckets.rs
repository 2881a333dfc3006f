//! Gradient buckets of PyTorch's DistributedDataParallel.
//!
//! Rules read in torch 2.15.0: `compute_bucket_assignment_by_size` and `rebuild_buckets`
//! (`torch/csrc/distributed/c10d/reducer.cpp`), `_ddp_init_helper`
//! (`torch/nn/parallel/distributed.py`). Which bucket a gradient lies in decides where in its
//! collective it lies, and so in which order its ranks are added.

/// Element type of a parameter and of its gradient: DDP never mixes two in one bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GradientType {
    Float64,
    Float32,
    Float16,
    BFloat16,
}

impl GradientType {
    /// Bytes of one element.
    pub const fn bytes(self) -> u64 {
        match self {
            GradientType::Float64 => 8,
            GradientType::Float32 => 4,
            GradientType::Float16 | GradientType::BFloat16 => 2,
        }
    }
}

/// A parameter, as far as DDP's buckets are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DdpParam {
    pub elements: u64,
    pub dtype: GradientType,
}

/// `torch.distributed._DEFAULT_FIRST_BUCKET_BYTES`.
pub const FIRST_BUCKET_BYTES: u64 = 1 << 20;
/// DDP's default `bucket_cap_mb`, in bytes.
pub const BUCKET_CAP_BYTES: u64 = 25 << 20;

/// The arguments of `DistributedDataParallel` that shape buckets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DdpOptions {
    /// `bucket_cap_mb` in bytes, rounded down as torch does. A given one holds for the first
    /// bucket, too; `None` is [`FIRST_BUCKET_BYTES`], then [`BUCKET_CAP_BYTES`].
    pub bucket_cap: Option<u64>,
    /// `bucket_cap_mb_list` in bytes: a limit a bucket, the last one repeats. Empty: not given.
    pub bucket_cap_list: Vec<u64>,
    pub find_unused_parameters: bool,
    pub static_graph: bool,
}

/// Buckets in the order in which they are reduced; each lists parameters in the order in which
/// they lie, as indices of `parameters()`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DdpBuckets {
    pub buckets: Vec<Vec<usize>>,
    /// Bytes at which each bucket would close.
    pub limits: Vec<u64>,
    /// Buckets from here on have no order of their own: torch takes them out of a hash map keyed by
    /// type. Here types come in order of first appearance.
    pub unordered_from: usize,
}

/// Why there are no buckets.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DdpBucketError {
    #[error("a list of no bucket limits")]
    NoLimits,
    #[error("iterations are numbered from 1")]
    NoIteration,
    #[error("parameters of more than {} bytes", MAX_BYTES)]
    TooLarge,
    #[error("parameter {index} of {count} in the order of gradients")]
    NoSuchParameter { index: usize, count: usize },
    #[error("parameter {index} twice in the order of gradients")]
    ReadyTwice { index: usize },
    /// torch: "Expected to have finished reduction in the prior iteration".
    #[error(
        "parameter {index} has no gradient: its bucket is never reduced without \
         `find_unused_parameters` or `static_graph`"
    )]
    Unused { index: usize },
}

/// Bytes of all parameters together.
const MAX_BYTES: u64 = 1 << 50;

/// The buckets that DDP reduces in `iteration`, which counts from 1.
///
/// `ready` lists the parameters in the order in which their gradients became ready in the first
/// backward pass: the reverse of their first use in forward, for a chain. Parameters that were not
/// used are left out.
///
/// # Errors
/// A `ready` that is no such list, iteration 0, or parameters beyond any machine.
pub fn ddp_buckets(
    params: &[DdpParam],
    ready: &[usize],
    options: &DdpOptions,
    iteration: u32,
) -> Result<DdpBuckets, DdpBucketError> {
    let unused = unused(params.len(), ready)?;
    let tolerant = options.find_unused_parameters || options.static_graph;
    if let (false, Some(index)) = (tolerant, unused.first()) {
        return Err(DdpBucketError::Unused { index: *index });
    }
    let rebuilt_in = match (options.static_graph, options.find_unused_parameters) {
        // The graph is recorded in the first iteration, and gradients in the second.
        (true, _) => 3,
        (false, false) => 2,
        // Another iteration may use other parameters: the order of one binds none.
        (false, true) => u32::MAX,
    };
    match iteration {
        0 => Err(DdpBucketError::NoIteration),
        early if early < rebuilt_in => {
            let mut first = assignment(params, &options.first_limits(), None)?;
            first.buckets.reverse();
            first.limits.reverse();
            Ok(first)
        }
        _ => {
            let order: Vec<usize> = ready.iter().chain(&unused).copied().collect();
            assignment(params, &options.limits(), Some(&order))
        }
    }
}

impl DdpOptions {
    /// Limits once the order of gradients is known.
    pub fn limits(&self) -> Vec<u64> {
        match (&self.bucket_cap_list[..], self.bucket_cap) {
            ([], None) => vec![FIRST_BUCKET_BYTES, BUCKET_CAP_BYTES],
            ([], Some(cap)) => vec![cap],
            (list, _) => list.to_vec(),
        }
    }

    /// Limits before it is: buckets that will be rebuilt need none.
    fn first_limits(&self) -> Vec<u64> {
        let rebuilt = self.static_graph || !self.find_unused_parameters;
        match self.bucket_cap_list.is_empty() && rebuilt {
            true => vec![u64::MAX],
            false => self.limits(),
        }
    }
}

/// Parameters that are missing in `ready`, ascending.
fn unused(count: usize, ready: &[usize]) -> Result<Vec<usize>, DdpBucketError> {
    let mut is_ready = vec![false; count];
    for index in ready.iter().copied() {
        match is_ready.get_mut(index) {
            None => return Err(DdpBucketError::NoSuchParameter { index, count }),
            Some(true) => return Err(DdpBucketError::ReadyTwice { index }),
            Some(seen) => *seen = true,
        }
    }
    Ok((0..count).filter(|index| !is_ready[*index]).collect())
}

/// A type's bucket while parameters are put into it.
struct Open {
    dtype: GradientType,
    params: Vec<usize>,
    bytes: u64,
    /// Index of the limit of the open bucket.
    limit: usize,
}

/// `_compute_bucket_assignment_by_size`: parameters in `order`, or as they are numbered and then
/// sorted by each bucket's least index.
///
/// A bucket closes after the parameter that reaches the limit. Every type fills buckets of its own,
/// and goes through the list of limits on its own.
///
/// # Errors
/// An empty list of limits, an index outside, or parameters beyond any machine.
pub fn assignment(
    params: &[DdpParam],
    limits: &[u64],
    order: Option<&[usize]>,
) -> Result<DdpBuckets, DdpBucketError> {
    let last = limits
        .len()
        .checked_sub(1)
        .ok_or(DdpBucketError::NoLimits)?;
    let numbered: Vec<usize> = (0..params.len()).collect();
    let (mut closed, mut open): (Vec<(Vec<usize>, u64)>, Vec<Open>) = Default::default();
    let mut total = 0u64;
    for index in order.unwrap_or(&numbered).iter().copied() {
        let count = params.len();
        let param = params
            .get(index)
            .ok_or(DdpBucketError::NoSuchParameter { index, count })?;
        let bytes = param.elements.saturating_mul(param.dtype.bytes());
        total = total.saturating_add(bytes);
        if total > MAX_BYTES {
            return Err(DdpBucketError::TooLarge);
        }
        let bucket = of_type(&mut open, param.dtype);
        bucket.params.push(index);
        bucket.bytes += bytes;
        if bucket.bytes >= limits[bucket.limit] {
            closed.push((std::mem::take(&mut bucket.params), limits[bucket.limit]));
            bucket.bytes = 0;
            bucket.limit = (bucket.limit + 1).min(last);
        }
    }
    let closed_count = closed.len();
    let rest = open.into_iter().filter(|bucket| !bucket.params.is_empty());
    closed.extend(rest.map(|bucket| (bucket.params, limits[bucket.limit])));
    let mut unordered_from = match closed.len() - closed_count {
        0 | 1 => closed.len(),
        _ => closed_count,
    };
    if order.is_none() {
        closed.sort_by_key(|(params, _)| params.iter().min().copied());
        unordered_from = closed.len();
    }
    let (buckets, limits) = closed.into_iter().unzip();
    Ok(DdpBuckets {
        buckets,
        limits,
        unordered_from,
    })
}

fn of_type(open: &mut Vec<Open>, dtype: GradientType) -> &mut Open {
    let place = open.iter().position(|bucket| bucket.dtype == dtype);
    let place = place.unwrap_or_else(|| {
        open.push(Open {
            dtype,
            params: Vec::new(),
            bytes: 0,
            limit: 0,
        });
        open.len() - 1
    });
    &mut open[place]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn float32(elements: u64) -> DdpParam {
        let dtype = GradientType::Float32;
        DdpParam { elements, dtype }
    }

    #[test]
    fn what_torch_refuses_is_refused() {
        let params = [float32(8), float32(8)];
        let plain = DdpOptions::default();
        let of = |ready: &[usize], iteration| ddp_buckets(&params, ready, &plain, iteration);
        assert_eq!(of(&[1, 0], 0), Err(DdpBucketError::NoIteration));
        assert_eq!(of(&[1], 1), Err(DdpBucketError::Unused { index: 0 }));
        assert_eq!(of(&[1, 1], 1), Err(DdpBucketError::ReadyTwice { index: 1 }));
        let outside = DdpBucketError::NoSuchParameter { index: 2, count: 2 };
        assert_eq!(of(&[2], 1), Err(outside.clone()));
        assert_eq!(assignment(&params, &[1], Some(&[2])), Err(outside));
        assert_eq!(
            assignment(&params, &[], None),
            Err(DdpBucketError::NoLimits)
        );
        let huge = [float32(u64::MAX), float32(u64::MAX)];
        assert_eq!(assignment(&huge, &[1], None), Err(DdpBucketError::TooLarge));
    }

    #[test]
    fn a_static_graph_is_rebuilt_whatever_else_is_asked_for() {
        let params = [float32(8), float32(8)];
        let options = DdpOptions {
            find_unused_parameters: true,
            static_graph: true,
            ..DdpOptions::default()
        };
        let of = |iteration| ddp_buckets(&params, &[1], &options, iteration).unwrap();
        assert_eq!(of(2).buckets, [[0, 1]]);
        assert_eq!(of(3).buckets, [[1, 0]]);
    }

    fn some_param() -> impl Strategy<Value = DdpParam> {
        use GradientType::{BFloat16, Float16, Float32, Float64};
        let dtype = prop::sample::select(vec![Float64, Float32, Float16, BFloat16]);
        (1..2_000u64, dtype).prop_map(|(elements, dtype)| DdpParam { elements, dtype })
    }

    proptest! {
        /// Each parameter once, one type a bucket, and no bucket longer than it had to be.
        #[test]
        fn buckets_partition_the_parameters(
            params in prop::collection::vec(some_param(), 0..24),
            limits in prop::collection::vec(1..8_000u64, 1..4),
            rotation in 0..24usize,
        ) {
            let mut order: Vec<usize> = (0..params.len()).rev().collect();
            order.rotate_left(rotation % params.len().max(1));
            let found = assignment(&params, &limits, Some(&order)).unwrap();
            let mut all = found.buckets.concat();
            all.sort_unstable();
            prop_assert_eq!(all, (0..params.len()).collect::<Vec<_>>());
            let bytes = |param: &usize| params[*param].elements * params[*param].dtype.bytes();
            for (bucket, limit) in found.buckets.iter().zip(&found.limits) {
                let (last, rest) = bucket.split_last().expect("a bucket holds something");
                let same = |other: &usize| params[*other].dtype == params[*last].dtype;
                prop_assert!(rest.iter().all(same));
                prop_assert!(rest.iter().map(bytes).sum::<u64>() < *limit);
            }
        }
    }
}
