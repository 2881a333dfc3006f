//! REF: a run against what a serial one would have done. `value` says *how much*: the values.
//! Here is the part that says *who*: which rank and microbatch contributed to each gradient that an
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
mod value;

use std::collections::BTreeSet;

use crate::prove::memory;
use crate::prove::session::{CheckError, Session};
use crate::world::{Beside, Observer, RunOptions, RunRecord};

pub use contribution::{Fault, Finding};
use provenance::Provenance;
use value::ValueWatch;
pub(in crate::prove) use value::serial_recipe;
pub use value::{ComparedTensor, Quantity, Values};

/// Why values of a scaled loss are left out.
const SCALED: &str = "values with a serial model's: the loss is scaled, and no bound is known for \
    gradients that a narrow format loses, or that overflow";

/// Findings that are kept; more are only counted.
const FINDINGS_MAX: usize = 64;

/// What following the contributions of a run showed.
#[derive(Clone, Debug, Default, PartialEq)]
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
    pub values: Values,
}

impl Provenances {
    /// Whether the findings say anything: something was followed, and nothing was lost on the way.
    pub fn is_followed(&self) -> bool {
        self.unfollowed.is_empty() && self.words > 0
    }

    /// What is left open of a run of so many steps.
    pub fn not_covered(&self, steps: u32) -> Vec<String> {
        let later = (self.steps < steps).then(|| {
            let last = self.steps;
            format!("contributions to gradients, and values with a serial run's, after step {last}")
        });
        let values = self.values.not_compared.iter().cloned();
        later.into_iter().chain(values).collect()
    }
}

/// Runs the first steps of the canonical schedule and follows every contribution; compares what
/// the ranks compute with a serial model.
///
/// # Errors
/// Whatever stops a run.
pub fn follow(session: &mut Session, options: &RunOptions) -> Result<Provenances, CheckError> {
    let last = memory::followed_steps(&session.scenario);
    let mut provenance = Provenance::new(session.options.clone());
    if session.options.loss_scale.is_some() {
        session.run(options, 1..last + 1, None, &mut provenance)?;
        return Ok(Provenances {
            steps: last,
            values: Values::none(SCALED.to_string()),
            ..provenance.end()
        });
    }
    let values = match value::without_dropout(session)? {
        None => {
            let mut watch = ValueWatch::default();
            let mut both = Beside {
                first: &mut provenance,
                second: &mut watch,
            };
            let record = watched(session, options, last, &mut both)?;
            value::compare(session, &record, &watch, last)?
        }
        Some(mut other) => {
            session.run(options, 1..last + 1, None, &mut provenance)?;
            let mut watch = ValueWatch::default();
            let record = watched(&mut other, options, last, &mut watch)?;
            let mut values = value::compare(&other, &record, &watch, last)?;
            values.not_compared.push(
                "values under dropout with a serial model's, whose masks are others: they are \
                 compared with hidden_dropout and attention_dropout 0"
                    .to_string(),
            );
            values
        }
    };
    Ok(Provenances {
        steps: last,
        values,
        ..provenance.end()
    })
}

/// A run whose states are kept, from the end of set-up on.
fn watched(
    session: &mut Session,
    options: &RunOptions,
    last: u32,
    observer: &mut dyn Observer,
) -> Result<RunRecord, CheckError> {
    let mut options = options.clone();
    options.checkpoint_after.extend(0..last + 1);
    Ok(session.run(&options, 1..last + 1, None, observer)?)
}
