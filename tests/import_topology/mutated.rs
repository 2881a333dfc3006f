//! Files that are damaged: a refusal with a place, or something whose own file reads as it. The
//! fuzz target `topology_file` asks the same of any bytes.

use bitproof::diagnostic::Source;
use bitproof::topology::import::{Given, import};
use proptest::prelude::*;

use super::{fixture, written};

const FILES: [&str; 14] = [
    "graph.xml",
    "machine.xml",
    "virtual.xml",
    "two-hosts-0.log",
    "two-hosts-1.log",
    "smi.txt",
    "tree.conf",
    "block.conf",
    "topology.yaml",
    "astra.yml",
    "simai.txt",
    "ib.txt",
    "hosts.txt",
    "ranks.txt",
];

/// One thing done to a text.
#[derive(Clone, Debug)]
enum Damage {
    Cut {
        from: usize,
        length: usize,
    },
    Put {
        at: usize,
        what: String,
    },
    Again {
        from: usize,
        length: usize,
        at: usize,
    },
    Line {
        drop: usize,
    },
}

fn damage() -> impl Strategy<Value = Damage> {
    let place = 0usize..4000;
    let piece = prop::sample::select(vec![
        "",
        "0",
        "9",
        "99999999999999999999",
        "-1",
        ",",
        "[",
        "]",
        "\"",
        "<",
        ">",
        "/",
        "=",
        ":",
        "\n",
        "\t",
        " ",
        "#",
        "&",
        "*",
        "->",
        "\u{fc}",
        "\u{1b}[4m",
        "[0-9]",
        "<gpu dev=\"1\"/>",
        "slots=",
    ]);
    prop_oneof![
        (place.clone(), 1usize..40).prop_map(|(from, length)| Damage::Cut { from, length }),
        (place.clone(), piece).prop_map(|(at, what)| Damage::Put {
            at,
            what: what.to_string()
        }),
        (place.clone(), 1usize..200, place.clone()).prop_map(|(from, length, at)| Damage::Again {
            from,
            length,
            at
        }),
        place.prop_map(|drop| Damage::Line { drop }),
    ]
}

fn damaged(text: &str, all: &[Damage]) -> String {
    let mut chars: Vec<char> = text.chars().collect();
    for one in all {
        let count = chars.len().max(1);
        match one {
            Damage::Cut { from, length } => {
                let from = (from % count).min(chars.len());
                chars.drain(from..(from + length).min(chars.len()));
            }
            Damage::Put { at, what } => {
                let at = (at % count).min(chars.len());
                chars.splice(at..at, what.chars());
            }
            Damage::Again { from, length, at } => {
                let from = (from % count).min(chars.len());
                let piece = chars[from..(from + length).min(chars.len())].to_vec();
                let at = (at % count).min(chars.len());
                chars.splice(at..at, piece);
            }
            Damage::Line { drop } => {
                let text: String = chars.iter().collect();
                let lines: Vec<&str> = text.split_inclusive('\n').collect();
                let drop = drop % lines.len().max(1);
                let kept = lines.iter().enumerate().filter(|(line, _)| *line != drop);
                chars = kept.flat_map(|(_, line)| line.chars()).collect();
            }
        }
    }
    chars.into_iter().collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn damaged_files_are_refused_or_read(
        file in prop::sample::select(FILES.to_vec()),
        other in prop::option::of(prop::sample::select(FILES.to_vec())),
        all in prop::collection::vec(damage(), 1..4),
        gpus_per_host in prop::option::of(1u32..10),
        hosts in prop::option::of(1u32..10),
    ) {
        let text = damaged(&fixture(file).text, &all);
        let mut sources = vec![Source::new(file, text)];
        sources.extend(other.map(fixture));
        let given = Given { gpus_per_host, hosts, ..Given::default() };
        match import(&sources, &given) {
            Err(finding) => {
                prop_assert!(finding.place.is_some(), "{}", finding.to_plain());
            }
            Ok(_) => drop(written(&sources, &given)),
        }
    }
}
