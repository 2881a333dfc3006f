//! NCCL's ring: all-reduce, reduce-scatter, reduce.
//!
//! Read in NCCL 2.30.7 (`device/all_reduce.h`, `reduce_scatter.h`, `reduce.h`). Positions are
//! counted from the communicator's rank 0. NVIDIA/nccl#157: the rank a sum starts at depends on
//! where the element lies in the buffer.

use std::ops::Range;
use std::sync::Arc;

use crate::plan::{Piece, Tree};

/// A ring of group-local ranks, rank 0 first.
pub type Ring = Arc<[u32]>;

/// The chunks of a ring all-reduce over `range`, the elements of one channel.
///
/// Each loop takes n chunks of `chunk` elements. What is left at the end is divided anew, into n
/// chunks of `roundup(ceil(rest / n), 16 bytes)`, the last of them short or empty. Chunk c starts
/// at position c + 1, goes round, and is finished at position c.
pub fn all_reduce(range: Range<u64>, ring: &Ring, chunk: u64, element_bytes: u64) -> Vec<Piece> {
    let ranks = ring.len() as u64;
    let full_loop = chunk * ranks;
    let mut pieces = Vec::new();
    let mut at = range.start;
    while at < range.end {
        let rest = range.end - at;
        let chunk = if rest < full_loop {
            rest.div_ceil(ranks)
                .next_multiple_of((16 / element_bytes).max(1))
        } else {
            chunk
        };
        let loop_end = at + rest.min(full_loop);
        for c in 0..ranks {
            let start = at + c * chunk;
            let piece = start..(start + chunk).min(loop_end);
            if start < piece.end {
                pieces.push(Piece {
                    range: piece,
                    tree: turn(ring, c + 1),
                });
            }
        }
        at = loop_end;
    }
    pieces
}

/// How many pieces `all_reduce` makes, to refuse what would not fit.
pub fn all_reduce_pieces(range: &Range<u64>, ranks: u64, chunk: u64) -> u64 {
    (range.end - range.start).div_ceil(chunk * ranks) * ranks
}

/// A ring with each rank's position in it.
pub struct Places {
    ring: Ring,
    position: Vec<u32>,
}

impl Places {
    pub fn of(ring: &Ring) -> Places {
        let mut position = vec![0; ring.len()];
        for (at, rank) in (0..).zip(ring.iter()) {
            position[*rank as usize] = at;
        }
        Places {
            ring: ring.clone(),
            position,
        }
    }

    /// The block of the rank at position p: starts at p + 1, goes round, is finished at p.
    pub fn reduce_scatter_tree(&self, owner: u32) -> Tree {
        turn(&self.ring, u64::from(self.position[owner as usize]) + 1)
    }
}

/// A reduce to `root`: starts at the rank after the root, finished at the root.
pub fn reduce_tree(ring: &Ring, root: u32) -> Tree {
    Places::of(ring).reduce_scatter_tree(root)
}

fn turn(ring: &Ring, start: u64) -> Tree {
    Tree::Chain {
        ring: ring.clone(),
        start: (start % ring.len() as u64) as u32,
    }
}
