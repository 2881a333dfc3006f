//! The rings and chains of one communicator.
//!
//! Read in NCCL 2.30.7 (`graph/connect.cc`): node order is the order of first appearance when the
//! communicator's ranks are scanned from 0; a ring joins the nodes' orders of its channel; every
//! search channel becomes two channels, with the same ring and with one of the two trees each.
//! Where the allocation has the rings and trees of the communicator as they were recorded, nothing
//! is made: they are taken.

use std::sync::Arc;

use crate::plan::Tree;
use crate::plan::nccl_tree::{self, Half};
use crate::plan::ring::Ring;
use crate::topology::{
    Allocation, ChannelGraph, RecordedChannel, RecordedChannels, Topology, TreePattern,
};

/// One communicator as its algorithms see it. Ranks are group-local throughout: groups of the same
/// shape are equal.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Communicator {
    ranks: u32,
    /// Ring of each search channel (of each channel, if recorded), rank 0 first. Equal rings share
    /// their memory.
    rings: Vec<Ring>,
    trees: Trees,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Trees {
    Built {
        /// Chain of each node, for each search channel.
        chains: Vec<Vec<Vec<u32>>>,
        pattern: TreePattern,
    },
    Recorded(Arc<RecordedChannels>),
}

impl Communicator {
    /// The communicator of `members`, global ranks by group-local rank. They must be distinct and
    /// placed by the allocation.
    pub fn new(allocation: &Allocation, members: &[u32]) -> Communicator {
        assert!(!members.is_empty(), "a communicator has at least one rank");
        if let Some(known) = allocation.recorded.of(members) {
            return Communicator::recorded(members.len() as u32, known);
        }
        let nodes = nodes(allocation, members);
        let graph = graph(&allocation.topology, &nodes);
        let mut rings: Vec<Ring> = Vec::new();
        let mut chains = Vec::new();
        for channel in 0..graph.search_channels() {
            let ring = nodes
                .iter()
                .enumerate()
                .flat_map(|(index, node)| in_order(node, graph.ring_order(channel, index)));
            let ring = from_rank_zero(ring.collect());
            let known = rings.iter().find(|known| ***known == *ring).cloned();
            rings.push(known.unwrap_or(ring));
            let order = &graph.tree_orders[channel];
            chains.push(
                nodes
                    .iter()
                    .map(|node| in_order(node, order).collect())
                    .collect(),
            );
        }
        let pattern = graph.tree_pattern;
        Communicator {
            ranks: members.len() as u32,
            rings,
            trees: Trees::Built { chains, pattern },
        }
    }

    fn recorded(ranks: u32, known: &Arc<RecordedChannels>) -> Communicator {
        let rings: Vec<Ring> = known.rings.iter().map(|ring| ring[..].into()).collect();
        let of_channel = |channel: &RecordedChannel| rings[channel.ring as usize].clone();
        Communicator {
            ranks,
            rings: known.channels.iter().map(of_channel).collect(),
            trees: Trees::Recorded(known.clone()),
        }
    }

    pub fn ranks(&self) -> u32 {
        self.ranks
    }

    /// Each of its nodes has one of its ranks. `None` where its channels were recorded, which does
    /// not tell.
    pub fn has_one_rank_a_node(&self) -> Option<bool> {
        match &self.trees {
            Trees::Built { chains, .. } => Some(chains[0].iter().all(|chain| chain.len() == 1)),
            Trees::Recorded(_) => None,
        }
    }

    /// The ring of one of `channels`.
    pub fn ring(&self, channel: Channel) -> &Ring {
        &self.rings[channel.search as usize]
    }

    /// The all-reduce tree of one of `channels`; `None` where rings were recorded without trees.
    pub fn tree(&self, channel: Channel) -> Option<Tree> {
        let place = channel.search as usize;
        match &self.trees {
            Trees::Built { chains, pattern } => Some(nccl_tree::all_reduce(
                &chains[place],
                *pattern,
                channel.half,
            )),
            Trees::Recorded(known) => {
                let tree = known.channels[place].tree?;
                Some(nccl_tree::recorded(&known.trees[tree as usize]))
            }
        }
    }

    /// The communicator's channels: two for each search channel, or those that were recorded, cut
    /// to `NCCL_MAX_NCHANNELS`, then filled up to `NCCL_MIN_NCHANNELS` with copies of channel
    /// c - (count before).
    pub fn channels(&self, min: u32, max: u32) -> Vec<Channel> {
        let search = 0..self.rings.len() as u32;
        let half = |half| search.clone().map(move |search| Channel { search, half });
        let mut channels: Vec<Channel> = match self.trees {
            Trees::Built { .. } => half(Half::First).chain(half(Half::Second)).collect(),
            Trees::Recorded(_) => half(Half::First).collect(),
        };
        channels.truncate(max.max(1) as usize);
        let before = channels.len();
        for channel in before..(min as usize).max(before) {
            channels.push(channels[channel - before]);
        }
        channels
    }
}

/// What a channel was made from; of recorded ones, `search` is the channel's own number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Channel {
    pub search: u32,
    pub half: Half,
}

/// A member: the GPU's index in its node, and the group-local rank.
type Member = (u32, u32);

/// Members by node, nodes in order of first appearance.
fn nodes(allocation: &Allocation, members: &[u32]) -> Vec<Vec<Member>> {
    let nodes_at_most = allocation.topology.hosts as usize;
    let mut index_of = vec![None; nodes_at_most];
    let mut nodes: Vec<Vec<Member>> = Vec::new();
    for (local, rank) in (0..).zip(members) {
        let (node, gpu) = allocation.node_and_gpu(*rank);
        let index = *index_of[node as usize].get_or_insert_with(|| {
            nodes.push(Vec::new());
            nodes.len() - 1
        });
        nodes[index].push((gpu, local));
    }
    for node in &mut nodes {
        node.sort_unstable();
    }
    nodes
}

/// What NCCL's search found for a group on these nodes.
fn graph<'a>(topology: &'a Topology, nodes: &[Vec<Member>]) -> &'a ChannelGraph {
    match (nodes, &topology.alone) {
        ([only], Some(alone)) if only.len() as u32 == topology.gpus_per_node() => alone,
        _ => &topology.graph,
    }
}

/// A node's group-local ranks in the order of its GPUs in `order`; absent GPUs are passed over.
fn in_order<'a>(node: &'a [Member], order: &'a [u32]) -> impl Iterator<Item = u32> + 'a {
    order.iter().filter_map(|gpu| {
        let found = node.binary_search_by_key(gpu, |member| member.0).ok()?;
        Some(node[found].1)
    })
}

fn from_rank_zero(mut ring: Vec<u32>) -> Arc<[u32]> {
    let zero = ring.iter().position(|rank| *rank == 0);
    ring.rotate_left(zero.expect("every communicator has a rank 0"));
    ring.into()
}
