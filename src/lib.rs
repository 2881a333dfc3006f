//! bitproof: a single-node simulator of large-scale parallel training for determinism testing.

pub mod engine;
pub mod kernel;
pub mod model;
pub mod numerics;
pub mod plan;
pub mod train;
pub mod world;
