//! A full-size plan on a small buffer.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::plan::{Digest, Piece, Plan, Tree};

/// Why a plan cannot be scaled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ScaleError {
    #[error("a plan without elements has no trees to scale")]
    Empty,
    #[error("{classes} distinct trees do not fit into {elements} elements")]
    TooFewElements { classes: u64, elements: u64 },
}

impl Plan {
    /// The plan for `elements` elements in which element i takes the tree of element
    /// `floor(i * element_count / elements)` of this one. Where that would leave a distinct tree
    /// out, the nearest element that can be spared takes it.
    pub fn scaled_to(&self, elements: u64) -> Result<Plan, ScaleError> {
        let mut scaled = scaled_together(&[&[self]], elements)?;
        Ok(scaled.remove(0))
    }
}

/// The plans of one small buffer, an allocation each, that stand for full-size buffers.
///
/// `twins` are the full-size buffers, each with its plan on every allocation. Laid end to end they
/// are scaled as [`Plan::scaled_to`] scales one. An element of the small buffer stands for the same
/// full-size element on every allocation, and every *joint* class, the trees that the allocations
/// have at one full-size element, is hit at least once: where plans differ at full size, they
/// differ here.
///
/// Panics where the twins are none, or have plans of other allocations or numbers of addends.
pub fn scaled_together(twins: &[&[&Plan]], elements: u64) -> Result<Vec<Plan>, ScaleError> {
    let allocations = twins.first().map_or(0, |plans| plans.len());
    assert!(allocations > 0, "a buffer stands for one with a plan");
    let total = twins
        .iter()
        .map(|plans| plans[0].element_count)
        .sum::<u64>();
    if total == 0 {
        return Err(ScaleError::Empty);
    }
    let mut dealt = Dealt::new(total, elements);
    let mut start = 0;
    for (twin, plans) in twins.iter().enumerate() {
        assert_eq!(plans.len(), allocations, "one plan an allocation");
        for (range, digests) in joint_classes(plans) {
            let place = (twin, range.start);
            dealt.deal(start + range.start..start + range.end, digests, place);
        }
        start += plans[0].element_count;
    }
    let buffer = dealt.finish(elements)?;
    let plan = |allocation: usize| {
        let like = twins[0][allocation];
        let tree = |(twin, element): (usize, u64)| twins[twin][allocation].tree_at(element).clone();
        let scaled = Plan {
            addend_count: like.addend_count,
            element_count: elements,
            arithmetic: like.arithmetic,
            pieces: buffer.pieces(&tree),
        };
        scaled.merged()
    };
    Ok((0..allocations).map(plan).collect())
}

/// Ranges in which every plan has one tree, with the trees' digests in the order of the plans.
fn joint_classes(plans: &[&Plan]) -> Vec<(Range<u64>, Vec<Digest>)> {
    let count = plans[0].element_count;
    assert!(plans.iter().all(|plan| plan.element_count == count));
    let classes: Vec<_> = plans.iter().map(|plan| plan.classes()).collect();
    let mut at = vec![0; plans.len()];
    let mut joint = Vec::new();
    let mut start = 0;
    while start < count {
        let here = || classes.iter().zip(&at).map(|(list, place)| &list[*place]);
        let end = here().map(|(range, _)| range.end).min().expect("a plan");
        let digests = here().map(|(_, digest)| *digest).collect();
        joint.push((start..end, digests));
        for (list, place) in classes.iter().zip(&mut at) {
            *place += usize::from(list[*place].0.end == end);
        }
        start = end;
    }
    joint
}

/// Full-size ranges while they are dealt to the small buffer.
struct Dealt {
    total: u64,
    elements: u64,
    numbers: BTreeMap<Vec<Digest>, usize>,
    small: Buffer,
    left_out: Vec<(u64, usize)>,
}

impl Dealt {
    fn new(total: u64, elements: u64) -> Dealt {
        Dealt {
            total,
            elements,
            numbers: BTreeMap::new(),
            small: Buffer::default(),
            left_out: Vec::new(),
        }
    }

    /// The least i with floor(i * total / elements) >= element.
    fn image(&self, element: u64) -> u64 {
        (u128::from(element) * u128::from(self.elements)).div_ceil(u128::from(self.total)) as u64
    }

    /// `place` is where the first element of `range` stands: twin, and element of it.
    fn deal(&mut self, range: Range<u64>, digests: Vec<Digest>, place: (usize, u64)) {
        let small = &mut self.small;
        let class = *self.numbers.entry(digests).or_insert_with(|| {
            small.places.push(place);
            small.runs_of.push(BTreeSet::new());
            small.elements_of.push(0);
            small.places.len() - 1
        });
        let (start, end) = (self.image(range.start), self.image(range.end));
        if start < end {
            self.small.add(start, end, class);
        } else {
            self.left_out.push((start, class));
        }
    }

    fn finish(mut self, elements: u64) -> Result<Buffer, ScaleError> {
        let classes = self.small.places.len() as u64;
        if classes > elements {
            return Err(ScaleError::TooFewElements { classes, elements });
        }
        self.small.find_spare();
        for (wanted, class) in self.left_out {
            if self.small.elements_of[class] == 0 {
                self.small.place(wanted, class);
            }
        }
        Ok(self.small)
    }
}

/// The small buffer while its elements are dealt to classes.
#[derive(Default)]
struct Buffer {
    /// By class: a full-size element of it, by twin and element.
    places: Vec<(usize, u64)>,
    elements_of: Vec<u64>,
    runs_of: Vec<BTreeSet<u64>>,
    /// Start -> end and class.
    runs: BTreeMap<u64, (u64, usize)>,
    /// Starts of runs whose class has more than one element.
    spare: BTreeSet<u64>,
}

impl Buffer {
    fn add(&mut self, start: u64, end: u64, class: usize) {
        if start < end {
            self.runs.insert(start, (end, class));
            self.runs_of[class].insert(start);
            self.elements_of[class] += end - start;
        }
    }

    fn remove(&mut self, start: u64) -> (u64, usize) {
        let (end, class) = self.runs.remove(&start).expect("a run starts there");
        self.runs_of[class].remove(&start);
        self.elements_of[class] -= end - start;
        self.spare.remove(&start);
        (end, class)
    }

    fn find_spare(&mut self) {
        let spare = self
            .runs
            .iter()
            .filter(|(_, (_, class))| self.elements_of[*class] > 1);
        self.spare = spare.map(|(start, _)| *start).collect();
    }

    /// Gives the spare element nearest to `wanted` to `class`, which has none.
    fn place(&mut self, wanted: u64, class: usize) {
        let before = self.spare.range(..=wanted).next_back().map(|start| {
            let (end, _) = self.runs[start];
            (*start, wanted.min(end - 1))
        });
        let after = self
            .spare
            .range(wanted + 1..)
            .next()
            .map(|start| (*start, *start));
        let (start, element) = [before, after]
            .into_iter()
            .flatten()
            .min_by_key(|(_, element)| element.abs_diff(wanted))
            .expect("more elements than classes, so some class has two");
        let (end, old) = self.remove(start);
        self.add(start, element, old);
        self.add(element, element + 1, class);
        self.add(element + 1, end, old);
        if self.elements_of[old] > 1 {
            let parts = [(start, element), (element + 1, end)];
            self.spare.extend(
                parts
                    .iter()
                    .filter(|(from, to)| from < to)
                    .map(|part| part.0),
            );
        } else {
            let last = self.runs_of[old].first().expect("one element is left");
            self.spare.remove(last);
        }
    }

    fn pieces(&self, tree: &dyn Fn((usize, u64)) -> Tree) -> Vec<Piece> {
        let piece = |(start, (end, class)): (&u64, &(u64, usize))| Piece {
            range: *start..*end,
            tree: tree(self.places[*class]),
        };
        self.runs.iter().map(piece).collect()
    }
}
