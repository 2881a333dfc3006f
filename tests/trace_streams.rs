//! Traces of several ranks and of runs that did not end well: what is known of a collective's
//! group, of streams that were cut, of single files, and of values told in other ways.

use std::path::Path;

use bitproof::trace::Folder;
use bitproof::trace::Strength;
use bitproof::trace::certify::certify;
use bitproof::trace::convert::{Format, convert};
use bitproof::trace::diff::{Comparison, Role, Verdict, compare};

/// A record without its place: iteration, kind, name, payload.
type Line = (Option<u64>, &'static str, &'static str, String);

fn operand(digest: &str, more: &str) -> String {
    format!("{{\"shape\":[2],\"dtype\":\"float32\",\"numel\":2,\"digest\":{digest}{more}}}")
}

/// An operand whose bytes are hashed in order.
fn known(value: u64) -> String {
    let digest = format!("\"{value:016x}\"");
    operand(&digest, &format!(",\"bytes64\":{digest}"))
}

fn line(kind: &'static str, name: &'static str, inputs: &[String], outputs: &[String]) -> Line {
    let (inputs, outputs) = (inputs.join(","), outputs.join(","));
    (
        Some(1),
        kind,
        name,
        format!("\"in\":[{inputs}],\"out\":[{outputs}]"),
    )
}

fn in_group(name: &'static str, inputs: &[String], outputs: &[String]) -> Line {
    let (iteration, kind, name, payload) = line("collective", name, inputs, outputs);
    let group = "\"group\":\"dp\",\"group_ranks\":[0,1],\"group_seq\":0";
    (iteration, kind, name, format!("{payload},{group}"))
}

fn text(rank: usize, lines: &[Line]) -> String {
    let lines = lines.iter().enumerate();
    let lines = lines.map(|(seq, (iteration, kind, name, payload))| {
        let iteration = iteration.map_or("null".to_string(), |one| one.to_string());
        format!(
            "{{\"schema_version\":1,\"seq\":{seq},\"rank\":{rank},\"iteration\":{iteration},\
             \"kind\":\"{kind}\",\"name\":\"{name}\",\
             \"payload\":{{\"id\":\"{name}:{seq}\",{payload}}}}}\n"
        )
    });
    lines.collect()
}

fn write(folder: &Path, ranks: &[Vec<Line>], run: &str) -> Folder {
    std::fs::create_dir(folder).expect("a writable folder");
    for (rank, lines) in ranks.iter().enumerate() {
        let file = folder.join(format!("rank_{rank}.jsonl"));
        std::fs::write(file, text(rank, lines)).expect("written");
    }
    if !run.is_empty() {
        std::fs::write(folder.join("run.json"), run).expect("written");
    }
    Folder::open(folder).expect("traces")
}

fn compared(a: &[Vec<Line>], b: &[Vec<Line>]) -> Comparison {
    let root = tempfile::tempdir().expect("a temporary folder");
    let a = write(&root.path().join("a"), a, "");
    let b = write(&root.path().join("b"), b, "");
    compare(&a, &b, false)
}

fn roles(comparison: &Comparison) -> Vec<(u32, Role)> {
    let firsts = comparison.firsts.iter();
    firsts.map(|(rank, first)| (*rank, first.role)).collect()
}

/// Whoever only receives gives no inputs: its group's decide.
#[test]
fn a_receiver_of_a_broadcast_is_judged_by_its_group() {
    let run = |given, root, received| {
        vec![
            vec![in_group("broadcast", &[known(given)], &[known(root)])],
            vec![in_group("broadcast", &[], &[known(received)])],
        ]
    };
    let found = compared(&run(1, 1, 1), &run(2, 2, 2));
    assert_eq!(roles(&found), [(0, Role::Receiver), (1, Role::Receiver)]);
    let found = compared(&run(1, 1, 1), &run(1, 1, 6));
    assert_eq!(roles(&found), [(1, Role::Origin)]);
    assert_eq!(found.hints[0].cause, "transport");
    // Nobody shows what went in: nothing is decided.
    let blind = |out| vec![vec![in_group("broadcast", &[], &[known(out)])], Vec::new()];
    let found = compared(&blind(1)[..1], &blind(2)[..1]);
    assert_eq!(roles(&found), [(0, Role::Undecided)]);
}

/// Of a coalesced call each tensor has its record: the first one's inputs count, too.
#[test]
fn every_record_of_a_coalesced_call_counts() {
    let rank = |first, out| {
        vec![
            in_group("all_reduce", &[known(first)], &[known(out)]),
            in_group("all_reduce", &[known(3)], &[known(4)]),
        ]
    };
    let a = vec![rank(1, 2), rank(1, 2)];
    let b = vec![rank(1, 9), rank(7, 9)];
    assert_eq!(
        roles(&compared(&a, &b)),
        [(0, Role::Receiver), (1, Role::Receiver)]
    );
    let c = vec![rank(1, 9), rank(1, 9)];
    assert_eq!(
        roles(&compared(&a, &c)),
        [(0, Role::Origin), (1, Role::Origin)]
    );
}

/// A hash of the bytes counts, whatever became of the other digest.
#[test]
fn bytes_count_without_a_digest() {
    for digest in ["null", "\"skipped_oversize\""] {
        let run = |value: u64| {
            let bytes = format!(",\"bytes64\":\"{value:016x}\"");
            vec![vec![line(
                "op",
                "aten.mul",
                &[],
                &[operand(digest, &bytes)],
            )]]
        };
        assert_eq!(compared(&run(1), &run(1)).verdict, Verdict::Same);
        assert_eq!(compared(&run(1), &run(2)).verdict, Verdict::Different);
    }
}

/// The strength of evidence is that of pairs that were held against each other.
#[test]
fn what_one_side_alone_knows_is_no_evidence() {
    let flying = || operand("null", ",\"in_flight\":true");
    let run =
        |x: String, y: String| vec![vec![line("op", "x", &[], &[x]), line("op", "y", &[], &[y])]];
    let found = compared(&run(known(1), flying()), &run(flying(), known(2)));
    assert_eq!(found.verdict, Verdict::NothingCompared);
    let found = compared(&run(known(1), flying()), &run(known(1), known(2)));
    assert_eq!(
        (found.verdict, found.strength),
        (Verdict::Same, Strength::Full)
    );
    for (digest, more, strength) in [
        ("\"00000000000000aa\"", "", Strength::Xor),
        (&*format!("\"{}\"", "a".repeat(64)), "", Strength::Full),
        (
            &*format!("\"{}\"", "a".repeat(64)),
            ",\"mode\":\"sampled\"",
            Strength::Sampled,
        ),
    ] {
        let run = run(operand(digest, more), known(1));
        assert_eq!(compared(&run, &run).strength, strength, "{digest}");
    }
}

/// `copy_` with its destination left out shows its source.
#[test]
fn the_source_of_a_copy_is_no_operand_that_is_only_written() {
    let tainted = || operand("null", ",\"tainted\":true");
    let run =
        |inputs: &[String]| vec![vec![line("op", "aten.copy_.default", inputs, &[tainted()])]];
    let found = compared(&run(&[known(1)]), &run(&[known(2)]));
    assert_eq!(found.verdict, Verdict::Different);
    let found = compared(&run(&[known(1), known(3)]), &run(&[known(2), known(3)]));
    assert_eq!(found.verdict, Verdict::OnlyArtefacts);
}

/// Our recorder ends a stream with a record; one without it was cut, and is taken only if asked.
#[test]
fn a_stream_without_its_last_record_was_cut() {
    let root = tempfile::tempdir().expect("a temporary folder");
    let end = || line("recorder", "end", &[], &[]);
    let op = |value| line("op", "aten.mul", &[], &[known(value)]);
    let ours = "{\"world_size\":1,\"recorder\":\"bitproof_trace\"}";
    let whole = write(&root.path().join("a"), &[vec![op(1), op(2), end()]], ours);
    let mut cut = write(&root.path().join("b"), &[vec![op(1)]], ours);
    assert!(certify(&whole).is_trusted());
    let found = compare(&whole, &cut, false);
    assert_eq!(found.verdict, Verdict::Untrusted);
    assert_eq!(found.reasons[0].code, "cut-recording");
    cut.accepts_cut = true;
    assert!(certify(&cut).is_trusted());
    let found = compare(&whole, &cut, false);
    assert_eq!(found.verdict, Verdict::Same);
    let said = found.not_covered.join("\n");
    assert!(said.contains("2 records of ranks 0 come after"), "{said}");
    let mut other = write(&root.path().join("c"), &[vec![op(3)]], ours);
    other.accepts_cut = true;
    assert_eq!(compare(&whole, &other, false).verdict, Verdict::Different);
    // The whole run's own end is no cut: what lacks there is missing.
    let mut shorter = write(&root.path().join("d"), &[vec![op(1), end()]], ours);
    shorter.accepts_cut = true;
    assert_eq!(compare(&whole, &shorter, false).verdict, Verdict::Different);
    // Where one rank's stream ends so, each must.
    let two = write(
        &root.path().join("e"),
        &[vec![op(1), end()], vec![op(1)]],
        "",
    );
    assert_eq!(certify(&two).reasons[0].code, "cut-recording");
}

/// A rank that was recorded has records.
#[test]
fn a_rank_without_records_is_told() {
    let root = tempfile::tempdir().expect("a temporary folder");
    let line = || {
        (
            None,
            "op",
            "aten.mul",
            format!("\"in\":[],\"out\":[{}]", known(1)),
        )
    };
    let folder = write(&root.path().join("a"), &[vec![line()], Vec::new()], "");
    assert_eq!(certify(&folder).reasons[0].code, "no-record");
}

#[test]
fn runs_of_other_sizes_are_not_the_same_run() {
    let root = tempfile::tempdir().expect("a temporary folder");
    let ranks = || [vec![line("op", "aten.mul", &[], &[known(1)])]];
    let [a, b] = [("a", 4), ("b", 8)].map(|(name, world)| {
        let run = format!("{{\"world_size\":{world},\"ranks\":[0]}}");
        write(&root.path().join(name), &ranks(), &run)
    });
    assert_eq!(compare(&a, &a, false).verdict, Verdict::Same);
    assert_eq!(compare(&a, &b, false).reasons[0].code, "other-world");
}

/// A recomputation whose bytes are not known agrees with nothing, and contradicts nothing.
#[test]
fn a_recomputation_counts_where_its_bytes_are_known() {
    let root = tempfile::tempdir().expect("a temporary folder");
    let unknown = || operand("null", "");
    for (at, (forward, again, counted)) in [
        (known(1), known(1), Some(1)),
        (known(1), known(2), None),
        (known(1), unknown(), Some(0)),
        (unknown(), unknown(), Some(0)),
    ]
    .into_iter()
    .enumerate()
    {
        let (_, kind, name, payload) = line("recompute", "mlp", &[], &[again]);
        let again = (None, kind, name, format!("{payload},\"of\":\"mlp:0\""));
        let beside = (None, "op", "x", "\"in\":[],\"out\":[]".to_string());
        let lines = vec![line("forward", "mlp", &[], &[forward]), beside, again];
        let certificate = certify(&write(&root.path().join(at.to_string()), &[lines], ""));
        let found = certificate.ranks.get(&0).map(|one| one.recomputed);
        assert_eq!(found, counted, "{at}: {:?}", certificate.reasons);
    }
}

/// A file that is named itself is the rank that its name says.
#[test]
fn a_single_file_keeps_its_rank() {
    let root = tempfile::tempdir().expect("a temporary folder");
    let rank = |out| {
        vec![
            line("op", "aten.mul", &[], &[known(1)]),
            in_group("all_reduce", &[known(1)], &[known(out)]),
        ]
    };
    let ranks = |out| [rank(2), rank(out)];
    write(&root.path().join("a"), &ranks(2), "");
    write(&root.path().join("b"), &ranks(3), "");
    let [a, b] = ["a/rank_1.jsonl", "b/rank_1.jsonl"]
        .map(|file| Folder::open(&root.path().join(file)).expect("a trace"));
    let out = root.path().join("out");
    convert(&a, Format::Ops, &out).expect("converted");
    assert!(out.join("rank_000001.jsonl").is_file());
    let found = compare(&a, &b, false);
    assert_eq!(roles(&found), [(1, Role::Undecided)]);
    // Two ranks of one run, which are named on purpose; and a file that is another rank's.
    let other = Folder::open(&root.path().join("a/rank_0.jsonl")).expect("a trace");
    assert!(compare(&a, &other, false).reasons.is_empty());
    std::fs::copy(
        root.path().join("a/rank_1.jsonl"),
        root.path().join("rank_5.jsonl"),
    )
    .unwrap();
    let wrong = Folder::open(&root.path().join("rank_5.jsonl")).expect("a file");
    assert_eq!(certify(&wrong).reasons[0].code, "wrong-rank");
}

/// Absurd numbers of fields and kinds are refused in time.
#[test]
fn fields_and_kinds_have_limits() {
    let root = tempfile::tempdir().expect("a temporary folder");
    let fields: String = (0..200_000).map(|at| format!(",\"f{at}\":0")).collect();
    let (iteration, kind, name, payload) = line("op", "x", &[], &[]);
    let lines = vec![(iteration, kind, name, payload + &fields)];
    let folder = write(&root.path().join("a"), &[lines], "");
    let reasons = certify(&folder).reasons;
    assert!(
        reasons[0].message.contains("more than 1024 fields"),
        "{reasons:?}"
    );
    let kinds = (0..1025).map(|at| {
        let kind: &'static str = Box::leak(format!("k{at}").into_boxed_str());
        line(kind, "x", &[], &[])
    });
    let folder = write(&root.path().join("b"), &[kinds.collect()], "");
    assert_eq!(certify(&folder).reasons[0].code, "too-many-kinds");
}

/// The file of each of two records of one name is told.
#[test]
fn one_name_twice_is_told_with_both_places() {
    let root = tempfile::tempdir().expect("a temporary folder");
    let folder = root.path().join("a");
    std::fs::create_dir(&folder).expect("a folder");
    for file in ["rank0_iter1.jsonl", "rank0_iter2.jsonl"] {
        let text = text(0, &[line("op", "x", &[], &[known(1)])]);
        std::fs::write(folder.join(file), text).expect("written");
    }
    let reasons = certify(&Folder::open(&folder).expect("traces")).reasons;
    assert_eq!(reasons[0].code, "same-identity");
    assert!(
        reasons[0].file.ends_with("rank0_iter2.jsonl"),
        "{reasons:?}"
    );
    assert!(
        reasons[0].message.contains("rank0_iter1.jsonl"),
        "{reasons:?}"
    );
}

/// What parted in the earliest iteration is told first, even if no origin was recorded there.
#[test]
fn the_earliest_iteration_comes_first() {
    let at = |iteration, line: Line| (Some(iteration), line.1, line.2, line.3);
    let run = |drawn, out| {
        vec![
            vec![
                at(1, line("op", "aten.rand.default", &[], &[known(drawn)])),
                at(5, line("op", "x", &[], &[known(1)])),
            ],
            vec![
                at(1, line("op", "y", &[], &[known(1)])),
                at(5, line("op", "aten.mm.default", &[known(1)], &[known(out)])),
            ],
        ]
    };
    let found = compared(&run(1, 2), &run(2, 3));
    let first = found.earliest().expect("they part");
    assert_eq!(first.point.name, "aten.rand.default");
}
