//! The placements of each class, made of the one that a job has.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use super::Class;
use crate::topology::{Allocation, ChannelGraph, Placement, Slot};

/// What is another in a placement.
#[derive(Clone, Debug, Default)]
pub struct Member {
    /// The GPU of each rank; `None` where all stay.
    pub slots: Option<Vec<Slot>>,
    /// Hosts that there are.
    pub hosts: u32,
    pub graph: Option<ChannelGraph>,
}

/// Placements of one class that are tried.
pub struct Members {
    pub list: Vec<Member>,
    /// How many the class has; `None` beyond 2^64, or where they are not known.
    pub count: Option<u64>,
    /// The list has all of them.
    pub is_all: bool,
}

impl Members {
    fn none() -> Members {
        Members {
            list: Vec::new(),
            count: Some(0),
            is_all: true,
        }
    }
}

impl Member {
    fn placed(slots: Vec<Slot>, base: &Allocation) -> Member {
        Member {
            slots: Some(slots),
            hosts: base.topology.hosts,
            graph: None,
        }
    }

    pub fn on(&self, base: &Allocation) -> Allocation {
        let mut allocation = base.clone();
        allocation.topology.hosts = self.hosts;
        if let Some(slots) = &self.slots {
            let slots = slots.clone();
            allocation.placement = Placement { slots };
        }
        if let Some(graph) = &self.graph {
            allocation.topology.graph = graph.clone();
        }
        allocation
    }

    /// Ranks that are on another GPU.
    pub fn moved(&self, base: &Allocation) -> u32 {
        let own = &base.placement.slots;
        let slots = self.slots.iter().flatten().zip(own);
        slots.filter(|(there, here)| there != here).count() as u32
    }
}

/// The class's placements, at most so many of them. Those that move few ranks come first.
pub fn members(class: Class, base: &Allocation, most: usize) -> Members {
    match class {
        Class::NodeOrder => node_orders(base, most),
        Class::LocalOrder => local_orders(base, most),
        Class::Spare => spares(base, most),
        Class::CliqueSplit => splits(base, most),
        Class::LostNic => lost_nics(base),
        Class::AnyPlacement => any(base, most),
    }
}

/// Used nodes, each with its ranks by the place of their GPUs.
pub fn nodes(base: &Allocation) -> Vec<Vec<(u32, Slot)>> {
    let span = base.topology.hosts_per_nvlink_domain;
    let slots = &base.placement.slots;
    let mut ranks: Vec<(u32, Slot)> = (0..).zip(slots.iter().copied()).collect();
    ranks.sort_unstable_by_key(|(_, slot)| *slot);
    let nodes = ranks.chunk_by(|(_, a), (_, b)| a.host / span == b.host / span);
    nodes.map(<[_]>::to_vec).collect()
}

/// The GPUs of a node that are used, by their place in it.
pub fn profile(base: &Allocation, node: &[(u32, Slot)]) -> Vec<(u32, u32)> {
    let span = base.topology.hosts_per_nvlink_domain;
    let gpus = node.iter().map(|(_, slot)| (slot.host % span, slot.gpu));
    gpus.collect()
}

/// Nodes in another order, ranks filled in node by node. Nodes with the same GPUs are alike but for
/// their names, so orders are told apart by the GPUs of each. Where ranks are not filled in node by
/// node, they stay together, and only nodes with the same GPUs change places: that is one order.
fn node_orders(base: &Allocation, most: usize) -> Members {
    let nodes = nodes(base);
    let profiles: Vec<_> = nodes.iter().map(|node| profile(base, node)).collect();
    let mut kinds: Vec<&Vec<(u32, u32)>> = profiles.iter().collect();
    kinds.sort_unstable();
    let is_filled = base.placement.slots.is_sorted();
    let different = match is_filled {
        true => orders_of(&kinds),
        false => Some(1),
    };
    let span = base.topology.hosts_per_nvlink_domain;
    let hosts = base.topology.hosts.max(nodes.len() as u32 * span);
    let filled = |order: &[&Vec<(u32, u32)>]| {
        let slots = order.iter().enumerate().flat_map(|(node, gpus)| {
            let first = node as u32 * span;
            gpus.iter().map(move |(host, gpu)| Slot {
                host: first + host,
                gpu: *gpu,
            })
        });
        Member {
            hosts,
            ..Member::placed(slots.collect(), base)
        }
    };
    if different == Some(1) {
        let own = base.placement.slots.clone();
        return Members {
            list: vec![Member::placed(own, base)],
            count: different,
            is_all: true,
        };
    }
    let mut list = Vec::new();
    let is_all = different.is_some_and(|count| count <= most as u64);
    if is_all {
        loop {
            list.push(filled(&kinds));
            if !next_order(&mut kinds) {
                break;
            }
        }
    } else {
        let mut random = ChaCha8Rng::seed_from_u64(0);
        for _ in 0..most {
            shuffle(&mut kinds, &mut random);
            list.push(filled(&kinds));
        }
    }
    Members {
        list,
        count: different,
        is_all,
    }
}

/// How many different orders a sorted list has.
fn orders_of<T: PartialEq>(sorted: &[T]) -> Option<u64> {
    let mut count: u64 = 1;
    let mut placed: u64 = 0;
    for alike in sorted.chunk_by(|a, b| a == b) {
        for chosen in 1..=alike.len() as u64 {
            placed += 1;
            // Exact: the product of `chosen` numbers that follow each other, by `chosen`!.
            count = count.checked_mul(placed)? / chosen;
        }
    }
    Some(count)
}

/// The next order in lexicographic sequence; `false` after the last.
fn next_order<T: Ord>(items: &mut [T]) -> bool {
    let Some(at) = (1..items.len()).rev().find(|at| items[at - 1] < items[*at]) else {
        return false;
    };
    let above = (at..items.len())
        .rev()
        .find(|other| items[*other] > items[at - 1]);
    items.swap(at - 1, above.expect("the one at the place itself is"));
    items[at..].reverse();
    true
}

fn shuffle<T>(items: &mut [T], random: &mut ChaCha8Rng) {
    for last in (1..items.len()).rev() {
        let other = (random.next_u64() % (last as u64 + 1)) as usize;
        items.swap(last, other);
    }
}

/// Ranks of each node on its GPUs in another order.
fn local_orders(base: &Allocation, most: usize) -> Members {
    let nodes = nodes(base);
    let sizes = nodes.iter().map(|node| node.len() as u64);
    let factorial = |ranks: u64| (1..=ranks).try_fold(1u64, u64::checked_mul);
    let count = sizes
        .map(factorial)
        .try_fold(1u64, |all, own| all.checked_mul(own?));
    let is_all = count.is_some_and(|count| count <= most as u64);
    let mut orders: Vec<Vec<usize>> = nodes.iter().map(|node| (0..node.len()).collect()).collect();
    let placed = |orders: &[Vec<usize>]| {
        let mut slots = base.placement.slots.clone();
        for (node, order) in nodes.iter().zip(orders) {
            for (at, (rank, _)) in node.iter().enumerate() {
                slots[*rank as usize] = node[order[at]].1;
            }
        }
        Member::placed(slots, base)
    };
    let own = orders.clone();
    let mut list = Vec::new();
    if is_all {
        loop {
            list.push(placed(&orders));
            // As an odometer turns: the first node that has a next order, those before it anew.
            let Some(turned) = (0..orders.len()).find(|node| next_order(&mut orders[*node])) else {
                break;
            };
            orders[..turned].clone_from_slice(&own[..turned]);
        }
    } else {
        local_samples(&own, most, &mut |orders| list.push(placed(orders)));
    }
    Members {
        list,
        count,
        is_all,
    }
}

/// Two ranks of one node swapped, the same two of every node, each node reversed, and at random:
/// the same order in every node, and another in each.
fn local_samples(own: &[Vec<usize>], most: usize, found: &mut dyn FnMut(&[Vec<usize>])) {
    let largest = own.iter().map(Vec::len).max().unwrap_or(0);
    let pairs: Vec<(usize, usize)> = (0..largest)
        .flat_map(|a| (a + 1..largest).map(move |b| (a, b)))
        .take(most / 4)
        .collect();
    let mut made = 0;
    let mut add = |orders: &[Vec<usize>]| {
        made += 1;
        found(orders);
        made < most
    };
    for (a, b) in &pairs {
        let mut orders = own.to_vec();
        let node = orders.iter_mut().find(|order| order.len() > *b);
        node.expect("the largest node has them").swap(*a, *b);
        if !add(&orders) {
            return;
        }
    }
    for (a, b) in &pairs {
        let mut orders = own.to_vec();
        let nodes = orders.iter_mut().filter(|order| order.len() > *b);
        nodes.for_each(|order| order.swap(*a, *b));
        if !add(&orders) {
            return;
        }
    }
    let mut orders = own.to_vec();
    orders.iter_mut().for_each(|order| order.reverse());
    let mut goes_on = add(&orders);
    let mut seed = 0;
    while goes_on {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        for order in &mut orders {
            if seed % 2 == 0 {
                random = ChaCha8Rng::seed_from_u64(seed);
            }
            shuffle(order, &mut random);
        }
        seed += 1;
        goes_on = add(&orders);
    }
}

/// A host's ranks on a spare host, GPU by GPU: one of the topology's that the job leaves free, or
/// one that comes after all others.
fn spares(base: &Allocation, most: usize) -> Members {
    let span = base.topology.hosts_per_nvlink_domain;
    let slots = &base.placement.slots;
    let mut used: Vec<u32> = slots.iter().map(|slot| slot.host).collect();
    used.sort_unstable();
    used.dedup();
    let beyond = base.topology.hosts.next_multiple_of(span);
    let free = (0..base.topology.hosts).filter(|host| used.binary_search(host).is_err());
    let free: Vec<u32> = free.chain([beyond]).collect();
    let mut pairs: Vec<(u32, u32)> = used
        .iter()
        .flat_map(|lost| free.iter().map(|spare| (*lost, *spare)))
        .collect();
    let count = pairs.len();
    if count > most {
        shuffle(&mut pairs, &mut ChaCha8Rng::seed_from_u64(0));
        pairs.truncate(most);
    }
    let swapped = |(lost, spare): &(u32, u32)| {
        let to = |slot: &Slot| Slot {
            host: if slot.host == *lost {
                *spare
            } else {
                slot.host
            },
            ..*slot
        };
        Member {
            hosts: beyond + span,
            ..Member::placed(slots.iter().map(to).collect(), base)
        }
    };
    Members {
        list: pairs.iter().map(swapped).collect(),
        count: Some(count as u64),
        is_all: count <= most,
    }
}

/// One NVLink domain cut in two between its hosts.
fn splits(base: &Allocation, most: usize) -> Members {
    let span = base.topology.hosts_per_nvlink_domain;
    if span == 1 {
        return Members::none();
    }
    let beyond = base.topology.hosts.next_multiple_of(span);
    let mut cuts: Vec<(u32, u32)> = Vec::new();
    for node in nodes(base) {
        let mut hosts: Vec<u32> = node.iter().map(|(_, slot)| slot.host).collect();
        hosts.dedup();
        cuts.extend(hosts[1..].iter().map(|first| (first / span, *first)));
    }
    let count = cuts.len();
    if count > most {
        shuffle(&mut cuts, &mut ChaCha8Rng::seed_from_u64(0));
        cuts.truncate(most);
    }
    let cut = |(domain, first): &(u32, u32)| {
        let to = |slot: &Slot| {
            let is_cut_off = slot.host / span == *domain && slot.host >= *first;
            Slot {
                host: if is_cut_off {
                    beyond + slot.host % span
                } else {
                    slot.host
                },
                ..*slot
            }
        };
        Member {
            hosts: beyond + span,
            ..Member::placed(base.placement.slots.iter().map(to).collect(), base)
        }
    };
    Members {
        list: cuts.iter().map(cut).collect(),
        count: Some(count as u64),
        is_all: count <= most,
    }
}

/// A search channel fewer, each in turn: NCCL has as many as the node with the fewest. What it
/// finds on the node that lost a NIC is not known, so these are never all.
fn lost_nics(base: &Allocation) -> Members {
    let graph = &base.topology.graph;
    let channels = graph.search_channels();
    let mut list = Vec::new();
    if channels > 1 && nodes(base).len() > 1 {
        for lost in 0..channels {
            let mut graph = graph.clone();
            graph.ring_orders.remove(lost);
            graph.tree_orders.remove(lost);
            list.push(Member {
                slots: None,
                hosts: base.topology.hosts,
                graph: Some(graph),
            });
        }
    }
    Members {
        list,
        count: None,
        is_all: false,
    }
}

/// Any rank on any GPU that the job has.
fn any(base: &Allocation, most: usize) -> Members {
    let mut slots = base.placement.slots.clone();
    slots.sort_unstable();
    let ranks = slots.len();
    let count = (1..=ranks as u64).try_fold(1u64, u64::checked_mul);
    let is_all = count.is_some_and(|count| count <= most as u64);
    let mut list = Vec::new();
    if is_all {
        loop {
            list.push(Member::placed(slots.clone(), base));
            if !next_order(&mut slots) {
                break;
            }
        }
    } else {
        any_samples(base, &slots, most, &mut list);
    }
    Members {
        list,
        count,
        is_all,
    }
}

/// Two ranks swapped, ranks dealt out in planes of each size (`srun --distribution=plane=N`), and
/// at random.
fn any_samples(base: &Allocation, sorted: &[Slot], most: usize, list: &mut Vec<Member>) {
    let ranks = sorted.len();
    for distance in 1..ranks.min(most / 4) {
        let mut slots = base.placement.slots.clone();
        slots.swap(0, distance);
        list.push(Member::placed(slots, base));
    }
    let largest = nodes(base).iter().map(Vec::len).max().unwrap_or(1);
    for plane in 1..largest.min(most / 4) {
        list.push(Member::placed(dealt(base, plane), base));
    }
    let mut random = ChaCha8Rng::seed_from_u64(0);
    let mut slots = sorted.to_vec();
    while list.len() < most {
        shuffle(&mut slots, &mut random);
        list.push(Member::placed(slots.clone(), base));
    }
}

/// The GPUs in the order in which ranks get them, `plane` of a node at a time.
fn dealt(base: &Allocation, plane: usize) -> Vec<Slot> {
    let nodes = nodes(base);
    let largest = nodes.iter().map(Vec::len).max().unwrap_or(0);
    let turns = (0..largest).step_by(plane);
    let of_turn = turns.flat_map(|from| {
        nodes.iter().flat_map(move |node| {
            let end = node.len().min(from + plane);
            node.get(from..end)
                .unwrap_or_default()
                .iter()
                .map(|(_, slot)| *slot)
        })
    });
    of_turn.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_counted_as_they_are_listed() {
        for list in [
            &[0, 1, 2, 3][..],
            &[0, 0, 1],
            &[0, 0, 0],
            &[0, 0, 1, 1, 2],
            &[],
        ] {
            let mut items = list.to_vec();
            let mut listed = 1;
            while next_order(&mut items) {
                listed += 1;
            }
            assert_eq!(orders_of(list), Some(listed), "{list:?}");
        }
        assert_eq!(orders_of(&(0..30).collect::<Vec<_>>()), None);
        // 33 whole racks and one that is not: one for each place of it.
        let racks: Vec<u32> = std::iter::once(0).chain(vec![1; 33]).collect();
        assert_eq!(orders_of(&racks), Some(34));
    }
}
