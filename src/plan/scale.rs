//! A full-size plan on a small buffer.

use std::collections::BTreeMap;

use crate::plan::canonical::Digest;
use crate::plan::{Piece, Plan, Tree};

/// Why a plan cannot be scaled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ScaleError {
    #[error("{classes} distinct trees do not fit into {elements} elements")]
    TooFewElements { classes: u64, elements: u64 },
}

/// A run of the small buffer, with its class.
struct Run {
    piece: Piece,
    class: Digest,
}

impl Plan {
    /// The plan for `elements` elements in which element i takes the tree of element
    /// `floor(i * element_count / elements)` of this one. Where that would leave a distinct tree
    /// out, the nearest element that can be spared takes it.
    pub fn scaled_to(&self, elements: u64) -> Result<Plan, ScaleError> {
        let classes = self.classes();
        let mut counts: BTreeMap<Digest, u64> =
            classes.iter().map(|(_, class)| (*class, 0)).collect();
        let distinct = counts.len() as u64;
        if distinct > elements {
            return Err(ScaleError::TooFewElements {
                classes: distinct,
                elements,
            });
        }
        // The least i with floor(i * full / elements) >= element.
        let image = |element: u64| {
            (u128::from(element) * u128::from(elements))
                .div_ceil(u128::from(self.element_count.max(1))) as u64
        };
        let mut runs = Vec::new();
        let mut left_out: BTreeMap<Digest, (u64, Tree)> = BTreeMap::new();
        for (range, class) in classes {
            let small = image(range.start)..image(range.end);
            let tree = self.tree_at(range.start).clone();
            if small.is_empty() {
                left_out
                    .entry(class)
                    .or_insert((small.start.min(elements - 1), tree));
            } else {
                *counts.get_mut(&class).expect("counted above") += small.end - small.start;
                runs.push(Run {
                    piece: Piece { range: small, tree },
                    class,
                });
            }
        }
        for (class, (wanted, tree)) in left_out {
            if counts[&class] == 0 {
                place(&mut runs, &mut counts, class, wanted, tree);
            }
        }
        let pieces = runs.into_iter().map(|run| run.piece).collect();
        let scaled = Plan {
            element_count: elements,
            pieces,
            ..self.clone_head()
        };
        Ok(scaled.merged())
    }

    fn clone_head(&self) -> Plan {
        Plan {
            addend_count: self.addend_count,
            element_count: 0,
            arithmetic: self.arithmetic,
            pieces: Vec::new(),
        }
    }
}

/// Gives `tree` to the element nearest to `wanted` whose class has others.
fn place(
    runs: &mut Vec<Run>,
    counts: &mut BTreeMap<Digest, u64>,
    class: Digest,
    wanted: u64,
    tree: Tree,
) {
    let nearest = |run: &Run| wanted.clamp(run.piece.range.start, run.piece.range.end - 1);
    let (index, element) = runs
        .iter()
        .enumerate()
        .filter(|(_, run)| counts[&run.class] > 1)
        .map(|(index, run)| (index, nearest(run)))
        .min_by_key(|(_, element)| element.abs_diff(wanted))
        .expect("more elements than classes, so some class has two");
    let Run {
        piece: old,
        class: old_class,
    } = runs.remove(index);
    *counts.get_mut(&old_class).expect("a known class") -= 1;
    *counts.get_mut(&class).expect("a known class") += 1;
    let parts = [
        (old.range.start..element, old.tree.clone(), old_class),
        (element..element + 1, tree, class),
        (element + 1..old.range.end, old.tree, old_class),
    ];
    let parts = parts.into_iter().filter(|(range, ..)| !range.is_empty());
    let parts = parts.map(|(range, tree, class)| Run {
        piece: Piece { range, tree },
        class,
    });
    runs.splice(index..index, parts);
}
