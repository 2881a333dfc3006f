//! Rings and trees of communicators as real machines had them: recorded, not searched for.
//!
//! In an allocation file:
//! ```toml
//! [[communicators]]
//! groups = [[0, 2, 4, 6], [1, 3, 5, 7]]  # global ranks, by rank of the communicator
//! rings = [[0, 1, 3, 2]]                 # ranks of the communicator
//! trees = [[[1], [2, 3], [], []]]        # children of each rank, in the order they are added
//! channels = [[0, 0], [0, 0]]            # of each channel, its ring and its tree
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Deserialize;
use toml::Spanned;

use super::file::{TopologyError, TopologyErrorKind};

/// Channels that an NCCL communicator can have (`MAXCHANNELS`).
pub const MAX_CHANNELS: usize = 64;

/// One channel of a communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RecordedChannel {
    /// Its place in `rings`.
    pub ring: u32,
    /// Its place in `trees`, where trees were recorded.
    pub tree: Option<u32>,
}

/// The channels of one communicator, in ranks of its own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RecordedChannels {
    /// Different rings, each from rank 0.
    pub rings: Vec<Vec<u32>>,
    /// Different trees: the children of each rank, in the order in which it adds their sums.
    pub trees: Vec<Vec<Vec<u32>>>,
    pub channels: Vec<RecordedChannel>,
}

/// Communicators that were recorded, by their global ranks in order of their own ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recorded(BTreeMap<Vec<u32>, Arc<RecordedChannels>>);

impl Recorded {
    /// The channels of the communicator of exactly these ranks, if they were recorded.
    pub fn of(&self, members: &[u32]) -> Option<&Arc<RecordedChannels>> {
        self.0.get(members)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds one. The channels that were known of these ranks, if they were, are given back.
    pub fn insert(
        &mut self,
        members: Vec<u32>,
        channels: Arc<RecordedChannels>,
    ) -> Option<Arc<RecordedChannels>> {
        self.0.insert(members, channels)
    }

    /// Different channels, in order of their first groups, each with its groups.
    pub fn by_channels(&self) -> Vec<(&RecordedChannels, Vec<&[u32]>)> {
        let mut found: Vec<(&RecordedChannels, Vec<&[u32]>)> = Vec::new();
        let mut known: BTreeMap<&RecordedChannels, usize> = BTreeMap::new();
        for (members, channels) in &self.0 {
            let place = *known.entry(channels).or_insert_with(|| {
                found.push((channels, Vec::new()));
                found.len() - 1
            });
            found[place].1.push(members);
        }
        found
    }
}

/// Why a tree is none, `None` where it is one: a root that reaches every rank once.
pub fn not_a_tree(children: &[Vec<u32>]) -> Option<String> {
    let ranks = children.len();
    let mut parent = vec![None; ranks];
    for (rank, list) in children.iter().enumerate() {
        for child in list {
            match parent.get_mut(*child as usize) {
                None => return Some(format!("rank {rank} has a child {child} of {ranks} ranks")),
                Some(Some(first)) => {
                    return Some(format!(
                        "rank {child} is a child of rank {first} and of rank {rank}"
                    ));
                }
                Some(free) => *free = Some(rank),
            }
        }
    }
    let roots: Vec<usize> = (0..ranks).filter(|rank| parent[*rank].is_none()).collect();
    let [root] = roots[..] else {
        return Some(format!("{} ranks are nobody's child, not one", roots.len()));
    };
    let mut reached = 0;
    let mut open = vec![root];
    // Every rank but the root has one parent, so none is reached twice.
    while let Some(rank) = open.pop() {
        reached += 1;
        open.extend(children[rank].iter().map(|child| *child as usize));
    }
    (reached != ranks).then(|| format!("rank {root} reaches {reached} of {ranks} ranks"))
}

/// A table of `[[communicators]]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CommunicatorTable {
    groups: Spanned<Vec<Spanned<Vec<u32>>>>,
    rings: Spanned<Vec<Spanned<Vec<u32>>>>,
    #[serde(default)]
    trees: Vec<Spanned<Vec<Vec<u32>>>>,
    channels: Spanned<Vec<Spanned<Vec<u32>>>>,
}

/// What the tables of an allocation of `world` ranks say.
pub(super) fn recorded(
    tables: &[CommunicatorTable],
    world: u32,
) -> Result<Recorded, TopologyError> {
    let mut all = Recorded::default();
    for table in tables {
        let Some(first) = table.groups.as_ref().first() else {
            return Err(TopologyErrorKind::NoGroups.at(table.groups.span()));
        };
        let ranks = first.as_ref().len();
        let channels = Arc::new(table.channels(ranks)?);
        for group in table.groups.as_ref() {
            let members = group.as_ref();
            let distinct: BTreeSet<u32> = members.iter().copied().collect();
            let is_sound = members.len() == ranks
                && !members.is_empty()
                && distinct.len() == members.len()
                && members.iter().all(|rank| *rank < world);
            if !is_sound {
                let kind = TopologyErrorKind::RecordedGroup { ranks, world };
                return Err(kind.at(group.span()));
            }
            if all.insert(members.clone(), channels.clone()).is_some() {
                return Err(TopologyErrorKind::RecordedTwice.at(group.span()));
            }
        }
    }
    Ok(all)
}

impl CommunicatorTable {
    fn channels(&self, ranks: usize) -> Result<RecordedChannels, TopologyError> {
        let mut rings = Vec::new();
        for (index, ring) in self.rings.as_ref().iter().enumerate() {
            let mut order = ring.as_ref().clone();
            let mut sorted = order.clone();
            sorted.sort_unstable();
            if !sorted.into_iter().eq(0..ranks as u32) {
                let kind = TopologyErrorKind::RecordedRing { index, ranks };
                return Err(kind.at(ring.span()));
            }
            let zero = order.iter().position(|rank| *rank == 0);
            order.rotate_left(zero.unwrap_or(0));
            rings.push(order);
        }
        let mut trees = Vec::new();
        for (index, tree) in self.trees.iter().enumerate() {
            let children = tree.as_ref();
            let why = match children.len() == ranks {
                true => not_a_tree(children),
                false => Some(format!(
                    "it lists {} ranks, its communicator has {ranks}",
                    children.len()
                )),
            };
            if let Some(why) = why {
                return Err(TopologyErrorKind::RecordedTree { index, why }.at(tree.span()));
            }
            trees.push(children.clone());
        }
        let found = self.channels.as_ref().len();
        if found == 0 || found > MAX_CHANNELS {
            return Err(TopologyErrorKind::RecordedCount { found }.at(self.channels.span()));
        }
        let mut channels = Vec::new();
        for channel in self.channels.as_ref() {
            let one = match (channel.as_ref()[..].first(), &channel.as_ref()[..]) {
                (Some(ring), [_]) if trees.is_empty() => Some((*ring, None)),
                (Some(ring), [_, tree]) => Some((*ring, Some(*tree))),
                _ => None,
            };
            let is_known = |(ring, tree): &(u32, Option<u32>)| {
                (*ring as usize) < rings.len()
                    && tree.is_none_or(|tree| (tree as usize) < trees.len())
            };
            let Some((ring, tree)) = one.filter(is_known) else {
                let kind = TopologyErrorKind::RecordedChannel {
                    rings: rings.len(),
                    trees: trees.len(),
                };
                return Err(kind.at(channel.span()));
            };
            channels.push(RecordedChannel { ring, tree });
        }
        Ok(RecordedChannels {
            rings,
            trees,
            channels,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::Allocation;
    use super::*;

    const FILE: &str = "name = \"x\"\nhosts = [[0, 1, 2, 3]]\n[[communicators]]\n\
        groups = [[0, 1, 2, 3]]\nrings = [[2, 0, 1, 3]]\ntrees = [[[1], [2, 3], [], []]]\n\
        channels = [[0, 0], [0, 0]]\n";

    #[test]
    fn a_recorded_communicator_is_found_by_its_ranks_in_order() {
        let allocation = Allocation::from_toml(FILE).unwrap();
        let known = allocation.recorded.of(&[0, 1, 2, 3]).expect("recorded");
        assert_eq!(known.rings, [[0, 1, 3, 2]]);
        assert_eq!(known.channels.len(), 2);
        assert!(allocation.recorded.of(&[1, 0, 2, 3]).is_none());
        assert!(allocation.recorded.of(&[0, 1]).is_none());
    }

    #[test]
    fn what_is_no_ring_tree_or_group_is_refused_where_it_stands() {
        for (from, to, at) in [
            ("[2, 0, 1, 3]", "[2, 0, 1, 1]", "[2, 0, 1, 1]"),
            ("[2, 3], []", "[2], []", "[[1], [2], [], []]"),
            ("[2, 3], []", "[2, 3], [0]", "[[1], [2, 3], [0], []]"),
            ("[1], [2, 3]", "[], [2, 3]", "[[], [2, 3], [], []]"),
            ("[1], [2, 3]", "[1], [2, 9]", "[[1], [2, 9], [], []]"),
            ("[[0, 0], [0, 0]]", "[[0, 0], [1, 0]]", "[1, 0]"),
            ("[[0, 0], [0, 0]]", "[[0]]", "[0]"),
            ("[[0, 0], [0, 0]]", "[]", "[]"),
            (
                "groups = [[0, 1, 2, 3]]",
                "groups = [[0, 1, 2, 4]]",
                "[0, 1, 2, 4]",
            ),
            (
                "groups = [[0, 1, 2, 3]]",
                "groups = [[0, 1, 2, 2]]",
                "[0, 1, 2, 2]",
            ),
            ("groups = [[0, 1, 2, 3]]", "groups = []", "[]"),
        ] {
            assert!(FILE.contains(from), "{from}");
            let text = FILE.replace(from, to);
            let error = Allocation::from_toml(&text).expect_err(&text);
            assert_eq!(&text[error.span.clone().expect("a place")], at, "{error}");
        }
        let twice = format!("{FILE}{}", &FILE[FILE.find("[[comm").unwrap()..]);
        let error = Allocation::from_toml(&twice).expect_err("one group has one list of channels");
        assert_eq!(error.kind, TopologyErrorKind::RecordedTwice);
    }
}
