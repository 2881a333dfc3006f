//! Who contributes to each gradient that a rank's optimizer reads: the specification, from the
//! layout alone, that the reductions of `gradient.rs` have to meet.

use std::ops::Range;

use crate::model::Parameter;
use crate::train::holding::Holding;
use crate::train::layout::Coordinates;
use crate::train::options::TrainOptions;

/// A run of gradient words with one set of contributors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contributions {
    /// The parameter's name on the rank.
    pub parameter: String,
    /// Words, counted in the gradients that the rank's optimizer reads.
    pub words: Range<u32>,
    /// Global ranks, ascending: each gives every microbatch of the step, exactly once.
    pub ranks: Vec<u32>,
}

impl TrainOptions {
    /// The gradients that the optimizer of `rank` reads; for options that pass
    /// [`TrainOptions::check`].
    pub fn contributions(&self, rank: u32) -> Vec<Contributions> {
        let holding = Holding::of(self, rank);
        let pieces = holding.pieces().into_iter();
        pieces
            .map(|piece| {
                let parameter = &holding.parameters[piece.parameter];
                Contributions {
                    parameter: parameter.name.clone(),
                    words: piece.start..piece.start + piece.local.end - piece.local.start,
                    ranks: self.contributors(parameter, holding.place),
                }
            })
            .collect()
    }

    /// What each contribution is multiplied by: gradients are averaged over data-parallel ranks
    /// (Megatron-LM, `gradient_scaling_factor`).
    pub fn contribution_scale(&self) -> f32 {
        1.0 / self.layout.data_parallel_size as f32
    }

    /// All data-parallel ranks; under sequence parallelism those of all tensor-parallel ones for
    /// what saw only its own tokens; those of both stages that hold a shared embedding.
    fn contributors(&self, parameter: &Parameter, place: Coordinates) -> Vec<u32> {
        let layout = &self.layout;
        let meets = parameter.sequence_parallel && self.model.splits_sequence();
        let tensors = match meets {
            true => 0..layout.tensor_model_parallel_size,
            false => place.tensor..place.tensor + 1,
        };
        let last = layout.pipeline_model_parallel_size - 1;
        let stages = match parameter.is_shared_embedding() {
            true if last > 0 => vec![0, last],
            _ => vec![place.stage],
        };
        let data = 0..layout.data_parallel_size;
        let places = data.flat_map(|data| {
            let stages = stages.iter();
            let tensors = &tensors;
            stages.flat_map(move |stage| {
                tensors.clone().map(move |tensor| Coordinates {
                    tensor,
                    data,
                    stage: *stage,
                })
            })
        });
        let mut ranks: Vec<u32> = places.map(|place| layout.rank(place)).collect();
        ranks.sort_unstable();
        ranks
    }
}

#[cfg(test)]
mod tests {
    use crate::train::layout::Layout;
    use crate::train::options::TrainOptions;
    use crate::train::options::tests::options;

    /// Every word of every parameter is read once in each shard group, and by nobody twice.
    #[test]
    fn the_words_of_a_rank_are_disjoint() {
        let options = TrainOptions {
            layout: Layout::plain(2, 2, 4),
            ..options()
        };
        options.check().expect("sound options");
        for rank in 0..options.layout.world_size() {
            let mut end = 0;
            for found in options.contributions(rank) {
                assert!(found.words.start >= end && found.words.end > found.words.start);
                end = found.words.end;
                assert!(found.ranks.len().is_multiple_of(4), "{found:?}");
                assert!(found.ranks.is_sorted_by(|a, b| a < b));
            }
        }
    }
}
