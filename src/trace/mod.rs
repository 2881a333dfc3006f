//! Traces of runs, real and simulated: read, certified, compared.
//!
//! A trace is what each rank recorded of its own run, in its own order: the fingerprints of what
//! went into an op and of what came out. Nothing here knows an order between ranks. Sources:
//! Megatron-LM pull requests 6610 (boundary stream) and 7262 (op stream, method), both open. What
//! a check records of its own run has the same records ([`native`]).

pub mod boundary;
pub mod certify;
pub mod convert;
pub mod damage;
pub mod folder;
pub mod hash_tensor;
pub mod header;
pub mod json;
pub mod lines;
pub mod native;
pub mod op;
mod point;
pub mod shards;
pub mod show;
mod strength;
pub mod symptom;
pub mod timeline;

pub use certify::{Certificate, Coverage};
pub use damage::Damage;
pub use folder::Folder;
pub use point::Point;
pub use strength::Strength;
pub mod diff;
