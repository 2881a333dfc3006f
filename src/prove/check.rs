//! One whole check of a scenario: reference run with its sweep, second run, restarts, planted
//! faults, and what follows from them.

use crate::engine::EngineChoice;
use crate::fault::{Component, Fault};
use crate::prove::certificate;
use crate::prove::deviation::Course;
use crate::prove::effect::{self, Effect};
use crate::prove::mutation::{self, Nursery};
use crate::prove::native::{self, NativeRaces, Races};
use crate::prove::oracle::generations;
use crate::prove::oracle::r2r::{self, NodeDifference};
use crate::prove::oracle::reference::{self, Provenances};
use crate::prove::oracle::replicas::{self, LetIn};
use crate::prove::oracle::res::{self, Restart, Resumption};
use crate::prove::oracle::reshard::{self, Resharding};
use crate::prove::oracle::snapshot::{self, Snapshots};
use crate::prove::oracle::topo::{self, Topo};
use crate::prove::outcome::{MutantScore, Outcome, Remedy};
use crate::prove::queries::{self, Queries};
use crate::prove::recording::{Recorded, Recorder, TraceRequest};
use crate::prove::remedy;
use crate::prove::reversal::{self, Known, Reversals};
use crate::prove::session::{CheckError, Session};
use crate::prove::stop::Stop;
use crate::prove::sweep::{Reach, Sweep};
use crate::prove::{Progress, Silent, faults, grade, memory};
use crate::scenario::{OracleKind, Scenario};
use crate::trace::native::RecordingError;
use crate::world::{Hazard, Observer, QueryPoint, RunOptions, RunRecord, Schedule};

/// How a check is carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckOptions {
    /// Threads that run kernels.
    pub workers: usize,
    /// What runs them. A graphics adapter whose arithmetic is not strict has bits of its own.
    pub engine: EngineChoice,
    /// How often each fold in arrival order is run with true atomics on an adapter, too.
    pub native_races: Option<u32>,
}

impl Default for CheckOptions {
    fn default() -> Self {
        CheckOptions {
            workers: 2,
            engine: EngineChoice::Cpu,
            native_races: None,
        }
    }
}

/// Restarts of one run each, by the steps after which it was killed, and what was found.
pub type Resumptions = Vec<(Vec<u32>, Resumption)>;

/// What the parts of a check found, before it is put into words.
pub struct Findings {
    pub reference: RunRecord,
    pub sweep: Sweep,
    /// The first node of the second run that differs; the outer `None` is a replay, which has none.
    pub second: Option<Option<NodeDifference>>,
    /// The node that let the reference run's first drift between ranks in.
    pub let_in: Option<LetIn>,
    /// One entry a restart; `None` when RES was not asked for.
    pub resumptions: Option<Resumptions>,
    /// Files of background writers; `None` where nothing is saved by one.
    pub snapshots: Option<Snapshots>,
    /// Resumes on other layouts.
    pub reshardings: Vec<Resharding>,
    /// Other sizes and places.
    pub topo: Vec<Topo>,
    /// Who contributed to the gradients; `None` when REF was not asked for.
    pub provenances: Option<Provenances>,
    pub mutants: MutantScore,
    pub effect: Option<Effect>,
    /// What the reference run's hazards do, in their order.
    pub reversals: Reversals,
    /// What other answers to queries do.
    pub queries: Queries,
    /// Why there is nothing else, where a run could not go on.
    pub stopped: Option<Stop>,
    /// What true atomics gave, where they were asked for.
    pub native_races: Option<NativeRaces>,
}

impl Findings {
    /// Whether a run was resumed, and only behind steps that change nothing of what a checkpoint
    /// may lack.
    pub(super) fn hides_losses(&self) -> bool {
        let resumed = self
            .resumptions
            .as_ref()
            .is_some_and(|runs| !runs.is_empty());
        resumed && !self.mutants.coinciding.is_empty()
    }

    /// Its runs, and nothing else yet: all that a replay has.
    pub(super) fn of_replay(reference: RunRecord, sweep: Sweep) -> Findings {
        Findings {
            reference,
            sweep,
            second: None,
            let_in: None,
            resumptions: None,
            snapshots: None,
            reshardings: Vec::new(),
            topo: Vec::new(),
            provenances: None,
            mutants: MutantScore::default(),
            effect: None,
            reversals: Reversals::default(),
            queries: Queries::default(),
            stopped: None,
            native_races: None,
        }
    }
}

/// Checks `scenario`.
///
/// # Errors
/// Input that cannot be run, and failures of the machine. What a check finds is never an error.
pub fn check(
    scenario: Scenario,
    options: CheckOptions,
    progress: &dyn Progress,
) -> Result<Outcome, CheckError> {
    check_recorded(scenario, options, None, progress).map(|(outcome, _)| outcome)
}

/// How a recording ended.
pub type RecordingEnd = Result<Recorded, RecordingError>;

/// Checks `scenario`, and records its straight reference run where that is asked for. A recording
/// that fails on its way changes no verdict.
///
/// # Errors
/// As [`check`], and a folder that cannot be recorded into.
pub fn check_recorded(
    scenario: Scenario,
    options: CheckOptions,
    asked: Option<&TraceRequest>,
    progress: &dyn Progress,
) -> Result<(Outcome, Option<RecordingEnd>), CheckError> {
    let races = Races::asked(&options, scenario.seed)?;
    let mut session = Session::new(scenario, &options)?;
    if let Some(asked) = asked {
        let fits = asked.fits(session.ranks(), session.scenario.steps);
        fits.map_err(CheckError::Input)?;
    }
    let mut recorder = asked
        .map(|asked| Recorder::begin(&session, asked))
        .transpose()?;
    let watches = Watches {
        races,
        recorder: recorder.as_mut(),
    };
    let found = straight(&mut session, &options, watches, progress);
    // Of a run that could not go on, the files have no end.
    let recorded = match &found {
        Ok(_) => recorder.map(Recorder::end),
        Err(_) => None,
    };
    let outcome = judged(&mut session, options, found, progress)?;
    Ok((outcome, recorded))
}

/// What a check says, given what its straight run showed.
fn judged(
    session: &mut Session,
    options: CheckOptions,
    found: Result<Findings, CheckError>,
    progress: &dyn Progress,
) -> Result<Outcome, CheckError> {
    let mut findings = match found {
        Ok(findings) => findings,
        Err(CheckError::Stopped(stop)) => stopped(session, *stop),
        Err(error) => return Err(error),
    };
    let remedies = match findings.stopped {
        Some(_) => Vec::new(),
        None => match beside(session, &mut findings, progress) {
            Ok(remedies) => remedies,
            // What the straight run showed stands.
            Err(CheckError::Stopped(stop)) => {
                findings.stopped = Some(*stop);
                Vec::new()
            }
            Err(error) => return Err(error),
        },
    };
    let verdicts = grade::of_check(session, &findings);
    Ok(certificate::outcome(
        session, options, findings, verdicts, remedies,
    ))
}

/// Who looks at the reference run beside the sweep.
struct Watches<'a> {
    races: Option<Races>,
    recorder: Option<&'a mut Recorder>,
}

/// All that there is to say of a run that could not go on.
pub(super) fn stopped(session: &Session, stop: Stop) -> Findings {
    let sweep = Sweep::new(session.sweep_options());
    Findings {
        stopped: Some(stop),
        ..Findings::of_replay(RunRecord::default(), sweep)
    }
}

/// What the straight run shows: its choices, its schedule, itself again.
fn straight(
    session: &mut Session,
    options: &CheckOptions,
    watches: Watches<'_>,
    progress: &dyn Progress,
) -> Result<Findings, CheckError> {
    let steps = u64::from(session.scenario.steps);

    progress.begin("reference run", steps);
    let mut sweep = Sweep::new(session.sweep_options());
    let Watches {
        mut races,
        recorder,
    } = watches;
    let run = native::reference_run(session, &mut sweep, races.as_mut(), recorder);
    let of_recipe = |error: CheckError| error.stop_shown_by(OracleKind::R2R);
    let mut reference = match run.map_err(of_recipe) {
        Ok(reference) => reference,
        Err(error) => return Err(r2r::told_of_stop(session, options.workers, error)?),
    };
    progress.end();

    progress.begin("second run", steps);
    let second = r2r::second_run(session, options.workers, &reference);
    let second = second.map_err(of_recipe);
    let second = Some(second.map_err(|error| error.not_repeated(&reference.hazards))?);
    progress.end();

    let had = RunOptions {
        faults: session.corruption(),
        ..RunOptions::default()
    };
    let let_in = replicas::let_in(session, Course::Straight, &had, &reference.drifts)?;
    let count = reference.hazards.len() as u32;
    let canonical = (Course::Straight, &Schedule::default());
    let hazards = &mut reference.hazards;
    let mut reversals = reversal::turn_round(session, canonical, hazards, progress)?;
    let known = Known {
        told: reference.hazards.iter().collect(),
        ordered: reversals.ordered.iter().collect(),
    };
    let asked = (&reference.queries[..], &known);
    let mut queries = queries::deny(session, Course::Straight, asked, progress)?;
    reference.hazards.append(&mut queries.late);
    reversals.append(count, std::mem::take(&mut queries.late_reversals));
    Ok(Findings {
        second,
        let_in,
        effect: effect::measure(session, &sweep)?,
        reversals,
        queries,
        native_races: races.map(Races::end),
        ..Findings::of_replay(reference, sweep)
    })
}

/// What other runs show beside the straight one, and what would remove what was found.
fn beside(
    session: &mut Session,
    findings: &mut Findings,
    progress: &dyn Progress,
) -> Result<Vec<Remedy>, CheckError> {
    let of_resumed = |error: CheckError| error.stop_shown_by(OracleKind::RES);
    let resumed = resumed(session, &findings.reference, progress).map_err(of_resumed)?;
    (findings.snapshots, findings.resumptions) = resumed;
    let scenario = &session.scenario;
    if scenario.topo.is_empty() && scenario.checkpoint.reshard.is_empty() {
        faults::refuse_unmet(session)?;
    }

    let (reference, sweep) = (&findings.reference, &findings.sweep);
    let resharded = reshardings(session, reference, sweep, progress);
    findings.reshardings = resharded.map_err(of_resumed)?;
    findings.topo = varied(session, reference, sweep, progress)?;
    let varied = findings.topo.iter().map(|found| &found.faults_met);
    let resharded = findings.reshardings.iter().map(|found| &found.faults_met);
    let met = varied.chain(resharded).flatten().cloned();
    session.faults_met.extend(met);
    faults::refuse_unmet(session)?;

    findings.provenances = match session.scenario.oracles.contains(&OracleKind::REF) {
        true => Some(reference::follow(session, &RunOptions::default())?),
        false => None,
    };
    let (reference, sweep) = (&findings.reference, &findings.sweep);
    findings.mutants = planted(session, reference, sweep, progress)?;
    remedy::tried(session, findings, progress)
}

/// Faults planted into the scenario, and which of them were caught.
fn planted(
    session: &mut Session,
    reference: &RunRecord,
    sweep: &Sweep,
    progress: &dyn Progress,
) -> Result<MutantScore, CheckError> {
    let kinds = crate::fault::MutantKind::all().len();
    progress.begin("planted faults", kinds as u64);
    let nursery = Nursery {
        catalogue: &sweep.catalogue,
        sums: &sweep.sums,
        straight: reference,
        state: reference.checkpoints.get(&1),
    };
    let mutants = mutation::score(session, &nursery, || progress.advance(1))?;
    progress.end();
    Ok(mutants)
}

/// The files of background writers, and the runs that were resumed.
type Resumed = (Option<Snapshots>, Option<Resumptions>);

/// What RES compares, where it is asked for.
fn resumed(
    session: &mut Session,
    reference: &RunRecord,
    progress: &dyn Progress,
) -> Result<Resumed, CheckError> {
    if !session.scenario.oracles.contains(&OracleKind::RES) {
        return Ok((None, None));
    }
    let count = session.scenario.checkpoint.restarts.len();
    progress.begin("restarts", count as u64);
    let snapshots = snapshot::compare(session, reference)?;
    let lists = session.scenario.checkpoint.restarts.clone();
    let straight = Straight {
        reference,
        snapshots: snapshots.as_ref(),
    };
    let resumptions = restarts_of(session, &straight, &lists, progress)?;
    progress.end();
    Ok((snapshots, Some(resumptions)))
}

/// The canonical schedule's run, with the sweep watching, hazards looked for and cuts followed.
pub fn reference_run(
    session: &mut Session,
    sweep: &mut dyn Observer,
) -> Result<RunRecord, CheckError> {
    let scenario = &session.scenario;
    let cuts = memory::cuts(scenario);
    let options = RunOptions {
        checkpoint_after: memory::states_kept(scenario),
        cuts,
        hazard_steps_max: memory::hazard_steps_max(scenario),
        measure_writes: true,
        keep_setup: !scenario.topo.is_empty(),
        faults: session.corruption(),
        ..RunOptions::default()
    };
    let steps = session.steps();
    Ok(session.run(&options, steps, None, sweep)?)
}

/// The straight run, as resumed ones are compared with it.
pub(super) struct Straight<'a> {
    pub reference: &'a RunRecord,
    pub snapshots: Option<&'a Snapshots>,
}

/// Resumes at each cut of each list, from what the run before it saved.
pub(super) fn restarts_of(
    session: &mut Session,
    straight: &Straight<'_>,
    lists: &[Vec<u32>],
    progress: &dyn Progress,
) -> Result<Resumptions, CheckError> {
    let reference = straight.reference;
    let last = session.scenario.steps;
    let omitted: Vec<Component> = session.scenario.checkpoint.omit.iter().copied().collect();
    let mut found: Resumptions = Vec::new();
    for list in lists {
        let mut carried: Option<RunRecord> = None;
        let cuts: Vec<u32> = list.iter().copied().filter(|cut| *cut < last).collect();
        for (place, cut) in cuts.iter().copied().enumerate() {
            let until = cuts.get(place + 1).copied();
            let source = carried.as_ref().unwrap_or(reference);
            let file = straight.snapshots.and_then(|snapshots| match &carried {
                None => snapshots.loaded.get(&cut),
                Some(resumed) => resumed.files.get(&cut).map(|file| &file.state),
            });
            let state = file
                .or_else(|| source.checkpoints.get(&cut))
                .ok_or_else(|| {
                    CheckError::Internal(format!("no state was kept after step {cut}"))
                })?;
            let mixed = generations::mixed(session, (cut, state), reference);
            let state = mixed.as_ref().unwrap_or(state);
            let restart = Restart {
                cut,
                state,
                omitted: &omitted,
                until: until.unwrap_or(last),
                keep: until.is_some(),
            };
            let mut sweep = Sweep::new(session.sweep_options());
            let resumed = res::resume(session, &restart, &mut sweep)?;
            let sensitive = sweep.sensitive.get(&Reach::Within).copied().unwrap_or(0);
            let other_kind = memory::steps_of_other_kind(&session.scenario, cut);
            let mut resumption = res::compare(cut, reference, &resumed, sensitive, other_kind);
            resumption.unread = res::unread(reference, cut, &omitted);
            resumption.stale = generations::stale(reference, cut, state);
            turn_own_round(session, &restart, reference, (&found, &mut resumption))?;
            let asked = (reference, &resumed.queries[..]);
            answer_otherwise(session, &restart, asked, &mut resumption)?;
            let is_first = found
                .iter()
                .all(|(_, earlier): &(_, Resumption)| earlier.is_equal());
            if reference.drifts.is_empty() {
                let course = Course::Resumed(&restart);
                let had = RunOptions::default();
                resumption.let_in = replicas::let_in(session, course, &had, &resumed.drifts)?;
            }
            if let (true, Some((step, _))) = (is_first, resumption.first_step) {
                resumption.first_node = res::first_node(session, &restart, step)?;
            }
            found.push((list.clone(), resumption));
            let is_scaled = session.options.loss_scale.is_some();
            let is_held = |fault: &Fault| is_scaled || fault.at != Component::LossScaler.name();
            let lacked = session.scenario.faults.omissions().into_iter();
            session.faults_met.extend(lacked.filter(is_held));
            carried = Some(resumed);
        }
        progress.advance(1);
    }
    Ok(found)
}

/// Turns the hazards round that no other run is known to have. They come last then. What another
/// run orders, this one need not.
fn turn_own_round(
    session: &mut Session,
    restart: &Restart<'_>,
    straight: &RunRecord,
    (earlier, found): (&Resumptions, &mut Resumption),
) -> Result<(), CheckError> {
    let known = straight.hazards.iter();
    let known = known.chain(earlier.iter().flat_map(|(_, one)| &one.hazards));
    let known: Vec<&Hazard> = known.collect();
    let hazards = std::mem::take(&mut found.hazards).into_iter();
    let is_known = |hazard: &Hazard| known.iter().any(|one| reversal::is_same(one, hazard));
    let (mut hazards, mut own): (Vec<_>, Vec<_>) = hazards.partition(is_known);
    let canonical = (Course::Resumed(restart), &Schedule::default());
    found.reversals = reversal::turn_round(session, canonical, &mut own, &Silent)?;
    hazards.append(&mut own);
    found.hazards = hazards;
    Ok(())
}

/// What other answers to the queries of a resumed run do.
fn answer_otherwise(
    session: &mut Session,
    restart: &Restart<'_>,
    (straight, asked): (&RunRecord, &[QueryPoint]),
    found: &mut Resumption,
) -> Result<(), CheckError> {
    let known = Known {
        told: straight.hazards.iter().chain(&found.hazards).collect(),
        ordered: found.reversals.ordered.iter().collect(),
    };
    let course = Course::Resumed(restart);
    let mut queries = queries::deny(session, course, (asked, &known), &Silent)?;
    let count = found.hazards.len() as u32;
    found.hazards.append(&mut queries.late);
    found
        .reversals
        .append(count, std::mem::take(&mut queries.late_reversals));
    found.queries = queries;
    Ok(())
}

/// Resumes on other layouts, where RES is asked for.
fn reshardings(
    session: &Session,
    reference: &RunRecord,
    sweep: &Sweep,
    progress: &dyn Progress,
) -> Result<Vec<Resharding>, CheckError> {
    let plan = &session.scenario.checkpoint;
    let asked = session.scenario.oracles.contains(&OracleKind::RES);
    // Copies that differ have no whole state: the drift is the finding.
    let places = session.scenario.other_allocations().len();
    let others = plan.reshard.len() + places.min(reshard::PLACES_MAX);
    if others == 0 || !asked || !reference.drifts.is_empty() {
        return Ok(Vec::new());
    }
    let runs = others * plan.cuts().len();
    progress.begin("resumes elsewhere", runs as u64);
    let found = reshard::resume_all(session, reference, sweep, progress)?;
    progress.end();
    Ok(found)
}

/// Runs of other sizes and in other places, where TOPO is asked for.
fn varied(
    session: &Session,
    reference: &RunRecord,
    sweep: &Sweep,
    progress: &dyn Progress,
) -> Result<Vec<Topo>, CheckError> {
    let asked = session.scenario.oracles.contains(&OracleKind::TOPO);
    // Copies that differ have no whole state: the drift is the finding.
    if session.scenario.topo.is_empty() || !asked || !reference.drifts.is_empty() {
        return Ok(Vec::new());
    }
    progress.begin("other sizes and places", session.scenario.topo.len() as u64);
    let found = topo::vary_all(session, reference, &sweep.sums, progress)?;
    progress.end();
    Ok(found)
}
