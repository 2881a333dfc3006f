//! Oracles: comparisons that expose a fault. Each has a negative control among the planted faults.

pub mod r2r;
pub mod res;
