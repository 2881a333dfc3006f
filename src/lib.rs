//! bitproof: a single-node simulator of large-scale parallel training for determinism testing.

pub mod engine;
pub mod job;
pub mod kernel;
pub mod numerics;
pub mod plan;
pub mod topology;
pub mod world;
