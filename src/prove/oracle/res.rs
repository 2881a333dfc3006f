//! RES: a run that was killed and resumed, against the straight one.
//!
//! Where a run is killed is not a choice variable: it makes another graph. So three things are
//! compared. At the cut, every word that a later step reads but an earlier one wrote (the live-in
//! set): equal sets and insensitive points make equal runs ever after. After it, the roots of all
//! steps. And the resumed run is swept itself, as it has choice points of its own.
//!
//! A process replays CUDA graphs after some eager steps of its own. Where one run replays and the
//! other does not, the same kernels are launched among other copies and in another order: of these
//! steps the state and the metrics are compared.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use crate::fault::Component;
use crate::prove::memory;
use crate::prove::oracle::generations::Stale;
use crate::prove::oracle::r2r::{
    NodeDifference, first_difference, first_difference_at_sites, first_other_metric,
};
use crate::prove::oracle::replicas::LetIn;
use crate::prove::queries::Queries;
use crate::prove::reversal::Reversals;
use crate::prove::session::{CheckError, Session};
use crate::prove::sweep::Sweep;
use crate::train::{Checkpoint, CheckpointRoot};
use crate::world::memory::LiveIn;
use crate::world::{
    Drift, Hazard, NodeRecord, Observer, RunOptions, RunRecord, State, StateTensor, Unobserved,
};

/// Rank, component, name.
type StateKey = (u32, Component, String);

/// What a resumed run lacked or did otherwise.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Resumption {
    /// Step after which the run was killed.
    pub cut: u32,
    /// Steps whose roots were compared.
    pub steps_compared: u64,
    /// Live-in words that were compared.
    pub words_compared: u64,
    /// Components of which a live-in word differs.
    pub components: BTreeSet<Component>,
    /// The first buffer of a component that differs.
    pub lost: Option<LostWords>,
    /// Buffers with a live-in word that differs and that no component of the checkpoint covers,
    /// as (rank, buffer).
    pub uncovered: Vec<(u32, String)>,
    /// The first (step, rank) whose root differs.
    pub first_step: Option<(u32, u32)>,
    /// The first node of that step that differs.
    pub first_node: Option<NodeDifference>,
    /// Components that the checkpoint left out and of which nothing is read after the cut.
    pub unread: BTreeSet<Component>,
    /// Folds of the resumed run that are sensitive.
    pub sensitive: u64,
    /// Copies that disagree at the load, or in a step after it.
    pub drifts: Vec<Drift>,
    /// The node that let the first of them in, where the straight run has none.
    pub let_in: Option<LetIn>,
    /// Hazards of the load and of the first steps after it.
    pub hazards: Vec<Hazard>,
    /// What the last of them do: those that no run before has shown.
    pub reversals: Reversals,
    /// What other answers to its queries do.
    pub queries: Queries,
    /// Parts of the checkpoint that are of another step than it says.
    pub stale: Vec<Stale>,
}

/// Live-in words of one buffer that a resumed run has otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostWords {
    pub rank: u32,
    pub buffer: String,
    pub words: u64,
    pub of: u64,
    /// A rank whose words these are.
    pub those_of: Option<u32>,
}

impl std::fmt::Display for LostWords {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let LostWords {
            rank,
            buffer,
            words,
            of,
            those_of,
        } = self;
        write!(f, "{words} of {of} words of `{buffer}` on rank {rank}")?;
        match those_of {
            Some(other) => write!(f, ", which has those of rank {other}"),
            None => Ok(()),
        }
    }
}

impl Resumption {
    pub fn is_equal(&self) -> bool {
        self.components.is_empty()
            && self.uncovered.is_empty()
            && self.first_step.is_none()
            && self.sensitive == 0
            && self.drifts.is_empty()
            && self.hazards.is_empty()
            && self.queries.worst().is_none()
    }
}

/// One restart: the state at a cut, what a checkpoint of it leaves out, and where the run ends.
pub struct Restart<'a> {
    pub cut: u32,
    pub state: &'a State,
    pub omitted: &'a [Component],
    /// Last step of the resumed run.
    pub until: u32,
    /// Keep the state after that step, for the next restart.
    pub keep: bool,
}

/// A fresh world loads the checkpoint's bytes from a file and goes on.
///
/// # Errors
/// A file that cannot be written or read back, or whatever stops the resumed run.
pub fn resume(
    session: &mut Session,
    restart: &Restart<'_>,
    sweep: &mut Sweep,
) -> Result<RunRecord, CheckError> {
    let kept = restart.keep.then_some(restart.until).into_iter();
    let others = memory::steps_of_other_kind(&session.scenario, restart.cut);
    let options = RunOptions {
        keep_setup: true,
        hazard_steps_max: memory::resumed_hazard_steps(&session.scenario),
        // As in the straight run, whose hazards its own are beside.
        measure_writes: true,
        checkpoint_after: kept.chain(others).collect(),
        ..RunOptions::default()
    };
    run_on(session, restart, restart.until, &options, sweep)
}

/// Writes the checkpoint, a file a rank, reads it back, and runs on from it up to step `until`.
pub(crate) fn run_on(
    session: &mut Session,
    restart: &Restart<'_>,
    until: u32,
    options: &RunOptions,
    observer: &mut dyn Observer,
) -> Result<RunRecord, CheckError> {
    let folder = tempfile::tempdir().map_err(|error| {
        CheckError::Input(format!("no folder for a checkpoint can be had: {error}"))
    })?;
    let root = CheckpointRoot::new(folder.path());
    root.save(&Checkpoint::from_state(
        restart.cut,
        restart.state,
        restart.omitted,
    ))?;
    let loaded = Arc::new(root.load()?);
    let steps = restart.cut + 1..until + 1;
    let ran = session.run(options, steps, Some(loaded), observer);
    // The folder goes next, file by file.
    root.forget()?;
    Ok(ran?)
}

/// The first node of `step` at which the resumed run differs from the straight one: both are run
/// again up to that step, with a record of every node.
///
/// `None` where they do not launch the same nodes, and those that both launch agree.
///
/// # Errors
/// Whatever stops one of them, or two runs that agree now.
pub fn first_node(
    session: &mut Session,
    restart: &Restart<'_>,
    step: u32,
) -> Result<Option<NodeDifference>, CheckError> {
    let options = RunOptions {
        record_nodes: true,
        ..RunOptions::default()
    };
    let reference = RunOptions {
        faults: session.corruption(),
        ..options.clone()
    };
    let straight = session.plain_run(&reference, 1..step + 1)?;
    let resumed = run_on(session, restart, step, &options, &mut Unobserved)?;
    let of_step = |record: RunRecord| -> Vec<NodeRecord> {
        let records = record.records.into_iter();
        records.filter(|record| record.site.step == step).collect()
    };
    let (straight, resumed) = (of_step(straight), of_step(resumed));
    if memory::steps_of_other_kind(&session.scenario, restart.cut).contains(&step) {
        return Ok(first_difference_at_sites(&straight, &resumed));
    }
    match first_difference(&straight, &resumed) {
        None => Err(CheckError::Internal(format!(
            "step {step} differs, and no node of it does"
        ))),
        found => Ok(found),
    }
}

/// Components among `omitted` of which no word is in the straight run's live-in set at `cut`.
pub fn unread(straight: &RunRecord, cut: u32, omitted: &[Component]) -> BTreeSet<Component> {
    let live_in = straight.live_in.get(&cut).into_iter().flatten();
    let read: BTreeSet<Component> = live_in
        .filter_map(|(key, _)| straight.setup_components.get(key))
        .flatten()
        .copied()
        .collect();
    let omitted = omitted.iter().copied();
    omitted
        .filter(|component| !read.contains(component))
        .collect()
}

/// Compares a resumed run with the straight one. Steps of `other_kind` launch other nodes.
pub fn compare(
    cut: u32,
    straight: &RunRecord,
    resumed: &RunRecord,
    sensitive: u64,
    other_kind: Range<u32>,
) -> Resumption {
    let mut found = Resumption {
        cut,
        sensitive,
        drifts: resumed.drifts.clone(),
        hazards: resumed.hazards.clone(),
        ..Resumption::default()
    };
    let live_in = straight.live_in.get(&cut);
    let live_in = live_in.expect("the straight run followed every cut");
    compare_live_in(live_in, resumed, &mut found);
    for ((step, rank), root) in &resumed.roots {
        found.steps_compared += 1;
        let differs = match other_kind.contains(step) {
            true => state_of(straight, *step, *rank) != state_of(resumed, *step, *rank),
            false => straight.roots.get(&(*step, *rank)) != Some(root),
        };
        if differs && found.first_step.is_none() {
            found.first_step = Some((*step, *rank));
        }
    }
    let metric = first_other_metric(resumed, straight);
    if let (None, Some((step, _))) = (found.first_step, metric) {
        found.first_step = Some((*step, 0));
    }
    found
}

/// What a rank's state was after a step, which was kept.
fn state_of(run: &RunRecord, step: u32, rank: u32) -> Vec<(&StateKey, &StateTensor)> {
    let kept = run.checkpoints.get(&step).expect("it was asked for");
    let own = kept.iter().filter(|((of, ..), _)| *of == rank);
    own.collect()
}

fn compare_live_in(live_in: &LiveIn, resumed: &RunRecord, found: &mut Resumption) {
    for (key, expected) in live_in {
        let (rank, name, _) = key;
        let got = resumed.setup.get(key);
        let differs = |(from, to): &(u32, u32)| {
            let range = *from as usize..*to as usize;
            got.and_then(|got| got.get(range.clone())) != Some(&expected.words[range])
        };
        found.words_compared += expected
            .ranges
            .iter()
            .map(|(from, to)| u64::from(to - from))
            .sum::<u64>();
        let bad: Vec<&(u32, u32)> = expected
            .ranges
            .iter()
            .filter(|range| differs(range))
            .collect();
        if bad.is_empty() {
            continue;
        }
        let covering = resumed.setup_components.get(key);
        match covering {
            Some(components) if !components.is_empty() => {
                found.components.extend(components);
                let lost = || lost_words(live_in, key, got);
                found.lost = found.lost.take().or_else(lost);
            }
            _ => found.uncovered.push((*rank, name.clone())),
        }
    }
}

/// What `got` has otherwise than the live-in words at `key`.
fn lost_words(
    live_in: &LiveIn,
    key: &(u32, String, u32),
    got: Option<&Vec<u32>>,
) -> Option<LostWords> {
    let (rank, buffer, occurrence) = key;
    let got = got?;
    let expected = live_in.get(key)?;
    let ranges = || expected.ranges.iter();
    let places = || ranges().flat_map(|(from, to)| *from as usize..*to as usize);
    let differs = |place: &usize| got.get(*place) != expected.words.get(*place);
    let is_of = |other: &&(u32, String, u32)| {
        let words = &live_in[*other].words;
        let is_same = |place: usize| got.get(place).is_some() && got.get(place) == words.get(place);
        (&other.1, other.2) == (buffer, *occurrence) && places().all(is_same)
    };
    Some(LostWords {
        rank: *rank,
        buffer: buffer.clone(),
        words: places().filter(differs).count() as u64,
        of: ranges().map(|(from, to)| u64::from(to - from)).sum(),
        those_of: live_in.keys().find(is_of).map(|(other, ..)| *other),
    })
}

#[cfg(test)]
mod tests;
