//! A full-size plan on a small buffer.

use std::collections::{BTreeMap, BTreeSet};

use crate::plan::{Piece, Plan, Tree};

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
        if self.element_count == 0 {
            return Err(ScaleError::Empty);
        }
        // The least i with floor(i * full / elements) >= element.
        let image = |element: u64| {
            (u128::from(element) * u128::from(elements)).div_ceil(u128::from(self.element_count))
                as u64
        };
        let mut numbers = BTreeMap::new();
        let mut small = Buffer::default();
        let mut left_out = Vec::new();
        for (range, digest) in self.classes() {
            let class = *numbers.entry(digest).or_insert_with(|| {
                small.trees.push(self.tree_at(range.start).clone());
                small.runs_of.push(BTreeSet::new());
                small.elements_of.push(0);
                small.trees.len() - 1
            });
            let (start, end) = (image(range.start), image(range.end));
            if start < end {
                small.add(start, end, class);
            } else {
                left_out.push((start, class));
            }
        }
        let classes = small.trees.len() as u64;
        if classes > elements {
            return Err(ScaleError::TooFewElements { classes, elements });
        }
        small.find_spare();
        for (wanted, class) in left_out {
            if small.elements_of[class] == 0 {
                small.place(wanted, class);
            }
        }
        let scaled = Plan {
            addend_count: self.addend_count,
            element_count: elements,
            arithmetic: self.arithmetic,
            pieces: small.into_pieces(),
        };
        Ok(scaled.merged())
    }
}

/// The small buffer while its elements are dealt to classes.
#[derive(Default)]
struct Buffer {
    /// By class.
    trees: Vec<Tree>,
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

    fn into_pieces(self) -> Vec<Piece> {
        let piece = |(start, (end, class)): (u64, (u64, usize))| Piece {
            range: start..end,
            tree: self.trees[class].clone(),
        };
        self.runs.into_iter().map(piece).collect()
    }
}
