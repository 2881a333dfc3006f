//! What is no file of its form is refused, with its place and the reason.

use bitproof::diagnostic::Source;
use bitproof::topology::import::{Given, import};

use super::fixture;

/// The finding, and the words that it points at.
#[track_caller]
pub fn refused(sources: &[Source]) -> (String, String) {
    let finding = import(sources, &Given::default()).expect_err("it is refused");
    let (place, _) = finding.place.clone().expect("every refusal has a place");
    let at = place.source.text[place.span.clone()].to_string();
    (finding.to_plain(), at)
}

#[track_caller]
pub fn refuses(name: &str, changes: &[(&str, &str)], at: &str, why: &str) {
    let mut text = fixture(name).text.to_string();
    for (from, to) in changes {
        assert!(text.contains(from), "{from} is in {name}");
        text = text.replacen(from, to, 1);
    }
    let (said, place) = refused(&[Source::new(name, text)]);
    assert!(said.contains(why), "{said}");
    assert_eq!(place, at, "{said}");
}

#[test]
fn graph_files() {
    let refuses = |from, to, at, why| refuses("graph.xml", &[(from, to)], at, why);
    refuses(
        "nchannels=\"2\"",
        "nchannels=\"3\"",
        "3",
        "the graph has 2 channels",
    );
    refuses(
        "nchannels=\"2\"",
        "nchannels=\"x\"",
        "x",
        "a number from 1 to 32",
    );
    refuses(
        "dev=\"0x3\"",
        "dev=\"0x1\"",
        "<channel>",
        "each GPU of the node once",
    );
    refuses(
        "dev=\"0x3\"",
        "dev=\"zero\"",
        "zero",
        "a hexadecimal number",
    );
    refuses("pattern=\"4\"", "pattern=\"3\"", "3", "expected 4, a ring");
    refuses("pattern=\"1\"", "pattern=\"9\"", "9", "expected 1, 2 or 3");
    refuses("id=\"1\"", "id=\"0\"", "0", "is there already");
    refuses(
        "id=\"0\"",
        "id=\"2\"",
        "<graphs version=\"1\">",
        "no ring graph",
    );
    refuses(
        "pattern=\"4\" ",
        "",
        "<graph id=\"0\" crossnic=\"2\" nchannels=\"2\" speedintra=\"24\">",
        "has no `pattern`",
    );
}

#[test]
fn bombs_and_depth() {
    let one = |text: &str| refused(&[Source::new("x.xml", text)]).0;
    let entities = "<!DOCTYPE graphs [<!ENTITY a \"b\">]><graphs>&a;</graphs>";
    assert!(one(entities).contains("document types are not read"));
    assert!(one("<graphs version=\"&a;\"/>").contains("a bad value"));
    let deep = format!("<graphs>{}", "<graph>".repeat(1000));
    assert!(one(&deep).contains("nested more than 64 deep"));
    let many = format!("<graphs>{}</graphs>", "<a/>".repeat(200_001));
    assert!(one(&many).contains("more than 200000 elements"));
    assert!(one("<graphs><graph></graphs>").contains("this is no XML"));
    assert!(one("<graphs>").contains("has no end"));
}

#[test]
fn logs_that_contradict_themselves() {
    let zero = "two-hosts-0.log";
    let change = |from: &str, to: &str| {
        let mut logs = [fixture(zero), fixture("two-hosts-1.log")];
        assert!(logs[0].text.contains(from), "{from}");
        logs[0] = Source::new(zero, logs[0].text.replacen(from, to, 1));
        refused(&logs)
    };
    let (said, at) = change("Ring 00 : 3 -> 0 -> 1", "Ring 00 : 3 -> 0 -> 2");
    assert!(
        said.contains("rank 0 sends to rank 2, which receives from rank 1"),
        "{said}"
    );
    assert!(at.ends_with("Ring 00 : 3 -> 0 -> 2"), "{at}");
    let (said, _) = change("[0] 1/2/-1->0->-1", "[0] 2/-1/-1->0->-1");
    assert!(said.contains("nobody's child"), "{said}");
    let (said, _) = change("[0] 1/2/-1->0->-1", "[0] 1/3/-1->0->-1");
    assert!(
        said.contains("has a child 3, which does not say so"),
        "{said}"
    );
    let (said, at) = change("Ring 00 : 3 -> 0 -> 1", "Ring 00 : 3 to 1");
    assert!(
        said.contains("this `Ring` line is none") && at.ends_with("3 to 1"),
        "{said}"
    );
    let (said, _) = refused(&[fixture(zero)]);
    assert!(
        said.contains("logs of 2 of 4 ranks are missing: rank 2 is the first"),
        "{said}"
    );
    let nothing = Source::new("empty.log", "n0:1:2 [0] NCCL INFO Bootstrap : Using eth0\n");
    assert!(
        refused(&[nothing])
            .0
            .contains("no rank of the log joins anything")
    );
}

#[test]
fn what_is_of_no_known_form_or_of_two() {
    let (said, _) = refused(&[Source::new("x", "lorem ipsum\n")]);
    assert!(said.contains("known are: NCCL graph XML, "), "{said}");
    let (said, _) = refused(&[fixture("graph.xml"), fixture("two-hosts-0.log")]);
    assert!(said.contains("files of two forms"), "{said}");
    let other = fixture("graph.xml")
        .text
        .replace("crossnic=\"2\"", "crossnic=\"0\"");
    let (said, _) = refused(&[fixture("graph.xml"), Source::new("b.xml", other)]);
    assert!(said.contains("nodes with different graphs"), "{said}");
}
