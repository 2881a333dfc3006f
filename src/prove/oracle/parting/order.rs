//! Whether collectives of two layouts that have equally many addends also add in one order: by the
//! canonical hashes of their plans, never by where something lies.

use std::collections::{BTreeMap, BTreeSet};

use crate::prove::sweep::SumKind;
use crate::train::{Gradients, TrainOptions};

/// A canonical hash of a sum.
type Digest = [u8; 32];

/// Whether the collectives of one kind are not the same functions of their addends. Buffers of one
/// length must have one plan everywhere, and the same on both sides: where it depends on the
/// group's place, which of them meet is not known, and they count as others.
pub(super) fn differ(a: &SumKind, b: &SumKind) -> bool {
    let functions = |kind: &SumKind| {
        let mut all: BTreeMap<u64, BTreeSet<Digest>> = BTreeMap::new();
        for plan in kind.plans.values() {
            let same_length = all.entry(plan.element_count).or_default();
            same_length.insert(plan.hash());
        }
        all
    };
    let (a, b) = (functions(a), functions(b));
    a != b || a.values().any(|hashes| hashes.len() > 1)
}

/// Elements of gradients whose sum over data-parallel ranks is another one.
pub(super) struct Moved {
    /// Whole tensors with such an element.
    pub parameters: BTreeSet<String>,
    moved: u64,
    total: u64,
    /// Every element lies where it does on the other side.
    in_place: bool,
}

impl Moved {
    pub fn told(&self, there: &str) -> Option<String> {
        let (moved, total) = (self.moved, self.total);
        let why = match self.in_place {
            true => "rings or trees are others",
            false => "they lie elsewhere in their buckets",
        };
        (moved > 0)
            .then(|| format!("in another order for {moved} of {total} elements: {why} on {there}"))
    }
}

/// Where an element of the whole model's gradient is reduced: its tensor and place in it; its
/// holder's own name for the tensor, as two stages may hold one; and the optimizer instance.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Element {
    whole: String,
    index: u64,
    held_as: String,
    instance: u32,
}

/// How an element is reduced, and where it lies.
struct Reduced {
    tree: Digest,
    bucket: usize,
    /// Word of the bucket.
    place: u64,
}

fn tree<'a>(of: &'a BTreeMap<Element, Reduced>, element: &Element) -> Option<&'a Digest> {
    of.get(element).map(|reduced| &reduced.tree)
}

/// Compares the tree of each element of the whole model's gradient. Data-parallel ranks have the
/// same samples on both sides, as equally many meet.
pub(super) fn moved(
    straight: (&TrainOptions, &SumKind),
    resumed: (&TrainOptions, &SumKind),
) -> Moved {
    let (a, b) = (trees(straight.0, straight.1), trees(resumed.0, resumed.1));
    let elements: BTreeSet<&Element> = a.keys().chain(b.keys()).collect();
    let others: Vec<&&Element> = elements
        .iter()
        .filter(|element| tree(&a, element) != tree(&b, element))
        .collect();
    let place = |of: &BTreeMap<Element, Reduced>, element| {
        let reduced: Option<&Reduced> = of.get(element);
        reduced.map(|reduced| (reduced.bucket, reduced.place))
    };
    let mut moved = others.iter();
    Moved {
        in_place: moved.all(|element| place(&a, **element) == place(&b, **element)),
        moved: others.len() as u64,
        parameters: others.iter().map(|other| other.whole.clone()).collect(),
        total: elements.len() as u64,
    }
}

/// The canonical hash of each element's tree. Of a tensor that tensor-parallel ranks hold whole,
/// the first one's counts: that copies agree is another oracle's matter.
fn trees(options: &TrainOptions, kind: &SumKind) -> BTreeMap<Element, Reduced> {
    let mut trees = BTreeMap::new();
    for ((rank, module, _), plan) in &kind.plans {
        let bucket = Gradients::bucket_of(module);
        let bucket = bucket.expect("gradients are reduced bucket by bucket");
        let classes = plan.classes();
        let tree_of = |word: u64| {
            let place = classes.partition_point(|(range, _)| range.end <= word);
            classes[place].1
        };
        let coordinates = options.layout.coordinates(*rank);
        for word in options.bucket_words(*rank, bucket) {
            let element = Element {
                whole: word.whole,
                index: word.index,
                held_as: word.held_as,
                instance: coordinates.data / options.layout.instance_size(),
            };
            let reduced = Reduced {
                tree: tree_of(word.place),
                bucket,
                place: word.place,
            };
            match coordinates.tensor {
                0 => drop(trees.insert(element, reduced)),
                _ => drop(trees.entry(element).or_insert(reduced)),
            }
        }
    }
    trees
}
