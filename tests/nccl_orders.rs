//! NCCL's plans against step-by-step simulations of the algorithms that pass partial sums around.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bitproof::plan::nccl_tree::{self, Half};
use bitproof::plan::{Piece, Tree, ring};
use bitproof::topology::TreePattern;
use proptest::prelude::*;

#[path = "support/symbols.rs"]
mod symbols;
use symbols::Symbols;

/// One primitive of NCCL's ring all-reduce kernel, on one chunk.
#[derive(Clone, Copy)]
enum Step {
    Send,
    ReduceSend,
    /// The finished chunk: kept and sent on.
    ReduceCopySend,
    CopySend,
    Copy,
}

/// What position `p` does to chunk after chunk of one loop.
fn ring_program(p: usize, n: usize) -> Vec<(Step, usize)> {
    let chunk = |back: usize| (p + 2 * n - back) % n;
    let mut steps = vec![(Step::Send, chunk(1))];
    steps.extend((2..n).map(|j| (Step::ReduceSend, chunk(j))));
    steps.push((Step::ReduceCopySend, chunk(n)));
    steps.extend((1..n - 1).map(|j| (Step::CopySend, chunk(j))));
    steps.push((Step::Copy, chunk(n - 1)));
    steps
}

/// A stream of choices that proptest shrinks.
struct Choices(Vec<u32>, usize);

impl Choices {
    fn below(&mut self, bound: usize) -> usize {
        self.1 += 1;
        self.0[self.1 % self.0.len()] as usize % bound
    }
}

/// Runs the ring with messages taken in any order that the links allow. Returns every position's
/// buffer.
fn run_ring(
    order: &[u32],
    elements: usize,
    chunk: usize,
    align: usize,
    choices: &mut Choices,
    symbols: &mut Symbols,
) -> Vec<Vec<u32>> {
    let n = order.len();
    let mut buffers: Vec<Vec<u32>> = order.iter().map(|rank| vec![*rank; elements]).collect();
    let mut at = 0;
    while at < elements {
        let rest = elements - at;
        let chunk = if rest < n * chunk {
            rest.div_ceil(n).div_ceil(align) * align
        } else {
            chunk
        };
        let end = at + rest.min(n * chunk);
        let bounds = |c: usize| (at + c * chunk).min(end)..(at + (c + 1) * chunk).min(end);
        let mut programs: Vec<VecDeque<_>> = (0..n).map(|p| ring_program(p, n).into()).collect();
        // links[p] carries what position p has received and not yet read.
        let mut links: Vec<VecDeque<Vec<u32>>> = vec![VecDeque::new(); n];
        loop {
            let ready: Vec<usize> = (0..n)
                .filter(|p| match programs[*p].front() {
                    None => false,
                    Some((Step::Send, _)) => true,
                    Some(_) => !links[*p].is_empty(),
                })
                .collect();
            if ready.is_empty() {
                break;
            }
            let p = ready[choices.below(ready.len())];
            let (step, c) = programs[p]
                .pop_front()
                .expect("a ready position has a step");
            let own = &mut buffers[p][bounds(c)];
            let message = match step {
                Step::Send => own.to_vec(),
                _ => links[p]
                    .pop_front()
                    .expect("a ready position has a message"),
            };
            let value: Vec<u32> = match step {
                Step::ReduceSend | Step::ReduceCopySend => message
                    .iter()
                    .zip(own.iter())
                    .map(|(a, b)| symbols.add(*a, *b))
                    .collect(),
                _ => message,
            };
            if matches!(step, Step::ReduceCopySend | Step::CopySend | Step::Copy) {
                own.copy_from_slice(&value);
            }
            if !matches!(step, Step::Copy) {
                links[(p + 1) % n].push_back(value);
            }
        }
        assert!(
            programs.iter().all(VecDeque::is_empty),
            "the ring runs to its end"
        );
        at = end;
    }
    buffers
}

fn symbols_of(pieces: &[Piece], symbols: &mut Symbols) -> Vec<u32> {
    let mut all = Vec::new();
    for piece in pieces {
        assert_eq!(piece.range.start, all.len() as u64);
        let symbol = piece.tree.fold(|addend| addend, |a, b| symbols.add(a, b));
        all.extend(piece.range.clone().map(|_| symbol));
    }
    all
}

/// The parent of a node in NCCL's binary tree, and which of its children the node is.
fn parent(node: u32, nodes: u32) -> Option<(u32, usize)> {
    let bit = 1 << node.trailing_zeros().min(31);
    if node == 0 {
        return None;
    }
    let up = (node ^ bit) | (bit << 1);
    let up = if up >= nodes { node ^ bit } else { up };
    Some((up, usize::from(node > up)))
}

/// Children of every node in one of the two trees, from parents.
fn children_from_parents(nodes: u32, half: Half) -> Vec<[Option<u32>; 2]> {
    let rename = |node: u32| match half {
        Half::First => node,
        Half::Second if nodes.is_multiple_of(2) => nodes - 1 - node,
        Half::Second => (node + 1) % nodes,
    };
    let mut children = vec![[None; 2]; nodes as usize];
    for node in 0..nodes {
        if let Some((up, which)) = parent(node, nodes) {
            children[rename(up) as usize][which] = Some(rename(node));
        }
    }
    children
}

/// Receive slots of every rank: the next of its chain first, then ranks of other nodes.
fn tree_slots(chains: &[Vec<u32>], pattern: TreePattern, half: Half) -> BTreeMap<u32, Vec<u32>> {
    let mut slots: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for chain in chains {
        for (place, rank) in chain.iter().enumerate() {
            slots.insert(*rank, chain.get(place + 1).copied().into_iter().collect());
        }
    }
    let children = children_from_parents(chains.len() as u32, half);
    for (chain, children) in chains.iter().zip(children) {
        for (which, child) in children.into_iter().enumerate() {
            let Some(child) = child else { continue };
            let place = match (pattern, which) {
                (TreePattern::Tree, _) | (TreePattern::Balanced, 1) => 0,
                _ => 1.min(chain.len() - 1),
            };
            let head = chains[child as usize][0];
            slots
                .get_mut(&chain[place])
                .expect("every rank has slots")
                .push(head);
        }
    }
    slots
}

/// Runs the reduction of the tree; messages are sent up in any order. With `by_slot` a rank adds
/// its slots in order, as NCCL does; without, as they arrive.
fn run_tree(
    slots: &BTreeMap<u32, Vec<u32>>,
    by_slot: bool,
    choices: &mut Choices,
    symbols: &mut Symbols,
) -> u32 {
    let mut inbox: BTreeMap<u32, Vec<(u32, u32)>> = BTreeMap::new();
    let mut waiting: Vec<u32> = slots.keys().copied().collect();
    let mut last = None;
    while !waiting.is_empty() {
        let has_all = |rank: &u32| inbox.get(rank).map_or(0, Vec::len) == slots[rank].len();
        let ready: Vec<usize> = (0..waiting.len())
            .filter(|at| has_all(&waiting[*at]))
            .collect();
        let rank = waiting.remove(ready[choices.below(ready.len())]);
        let mut arrived = inbox.remove(&rank).unwrap_or_default();
        if by_slot {
            arrived.sort_by_key(|(from, _)| slots[&rank].iter().position(|slot| slot == from));
        }
        let sum = arrived
            .iter()
            .fold(rank, |sum, (_, value)| symbols.add(sum, *value));
        let up = slots
            .iter()
            .find(|(_, from)| from.contains(&rank))
            .map(|(up, _)| *up);
        match up {
            Some(up) => inbox.entry(up).or_default().push((rank, sum)),
            None => last = Some(sum),
        }
    }
    last.expect("a tree has a root")
}

fn any_pattern() -> impl Strategy<Value = TreePattern> {
    prop::sample::select(vec![
        TreePattern::Balanced,
        TreePattern::Split,
        TreePattern::Tree,
    ])
}

fn any_half() -> impl Strategy<Value = Half> {
    prop::sample::select(vec![Half::First, Half::Second])
}

/// Ranks in any order, on nodes of any sizes.
fn any_chains() -> impl Strategy<Value = Vec<Vec<u32>>> {
    prop::collection::vec(1usize..5, 1..12).prop_flat_map(|sizes| {
        let ranks = sizes.iter().sum::<usize>() as u32;
        Just((0..ranks).collect::<Vec<u32>>())
            .prop_shuffle()
            .prop_map(move |ranks| {
                let mut rest = ranks.into_iter();
                sizes
                    .iter()
                    .map(|size| rest.by_ref().take(*size).collect())
                    .collect()
            })
    })
}

fn any_ring() -> impl Strategy<Value = Vec<u32>> {
    (2u32..=17).prop_flat_map(|ranks| Just((0..ranks).collect::<Vec<u32>>()).prop_shuffle())
}

fn any_choices() -> impl Strategy<Value = Choices> {
    prop::collection::vec(any::<u32>(), 1..64).prop_map(|list| Choices(list, 0))
}

impl std::fmt::Debug for Choices {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn timing_never_changes_a_ring_or_tree_result(
        order in any_ring(),
        elements in 1usize..400,
        chunk in 1usize..8,
        element_bytes in prop::sample::select(vec![2u64, 4, 8]),
        chains in any_chains(),
        pattern in any_pattern(),
        half in any_half(),
        mut choices in any_choices(),
    ) {
        let mut symbols = Symbols::default();
        let align = 16 / element_bytes as usize;
        let chunk = chunk * align;
        let ring: ring::Ring = order.clone().into();
        let pieces = ring::all_reduce(0..elements as u64, &ring, chunk as u64, element_bytes);
        for piece in &pieces {
            prop_assert_eq!(piece.tree.check(order.len() as u32), Ok(()));
        }
        let planned = symbols_of(&pieces, &mut symbols);
        let ran = run_ring(&order, elements, chunk, align, &mut choices, &mut symbols);
        for buffer in ran {
            prop_assert_eq!(&buffer, &planned);
        }
        let tree = nccl_tree::all_reduce(&chains, pattern, half);
        let ranks = chains.iter().map(Vec::len).sum::<usize>() as u32;
        prop_assert_eq!(tree.check(ranks), Ok(()));
        let planned = tree.fold(|addend| addend, |a, b| symbols.add(a, b));
        let slots = tree_slots(&chains, pattern, half);
        for _ in 0..3 {
            prop_assert_eq!(run_tree(&slots, true, &mut choices, &mut symbols), planned);
        }
    }

    #[test]
    fn reduce_scatter_and_reduce_go_round_to_the_owner(order in any_ring()) {
        let n = order.len();
        let ring: ring::Ring = order.clone().into();
        let places = ring::Places::of(&ring);
        for (p, owner) in order.iter().enumerate() {
            // The owner's successor sends its own value; every rank on the way adds its own.
            let mut symbols = Symbols::default();
            let passed = (2..=n).fold(order[(p + 1) % n], |partial, hop| {
                symbols.add(partial, order[(p + hop) % n])
            });
            for tree in [places.reduce_scatter_tree(*owner), ring::reduce_tree(&ring, *owner)] {
                prop_assert_eq!(tree.check(n as u32), Ok(()));
                prop_assert_eq!(tree.fold(|a| a, |a, b| symbols.add(a, b)), passed);
            }
        }
    }
}

/// Negative control: sums in order of arrival do depend on the delivery, and the runs above would
/// have shown it.
#[test]
fn arrival_order_would_have_been_seen() {
    let chains: Vec<Vec<u32>> = (0..8).map(|node| vec![2 * node, 2 * node + 1]).collect();
    let slots = tree_slots(&chains, TreePattern::Tree, Half::First);
    let mut symbols = Symbols::default();
    let mut results = std::collections::BTreeSet::new();
    for seed in 0..20u32 {
        let list = (0..64).map(|at| (at * 7 + seed) ^ 2_654_435_761u32.wrapping_mul(seed + at));
        let mut choices = Choices(list.collect(), 0);
        results.insert(run_tree(&slots, false, &mut choices, &mut symbols));
    }
    assert!(results.len() > 1);
}

#[test]
fn both_trees_reach_every_node_once() {
    for nodes in 1..=400 {
        for half in [Half::First, Half::Second] {
            let expected = children_from_parents(nodes, half);
            for node in 0..nodes {
                let found = nccl_tree::children(node, nodes, half);
                assert_eq!(
                    found, expected[node as usize],
                    "{node} of {nodes}, {half:?}"
                );
            }
        }
    }
}

#[test]
fn one_node_is_a_chain_from_its_tail() {
    let chains = vec![vec![0, 2, 1, 3]];
    let tree = nccl_tree::all_reduce(&chains, TreePattern::Tree, Half::First);
    assert_eq!(
        tree,
        Tree::Chain {
            ring: Arc::from([3, 1, 2, 0]),
            start: 0
        }
    );
}
