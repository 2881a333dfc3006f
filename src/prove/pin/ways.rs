//! What a job and its sides leave open for one collective, way by way.
//!
//! A way is a machine (which side, which ranks on which GPUs, which orders inside a node) and an
//! environment (which algorithm, protocol and number of channels of those that the variables
//! leave). What is left open is a superset of what NCCL can choose: any number of channels that the
//! variables allow counts.

use std::collections::BTreeSet;
use std::sync::Arc;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use super::setting::{Configured, Side, is_searched_as_given};
use crate::plan::Collective;
use crate::recipe::nccl::{Algorithm, Environment, EnvironmentError, Function, Protocol};
use crate::topology::{Allocation, Recorded, TreePattern};

/// Machines of one collective that are all looked at; beyond, some are.
const MACHINES_MAX: usize = 100_000;
/// Places of ranks in all of them together: about 100 MB.
const SLOTS_MAX: usize = 8 << 20;
/// Placements of one group that are all looked at.
const PLACEMENTS_MAX: usize = 1_250;
/// Search channels that a node can have: NCCL's `MAXCHANNELS`, halved.
const SEARCH_CHANNELS_MAX: usize = 32;
/// GPUs of a node whose orders are all tried.
const ALL_ORDERS_MAX: usize = 4;
/// Placements that are tried where all would be too many.
const SAMPLES: u64 = 20;

/// A machine, and what is special about it.
pub struct Machine {
    pub allocation: Allocation,
    pub said: String,
    /// Groups, by their place, whose orders are known and as on another allocation.
    pub given: Option<Arc<(Allocation, BTreeSet<usize>)>>,
}

impl Machine {
    /// A machine with one set of orders for all groups.
    pub fn plain(allocation: Allocation, said: String) -> Machine {
        Machine {
            allocation,
            said,
            given: None,
        }
    }

    /// The allocation as the group at this place has it.
    pub fn of(&self, group: usize) -> &Allocation {
        match &self.given {
            Some(given) if given.1.contains(&group) => &given.0,
            _ => &self.allocation,
        }
    }
}

/// Machines that a job may meet.
pub struct Machines {
    pub list: Vec<Machine>,
    /// Why the list is not all of them.
    pub sampled: Option<String>,
}

impl Machines {
    /// Adds one while there is room.
    fn add(&mut self, machine: Machine) {
        let ranks = machine.allocation.placement.slots.len();
        if self.list.len() < MACHINES_MAX && self.list.len() * ranks < SLOTS_MAX {
            self.list.push(machine);
        } else {
            let looked_at = self.list.len();
            self.sampled = Some(format!("more than {looked_at} machines are possible"));
        }
    }
}

/// An environment, and what is special about it.
pub struct Choice {
    pub environment: Environment,
    pub said: String,
}

/// The function of NCCL that adds; `None` where another one's messages and a local sum do.
pub fn function(collective: Collective) -> Option<Function> {
    match collective {
        Collective::AllReduce => Some(Function::AllReduce),
        Collective::ReduceScatter => Some(Function::ReduceScatter),
        Collective::Reduce { .. } => Some(Function::Reduce),
        _ => None,
    }
}

/// The algorithms that are left, those whose order is not modelled apart.
pub fn algorithms(
    environment: &Environment,
    function: Function,
) -> Result<(Vec<Algorithm>, Vec<Algorithm>), EnvironmentError> {
    let left = environment.left(function);
    let left = left.unwrap_or_else(|| {
        let all = Algorithm::ALL.into_iter();
        all.filter(|algorithm| algorithm.serves(function)).collect()
    });
    if left.is_empty() {
        let function = function.name();
        return Err(EnvironmentError::NoAlgorithm { function });
    }
    Ok(left.into_iter().partition(|algorithm| algorithm.modelled()))
}

/// The environments in which a function may be carried out by one of `algorithms`. The first is
/// the one that plans have without a choice of NCCL's.
pub fn choices(
    configured: &Configured,
    environment: &Environment,
    function: Function,
    algorithms: &[Algorithm],
    channels_known: bool,
) -> Result<Vec<Choice>, EnvironmentError> {
    let own = environment.protocol(function)?;
    let mut protocols = environment.protocols_left(function);
    protocols.sort_by_key(|protocol| *protocol != own);
    let (min, max) = (environment.min_channels, environment.max_channels);
    let counts: Vec<Option<u32>> = match channels_known || min >= max {
        true => vec![None],
        false => std::iter::once(None).chain((min..=max).map(Some)).collect(),
    };
    let mut list = Vec::new();
    let mut algorithms = algorithms.to_vec();
    algorithms.sort_by_key(|algorithm| *algorithm != Algorithm::Ring);
    for algorithm in algorithms {
        for protocol in &protocols {
            for count in &counts {
                list.push(choice(configured, function, algorithm, *protocol, *count)?);
            }
        }
    }
    Ok(list)
}

fn choice(
    configured: &Configured,
    function: Function,
    algorithm: Algorithm,
    protocol: Protocol,
    count: Option<u32>,
) -> Result<Choice, EnvironmentError> {
    let mut variables = configured.recipe.env.clone();
    let of_function = |value: &str| format!("{}:{value}", function.name());
    variables.insert("NCCL_ALGO".into(), of_function(algorithm.name()));
    variables.insert("NCCL_PROTO".into(), of_function(protocol.name()));
    let mut said = format!("{} by {}", algorithm.name(), protocol.name());
    if let Some(count) = count {
        variables.insert("NCCL_MIN_NCHANNELS".into(), count.to_string());
        variables.insert("NCCL_MAX_NCHANNELS".into(), count.to_string());
        said.push_str(&format!(" on at most {count} channels"));
    }
    let pairs = variables.iter();
    let pairs = pairs.map(|(name, value)| (name.as_str(), value.as_str()));
    Ok(Choice {
        environment: Environment::parse(pairs)?,
        said,
    })
}

/// The machines on which a collective over `groups` may run; the first is the first side as it is.
pub fn machines(sides: &[Side], groups: &[&[u32]], by_tree: bool) -> Machines {
    let mut found = Machines {
        list: Vec::new(),
        sampled: None,
    };
    for side in sides {
        let placed = placements(side, groups[0].len(), groups, &mut found.sampled);
        for machine in placed {
            let is_known = |group: &[u32]| {
                let searched =
                    side.orders_known && is_searched_as_given(&machine.allocation, group);
                searched || machine.allocation.recorded.of(group).is_some()
            };
            let known = groups
                .iter()
                .enumerate()
                .filter(|(_, group)| is_known(group));
            let known: BTreeSet<usize> = known.map(|(place, _)| place).collect();
            match known.len() == groups.len() {
                true => found.add(machine),
                false => with_orders(machine, groups, known, by_tree, &mut found),
            }
        }
    }
    found
}

/// Where the ranks of one group may run on a side. Any of its groups can have any of these places.
fn placements(
    side: &Side,
    ranks: usize,
    groups: &[&[u32]],
    sampled: &mut Option<String>,
) -> Vec<Machine> {
    let own = Machine::plain(side.allocation.clone(), side.allocation.name.clone());
    if !side.placement_free {
        return vec![own];
    }
    let slots = &side.allocation.placement.slots;
    let ways = (0..ranks).try_fold(1usize, |ways, rank| ways.checked_mul(slots.len() - rank));
    let mut list = vec![own];
    let moved = |order: &[usize]| {
        let mut allocation = side.allocation.clone();
        let places = order.iter().map(|place| slots[*place]);
        allocation.placement.slots = places.collect();
        // Recorded rings are those of the ranks where they were.
        allocation.recorded = Recorded::default();
        let said = format!("{} with ranks on other GPUs", allocation.name);
        Machine::plain(allocation, said)
    };
    match ways.filter(|ways| *ways <= PLACEMENTS_MAX) {
        Some(_) => {
            let mut chosen = Vec::new();
            injections(slots.len(), ranks, &mut chosen, &mut |places| {
                list.push(moved(&filled(slots.len(), groups[0], places)));
            });
        }
        None => {
            *sampled = Some(format!(
                "{} of the placements of {ranks} ranks on {} GPUs were tried",
                SAMPLES + 1,
                slots.len()
            ));
            list.extend((0..SAMPLES).map(|seed| moved(&shuffled(slots.len(), seed))));
        }
    }
    list
}

/// Every way to choose `ranks` of `slots` in order.
fn injections(
    slots: usize,
    ranks: usize,
    chosen: &mut Vec<usize>,
    found: &mut dyn FnMut(&[usize]),
) {
    if chosen.len() == ranks {
        return found(chosen);
    }
    for slot in 0..slots {
        if !chosen.contains(&slot) {
            chosen.push(slot);
            injections(slots, ranks, chosen, found);
            chosen.pop();
        }
    }
}

/// The place of every rank where those of a group have `places`.
fn filled(slots: usize, group: &[u32], places: &[usize]) -> Vec<usize> {
    let mut order: Vec<Option<usize>> = vec![None; slots];
    for (rank, place) in group.iter().zip(places) {
        order[*rank as usize] = Some(*place);
    }
    let mut rest = (0..slots).filter(|slot| !places.contains(slot));
    let place = |own: Option<usize>| own.or_else(|| rest.next());
    order
        .into_iter()
        .map(place)
        .map(|place| place.expect("as many places as ranks"))
        .collect()
}

/// A seeded order: the same ones every time.
fn shuffled(count: usize, seed: u64) -> Vec<usize> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut order: Vec<usize> = (0..count).collect();
    for last in (1..count).rev() {
        let other = (random.next_u64() % (last as u64 + 1)) as usize;
        order.swap(last, other);
    }
    order
}

/// The in-node orders that groups may have on a machine whose file does not say theirs (of those
/// that are `known` it does); the first is the machine as it is.
///
/// Where no group has two ranks in a node, orders say nothing. Where a group has several in one
/// node alone, one order of their GPUs for all channels stands for any, element by element, and
/// those of other GPUs say nothing: all orders of up to four are tried. Else some are.
fn with_orders(
    machine: Machine,
    groups: &[&[u32]],
    known: BTreeSet<usize>,
    by_tree: bool,
    found: &mut Machines,
) {
    let gpus = machine.allocation.topology.gpus_per_node();
    let ascending: Vec<u32> = (0..gpus).collect();
    let open = (0..groups.len()).filter(|place| !known.contains(place));
    let crowded = open.map(|place| crowded(&machine, groups[place]));
    let crowded: BTreeSet<Vec<Vec<u32>>> = crowded.collect();
    let mut orders = vec![ascending.clone()];
    for nodes in &crowded {
        match &nodes[..] {
            [] => {}
            [only] if only.len() <= ALL_ORDERS_MAX => {
                let rest = || ascending.iter().filter(|gpu| !only.contains(gpu));
                let rest: Vec<u32> = rest().copied().collect();
                let all = permutations(only).into_iter();
                orders.extend(all.map(|order| [&order[..], &rest].concat()));
            }
            _ => {
                found.sampled = Some("of the orders within a node four were tried".to_string());
                orders.extend(some_orders(&ascending));
            }
        }
    }
    let mut met = BTreeSet::new();
    orders.retain(|order| met.insert(order.clone()));
    let shapes: Vec<(usize, TreePattern)> = match by_tree {
        false => vec![(1, TreePattern::Tree)],
        true => (1..=SEARCH_CHANNELS_MAX).flat_map(of_patterns).collect(),
    };
    let given = Arc::new((machine.allocation.clone(), known));
    let as_it_is = Machine::plain(machine.allocation.clone(), machine.said.clone());
    found.add(as_it_is);
    for order in &orders {
        for (channels, pattern) in &shapes {
            let mut allocation = machine.allocation.clone();
            let graph = &mut allocation.topology.graph;
            graph.ring_orders = vec![order.clone(); *channels];
            graph.tree_orders = vec![order.clone(); *channels];
            graph.tree_pattern = *pattern;
            allocation.topology.alone = None;
            let said = format!("{} with rings through GPUs {order:?}", machine.said);
            found.add(Machine {
                allocation,
                said,
                given: Some(given.clone()),
            });
        }
    }
}

fn of_patterns(channels: usize) -> [(usize, TreePattern); 3] {
    let patterns = [TreePattern::Tree, TreePattern::Balanced, TreePattern::Split];
    patterns.map(|pattern| (channels, pattern))
}

/// The GPUs of a group in each node in which it has several.
fn crowded(machine: &Machine, group: &[u32]) -> Vec<Vec<u32>> {
    let place = |rank: &u32| machine.allocation.node_and_gpu(*rank);
    let mut places: Vec<(u32, u32)> = group.iter().map(place).collect();
    places.sort_unstable();
    let nodes = places.chunk_by(|a, b| a.0 == b.0);
    let several = nodes.filter(|node| node.len() > 1);
    several
        .map(|node| node.iter().map(|(_, gpu)| *gpu).collect())
        .collect()
}

fn permutations(items: &[u32]) -> Vec<Vec<u32>> {
    let mut all = Vec::new();
    injections(items.len(), items.len(), &mut Vec::new(), &mut |order| {
        all.push(order.iter().map(|place| items[*place]).collect());
    });
    all
}

/// The order itself, reversed, with its first two swapped, and shuffled.
fn some_orders(ascending: &[u32]) -> Vec<Vec<u32>> {
    let mut swapped = ascending.to_vec();
    swapped.swap(0, 1);
    let reversed = ascending.iter().rev().copied().collect();
    let mixed = shuffled(ascending.len(), 0);
    let mixed = mixed.into_iter().map(|place| ascending[place]).collect();
    vec![ascending.to_vec(), reversed, swapped, mixed]
}
