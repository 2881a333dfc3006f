//! What each oracle says, and what it compared.

use std::collections::BTreeSet;

use crate::fault::Component;
use crate::prove::check::Findings;
use crate::prove::oracle::r2r::NodeDifference;
use crate::prove::oracle::reference::Provenances;
use crate::prove::oracle::replicas::told;
use crate::prove::oracle::res::Resumption;
use crate::prove::oracle::topo::Topo;
use crate::prove::outcome::{OracleResult, OracleVerdict};
use crate::prove::session::Session;
use crate::prove::sweep::Reach;
use crate::scenario::OracleKind;
use crate::train::FIRST_BUCKETS;

pub(super) fn all(session: &Session, findings: &Findings) -> Vec<OracleResult> {
    OracleKind::ALL
        .into_iter()
        .map(|oracle| {
            if let Some(stopped) = of_stop(oracle, findings) {
                return stopped;
            }
            if !session.scenario.oracles.contains(&oracle) {
                let detail = Some(OracleResult::NOT_ASKED.to_string());
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

/// The oracle that shows a stop has failed; those that come later had nothing to compare.
fn of_stop(oracle: OracleKind, findings: &Findings) -> Option<OracleResult> {
    let stop = findings.stopped.as_ref()?;
    if oracle == stop.oracle {
        let detail = Some(stop.what.clone());
        return Some(oracle_result(oracle, OracleVerdict::Different, 0, detail));
    }
    let was_asked = match oracle {
        OracleKind::R2R | OracleKind::XR => findings.second.is_some(),
        OracleKind::RES => findings.resumptions.is_some(),
        OracleKind::TOPO | OracleKind::REF => false,
    };
    let detail = Some("the run stopped".to_string());
    let unasked = || oracle_result(oracle, OracleVerdict::NotChecked, 0, detail);
    (!was_asked).then(unasked)
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
        (_, 0) if findings.queries.consequence().is_some() => {
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
    if let Some((components, detail)) = broken_resume(findings) {
        return OracleResult {
            components: components.into_iter().collect(),
            ..result(OracleVerdict::Different, detail)
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
        detail += &format!("; {whole} words of whole tensors after loads elsewhere");
    }
    if let Some(found) = findings.reshardings.iter().find(|found| found.is_in_part()) {
        detail += &format!(
            "; after a load on {} later steps are not the straight run's: {}",
            found.names().1,
            found.in_part_because()
        );
        return result(OracleVerdict::EqualInPart, detail);
    }
    result(OracleVerdict::Equal, detail)
}

/// The first resume that is not what it should be: what it lacks, and a sentence.
fn broken_resume(findings: &Findings) -> Option<(BTreeSet<Component>, String)> {
    let snapshots = findings.snapshots.as_ref();
    if let Some(torn) = snapshots.and_then(|found| found.torn.first()) {
        return Some((torn.other.keys().copied().collect(), torn.to_string()));
    }
    let mut resumptions = findings.resumptions.iter().flatten();
    if let Some((list, found)) = resumptions.find(|(_, found)| !found.is_equal()) {
        let detail = format!("restarts {list:?}: {}", resumption_text(found));
        return Some((found.components.iter().copied().collect(), detail));
    }
    let mut reshardings = findings.reshardings.iter();
    let found = reshardings.find(|found| found.run.fails())?;
    let differing = found.run.differences.iter();
    let components = differing.map(|differing| differing.component).collect();
    Some((components, found.to_string()))
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
pub(in crate::prove) fn resumption_text(found: &Resumption) -> String {
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
            "copies of `{}` differ in the resumed run: {}",
            drift.name,
            told(drift, found.let_in.as_ref())
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
    parts.extend(found.queries.consequence());
    parts.join("; ")
}

fn xr_result(findings: &Findings) -> OracleResult {
    let resumptions = findings.resumptions.iter().flatten();
    let resumed = resumptions.flat_map(|(_, resumption)| {
        let let_in = resumption.let_in.as_ref();
        resumption.drifts.iter().map(move |drift| (drift, let_in))
    });
    let resharded = findings.reshardings.iter();
    let resharded = resharded.flat_map(|found| found.run.drifts.iter().map(|drift| (drift, None)));
    let straight = findings.reference.drifts.iter();
    let straight = straight.map(|drift| (drift, findings.let_in.as_ref()));
    let mut drifts = straight.chain(resumed).chain(resharded);
    // What another choice does to copies is seen in the one run that has it.
    let effect = findings.effect.as_ref();
    let deviated = effect.and_then(|effect| effect.drifts.get(&Reach::Within));
    let deviated = || {
        let (drift, let_in) = deviated?;
        let drift = told(drift, let_in.as_ref());
        Some(format!("under the witness's choice, {drift}"))
    };
    let detail = drifts.next().map(|(drift, let_in)| told(drift, let_in));
    let detail = detail.or_else(deviated);
    let compared = findings.reference.replicas_compared + findings.reference.recomputed;
    let (verdict, detail) = match (detail, compared) {
        (Some(detail), _) => (OracleVerdict::Different, Some(detail)),
        (None, 0) => {
            let detail = "no rank has a copy of another's, and nothing is recomputed";
            (OracleVerdict::NotChecked, Some(detail.to_string()))
        }
        (None, _) => (OracleVerdict::Equal, None),
    };
    oracle_result(OracleKind::XR, verdict, compared, detail)
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
