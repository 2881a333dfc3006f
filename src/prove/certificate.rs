//! The outcome of a check in its final form: verdicts, witness, certificate, and what none of them
//! says.

mod oracles;

pub(super) use oracles::resumption_text;

use std::cmp::Reverse;

use crate::numerics::Digest;
use crate::numerics::ladder::sampling_bound;
use crate::plan::PLAN_BASIS;
use crate::prove::check::{CheckOptions, Findings};
use crate::prove::grade::Verdicts;
use crate::prove::oracle::r2r;
use crate::prove::outcome::{
    Certificate, EARLY_RESTARTS, HIDDEN_GATHERS, Hazard, InputPoint, NOTHING_CAME, Outcome,
    PointCount, Remedy, ReshardResult, ScenarioIdentity, SelfTestResult, SerialResult, TopoResult,
};
use crate::prove::reversal::Consequence;
use crate::prove::session::Session;
use crate::prove::sweep::Sweep;
use crate::prove::token::hexadecimal;
use crate::prove::{
    Grade, first_divergence, memory, origin, reproduction, reversal, uncovered, vacuity, witness,
};
use crate::train::Trainer;
use crate::world::{GroupId, RunRecord};

/// Probability that L5's bound may be wrong.
const SAMPLING_DELTA: f64 = 0.05;

/// Puts everything that was found into one outcome.
pub(super) fn outcome(
    session: &Session,
    options: CheckOptions,
    findings: Findings,
    verdicts: Verdicts,
    remedies: Vec<Remedy>,
) -> Outcome {
    let scenario = &session.scenario;
    let (reach, finding) = findings.sweep.first.iter().next().unzip();
    let alone = reach.and_then(|reach| findings.effect.as_ref()?.alone.get(reach));
    let witness = finding.map(|finding| witness::of(session, finding, alone));
    let visible_effect =
        reach.and_then(|reach| findings.effect.as_ref()?.visible.get(reach).cloned());
    let reached = [verdicts.within, verdicts.across].into_iter().flatten();
    let grade = reached.max().expect("one of the verdicts was reached");
    let unrepeated = unrepeated(&findings);
    let origin = origin::of(session, &findings);
    let followed = findings.provenances.as_ref();
    let unfollowed = followed.map_or(Vec::new(), |found| found.not_covered(scenario.steps));
    Outcome {
        scenario: ScenarioIdentity {
            name: scenario.name.clone(),
            hash: hexadecimal(&scenario.content_hash()),
            not_covered: scenario.not_covered.clone(),
        },
        within: verdicts.within,
        across: verdicts.across,
        imported: scenario.imported.clone(),
        recipe: scenario.recipe.clone(),
        faults: scenario.fault_words(),
        engine: session.engine_identity(),
        steps: scenario.steps,
        ranks: session.ranks(),
        nodes: findings.reference.nodes,
        peak_bytes: peak(&findings.reference),
        points: points(session, &findings.sweep),
        input_points: input_points(&findings.sweep),
        input_point_count: findings.sweep.input_point_count,
        sampling: sampling(&findings.sweep),
        hazards: hazards(&findings),
        hazards_beyond: findings.reference.hazards_beyond,
        notes: notes(session, &findings, verdicts),
        origin: origin.clone(),
        oracles: oracles::all(session, &findings),
        stop: findings.stopped.clone(),
        reshardings: reshardings(&findings),
        serial: followed.map(|found| SerialResult::from(&found.values)),
        topo: findings.topo.iter().map(TopoResult::from).collect(),
        vacuity: match unrepeated {
            Some(_) => Vec::new(),
            None => vacuity::findings(session, &findings),
        },
        first_divergence: first_divergence::of(session, &findings),
        replay: reproduction::token(session, &findings, grade, origin.as_ref()),
        mutants: findings.mutants,
        native_races: findings.native_races,
        witness,
        visible_effect,
        remedies,
        losses: losses(&findings.reference),
        regression: None,
        like: None,
        certificate: certificate(session, options, &findings.reference, unrepeated),
        not_covered: uncovered::sentences(session, &findings.reference, &unfollowed),
        not_said: not_said(grade, verdicts.across.is_some(), scenario.environment_known),
    }
}

fn reshardings(findings: &Findings) -> Vec<ReshardResult> {
    let found = findings.reshardings.iter();
    found.map(ReshardResult::from).collect()
}

/// What is printed as the loss, a value a step.
fn losses(record: &RunRecord) -> Vec<f32> {
    let metrics = record.metrics.iter();
    let losses = metrics.filter(|((_, name), _)| name == Trainer::LM_LOSS);
    losses.map(|(_, loss)| *loss).collect()
}

/// Why there is no second run: a replay looks at what its token names, a straight run that stopped
/// has nothing to compare. Neither judges vacuity.
fn unrepeated(findings: &Findings) -> Option<&'static str> {
    match (&findings.second, &findings.stopped) {
        (Some(_), _) => None,
        (None, Some(_)) => Some("where a run stops"),
        (None, None) => Some("in a replay"),
    }
}

fn points(session: &Session, sweep: &Sweep) -> Vec<PointCount> {
    let full = session.sweep_options().full_size;
    let count = |(key, tally): (&crate::prove::sweep::TallyKey, &crate::prove::sweep::Tally)| {
        let group = tally.group.map(GroupId);
        let at_full_size = full.addends(key.family, group, tally.addends_max);
        PointCount {
            family: key.family,
            reach: key.reach,
            choice: key.choice.to_string(),
            rung: key.rung,
            points: tally.points,
            addends_min: tally.addends_min,
            addends_max: tally.addends_max,
            addends_at_full_size: Some(u64::from(at_full_size)),
        }
    };
    sweep.tallies.iter().map(count).collect()
}

fn input_points(sweep: &Sweep) -> Vec<InputPoint> {
    let listed = sweep.input_points.iter().map(|point| InputPoint {
        site: point.site.clone(),
        family: point.family,
        rung: point.rung,
        addends: point.addends,
        addends_at_full_size: u64::from(point.addends_at_full_size),
    });
    listed.collect()
}

fn sampling(sweep: &Sweep) -> Option<String> {
    let orders = sweep.orders_sampled_min?;
    let sampled = sweep
        .tallies
        .iter()
        .filter(|(key, _)| key.rung == Some(crate::numerics::ladder::Rung::L5));
    let points: u64 = sampled.map(|(_, tally)| tally.points).sum();
    let bound = sampling_bound(points, orders, SAMPLING_DELTA);
    Some(format!(
        "{points} points were only sampled, with at least {orders} orders each: at confidence \
         {}, none of them parts with a probability above {bound:.3} under these orders",
        1.0 - SAMPLING_DELTA
    ))
}

/// The most that a rank held at once, and the first one that did.
fn peak(record: &RunRecord) -> Option<(u64, u32)> {
    let peaks = record.peak_bytes.iter();
    let (rank, bytes) = peaks.max_by_key(|(rank, bytes)| (**bytes, Reverse(**rank)))?;
    Some((*bytes, *rank))
}

fn notes(session: &Session, findings: &Findings, verdicts: Verdicts) -> Vec<String> {
    let mut notes = findings.reference.notes.clone();
    let within = verdicts.within.into_iter().chain(verdicts.across).max();
    if within.is_some_and(|grade| grade <= Grade::Vacuous) && !session.scenario.faults.is_empty() {
        notes.push(NOTHING_CAME.to_string());
    }
    let skipped = vacuity::skipped_steps(&findings.reference);
    if memory::run_hides_gathers(&session.scenario, &skipped) {
        notes.push(HIDDEN_GATHERS.to_string());
    }
    if findings.hides_losses() {
        let losses = findings.mutants.coinciding.join(", ");
        notes.push(format!("{EARLY_RESTARTS} {losses}"));
    }
    notes.extend(findings.reversals.notes());
    notes.extend(findings.queries.notes());
    for (list, found) in findings.resumptions.iter().flatten() {
        let of_run = found.queries.notes().into_iter();
        let cut = found.cut;
        notes.extend(of_run.map(|note| format!("restarts {list:?}, after step {cut}: {note}")));
    }
    if findings.stopped.is_none() && findings.second.is_none() {
        notes.push(
            "a replay runs what its token names and judges nothing else: other findings of the \
             check are not looked for"
                .to_string(),
        );
    }
    notes
}

/// Each mistake once: a resumed run shows those of the straight run again.
fn hazards(findings: &Findings) -> Vec<Hazard> {
    let own = &findings.reference.hazards;
    let resumptions = findings.resumptions.iter().flatten();
    let resumed = resumptions
        .flat_map(|(_, found)| with_consequences(&found.hazards, &found.reversals.consequences));
    let reshardings = findings.reshardings.iter();
    let resharded = reshardings.flat_map(|found| with_consequences(&found.run.hazards, &[]));
    let varied = findings.topo.iter();
    let varied = varied.flat_map(|found| with_consequences(&found.run.hazards, &[]));
    let saving = findings.snapshots.iter();
    let saving = saving.flat_map(|snapshots| with_consequences(&snapshots.hazards, &[]));
    let mut known = with_consequences(own, &findings.reversals.consequences);
    let stop = findings.stopped.iter();
    let stop = stop.flat_map(|stop| with_consequences(&stop.hazards, &[]));
    for (hazard, consequence) in stop
        .chain(saving)
        .chain(resumed)
        .chain(resharded)
        .chain(varied)
    {
        if !known.iter().any(|(one, _)| reversal::is_same(one, hazard)) {
            known.push((hazard, consequence));
        }
    }
    let told = known.into_iter().map(|(hazard, consequence)| Hazard {
        consequence: consequence.map(ToString::to_string),
        ..Hazard::from(hazard.clone())
    });
    told.collect()
}

/// What the last of the hazards do: those before them were turned round elsewhere.
fn with_consequences<'a>(
    hazards: &'a [crate::world::Hazard],
    consequences: &'a [Consequence],
) -> Vec<(&'a crate::world::Hazard, Option<&'a Consequence>)> {
    let untold = hazards.len() - consequences.len();
    let told = consequences.iter().map(Some);
    let told = std::iter::repeat_n(None, untold).chain(told);
    hazards.iter().zip(told).collect()
}

fn certificate(
    session: &Session,
    options: CheckOptions,
    reference: &RunRecord,
    unrepeated: Option<&str>,
) -> Certificate {
    let recipe = serde_json::to_vec(&session.scenario.recipe).expect("a recipe has a JSON form");
    Certificate {
        recipe_hash: blake3::hash(&recipe).to_string(),
        data_hash: session.data_hash.to_string(),
        kernels_hash: hexadecimal(&session.registry.hash()),
        variables: session.scenario.choice_variables(),
        plan_basis: plan_basis(session),
        assumptions: assumptions(unrepeated),
        second_run: match unrepeated {
            Some(reason) => format!("none {reason}"),
            None => r2r::describe(&options.engine, options.workers),
        },
        root_hash: root_hash(reference),
        self_test: SelfTestResult {
            expressions: session.self_test.expressions.len(),
            differing: session.self_test.differing().collect(),
        },
    }
}

fn root_hash(reference: &RunRecord) -> String {
    let roots = reference.roots.iter();
    let all = roots.fold(Digest::default(), |all, ((step, rank), root)| {
        let place = Digest::of_words(&[*step, *rank]);
        all.then(place).then(*root)
    });
    all.to_string()
}

fn plan_basis(session: &Session) -> String {
    let mut basis = PLAN_BASIS.to_string();
    let mut allocations = session.scenario.allocations.iter();
    if allocations.any(|file| !file.allocation.recorded.is_empty()) {
        basis += "; channels, rings and trees of communicators that an allocation file has \
                  recorded, as it has them";
    }
    if session.plans_at_full_size {
        basis += "; plans of full-size bytes: every order of the real job's buffers has an \
                  element here";
    }
    basis
}

fn assumptions(unrepeated: Option<&str>) -> Vec<String> {
    let checked = match unrepeated {
        Some(reason) => format!("not checked {reason}"),
        None => "checked by the second run".to_string(),
    };
    let purity = format!("A2 purity: same inputs and choices give the same bits; {checked}");
    [
        "A1 completeness: all variation is one of the variables listed; not checkable here, and \
         what is left out is listed under not covered",
        &purity,
        "A3 independence: what may vary at a node depends on its inputs only; holds by \
         construction, plans and permutations are fixed before a node runs",
        "A4 structure: which nodes exist follows from values already computed; holds by \
         construction, ranks branch on their data position, and where the loss is scaled on \
         whether gradients overflowed",
        "A5 bits: equality is of bytes; NaNs made by arithmetic are canonical",
    ]
    .map(str::to_string)
    .to_vec()
}

fn not_said(grade: Grade, across: bool, environment_known: bool) -> String {
    let allocation = match across {
        true => "the allocations listed",
        false => "one allocation",
    };
    // Even a reader of this sentence alone is told.
    let environment = match environment_known {
        true => "",
        false => " The job's environment is not known: it may set variables that decide bits.",
    };
    match grade {
        Grade::Proved | Grade::ProvedOnThisInput | Grade::Bounded => format!(
            "This holds for the scenario's model of the job on {allocation}; it does not say that \
             your job's own kernels, library builds or other allocations keep their bits.\
             {environment}"
        ),
        _ => format!(
            "This was found in the scenario's model of the job on {allocation}; it does not say \
             that your job meets it on every run, nor that it is the only cause there."
        ),
    }
}
