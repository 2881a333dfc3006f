//! What is summed after the data-parallel reduction (Megatron-LM, finalize_model_grads.py): norms
//! and row-parallel biases over tensor-parallel ranks, then a shared embedding over the two stages
//! that hold it.

use crate::fault::FaultKind;
use crate::model::{ParameterStore, Role};
use crate::plan::Combine;
use crate::train::bucket::{Bucket, FlatLayout};
use crate::train::gradient::{Gradients, Reduction, shards};
use crate::train::holding::{owned, pieces};
use crate::train::layout::Coordinates;
use crate::train::options::TrainOptions;
use crate::world::{Family, GroupId, Rank, Tensor};

/// Gradients that have seen this rank's tokens only, one after another, as Megatron coalesces them.
#[derive(Clone, Debug)]
pub struct PartialGradients {
    together: Tensor,
    /// Words that are copied in, from where, to where.
    gathered: Vec<(Tensor, Tensor)>,
    /// The reduced words among them, and their places together: copied in last, and out again.
    reduced: Vec<(Tensor, Tensor)>,
}

impl PartialGradients {
    /// `None` where the sequence is whole.
    ///
    /// With the distributed optimizer a rank has reduced its own shard alone. Megatron sums the
    /// whole gradients all the same; of the others' words nobody reads the result.
    pub fn allocate(
        rank: &mut Rank,
        options: &TrainOptions,
        (store, layout): (&ParameterStore, &FlatLayout),
        place: Coordinates,
        gradients: &Gradients,
    ) -> Option<PartialGradients> {
        let partial = || {
            let parameters = store.parameters.iter().enumerate();
            parameters.filter(|(_, parameter)| parameter.sequence_parallel)
        };
        let words = partial().map(|(_, parameter)| parameter.len()).sum();
        if !options.model.splits_sequence() || words == 0 {
            return None;
        }
        let dtype = options.reduce_dtype;
        let together = rank.alloc("gains_grad", dtype, words);
        let flat = Tensor {
            dtype,
            ..gradients.flat
        };
        let owned = owned(options, layout, place);
        let pieces = pieces(&store.parameters, &store.offsets, &owned);
        let (mut gathered, mut reduced, mut start) = (Vec::new(), Vec::new(), 0);
        for (number, parameter) in partial() {
            let place = together.slice(start, parameter.len());
            if shards(options) {
                let whole = flat.slice(store.offsets[number], parameter.len());
                gathered.push((whole, place));
            }
            for piece in pieces.iter().filter(|piece| piece.parameter == number) {
                let len = piece.local.end - piece.local.start;
                let own = gradients.reduced.slice(piece.start, len);
                reduced.push((own, place.slice(piece.local.start, len)));
            }
            start += parameter.len();
        }
        Some(PartialGradients {
            together,
            gathered,
            reduced,
        })
    }

    /// Under sequence parallelism a norm, or the bias of a row-parallel linear, has seen only this
    /// rank's tokens (`_allreduce_non_tensor_model_parallel_grads`).
    pub fn meet(&self, rank: &mut Rank, group: GroupId) {
        rank.module("main_grad.layernorm", |rank| {
            for (from, to) in self.gathered.iter().chain(&self.reduced) {
                rank.copy("coalesce", *from, *to);
            }
            let (family, words) = (Family::NormWeightTp, self.together);
            let handle = rank.all_reduce("all_reduce", family, group, words, Combine::Sum);
            rank.wait(handle);
            for (to, from) in &self.reduced {
                rank.copy("split", *from, *to);
            }
        });
    }
}

/// A shared embedding's gradient is the sum of what the first stage's look-up and the last stage's
/// output layer gave (`_allreduce_word_embedding_grads`). With the distributed optimizer each rank
/// there sums the whole gradient, of which its own shard alone is valid; the bucket of its own
/// makes both stages' shards the same rows. Here the shard alone is summed.
pub fn meet_embedding(rank: &mut Rank, reduction: &Reduction<'_>, gradients: &Gradients) {
    let Reduction {
        options,
        layout,
        store,
        groups,
        ..
    } = *reduction;
    let mut places = store.parameters.iter().zip(&store.offsets);
    let shared = places.find(|(parameter, _)| parameter.is_shared_embedding());
    let (Some((parameter, offset)), Some(group)) = (shared, groups.embedding) else {
        return;
    };
    let bucket = &layout.buckets[layout.bucket_at(*offset)];
    let words = match gradients.shard_of(options, bucket) {
        Some(shard) => {
            assert_eq!(bucket.range.start, *offset, "it is alone in its bucket");
            shard
        }
        None => gradients.reduced.slice(*offset, parameter.len()),
    };
    let early = shards(options) && rank.has_fault(FaultKind::EarlyReduce, "word_embeddings");
    let summed = match early && parameter.role == Role::SharedCopy {
        true => unreduced(rank, reduction, gradients, bucket),
        false => words,
    };
    rank.module("main_grad.word_embeddings", |rank| {
        let family = Family::SharedEmbedding;
        let handle = rank.all_reduce("all_reduce", family, group, summed, Combine::Sum);
        rank.wait(handle);
        if summed != words {
            rank.copy("split", summed, words);
        }
    });
}

/// This rank's shard of a bucket as it was before the data-parallel reduction.
fn unreduced(
    rank: &Rank,
    reduction: &Reduction<'_>,
    gradients: &Gradients,
    bucket: &Bucket,
) -> Tensor {
    let group = reduction.groups.intra_instance;
    let place = rank.place_in(group).expect("a rank is in its own group");
    let len = bucket.len() / rank.group(group).len() as u32;
    let flat = Tensor {
        dtype: reduction.options.reduce_dtype,
        ..gradients.flat
    };
    flat.slice(bucket.range.start + place * len, len)
}
