//! The communicators of a layout: those of [`crate::job::groups`], as far as training uses them.

use crate::job::{GroupKind, groups};
use crate::train::layout::Layout;
use crate::world::{Communicator, GroupId};

/// Which ranks a communicator joins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CommunicatorKind {
    TensorParallel,
    DataParallel,
    /// Tensor and pipeline parallel together: one copy of the model.
    ModelParallel,
    World,
    /// The first and the last stage of a pipeline, which share one matrix where embedding and
    /// output layer are tied.
    Embedding,
    /// Data-parallel ranks of one optimizer instance.
    IntraInstance,
    /// Data-parallel ranks of the same place in each optimizer instance.
    InterInstance,
    /// All ranks of one optimizer instance.
    Instance,
}

impl CommunicatorKind {
    /// In the order in which communicators are listed. The last three exist with several optimizer
    /// instances only, `Embedding` with several stages.
    const ALL: [CommunicatorKind; 8] = [
        CommunicatorKind::TensorParallel,
        CommunicatorKind::DataParallel,
        CommunicatorKind::ModelParallel,
        CommunicatorKind::World,
        CommunicatorKind::Embedding,
        CommunicatorKind::IntraInstance,
        CommunicatorKind::InterInstance,
        CommunicatorKind::Instance,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            CommunicatorKind::TensorParallel => "tp",
            CommunicatorKind::DataParallel => "dp",
            CommunicatorKind::ModelParallel => "mp",
            CommunicatorKind::World => "world",
            CommunicatorKind::Embedding => "embd",
            CommunicatorKind::IntraInstance => "intra-dp",
            CommunicatorKind::InterInstance => "inter-dp",
            CommunicatorKind::Instance => "dist-opt",
        }
    }

    /// Megatron's group of this kind in `layout`; `None` where it is not needed. The world is no
    /// group of its own there.
    fn of_job(self, layout: &Layout) -> Option<GroupKind> {
        let several = layout.num_distributed_optimizer_instances > 1;
        match self {
            CommunicatorKind::TensorParallel => Some(GroupKind::Tp),
            // Without context parallelism `DpCp` is `Dp`.
            CommunicatorKind::DataParallel => Some(GroupKind::Dp),
            CommunicatorKind::ModelParallel => Some(GroupKind::Mp),
            CommunicatorKind::World => None,
            CommunicatorKind::Embedding => {
                (layout.pipeline_model_parallel_size > 1).then_some(GroupKind::Embd)
            }
            CommunicatorKind::IntraInstance => several.then_some(GroupKind::IntraDpCp),
            // Dense gradients meet over the experts' group too: `get_inter_distributed_optimizer_
            // instance_group`; without experts it joins the same ranks.
            CommunicatorKind::InterInstance => several.then_some(GroupKind::InterExptDp),
            CommunicatorKind::Instance => several.then_some(GroupKind::IntraDistOpt),
        }
    }
}

/// The communicators one rank belongs to, by their places in `ProcessGroups::communicators`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupIds {
    pub tensor: GroupId,
    pub data: GroupId,
    pub model: GroupId,
    pub world: GroupId,
    /// On the first and the last of several stages.
    pub embedding: Option<GroupId>,
    /// Data-parallel ranks of this rank's optimizer instance; `data` where there is one instance.
    pub intra_instance: GroupId,
    /// Data-parallel ranks of the same place in each instance, where there are several.
    pub inter_instance: Option<GroupId>,
    /// All ranks of this rank's optimizer instance; `world` where there is one.
    pub instance: GroupId,
}

/// Every communicator of a layout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessGroups {
    /// Kind after kind, each kind in Megatron's order; ranks ascending, as torch numbers them.
    pub communicators: Vec<Communicator>,
    /// What each communicator joins, in the same order.
    pub kinds: Vec<CommunicatorKind>,
    of_ranks: Vec<GroupIds>,
}

impl ProcessGroups {
    /// `layout` has been checked.
    pub(super) fn of(layout: &Layout) -> ProcessGroups {
        let world = layout.world_size();
        let groups = groups(&layout.job()).expect("a checked layout is one of Megatron's");
        let mut listed = Listed::default();
        for kind in CommunicatorKind::ALL {
            match kind.of_job(layout) {
                Some(of_job) => listed.add(kind, groups.of(of_job), world),
                None if kind == CommunicatorKind::World => {
                    listed.add(kind, &[(0..world).collect()], world);
                }
                None => {}
            }
        }
        let of_ranks = (0..world).map(|rank| listed.ids_of(rank)).collect();
        ProcessGroups {
            communicators: listed.communicators,
            kinds: listed.kinds,
            of_ranks,
        }
    }

    pub fn of_rank(&self, rank: u32) -> GroupIds {
        self.of_ranks[rank as usize]
    }
}

/// Communicators while they are listed.
#[derive(Default)]
struct Listed {
    communicators: Vec<Communicator>,
    kinds: Vec<CommunicatorKind>,
    /// By kind, in the order they came: the group of each rank.
    members: Vec<(CommunicatorKind, Vec<Option<GroupId>>)>,
}

impl Listed {
    fn add(&mut self, kind: CommunicatorKind, groups: &[Vec<u32>], world: u32) {
        let mut of_rank = vec![None; world as usize];
        for (place, ranks) in groups.iter().enumerate() {
            let id = GroupId(self.communicators.len() as u32);
            let mut ranks = ranks.clone();
            ranks.sort_unstable();
            for rank in &ranks {
                of_rank[*rank as usize] = Some(id);
            }
            self.communicators.push(Communicator {
                name: format!("{}{place}", kind.name()),
                ranks: ranks.into(),
            });
            self.kinds.push(kind);
        }
        self.members.push((kind, of_rank));
    }

    fn id(&self, kind: CommunicatorKind, rank: u32) -> Option<GroupId> {
        let (_, of_rank) = self.members.iter().find(|(known, _)| *known == kind)?;
        of_rank[rank as usize]
    }

    fn ids_of(&self, rank: u32) -> GroupIds {
        let of_all = |kind| {
            let id = self.id(kind, rank);
            id.expect("every rank is in a group of this kind")
        };
        let (data, world) = (
            of_all(CommunicatorKind::DataParallel),
            of_all(CommunicatorKind::World),
        );
        GroupIds {
            tensor: of_all(CommunicatorKind::TensorParallel),
            data,
            model: of_all(CommunicatorKind::ModelParallel),
            world,
            embedding: self.id(CommunicatorKind::Embedding, rank),
            intra_instance: self
                .id(CommunicatorKind::IntraInstance, rank)
                .unwrap_or(data),
            inter_instance: self.id(CommunicatorKind::InterInstance, rank),
            instance: self.id(CommunicatorKind::Instance, rank).unwrap_or(world),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::train::layout::Coordinates;

    fn ranks_of<'a>(groups: &'a ProcessGroups, start: &str) -> Vec<&'a [u32]> {
        let named = |c: &&Communicator| c.name.trim_end_matches(char::is_numeric) == start;
        let list = groups.communicators.iter().filter(named);
        list.map(|c| &c.ranks[..]).collect()
    }

    #[test]
    fn default_order_is_tp_dp_pp() {
        let groups = Layout::plain(2, 2, 4).process_groups();
        assert_eq!(
            ranks_of(&groups, "dp"),
            [[0, 2, 4, 6], [1, 3, 5, 7], [8, 10, 12, 14], [9, 11, 13, 15]]
        );
        assert_eq!(ranks_of(&groups, "mp")[0], [0, 1, 8, 9]);
        assert_eq!(ranks_of(&groups, "world").len(), 1);
    }

    #[test]
    fn other_mapping_puts_stages_first() {
        let layout = Layout {
            use_tp_pp_dp_mapping: true,
            ..Layout::plain(2, 2, 4)
        };
        assert_eq!(ranks_of(&layout.process_groups(), "mp")[0], [0, 1, 2, 3]);
    }

    #[test]
    fn first_and_last_stage_share_an_embedding_group() {
        let groups = Layout::plain(1, 3, 2).process_groups();
        assert_eq!(ranks_of(&groups, "embd"), [[0, 4], [1, 5]]);
        let embedding = |rank| groups.of_rank(rank).embedding;
        assert_eq!(embedding(2), None);
        assert!(embedding(0).is_some() && embedding(0) == embedding(4));
        let alone = Layout::plain(2, 1, 2).process_groups();
        assert_eq!(alone.of_rank(0).embedding, None);
    }

    #[test]
    fn instances_are_blocks_of_data_parallel_ranks() {
        let layout = Layout {
            num_distributed_optimizer_instances: 2,
            ..Layout::plain(2, 1, 4)
        };
        let groups = layout.process_groups();
        assert_eq!(
            ranks_of(&groups, "intra-dp"),
            [[0, 2], [4, 6], [1, 3], [5, 7]]
        );
        assert_eq!(
            ranks_of(&groups, "inter-dp"),
            [[0, 4], [2, 6], [1, 5], [3, 7]]
        );
        assert_eq!(ranks_of(&groups, "dist-opt"), [[0, 1, 2, 3], [4, 5, 6, 7]]);
        let plain = Layout::plain(2, 1, 4).process_groups().of_rank(3);
        assert_eq!(
            (plain.intra_instance, plain.inter_instance),
            (plain.data, None)
        );
        assert_eq!(plain.instance, plain.world);
    }

    /// Coordinates, by arithmetic, and Megatron's groups say the same of every rank.
    #[test]
    fn groups_join_ranks_that_differ_in_their_dimension_only() {
        for (tp, pp, dp, instances) in [(2, 2, 4, 2), (1, 3, 6, 3), (4, 1, 2, 1), (2, 4, 3, 1)] {
            for mapping in [false, true] {
                let layout = Layout {
                    num_distributed_optimizer_instances: instances,
                    use_tp_pp_dp_mapping: mapping,
                    ..Layout::plain(tp, pp, dp)
                };
                assert_eq!(layout.check(), Ok(()));
                check(&layout);
            }
        }
    }

    fn check(layout: &Layout) {
        let groups = layout.process_groups();
        let size = layout.instance_size();
        for rank in 0..layout.world_size() {
            let (place, ids) = (layout.coordinates(rank), groups.of_rank(rank));
            let joins = |id: GroupId, same: &dyn Fn(Coordinates) -> bool| {
                let all = 0..layout.world_size();
                let wanted: Vec<u32> = all.filter(|r| same(layout.coordinates(*r))).collect();
                assert_eq!(groups.communicators[id.0 as usize].ranks[..], wanted);
            };
            joins(ids.tensor, &|p| {
                (p.data, p.stage) == (place.data, place.stage)
            });
            joins(ids.data, &|p| {
                (p.tensor, p.stage) == (place.tensor, place.stage)
            });
            joins(ids.model, &|p| p.data == place.data);
            joins(ids.world, &|_| true);
            let aside = |p: Coordinates| (p.tensor, p.stage) == (place.tensor, place.stage);
            joins(ids.intra_instance, &|p| {
                aside(p) && p.data / size == place.data / size
            });
            joins(ids.instance, &|p| p.data / size == place.data / size);
            if let Some(inter) = ids.inter_instance {
                joins(inter, &|p| aside(p) && p.data % size == place.data % size);
            }
        }
    }
}
