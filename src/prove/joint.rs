//! Answers that several queries have together. Where an answer makes other nodes run, or further
//! queries, what each answer does alone is not all there is to know: joint answers are explored, up
//! to a bound, and past it random priority schedules are run.

use std::collections::{BTreeMap, BTreeSet};

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use crate::prove::answers::{self, Answers, Explored, Ran};
use crate::prove::deviation::{Canonical, Course, Deviation};
use crate::prove::session::{CheckError, Session};
use crate::prove::{Grade, Progress, reversal};
use crate::world::{Hazard, Name, Priorities, QueryId, QueryPoint, RunRecord};

/// Sets of answers that are run, the canonical run included.
const RUNS_MAX: usize = 64;
/// Random priority schedules, where that was not enough.
const SAMPLES: u64 = 32;
/// Orderings that a difference may need, for what the bound says.
const DEPTH: u32 = 3;

/// One run with other answers than the canonical one's.
#[derive(Clone, Debug)]
pub struct Answered {
    /// Its place among the runs, from 1: what a token names.
    pub number: u32,
    /// Those that were answered *not ready*.
    pub denied: Vec<QueryPoint>,
    /// What came of it; an error where the run stopped.
    pub came: Result<Deviation, String>,
    /// The first hazard that the canonical run has not.
    pub hazard: Option<String>,
    /// The step after which the first checkpoint was asked for whose file is another one.
    pub file: Option<u32>,
}

/// That a query is answered otherwise, in words.
pub fn not_ready(query: &QueryPoint) -> String {
    let (rank, edge, site) = (query.id.rank, &query.edge, &query.site);
    format!("rank {rank} finds `{edge}` not ready at {site}")
}

impl Answered {
    /// What it does to the run.
    pub fn grade(&self) -> Grade {
        match (&self.came, &self.hazard) {
            (Err(_), _) => Grade::Divergent,
            (Ok(deviation), _) if deviation.metric.is_some() => Grade::Divergent,
            (Ok(_), _) if self.file.is_some() => Grade::Divergent,
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
            (Ok(_), Some(hazard), None) => format!("there is a hazard: {hazard}"),
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

/// What joint answers do.
#[derive(Clone, Debug, Default)]
pub struct Joint {
    /// Queries of the canonical run that both answers can be given to.
    pub open: u64,
    pub explored: Explored,
    /// Another answer makes other nodes run, or other queries.
    pub is_dynamic: bool,
    pub sampled: Option<Sampled>,
    /// Runs with one answer changed, in their order.
    pub singles: Vec<Answered>,
    /// The first run whose several answers have the worst consequence, if they have any.
    pub worst: Option<Answered>,
}

impl Joint {
    /// What is known of several answers together.
    pub fn grade(&self) -> Grade {
        let known = match self.is_dynamic || !self.explored.is_complete {
            true => Grade::Bounded,
            false => Grade::Proved,
        };
        known.max(self.worst.as_ref().map_or(Grade::Proved, Answered::grade))
    }

    pub fn notes(&self) -> Vec<String> {
        let Explored {
            runs,
            is_complete,
            answers_max,
            independent,
        } = self.explored;
        let mut notes = Vec::new();
        if self.explored.runs > 1 {
            let others = runs - 1;
            let reach = match is_complete {
                true => "all that are reached".to_string(),
                false => format!("all of at most {answers_max} answers among them"),
            };
            let mut note = format!("{others} sets of answers were run, {reach}");
            if independent > 0 {
                note += &format!("; {independent} additions were left out as independent");
            }
            notes.push(note);
        }
        if let Some(sampled) = &self.sampled {
            let Sampled {
                runs,
                tasks,
                events,
            } = sampled;
            let power = DEPTH - 1;
            notes.push(format!(
                "past that bound {runs} random priority schedules (PCT) of {tasks} tasks and \
                 {events} events, as the runs before have: one meets a difference that {DEPTH} \
                 orderings make with probability about 1/({tasks} x {events}^{power}) = {:.2e}, \
                 all with {:.2e}",
                sampled.of_one_run(),
                sampled.of_all_runs()
            ));
        }
        notes.extend(self.worst.iter().map(Answered::sentence));
        notes
    }

    fn take(&mut self, answered: Answered) {
        let deviation = answered.came.as_ref();
        self.is_dynamic |= deviation.is_ok_and(|deviation| deviation.other_nodes);
        // Of a run of random priorities that stopped, it is not known which they were.
        if answered.denied.len() == 1 {
            self.singles.push(answered);
            return;
        }
        let worst = self.worst.as_ref().map_or(Grade::Proved, Answered::grade);
        if answered.grade() > worst {
            self.worst = Some(answered);
        }
    }
}

/// Explores joint answers of the straight run; `until` is the last run that is asked for, where not
/// all are.
///
/// # Errors
/// A failure of the machine.
pub(super) fn explore(
    session: &mut Session,
    until: Option<u32>,
    progress: &dyn Progress,
) -> Result<Joint, CheckError> {
    let canonical = Canonical::followed(session, Course::Straight)?;
    let ranks = session.ranks();
    let mut exploration = Exploration {
        session,
        canonical,
        joint: Joint::default(),
        runs: 0,
        events: 0,
        points: BTreeMap::new(),
        tasks: BTreeSet::new(),
    };
    let runs_max = until.map_or(RUNS_MAX, |until| RUNS_MAX.min(until as usize + 1));
    let explored = answers::explore(ranks, runs_max, |denied| {
        let ran = exploration.answered(denied);
        progress.advance(1);
        ran
    })?;
    exploration.joint.explored = explored;
    let is_over = until.is_some_and(|until| u64::from(until) < explored.runs);
    if !explored.is_complete && !is_over {
        exploration.sample(until, progress)?;
    }
    Ok(exploration.joint)
}

/// The other answer to one query of the straight run.
///
/// # Errors
/// A failure of the machine.
pub(super) fn one(session: &mut Session, query: &QueryPoint) -> Result<Answered, CheckError> {
    let canonical = Canonical::followed(session, Course::Straight)?;
    let ran = canonical.changed(session, |options| {
        options.schedule.not_ready = [query.id].into();
    })?;
    let (hazard, file) = beside(&canonical, &ran);
    Ok(Answered {
        number: 1,
        denied: vec![query.clone()],
        hazard,
        file,
        came: ran.map(|(_, deviation)| deviation),
    })
}

/// The first hazard of a run that the canonical one has not, and the first file that is another.
fn beside(
    canonical: &Canonical<'_>,
    ran: &Result<(RunRecord, Deviation), String>,
) -> (Option<String>, Option<u32>) {
    let Ok((record, _)) = ran else {
        return (None, None);
    };
    let (own, other) = (&canonical.record.files, &record.files);
    let mut steps = own.keys().chain(other.keys());
    let file = steps.find(|step| own.get(step) != other.get(step)).copied();
    let known = |hazard: &&Hazard| {
        let mut known = canonical.record.hazards.iter();
        known.any(|one| reversal::is_same(one, hazard))
    };
    let hazard = record.hazards.iter().find(|hazard| !known(hazard));
    (hazard.map(ToString::to_string), file)
}

/// The queries of a run.
fn asked(record: &RunRecord) -> BTreeSet<QueryId> {
    record.queries.iter().map(|query| query.id).collect()
}

struct Exploration<'a> {
    session: &'a mut Session,
    canonical: Canonical<'static>,
    joint: Joint,
    /// Runs so far, without the canonical one.
    runs: u32,
    /// Two for each query of the run that asks most.
    events: u64,
    /// Every query of any run.
    points: BTreeMap<QueryId, QueryPoint>,
    /// Hosts that ask, and the work of theirs that they ask about.
    tasks: BTreeSet<(u32, Option<Name>)>,
}

impl Exploration<'_> {
    fn answered(&mut self, denied: &Answers) -> Result<Ran, CheckError> {
        if denied.is_empty() {
            let record = self.canonical.record.clone();
            let shown = self.seen(&record);
            self.joint.open = shown.open.len() as u64;
            return Ok(shown);
        }
        let ran = self.canonical.changed(self.session, |options| {
            options.schedule.not_ready = denied.clone();
        })?;
        self.runs += 1;
        let (hazard, file) = beside(&self.canonical, &ran);
        let (shown, came) = match ran {
            Ok((record, deviation)) => {
                // Queries are nodes, though those of a checkpoint are in no record of nodes.
                self.joint.is_dynamic |= asked(&record) != asked(&self.canonical.record);
                (self.seen(&record), Ok(deviation))
            }
            Err(error) => (Ran::default(), Err(error)),
        };
        // An answer is changed only where a run before has shown the query.
        let denied = denied.iter().map(|id| self.points[id].clone());
        self.joint.take(Answered {
            number: self.runs,
            denied: denied.collect(),
            came,
            hazard,
            file,
        });
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
        self.joint.sampled = Some(sampled);
        let mut random = ChaCha8Rng::seed_from_u64(self.session.scenario.seed);
        for _ in 0..SAMPLES {
            if until.is_some_and(|until| self.runs >= until) {
                break;
            }
            let seed = u64::from(random.next_u32());
            let change = |behind| (u64::from(random.next_u32()) % sampled.events, behind);
            let changes = (1..u64::from(DEPTH)).map(change).collect();
            let priorities = Priorities { seed, changes };
            let ran = self.canonical.changed(self.session, |options| {
                options.schedule.priorities = Some(priorities);
            })?;
            self.runs += 1;
            let (hazard, file) = beside(&self.canonical, &ran);
            let (denied, came) = match ran {
                Ok((record, deviation)) => {
                    let denied = record.queries.into_iter().filter(|query| query.denied);
                    (denied.collect(), Ok(deviation))
                }
                Err(error) => (Vec::new(), Err(error)),
            };
            let number = self.runs;
            self.joint.take(Answered {
                number,
                denied,
                came,
                hazard,
                file,
            });
            progress.advance(1);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
