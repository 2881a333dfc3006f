//! Number formats, exact sums, and the ladder's pure mathematics. No input or output.

mod digest;
mod dtype;

pub use digest::Digest;
pub use dtype::{CANONICAL_NAN, Dtype};
