//! A job of Megatron-LM as it was read, whether or not it can be checked.

use std::path::Path;

use super::{Overrides, imported};
use crate::diagnostic::{Findings, Source, escaped};
use crate::recipe::megatron::{GivenJob, Understood};

/// What a file says, what that means, and what would be checked.
#[derive(Clone, Debug)]
pub struct Import {
    pub given: GivenJob,
    pub understood: Understood,
    /// A scenario as TOML: the small recipe, and the job as its full size. `None` where a finding
    /// says why there is none.
    pub scenario: Option<String>,
}

impl Import {
    /// Whether `check` takes the job's own file: a script that was followed may be misread.
    pub fn is_taken_as_it_is(&self) -> bool {
        let phases = &self.given.phases;
        phases.iter().all(|phase| phase.followed.is_none())
    }
}

/// Reads a job and understands the phase that `overrides` names. `None` where the file cannot be
/// read as a job at all.
pub fn import(
    source: &Source,
    path: &Path,
    overrides: &Overrides,
    findings: &mut Findings,
) -> Option<Import> {
    let given = GivenJob::read(source, path, findings)?;
    let understood = imported::understood(&given, overrides, findings)?;
    let small = imported::small(&understood, source, overrides, findings);
    let scenario = small.and_then(|scaled| {
        let text = imported::generated(&given, &understood, &scaled, path, overrides);
        // What a check would refuse is refused here, too.
        imported::read_back(source, &text, path, overrides, findings)?;
        let name = escaped(&source.name);
        Some(format!(
            "# Made of {name} by `bitproof import recipe`.\n{text}"
        ))
    });
    Some(Import {
        given,
        understood,
        scenario,
    })
}
