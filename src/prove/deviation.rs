//! How a run with another choice differs from the canonical one, node by node. Which nodes run
//! before which may differ as well: nodes are compared by rank, site and how often a rank came by.

use std::collections::{BTreeMap, BTreeSet};

use crate::numerics::Digest;
use crate::prove::oracle::r2r::first_other_metric;
use crate::prove::oracle::res::{self, Restart};
use crate::prove::session::{CheckError, Session};
use crate::world::{Observer, RunOptions, RunRecord, Schedule, Site, Unobserved, WorldError};

/// What differs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Deviation {
    /// The first node that both runs have whose bytes are others, with its rank.
    pub node: Option<(u32, Site)>,
    /// The first declared number that differs, with its step.
    pub metric: Option<(u32, String)>,
    /// Other nodes exist.
    pub other_nodes: bool,
}

impl Deviation {
    pub fn is_none(&self) -> bool {
        *self == Deviation::default()
    }

    /// A node that both runs have wrote other bytes. Nodes that only one of them has say nothing
    /// about bytes, of themselves or of others.
    pub fn changes_bytes(&self) -> bool {
        self.node.is_some()
    }

    /// What differs, in words.
    pub fn sentence(&self) -> String {
        let nodes = match (&self.node, self.other_nodes) {
            (Some((rank, site)), _) => format!("bytes part first at {site} on rank {rank}"),
            (None, true) => "other nodes run".to_string(),
            (None, false) => "every node writes the same".to_string(),
        };
        match &self.metric {
            Some((step, name)) => format!("{nodes}, and {name} of step {step} is another"),
            None => format!("{nodes}, and every number that is shown is the same"),
        }
    }
}

/// Which run it is whose choices are changed.
#[derive(Clone, Copy)]
pub(super) enum Course<'a> {
    Straight,
    Resumed(&'a Restart<'a>),
}

impl Course<'_> {
    /// Its first step.
    pub fn first(self) -> u32 {
        match self {
            Course::Straight => 1,
            Course::Resumed(restart) => restart.cut + 1,
        }
    }

    fn run(self, session: &mut Session, options: &RunOptions) -> Result<RunRecord, CheckError> {
        let last = match self {
            Course::Straight => session.scenario.steps,
            Course::Resumed(restart) => restart.until,
        };
        self.watched(session, options, last, &mut Unobserved)
    }

    /// Runs up to step `last`.
    ///
    /// # Errors
    /// Whatever stops the run.
    pub fn watched(
        self,
        session: &mut Session,
        options: &RunOptions,
        last: u32,
        observer: &mut dyn Observer,
    ) -> Result<RunRecord, CheckError> {
        match self {
            Course::Straight => Ok(session.run(options, 1..last + 1, None, observer)?),
            Course::Resumed(restart) => res::run_on(session, restart, last, options, observer),
        }
    }
}

/// The canonical run that others are compared with.
pub(super) struct Canonical<'a> {
    course: Course<'a>,
    /// What every run has, whatever its choices.
    base: RunOptions,
    pub record: RunRecord,
}

impl<'a> Canonical<'a> {
    /// With choices of its own.
    ///
    /// # Errors
    /// Whatever stops the run.
    pub fn of(
        session: &mut Session,
        course: Course<'a>,
        schedule: &Schedule,
    ) -> Result<Canonical<'a>, CheckError> {
        let base = RunOptions {
            schedule: schedule.clone(),
            ..recorded()
        };
        Canonical::with(session, course, base)
    }

    /// With accesses followed in every step: a host is known to know what it has waited for.
    ///
    /// # Errors
    /// Whatever stops the run.
    pub fn followed(
        session: &mut Session,
        course: Course<'a>,
    ) -> Result<Canonical<'a>, CheckError> {
        let base = RunOptions {
            hazard_steps_max: u32::MAX,
            // As in the reference run: its hazards are told beside that run's.
            measure_writes: true,
            ..recorded()
        };
        Canonical::with(session, course, base)
    }

    fn with(
        session: &mut Session,
        course: Course<'a>,
        base: RunOptions,
    ) -> Result<Canonical<'a>, CheckError> {
        let record = course.run(session, &base)?;
        Ok(Canonical {
            course,
            base,
            record,
        })
    }

    pub fn course(&self) -> Course<'a> {
        self.course
    }

    /// Runs with `change`, and compares. The inner error is a run that could not go on.
    ///
    /// # Errors
    /// A failure of the machine.
    pub fn changed(
        &self,
        session: &mut Session,
        change: impl FnOnce(&mut RunOptions),
    ) -> Result<Result<(RunRecord, Deviation), String>, CheckError> {
        let mut options = self.base.clone();
        change(&mut options);
        match self.course.run(session, &options) {
            Ok(record) => {
                let deviation = compare(&self.record, &record);
                Ok(Ok((record, deviation)))
            }
            Err(error) => Ok(Err(how_it_stopped(error)?)),
        }
    }
}

/// How a run stopped, in words.
///
/// # Errors
/// The error itself, where it is a failure of the machine.
pub(super) fn how_it_stopped(error: CheckError) -> Result<String, CheckError> {
    match error {
        CheckError::World(WorldError::Engine { rank, site, source })
            if source.launch().is_none() =>
        {
            Err(WorldError::Engine { rank, site, source }.into())
        }
        CheckError::World(error) => Ok(error.to_string()),
        error => Err(error),
    }
}

fn recorded() -> RunOptions {
    RunOptions {
        record_nodes: true,
        ..RunOptions::default()
    }
}

/// Two runs, as far as both go: one that ends sooner, after the same step on every rank, is
/// compared with that much of the other.
fn compare(canonical: &RunRecord, other: &RunRecord) -> Deviation {
    let last = last_step(other);
    let of_canonical = || {
        canonical
            .records
            .iter()
            .filter(|node| node.site.step <= last)
    };
    let mut found: BTreeMap<(u32, &Site), Vec<Digest>> = BTreeMap::new();
    for node in &other.records {
        let at = found.entry((node.rank, &node.site)).or_default();
        at.push(node.digest);
    }
    let mut visits: BTreeMap<(u32, &Site), usize> = BTreeMap::new();
    let mut deviation = Deviation {
        other_nodes: of_canonical().count() != other.records.len(),
        ..Deviation::default()
    };
    for node in of_canonical() {
        let visit = visits.entry((node.rank, &node.site)).or_insert(0);
        let digests = found.get(&(node.rank, &*node.site));
        let digest = digests.and_then(|digests| digests.get(*visit));
        *visit += 1;
        deviation.other_nodes |= digest.is_none();
        let differs = digest.is_some_and(|digest| *digest != node.digest);
        if differs && deviation.node.is_none() {
            deviation.node = Some((node.rank, Site::clone(&node.site)));
        }
    }
    let metric = first_other_metric(canonical, other);
    deviation.metric = metric.filter(|(step, _)| *step <= last).cloned();
    deviation
}

/// The step after which a run has ended, where all ranks have ended after the same; else none is.
pub(super) fn last_step(record: &RunRecord) -> u32 {
    let mut of_rank: BTreeMap<u32, u32> = BTreeMap::new();
    for (step, rank) in record.roots.keys() {
        let last = of_rank.entry(*rank).or_default();
        *last = (*last).max(*step);
    }
    let lasts: BTreeSet<u32> = of_rank.into_values().collect();
    match lasts.first() {
        Some(last) if lasts.len() == 1 => *last,
        _ => u32::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::{NodeRecord, Phase};
    use std::sync::Arc;

    fn node(rank: u32, op: &str, word: u32) -> NodeRecord {
        NodeRecord {
            rank,
            wave: 0,
            site: Arc::new(Site {
                step: 1,
                microbatch: None,
                phase: Phase::Forward,
                module: "m".into(),
                op: op.into(),
            }),
            fold: None,
            digest: Digest::of_words(&[word]),
        }
    }

    fn run(nodes: &[(u32, &str, u32)]) -> RunRecord {
        RunRecord {
            records: nodes.iter().map(|(r, op, w)| node(*r, op, *w)).collect(),
            ..RunRecord::default()
        }
    }

    #[test]
    fn nodes_are_compared_by_their_names_whatever_their_order() {
        let canonical = run(&[(0, "a", 1), (0, "b", 2), (0, "a", 3), (1, "a", 4)]);
        let turned = run(&[(1, "a", 4), (0, "b", 2), (0, "a", 1), (0, "a", 3)]);
        assert!(compare(&canonical, &turned).is_none());
        let swapped = run(&[(0, "a", 3), (0, "b", 2), (0, "a", 1), (1, "a", 4)]);
        let (rank, site) = compare(&canonical, &swapped).node.expect("the first a");
        assert_eq!((rank, site.node()), (0, "m.a".to_string()));
        let fewer = compare(&canonical, &run(&[(0, "a", 1), (0, "b", 2), (0, "a", 3)]));
        assert!(fewer.other_nodes && !fewer.changes_bytes(), "{fewer:?}");
        let said = fewer.sentence();
        assert!(
            said.starts_with("other nodes run, and every number"),
            "{said}"
        );
        let more = run(&[
            (0, "a", 1),
            (0, "b", 2),
            (0, "a", 3),
            (1, "a", 4),
            (1, "c", 5),
        ]);
        assert!(compare(&canonical, &more).other_nodes);
    }

    /// A node that is gone is not one whose bytes differ: that is the first one after it.
    #[test]
    fn a_node_that_differs_is_one_that_both_runs_have() {
        let canonical = run(&[(0, "a", 1), (0, "b", 2), (0, "c", 3)]);
        let mut other = run(&[(0, "b", 2), (0, "c", 4)]);
        other.metrics.insert((1, "lm loss".to_string()), 2.0);
        let mut canonical = canonical;
        canonical.metrics.insert((1, "lm loss".to_string()), 1.0);
        let found = compare(&canonical, &other);
        assert!(found.other_nodes && found.changes_bytes());
        let said = found.sentence();
        assert!(
            said.contains("m, c on rank 0, and lm loss of step 1"),
            "{said}"
        );
    }
}
