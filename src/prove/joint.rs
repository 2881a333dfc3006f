//! Answers that several queries have together. Where an answer makes other nodes run, or further
//! queries, what each answer does alone is not all there is to know: joint answers are explored, up
//! to a bound, and past it random priority schedules are run.

use std::collections::{BTreeMap, BTreeSet};

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use crate::prove::answers::{self, Answers, Ran};
use crate::prove::deviation::{Canonical, Course, Deviation, last_step};
use crate::prove::queries::Queries;
use crate::prove::reversal::{self, Consequence, Known};
use crate::prove::session::{CheckError, Session};
use crate::prove::{Grade, Progress, Silent};
use crate::world::{Hazard, Name, Priorities, QueryId, QueryPoint, RunRecord, Schedule};

/// Sets of answers that are run, the canonical run included.
const RUNS_MAX: usize = 64;
/// Random priority schedules, where that was not enough.
const SAMPLES: u64 = 32;
/// Orderings that a difference may need, for what the bound says.
pub(super) const DEPTH: u32 = 3;

/// A pair of accesses that nothing orders, and what it does the other way round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unordered {
    pub hazard: Hazard,
    pub consequence: Consequence,
}

/// One run with other answers than the canonical one's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answered {
    /// Its place among the runs, from 1: what a token names.
    pub number: u32,
    /// Those that were answered *not ready*.
    pub denied: Vec<QueryPoint>,
    /// What came of it; an error where the run stopped.
    pub came: Result<Deviation, String>,
    /// A hazard that the canonical run has not, the first of those that do the worst.
    pub hazard: Option<Unordered>,
    /// The step after which the first checkpoint was asked for whose file is another one.
    pub file: Option<u32>,
}

/// That a query is answered otherwise, in words.
pub fn not_ready(query: &QueryPoint) -> String {
    let (rank, edge, site) = (query.id.rank, &query.edge, &query.site);
    if query.is_clock {
        return format!("rank {rank}'s clock says that `{edge}` is over at {site}");
    }
    format!("rank {rank} finds `{edge}` not ready at {site}")
}

impl Answered {
    /// What it does to the run.
    pub fn grade(&self) -> Grade {
        match (&self.came, &self.hazard) {
            (Err(_), _) => Grade::Divergent,
            (Ok(deviation), _) if deviation.metric.is_some() => Grade::Divergent,
            (Ok(_), _) if self.file.is_some() => Grade::Divergent,
            (Ok(_), Some(found)) if found.consequence.is_visible() => Grade::Divergent,
            (Ok(_), Some(_)) => Grade::Hazard,
            (Ok(deviation), None) if deviation.changes_bytes() => Grade::Masked,
            (Ok(_), None) => Grade::Proved,
        }
    }

    /// What came of the answers, in words.
    pub fn consequence(&self) -> String {
        match (&self.came, &self.hazard, self.file) {
            (Err(error), ..) => format!("the run stops: {error}"),
            (Ok(deviation), ..) if deviation.metric.is_some() => deviation.sentence(),
            (Ok(_), _, Some(after)) => {
                format!("the file of the checkpoint after step {after} is another one")
            }
            (Ok(_), Some(found), None) => {
                let (hazard, consequence) = (&found.hazard, &found.consequence);
                format!("there is a hazard: {hazard}; {consequence}")
            }
            (Ok(deviation), None, None) => deviation.sentence(),
        }
    }

    /// Which answers, and what comes of them.
    pub fn sentence(&self) -> String {
        let each = self.denied.iter().take(4).map(not_ready);
        let mut each: Vec<String> = each.collect();
        if each.is_empty() {
            each.push(format!("answers are those of run {}", self.number));
        }
        if self.denied.len() > each.len() {
            each.push(format!("{} more likewise", self.denied.len() - each.len()));
        }
        format!("if {}, {}", each.join(" and "), self.consequence())
    }
}

/// Random priority schedules, and what they say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sampled {
    pub runs: u64,
    /// Hosts that ask, and work that they ask about.
    pub tasks: u64,
    /// Two for each query: its host's, and its work's.
    pub events: u64,
}

impl Sampled {
    /// With which probability one run meets a difference that three orderings make: PCT's
    /// bound, 1 / (n k^(d-1)).
    pub fn of_one_run(&self) -> f64 {
        let events = (1..DEPTH).fold(1.0, |product, _| product * self.events as f64);
        1.0 / (self.tasks as f64 * events)
    }

    /// The same of all runs.
    pub fn of_all_runs(&self) -> f64 {
        let missed = 1.0 - self.of_one_run();
        1.0 - (0..self.runs).fold(1.0, |product, _| product * missed)
    }
}

/// Explores joint answers of a run, whose hazards but for `known` are told; `until` is the last run
/// that is asked for, where not all are.
///
/// # Errors
/// A failure of the machine.
pub(super) fn explore(
    session: &mut Session,
    course: Course<'_>,
    (known, until): (&Known<'_>, Option<u32>),
    progress: &dyn Progress,
) -> Result<Queries, CheckError> {
    let ranks = session.ranks();
    let mut exploration = Exploration::of(session, course)?;
    exploration.turn_late_round(known)?;
    let runs_max = until.map_or(RUNS_MAX, |until| RUNS_MAX.min(until as usize + 1));
    let explored = answers::explore(ranks, runs_max, |denied| {
        let ran = exploration.answered(denied);
        progress.advance(1);
        ran
    })?;
    exploration.found.explored = explored;
    let is_over = until.is_some_and(|until| u64::from(until) < explored.runs);
    if !explored.is_complete && !is_over {
        exploration.sample(until, progress)?;
    }
    Ok(exploration.found)
}

/// The other answer to one query of the straight run.
///
/// # Errors
/// A failure of the machine.
pub(super) fn one(session: &mut Session, query: &QueryPoint) -> Result<Answered, CheckError> {
    let mut exploration = Exploration::of(session, Course::Straight)?;
    let schedule = Schedule {
        not_ready: [query.id].into(),
        ..Schedule::default()
    };
    let (_, mut answered) = exploration.run(&schedule)?;
    answered.denied = vec![query.clone()];
    Ok(answered)
}

/// The hazards of the straight run in steps in which the reference run, which has `known`, did not
/// look for them; none where nobody asks.
///
/// # Errors
/// A failure of the machine.
pub(super) fn late_hazards(
    session: &mut Session,
    reference: &RunRecord,
) -> Result<Vec<Hazard>, CheckError> {
    if !reference.queries.iter().any(|query| query.open) {
        return Ok(Vec::new());
    }
    let canonical = Canonical::followed(session, Course::Straight)?;
    let known: Vec<&Hazard> = reference.hazards.iter().collect();
    Ok(beyond(&canonical.record, &known))
}

/// The hazards of a run that are none of `known`.
fn beyond(record: &RunRecord, known: &[&Hazard]) -> Vec<Hazard> {
    let is_known = |hazard: &Hazard| known.iter().any(|one| reversal::is_same(one, hazard));
    let own = record.hazards.iter().filter(|hazard| !is_known(hazard));
    own.cloned().collect()
}

/// The first step after which a checkpoint was asked for whose file another run has not, as far as
/// both go.
fn other_file(canonical: &RunRecord, record: &RunRecord) -> Option<u32> {
    let (own, other, last) = (&canonical.files, &record.files, last_step(record));
    let mut steps = own.keys().chain(other.keys()).filter(|step| **step <= last);
    steps.find(|step| own.get(step) != other.get(step)).copied()
}

/// The queries of a run up to this step.
fn asked(record: &RunRecord, last: u32) -> BTreeSet<QueryId> {
    let queries = record.queries.iter().map(|query| query.id);
    queries.filter(|query| query.step <= last).collect()
}

struct Exploration<'a> {
    session: &'a mut Session,
    canonical: Canonical<'a>,
    found: Queries,
    /// Runs so far, without the canonical one.
    runs: u32,
    /// Two for each query of the run that asks most.
    events: u64,
    /// Every query of any run.
    points: BTreeMap<QueryId, QueryPoint>,
    /// Hosts that ask, and the work of theirs that they ask about.
    tasks: BTreeSet<(u32, Option<Name>)>,
    /// Those of the canonical run's hazards that other ranks order.
    ordered: Vec<Hazard>,
    /// Hazards of other answers, with what they do.
    judged: Vec<Unordered>,
}

impl<'a> Exploration<'a> {
    /// Runs the run that answers are compared with; none are given yet.
    fn of(session: &'a mut Session, course: Course<'a>) -> Result<Exploration<'a>, CheckError> {
        let canonical = Canonical::followed(session, course)?;
        Ok(Exploration {
            session,
            canonical,
            found: Queries::default(),
            runs: 0,
            events: 0,
            points: BTreeMap::new(),
            tasks: BTreeSet::new(),
            ordered: Vec::new(),
            judged: Vec::new(),
        })
    }

    /// What the canonical run's own hazards do that nobody has been told of.
    fn turn_late_round(&mut self, known: &Known<'_>) -> Result<(), CheckError> {
        let of_first_steps: Vec<&Hazard> =
            known.told.iter().chain(&known.ordered).copied().collect();
        let mut late = beyond(&self.canonical.record, &of_first_steps);
        let how = (self.canonical.course(), &Schedule::default());
        let turned = reversal::turn_round(self.session, how, &mut late, &Silent)?;
        let is_ordered = |hazard: &&Hazard| {
            let mut ordered = known.ordered.iter().copied().chain(&turned.ordered);
            ordered.any(|one| reversal::is_same(one, hazard))
        };
        let ordered = self.canonical.record.hazards.iter().filter(is_ordered);
        self.ordered = ordered.cloned().collect();
        (self.found.late, self.found.late_reversals) = (late, turned);
        Ok(())
    }

    /// One run with other answers; its record, where it came to its end.
    fn run(&mut self, schedule: &Schedule) -> Result<(Option<RunRecord>, Answered), CheckError> {
        let ran = self.canonical.changed(self.session, |options| {
            options.schedule = schedule.clone();
        })?;
        self.runs += 1;
        let mut answered = Answered {
            number: self.runs,
            denied: Vec::new(),
            came: Ok(Deviation::default()),
            hazard: None,
            file: None,
        };
        match ran {
            Ok((record, deviation)) => {
                answered.came = Ok(deviation);
                answered.hazard = self.unordered(&record, schedule)?;
                answered.file = other_file(&self.canonical.record, &record);
                Ok((Some(record), answered))
            }
            Err(error) => {
                answered.came = Err(error);
                Ok((None, answered))
            }
        }
    }

    /// The first of the hazards with the worst consequence that `record`, a run of `schedule`, has
    /// and the canonical run has not. A hazard is turned round in the first run that has it. Pairs
    /// that other ranks order are held back in each run anew: what orders them under some answers,
    /// such as a wait for work that was ready, need not under others.
    fn unordered(
        &mut self,
        record: &RunRecord,
        schedule: &Schedule,
    ) -> Result<Option<Unordered>, CheckError> {
        let canonical = self.canonical.record.hazards.iter();
        let told = canonical.filter(|hazard| !self.ordered.contains(hazard));
        let own = beyond(record, &told.collect::<Vec<&Hazard>>());
        let judged = self.judged.iter().map(|one| &one.hazard);
        let judged: Vec<&Hazard> = judged.collect();
        let is_new = |hazard: &&Hazard| !judged.iter().any(|one| reversal::is_same(one, hazard));
        let mut new: Vec<Hazard> = own.iter().filter(is_new).cloned().collect();
        let how = (self.canonical.course(), schedule);
        let turned = reversal::turn_round(self.session, how, &mut new, &Silent)?;
        let open = new.into_iter().zip(turned.consequences);
        self.judged
            .extend(open.map(|(hazard, consequence)| Unordered {
                hazard,
                consequence,
            }));
        let of_run = |known: &&Unordered| {
            let mut own = own.iter();
            own.any(|one| reversal::is_same(one, &known.hazard))
        };
        let open = self.judged.iter().filter(of_run);
        let worst = open.min_by_key(|one| !one.consequence.is_visible());
        Ok(worst.cloned())
    }

    fn answered(&mut self, denied: &Answers) -> Result<Ran, CheckError> {
        if denied.is_empty() {
            let record = self.canonical.record.clone();
            let shown = self.seen(&record);
            self.found.open = shown.open.len() as u64;
            return Ok(shown);
        }
        let schedule = Schedule {
            not_ready: denied.clone(),
            ..Schedule::default()
        };
        let (record, mut answered) = self.run(&schedule)?;
        let mut shown = Ran::default();
        if let Some(record) = &record {
            // Queries are nodes, though those of a checkpoint are in no record of nodes.
            let last = last_step(record);
            self.found.is_dynamic |= asked(record, last) != asked(&self.canonical.record, last);
            shown = self.seen(record);
        }
        // An answer is changed only where a run before has shown the query.
        answered.denied = denied.iter().map(|id| self.points[id].clone()).collect();
        self.found.take(answered);
        Ok(shown)
    }

    /// What a run showed; its queries are known from now on.
    fn seen(&mut self, record: &RunRecord) -> Ran {
        self.events = self.events.max(2 * record.queries.len() as u64);
        for query in &record.queries {
            let known = self.points.entry(query.id);
            known.or_insert_with(|| query.clone());
            self.tasks.insert((query.id.rank, None));
            self.tasks.insert((query.id.rank, Some(query.edge.clone())));
        }
        let session = &*self.session;
        Ran::of(record, |group| session.group_ranks(group).into())
    }

    /// Runs random priority schedules, with as many tasks and events as the runs before had.
    fn sample(&mut self, until: Option<u32>, progress: &dyn Progress) -> Result<(), CheckError> {
        let sampled = Sampled {
            runs: SAMPLES,
            tasks: self.tasks.len() as u64,
            events: self.events,
        };
        self.found.sampled = Some(sampled);
        let mut random = ChaCha8Rng::seed_from_u64(self.session.scenario.seed);
        for _ in 0..SAMPLES {
            if until.is_some_and(|until| self.runs >= until) {
                break;
            }
            let seed = u64::from(random.next_u32());
            let change = |behind| (u64::from(random.next_u32()) % sampled.events, behind);
            let changes = (1..u64::from(DEPTH)).map(change).collect();
            let schedule = Schedule {
                priorities: Some(Priorities { seed, changes }),
                ..Schedule::default()
            };
            let (record, mut answered) = self.run(&schedule)?;
            let queries = record.into_iter().flat_map(|record| record.queries);
            answered.denied = queries.filter(|query| query.denied).collect();
            self.found.take(answered);
            progress.advance(1);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
