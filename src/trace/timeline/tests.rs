use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use proptest::prelude::*;
use serde_json::Value;

use super::*;

/// One step of a synthetic run.
#[derive(Clone, Debug)]
enum Step {
    /// A rank works on one of its streams.
    Work {
        rank: u32,
        stream: u8,
    },
    /// All ranks of a group (a set of bits) call a collective.
    Call {
        group: u8,
    },
    Message {
        from: u32,
        to: u32,
    },
}

const WORLD: u32 = 4;

/// What recorders say of the members of a group.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Said {
    Ranks,
    Size,
    Nothing,
}

/// Names that JSON must escape.
const STREAMS: [&str; 2] = ["comp\"ute\\", "\u{1}\u{2028}off</script>"];

fn members(group: u8) -> Vec<u32> {
    (0..WORLD).filter(|rank| group & (1 << rank) != 0).collect()
}

/// Writes what each rank records; `is_timed` with a clock that all share.
fn write(folder: &Path, steps: &[Step], said: Said, is_timed: bool) {
    let mut texts = vec![String::new(); WORLD as usize];
    let mut seqs = [0u64; WORLD as usize];
    let mut calls: BTreeMap<u8, u64> = BTreeMap::new();
    for (time, step) in steps.iter().enumerate() {
        let mut add = |rank: u32, kind: &str, stream: &str, extra: &str| {
            let seq = seqs[rank as usize];
            seqs[rank as usize] += 1;
            let stream = serde_json::to_string(stream).unwrap();
            let clock = match is_timed {
                true => format!(",\"time\":{time}"),
                false => String::new(),
            };
            writeln!(
                texts[rank as usize],
                "{{\"schema_version\":1,\"seq\":{seq},\"rank\":{rank},\"iteration\":1,\
                 \"microbatch\":null,\"phase\":\"forward\",\"kind\":\"{kind}\",\
                 \"name\":\"o\\\"p\",\"payload\":{{\"id\":\"o:{seq}\",\"scope\":\"\\u0007\",\
                 \"in\":[],\"out\":[],\"stream\":{stream}{extra}{clock}}}}}"
            )
            .unwrap();
        };
        match step {
            Step::Work { rank, stream } => add(*rank, "op", STREAMS[usize::from(*stream)], ""),
            Step::Call { group } => {
                let seq = calls.entry(*group).or_default();
                let ranks = members(*group);
                let who = match said {
                    Said::Ranks => format!(",\"group_ranks\":{ranks:?}"),
                    Said::Size => format!(",\"group_size\":{}", ranks.len()),
                    Said::Nothing => String::new(),
                };
                let extra = format!(",\"group\":\"g{group}\",\"group_seq\":{seq}{who}");
                *seq += 1;
                let stream = format!("collectives of {group}");
                ranks
                    .iter()
                    .for_each(|rank| add(*rank, "collective", &stream, &extra));
            }
            Step::Message { from, to } => {
                let extra = format!(",\"group\":\"{from} to {to}\"");
                add(*from, "message", &format!("sends to {to}"), &extra);
                add(*to, "message", &format!("receives from {from}"), &extra);
            }
        }
    }
    for (rank, text) in texts.iter().enumerate() {
        std::fs::write(folder.join(format!("rank_{rank:06}.jsonl")), text).unwrap();
    }
}

fn drawn(folder: &Path, ranks: impl Fn(u32) -> bool) -> (Value, Drawn) {
    let folder = Folder::open(folder).unwrap();
    let mut out = Vec::new();
    let drawn = draw(&folder, ranks, &Extent::default(), &mut out).unwrap();
    (serde_json::from_slice(&out).unwrap(), drawn)
}

type Track = (u64, u64);

fn track(event: &Value) -> Track {
    (
        event["pid"].as_u64().unwrap(),
        event["tid"].as_u64().unwrap(),
    )
}

fn of_kind<'a>(page: &'a Value, ph: &str) -> impl Iterator<Item = &'a Value> {
    let ph = ph.to_string();
    let events = page["traceEvents"].as_array().unwrap().iter();
    events.filter(move |event| event["ph"] == *ph)
}

/// Slices of a track neither go back nor overlap.
fn assert_in_order(page: &Value) {
    let mut ends: BTreeMap<Track, u64> = BTreeMap::new();
    for slice in of_kind(page, "X") {
        let from = slice["ts"].as_u64().unwrap();
        let end = from + slice["dur"].as_u64().unwrap();
        let before = ends.insert(track(slice), end).unwrap_or(0);
        assert!(
            from > before || before == 0,
            "{slice} begins before {before}"
        );
    }
}

/// The slices that each flow joins; each begins once, ends once, and not before it began.
fn flows(page: &Value) -> BTreeMap<u64, Vec<Value>> {
    let mut found: BTreeMap<u64, Vec<&Value>> = BTreeMap::new();
    for ph in ["s", "t", "f"] {
        for flow in of_kind(page, ph) {
            found
                .entry(flow["id"].as_u64().unwrap())
                .or_default()
                .push(flow);
        }
    }
    let slice_at = |flow: &Value| {
        let at = flow["ts"].as_u64().unwrap();
        let is_there = |slice: &&Value| {
            let from = slice["ts"].as_u64().unwrap();
            let within = from..from + slice["dur"].as_u64().unwrap();
            track(slice) == track(flow) && within.contains(&at)
        };
        of_kind(page, "X").find(is_there).expect("a slice").clone()
    };
    let joined = found.into_iter().map(|(id, parts)| {
        let phs: Vec<&str> = parts
            .iter()
            .map(|part| part["ph"].as_str().unwrap())
            .collect();
        let within = vec!["t"; parts.len() - 2];
        assert_eq!(phs, [vec!["s"], within, vec!["f"]].concat());
        assert!(parts.iter().all(|part| part["name"] == parts[0]["name"]));
        let times: Vec<u64> = parts
            .iter()
            .map(|part| part["ts"].as_u64().unwrap())
            .collect();
        assert!(times.is_sorted());
        (id, parts.into_iter().map(slice_at).collect())
    });
    joined.collect()
}

/// What a call is known by in the slice of one of its members.
fn call_of(slice: &Value) -> String {
    format!("{} {}", slice["args"]["group"], slice["args"]["group_seq"])
}

fn streams_written(steps: &[Step]) -> BTreeSet<(u64, String)> {
    let mut found = BTreeSet::new();
    for step in steps {
        match step {
            Step::Work { rank, stream } => {
                found.insert((u64::from(*rank), STREAMS[usize::from(*stream)].to_string()));
            }
            Step::Call { group } => {
                let label = format!("collectives of {group}");
                let ranks = members(*group).into_iter();
                found.extend(ranks.map(|rank| (u64::from(rank), label.clone())));
            }
            Step::Message { from, to } => {
                found.insert((u64::from(*from), format!("sends to {to}")));
                found.insert((u64::from(*to), format!("receives from {from}")));
            }
        }
    }
    found
}

fn step() -> impl Strategy<Value = Step> {
    let message = (0..WORLD, 1..WORLD).prop_map(|(from, away)| Step::Message {
        from,
        to: (from + away) % WORLD,
    });
    prop_oneof![
        (0..WORLD, 0..2u8).prop_map(|(rank, stream)| Step::Work { rank, stream }),
        (1..16u8).prop_map(|group| Step::Call { group }),
        message,
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever a run was: every stream of every rank is there, each in its own order, and each
    /// call is joined over exactly its members, at one place.
    #[test]
    fn a_run_is_drawn_whole(
        steps in prop::collection::vec(step(), 1..40),
        said in prop_oneof![Just(Said::Ranks), Just(Said::Size), Just(Said::Nothing)],
        is_timed in any::<bool>(),
    ) {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), &steps, said, is_timed);
        let (page, drawn) = drawn(root.path(), |_| true);
        assert_in_order(&page);
        let names = of_kind(&page, "M").filter(|line| line["name"] == "thread_name");
        let names: BTreeSet<(u64, String)> = names
            .map(|line| (track(line).0, line["args"]["name"].as_str().unwrap().to_string()))
            .collect();
        prop_assert_eq!(names, streams_written(&steps));
        let joined = flows(&page);
        prop_assert_eq!(joined.len() as u64, drawn.flows);
        let mut groups: Vec<Vec<u64>> = Vec::new();
        for slices in joined.values() {
            prop_assert!(slices.iter().all(|slice| slice["ts"] == slices[0]["ts"]));
            prop_assert!(slices.iter().all(|slice| call_of(slice) == call_of(&slices[0])));
            groups.push(slices.iter().map(|slice| track(slice).0).collect());
        }
        let truth = steps.iter().filter_map(|step| match step {
            Step::Call { group } => Some(members(*group)).filter(|ranks| ranks.len() > 1),
            Step::Message { from, to } if is_timed => Some(vec![*from.min(to), *from.max(to)]),
            _ => None,
        });
        let mut truth: Vec<Vec<u64>> = truth
            .map(|ranks| ranks.into_iter().map(u64::from).collect())
            .collect();
        prop_assert_eq!(drawn.lacking, 0);
        if said == Said::Nothing && !is_timed {
            // Who belongs to a call can only be guessed; what is joined does belong together.
            let belongs = |group: &Vec<u64>| {
                let holds = |whole: &Vec<u64>| group.iter().all(|rank| whole.contains(rank));
                truth.iter().any(holds)
            };
            prop_assert!(groups.iter().all(belongs));
            return Ok(());
        }
        groups.sort();
        truth.sort();
        prop_assert_eq!(groups, truth);
    }

    /// Some ranks alone: calls are joined over those of their members, and nobody waits for one
    /// that is not drawn.
    #[test]
    fn some_ranks_alone_are_drawn(
        steps in prop::collection::vec(step(), 1..40),
        chosen in 1..16u8,
    ) {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), &steps, Said::Ranks, true);
        let (page, drawn) = drawn(root.path(), |rank| chosen & (1 << rank) != 0);
        assert_in_order(&page);
        let expected = steps.iter().filter(|step| match step {
            Step::Call { group } => (group & chosen).count_ones() > 1,
            Step::Message { from, to } => {
                let both = (1u8 << from) | (1 << to);
                both & chosen == both
            }
            Step::Work { .. } => false,
        });
        prop_assert_eq!(flows(&page).len(), expected.count());
        prop_assert_eq!(drawn.lacking, 0);
    }
}

/// Two ranks that call two groups in other orders: nobody waits for ever, nothing is joined that
/// does not belong together, and it is said.
#[test]
fn orders_that_disagree_end() {
    let root = tempfile::tempdir().unwrap();
    for (rank, groups) in [(0, ["a", "b"]), (1, ["b", "a"])] {
        let line = |(seq, group): (usize, &str)| {
            format!(
                "{{\"schema_version\":1,\"seq\":{seq},\"rank\":{rank},\"iteration\":1,\
                 \"kind\":\"collective\",\"name\":\"all_reduce\",\"payload\":{{\"id\":\"{seq}\",\
                 \"group\":\"{group}\",\"group_seq\":0,\"group_ranks\":[0,1]}}}}\n"
            )
        };
        let text: String = groups.into_iter().enumerate().map(line).collect();
        std::fs::write(root.path().join(format!("rank_{rank}.jsonl")), text).unwrap();
    }
    let (page, drawn) = drawn(root.path(), |_| true);
    assert_in_order(&page);
    assert_eq!((drawn.events, drawn.lacking), (4, 2));
    let joined = flows(&page);
    assert_eq!(
        joined.len(),
        1,
        "the other group's call can be joined: {page}"
    );
    assert_eq!(call_of(&joined[&1][0]), call_of(&joined[&1][1]));
}

/// A clock that no run has is refused, and so are more streams than a viewer shows.
#[test]
fn what_no_viewer_shows_is_refused() {
    let line = |seq: usize, extra: &str| {
        format!(
            "{{\"schema_version\":1,\"seq\":{seq},\"rank\":0,\"iteration\":1,\"kind\":\"op\",\
             \"name\":\"a\",\"payload\":{{\"id\":\"{seq}\"{extra}}}}}\n"
        )
    };
    let refused = |text: &str| {
        let root = tempfile::tempdir().unwrap();
        std::fs::write(root.path().join("rank_0.jsonl"), text).unwrap();
        let folder = Folder::open(root.path()).unwrap();
        let drawn = draw(&folder, |_| true, &Extent::default(), &mut Vec::new());
        drawn.unwrap_err()
    };
    let late = line(0, ",\"time\":18446744073709551615");
    assert!(matches!(refused(&late), TimelineError::Late { rank: 0 }));
    let many = (0..=STREAMS_MAX).map(|seq| line(seq, &format!(",\"stream\":{seq}")));
    let many: String = many.collect();
    assert!(matches!(refused(&many), TimelineError::ManyStreams));
    let damaged = line(1, "");
    assert!(matches!(refused(&damaged), TimelineError::Damaged(_)));
}
