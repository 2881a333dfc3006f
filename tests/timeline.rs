//! `bitproof report DIR --perfetto FILE` as a whole process: what is drawn of a check's recording,
//! held against the records themselves, and what is refused.

use std::collections::{BTreeMap, BTreeSet};

use process::{bitproof, ended};
use serde_json::Value;

#[path = "support/process.rs"]
mod process;
#[path = "support/shared.rs"]
mod shared;

/// Two pipeline stages with two replicas each: collectives and messages.
const SCENARIO: &str = "
name = 'drawn'
oracles = ['R2R']
steps = 2
[recipe]
world_size = 4
num_layers = 2
pipeline_model_parallel_size = 2
hidden_size = 16
ffn_hidden_size = 16
num_attention_heads = 2
seq_length = 8
micro_batch_size = 1
global_batch_size = 8
train_iters = 400
lr = 5e-3
[recipe.env]
NCCL_ALGO = 'Ring'
";

fn run(arguments: &[&str]) -> (i32, String, String) {
    ended(bitproof(env!("CARGO_MANIFEST_DIR")).args(arguments))
}

/// A folder with a recording in `run`.
struct Place(tempfile::TempDir);

impl Place {
    fn new(more: &[&str]) -> Place {
        let place = Place(tempfile::tempdir().expect("a folder"));
        std::fs::write(place.path("s.toml"), SCENARIO).expect("it is written");
        let (scenario, folder) = (place.path("s.toml"), place.path("run"));
        let given = ["check", &scenario, "--no-save", "-q", "--trace", &folder];
        let (code, text, talk) = run(&[&given[..], more].concat());
        assert_eq!(code, 0, "{text}{talk}");
        place
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    fn draw(&self, from: &str, more: &[&str]) -> (i32, String) {
        let (from, to) = (self.path(from), self.path("drawn.json"));
        let given = ["report", &from, "--perfetto", &to];
        let (code, out, talk) = run(&[&given[..], more].concat());
        assert_eq!(out, "", "nothing is data on standard output");
        (code, talk)
    }

    fn page(&self) -> Value {
        let text = std::fs::read_to_string(self.path("drawn.json")).expect("it is there");
        serde_json::from_str(&text).expect("it is JSON")
    }

    fn records(&self) -> Vec<Value> {
        let folder = self.path("run");
        let given = [
            "trace", "show", &folder, "--format", "json", "--limit", "1000000",
        ];
        let (code, text, _) = run(&given);
        assert_eq!(code, 0);
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }
}

fn of_kind<'a>(page: &'a Value, ph: &'a str) -> impl Iterator<Item = &'a Value> {
    let events = page["traceEvents"].as_array().unwrap().iter();
    events.filter(move |event| event["ph"] == *ph)
}

fn track(event: &Value) -> (u64, u64) {
    (
        event["pid"].as_u64().unwrap(),
        event["tid"].as_u64().unwrap(),
    )
}

#[test]
fn a_timeline_has_every_record_on_its_rank_and_stream() {
    let place = Place::new(&[]);
    let (code, talk) = place.draw("run", &[]);
    assert_eq!(code, 0, "{talk}");
    assert!(talk.contains("not time"), "{talk}");
    let page = place.page();
    let clock = page["otherData"]["clock"].as_str().unwrap();
    assert!(clock.contains("not time"), "{clock}");
    let names = of_kind(&page, "M").filter(|line| line["name"] == "thread_name");
    let names: BTreeMap<(u64, u64), &str> = names
        .map(|line| (track(line), line["args"]["name"].as_str().unwrap()))
        .collect();
    let drawn = of_kind(&page, "X").map(|slice| {
        let stream = names[&track(slice)].to_string();
        let args = &slice["args"];
        (
            slice["pid"].as_u64(),
            args["seq"].as_u64(),
            args["id"].clone().to_string(),
            stream,
        )
    });
    let records = place.records();
    let recorded = records.iter().map(|record| {
        let payload = &record["payload"];
        let stream = payload["stream"]
            .as_str()
            .expect("each names its stream")
            .to_string();
        (
            record["rank"].as_u64(),
            record["seq"].as_u64(),
            payload["id"].to_string(),
            stream,
        )
    });
    let (drawn, recorded): (BTreeSet<_>, BTreeSet<_>) = (drawn.collect(), recorded.collect());
    assert_eq!(drawn.len(), records.len());
    assert_eq!(drawn, recorded);
    let streams: BTreeSet<&str> = names.values().copied().collect();
    for start in ["compute", "collectives of ", "sends to ", "receives from "] {
        assert!(
            streams.iter().any(|name| name.starts_with(start)),
            "{streams:?}"
        );
    }
    let mut ends: BTreeMap<(u64, u64), u64> = BTreeMap::new();
    for slice in of_kind(&page, "X") {
        let from = slice["ts"].as_u64().unwrap();
        let before = ends.insert(track(slice), from + slice["dur"].as_u64().unwrap());
        assert!(before.is_none_or(|before| before < from), "{slice}");
    }
}

/// Of each call, as its members' records tell it: which ranks there are.
fn calls(records: &[Value]) -> BTreeMap<String, BTreeSet<u64>> {
    let mut found: BTreeMap<String, BTreeSet<u64>> = BTreeMap::new();
    for record in records
        .iter()
        .filter(|record| record["kind"] == "collective")
    {
        let payload = &record["payload"];
        let key = format!("{} {}", payload["group"], payload["group_seq"]);
        found
            .entry(key)
            .or_default()
            .insert(record["rank"].as_u64().unwrap());
    }
    found
}

#[test]
fn a_timeline_joins_each_collective_and_message() {
    let place = Place::new(&["--trace-level", "semantic"]);
    assert_eq!(place.draw("run", &[]).0, 0);
    let (page, records) = (place.page(), place.records());
    let slices: BTreeMap<(u64, u64, u64), &Value> = of_kind(&page, "X")
        .map(|slice| {
            let (rank, stream) = track(slice);
            ((rank, stream, slice["ts"].as_u64().unwrap()), slice)
        })
        .collect();
    let mut joined: BTreeMap<u64, Vec<(&str, &Value)>> = BTreeMap::new();
    for ph in ["s", "t", "f"] {
        for flow in of_kind(&page, ph) {
            let (rank, stream) = track(flow);
            let at = (rank, stream, flow["ts"].as_u64().unwrap());
            let (_, slice) = slices.range(..=at).next_back().expect("a slice holds it");
            let id = flow["id"].as_u64().unwrap();
            joined.entry(id).or_default().push((ph, slice));
        }
    }
    let mut found: BTreeMap<String, BTreeSet<u64>> = BTreeMap::new();
    let mut messages = 0;
    for parts in joined.values() {
        assert_eq!((parts[0].0, parts[parts.len() - 1].0), ("s", "f"));
        assert!(parts[1..parts.len() - 1].iter().all(|(ph, _)| *ph == "t"));
        let args = &parts[0].1["args"];
        let is_same = |(_, slice): &(&str, &Value)| {
            ["group", "group_seq", "collective"]
                .iter()
                .all(|key| slice["args"][key] == args[key])
        };
        assert!(parts.iter().all(is_same), "{parts:?}");
        if parts[0].1["cat"] == "message" {
            messages += 1;
            assert_eq!(parts.len(), 2);
            continue;
        }
        let key = format!("{} {}", args["group"], args["group_seq"]);
        let ranks = parts
            .iter()
            .map(|(_, slice)| slice["pid"].as_u64().unwrap());
        assert!(
            found.insert(key, ranks.collect()).is_none(),
            "one flow a call"
        );
    }
    let mut truth = calls(&records);
    truth.retain(|_, ranks| ranks.len() > 1);
    assert!(!truth.is_empty());
    assert_eq!(found, truth);
    let ends = records
        .iter()
        .filter(|record| record["kind"] == "message")
        .count();
    assert!(messages > 0);
    assert_eq!(2 * messages, ends);
}

#[test]
fn a_timeline_of_some_ranks_and_steps() {
    let place = Place::new(&["--trace-level", "semantic"]);
    assert_eq!(place.draw("run", &["--ranks", "1-2", "--steps", "2"]).0, 0);
    let page = place.page();
    let is_of = |slice: &Value| [1, 2].contains(&track(slice).0) && slice["args"]["iteration"] == 2;
    assert!(of_kind(&page, "X").all(is_of));
    let records = place.records();
    let kept = records.iter().filter(|record| {
        record["iteration"] == 2 && [1, 2].contains(&record["rank"].as_u64().unwrap())
    });
    assert_eq!(of_kind(&page, "X").count(), kept.count());
}

#[test]
fn a_timeline_is_refused_where_nothing_can_be_drawn() {
    let place = Place::new(&["--trace-level", "semantic"]);
    let is_written = || std::path::Path::new(&place.path("drawn.json")).exists();
    let (code, talk) = place.draw("none", &[]);
    assert_eq!((code, is_written()), (2, false), "{talk}");
    let (code, talk) = place.draw("run", &["--ranks", "9"]);
    assert_eq!((code, is_written()), (5, false), "{talk}");
    let (code, talk) = place.draw("run", &["--steps", "9"]);
    assert_eq!((code, is_written()), (5, false), "{talk}");
    std::fs::write(place.path("run.json"), "{}").unwrap();
    let (code, talk) = place.draw("run.json", &[]);
    assert_eq!((code, is_written()), (2, false), "{talk}");
    assert!(talk.contains("--trace DIR"), "{talk}");
    std::fs::write(place.path("drawn.json"), "mine").unwrap();
    let (code, talk) = place.draw("run", &[]);
    assert_eq!(code, 2, "{talk}");
    assert!(talk.contains("--force"), "{talk}");
    let kept = std::fs::read_to_string(place.path("drawn.json")).unwrap();
    assert_eq!(kept, "mine");
    assert_eq!(place.draw("run", &["--force"]).0, 0);
    assert!(place.page()["summary"]["events"].as_u64() > Some(0));
    std::fs::remove_file(place.path("drawn.json")).unwrap();
    let file = place.path("run/rank_000001.jsonl.zst");
    let whole = std::fs::read(&file).unwrap();
    // A run that was killed is drawn as far as it came; a damaged file is not.
    std::fs::write(&file, &whole[..whole.len() - 64]).unwrap();
    let (code, talk) = place.draw("run", &[]);
    assert_eq!((code, is_written()), (0, true), "{talk}");
    assert!(talk.contains("unfinished-run"), "{talk}");
    std::fs::remove_file(place.path("drawn.json")).unwrap();
    std::fs::write(&file, &whole[..whole.len() / 2]).unwrap();
    let (code, talk) = place.draw("run", &[]);
    assert_eq!((code, is_written()), (4, false), "{talk}");
    let left = std::fs::read_dir(place.0.path()).unwrap();
    let left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
    assert!(
        !left
            .iter()
            .any(|name| name.to_string_lossy().starts_with(".tmp")),
        "{left:?}"
    );
}

/// Real traces of PyTorch DDP over Gloo, which name a group and not its members.
#[test]
fn a_timeline_of_a_real_run() {
    let Some(traces) = shared::shared("BITPROOF_TRACES_DIR", "traces", "identical/run_a/run.json")
    else {
        return;
    };
    let place = Place(tempfile::tempdir().unwrap());
    let from = traces.join("identical/run_a").display().to_string();
    let to = place.path("drawn.json");
    let (code, _, talk) = run(&["report", &from, "--perfetto", &to]);
    assert_eq!(code, 0, "{talk}");
    let page = place.page();
    let is_collective = |slice: &&Value| slice["cat"] == "collective";
    let ends = of_kind(&page, "X").filter(is_collective).count();
    assert!(ends > 0);
    assert_eq!(
        4 * of_kind(&page, "s").count(),
        ends,
        "all four ranks make each call"
    );
    assert_eq!(of_kind(&page, "s").count(), of_kind(&page, "f").count());
}
