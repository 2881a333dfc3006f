//! `trace diff` against made-up runs whose difference is known: it is named exactly, and nothing
//! that is not the same is ever called so.

#[path = "trace/synthetic.rs"]
mod synthetic;

use bitproof::trace::Folder;
use bitproof::trace::Strength;
use bitproof::trace::certify::certify;
use bitproof::trace::diff::{Comparison, Difference, Role, Side, Verdict, compare};
use proptest::prelude::*;
use synthetic::{Plant, Run, Size, is_collective, run, write};
use tempfile::TempDir;

fn folders(a: &Run, b: &Run) -> (TempDir, Folder, Folder) {
    let root = tempfile::tempdir().expect("a temporary folder");
    let paths = [root.path().join("a"), root.path().join("b")];
    write(&paths[0], a);
    write(&paths[1], b);
    let [a, b] = paths.map(|path| Folder::open(&path).expect("a folder of traces"));
    (root, a, b)
}

fn compared(a: &Run, b: &Run) -> Comparison {
    let (_root, a, b) = folders(a, b);
    compare(&a, &b, false)
}

/// A rank's first differing record, found by looking at every one.
fn brute_force(a: &Run, b: &Run, rank: usize) -> Option<usize> {
    let pairs = a[rank].iter().zip(&b[rank]);
    pairs.into_iter().position(|(x, y)| x != y)
}

fn sizes() -> impl Strategy<Value = Size> {
    (1..5usize, 1..4u64, 3..12usize).prop_map(|(ranks, iterations, ops)| Size {
        ranks,
        iterations,
        ops,
    })
}

fn planted() -> impl Strategy<Value = (Size, Plant)> {
    sizes().prop_flat_map(|size| {
        let plant = (0..size.ranks, 1..=size.iterations, 0..size.records());
        let plant = plant.prop_map(|(rank, iteration, place)| Plant {
            rank,
            iteration,
            place,
        });
        (Just(size), plant)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn a_planted_divergence_is_named_exactly((size, plant) in planted()) {
        let (a, b) = (run(size, None), run(size, Some(plant)));
        let found = compared(&a, &b);
        prop_assert_eq!(found.verdict, Verdict::Different);
        for rank in 0..size.ranks {
            let expected = brute_force(&a, &b, rank);
            let first = found.firsts.get(&(rank as u32));
            prop_assert_eq!(first.map(|first| first.point.seq as usize), expected);
            let (Some(first), Some(at)) = (first, expected) else {
                continue;
            };
            let made = &a[rank][at];
            prop_assert_eq!(&first.point.id, &made.id);
            prop_assert_eq!(first.point.iteration, Some(made.iteration));
            prop_assert_eq!(first.matched_before as usize, at);
            // Inputs of the whole group at a collective, the record's own elsewhere.
            let is_group = is_collective(size, at % size.records());
            let members = if is_group { 0..size.ranks } else { rank..rank + 1 };
            let is_clean = members.clone().all(|one| a[one][at].inputs == b[one][at].inputs);
            let role = match (made.inputs.is_empty(), is_clean) {
                (true, _) => Role::Undecided,
                (false, true) => Role::Origin,
                (false, false) => Role::Receiver,
            };
            prop_assert_eq!(first.role, role, "rank {} at {}", rank, at);
        }
        let origins = found.firsts.iter().filter(|(_, first)| first.role == Role::Origin);
        let origins: Vec<u32> = origins.map(|(rank, _)| *rank).collect();
        let shows_inputs = plant.place < size.ops;
        prop_assert_eq!(origins, Vec::from_iter(shows_inputs.then_some(plant.rank as u32)));
    }

    #[test]
    fn a_run_is_the_same_as_itself(size in sizes()) {
        let a = run(size, None);
        let found = compared(&a, &a);
        prop_assert_eq!(found.verdict, Verdict::Same);
        prop_assert_eq!(found.strength, Strength::Full);
        let records: usize = a.iter().map(Vec::len).sum();
        prop_assert_eq!(found.records as usize, records);
    }

    #[test]
    fn a_record_too_few_is_missing((size, plant) in planted()) {
        let a = run(size, None);
        let mut b = a.clone();
        let at = (plant.iteration as usize - 1) * size.records() + plant.place;
        let gone = b[plant.rank].remove(at);
        for (x, y, from) in [(&a, &b, Side::B), (&b, &a, Side::A)] {
            let found = compared(x, y);
            prop_assert_eq!(found.verdict, Verdict::Different);
            let first = &found.firsts[&(plant.rank as u32)];
            prop_assert_eq!(&first.difference, &Difference::Missing { from });
            prop_assert_eq!(&first.point.id, &gone.id);
            prop_assert_eq!(found.firsts.len(), 1);
        }
    }

    #[test]
    fn two_records_that_change_places_are_out_of_order((size, plant) in planted()) {
        let a = run(size, None);
        let mut b = a.clone();
        let place = plant.place.min(size.records() - 2);
        let at = (plant.iteration as usize - 1) * size.records() + place;
        b[plant.rank].swap(at, at + 1);
        let found = compared(&a, &b);
        prop_assert_eq!(found.verdict, Verdict::Different);
        let first = &found.firsts[&(plant.rank as u32)];
        let in_b = a[plant.rank][at + 1].id.clone();
        prop_assert_eq!(&first.difference, &Difference::Order { in_b });
        prop_assert_eq!(first.point.seq as usize, at);
    }

    /// However a file is cut or a byte of it changed: never the same, never a panic.
    #[test]
    fn a_damaged_side_is_never_the_same(
        (size, plant) in planted(),
        place in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        is_cut in any::<bool>(),
    ) {
        let a = run(size, None);
        let (root, x, y) = folders(&a, &a);
        let path = root.path().join(format!("b/rank_{:06}.jsonl", plant.rank));
        let mut bytes = std::fs::read(&path).expect("it was written");
        let at = place.index(bytes.len());
        let is_changed = match is_cut {
            // A lost end of the last line loses nothing.
            true => {
                bytes.truncate(at);
                at + 1 < std::fs::metadata(&path).expect("it is there").len() as usize
            }
            false => std::mem::replace(&mut bytes[at], byte) != byte,
        };
        std::fs::write(&path, &bytes).expect("it is writable");
        let found = compare(&x, &y, false);
        let is_same = matches!(found.verdict, Verdict::Same | Verdict::OnlyArtefacts);
        // A blank for a blank, or a note for a note, means the same.
        prop_assert!(!is_changed || !is_same, "byte {} as {}", at, byte);
    }
}

#[test]
fn an_empty_folder_is_never_the_same() {
    let a = run(
        Size {
            ranks: 2,
            iterations: 1,
            ops: 3,
        },
        None,
    );
    let empty: Run = Vec::new();
    for (x, y) in [(&a, &empty), (&empty, &a), (&empty, &empty)] {
        assert_eq!(compared(x, y).verdict, Verdict::NothingCompared);
    }
    let hollow: Run = vec![Vec::new(); 2];
    assert_ne!(compared(&hollow, &hollow).verdict, Verdict::Same);
    assert_eq!(compared(&a, &hollow).verdict, Verdict::Untrusted);
}

#[test]
fn a_rank_on_one_side_only_cannot_be_compared() {
    let size = Size {
        ranks: 3,
        iterations: 1,
        ops: 3,
    };
    let a = run(size, None);
    let b: Run = a[..2].to_vec();
    let found = compared(&a, &b);
    assert_eq!(found.verdict, Verdict::Untrusted);
    assert_eq!(found.reasons[0].code, "rank-on-one-side");
}

/// What is wrong with a line is told with its file, line and byte.
#[test]
fn damage_is_named_with_its_place() {
    let size = Size {
        ranks: 2,
        iterations: 2,
        ops: 6,
    };
    let a = run(size, None);
    type Harm = (&'static str, fn(&mut Vec<String>), u64);
    let harms: [Harm; 9] = [
        (
            "duplicate-key",
            |lines| {
                lines[3] = lines[3].replace("\"rank\":1", "\"rank\":1,\"rank\":1");
            },
            4,
        ),
        (
            "duplicate-key",
            |lines| {
                lines[3] = lines[3].replace("\"scope\"", "\"x\":{\"a\":1,\"a\":2},\"scope\"");
            },
            4,
        ),
        (
            "nan-literal",
            |lines| {
                lines[5] = lines[5].replace("\"microbatch\":0", "\"microbatch\":NaN");
            },
            6,
        ),
        (
            "cut-line",
            |lines| {
                let cut = lines[7].len() / 2;
                lines[7].truncate(cut);
            },
            8,
        ),
        (
            "sequence-gap",
            |lines| {
                lines.remove(2);
            },
            3,
        ),
        (
            "wrong-rank",
            |lines| {
                lines[0] = lines[0].replace("\"rank\":1", "\"rank\":0");
            },
            1,
        ),
        (
            "wrong-field",
            |lines| {
                lines[1] = lines[1].replace("\"numel\":8", "\"numel\":9");
            },
            2,
        ),
        (
            "wrong-field",
            |lines| {
                lines[1] = lines[1].replace("version\":1", "version\":2");
            },
            2,
        ),
        ("not-json", |lines| lines[4].push('x'), 5),
    ];
    for (code, harm, line) in harms {
        let (root, folder, _other) = folders(&a, &a);
        assert!(certify(&folder).is_trusted());
        let path = root.path().join("a/rank_000001.jsonl");
        let text = std::fs::read_to_string(&path).expect("it was written");
        let mut lines: Vec<String> = text.lines().map(str::to_string).collect();
        harm(&mut lines);
        std::fs::write(&path, lines.join("\n") + "\n").expect("it is writable");
        let certificate = certify(&folder);
        let reason = &certificate.reasons[0];
        assert_eq!((reason.code, reason.line), (code, Some(line)), "{reason:?}");
        assert!(reason.file.ends_with("a/rank_000001.jsonl") && reason.byte > 0);
        let found = compare(&folder, &_other, false);
        assert_eq!(found.verdict, Verdict::Untrusted, "{code}");
    }
    let (root, folder, _other) = folders(&a, &a);
    let path = root.path().join("a/rank_000000.jsonl");
    let mut bytes = std::fs::read(&path).expect("it was written");
    let second = bytes
        .iter()
        .position(|byte| *byte == b'\n')
        .expect("a line")
        + 1;
    bytes[second + 30] = 0xff;
    std::fs::write(&path, bytes).expect("it is writable");
    let reason = &certify(&folder).reasons[0];
    assert_eq!(
        (reason.code, reason.line, reason.byte),
        ("not-utf8", Some(2), 31)
    );
}

/// A line of a rank, with more in its payload.
fn line(rank: u32, seq: u64, iteration: u64, payload: &str) -> String {
    format!(
        "{{\"schema_version\":1,\"seq\":{seq},\"rank\":{rank},\"iteration\":{iteration},\
         \"kind\":\"collective\",\"name\":\"all_reduce\",\"payload\":{{{payload}}}}}\n"
    )
}

fn operand(value: u64) -> String {
    format!("{{\"shape\":[2],\"dtype\":\"float32\",\"numel\":2,\"digest\":\"{value:016x}\"}}")
}

/// Pull request 7262's own files: one a rank and iteration, each counting from 0.
#[test]
fn a_file_for_each_iteration_is_one_stream() {
    let root = tempfile::tempdir().expect("a temporary folder");
    let write = |side: &str, iteration: u64, value: u64| {
        let folder = root.path().join(side);
        std::fs::create_dir_all(&folder).expect("a writable folder");
        let (input, output) = (operand(1), operand(value));
        let payload = format!("\"id\":\"x:0\",\"in\":[{input}],\"out\":[{output}]");
        let name = format!("rank00000_iter{iteration:06}.jsonl");
        std::fs::write(folder.join(name), line(0, 0, iteration, &payload)).expect("written");
    };
    for iteration in 1..=11 {
        write("a", iteration, 2);
        write("b", iteration, if iteration < 10 { 2 } else { 3 });
    }
    let [a, b] = ["a", "b"].map(|side| Folder::open(&root.path().join(side)).expect("traces"));
    assert!(certify(&a).is_trusted());
    let found = compare(&a, &b, false);
    assert_eq!(found.firsts[&0].point.iteration, Some(10));
    assert_eq!(found.strength, Strength::Xor);
}

/// Two groups of one name, known by their ranks: the other group's input is none of ours. A member
/// without a trace leaves it undecided.
#[test]
fn a_group_is_its_ranks() {
    for (ranks, role) in [
        ("[0,1]", Role::Origin),
        ("[0,2]", Role::Receiver),
        ("[0,9]", Role::Undecided),
    ] {
        let root = tempfile::tempdir().expect("a temporary folder");
        for (side, name) in ["a", "b"].into_iter().enumerate() {
            let folder = root.path().join(name);
            std::fs::create_dir(&folder).expect("a writable folder");
            for rank in 0..3 {
                let given = if rank == 2 { side as u64 } else { 5 };
                let own = if rank == 0 { ranks } else { "[1,2]" };
                let payload = format!(
                    "\"id\":\"x:0\",\"in\":[{}],\"out\":[{}],\"group\":\"dp\",\"group_seq\":4,\
                     \"group_ranks\":{own}",
                    operand(given),
                    operand(10 + side as u64)
                );
                let path = folder.join(format!("rank_{rank}.jsonl"));
                std::fs::write(path, line(rank, 0, 1, &payload)).expect("written");
            }
        }
        let [a, b] = ["a", "b"].map(|side| Folder::open(&root.path().join(side)).expect("traces"));
        let found = compare(&a, &b, false);
        assert_eq!(found.firsts[&0].role, role, "{ranks}");
        assert_eq!(found.firsts[&1].role, Role::Receiver);
        assert_eq!(found.firsts[&2].role, Role::Receiver);
    }
}

/// What begins must end, and what is recomputed must be its forward again.
#[test]
fn pairs_and_recomputation_are_certified() {
    let kinds = |kinds: &[(&str, &str, u64)]| {
        let root = tempfile::tempdir().expect("a temporary folder");
        let mut text = String::new();
        for (seq, (kind, id, value)) in kinds.iter().enumerate() {
            let of = if *kind == "recompute" {
                ",\"of\":\"f:0\""
            } else {
                ""
            };
            let payload = format!(
                "\"id\":\"{id}\",\"in\":[],\"out\":[{}]{of}",
                operand(*value)
            );
            let made = line(0, seq as u64, 1, &payload);
            text.push_str(
                &made.replace("\"kind\":\"collective\"", &format!("\"kind\":\"{kind}\"")),
            );
        }
        std::fs::write(root.path().join("rank_0.jsonl"), text).expect("written");
        let certificate = certify(&Folder::open(root.path()).expect("a trace"));
        certificate.reasons.first().map(|reason| reason.code)
    };
    let begin = ("collective_begin", "b:0", 1);
    let end = ("collective_end", "e:0", 1);
    assert_eq!(kinds(&[begin, end]), None);
    assert_eq!(kinds(&[begin]), Some("unpaired"));
    assert_eq!(kinds(&[end]), Some("unpaired"));
    let forward = ("forward", "f:0", 7);
    assert_eq!(kinds(&[forward, ("recompute", "r:0", 7)]), None);
    assert_eq!(
        kinds(&[forward, ("recompute", "r:0", 8)]),
        Some("recompute-differs")
    );
    assert_eq!(kinds(&[("recompute", "r:0", 8)]), Some("recompute-differs"));
    assert_eq!(
        kinds(&[("op", "x:0", 1), ("op", "x:0", 1)]),
        Some("same-identity")
    );
}

/// Whether a collective was done when its operand was looked at is a matter of time; what is not
/// known is not compared, and that is said.
#[test]
fn an_operand_in_flight_is_not_compared() {
    let flying = "{\"shape\":[2],\"dtype\":\"float32\",\"numel\":2,\"digest\":null,\
        \"in_flight\":true}";
    let null = flying.replace(",\"in_flight\":true", "");
    let known = operand(3);
    for (a, b, verdict) in [
        (flying, &*known, Verdict::Same),
        (flying, flying, Verdict::Same),
        (&*null, &*known, Verdict::Different),
        (&*known, &*operand(4), Verdict::Different),
    ] {
        let root = tempfile::tempdir().expect("a temporary folder");
        for (side, own) in [("a", a), ("b", b)] {
            let folder = root.path().join(side);
            std::fs::create_dir(&folder).expect("a writable folder");
            let payload = format!("\"id\":\"x:0\",\"in\":[],\"out\":[{own},{known}]");
            std::fs::write(folder.join("rank_0.jsonl"), line(0, 0, 1, &payload)).expect("written");
        }
        let [x, y] = ["a", "b"].map(|side| Folder::open(&root.path().join(side)).expect("traces"));
        let found = compare(&x, &y, false);
        assert_eq!(found.verdict, verdict, "{a} {b}");
        let is_said = found
            .not_covered
            .iter()
            .any(|said| said.contains("still writing"));
        assert_eq!(is_said, a == flying);
    }
}

/// Equal lines beyond those that are parsed: a pair that begins there and ends further on.
#[test]
fn headers_do_for_long_equal_traces_and_pairs_are_kept() {
    let root = tempfile::tempdir().expect("a temporary folder");
    let count = bitproof::trace::diff::PARSED_LINES + 100;
    for side in ["a", "b"] {
        let folder = root.path().join(side);
        std::fs::create_dir(&folder).expect("a writable folder");
        let mut text = String::new();
        for seq in 0..count {
            let kind = match count - seq {
                50 => "collective_begin",
                1 => "collective_end",
                _ => "op",
            };
            let occurrence = if kind == "op" { seq } else { 0 };
            let value = operand(seq + u64::from(side == "b" && count - seq == 9));
            text.push_str(&format!(
                "{{\"schema_version\":1,\"seq\":{seq},\"rank\":0,\"iteration\":1,\
                 \"microbatch\":0,\"phase\":\"p\",\"kind\":\"{kind}\",\"name\":\"n\",\
                 \"payload\":{{\"id\":\"n:{occurrence}\",\"in\":[],\"out\":[{value}]}}}}\n"
            ));
        }
        std::fs::write(folder.join("rank_0.jsonl"), text).expect("written");
    }
    let [a, b] = ["a", "b"].map(|side| Folder::open(&root.path().join(side)).expect("traces"));
    let said = |found: &Comparison| found.not_covered.iter().any(|said| said.contains("header"));
    let same = compare(&a, &a, false);
    assert_eq!(
        (same.verdict, said(&same)),
        (Verdict::Same, true),
        "{:?}",
        same.reasons
    );
    let parsed = compare(&a, &a, true);
    assert_eq!((parsed.verdict, said(&parsed)), (Verdict::Same, false));
    let found = compare(&a, &b, false);
    assert_eq!(found.verdict, Verdict::Different, "{:?}", found.reasons);
    assert_eq!(found.firsts[&0].point.seq, count - 9);
}
