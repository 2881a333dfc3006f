//! From what its ranks said to the rings and trees of a communicator.

use std::collections::BTreeMap;

use super::joined::Join;
use crate::diagnostic::Source;
use crate::topology::import::Refused;
use crate::topology::{RecordedChannel, RecordedChannels, not_a_tree};

/// A communicator and the ranks whose logs are known.
pub(super) struct Communicator<'a> {
    pub nranks: u32,
    /// Whether something tells it from others of its size.
    pub is_named: bool,
    pub ranks: BTreeMap<u32, &'a Join>,
}

/// Its channels, or why the logs do not tell them.
pub(super) fn resolved(
    group: &Communicator<'_>,
    sources: &[Source],
) -> Result<Result<RecordedChannels, String>, Refused> {
    if group.ranks.len() != group.nranks as usize {
        let known = group.ranks.len();
        return Ok(Err(format!("the logs of {known} of them are known")));
    }
    let Some(count) = channels(group, sources)? else {
        return Ok(Err("no line tells its channels".to_string()));
    };
    let mut found = RecordedChannels {
        rings: Vec::new(),
        trees: Vec::new(),
        channels: Vec::new(),
    };
    let mut trees = Vec::new();
    for channel in 0..count {
        let Some(ring) = ring(group, channel, sources)? else {
            return Ok(Err(format!("the ring of channel {channel} is not told")));
        };
        trees.extend(tree(group, channel, sources)?);
        let ring = place_of(&mut found.rings, ring);
        found.channels.push(RecordedChannel { ring, tree: None });
    }
    // Half of the trees would be worse than none.
    if trees.len() == found.channels.len() {
        for (channel, tree) in found.channels.iter_mut().zip(trees) {
            channel.tree = Some(place_of(&mut found.trees, tree));
        }
    }
    Ok(Ok(found))
}

fn place_of<T: PartialEq>(list: &mut Vec<T>, item: T) -> u32 {
    match list.iter().position(|known| *known == item) {
        Some(place) => place as u32,
        None => {
            list.push(item);
            list.len() as u32 - 1
        }
    }
}

/// How many channels there are: what all ranks that say it agree on.
fn channels(group: &Communicator<'_>, sources: &[Source]) -> Result<Option<u32>, Refused> {
    let mut count = None;
    for join in group.ranks.values() {
        let rings = || join.rings.last_key_value().map(|(channel, _)| channel + 1);
        let Some(own) = join.channels.or_else(rings) else {
            continue;
        };
        match count {
            None => count = Some(own),
            Some(count) if count != own => {
                let message = format!("this rank has {own} channels, another {count}");
                return Err(Box::new(join.at.refused(sources, "log-channels", message)));
            }
            Some(_) => {}
        }
        let last = join.rings.last_key_value();
        if let Some((channel, (_, _, at))) = last.filter(|(channel, _)| **channel >= own) {
            let message = format!("a ring of channel {channel}, of {own} channels");
            return Err(Box::new(at.refused(sources, "log-channels", message)));
        }
    }
    Ok(count)
}

/// The ring of a channel from rank 0; `None` where the logs do not tell it.
fn ring(
    group: &Communicator<'_>,
    channel: u32,
    sources: &[Source],
) -> Result<Option<Vec<u32>>, Refused> {
    let linked = group.ranks.values().map(|join| join.rings.get(&channel));
    let linked: Option<Vec<_>> = linked.collect();
    let Some(links) = linked else {
        let mut whole = group
            .ranks
            .values()
            .filter_map(|join| join.whole.get(&channel));
        return Ok(whole
            .next()
            .filter(|ring| is_ring(ring, group.nranks))
            .cloned()
            .map(from_zero));
    };
    let mut ring = vec![0];
    for _ in 1..group.nranks {
        let last = ring[ring.len() - 1];
        let (_, after, at) = links[last as usize];
        let back = links.get(*after as usize);
        let is_mutual = back.is_some_and(|(before, _, _)| *before == last);
        if !is_mutual || *after == 0 {
            let message = match back {
                Some((before, _, _)) if !is_mutual => format!(
                    "on channel {channel} rank {last} sends to rank {after}, which receives from \
                     rank {before}"
                ),
                _ => format!(
                    "on channel {channel} rank {last} sends to rank {after}: that is no ring of \
                     {} ranks",
                    group.nranks
                ),
            };
            return Err(Box::new(at.refused(sources, "log-ring", message)));
        }
        ring.push(*after);
    }
    let (first, end) = (links[0], links[ring[ring.len() - 1] as usize]);
    if end.1 != 0 || first.0 != ring[ring.len() - 1] {
        let message = format!("the ring of channel {channel} does not end where it begins");
        return Err(Box::new(end.2.refused(sources, "log-ring", message)));
    }
    Ok(Some(ring))
}

fn is_ring(ring: &[u32], ranks: u32) -> bool {
    let mut sorted = ring.to_vec();
    sorted.sort_unstable();
    sorted.into_iter().eq(0..ranks)
}

fn from_zero(mut ring: Vec<u32>) -> Vec<u32> {
    let zero = ring.iter().position(|rank| *rank == 0).unwrap_or(0);
    ring.rotate_left(zero);
    ring
}

/// The children of each rank on a channel; `None` where the logs do not tell them.
fn tree(
    group: &Communicator<'_>,
    channel: u32,
    sources: &[Source],
) -> Result<Option<Vec<Vec<u32>>>, Refused> {
    let branches = group.ranks.values().map(|join| join.branches.get(&channel));
    let branches: Option<Vec<_>> = branches.collect();
    let Some(branches) = branches else {
        return Ok(None);
    };
    let mut children = Vec::new();
    for (branch, at) in &branches {
        let down = branch.down.iter().filter(|rank| **rank >= 0);
        let down: Vec<u32> = down
            .map(|rank| u32::try_from(*rank).unwrap_or(u32::MAX))
            .collect();
        for child in &down {
            let up = branches.get(*child as usize).map(|(child, _)| child.up);
            if up != Some(i64::from(branch.rank)) {
                let message = format!(
                    "on channel {channel} rank {} has a child {child}, which does not say so",
                    branch.rank
                );
                return Err(Box::new(at.refused(sources, "log-tree", message)));
            }
        }
        children.push(down);
    }
    match not_a_tree(&children) {
        None => Ok(Some(children)),
        Some(why) => {
            let message = format!("channel {channel} has no tree: {why}");
            Err(Box::new(
                branches[0].1.refused(sources, "log-tree", message),
            ))
        }
    }
}
