//! What `trace diff` may conclude of what it has seen: nothing is the same of which nothing is
//! known, and nobody is an origin whose bytes did not part.

use std::path::Path;

use bitproof::trace::Folder;
use bitproof::trace::certify::certify;
use bitproof::trace::diff::{Comparison, Role, Verdict, compare};

fn record(seq: usize, kind: &str, name: &str, rest: &str) -> String {
    format!(
        "{{\"schema_version\":1,\"seq\":{seq},\"rank\":0,\"iteration\":1,\"kind\":\"{kind}\",\
         \"name\":\"{name}\",\"payload\":{{\"id\":\"{name}:{seq}\",{rest}}}}}\n"
    )
}

fn operand(digest: Option<u64>) -> String {
    let digest = digest.map_or("null".to_string(), |value| format!("\"{value:016x}\""));
    format!("{{\"shape\":[2],\"dtype\":\"float32\",\"numel\":2,\"digest\":{digest}}}")
}

/// Inputs and outputs of a record.
fn operands(inputs: &[Option<u64>], outputs: &[Option<u64>]) -> String {
    let list = |of: &[Option<u64>]| {
        let all: Vec<String> = of.iter().map(|one| operand(*one)).collect();
        all.join(",")
    };
    format!("\"in\":[{}],\"out\":[{}]", list(inputs), list(outputs))
}

fn write(folder: &Path, lines: &[(&str, &str, String)]) {
    std::fs::create_dir(folder).expect("a writable folder");
    let lines = lines.iter().enumerate();
    let text: String = lines
        .map(|(seq, (kind, name, rest))| record(seq, kind, name, rest))
        .collect();
    std::fs::write(folder.join("rank_0.jsonl"), text).expect("written");
}

type Line = (&'static str, &'static str, String);

fn compared(a: &[Line], b: &[Line]) -> Comparison {
    let root = tempfile::tempdir().expect("a temporary folder");
    write(&root.path().join("a"), a);
    write(&root.path().join("b"), b);
    let [a, b] = ["a", "b"].map(|side| Folder::open(&root.path().join(side)).expect("traces"));
    compare(&a, &b, false)
}

/// Names and shapes alone are no bytes.
#[test]
fn without_a_digest_nothing_is_compared() {
    let line = |digest| vec![("op", "aten.mul", operands(&[digest], &[digest]))];
    let found = compared(&line(None), &line(None));
    assert_eq!(found.verdict, Verdict::NothingCompared);
    assert_eq!(
        compared(&line(Some(1)), &line(Some(1))).verdict,
        Verdict::Same
    );
}

/// Another scope made no other bytes.
#[test]
fn metadata_alone_has_no_origin() {
    let line = |scope: &str, out| {
        let rest = operands(&[Some(1)], &[Some(out)]);
        vec![("op", "aten.mul", format!("{rest},\"scope\":\"{scope}\""))]
    };
    let role = |a: &[Line], b: &[Line]| compared(a, b).firsts[&0].role;
    assert_eq!(role(&line("x", 2), &line("y", 2)), Role::Undecided);
    assert_eq!(role(&line("x", 2), &line("x", 3)), Role::Origin);
}

/// Memory of nobody differs; what settles that is a parameter after the step, of known bytes.
#[test]
fn what_was_set_apart_is_settled_by_parameters() {
    let run = |fresh, more: Vec<Line>| {
        let mut lines = vec![(
            "op",
            "aten.empty.memory_format",
            operands(&[], &[Some(fresh)]),
        )];
        lines.extend(more);
        lines
    };
    let verdict = |more: fn(u64) -> Vec<Line>| {
        let found = compared(&run(1, more(1)), &run(2, more(2)));
        (
            found.verdict,
            found.firsts.get(&0).map(|first| first.may_be_artefact),
        )
    };
    let same: fn(u64) -> Vec<Line> = |_| {
        vec![
            ("grad", "w", operands(&[], &[Some(5)])),
            ("param", "w", operands(&[], &[Some(6)])),
        ]
    };
    assert_eq!(verdict(same), (Verdict::OnlyArtefacts, None));
    // A gradient of another layer may agree: the step may still take the other one.
    let cut: fn(u64) -> Vec<Line> = |_| vec![("grad", "w", operands(&[], &[Some(5)]))];
    assert_eq!(verdict(cut), (Verdict::Different, Some(true)));
    let unknown: fn(u64) -> Vec<Line> = |_| vec![("param", "w", operands(&[], &[None]))];
    assert_eq!(verdict(unknown), (Verdict::Different, Some(true)));
}

/// An op that reads such memory, and whose result nobody knows, may hand it on.
#[test]
fn a_result_without_a_digest_absorbs_nothing() {
    let run = |fresh, out| {
        vec![
            (
                "op",
                "aten.empty.memory_format",
                operands(&[], &[Some(fresh)]),
            ),
            ("op", "aten.mul", operands(&[Some(fresh)], &[out])),
            ("param", "w", operands(&[], &[Some(6)])),
        ]
    };
    let found = compared(&run(1, Some(3)), &run(2, Some(3)));
    assert_eq!(found.verdict, Verdict::OnlyArtefacts);
    let found = compared(&run(1, None), &run(2, None));
    assert_eq!(found.verdict, Verdict::Different);
}

/// A group whose ranks are not told is known where all ranks of the run were looked at.
#[test]
fn an_untold_group_is_known_in_whole_runs_only() {
    for (world, role) in [(1, Role::Origin), (4, Role::Undecided)] {
        let root = tempfile::tempdir().expect("a temporary folder");
        for (side, out) in [("a", 2), ("b", 3)] {
            let rest = operands(&[Some(1)], &[Some(out)]);
            let line = (
                "collective",
                "all_reduce",
                format!("{rest},\"group\":\"dp\""),
            );
            let folder = root.path().join(side);
            write(&folder, &[line]);
            let run = format!("{{\"world_size\":{world},\"ranks\":[0]}}");
            std::fs::write(folder.join("run.json"), run).expect("written");
        }
        let [a, b] = ["a", "b"].map(|side| Folder::open(&root.path().join(side)).expect("traces"));
        assert_eq!(compare(&a, &b, false).firsts[&0].role, role, "{world}");
    }
}

/// More ranks than any job has are damage, and take no memory.
#[test]
fn absurd_worlds_are_refused() {
    let root = tempfile::tempdir().expect("a temporary folder");
    let folder = root.path().join("a");
    write(
        &folder,
        &[("op", "aten.mul", operands(&[Some(1)], &[Some(2)]))],
    );
    assert!(certify(&Folder::open(&folder).expect("traces")).is_trusted());
    std::fs::write(folder.join("run.json"), "{\"world_size\":4294967295}").expect("written");
    let damages = Folder::open(&folder).expect_err("no such run");
    assert_eq!(damages[0].code, "run-file");
}
