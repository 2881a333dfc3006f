//! Where a rank stands in the parallel layout, and the communicators that follow from it.

use crate::world::{Communicator, GroupId};

/// Sizes of the parallel dimensions, and the order in which ranks are numbered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    pub tensor_model_parallel_size: u32,
    pub pipeline_model_parallel_size: u32,
    pub data_parallel_size: u32,
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
}

/// Which ranks a communicator joins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CommunicatorKind {
    TensorParallel,
    DataParallel,
    /// Tensor and pipeline parallel together: one copy of the model.
    ModelParallel,
    World,
    /// First and last pipeline stage, which may share the word embedding; none with one stage.
    Embedding,
}

impl CommunicatorKind {
    const ALL: [CommunicatorKind; 5] = [
        CommunicatorKind::TensorParallel,
        CommunicatorKind::DataParallel,
        CommunicatorKind::ModelParallel,
        CommunicatorKind::World,
        CommunicatorKind::Embedding,
    ];

    fn name(self) -> &'static str {
        match self {
            CommunicatorKind::TensorParallel => "tp",
            CommunicatorKind::DataParallel => "dp",
            CommunicatorKind::ModelParallel => "mp",
            CommunicatorKind::World => "world",
            CommunicatorKind::Embedding => "embd",
        }
    }
}

/// The communicators one rank belongs to, by their places in `Layout::communicators`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupIds {
    pub tensor: GroupId,
    pub data: GroupId,
    pub model: GroupId,
    pub world: GroupId,
    /// On the first and the last of several pipeline stages.
    pub embedding: Option<GroupId>,
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
    pub fn check(&self) -> Result<(), LayoutError> {
        let sizes = [
            (
                "tensor_model_parallel_size",
                self.tensor_model_parallel_size,
            ),
            (
                "pipeline_model_parallel_size",
                self.pipeline_model_parallel_size,
            ),
            ("data_parallel_size", self.data_parallel_size),
        ];
        if let Some((name, _)) = sizes.into_iter().find(|(_, size)| *size == 0) {
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
        Ok(())
    }

    pub fn world_size(&self) -> u32 {
        let model = self.tensor_model_parallel_size * self.pipeline_model_parallel_size;
        model * self.data_parallel_size
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

    /// Every communicator: tensor-parallel groups, data-parallel ones, model-parallel ones, the
    /// world, embedding groups; each kind in order of its least rank, ranks ascending.
    pub fn communicators(&self) -> Vec<Communicator> {
        let mut list = Vec::new();
        for kind in CommunicatorKind::ALL {
            for place in 0..self.group_count(kind) {
                let named = |rank: &u32| self.group_place(kind, *rank) == Some(place);
                let name = format!("{}{place}", kind.name());
                let ranks: Vec<u32> = (0..self.world_size()).filter(named).collect();
                list.push(Communicator {
                    name,
                    ranks: ranks.into(),
                });
            }
        }
        list
    }

    /// What each communicator of `communicators` joins, in the same order.
    pub fn communicator_kinds(&self) -> Vec<CommunicatorKind> {
        let kinds = CommunicatorKind::ALL.into_iter();
        kinds
            .flat_map(|kind| std::iter::repeat_n(kind, self.group_count(kind) as usize))
            .collect()
    }

    /// Where `rank`'s communicators stand in `communicators`.
    pub fn groups_of(&self, rank: u32) -> GroupIds {
        let id = |kind| {
            let before = CommunicatorKind::ALL
                .iter()
                .take_while(|other| **other != kind);
            let first: u32 = before.map(|other| self.group_count(*other)).sum();
            let place = self.group_place(kind, rank)?;
            Some(GroupId(first + place))
        };
        let every = |kind| id(kind).expect("every rank is in a group of this kind");
        GroupIds {
            tensor: every(CommunicatorKind::TensorParallel),
            data: every(CommunicatorKind::DataParallel),
            model: every(CommunicatorKind::ModelParallel),
            world: every(CommunicatorKind::World),
            embedding: id(CommunicatorKind::Embedding),
        }
    }

    fn group_count(&self, kind: CommunicatorKind) -> u32 {
        let stages = self.pipeline_model_parallel_size;
        let size = match kind {
            CommunicatorKind::Embedding if stages == 1 => return 0,
            CommunicatorKind::Embedding => stages,
            CommunicatorKind::TensorParallel => self.tensor_model_parallel_size,
            CommunicatorKind::DataParallel => self.data_parallel_size,
            CommunicatorKind::ModelParallel => {
                self.tensor_model_parallel_size * self.pipeline_model_parallel_size
            }
            CommunicatorKind::World => self.world_size(),
        };
        self.world_size() / size
    }

    /// The number of a rank's group among those of its kind, which go by their least ranks; `None`
    /// for a rank in none.
    fn group_place(&self, kind: CommunicatorKind, rank: u32) -> Option<u32> {
        let (tp, stages) = (
            self.tensor_model_parallel_size,
            self.pipeline_model_parallel_size,
        );
        let place = self.coordinates(rank);
        match kind {
            CommunicatorKind::TensorParallel => Some(rank / tp),
            CommunicatorKind::DataParallel => Some(place.tensor + tp * place.stage),
            CommunicatorKind::ModelParallel => Some(place.data),
            CommunicatorKind::World => Some(0),
            CommunicatorKind::Embedding => {
                let is_end = place.stage == 0 || place.stage + 1 == stages;
                (stages > 1 && is_end).then_some(place.tensor + tp * place.data)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(mapping: bool) -> Layout {
        Layout {
            tensor_model_parallel_size: 2,
            pipeline_model_parallel_size: 2,
            data_parallel_size: 4,
            use_tp_pp_dp_mapping: mapping,
        }
    }

    #[test]
    fn default_order_is_tp_dp_pp() {
        let list = layout(false).communicators();
        let data: Vec<&[u32]> = list
            .iter()
            .filter(|c| c.name.starts_with("dp"))
            .map(|c| &c.ranks[..])
            .collect();
        assert_eq!(
            data,
            [[0, 2, 4, 6], [1, 3, 5, 7], [8, 10, 12, 14], [9, 11, 13, 15]]
        );
        let model = list.iter().find(|c| c.name == "mp0").unwrap();
        assert_eq!(model.ranks[..], [0, 1, 8, 9]);
    }

    #[test]
    fn other_mapping_puts_stages_first() {
        let list = layout(true).communicators();
        let model = list.iter().find(|c| c.name == "mp0").unwrap();
        assert_eq!(model.ranks[..], [0, 1, 2, 3]);
    }

    #[test]
    fn embedding_groups_join_the_ends_of_each_pipeline() {
        for mapping in [false, true] {
            let mut layout = layout(mapping);
            layout.pipeline_model_parallel_size = 4;
            let list = layout.communicators();
            for rank in 0..layout.world_size() {
                let place = layout.coordinates(rank);
                let ends = [0, 3].map(|stage| layout.rank(Coordinates { stage, ..place }));
                let group = layout.groups_of(rank).embedding;
                assert_eq!(group.is_some(), ends.contains(&rank));
                if let Some(group) = group {
                    assert_eq!(list[group.0 as usize].ranks[..], ends);
                }
            }
            layout.pipeline_model_parallel_size = 1;
            assert_eq!(layout.groups_of(0).embedding, None);
        }
    }

    #[test]
    fn coordinates_are_inverse_and_groups_hold_their_rank() {
        for mapping in [false, true] {
            let layout = layout(mapping);
            let list = layout.communicators();
            assert_eq!(list.len(), 8 + 4 + 4 + 1 + 8);
            for rank in 0..16 {
                assert_eq!(layout.rank(layout.coordinates(rank)), rank);
                let ids = layout.groups_of(rank);
                let every = [ids.tensor, ids.data, ids.model, ids.world];
                for id in every.into_iter().chain(ids.embedding) {
                    assert!(list[id.0 as usize].ranks.contains(&rank));
                }
            }
        }
    }
}
