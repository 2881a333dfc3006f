//! Where a rank stands in the parallel layout.

use crate::job;
use crate::train::process_groups::{CommunicatorKind, GroupIds, ProcessGroups};
use crate::world::Communicator;

/// Sizes of the parallel dimensions, and the order in which ranks are numbered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    pub tensor_model_parallel_size: u32,
    pub pipeline_model_parallel_size: u32,
    /// Model chunks of each pipeline stage; 1 is no interleaving.
    pub num_virtual_stages_per_pipeline_rank: u32,
    pub data_parallel_size: u32,
    /// Blocks of data-parallel ranks that each hold the whole optimizer state.
    pub num_distributed_optimizer_instances: u32,
    /// Pipeline stages are numbered before data-parallel ranks: Megatron's
    /// `use_tp_pp_dp_mapping`, "tp-cp-ep-pp-dp" instead of "tp-cp-ep-dp-pp".
    pub use_tp_pp_dp_mapping: bool,
}

/// A layout that is not one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutError {
    #[error("{0} is 0, but must be at least 1")]
    Zero(&'static str),
    #[error("the layout has {ranks} ranks, more than {limit}")]
    TooManyRanks { ranks: u64, limit: u64 },
    #[error(
        "num_distributed_optimizer_instances is {instances}, which does not divide {data} \
         data-parallel ranks"
    )]
    Instances { instances: u32, data: u32 },
    #[error(
        "num_virtual_stages_per_pipeline_rank is {0} with one pipeline stage: interleaving needs \
         at least two"
    )]
    InterleavedWithoutPipeline(u32),
}

/// A rank's place in each dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coordinates {
    pub tensor: u32,
    pub data: u32,
    pub stage: u32,
}

const RANK_LIMIT: u64 = 1 << 16;

impl Layout {
    /// Three sizes, Megatron's default order, and nothing else.
    pub const fn plain(tensor: u32, pipeline: u32, data: u32) -> Layout {
        Layout {
            tensor_model_parallel_size: tensor,
            pipeline_model_parallel_size: pipeline,
            num_virtual_stages_per_pipeline_rank: 1,
            data_parallel_size: data,
            num_distributed_optimizer_instances: 1,
            use_tp_pp_dp_mapping: false,
        }
    }

    pub fn check(&self) -> Result<(), LayoutError> {
        let chunks = self.num_virtual_stages_per_pipeline_rank;
        let instances = self.num_distributed_optimizer_instances;
        let (pipeline, data) = (self.pipeline_model_parallel_size, self.data_parallel_size);
        let sizes = [
            (
                "tensor_model_parallel_size",
                self.tensor_model_parallel_size,
            ),
            ("pipeline_model_parallel_size", pipeline),
            ("data_parallel_size", data),
        ];
        let others = [
            ("num_virtual_stages_per_pipeline_rank", chunks),
            ("num_distributed_optimizer_instances", instances),
        ];
        let mut all = sizes.iter().chain(&others);
        if let Some((name, _)) = all.find(|(_, size)| *size == 0) {
            return Err(LayoutError::Zero(name));
        }
        let ranks = sizes
            .iter()
            .fold(1u64, |n, (_, size)| n.saturating_mul(u64::from(*size)));
        if ranks > RANK_LIMIT {
            return Err(LayoutError::TooManyRanks {
                ranks,
                limit: RANK_LIMIT,
            });
        }
        if !data.is_multiple_of(instances) {
            return Err(LayoutError::Instances { instances, data });
        }
        if chunks > 1 && pipeline == 1 {
            return Err(LayoutError::InterleavedWithoutPipeline(chunks));
        }
        Ok(())
    }

    pub fn world_size(&self) -> u32 {
        let model = self.tensor_model_parallel_size * self.pipeline_model_parallel_size;
        model * self.data_parallel_size
    }

    /// Parts that the layers are cut into: every chunk of every stage.
    pub fn virtual_stages(&self) -> u32 {
        let chunks = self.num_virtual_stages_per_pipeline_rank;
        self.pipeline_model_parallel_size.saturating_mul(chunks)
    }

    /// The virtual stage that is chunk `chunk` of stage `stage`: chunks are dealt to stages in
    /// turn (Megatron-LM, `get_transformer_layer_offset`).
    pub fn virtual_stage(&self, stage: u32, chunk: u32) -> u32 {
        assert!(stage < self.pipeline_model_parallel_size);
        assert!(chunk < self.num_virtual_stages_per_pipeline_rank);
        chunk * self.pipeline_model_parallel_size + stage
    }

    /// Data-parallel ranks of one optimizer instance, over which its state is cut into shards.
    pub fn instance_size(&self) -> u32 {
        self.data_parallel_size / self.num_distributed_optimizer_instances
    }

    /// Global rank at `place`.
    pub fn rank(&self, place: Coordinates) -> u32 {
        let (tp, pp) = (
            self.tensor_model_parallel_size,
            self.pipeline_model_parallel_size,
        );
        let outer = if self.use_tp_pp_dp_mapping {
            place.stage + pp * place.data
        } else {
            place.data + self.data_parallel_size * place.stage
        };
        place.tensor + tp * outer
    }

    pub fn coordinates(&self, rank: u32) -> Coordinates {
        assert!(
            rank < self.world_size(),
            "rank {rank} of {}",
            self.world_size()
        );
        let (tp, pp) = (
            self.tensor_model_parallel_size,
            self.pipeline_model_parallel_size,
        );
        let (tensor, outer) = (rank % tp, rank / tp);
        if self.use_tp_pp_dp_mapping {
            Coordinates {
                tensor,
                stage: outer % pp,
                data: outer / pp,
            }
        } else {
            let dp = self.data_parallel_size;
            Coordinates {
                tensor,
                data: outer % dp,
                stage: outer / dp,
            }
        }
    }

    /// The job that this layout is, as Megatron-LM's `initialize_model_parallel` is told.
    pub fn job(&self) -> job::Layout {
        let chunks = self.num_virtual_stages_per_pipeline_rank;
        let order = match self.use_tp_pp_dp_mapping {
            true => "tp-cp-ep-pp-dp",
            false => "tp-cp-ep-dp-pp",
        };
        job::Layout {
            tensor_model_parallel_size: self.tensor_model_parallel_size,
            pipeline_model_parallel_size: self.pipeline_model_parallel_size,
            virtual_pipeline_model_parallel_size: (chunks > 1).then_some(chunks),
            num_distributed_optimizer_instances: self.num_distributed_optimizer_instances,
            order: order.to_owned(),
            ..job::Layout::data_parallel(self.world_size())
        }
    }

    /// Every communicator, and which of them each rank is in. Made once for a world: it costs what
    /// the world has of ranks.
    pub fn process_groups(&self) -> ProcessGroups {
        ProcessGroups::of(self)
    }

    /// The communicators of `process_groups`.
    pub fn communicators(&self) -> Vec<Communicator> {
        self.process_groups().communicators
    }

    /// What each communicator of `communicators` joins, in the same order.
    pub fn communicator_kinds(&self) -> Vec<CommunicatorKind> {
        self.process_groups().kinds
    }

    /// Where `rank`'s communicators stand in `communicators`.
    pub fn groups_of(&self, rank: u32) -> GroupIds {
        self.process_groups().of_rank(rank)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coordinates_are_inverse_of_ranks() {
        for mapping in [false, true] {
            let layout = Layout {
                use_tp_pp_dp_mapping: mapping,
                ..Layout::plain(2, 3, 4)
            };
            for rank in 0..24 {
                assert_eq!(layout.rank(layout.coordinates(rank)), rank);
            }
        }
    }

    /// Chunk c of stage s has the layers from (c * stages + s) * layers a chunk.
    #[test]
    fn chunks_are_dealt_in_turn() {
        let layout = Layout {
            num_virtual_stages_per_pipeline_rank: 3,
            ..Layout::plain(1, 2, 1)
        };
        let of = |stage| [0, 1, 2].map(|chunk| layout.virtual_stage(stage, chunk));
        assert_eq!((of(0), of(1)), ([0, 2, 4], [1, 3, 5]));
        assert_eq!(layout.virtual_stages(), 6);
    }

    #[test]
    fn what_is_no_layout_is_named() {
        let mut layout = Layout::plain(1, 1, 4);
        layout.num_distributed_optimizer_instances = 3;
        let wrong = layout.check().unwrap_err().to_string();
        assert!(wrong.contains("does not divide 4"), "{wrong}");
        layout.num_distributed_optimizer_instances = 2;
        layout.num_virtual_stages_per_pipeline_rank = 2;
        let wrong = layout.check().unwrap_err();
        assert_eq!(wrong, LayoutError::InterleavedWithoutPipeline(2));
        layout.pipeline_model_parallel_size = 2;
        assert_eq!(layout.check(), Ok(()));
        layout.num_virtual_stages_per_pipeline_rank = 0;
        assert!(matches!(layout.check(), Err(LayoutError::Zero(_))));
    }
}
