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
    let first = ["noise", TITLE, &bf16, &lr, END_LINE, "more", TITLE];
    let (source, job, found) = given(&[&first[..], &[&bf16, &lr, END_LINE]].concat());
    assert!(found.is_empty(), "{found:?}");
    let arguments = job.unwrap().phases.remove(0).arguments;
    assert_eq!(arguments[0].value, GivenValue::On);
    assert_eq!(arguments[1].value, GivenValue::Text("0.1".into()));
    let place = &arguments[1].value_place;
    assert_eq!(source.line_column(place.span.start), (4, 53));
    let (_, job, found) = given(&[&first[..], &[&bf16, &other, END_LINE]].concat());
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
        (false, vec!["broken-line"])
    );
    assert_eq!(
        codes(&[TITLE, &lr, &lr, END_LINE]),
        (false, vec!["duplicate-key"])
    );
    assert_eq!(
        codes(&[TITLE, &lr, &line("bf16", "True"), END_LINE]),
        (false, vec!["unsorted"])
    );
    // In small letters, as Megatron sorts them.
    let (large, small) = (line("DDP_impl", "local"), line("data_path", "None"));
    assert!(codes(&[TITLE, &small, &large, &lr, END_LINE]).0);
    assert!(!codes(&[TITLE, &large, &small, &lr, END_LINE]).0);
    // In a comment there is none.
    let commented = [TITLE, &lr, END_LINE].map(|line| format!("# {line}"));
    let commented: Vec<&str> = commented.iter().map(String::as_str).collect();
    assert_eq!(codes(&commented), (false, vec!["no-arguments"]));
    let text = line("lr_decay_style", "'cosine'");
    let (_, job, _) = given(&[TITLE, &text, END_LINE]);
    let value = &job.unwrap().phases[0].arguments[0].value;
    assert_eq!(
        *value,
        GivenValue::Text("'cosine'".into()),
        "no quotes are printed"
    );
    let long = line("save", &"x".repeat(70_000));
    assert_eq!(
        codes(&[TITLE, &long, END_LINE]),
        (false, vec!["value-too-long"])
    );
}

/// The block `lines` with `prefix` before each, title and end included.
fn behind(prefix: &str, lines: &[&str]) -> Vec<String> {
    let all = [&[TITLE], lines, &[END_LINE]].concat();
    all.iter().map(|line| format!("{prefix}{line}")).collect()
}

fn found_in(lines: &[String]) -> (bool, Vec<Diagnostic>) {
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let (_, job, found) = given(&lines);
    (job.is_some(), found)
}

#[test]
fn a_line_that_lost_its_end_or_its_beginning_is_an_error_and_names_it() {
    let (bf16, experts) = (line("bf16", "True"), line("num_experts", "8"));
    let (name, value) = experts.split_at(20);
    let run_on = format!("  num_e{}", line("num_layers", "2"));
    for (broken, at) in [
        (vec![bf16.as_str(), run_on.as_str()], 3),
        (vec![&bf16, name, value], 3),
        (vec![name, "[rank3]:[W1201] barrier", value, &bf16], 2),
        (vec![&bf16, "NCCL INFO  num_experts", value], 3),
    ] {
        for prefix in ["", "[default0]:", "0: ", "2026-01-01 10:00:00 [rank0]: "] {
            let (is_job, found) = found_in(&behind(prefix, &broken));
            assert!(!is_job && found.len() == 1, "{broken:?}: {found:?}");
            assert_eq!(found[0].code, "broken-line");
            let (place, _) = found[0].place.as_ref().unwrap();
            assert_eq!(
                place.source.line_column(place.span.start).0,
                at,
                "{broken:?}"
            );
            assert!(found[0].help[0].contains("one rank"), "{found:?}");
        }
    }
    // Another rank's whole line is known by what the launcher puts before it.
    let mut lines = behind("[default0]:", &[&bf16, &experts]);
    lines.insert(2, "[default5]:a warning".to_string());
    lines.insert(2, "[default0]:".to_string());
    let (is_job, found) = found_in(&lines);
    assert!(is_job && found.len() == 1, "{found:?}");
    assert_eq!(found[0].code, "not-an-argument");
    lines[3] = "[default0]:a warning".to_string();
    assert_eq!(found_in(&lines).1[0].code, "broken-line");
    lines[3] = format!("[default5]:{}", line("seed", "7"));
    assert_eq!(found_in(&lines).1[0].code, "broken-line");
}

#[test]
fn colours_and_json_are_one_error_with_help() {
    let plain = line("transformer_impl", "local");
    let coloured = format!("{plain}\u{1b}[0m");
    for (lines, code) in [
        (behind("", &[&coloured]), "control-character"),
        (
            behind("\u{1b}[32m[rank0]\u{1b}[0m: ", &[&plain]),
            "control-character",
        ),
        (
            behind("", &[&plain.replace("local", "a\rlocal")]),
            "control-character",
        ),
        (
            behind("", &[&plain, &plain])
                .iter()
                .map(|line| format!("{{\"log\":\"{line}\\n\",\"stream\":\"stdout\"}}"))
                .collect(),
            "json-lines",
        ),
    ] {
        let (is_job, found) = found_in(&lines);
        assert!(!is_job && found.len() == 1, "{found:?}");
        assert_eq!(found[0].code, code);
        assert!(!found[0].help.is_empty());
    }
    assert!(found_in(&behind("", &[&plain])).0);
}

#[test]
fn a_later_block_that_is_cut_off_is_compared_as_far_as_it_goes() {
    let (lr, other, bf16) = (line("lr", "0.1"), line("lr", "0.2"), line("bf16", "True"));
    let first = [TITLE, &bf16, &lr, END_LINE, TITLE, &bf16];
    assert!(given(&first).2.is_empty());
    let found = given(&[&first[..], &[&other]].concat()).2;
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].code, "blocks-differ");
}
