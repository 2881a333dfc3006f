//! Candidates against real inputs and results, bit for bit.

use std::collections::BTreeSet;
use std::ops::Range;

use super::candidates::Candidate;
use super::evaluate::Folded;
use crate::numerics::Dtype;
use crate::plan::{Arithmetic, Tree};

/// Additions that are spent on telling ranges of elements apart; beyond, the rest is not looked at.
const ADDITIONS_MAX: u64 = 1 << 31;

/// What went into a sum and what came out, as bits of f32 of one type.
#[derive(Clone, Debug)]
pub struct Shards {
    pub dtype: Dtype,
    /// By rank of the group.
    pub inputs: Vec<Vec<u32>>,
    pub output: Vec<u32>,
}

impl Shards {
    /// The addends of one element.
    fn addends(&self, element: usize, into: &mut Vec<f32>) {
        into.clear();
        let addends = self.inputs.iter();
        into.extend(addends.map(|rank| f32::from_bits(rank[element])));
    }

    /// Every NaN is one: which one comes out says nothing about an order (assumption A5).
    fn found(&self, element: usize) -> u32 {
        self.dtype
            .round(f32::from_bits(self.output[element]))
            .to_bits()
    }
}

/// The first element that a candidate gives other bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Excluded {
    pub element: u64,
    /// What the candidate gives.
    pub expected: u32,
    pub found: u32,
}

/// Elements that one of some trees explains, as far as it goes.
#[derive(Clone, Debug)]
pub struct Segment {
    pub range: Range<u64>,
    /// Trees that give every element of the range; none where no known tree gives the first.
    pub trees: Vec<(Tree, Arithmetic)>,
}

/// What the data say of the candidates.
#[derive(Clone, Debug)]
pub struct Fits {
    /// By candidate: nothing where it gives every bit.
    pub excluded: Vec<Option<Excluded>>,
    /// Where no candidate gives every bit: ranges by the trees that do.
    pub segments: Vec<Segment>,
    /// Elements that the segments were made of: fewer than all where that was too much work.
    pub looked_at: u64,
}

/// Compares every candidate with the data; where none gives every bit, looks for the trees that
/// give each range.
///
/// # Panics
/// Where the candidates are of other sizes than the data.
pub fn fit(shards: &Shards, candidates: &[Candidate]) -> Fits {
    let excluded: Vec<Option<Excluded>> = candidates
        .iter()
        .map(|candidate| first_excluded(shards, candidate))
        .collect();
    let (segments, looked_at) = match excluded.iter().any(Option::is_none) {
        true => (Vec::new(), 0),
        false => segments(shards, &known_trees(shards, candidates)),
    };
    Fits {
        excluded,
        segments,
        looked_at,
    }
}

fn first_excluded(shards: &Shards, candidate: &Candidate) -> Option<Excluded> {
    let plan = &candidate.plan;
    assert_eq!(plan.element_count, shards.output.len() as u64);
    assert_eq!(plan.addend_count, shards.inputs.len() as u32);
    let mut addends = Vec::new();
    for piece in &plan.pieces {
        let folded = Folded::new(&piece.tree, plan.arithmetic).expect("candidates are plain sums");
        for element in piece.range.clone() {
            shards.addends(element as usize, &mut addends);
            let expected = folded.value(&addends);
            let found = shards.found(element as usize);
            if expected != found {
                return Some(Excluded {
                    element,
                    expected,
                    found,
                });
            }
        }
    }
    None
}

type Known = (Tree, Arithmetic, Folded);

/// The different trees of all candidates, and every turn of a ring in rank order, either way.
fn known_trees(shards: &Shards, candidates: &[Candidate]) -> Vec<Known> {
    let mut known = Vec::new();
    let mut seen = BTreeSet::new();
    let mut add = |tree: &Tree, arithmetic: Arithmetic, digest| {
        if seen.insert((arithmetic, digest)) {
            let folded = Folded::new(tree, arithmetic).expect("candidates are plain sums");
            known.push((tree.clone(), arithmetic, folded));
        }
    };
    for candidate in candidates {
        for (range, digest) in candidate.plan.classes() {
            let tree = candidate.plan.tree_at(range.start);
            add(tree, candidate.plan.arithmetic, digest);
        }
    }
    let ranks = shards.inputs.len() as u32;
    let arithmetic = Arithmetic::sum(shards.dtype, shards.dtype, shards.dtype);
    for ring in [(0..ranks).collect::<Vec<_>>(), (0..ranks).rev().collect()] {
        for start in 0..ranks {
            let ring = ring.clone().into();
            let tree = Tree::Chain { ring, start };
            let turn = crate::plan::local::uniform(tree.clone(), 1, arithmetic);
            add(&tree, arithmetic, turn.classes()[0].1);
        }
    }
    known
}

/// Ranges as long as one of the known trees gives every element.
fn segments(shards: &Shards, known: &[Known]) -> (Vec<Segment>, u64) {
    let mut segments: Vec<Segment> = Vec::new();
    let mut live: Vec<usize> = Vec::new();
    let mut start = 0;
    let mut addends = Vec::new();
    let mut spent = 0;
    let elements = shards.output.len();
    let close = |range: Range<usize>, live: &[usize], segments: &mut Vec<Segment>| {
        if range.is_empty() {
            return;
        }
        let range = range.start as u64..range.end as u64;
        match segments.last_mut() {
            Some(last) if live.is_empty() && last.trees.is_empty() => last.range.end = range.end,
            _ => segments.push(Segment {
                range,
                trees: live
                    .iter()
                    .map(|place| (known[*place].0.clone(), known[*place].1))
                    .collect(),
            }),
        }
    };
    for element in 0..elements {
        if spent > ADDITIONS_MAX {
            close(start..element, &live, &mut segments);
            return (segments, element as u64);
        }
        shards.addends(element, &mut addends);
        let found = shards.found(element);
        let gives = |place: &usize| known[*place].2.value(&addends) == found;
        let still: Vec<usize> = live.iter().copied().filter(gives).collect();
        spent += (live.len() * addends.len()) as u64;
        if still.is_empty() {
            close(start..element, &live, &mut segments);
            start = element;
            live = (0..known.len()).filter(|place| gives(place)).collect();
            spent += (known.len() * addends.len()) as u64;
        } else {
            live = still;
        }
    }
    close(start..elements, &live, &mut segments);
    (segments, elements as u64)
}
