use std::path::Path;

use super::*;
use crate::numerics::{Digest, Dtype};
use crate::trace::Folder;
use crate::trace::Strength;
use crate::trace::certify::{RankStream, certify};
use crate::trace::damage::Whereabouts;
use crate::trace::diff::{Verdict, compare};
use crate::trace::header;
use crate::trace::op::{Record, Value};

fn description(scenario: &str) -> RunDescription {
    let (format, format_version, bitproof) = RunDescription::format();
    RunDescription {
        format,
        format_version,
        bitproof,
        run: "reference".to_string(),
        scenario: scenario.to_string(),
        scenario_hash: "ab".repeat(32),
        build_hash: "cd".repeat(32),
        kernels_hash: "ef".repeat(32),
        engine: "cpu".to_string(),
        adapter: String::new(),
        strict: true,
        level: Level::Op,
        iterations: None,
        digest: DIGEST_RULE.to_string(),
        world_size: 2,
        ranks: None,
    }
}

fn fingerprint(value: u32) -> Fingerprint {
    Fingerprint {
        elements: 6,
        dtype: Dtype::Bf16,
        digest: Digest::of_words(&[value]),
    }
}

fn begin(folder: &Path, scenario: &str) -> Recording {
    let run = description(scenario);
    Recording::begin(folder, &run, &[0, 1], 1 << 30).unwrap()
}

fn add(recording: &mut Recording, rank: u32, iteration: u32, op: u32) {
    let (input, output) = (fingerprint(op), fingerprint(op + 1));
    recording.op(&OpLine {
        rank,
        iteration: (iteration > 0).then_some(iteration),
        microbatch: Some(0),
        phase: "forward",
        kind: Kind::Op,
        name: "mat\"mul",
        id: &format!("forward/decoder.matmul@0:{op}"),
        scope: "decoder.\u{f6}",
        inputs: &[input, input],
        outputs: &[output],
        extra: ",\"kernel\":\"matmul_nt\",\"time\":7",
    });
}

/// Two ranks, three iterations with five ops each, and what people see.
fn record(folder: &Path, scenario: &str) -> Recording {
    let mut recording = begin(folder, scenario);
    for iteration in 0..3 {
        for rank in 0..2 {
            (0..5).for_each(|op| add(&mut recording, rank, iteration, op));
            if iteration > 0 {
                recording.boundary(rank, |place| step_line(place, iteration));
                recording.boundary(rank, |place| metric_line(place, iteration, "lm loss", 2.5));
            }
        }
        recording.flush();
    }
    recording
}

fn codes(folder: &Path) -> Vec<&'static str> {
    let certificate = certify(&Folder::open(folder).unwrap());
    let codes = certificate.reasons.iter().map(|damage| damage.code);
    codes.collect()
}

fn rank_file(folder: &Path, rank: u32) -> std::path::PathBuf {
    folder.join(format!("rank_{rank:06}.jsonl.zst"))
}

#[test]
fn what_was_recorded_is_read_as_it_was_written() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("run");
    let (records, bytes) = record(&folder, "a").end().unwrap();
    assert_eq!(records, 2 * (15 + 4));
    let on_disk = std::fs::metadata(rank_file(&folder, 0)).unwrap().len();
    assert!(bytes > on_disk, "{bytes} for all files, {on_disk} for one");
    let opened = Folder::open(&folder).unwrap();
    let certificate = certify(&opened);
    assert!(certificate.is_trusted(), "{:?}", certificate.reasons);
    assert_eq!(certificate.ranks[&1].records, 15);
    assert_eq!(certificate.ranks[&1].order_blind, 0);
    assert_eq!(certificate.boundary[&1].records, 4);
    let mut stream = RankStream::open(&opened.ops[&1], Some(1)).unwrap();
    assert!(stream.ready().unwrap());
    stream
        .certified(|record| {
            assert_eq!(
                (&*record.name, &*record.scope),
                ("mat\"mul", "decoder.\u{f6}")
            );
            assert_eq!(record.extra.get("kernel"), Some("\"matmul_nt\""));
            let operand = &record.outputs[0];
            assert_eq!((&*operand.dtype, operand.numel), ("bfloat16", 6));
            let Value::Digest { digest, bytes64 } = &operand.value else {
                panic!("it has a digest");
            };
            let whole = Digest::of_words(&[1]).to_string();
            assert_eq!(
                (&**digest, bytes64.as_deref()),
                (&whole[..16], Some(&*whole))
            );
        })
        .unwrap();
}

#[test]
fn lines_have_the_form_whose_header_is_read_alone() {
    let mut line = Vec::new();
    OpLine {
        rank: 70_000,
        iteration: None,
        microbatch: None,
        phase: "grad-reduce",
        kind: Kind::Collective,
        name: "all_reduce",
        id: "x:0",
        scope: "",
        inputs: &[],
        outputs: &[fingerprint(3)],
        extra: "",
    }
    .write(u64::MAX, &mut line);
    let found = header::Header::scan(&line).expect("the usual form");
    assert_eq!(
        (found.seq, found.rank, found.kind),
        (u64::MAX, 70_000, "collective")
    );
    let file = "x".into();
    let here = Whereabouts {
        file: &file,
        line: 1,
        offset: 0,
        bytes: &line,
    };
    let record = Record::read(&here).unwrap();
    assert_eq!((record.iteration, record.seq), (None, u64::MAX));
}

#[test]
fn equal_recordings_are_the_same_and_others_part_where_they_differ() {
    let root = tempfile::tempdir().unwrap();
    let paths = ["a", "b", "c"].map(|name| root.path().join(name));
    record(&paths[0], "a").end().unwrap();
    record(&paths[1], "a").end().unwrap();
    let mut recording = begin(&paths[2], "c");
    for rank in 0..2 {
        (0..5).for_each(|op| add(&mut recording, rank, 0, op));
        (0..5).for_each(|op| {
            add(
                &mut recording,
                rank,
                1,
                op + 9 * u32::from(rank == 1 && op == 4),
            )
        });
    }
    recording.end().unwrap();
    let folders = paths.map(|path| Folder::open(&path).unwrap());
    let same = compare(&folders[0], &folders[1], false);
    assert_eq!(
        (same.verdict, same.strength),
        (Verdict::Same, Strength::Full)
    );
    let other = compare(&folders[0], &folders[2], true);
    assert_eq!(other.verdict, Verdict::Different, "{:?}", other.reasons);
    assert_eq!(other.firsts[&1].point.seq, 9);
}

/// A killed run leaves what was flushed, readable and not trusted.
#[test]
fn a_prefix_is_readable_and_is_no_whole_run() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("run");
    let mut recording = record(&folder, "a");
    add(&mut recording, 0, 3, 0);
    drop(recording);
    assert_eq!(codes(&folder), ["unfinished-run"]);
    let opened = Folder::open(&folder).unwrap();
    let mut stream = RankStream::open(&opened.ops[&0], Some(0)).unwrap();
    let mut count = 0;
    while stream.ready().unwrap() {
        stream.certified(|_| ()).unwrap();
        stream.advance();
        count += 1;
    }
    assert_eq!(count, 15, "what was kept in memory is lost, no more");
}

#[test]
fn a_folder_that_holds_something_is_never_recorded_into() {
    let root = tempfile::tempdir().unwrap();
    let empty = root.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    record(&empty, "a").end().unwrap();
    let refused = |path: &Path| {
        let run = description("a");
        let begun = Recording::begin(path, &run, &[0], 1 << 30);
        begun.err().expect("it is refused").to_string()
    };
    assert!(refused(&empty).contains("already"));
    let file = root.path().join("file");
    std::fs::write(&file, "x").unwrap();
    assert!(
        refused(&file).contains("cannot write"),
        "{}",
        refused(&file)
    );
    assert_eq!(std::fs::read(&file).unwrap(), b"x");
}

#[test]
fn a_budget_ends_a_recording_and_leaves_its_start() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("run");
    let run = description("a");
    let mut recording = Recording::begin(&folder, &run, &[0], 20_000).unwrap();
    for op in 0..20_000 {
        add(&mut recording, 0, 1, op);
    }
    let written = recording.written();
    assert!(written > 20_000 && written < 100_000, "{written}");
    assert!(matches!(
        recording.end(),
        Err(RecordingError::Budget { .. })
    ));
    assert!(codes(&folder).contains(&"unfinished-run"));
}

#[test]
fn files_of_another_run_are_seen() {
    let root = tempfile::tempdir().unwrap();
    let make = |name: &str, scenario: &str| {
        let folder = root.path().join(name);
        record(&folder, scenario).end().unwrap();
        folder
    };
    let (a, b) = (make("a", "a"), make("b", "b"));
    std::fs::copy(rank_file(&b, 1), rank_file(&a, 1)).unwrap();
    assert_eq!(codes(&a), ["other-run"]);
    // One rank's file under another's name.
    let c = make("c", "c");
    std::fs::copy(rank_file(&c, 0), rank_file(&c, 1)).unwrap();
    assert!(codes(&c).contains(&"other-run"), "{:?}", codes(&c));
}

/// Whole files are no whole recording where others of it, or what says which there were, are gone.
#[test]
fn what_was_taken_out_of_a_recording_is_seen() {
    let root = tempfile::tempdir().unwrap();
    let make = |name: &str| {
        let folder = root.path().join(name);
        record(&folder, "a").end().unwrap();
        folder
    };
    let run = make("run");
    assert_eq!(codes(&run), [] as [&str; 0]);
    std::fs::remove_file(run.join("run.json")).unwrap();
    assert_eq!(codes(&run), ["no-run-file"]);
    std::fs::remove_file(rank_file(&run, 1)).unwrap();
    std::fs::remove_file(rank_file(&run.join("boundary"), 1)).unwrap();
    assert_eq!(codes(&run), ["no-run-file"]);
    let boundary = make("boundary");
    std::fs::remove_dir_all(boundary.join("boundary")).unwrap();
    assert_eq!(codes(&boundary), ["no-stream"]);
    let ops = make("ops");
    for rank in 0..2 {
        std::fs::remove_file(rank_file(&ops, rank)).unwrap();
    }
    assert_eq!(codes(&ops), ["no-stream"]);
}

#[test]
fn a_single_file_is_whole_by_its_own_header() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("run");
    record(&folder, "a").end().unwrap();
    let file = rank_file(&folder, 1);
    assert_eq!(codes(&file), [] as [&str; 0]);
    let renamed = root.path().join("mine.jsonl.zst");
    std::fs::copy(&file, &renamed).unwrap();
    assert_eq!(codes(&renamed), [] as [&str; 0]);
    let whole = std::fs::read(&file).unwrap();
    let end = whole.len() - super::frames::END_BYTES;
    std::fs::write(&renamed, &whole[..end]).unwrap();
    assert_eq!(codes(&renamed), ["unfinished-run"]);
}

/// Cut or changed anywhere, a file is not trusted, or it says the same (zstd has a bit that no
/// decoder reads).
#[test]
fn damage_anywhere_is_seen() {
    let root = tempfile::tempdir().unwrap();
    let [folder, copy] = ["run", "copy"].map(|name| root.path().join(name));
    record(&folder, "a").end().unwrap();
    record(&copy, "a").end().unwrap();
    let path = rank_file(&folder, 1);
    let whole = std::fs::read(&path).unwrap();
    let last = whole.len() - 64..whole.len();
    for at in (0..whole.len()).step_by(7).chain(last) {
        std::fs::write(&path, &whole[..at]).unwrap();
        assert!(!codes(&folder).is_empty(), "cut at byte {at}");
    }
    let mut harmless = 0;
    for at in 0..whole.len() {
        let mut changed = whole.clone();
        changed[at] ^= 0x10;
        std::fs::write(&path, &changed).unwrap();
        if codes(&folder).is_empty() {
            let folders = [&folder, &copy].map(|path| Folder::open(path).unwrap());
            let same = compare(&folders[0], &folders[1], true);
            assert_eq!(same.verdict, Verdict::Same, "changed at byte {at}");
            harmless += 1;
        }
    }
    assert!(harmless < 70, "{harmless}: more than frames and padding");
}

/// A frame that is lost shows in the next one's numbers, or in the count at the end.
#[test]
fn lost_frames_are_seen() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("run");
    record(&folder, "a").end().unwrap();
    let path = rank_file(&folder, 0);
    let whole = std::fs::read(&path).unwrap();
    let frames: Vec<usize> = memchr::memmem::find_iter(&whole, &[0x28, 0xb5, 0x2f, 0xfd]).collect();
    assert_eq!(frames.len(), 3, "a frame each time it was flushed");
    let end = whole.len() - super::frames::END_BYTES;
    for (from, to, code) in [
        (frames[0], frames[1], "sequence-gap"),
        (frames[2], end, "lost-records"),
    ] {
        let cut = [&whole[..from], &whole[to..]].concat();
        std::fs::write(&path, cut).unwrap();
        assert!(codes(&folder).contains(&code), "{:?}", codes(&folder));
    }
}
