//! Why a world stopped. Every variant names ranks and call sites.

use crate::engine::EngineError;

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
    CollectiveMismatch { group: String, detail: String },
    #[error("deadlock: {detail}")]
    Deadlock { detail: String },
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
