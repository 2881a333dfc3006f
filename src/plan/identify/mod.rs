//! Which plan a real library carried out, from what went in and what came out.
//!
//! Two ways: candidates, the plans that the builders know, are evaluated on the real inputs and
//! compared bit for bit ([`fit`]); or probe inputs are made of which each output tells which
//! addends were summed before two others met ([`Probe`]), and the tree is put together from those
//! ([`reconstruct`]), known to a builder or not.

mod candidates;
mod compared;
mod evaluate;
mod fit;
mod probe;
mod reconstruct;
mod verdict;

pub use candidates::{Candidate, Operation, candidates};
pub use compared::{Compared, Differing, NotASum, compare};
pub use evaluate::Folded;
pub use fit::{Excluded, Fits, Segment, Shards, fit};
pub use probe::{NotCounted, Probe, ProbeError, Probed, RANDOM_PROBES};
pub use reconstruct::{NotATree, met_under, reconstruct};
pub use verdict::{Explained, Identification, Why};
