//! Documents: spans, merges, limits.

use super::*;
use crate::diagnostic::Findings;

fn composed(text: &str) -> Result<(Source, Document), Vec<String>> {
    let source = Source::new("model_config.yaml", text);
    let mut findings = Findings::default();
    match compose(&source, &mut findings) {
        Some(document) => {
            assert!(!findings.has_errors());
            Ok((source, document))
        }
        None => Err(findings.into_vec().iter().map(|f| f.to_plain()).collect()),
    }
}

/// Keys and the text under the spans of keys and values of the root.
fn root_entries(text: &str) -> Vec<(String, String, String)> {
    let (source, document) = composed(text).unwrap();
    let root = document.root();
    let mut findings = Findings::default();
    let entries = document.entries(&root, &mut Merges::default(), &mut findings);
    assert!(!findings.has_errors(), "{findings:?}");
    let at = |span: &Range<usize>| source.text[span.clone()].to_string();
    entries
        .iter()
        .map(|entry| {
            (
                entry.key.text.clone(),
                at(entry.key_span),
                at(&entry.value.span),
            )
        })
        .collect()
}

#[track_caller]
fn refused(text: &str, code: &str, line: usize) {
    let source = Source::new("model_config.yaml", text);
    let mut findings = Findings::default();
    if let Some(document) = compose(&source, &mut findings) {
        let root = document.root();
        document.entries(&root, &mut Merges::default(), &mut findings);
    }
    let found = findings.into_vec();
    let first = found.first().expect("an error");
    assert_eq!(first.code, code, "{}", first.to_plain());
    let (place, _) = first.place.as_ref().unwrap();
    assert_eq!(place.source.line_column(place.span.start).0, line);
}

#[test]
fn keys_and_values_know_their_places() {
    let texts = [
        "a: 1.0e-5\n--b-c: :4096:8 # c\n'd': \"[x y]\"\n",
        "\u{feff}a: 1.0e-5\r\n--b-c: :4096:8 # c\r\n'd': \"[x y]\"\r\n",
    ];
    for text in texts {
        let found = root_entries(text);
        let expected = [
            ("a", "a", "1.0e-5"),
            ("--b-c", "--b-c", ":4096:8"),
            ("d", "'d'", "\"[x y]\""),
        ];
        let found: Vec<_> = found.iter().map(|(a, b, c)| (&**a, &**b, &**c)).collect();
        assert_eq!(found, expected, "{text:?}");
    }
}

#[test]
fn places_count_bytes_behind_wide_characters() {
    let found = root_entries("# gr\u{f6}\u{df}e \u{1f600}\nk\u{f6}: w\u{fc}\nz: &a last\n");
    assert_eq!(found[0].1, "k\u{f6}");
    assert_eq!(found[0].2, "w\u{fc}");
    assert_eq!(found[1].2, "&a last");
}

#[test]
fn explicit_keys_win_wherever_they_stand_and_order_is_kept() {
    let text = "\
A: &A {x: 1, y: 2}
B: &B {y: 3, z: 4}
C: &C
  <<: [*A, *B]
  z: 5
";
    let (source, document) = composed(text).unwrap();
    let root = document.root();
    let (mut merges, mut findings) = (Merges::default(), Findings::default());
    let entries = document.entries(&root, &mut merges, &mut findings);
    let merged = document.entries(entries[2].value, &mut merges, &mut findings);
    let shown: Vec<_> = merged
        .iter()
        .map(|e| format!("{}={}", e.key.text, &source.text[e.value.span.clone()]))
        .collect();
    assert_eq!(shown, ["x=1", "y=2", "z=5"]);
    let before = root_entries("x: 9\n<<: {x: 1, w: 2}\n");
    assert_eq!((before[0].2.as_str(), before[1].2.as_str()), ("9", "2"));
}

#[test]
fn broken_documents_are_refused_with_their_places() {
    refused("a: 1\nb: 2\na: 3\n", "duplicate-key", 3);
    refused("a: &a\n  b: *a\n", "yaml-cycle", 2);
    refused("a: &a [*a]\n", "yaml-cycle", 1);
    refused("a: *b\n", "yaml-syntax", 1);
    refused("a: 1\n<<: 3\n", "yaml-merge", 2);
    refused("a: 1\n<<: [{b: 1}, [c]]\n", "yaml-merge", 2);
    refused("a: {b\n", "yaml-syntax", 2);
    refused("a: 1\n? [b]\n: 2\n", "wrong-type", 2);
    refused("a: 1\n---\nb: 2\n", "yaml-documents", 2);
    refused("a: !!python/object 1\n", "yaml-tag", 1);
    refused("a: !x 1\n", "yaml-tag", 1);
    refused("# nothing\n", "yaml-empty", 1);
    refused("<<: {a: 1}\n<<: {b: 1}\n", "duplicate-key", 2);
}

#[test]
fn a_tab_that_breaks_a_document_is_shown() {
    for text in ["a: 1\n\tb: 2\n", "a:\n  b: 1\n \tc: 2\n"] {
        let shown = composed(text).unwrap_err().join("\n");
        assert!(shown.contains("a tab: YAML indents with blanks"), "{shown}");
    }
    assert!(!composed("a: [\n").unwrap_err()[0].contains("a tab"));
}

#[test]
fn bombs_end_at_their_limits() {
    refused(&"[".repeat(100), "yaml-depth", 1);
    // The parser's own limit is reached before it tells of the first bracket.
    refused(&"[".repeat(100_000), "yaml-syntax", 1);
    refused(&format!("a: {}", "{b: ".repeat(100)), "yaml-depth", 1);
    refused(&format!("a: {}", "{b: ".repeat(100_000)), "yaml-depth", 1);
    let steps: String = (0..1_000)
        .map(|i| format!("{}- \n", " ".repeat(i)))
        .collect();
    refused(&steps, "yaml-depth", 65);
    refused(
        &format!("a: {}", "x".repeat(1_000_000)),
        "value-too-long",
        1,
    );
    refused(
        &format!("{}: 1", "x".repeat(1_000_000)),
        "value-too-long",
        1,
    );
    let keys: String = (0..1_000_000).map(|i| format!("k{i}:\n")).collect();
    refused(&keys, "yaml-size", 65_536);
    let mut laughs = String::from("a0: &a0 {x: 1, y: 2}\n");
    for i in 1..40 {
        let targets = vec![format!("*a{}", i - 1); 9].join(", ");
        laughs += &format!("a{i}: &a{i}\n  <<: [{targets}]\n");
    }
    let (_, document) = composed(&laughs).unwrap();
    let root = document.root();
    let (mut merges, mut findings) = (Merges::default(), Findings::default());
    for entry in document.entries(&root, &mut merges, &mut findings) {
        document.entries(entry.value, &mut merges, &mut findings);
    }
    let found = findings.into_vec();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].code, "yaml-merge-size");
    let mut chain = String::from("a0: &a0 {x: 1}\n");
    (1..200).for_each(|i| chain += &format!("a{i}: &a{i} {{<<: *a{}}}\n", i - 1));
    refused(&(chain + "<<: *a199\n"), "yaml-merge-size", 137);
}
