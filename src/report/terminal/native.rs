//! What true atomics gave on an adapter.

use super::{Detail, Page};
use crate::prove::native::{NativeRaces, OutsideModel, RaceMode, RacedFold};
use crate::prove::outcome::Outcome;
use crate::report::names::{counted, ranks, slug};

/// Folds, and results outside the model, that are told without `-v`.
const TOLD: usize = 4;
/// Numbers of an order that are told.
const ORDER_TOLD: usize = 12;

pub(super) fn races(page: &mut Page, outcome: &Outcome, detail: Detail) {
    let Some(races) = &outcome.native_races else {
        return;
    };
    page.heading("native races");
    let line = races_line(races);
    page.sentence(2, &line);
    let most = match detail {
        Detail::Full => usize::MAX,
        _ => TOLD,
    };
    for outside in races.outside.iter().take(most) {
        page.sentence(2, &outside_line(outside));
    }
    for fold in races.folds.iter().take(most) {
        page.sentence(2, &fold_line(fold, races));
    }
    let untold = races.folds.len().saturating_sub(most) as u64;
    if untold > 0 {
        page.line(format!("  {} more, with -v", counted(untold, "fold")));
    }
    for skipped in &races.not_raced {
        let folds = counted(skipped.folds, "fold");
        let (family, reason) = (slug(skipped.family), &skipped.reason);
        page.sentence(2, &format!("not raced: {folds} of {family}: {reason}"));
    }
    if races.ticketed_apart > 0 {
        let repeats = counted(races.ticketed_apart, "ticketed repeat");
        let why = "because turns did not come in time";
        page.sentence(2, &format!("{repeats} run with each writer alone, {why}"));
    }
    judged(page, races);
}

/// That nothing was raced, beside a verdict that stands alone.
pub(super) fn nothing_raced(page: &mut Page, outcome: &Outcome) {
    let races = outcome.native_races.as_ref();
    if let Some(races) = races.filter(|races| races.reason.is_some()) {
        page.sentence(2, &format!("native races: {}", races_line(races)));
    }
}

/// All of it in one sentence.
pub(in crate::report) fn races_line(races: &NativeRaces) -> String {
    let adapter = &races.adapter.adapter;
    let strict = match races.adapter.strict {
        true => "",
        false => ", NON-STRICT",
    };
    if let Some(why) = races.reason {
        return format!("{adapter}{strict}: {why}");
    }
    let folds = counted(races.folds.len() as u64, "fold");
    let repeats = format!("{} ticketed, {} free repeats", races.ticketed, races.free);
    let verdict = match races.outside_count {
        0 => "no result is outside the model".to_owned(),
        count => format!("{} outside the model", counted(count, "result")),
    };
    format!("{adapter}{strict}: {folds} of the first step, {repeats} each: {verdict}")
}

/// Bits that the model does not allow.
pub(in crate::report) fn outside_line(outside: &OutsideModel) -> String {
    let OutsideModel {
        site, element, got, ..
    } = outside;
    let place = format!("{}, {site}, {}", outside.node, ranks(&outside.ranks));
    let got = format!("element {element} is {} ({})", got.hex, got.decimal);
    match (outside.mode, &outside.expected) {
        (RaceMode::Ticketed, Some(expected)) => {
            let order = outside.order.as_deref().unwrap_or_default();
            let shown: Vec<String> = order.iter().take(ORDER_TOLD).map(u32::to_string).collect();
            let more = match order.len() > ORDER_TOLD {
                true => " ...",
                false => "",
            };
            format!(
                "native races: {place}: {got}, and {} ({}) in the model; order {}{more}; {} differ",
                expected.hex,
                expected.decimal,
                shown.join(" "),
                counted(outside.elements, "element"),
            )
        }
        _ => format!("native races: {place}: {got}, which no order of its addends gives"),
    }
}

fn fold_line(fold: &RacedFold, races: &NativeRaces) -> String {
    let (ticketed, free) = (fold.ticketed_results, fold.free_results);
    let mut line = format!(
        "{} on {}: {}, {}; {} in {} ticketed repeats",
        fold.site,
        ranks(&fold.ranks),
        counted(u64::from(fold.writers), "writer"),
        counted(fold.elements, "element"),
        counted(ticketed, "different result"),
        races.ticketed,
    );
    if races.free > 0 {
        let off = fold.free_out_of_order;
        line += &format!(
            ", {free} in {} free ones, {off} of them not as their tickets",
            races.free
        );
    }
    line
}

fn judged(page: &mut Page, races: &NativeRaces) {
    let judged = &races.judged;
    let by = [
        (judged.exact_set, "by the set of all reachable sums"),
        (judged.min_max, "by the least and greatest sum"),
        (judged.interval, "by the error bound of any order"),
        (judged.unjudged, "NOT JUDGED: no bound holds"),
    ];
    let told = by.iter().filter(|(count, _)| *count > 0);
    let told: Vec<String> = told
        .map(|(count, how)| format!("{} {how}", counted(*count, "element")))
        .collect();
    if !told.is_empty() {
        page.sentence(2, &format!("free results judged: {}", told.join(", ")));
    }
}

#[cfg(test)]
mod tests {
    use super::super::style;
    use super::*;
    use crate::diagnostic::Severity;
    use crate::prove::native::{sample, sample_of_nothing};
    use crate::prove::outcome::Bits;
    use crate::report::{Exit, Report, Requirement, sample as outcomes};
    use crate::scenario::Grade;

    fn report(races: NativeRaces, grade: Grade) -> Report {
        let outcome = Outcome {
            native_races: Some(races),
            within: Some(grade),
            ..outcomes::proved()
        };
        Report::new(outcome, &Requirement::default(), None)
    }

    fn outside() -> NativeRaces {
        let races = sample();
        let fold = &races.folds[1];
        let outside = OutsideModel {
            site: fold.site.clone(),
            node: fold.node,
            ranks: fold.ranks.clone(),
            element: 7,
            mode: RaceMode::Ticketed,
            got: Bits::of(1.0),
            expected: Some(Bits::of(1.5)),
            order: Some((0..20).rev().collect()),
            elements: 3,
        };
        let free = OutsideModel {
            mode: RaceMode::Free,
            expected: None,
            order: None,
            ..outside.clone()
        };
        NativeRaces {
            outside: vec![outside, free],
            outside_count: 5,
            ..races
        }
    }

    #[test]
    fn what_was_raced_and_what_was_not_is_told() {
        let text = report(sample(), Grade::Proved).outcome.to_string();
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for part in [
            "native races",
            "2 folds of the first step, 5 ticketed, 5 free repeats each",
            "no result is outside the model",
            "2 in 5 free ones, 1 of them not as",
            "not raced: 16 folds of embedding-grad: fewer than two addends meet",
            "8,192 elements by the set of all reachable sums",
        ] {
            assert!(text.contains(part), "no `{part}` in {text}");
        }
        let none = sample_of_nothing();
        assert!(races_line(&none).ends_with("no fold of the first step is in arrival order"));
    }

    #[test]
    fn bits_outside_the_model_are_told_in_every_format() {
        let report = report(outside(), Grade::Uncontrolled);
        assert_eq!(report.exit, Exit::Uncontrolled);
        let line = outside_line(&outside().outside[0]);
        let words = [
            "rank 1",
            "element 7",
            "0x3f800000",
            "0x3fc00000",
            "order 19 18",
            " ...;",
        ];
        for part in words {
            assert!(line.contains(part), "no `{part}` in {line}");
        }
        let found = report.diagnostics();
        assert_eq!(found.len(), 3, "two told, and how many more");
        assert!(found.iter().all(|finding| finding.code == "outside-model"));
        assert!(found[1].message.contains("no order of its addends gives"));
        assert!(found[2].message.contains("3 more results"));
        let json = report.to_json();
        assert_eq!(json["native_races"]["outside_count"], 5);
        assert_eq!(json["native_races"]["outside"][0]["mode"], "ticketed");
        assert_eq!(json["native_races"]["outside"][0]["order"][0], 19);
        let xml = crate::report::junit(&[crate::report::Checked::Reported(Box::new(report))]);
        assert!(xml.contains("element 7 is 0x3f800000"), "{xml}");
    }

    #[test]
    fn nothing_raced_is_a_skip_for_test_dashboards() {
        let xml = |races: NativeRaces| {
            let report = report(races, Grade::Proved);
            crate::report::junit(&[crate::report::Checked::Reported(Box::new(report))])
        };
        assert!(xml(sample_of_nothing()).contains("<skipped message=\"llvmpipe"));
        assert!(!xml(sample()).contains("<skipped message=\"llvmpipe"));
    }

    #[test]
    fn nothing_raced_is_told_in_every_format_and_changes_no_verdict() {
        let why = "nothing to race: no fold of the first step is in arrival order";
        for (grade, findings) in [(Grade::Proved, 1), (Grade::Masked, 2)] {
            let report = report(sample_of_nothing(), grade);
            let found = report.diagnostics();
            assert!(found.len() >= findings, "{found:?}");
            let told = found.last().expect("a finding");
            assert_eq!(told.severity, Severity::Note);
            assert!(
                told.code == "nothing-raced" && told.message.contains(why),
                "{told:?}"
            );
            let quiet = style::plain(&report.to_human(Detail::Verdict));
            let quiet = quiet.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(quiet.contains(why), "{quiet}");
            assert_eq!(report.to_json()["native_races"]["reason"], why);
        }
        let raced = report(sample(), Grade::Proved);
        assert!(raced.diagnostics().is_empty());
        assert!(!raced.to_human(Detail::Verdict).contains("native races"));
        assert!(raced.to_json()["native_races"]["reason"].is_null());
    }
}
