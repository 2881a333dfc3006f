//! Blocks of arguments in logs.

use super::*;
use crate::recipe::megatron::GivenValue;

const TITLE: &str = "------------------------ arguments ------------------------";
const END_LINE: &str = "-------------------- end of arguments ---------------------";

/// A line as Megatron prints it.
fn line(name: &str, value: &str) -> String {
    format!(
        "  {name} {} {value}",
        ".".repeat(48usize.saturating_sub(name.len()))
    )
}

fn given(lines: &[&str]) -> (Source, Option<GivenJob>, Vec<Diagnostic>) {
    let source = Source::new("job.log", lines.join("\n") + "\n");
    let mut findings = Findings::default();
    let job = read(&source, &mut findings);
    (source, job, findings.into_vec())
}

#[test]
fn names_and_values_are_found_behind_any_prefix() {
    let names = [
        "lr",
        &"n".repeat(46),
        &"n".repeat(47),
        &"n".repeat(48),
        &"n".repeat(60),
    ];
    let values = ["1e-05", "a ... b", "", "x  y", "....."];
    for prefix in [
        "",
        "[default0]:",
        "0: ",
        "2026-01-01 10:00:00,123 | INFO | [rank0]: ",
    ] {
        for (name, value) in names
            .iter()
            .flat_map(|n| values.iter().map(move |v| (n, v)))
        {
            let text = format!("{prefix}{}", line(name, value));
            let (found, rest) = entry(&text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!((&text[found], &text[rest]), (*name, *value), "{text}");
        }
    }
    for none in [
        "",
        "a b c",
        "loading ...",
        "step 1 . x",
        "........",
        "  lr",
        "x.y .... z",
    ] {
        assert!(entry(none).is_none(), "{none}");
    }
}

#[test]
fn the_first_block_counts_and_a_differing_one_is_told() {
    let (lr, other) = (line("lr", "0.1"), line("lr", "0.2"));
    let bf16 = line("bf16", "True");
    let first = ["noise", TITLE, &lr, &bf16, END_LINE, "more", TITLE];
    let (source, job, found) = given(&[&first[..], &[&lr, &bf16, END_LINE]].concat());
    assert!(found.is_empty(), "{found:?}");
    let arguments = job.unwrap().phases.remove(0).arguments;
    assert_eq!(arguments[0].value, GivenValue::Text("0.1".into()));
    assert_eq!(arguments[1].value, GivenValue::On);
    let place = &arguments[0].value_place;
    assert_eq!(source.line_column(place.span.start), (3, 53));
    let (_, job, found) = given(&[&first[..], &[&other, &bf16, END_LINE]].concat());
    assert!(job.is_some());
    assert_eq!(found[0].code, "blocks-differ");
    let (_, job, found) = given(&[&first[..], &[&lr, END_LINE]].concat());
    assert!(job.is_some());
    assert_eq!(found[0].code, "blocks-differ");
}

#[test]
fn broken_blocks_are_told() {
    let lr = line("lr", "0.1");
    let codes = |lines: &[&str]| {
        let (_, job, found) = given(lines);
        let codes: Vec<&str> = found.iter().map(|finding| finding.code).collect();
        (job.is_some(), codes)
    };
    assert_eq!(codes(&["x"]), (false, vec!["no-arguments"]));
    assert_eq!(codes(&[TITLE, &lr]), (false, vec!["cut-off"]));
    assert_eq!(codes(&[TITLE, END_LINE]), (false, vec!["no-arguments"]));
    assert_eq!(
        codes(&[TITLE, &lr, "NCCL INFO", "x", END_LINE]),
        (true, vec!["not-an-argument"])
    );
    assert_eq!(
        codes(&[TITLE, &lr, &lr, END_LINE]),
        (false, vec!["duplicate-key"])
    );
    let long = line("save", &"x".repeat(70_000));
    assert_eq!(
        codes(&[TITLE, &long, END_LINE]),
        (false, vec!["value-too-long"])
    );
}
