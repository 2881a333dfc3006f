use std::io::Write;

use super::*;

fn all(mut lines: Lines) -> Result<Vec<Vec<u8>>, Damage> {
    let mut found = Vec::new();
    while lines.ready()? {
        found.push(lines.line().to_vec());
        lines.advance();
    }
    Ok(found)
}

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

fn zst(text: &[u8]) -> Vec<u8> {
    zstd::encode_all(text, 3).unwrap()
}

fn written(name: &str, bytes: &[u8]) -> (tempfile::TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    (folder, path)
}

#[test]
fn lines_are_those_of_the_text_however_it_is_packed() {
    let long = "y".repeat(3 * CHUNK);
    let text = format!("a\n\n{long}\nlast");
    let expected: Vec<Vec<u8>> = text.split('\n').map(|line| line.into()).collect();
    let doubled = [gzip(b"a\n\n"), gzip(&text.as_bytes()[3..])].concat();
    for (name, bytes) in [
        ("a.jsonl", text.clone().into_bytes()),
        ("a.jsonl.gz", gzip(text.as_bytes())),
        ("b.jsonl.gz", doubled),
        ("a.jsonl.zst", zst(text.as_bytes())),
    ] {
        let (_folder, path) = written(name, &bytes);
        assert_eq!(
            all(Lines::open(&path).unwrap()).unwrap(),
            expected,
            "{name}"
        );
    }
}

#[test]
fn places_count_lines_and_bytes() {
    let mut lines = Lines::of_bytes("x", b"ab\nc\nd".to_vec(), Limits::default());
    let mut seen = Vec::new();
    while lines.ready().unwrap() {
        let here = lines.whereabouts();
        seen.push((here.line, here.offset, lines.is_closed()));
        lines.advance();
    }
    assert_eq!(seen, [(1, 0, true), (2, 3, true), (3, 5, false)]);
}

#[test]
fn a_line_that_is_known_is_not_searched_for() {
    let mut lines = Lines::of_bytes("x", b"ab\nabc\n".to_vec(), Limits::default());
    assert!(lines.ready().unwrap());
    assert!(!lines.is_next(b"a") && !lines.is_next(b"abc") && lines.is_next(b"ab"));
    lines.advance();
    assert!(!lines.is_next(b"ab") && lines.is_next(b"abc"));
    assert_eq!(lines.line(), b"abc");
}

#[test]
fn packed_files_that_are_cut_or_damaged_are_named() {
    let text = (0..20_000)
        .map(|n| format!("{{\"n\":{n}}}\n"))
        .collect::<String>();
    for (name, bytes) in [
        ("a.gz", gzip(text.as_bytes())),
        ("a.zst", zst(text.as_bytes())),
    ] {
        for keep in [bytes.len() / 2, bytes.len() - 1] {
            let (_folder, path) = written(name, &bytes[..keep]);
            let damage = all(Lines::open(&path).unwrap()).unwrap_err();
            assert_eq!(damage.code, "cut-file", "{name}: {damage:?}");
            assert!(damage.line.is_some(), "{damage:?}");
        }
        let mut broken = bytes.clone();
        let middle = broken.len() / 2;
        broken[middle..middle + 9].fill(0xff);
        let (_folder, path) = written(name, &broken);
        assert!(all(Lines::open(&path).unwrap()).is_err(), "{name}");
    }
    let (_folder, path) = written("a.gz", b"plain text");
    assert_eq!(
        all(Lines::open(&path).unwrap()).unwrap_err().code,
        "damaged-file"
    );
}

#[test]
fn bombs_are_refused_before_they_burst() {
    let blank = vec![b'\n'; 8 << 20];
    for (name, bytes) in [("a.gz", gzip(&blank)), ("a.zst", zst(&blank))] {
        let (_folder, path) = written(name, &bytes);
        let tight = Limits {
            ratio: 100,
            ratio_free: 1 << 20,
            ..Limits::default()
        };
        let damage = all(Lines::open_within(&path, tight).unwrap()).unwrap_err();
        assert_eq!(damage.code, "unpacks-too-large", "{name}");
        assert!(all(Lines::open(&path).unwrap()).is_ok(), "{name}: no bomb");
    }
}

#[test]
fn long_lines_are_refused() {
    let tight = Limits {
        line_bytes: 10,
        ..Limits::default()
    };
    for (text, is_read) in [("0123456789\nx", true), ("0123456789x\n", false)] {
        let lines = Lines::of_bytes("x", text.into(), tight);
        assert_eq!(all(lines).is_ok(), is_read, "{text}");
    }
    let endless = vec![b'x'; 4 * CHUNK];
    let damage = all(Lines::of_bytes("x", endless, tight)).unwrap_err();
    assert_eq!(damage.code, "long-line");
}

#[test]
fn a_missing_file_and_a_folder_are_no_traces() {
    let folder = tempfile::tempdir().unwrap();
    assert!(Lines::open(&folder.path().join("none")).is_err());
    assert!(Lines::open(folder.path()).is_err());
}
