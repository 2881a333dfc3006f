//! The outcome of a check in its final form: verdicts, witness, certificate, and what none of them
//! says.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use crate::fault::Component;
use crate::numerics::Digest;
use crate::numerics::ladder::sampling_bound;
use crate::plan::PLAN_BASIS;
use crate::prove::check::{CheckOptions, Findings};
use crate::prove::grade::Verdicts;
use crate::prove::oracle::r2r::{self, NodeDifference};
use crate::prove::oracle::reference::Provenances;
use crate::prove::oracle::res::Resumption;
use crate::prove::oracle::topo::Topo;
use crate::prove::outcome::{
    Certificate, Hazard, InputPoint, OracleResult, OracleVerdict, Outcome, PointCount, Remedy,
    ReshardResult, ScenarioIdentity, SelfTestResult, SerialResult, TopoResult,
};
use crate::prove::reversal::Consequence;
use crate::prove::session::Session;
use crate::prove::stop::Stop;
use crate::prove::sweep::{Reach, Sweep};
use crate::prove::token::hexadecimal;
use crate::prove::{
    Grade, first_divergence, origin, reproduction, reversal, uncovered, vacuity, witness,
};
use crate::scenario::OracleKind;
use crate::train::{FIRST_BUCKETS, Trainer};
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
    let followed = findings.provenances.as_ref();
    let unfollowed = followed.map_or(Vec::new(), |found| found.not_covered(scenario.steps));
    Outcome {
        scenario: ScenarioIdentity {
            name: scenario.name.clone(),
            hash: hexadecimal(&scenario.content_hash()),
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
        origin: origin::of(session, &findings),
        oracles: oracles(session, &findings),
        stop: findings.stopped.clone(),
        reshardings: findings
            .reshardings
            .iter()
            .map(ReshardResult::from)
            .collect(),
        serial: followed.map(|found| SerialResult::from(&found.values)),
        topo: findings.topo.iter().map(TopoResult::from).collect(),
        vacuity: match unrepeated {
            Some(_) => Vec::new(),
            None => vacuity::findings(session, &findings),
        },
        first_divergence: first_divergence::of(session, &findings),
        replay: reproduction::token(session, &findings, grade),
        mutants: findings.mutants,
        native_races: findings.native_races,
        witness,
        visible_effect,
        remedies,
        losses: losses(&findings.reference),
        regression: None,
        certificate: certificate(session, options, &findings.reference, unrepeated),
        not_covered: uncovered::sentences(session, &unfollowed),
        not_said: not_said(grade, verdicts.across.is_some(), scenario.environment_known),
    }
}

/// What is printed as the loss, a value a step.
fn losses(record: &RunRecord) -> Vec<f32> {
    let metrics = record.metrics.iter();
    let losses = metrics.filter(|((_, name), _)| name == Trainer::LM_LOSS);
    losses.map(|(_, loss)| *loss).collect()
}

/// Why there is no second run: a replay looks at what its token names, a run that stopped has
/// nothing to compare. Neither judges vacuity.
fn unrepeated(findings: &Findings) -> Option<&'static str> {
    match (&findings.stopped, &findings.second) {
        (Some(_), _) => Some("where a run stops"),
        (None, None) => Some("in a replay"),
        (None, Some(_)) => None,
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
        notes.push(
            "nothing came of the scenario's faults: what they take away is covered by something \
             else, or is nothing that this check can see"
                .to_string(),
        );
    }
    notes.extend(findings.reversals.notes());
    notes.extend(findings.queries.notes());
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
    for (hazard, consequence) in saving.chain(resumed).chain(resharded).chain(varied) {
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

fn oracles(session: &Session, findings: &Findings) -> Vec<OracleResult> {
    OracleKind::ALL
        .into_iter()
        .map(|oracle| {
            if let Some(stop) = &findings.stopped {
                return of_stop(oracle, stop);
            }
            if !session.scenario.oracles.contains(&oracle) {
                let detail = Some("the scenario does not ask for it".to_string());
                return oracle_result(oracle, OracleVerdict::NotChecked, 0, detail);
            }
            match oracle {
                OracleKind::R2R => r2r_result(findings),
                OracleKind::RES => res_result(findings),
                OracleKind::XR => xr_result(findings),
                OracleKind::TOPO => topo_result(findings),
                OracleKind::REF => ref_result(findings),
            }
        })
        .collect()
}

/// The oracle that shows a stop has failed; the others had nothing to compare.
fn of_stop(oracle: OracleKind, stop: &Stop) -> OracleResult {
    match oracle == stop.oracle {
        true => oracle_result(oracle, OracleVerdict::Different, 0, Some(stop.what.clone())),
        false => {
            let detail = Some("the run stopped".to_string());
            oracle_result(oracle, OracleVerdict::NotChecked, 0, detail)
        }
    }
}

fn oracle_result(
    oracle: OracleKind,
    verdict: OracleVerdict,
    comparisons: u64,
    detail: Option<String>,
) -> OracleResult {
    OracleResult {
        oracle,
        verdict,
        comparisons,
        detail,
        components: Vec::new(),
    }
}

fn r2r_result(findings: &Findings) -> OracleResult {
    // What parts only with the allocation is not run to run: the verdict across says it.
    let of = |reach: Reach| findings.sweep.sensitive.get(&reach).copied().unwrap_or(0);
    let (sensitive, across) = (of(Reach::Within), of(Reach::Across));
    let comparisons = findings.sweep.points();
    let (verdict, detail) = match (&findings.second, sensitive) {
        (Some(Some(difference)), _) => {
            let site = &difference.a.site;
            let mut detail = format!(
                "the second run differs at {site} on rank {}",
                difference.a.rank
            );
            if let Some(corruption) = &difference.corruption {
                detail += &format!("; {corruption}");
            }
            (OracleVerdict::Different, Some(detail))
        }
        (_, 0) if findings.queries.worst.is_some() => {
            (OracleVerdict::Different, findings.queries.consequence())
        }
        (_, 0) if hazard_count(findings) > 0 => {
            let count = hazard_count(findings);
            let detail =
                format!("{count} pairs of accesses, or reads of unwritten words, are open");
            (OracleVerdict::Different, Some(detail))
        }
        (_, 0) if across > 0 => {
            let detail = format!("within one allocation; {across} points part across allocations");
            (OracleVerdict::Equal, Some(detail))
        }
        (_, 0) => (OracleVerdict::Equal, None),
        (_, count) => {
            let detail = format!("{count} of {comparisons} choice points are sensitive");
            (OracleVerdict::Different, Some(detail))
        }
    };
    oracle_result(OracleKind::R2R, verdict, comparisons, detail)
}

fn topo_result(findings: &Findings) -> OracleResult {
    let result = |verdict, compared, detail| {
        oracle_result(OracleKind::TOPO, verdict, compared, Some(detail))
    };
    let of = |found: &Topo| {
        let steps = found.run.steps.iter();
        let tensors: u64 = steps.filter_map(|step| Some(step.tensors?.0)).sum();
        found.run.tensors + tensors
    };
    let compared = findings.topo.iter().map(of).sum();
    if findings.topo.is_empty() {
        let detail = match findings.reference.drifts.is_empty() {
            true => "a replay varies nothing",
            false => "copies differ: there is no whole state to compare",
        };
        return result(OracleVerdict::NotChecked, 0, detail.to_string());
    }
    let mut failing = findings.topo.iter().filter(|found| found.fails());
    if let Some(found) = failing.next() {
        return result(OracleVerdict::Different, compared, found.to_string());
    }
    let differing = findings
        .topo
        .iter()
        .filter(|found| found.run.parting().is_some());
    let runs = findings.topo.len();
    match differing.count() {
        0 => {
            let detail = format!("{runs} other sizes or places, whole tensors of each step");
            result(OracleVerdict::Equal, compared, detail)
        }
        some => {
            let detail = format!("{some} of {runs} other sizes or places differ, as they may");
            result(OracleVerdict::EqualInPart, compared, detail)
        }
    }
}

/// Of the straight run, by whichever writer.
fn hazard_count(findings: &Findings) -> u64 {
    let saving = findings.snapshots.iter().map(|found| found.hazards.len());
    let own = findings.reference.hazards.len() + saving.sum::<usize>();
    own as u64 + findings.reference.hazards_beyond
}

fn res_result(findings: &Findings) -> OracleResult {
    let resumptions = findings.resumptions.as_deref().unwrap_or_default();
    if resumptions.is_empty() && findings.reshardings.is_empty() {
        let detail = Some(match &findings.resumptions {
            None => "a replay of a fold resumes nothing".to_string(),
            Some(_) => "the scenario names no restart before its last step".to_string(),
        });
        return oracle_result(OracleKind::RES, OracleVerdict::NotChecked, 0, detail);
    }
    let found = resumptions.iter().map(|(_, found)| found);
    let words: u64 = found.clone().map(|found| found.words_compared).sum();
    let steps: u64 = found.map(|found| found.steps_compared).sum();
    let whole: u64 = findings
        .reshardings
        .iter()
        .map(|found| found.run.words)
        .sum();
    let result = |verdict, detail| {
        oracle_result(
            OracleKind::RES,
            verdict,
            words + steps + whole,
            Some(detail),
        )
    };
    let torn = findings
        .snapshots
        .as_ref()
        .and_then(|found| found.torn.first());
    if let Some(torn) = torn {
        return OracleResult {
            components: torn.other.keys().copied().collect(),
            ..result(OracleVerdict::Different, torn.to_string())
        };
    }
    if let Some((list, found)) = resumptions.iter().find(|(_, found)| !found.is_equal()) {
        let detail = format!("restarts {list:?}: {}", resumption_text(found));
        return OracleResult {
            components: found.components.iter().copied().collect(),
            ..result(OracleVerdict::Different, detail)
        };
    }
    if let Some(found) = findings.reshardings.iter().find(|found| found.run.fails()) {
        let components: BTreeSet<Component> = found
            .run
            .differences
            .iter()
            .map(|differing| differing.component)
            .collect();
        return OracleResult {
            components: components.into_iter().collect(),
            ..result(OracleVerdict::Different, found.to_string())
        };
    }
    let mut detail = format!("{words} live-in words and {steps} roots of resumed steps compared");
    for component in unread_everywhere(resumptions) {
        detail += &format!("; the checkpoint lacks {component}, which nothing reads later");
    }
    if let Some(found) = &findings.snapshots {
        let files = found.files;
        detail += &format!("; {files} files of background writers, done at once and late");
    }
    if whole > 0 {
        detail += &format!("; {whole} words of whole tensors after loads on other layouts");
    }
    if let Some(found) = findings.reshardings.iter().find(|found| found.is_in_part()) {
        detail += &format!(
            "; after a load on {} later steps are not the straight run's: {}",
            found.to,
            found.in_part_because()
        );
        return result(OracleVerdict::EqualInPart, detail);
    }
    result(OracleVerdict::Equal, detail)
}

/// Left out of the checkpoints, and read after none of the cuts.
fn unread_everywhere(resumptions: &[(Vec<u32>, Resumption)]) -> BTreeSet<Component> {
    let mut all = resumptions.iter().map(|(_, found)| found.unread.clone());
    let first = all.next().unwrap_or_default();
    all.fold(first, |unread, other| &unread & &other)
}

/// Why a process's first step is reduced otherwise than a later one.
const BUCKETS_ANEW: &str = "torch's DistributedDataParallel lays its buckets out anew after a \
    process's first backward, in an order that no checkpoint holds: the resumed run reduces its \
    first step in the buckets that a process starts with, where a ring adds ranks in other orders \
    (find_unused_parameters = true keeps the first buckets)";

/// What went wrong with one resumed run, in words.
pub(super) fn resumption_text(found: &Resumption) -> String {
    let mut parts = Vec::new();
    if !found.components.is_empty() {
        let names: Vec<String> = found.components.iter().map(ToString::to_string).collect();
        let lost = found.lost.as_ref().map(|lost| format!(" ({lost})"));
        parts.push(format!(
            "after step {} the resumed run lacks {}{}",
            found.cut,
            names.join(", "),
            lost.unwrap_or_default()
        ));
    }
    if let Some((rank, buffer)) = found.uncovered.first() {
        let more = found.uncovered.len() - 1;
        parts.push(format!(
            "`{buffer}` of rank {rank} is read after step {} and is in no component of the \
             checkpoint ({more} more)",
            found.cut
        ));
    }
    if let Some(difference) = &found.first_node {
        let NodeDifference { a, b, .. } = difference;
        parts.push(format!("bits part at {} on rank {}", a.site, a.rank));
        if b.site.op == *FIRST_BUCKETS {
            parts.push(BUCKETS_ANEW.to_string());
        }
    } else if let Some((step, rank)) = found.first_step {
        parts.push(format!("bits part in step {step} on rank {rank}"));
    }
    if found.sensitive > 0 {
        parts.push(format!(
            "{} choice points of the resumed run are sensitive",
            found.sensitive
        ));
    }
    if let Some(drift) = found.drifts.first() {
        parts.push(format!(
            "copies of `{}` differ in the resumed run: {drift}",
            drift.name
        ));
    }
    if let Some(stale) = found.stale.first() {
        let more = match found.stale.len() {
            1 => String::new(),
            count => format!(", and {} more parts are of another step", count - 1),
        };
        parts.insert(0, format!("{stale}{more}"));
    }
    if let Some(hazard) = found.hazards.first() {
        parts.push(hazard.to_string());
    }
    parts.join("; ")
}

fn xr_result(findings: &Findings) -> OracleResult {
    let resumptions = findings.resumptions.iter().flatten();
    let resumed = resumptions.flat_map(|(_, resumption)| &resumption.drifts);
    let resharded = findings
        .reshardings
        .iter()
        .flat_map(|found| &found.run.drifts);
    let mut drifts = findings
        .reference
        .drifts
        .iter()
        .chain(resumed)
        .chain(resharded);
    let drift = drifts.next();
    let verdict = if drift.is_some() {
        OracleVerdict::Different
    } else {
        OracleVerdict::Equal
    };
    let detail = drift.map(ToString::to_string);
    oracle_result(
        OracleKind::XR,
        verdict,
        findings.reference.replicas_compared + findings.reference.recomputed,
        detail,
    )
}

fn ref_result(findings: &Findings) -> OracleResult {
    let Some(found) = &findings.provenances else {
        let detail = Some("a replay follows no contributions".to_string());
        return oracle_result(OracleKind::REF, OracleVerdict::NotChecked, 0, detail);
    };
    let (contributed, values) = (found.findings.first(), &found.values);
    let detail = match (contributed, values.finding(), found.unfollowed.first()) {
        (Some(finding), ..) if found.is_followed() => finding.to_string(),
        (_, Some(finding), _) => finding,
        (.., Some(kernel)) => {
            format!("`{kernel}` changes gradients in a way that is not followed")
        }
        _ => reference_text(found),
    };
    let verdict = match (found.is_followed(), contributed) {
        (true, Some(_)) => OracleVerdict::Different,
        _ if values.is_wrong() => OracleVerdict::Different,
        (false, _) => OracleVerdict::NotChecked,
        (true, None) => OracleVerdict::Equal,
    };
    let comparisons = found.words + values.elements();
    oracle_result(OracleKind::REF, verdict, comparisons, Some(detail))
}

/// What a run that is as it should be was compared with.
fn reference_text(found: &Provenances) -> String {
    let Provenances {
        steps,
        words,
        contributions,
        values,
        ..
    } = found;
    let mut text = format!(
        "{contributions} contributions to {words} gradient words up to step {steps}, each exactly \
         once"
    );
    match values.closest() {
        None => text += "; their values are not compared with a serial run",
        Some(closest) => {
            let elements = values.elements();
            text += &format!(
                "; {elements} values up to step {} within the bounds of a serial run, the closest \
                 at {:.2} of its bound",
                values.steps,
                closest.ratio()
            );
        }
    }
    text
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
    match session.plans_at_full_size {
        true => format!(
            "{PLAN_BASIS}; plans of full-size bytes: every order of the real job's buffers has an \
             element here"
        ),
        false => PLAN_BASIS.to_string(),
    }
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
         construction, ranks branch on their data position only",
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
