//! Number formats, exact sums, and the ladder's pure mathematics. No input or output.

pub mod bits;
mod digest;
mod dtype;
pub mod ladder;
pub mod philox;

pub use digest::Digest;
pub use dtype::{CANONICAL_NAN, Dtype};
