//! Number formats, exact sums, and the ladder's pure mathematics. No input or output.

<<<<<<< HEAD
mod digest;
=======
pub mod bits;
>>>>>>> h2
mod dtype;
pub mod ladder;
pub mod philox;

pub use digest::Digest;
pub use dtype::{CANONICAL_NAN, Dtype};
