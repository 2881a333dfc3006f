//! What a job and its sides leave open for one collective, way by way.
//!
//! A way is a machine (which side, which ranks on which GPUs, which orders inside a node) and an
//! environment (which algorithm, protocol and number of channels of those that the variables
//! leave). What is left open is a superset of what NCCL can choose: any number of channels that the
//! variables allow counts.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use super::setting::{Configured, Side};
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
/// Placements that are tried where all would be too many.
const SAMPLES: u64 = 20;

/// A machine, and what is special about it.
pub struct Machine {
    pub allocation: Allocation,
    pub said: String,
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
            match side.orders_known {
                true => found.add(machine),
                false => with_orders(machine, groups, by_tree, &mut found),
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
    let own = Machine {
        allocation: side.allocation.clone(),
        said: side.allocation.name.clone(),
    };
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
        Machine {
            said: format!("{} with ranks on other GPUs", allocation.name),
            allocation,
        }
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

/// The in-node orders that a machine may have whose file has none.
///
/// Where no group has two ranks in a node, orders say nothing; where at most one node has several,
/// one order of the GPUs for all nodes stands for any, element by element; else some are tried.
fn with_orders(machine: Machine, groups: &[&[u32]], by_tree: bool, found: &mut Machines) {
    let crowded = groups.iter().map(|group| crowding(&machine, group));
    let (nodes, most) = crowded.fold((0, 0), |(nodes, most), (own, ranks)| {
        (nodes.max(own), most.max(ranks))
    });
    let gpus = machine.allocation.topology.gpus_per_node();
    let ascending: Vec<u32> = (0..gpus).collect();
    let orders = if most <= 1 {
        vec![ascending]
    } else if nodes <= 1 && gpus <= 4 {
        permutations(&ascending)
    } else {
        found.sampled = Some("of the orders within a node four were tried".to_string());
        some_orders(&ascending)
    };
    let shapes: Vec<(usize, TreePattern)> = match by_tree {
        false => vec![(1, TreePattern::Tree)],
        true => (1..=SEARCH_CHANNELS_MAX).flat_map(of_patterns).collect(),
    };
    for order in &orders {
        for (channels, pattern) in &shapes {
            let mut allocation = machine.allocation.clone();
            let graph = &mut allocation.topology.graph;
            graph.ring_orders = vec![order.clone(); *channels];
            graph.tree_orders = vec![order.clone(); *channels];
            graph.tree_pattern = *pattern;
            let said = format!("{} with rings through GPUs {order:?}", machine.said);
            found.add(Machine { allocation, said });
        }
    }
}

fn of_patterns(channels: usize) -> [(usize, TreePattern); 3] {
    let patterns = [TreePattern::Tree, TreePattern::Balanced, TreePattern::Split];
    patterns.map(|pattern| (channels, pattern))
}

/// Nodes in which a group has several ranks, and the most in one.
fn crowding(machine: &Machine, group: &[u32]) -> (usize, usize) {
    let node = |rank: &u32| machine.allocation.node_and_gpu(*rank).0;
    let mut nodes: Vec<u32> = group.iter().map(node).collect();
    nodes.sort_unstable();
    let sizes = nodes.chunk_by(|a, b| a == b).map(<[u32]>::len);
    let several = sizes.clone().filter(|size| *size > 1).count();
    (several, sizes.max().unwrap_or(0))
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
