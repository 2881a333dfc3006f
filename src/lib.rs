//! bitproof: a single-node simulator of large-scale parallel training for determinism testing.

pub mod cli;
pub mod diagnostic;
pub mod engine;
pub mod fault;
pub mod job;
pub mod kernel;
pub mod model;
pub mod numerics;
pub mod plan;
pub mod prove;
pub mod recipe;
pub mod report;
pub mod scenario;
pub mod topology;
pub mod train;
pub mod world;
