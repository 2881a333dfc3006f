//! What can be set to pin plans: variables of NCCL, a switch of the recipe, where ranks run.

use std::collections::BTreeSet;
use std::fmt;

use crate::prove::job_plans::listed;
use crate::recipe::Recipe;
use crate::recipe::nccl::Environment;
use crate::topology::{Allocation, ChannelGraph, Placement, Recorded};

/// One thing that can be set, with its value. All of them are things that plans are made of: what
/// each does is found by building the plans again.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Setting {
    /// `NCCL_ALGO`: a ring for every function, or trees for all-reduce.
    Algorithm(&'static str),
    /// `NCCL_PROTO=Simple`.
    Protocol,
    /// `NCCL_MAX_NCHANNELS=1`: one ring, and the first tree alone.
    OneChannel,
    /// `NCCL_MIN_NCHANNELS` and `NCCL_MAX_NCHANNELS`, both this.
    Channels(u32),
    /// `NCCL_GRAPH_FILE` on every node: the in-node orders of this topology.
    Graph(String),
    /// Ranks on the GPUs that they have on this topology.
    Placement(String),
    /// `ddp_reduce_scatter_with_fp32_accumulation`.
    Fp32Accumulation,
}

impl Setting {
    /// Lines that a user writes for it.
    pub fn lines(&self) -> usize {
        match self {
            Setting::Channels(_) => 2,
            _ => 1,
        }
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Setting::Algorithm(value) => write!(f, "NCCL_ALGO={value}"),
            Setting::Protocol => write!(f, "NCCL_PROTO=Simple"),
            Setting::OneChannel => write!(f, "NCCL_MAX_NCHANNELS=1"),
            Setting::Channels(count) => {
                write!(f, "NCCL_MIN_NCHANNELS={count} NCCL_MAX_NCHANNELS={count}")
            }
            Setting::Graph(name) => write!(
                f,
                "NCCL_GRAPH_FILE: on every node one file with the rings and trees of {name}"
            ),
            Setting::Placement(name) => write!(
                f,
                "the rank of each GPU as on {name} (Slurm: SLURM_HOSTFILE with \
                 --distribution=arbitrary; Open MPI: --rankfile)"
            ),
            Setting::Fp32Accumulation => {
                write!(f, "ddp_reduce_scatter_with_fp32_accumulation = true")
            }
        }
    }
}

/// Where a job may run, and what is known there.
#[derive(Clone, Debug)]
pub struct Side {
    pub allocation: Allocation,
    /// The in-node orders are given, by the topology or by a graph file, not assumed: those of
    /// groups on whole nodes.
    pub orders_known: bool,
    /// Ranks may be on other GPUs of the same machines.
    pub placement_free: bool,
}

impl Side {
    /// A side as its file has it.
    pub fn new(allocation: Allocation, placement_free: bool) -> Side {
        let topology = &allocation.topology;
        let assumed = ChannelGraph::ascending(topology.gpus_per_node());
        let orders_known = topology.graph != assumed && topology.graph.missing.is_none();
        Side {
            allocation,
            orders_known,
            placement_free,
        }
    }
}

/// Whether a group has the channels that `topology` gives it, where its orders are known at all.
/// For a part of a node's GPUs NCCL searches anew, as it does for one node of several.
pub(super) fn is_searched_as_given(allocation: &Allocation, group: &[u32]) -> bool {
    let topology = &allocation.topology;
    let is_one_of_several = group.len() == topology.gpus_per_node() as usize
        && topology.hosts > topology.hosts_per_nvlink_domain;
    has_whole_nodes(allocation, group) && (!is_one_of_several || topology.alone.is_some())
}

/// A group has all GPUs of each node on which it has one.
fn has_whole_nodes(allocation: &Allocation, group: &[u32]) -> bool {
    let node = |rank: &u32| allocation.node_and_gpu(*rank).0;
    let mut nodes: Vec<u32> = group.iter().map(node).collect();
    nodes.sort_unstable();
    let whole = allocation.topology.gpus_per_node() as usize;
    let mut sizes = nodes.chunk_by(|a, b| a == b).map(<[u32]>::len);
    sizes.all(|size| size == whole)
}

/// A job with settings applied: its recipe, and the sides that are left.
#[derive(Clone, Debug)]
pub struct Configured {
    pub recipe: Recipe,
    pub sides: Vec<Side>,
}

impl Configured {
    pub fn with(mut self, settings: &[Setting]) -> Configured {
        for setting in settings {
            self.apply(setting);
        }
        self
    }

    /// Whether every group that adds has all GPUs of its nodes. NCCL refuses a graph file that
    /// names GPUs which a communicator has not (`ncclTopoGetChannelFromXml`: "dev not found").
    fn groups_have_whole_nodes(&self) -> bool {
        let Ok((communicators, collectives)) = listed(&self.recipe) else {
            return false;
        };
        let groups: BTreeSet<&[u32]> = collectives
            .iter()
            .flat_map(|one| &one.groups)
            .map(|group| &*communicators[group.0 as usize].ranks)
            .filter(|ranks| ranks.len() > 1)
            .collect();
        self.sides.iter().all(|side| {
            groups
                .iter()
                .all(|group| has_whole_nodes(&side.allocation, group))
        })
    }

    fn apply(&mut self, setting: &Setting) {
        let mut set = |name: &str, value: &str| {
            self.recipe.env.insert(name.to_string(), value.to_string());
        };
        match setting {
            Setting::Algorithm(value) => set("NCCL_ALGO", value),
            Setting::Protocol => set("NCCL_PROTO", "Simple"),
            Setting::OneChannel => set("NCCL_MAX_NCHANNELS", "1"),
            Setting::Channels(count) => {
                set("NCCL_MIN_NCHANNELS", &count.to_string());
                set("NCCL_MAX_NCHANNELS", &count.to_string());
            }
            Setting::Graph(_) => {
                let graph = self.sides[0].allocation.topology.graph.clone();
                for side in &mut self.sides {
                    side.allocation.topology.graph = graph.clone();
                    side.allocation.topology.graph.missing = None;
                    // The file is for every communicator.
                    side.allocation.topology.alone = Some(graph.clone());
                    side.orders_known = true;
                }
            }
            Setting::Placement(_) => {
                let slots = self.sides[0].allocation.placement.slots.clone();
                for side in &mut self.sides {
                    if side.allocation.placement.slots != slots {
                        let slots = slots.clone();
                        side.allocation.placement = Placement { slots };
                        // Recorded rings are those of the ranks where they were.
                        side.allocation.recorded = Recorded::default();
                    }
                    side.placement_free = false;
                }
            }
            Setting::Fp32Accumulation => {
                self.recipe.ddp_reduce_scatter_with_fp32_accumulation = true;
            }
        }
    }
}

/// The settings that a job can have, by what they set: at most one of each list is set at once.
pub fn candidates(job: &Configured) -> Vec<Vec<Setting>> {
    let first = &job.sides[0].allocation;
    let mut lists = vec![
        vec![
            Setting::Algorithm("Ring"),
            // NCCL has no tree for a reduce-scatter: a bare `Tree` would leave it nothing.
            Setting::Algorithm("ring;allreduce:tree"),
        ],
        vec![Setting::Protocol],
        vec![Setting::OneChannel, Setting::Channels(own_channels(job))],
    ];
    let gpus = first.topology.gpus_per_node();
    let mut sides = job.sides.iter();
    let is_of_size = |side: &Side| side.allocation.topology.gpus_per_node() == gpus;
    if sides.all(is_of_size) && job.groups_have_whole_nodes() {
        lists.push(vec![Setting::Graph(first.name.clone())]);
    }
    let places = |side: &Side| {
        let mut slots = side.allocation.placement.slots.clone();
        slots.sort_unstable();
        slots
    };
    let span = first.topology.hosts_per_nvlink_domain;
    let is_like_first = |side: &Side| {
        side.allocation.topology.hosts_per_nvlink_domain == span
            && places(side) == places(&job.sides[0])
    };
    if job.sides.iter().all(is_like_first) {
        lists.push(vec![Setting::Placement(first.name.clone())]);
    }
    // Megatron-LM refuses it with several optimizer instances.
    let recipe = &job.recipe;
    if recipe.use_distributed_optimizer && recipe.num_distributed_optimizer_instances == 1 {
        lists.push(vec![Setting::Fp32Accumulation]);
    }
    lists
}

/// The channels that plans have on the first side as it stands: two for each of its rings.
fn own_channels(job: &Configured) -> u32 {
    let graph = &job.sides[0].allocation.topology.graph;
    let own = 2 * graph.search_channels() as u32;
    let variables = job.recipe.env.iter();
    let read = Environment::parse(variables.map(|(name, value)| (name.as_str(), value.as_str())));
    // What cannot be read is refused before anything is pinned.
    let limits = read.unwrap_or_default();
    own.min(limits.max_channels).max(limits.min_channels)
}
