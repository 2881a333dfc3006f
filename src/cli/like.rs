//! `check --like`: a real trace's first divergence, read before anything runs.

use std::path::{Path, PathBuf};

use clap::Args;

use crate::diagnostic::Diagnostic;
use crate::report::Exit;
use crate::trace::diff::{Verdict, compare};
use crate::trace::symptom::{Symptom, pair_in, symptom};
use crate::trace::{Damage, Folder};

#[derive(Debug, Args)]
pub(super) struct LikeFlag {
    /// Say which sums of the scenario explain where two traces part: a folder with the traces of a
    /// run and of its repeat
    #[arg(long, value_name = "DIR", conflicts_with_all = ["lint_only", "list_faults"])]
    pub like: Option<PathBuf>,
}

/// Why there is nothing to look for, and how that ends.
pub(super) type Refused = (Vec<Diagnostic>, Exit);

/// The symptom of the two traces in `folder`.
///
/// # Errors
/// Not two traces (2), traces that cannot be trusted (4), or that do not part, or only where no
/// record shows who made the difference (5).
pub(super) fn symptom_of(folder: &Path) -> Result<Symptom, Refused> {
    let told = |damages: &[Damage], exit| {
        let findings = damages.iter().map(Damage::to_diagnostic).collect();
        (findings, exit)
    };
    let pair = pair_in(folder).map_err(|damage| told(&[damage], Exit::Usage))?;
    let open = |path: &Path| Folder::open(path).map_err(|damages| told(&damages, Exit::Vacuous));
    let (a, b) = (open(&pair[0])?, open(&pair[1])?);
    let comparison = compare(&a, &b, false);
    let [x, y] = pair.each_ref().map(|path| path.display());
    let nothing = |message: String| {
        let finding = Diagnostic::error("nothing-alike", message);
        let help = format!("`bitproof trace diff {x} {y}` says more");
        (vec![finding.with_help(help)], Exit::NothingChecked)
    };
    match comparison.verdict {
        Verdict::Untrusted => return Err(told(&comparison.reasons, Exit::Vacuous)),
        Verdict::Different => {}
        Verdict::Same | Verdict::OnlyArtefacts => {
            return Err(nothing(format!(
                "{x} and {y} are the same: nothing is to be explained"
            )));
        }
        Verdict::NothingCompared => {
            return Err(nothing(format!("of {x} and {y} no values were compared")));
        }
    }
    let found = symptom(&a, &comparison).map_err(|damage| told(&[damage], Exit::Vacuous))?;
    found.ok_or_else(|| {
        nothing(format!(
            "{x} and {y} part, and no record shows that it made the difference: there is no \
             origin to look for"
        ))
    })
}
