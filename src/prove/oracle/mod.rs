//! Oracles: comparisons that expose a fault. Each has a negative control among the planted faults.
//!
//! R2R compares two runs, RES a resumed run with a straight one. The third, XR, compares replicas
//! while a run goes on, in `world/exec/boundary.rs`; `prove/certificate.rs` makes its verdict of
//! the drifts that the run's record lists.

pub mod r2r;
pub mod res;
