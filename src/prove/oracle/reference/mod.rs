//! REF, the part that says *who*: which rank and microbatch contributed to each gradient that an
//! optimizer reads, each exactly once and with the right weight.
//!
//! Sums that are wrong in the same way on every run repeat exactly: R2R is blind to a gradient that
//! lacks a rank (NVIDIA/Megatron-LM#844: a shared embedding summed before its shards were whole;
//! InfiniTensor/InfiniTrain#183: a first microbatch lost). So contributions are followed as symbols
//! through copies, sums, scalings and collectives, and compared with what the layout alone asks
//! for ([`crate::train::TrainOptions::contributions`]).

mod contribution;
mod provenance;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use crate::prove::memory;
use crate::prove::session::{CheckError, Session};
use crate::world::RunOptions;

pub use contribution::{Fault, Finding};
use provenance::Provenance;

/// Steps that are followed at least: in the second one, what the first left behind would show.
const STEPS: u32 = 2;

/// Findings that are kept; more are only counted.
const FINDINGS_MAX: usize = 64;

/// What following the contributions of a run showed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Provenances {
    /// Steps that were followed, from the first.
    pub steps: u32,
    /// Gradient words that an optimizer read, over ranks and steps.
    pub words: u64,
    /// Contributions that these words were to have.
    pub contributions: u64,
    pub findings: Vec<Finding>,
    /// Further findings, that are only counted.
    pub beyond: u64,
    /// Kernels that changed gradients in a way that is not followed.
    pub unfollowed: BTreeSet<String>,
}

impl Provenances {
    /// Whether the findings say anything: something was followed, and nothing was lost on the way.
    pub fn is_followed(&self) -> bool {
        self.unfollowed.is_empty() && self.words > 0
    }
}

/// Runs the first steps of the canonical schedule and follows every contribution.
///
/// # Errors
/// Whatever stops the run.
pub fn follow(session: &mut Session, options: &RunOptions) -> Result<Provenances, CheckError> {
    let named = memory::last_named_step(&session.scenario);
    let last = STEPS.max(named.unwrap_or(0)).min(session.scenario.steps);
    let mut provenance = Provenance::new(session.options.clone());
    session.run(options, 1..last + 1, None, &mut provenance)?;
    Ok(Provenances {
        steps: last,
        ..provenance.end()
    })
}
