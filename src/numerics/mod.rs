//! Number formats, exact sums, and the ladder's pure mathematics. No input or output.

mod dtype;

pub use dtype::{CANONICAL_NAN, Dtype};
