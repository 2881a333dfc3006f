//! Where grades are decided: what a check, a replay and a tried switch found, as a verdict. The
//! worst decides, and each function says what it has looked at.

use crate::numerics::ladder::Rung;
use crate::prove::check::Findings;
use crate::prove::effect::Effect;
use crate::prove::native::NativeRaces;
use crate::prove::oracle::parting::OtherRun;
use crate::prove::oracle::reference::Provenances;
use crate::prove::oracle::res::Resumption;
use crate::prove::oracle::snapshot::Snapshots;
use crate::prove::oracle::topo::Topo;
use crate::prove::reversal::Consequence;
use crate::prove::session::Session;
use crate::prove::sweep::{Reach, Sweep};
use crate::prove::{Grade, memory, reversal, vacuity};
use crate::scenario::{Free, OracleKind, OriginClass};
use crate::world::RunRecord;

/// The two verdicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdicts {
    /// On one allocation; `None` in a replay of what varies only across allocations.
    pub within: Option<Grade>,
    /// Across allocations; `None` where placement is not free.
    pub across: Option<Grade>,
}

/// The verdicts of a whole check.
pub(super) fn of_check(session: &Session, findings: &Findings) -> Verdicts {
    let strict = session.engine_identity().strict;
    let within = common(session, findings).max(of_reach(session, findings, Reach::Within));
    let across = session.scenario.free.contains(&Free::Placement).then(|| {
        let resumed = resumed(findings, Reach::Across);
        // Queries of resumed runs on other allocations are answered in one way only.
        let moved = findings
            .reshardings
            .iter()
            .any(|found| found.moved.is_some());
        let answered = match session.scenario.checkpoint.polls && moved {
            true => Grade::Bounded,
            false => Grade::Proved,
        };
        within
            .max(resumed)
            .max(answered)
            .max(of_reach(session, findings, Reach::Across))
    });
    let unnoticed = of_unnoticed(session, across.unwrap_or(within));
    let (within, across) = (
        on_engine(within, strict).max(unnoticed),
        across.map(|grade| on_engine(grade, strict).max(unnoticed)),
    );
    Verdicts {
        within: Some(within),
        across,
    }
}

/// A scenario's own fault that a check does not notice is one that it cannot see: as with planted
/// faults, it proves nothing.
fn of_unnoticed(session: &Session, worst: Grade) -> Grade {
    match !session.scenario.faults.is_empty() && worst < Grade::Masked {
        true => Grade::Vacuous,
        false => Grade::Proved,
    }
}

/// The ladder's rungs for one input reason with IEEE 754's rounding. Where the engine's arithmetic
/// is another, they are no proof: what its own runs show is all there is.
fn on_engine(grade: Grade, strict: bool) -> Grade {
    match grade {
        Grade::ProvedOnThisInput if !strict => Grade::Bounded,
        grade => grade,
    }
}

/// Whether jobs of other layouts, sizes or places were run, whose queries are answered in one way
/// only.
fn has_other_jobs(findings: &Findings) -> bool {
    let mut resumed = findings.reshardings.iter();
    resumed.any(|found| found.moved.is_none()) || !findings.topo.is_empty()
}

/// What is wrong whatever varies.
fn common(session: &Session, findings: &Findings) -> Grade {
    let mut grade = resumed(findings, Reach::Within);
    if let Some(stop) = &findings.stopped {
        grade = grade.max(match stop.class {
            OriginClass::Uncontrolled => Grade::Uncontrolled,
            _ => Grade::Divergent,
        });
    }
    let drifts = findings.reference.drifts.len();
    let asked = session.scenario.oracles.contains(&OracleKind::XR);
    // A recomputation that differs is no matter of copies: its gradients are of another forward.
    let mut all = findings.reference.drifts.iter();
    let is_recomputed = all.any(|drift| drift.microbatch.is_some());
    // Copies that differ are no state that another layout could resume from, or be compared with.
    let scenario = &session.scenario;
    let moved = !scenario.checkpoint.reshard.is_empty() || !scenario.topo.is_empty();
    if ((asked || moved) && drifts > 0) || is_recomputed {
        grade = grade.max(Grade::Divergent);
    }
    let hazards = &findings.reference.hazards;
    if findings.reference.hazards_beyond > 0 || !hazards.is_empty() {
        grade = grade.max(Grade::Hazard);
    }
    if let Some(snapshots) = &findings.snapshots {
        grade = grade.max(of_snapshots(snapshots));
    }
    if session.scenario.checkpoint.polls && has_other_jobs(findings) {
        grade = grade.max(Grade::Bounded);
    }
    let skipped = vacuity::skipped_steps(&findings.reference);
    if memory::run_hides_gathers(&session.scenario, &skipped) {
        grade = grade.max(Grade::Vacuous);
    }
    let never_resumed = findings.resumptions.as_ref().is_some_and(Vec::is_empty);
    if never_resumed || findings.mutants.total == 0 || !findings.mutants.missed.is_empty() {
        grade = grade.max(Grade::Vacuous);
    }
    if findings.hides_losses() {
        grade = grade.max(Grade::Vacuous);
    }
    // Whatever input is accepted: nothing is claimed for one that is not finite.
    grade = grade.max(of_metrics(&findings.reference));
    if let Some(provenances) = &findings.provenances {
        grade = grade.max(of_provenances(provenances));
    }
    for found in &findings.topo {
        grade = grade.max(of_topo(found, session.scenario.accept_input));
    }
    if let Some(Some(difference)) = &findings.second {
        // What reads unordered or unwritten memory has had another choice than before, unless the
        // very same run differs as well.
        let explained = reversal::explains(hazards, difference);
        grade = grade.max(
            match explained.filter(|_| difference.corruption.is_none()) {
                Some(_) => Grade::Divergent,
                None => Grade::Uncontrolled,
            },
        );
    }
    if findings.reversals.is_visible() {
        grade = grade.max(Grade::Divergent);
    }
    grade = grade.max(findings.queries.grade());
    grade.max(of_races(findings.native_races.as_ref()))
}

/// Steps that are not finite, or that all overflow, agree in every order.
fn of_metrics(reference: &RunRecord) -> Grade {
    match vacuity::without_news(reference) {
        Some(_) => Grade::Vacuous,
        None => Grade::Proved,
    }
}

/// A checkpoint that is not of the step that it was asked for is wrong however long its writer
/// takes: the writer's delay is free.
fn of_snapshots(found: &Snapshots) -> Grade {
    let torn = match found.torn.is_empty() {
        true => Grade::Proved,
        false => Grade::Divergent,
    };
    match found.hazards.is_empty() {
        true => torn,
        false => torn.max(Grade::Hazard),
    }
}

/// A gradient that lacks a contribution is wrong on every run alike, and so is a value that no
/// serial model has.
fn of_provenances(found: &Provenances) -> Grade {
    if found.values.is_wrong() {
        return Grade::Divergent;
    }
    match (found.is_followed(), found.findings.is_empty()) {
        (false, _) => Grade::Vacuous,
        (true, true) => Grade::Proved,
        (true, false) => Grade::Divergent,
    }
}

/// True atomics that give what the model does not: the model's choices do not control the bits.
fn of_races(races: Option<&NativeRaces>) -> Grade {
    match races.is_none_or(NativeRaces::is_inside) {
        true => Grade::Proved,
        false => Grade::Uncontrolled,
    }
}

/// What the resumed runs say, on the scenario's layout and on others.
fn resumed(findings: &Findings, reach: Reach) -> Grade {
    let mut grade = Grade::Proved;
    let straight = findings.sweep.sensitive.get(&Reach::Within);
    let is_told = straight.is_some_and(|count| *count > 0);
    for (_, found) in findings.resumptions.iter().flatten() {
        // Where the straight run is sensitive, too, how far that shows is asked of that one.
        let sensitive = if is_told { 0 } else { found.sensitive };
        grade = grade.max(of_resumption(found, sensitive));
    }
    // What another allocation does is asked across allocations.
    let elsewhere = findings.reshardings.iter();
    let elsewhere = elsewhere.filter(|found| found.moved.is_none() || reach == Reach::Across);
    for found in elsewhere {
        grade = grade.max(of_other_run(&found.run, reach));
    }
    grade
}

/// A run on another layout, which has sums of its own.
fn of_other_run(found: &OtherRun, reach: Reach) -> Grade {
    let mut grade = of_rung(found.worst.get(&reach).copied());
    let mut sensitive = found.sensitive.keys();
    let is_broken = found.is_broken() || !found.drifts.is_empty();
    if is_broken || sensitive.any(|of| *of <= reach) {
        grade = grade.max(Grade::Divergent);
    }
    if !found.hazards.is_empty() {
        grade = grade.max(Grade::Hazard);
    }
    grade
}

/// The job of another size or in another place.
pub(super) fn of_topo(found: &Topo, accept_input: bool) -> Grade {
    let mut grade = of_other_run(&found.run, Reach::Within);
    if found.parts() {
        return grade.max(Grade::Divergent);
    }
    if found.may_differ || found.fails() {
        return grade;
    }
    if found.is_equal_by_input() {
        grade = grade.max(Grade::ProvedOnThisInput);
    }
    match (found.too_few.is_empty(), accept_input) {
        (true, _) => grade,
        (false, true) => grade.max(Grade::ProvedOnThisInput),
        (false, false) => grade.max(Grade::Vacuous),
    }
}

/// What one resumed run says, with so many points that are sensitive in it: all that RES calls a
/// difference, whatever else is asked for.
pub(super) fn of_resumption(found: &Resumption, sensitive: u64) -> Grade {
    let Resumption {
        components,
        uncovered,
        first_step,
        drifts,
        hazards,
        reversals,
        queries,
        ..
    } = found;
    let is_equal = components.is_empty()
        && uncovered.is_empty()
        && first_step.is_none()
        && !reversals.is_visible();
    let own = match (
        is_equal && drifts.is_empty() && sensitive == 0,
        hazards.is_empty(),
    ) {
        (false, _) => Grade::Divergent,
        (true, false) => Grade::Hazard,
        (true, true) => Grade::Proved,
    };
    own.max(queries.grade())
}

/// The grade of points of which the worst was proved by `rung`.
fn of_rung(rung: Option<Rung>) -> Grade {
    match rung {
        None | Some(Rung::Plan | Rung::L0) => Grade::Proved,
        Some(Rung::L5) => Grade::Bounded,
        Some(_) => Grade::ProvedOnThisInput,
    }
}

/// What one kind of choice does.
fn of_reach(session: &Session, findings: &Findings, reach: Reach) -> Grade {
    let sweep = &findings.sweep;
    let mut grade = of_rung(sweep.worst_rung(reach));
    let absent = reach == Reach::Within && vacuity::has_absent(&session.scenario, sweep);
    if absent || sweep.silent.keys().any(|(_, of)| *of == reach) {
        grade = grade.max(match session.scenario.accept_input {
            true => Grade::ProvedOnThisInput,
            false => Grade::Vacuous,
        });
    }
    if sweep.sensitive.get(&reach).is_some_and(|count| *count > 0) {
        grade = grade.max(of_sensitive(reach, findings.effect.as_ref()));
    }
    grade
}

/// A point that parts: *masked* where none of the deviations tried reached a declared output.
pub(super) fn of_sensitive(reach: Reach, effect: Option<&Effect>) -> Grade {
    match effect.is_none_or(|effect| effect.reaches(reach)) {
        true => Grade::Divergent,
        false => Grade::Masked,
    }
}

/// The verdict of a replay of one fold, which looks at nothing else.
pub(super) fn of_replayed_fold(reach: Reach, effect: Option<&Effect>) -> Verdicts {
    let grade = Some(of_sensitive(reach, effect));
    match reach {
        Reach::Within => Verdicts {
            within: grade,
            across: None,
        },
        // Nothing was looked at that varies within one allocation.
        Reach::Across => Verdicts {
            within: None,
            across: grade,
        },
    }
}

/// The grade of one pair that nothing orders, by what it does the other way round.
pub(super) fn of_replayed_hazard(consequence: &Consequence) -> Grade {
    match consequence.is_visible() {
        true => Grade::Divergent,
        false => Grade::Hazard,
    }
}

/// The verdict of a replay of a restart, whose resumed runs are `found`: one of them differs.
pub(super) fn of_replayed_restart(found: &[(Vec<u32>, Resumption)]) -> Verdicts {
    let grades = found
        .iter()
        .map(|(_, one)| of_resumption(one, one.sensitive));
    let grade = grades.max().unwrap_or(Grade::Proved);
    assert!(grade != Grade::Proved, "a replay shows what differs");
    Verdicts {
        within: Some(grade),
        across: None,
    }
}

/// The verdict of a replay of a resume on another layout that was found to fail.
pub(super) fn of_replayed_resharding(found: &OtherRun) -> Verdicts {
    // Across allocations only where nothing else failed.
    let is_within = found.is_broken()
        || found.sensitive.contains_key(&Reach::Within)
        || !found.drifts.is_empty()
        || !found.hazards.is_empty();
    let mut grade = Grade::Proved;
    if found.parts() {
        grade = grade.max(Grade::Divergent);
    }
    if !found.hazards.is_empty() {
        grade = grade.max(Grade::Hazard);
    }
    assert!(found.fails(), "a replay shows what failed");
    let grade = Some(grade);
    match is_within {
        true => Verdicts {
            within: grade,
            across: None,
        },
        false => Verdicts {
            within: None,
            across: grade,
        },
    }
}

/// The verdict of a replay of another size or place that was found to fail.
pub(super) fn of_replayed_topo(found: &Topo) -> Verdicts {
    let grade = of_topo(found, false);
    assert!(grade >= Grade::Hazard, "a replay shows what failed");
    Verdicts {
        within: Some(grade),
        across: None,
    }
}

/// The grade of the sweep and of hazards alone, as of a switch that is tried: no restarts, no
/// planted faults, and whether a difference shows is not asked.
pub(super) fn of_sweep(sweep: &Sweep, record: &RunRecord, strict: bool) -> Grade {
    let mut grade = of_rung(sweep.worst_rung(Reach::Across)).max(of_metrics(record));
    if !record.hazards.is_empty() || record.hazards_beyond > 0 {
        grade = grade.max(Grade::Hazard);
    }
    if sweep.sensitive.values().any(|count| *count > 0) {
        grade = grade.max(Grade::Divergent);
    }
    on_engine(grade, strict)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prove::sweep::{FullSizeAddends, SweepOptions, Tally, TallyKey};
    use crate::world::{Family, GroupId};
    use std::sync::Arc;

    struct AsHere;

    impl FullSizeAddends for AsHere {
        fn addends(&self, _: Family, _: Option<GroupId>, here: u32) -> u32 {
            here
        }
    }

    #[test]
    fn rungs_for_all_inputs_are_the_only_proofs() {
        assert_eq!(of_rung(None), Grade::Proved);
        for rung in Rung::ALL {
            let proved = of_rung(Some(rung)) == Grade::Proved;
            assert_eq!(proved, rung.holds_for_all_inputs(), "{rung:?}");
            let bounded = of_rung(Some(rung)) == Grade::Bounded;
            assert_eq!(bounded, rung == Rung::L5, "{rung:?}");
        }
    }

    #[test]
    fn a_result_outside_the_model_is_uncontrolled() {
        let mut races = crate::prove::native::sample();
        assert_eq!(of_races(None), Grade::Proved);
        assert_eq!(of_races(Some(&races)), Grade::Proved);
        races.outside_count = 1;
        assert_eq!(of_races(Some(&races)), Grade::Uncontrolled);
    }

    #[test]
    fn a_proof_by_rounding_needs_strict_arithmetic() {
        let input = Grade::ProvedOnThisInput;
        assert_eq!(on_engine(input, true), input);
        assert_eq!(on_engine(input, false), Grade::Bounded);
        for grade in [Grade::Proved, Grade::Bounded, Grade::Divergent] {
            assert_eq!(on_engine(grade, false), grade);
        }
    }

    #[test]
    fn a_tried_switch_is_judged_by_the_engine_it_ran_on() {
        let mut sweep = Sweep::new(SweepOptions {
            seed: 0,
            element_budget: 0,
            groups: Vec::new().into(),
            full_size: Arc::new(AsHere),
            plans: None,
            sums: None,
        });
        let key = TallyKey {
            family: Family::LossMean,
            reach: Reach::Within,
            choice: "arrival",
            rung: Some(Rung::L2),
        };
        sweep.tallies.insert(key, Tally::default());
        let of = |strict| of_sweep(&sweep, &RunRecord::default(), strict);
        assert_eq!(of(true), Grade::ProvedOnThisInput);
        assert_eq!(of(false), Grade::Bounded);
        let mut record = RunRecord::default();
        record.metrics.insert((2, "lm loss".to_owned()), f32::NAN);
        assert_eq!(of_sweep(&sweep, &record, true), Grade::Vacuous);
    }

    /// Whatever RES calls a difference is no proof, and a replay of it says the same.
    #[test]
    fn what_resuming_finds_is_never_proved() {
        let equal = Resumption::default();
        assert!(equal.is_equal());
        assert_eq!(of_resumption(&equal, 0), Grade::Proved);
        let drift = crate::world::Drift {
            step: Some(2),
            group: "dp".to_string(),
            name: "weight".to_string(),
            ranks: (0, 1),
            microbatch: None,
        };
        let hazard = crate::prove::oracle::reshard::tests::hazard();
        let of = |change: fn(&mut Resumption)| {
            let mut found = Resumption::default();
            change(&mut found);
            found
        };
        let mut drifting = Resumption::default();
        drifting.drifts.push(drift);
        let mut racing = Resumption::default();
        racing.hazards.push(hazard);
        for (found, grade) in [
            (of(|found| found.sensitive = 1), Grade::Divergent),
            (
                of(|found| found.first_step = Some((2, 0))),
                Grade::Divergent,
            ),
            (
                of(|found| found.uncovered.push((0, "buffer".to_string()))),
                Grade::Divergent,
            ),
            (drifting, Grade::Divergent),
            (racing, Grade::Hazard),
        ] {
            assert!(!found.is_equal());
            assert_eq!(of_resumption(&found, found.sensitive), grade);
            let replayed = of_replayed_restart(&[(vec![1], found)]);
            assert_eq!((replayed.within, replayed.across), (Some(grade), None));
        }
    }

    #[test]
    fn a_pair_that_shows_is_divergent() {
        use crate::prove::deviation::Deviation;
        let differs = |metric: Option<(u32, String)>| {
            Consequence::Differs(Deviation {
                metric,
                ..Deviation::default()
            })
        };
        for (consequence, grade) in [
            (differs(None), Grade::Hazard),
            (differs(Some((2, "lm loss".to_string()))), Grade::Divergent),
            (Consequence::Agrees, Grade::Hazard),
            (Consequence::NotTried, Grade::Hazard),
            (Consequence::Stops(String::new()), Grade::Divergent),
        ] {
            assert_eq!(of_replayed_hazard(&consequence), grade);
            let mut found = Resumption::default();
            found
                .hazards
                .push(crate::prove::oracle::reshard::tests::hazard());
            found.reversals.consequences.push(consequence);
            assert_eq!(of_resumption(&found, 0), grade);
        }
    }

    #[test]
    fn a_replayed_fold_has_one_verdict() {
        let within = of_replayed_fold(Reach::Within, None);
        assert_eq!(
            (within.within, within.across),
            (Some(Grade::Divergent), None)
        );
        let across = of_replayed_fold(Reach::Across, None);
        assert_eq!(
            (across.within, across.across),
            (None, Some(Grade::Divergent))
        );
    }
}
