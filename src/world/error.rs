//! Why a world stopped. Every variant names ranks and call sites.

use std::sync::Arc;

use crate::engine::EngineError;

use super::memory::Hazard;
use super::site::Site;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorldError {
    #[error("rank {rank}, {site}: {source}")]
    Engine {
        rank: String,
        site: String,
        source: EngineError,
    },
    #[error("rank {rank} failed: {message}")]
    RankFailed { rank: u32, message: String },
    #[error("rank {rank} panicked: {message}")]
    RankPanicked { rank: u32, message: String },
    #[error("collective mismatch in {group}: {detail}")]
    CollectiveMismatch {
        group: String,
        detail: String,
        sides: Vec<Side>,
        /// What was met before the world stopped, where that is followed.
        hazards: Vec<Hazard>,
    },
    #[error("deadlock: {detail}")]
    Deadlock {
        detail: String,
        sides: Vec<Side>,
        /// As above.
        hazards: Vec<Hazard>,
    },
    #[error("rank {rank}, {site}: {message}")]
    BadCommand {
        rank: u32,
        site: String,
        message: String,
    },
    #[error("kernel {kernel}: {message}")]
    BadKernel { kernel: String, message: String },
    #[error("no plan for {what}: {reason}")]
    NoPlan { what: String, reason: String },
    #[error("{site}: the schedule gives {reason}")]
    BadSchedule { site: String, reason: String },
    #[error("rank {rank} wrote outside its memory: a canary word changed")]
    Canary { rank: u32 },
    #[error("a thread for rank {rank} cannot be had: {reason}")]
    Thread { rank: u32, reason: String },
}

/// Ranks that were at one place when the world stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Side {
    pub ranks: Vec<u32>,
    /// The call that waits there; `None` for a rank that has nothing left to run.
    pub site: Option<Arc<Site>>,
    /// What they call, or what became of them.
    pub what: String,
}
