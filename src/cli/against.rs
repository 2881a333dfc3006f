//! `check A --against B`: both are checked, and then laid side by side.

use std::path::{Path, PathBuf};

use super::check::Asked;
use super::output::{Output, warn};
use crate::diagnostic::Diagnostic;
use crate::prove::TraceRequest;
use crate::prove::recording::Hashed;
use crate::report::change::{Change, incomparable};
use crate::report::{Exit, Report};
use crate::scenario::{Overrides, Scenario};
use crate::trace::diff::{Verdict, compare};
use crate::trace::native::{Level, earliest};
use crate::trace::{Damage, Folder};

/// The most that both runs' records may take on the disk, each.
const BUDGET: u64 = 16 << 30;

/// Two scenarios that are to be compared, with the folder of their records.
pub(super) struct Pair {
    paths: [PathBuf; 2],
    folder: tempfile::TempDir,
}

impl Pair {
    /// Sees that the two can be compared.
    ///
    /// # Errors
    /// Other worlds or steps. What cannot be read is told by its own check.
    pub fn of(a: &Path, b: &Path, overrides: &Overrides) -> Result<Pair, Box<Diagnostic>> {
        let load = |path: &Path| Scenario::load(path, overrides).ok();
        if let (Some(x), Some(y)) = (load(a), load(b)) {
            let (x, y) = (x.scenario, y.scenario);
            let worlds = [x.recipe.world_size, y.recipe.world_size];
            if let Some(finding) = incomparable(worlds, [x.steps, y.steps]) {
                return Err(Box::new(finding));
            }
        }
        let folder = tempfile::tempdir().map_err(|error| {
            let message = format!("no folder for the records of both runs: {error}");
            Box::new(Diagnostic::error("not-recorded", message))
        })?;
        Ok(Pair {
            paths: [a.to_path_buf(), b.to_path_buf()],
            folder,
        })
    }

    fn records(&self, place: usize) -> PathBuf {
        self.folder.path().join(["a", "b"][place])
    }

    /// Checks both, and tells where their reference runs part.
    pub fn check(
        &self,
        asked: &Asked<'_>,
        output: &mut Output,
        one: impl Fn(&Asked<'_>, &Path, Option<TraceRequest>, &mut Output) -> Exit,
    ) -> Exit {
        let mut worst = Exit::Proved;
        for (place, path) in self.paths.iter().enumerate() {
            let request = TraceRequest {
                folder: self.records(place),
                level: Level::Op,
                ranks: None,
                iterations: None,
                budget: BUDGET,
                hashed: Hashed::OnHost,
            };
            worst = worst.max(one(asked, path, Some(request), output));
        }
        let reports = output.last_two();
        let Some([a, b]) = reports else {
            return worst;
        };
        match self.change(a, b) {
            Ok(change) => {
                let (human, json, finding) =
                    (change.to_human(), change.to_json(), change.finding());
                output.beside(&human, &json, finding);
                worst
            }
            Err((findings, exit)) => {
                warn(&findings);
                worst.max(exit)
            }
        }
    }

    fn change<'a>(
        &self,
        a: &'a Report,
        b: &'a Report,
    ) -> Result<Change<'a>, (Vec<Diagnostic>, Exit)> {
        let told = |damages: &[Damage]| {
            let findings = damages.iter().map(Damage::to_diagnostic);
            (findings.collect::<Vec<_>>(), Exit::NothingChecked)
        };
        let open = |place: usize| Folder::open(&self.records(place)).map_err(|all| told(&all));
        let (x, y) = (open(0)?, open(1)?);
        let comparison = compare(&x, &y, false);
        match comparison.verdict {
            Verdict::Untrusted => return Err(told(&comparison.reasons)),
            Verdict::NothingCompared => {
                let finding = Diagnostic::error("not-comparable", "no values were compared");
                return Err((vec![finding], Exit::NothingChecked));
            }
            Verdict::Same | Verdict::OnlyArtefacts | Verdict::Different => {}
        }
        let first = earliest([&x, &y], &comparison).map_err(|damage| told(&[damage]))?;
        Ok(Change {
            paths: self.paths.each_ref().map(|path| path.display().to_string()),
            reports: [a, b],
            records: comparison.records,
            first,
        })
    }
}
