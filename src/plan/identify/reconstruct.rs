//! A tree from the sizes of its subtrees (FPRev, arXiv 2411.00442): for every two addends, how many
//! addends the smallest subtree has that holds both.

use crate::plan::Tree;
use crate::plan::shape::Shape;

/// Why sizes are those of no tree of two-operand additions.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "addends {i} and {j} meet under {found} addends, where a tree of additions of two has \
     {expected}: more than two are added at once, or in a wider type than masks are made for"
)]
pub struct NotATree {
    pub i: u32,
    pub j: u32,
    pub found: u32,
    pub expected: u32,
}

/// The tree in which addends `i` and `j` meet in a subtree of `met(i, j)` addends, for every two.
///
/// # Errors
/// The first two addends that meet elsewhere in every tree.
///
/// # Panics
/// Without addends.
pub fn reconstruct(addends: u32, met: &dyn Fn(u32, u32) -> u32) -> Result<Tree, NotATree> {
    assert!(addends >= 1, "a tree has at least one addend");
    let mut shape = Shape::new();
    let all: Vec<u32> = (0..addends).collect();
    build(&all, met, &mut shape)?;
    let tree = shape.into_tree();
    let sizes = met_under(&tree);
    for i in 0..addends {
        for j in i + 1..addends {
            check(i, j, met(i, j), sizes[i as usize][j as usize])?;
        }
    }
    Ok(tree)
}

fn check(i: u32, j: u32, found: u32, expected: u32) -> Result<(), NotATree> {
    match found == expected {
        true => Ok(()),
        false => Err(NotATree {
            i,
            j,
            found,
            expected,
        }),
    }
}

/// The tree over `addends`: the first of them, and on its way to the root the subtrees that it
/// meets, smaller ones first. A subtree has fewer addends than the whole, so this ends.
fn build(
    addends: &[u32],
    met: &dyn Fn(u32, u32) -> u32,
    shape: &mut Shape,
) -> Result<u32, NotATree> {
    let (first, rest) = addends.split_first().expect("a subtree has an addend");
    let mut others: Vec<(u32, u32)> = rest
        .iter()
        .map(|other| (met(*first, *other), *other))
        .collect();
    others.sort_unstable();
    let mut node = shape.leaf(*first);
    let mut size = 1;
    for sibling in others.chunk_by(|a, b| a.0 == b.0) {
        let (found, other) = sibling[0];
        size += sibling.len() as u32;
        check(*first, other, found, size)?;
        let own: Vec<u32> = sibling.iter().map(|(_, addend)| *addend).collect();
        let sibling = build(&own, met, shape)?;
        node = shape.pair(node, sibling);
    }
    Ok(node)
}

/// For every two addends of a tree, how many addends the smallest subtree has that holds both.
pub fn met_under(tree: &Tree) -> Vec<Vec<u32>> {
    let addends = tree.addend_count() as usize;
    let mut sizes = vec![vec![1; addends]; addends];
    let join = |left: Vec<u32>, right: Vec<u32>| {
        let size = (left.len() + right.len()) as u32;
        for i in &left {
            for j in &right {
                sizes[*i as usize][*j as usize] = size;
                sizes[*j as usize][*i as usize] = size;
            }
        }
        [left, right].concat()
    };
    tree.fold(|addend| vec![addend], join);
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_tree_has_all_pairs_meet_at_once() {
        // Three addends added in one step: whichever two cancel, the third is left.
        let error = reconstruct(3, &|_, _| 2).expect_err("no tree");
        assert_eq!((error.i, error.found, error.expected), (0, 2, 3));
        assert!(reconstruct(3, &|_, _| 3).is_err());
    }

    #[test]
    fn small_trees_are_found() {
        assert_eq!(
            reconstruct(1, &|_, _| 0).map(|tree| tree.addend_count()),
            Ok(1)
        );
        let tree = reconstruct(4, &|i, j| if i / 2 == j / 2 { 2 } else { 4 }).expect("a tree");
        let name = |addend: u32| addend.to_string();
        assert_eq!(tree.expression(&name), "((0 + 1) + (2 + 3))");
    }
}
