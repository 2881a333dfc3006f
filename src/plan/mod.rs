//! Reduction plans: trees with rounding points, one builder a file, the selector, hashes.

mod tree;

pub use tree::{Arithmetic, Combine, Init, Op, Piece, Plan, Tree};
