//! Logs as NCCL would have written them, of rings and trees that its own code computed.

use std::fmt::Write;
use std::path::PathBuf;

use bitproof::diagnostic::Source;
use bitproof::plan::Communicator;
use bitproof::topology::import::{Given, Machine};
use serde_json::Value;

use super::symbols::Symbols;
use super::{fixture, imported, written};

fn golden() -> Value {
    let path = match std::env::var_os("BITPROOF_GOLDEN_DIR") {
        Some(folder) => PathBuf::from(folder).join("nccl_graphs.json"),
        None => PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/nccl_plans.json"),
    };
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_str(&text).expect("golden files are JSON")
}

fn list(value: &Value) -> &[Value] {
    value.as_array().expect("a list")
}

fn number(value: &Value) -> i64 {
    value.as_i64().expect("a number")
}

/// Node of each rank.
fn nodes(case: &Value) -> Vec<i64> {
    match &case["out"]["rankToNode"] {
        Value::Array(nodes) => nodes.iter().map(number).collect(),
        runs => {
            let run = |run: &Value| vec![number(&run[0]); number(&run[1]) as usize];
            list(&runs["rle"]).iter().flat_map(run).collect()
        }
    }
}

/// The rings and trees of a case, written out for every channel.
struct Case {
    nodes: Vec<i64>,
    rings: Vec<Vec<i64>>,
    /// Of each channel and rank: up, and three down.
    trees: Vec<Vec<[i64; 4]>>,
}

impl Case {
    /// `None` where some are given as hashes only.
    fn of(case: &Value) -> Option<Case> {
        let out = &case["out"];
        let ring = |place: &Value| {
            let ring = out["rings"][number(place) as usize].as_array()?;
            Some(ring.iter().map(number).collect())
        };
        let tree = |place: &Value| {
            let tree = out["trees"][number(place) as usize].as_array()?;
            let rank = |rank: &Value| [0, 1, 2, 3].map(|slot| number(&rank[slot]));
            Some(tree.iter().map(rank).collect())
        };
        Some(Case {
            nodes: nodes(case),
            rings: list(&out["ringOfChannel"])
                .iter()
                .map(ring)
                .collect::<Option<_>>()?,
            trees: list(&out["treeOfChannel"])
                .iter()
                .map(tree)
                .collect::<Option<_>>()?,
        })
    }

    /// The log of each node; `graph` says whether the subsystem GRAPH is on.
    fn logs(&self, graph: bool) -> Vec<Source> {
        let ranks = self.nodes.len();
        let count = self.nodes.iter().max().expect("ranks") + 1;
        let mut logs = vec![String::new(); count as usize];
        let mut local = vec![0; count as usize];
        for rank in 0..ranks {
            let node = self.nodes[rank] as usize;
            let gpu = local[node];
            local[node] += 1;
            let who = format!(
                "gpu{node:02}:{}:{} [{gpu}] NCCL INFO",
                4000 + rank,
                9000 + rank
            );
            let comm =
                format!("comm 0x{rank:x}0 rank {rank} nranks {ranks} cudaDev {gpu} nvmlDev {gpu}");
            let log = &mut logs[node];
            writeln!(
                log,
                "{who} ncclCommInitRank {comm} busId 1000 commId 0xab - Init START"
            )
            .unwrap();
            self.lines(log, &who, rank, graph);
            writeln!(
                log,
                "{who} ncclCommInitRank {comm} busId 1000 commId 0xab - Init COMPLETE"
            )
            .unwrap();
        }
        let named = (0..)
            .zip(logs)
            .map(|(node, log)| Source::new(format!("gpu{node}.log"), log));
        named.collect()
    }

    fn lines(&self, log: &mut String, who: &str, rank: usize, graph: bool) {
        let channels = self.rings.len();
        if rank == 0 {
            for (channel, ring) in self.rings.iter().enumerate() {
                let ring: String = ring.iter().map(|rank| format!(" {rank:3}")).collect();
                let line = format!("Channel {channel:02}/{channels:02} :{ring}");
                writeln!(log, "{who} {}", &line[..line.len().min(127)]).unwrap();
            }
        }
        let mut all = String::new();
        for (channel, tree) in self.trees.iter().enumerate() {
            let [up, a, b, c] = tree[rank];
            write!(all, " [{channel}] {a}/{b}/{c}->{rank}->{up}").unwrap();
        }
        for (channel, ring) in self.rings.iter().enumerate().filter(|_| graph) {
            let at = ring
                .iter()
                .position(|other| *other == rank as i64)
                .expect("in it");
            let neighbour = |step: usize| ring[(at + step) % ring.len()];
            let (before, after) = (neighbour(ring.len() - 1), neighbour(1));
            writeln!(
                log,
                "{who} Ring {channel:02} : {before} -> {rank} -> {after}"
            )
            .unwrap();
        }
        writeln!(log, "{who} Trees{}", &all[..all.len().min(1022)]).unwrap();
    }
}

fn symbol(tree: &[[i64; 4]], rank: usize, symbols: &mut Symbols) -> u32 {
    let down = tree[rank][1..].iter().filter(|child| **child >= 0);
    down.fold(rank as u32, |sum, child| {
        let below = symbol(tree, *child as usize, symbols);
        symbols.add(sum, below)
    })
}

#[test]
fn rings_and_trees_of_logs_are_those_that_nccl_computed() {
    let file = golden();
    let cases = list(&file["cases"]).iter().filter_map(Case::of);
    let mut compared = 0;
    for case in cases {
        let logs = case.logs(true);
        let (_, imported) = imported(&logs, &Given::default());
        let Machine::Allocation(allocation) = imported.machine else {
            panic!("logs have ranks")
        };
        let members: Vec<u32> = (0..case.nodes.len() as u32).collect();
        let communicator = Communicator::new(&allocation, &members);
        let channels = communicator.channels(0, 64);
        assert_eq!(channels.len(), case.rings.len());
        let mut symbols = Symbols::default();
        for (channel, (ring, tree)) in channels.iter().zip(case.rings.iter().zip(&case.trees)) {
            let found: Vec<i64> = communicator
                .ring(*channel)
                .iter()
                .map(|r| i64::from(*r))
                .collect();
            assert_eq!(found, *ring);
            let root = (0..tree.len())
                .find(|rank| tree[*rank][0] < 0)
                .expect("a root");
            let expected = symbol(tree, root, &mut symbols);
            let found = communicator.tree(*channel).expect("trees are in the log");
            assert_eq!(
                found.fold(|addend| addend, |a, b| symbols.add(a, b)),
                expected
            );
            compared += 1;
        }
    }
    assert!(compared >= 100, "{compared} channels");
}

/// Without GRAPH only rank 0 prints rings, and long ones are cut: what is cut is not guessed.
#[test]
fn rings_that_are_cut_are_not_guessed() {
    let file = golden();
    let (mut known, mut unknown) = (0, 0);
    for case in list(&file["cases"]).iter().filter_map(Case::of) {
        let is_whole = 15 + 4 * case.nodes.len() <= 127;
        let (_, imported) = imported(&case.logs(false), &Given::default());
        let Machine::Allocation(allocation) = imported.machine else {
            panic!("logs have ranks")
        };
        let members: Vec<u32> = (0..case.nodes.len() as u32).collect();
        assert_eq!(
            allocation.recorded.of(&members).is_some(),
            is_whole,
            "{}",
            members.len()
        );
        match is_whole {
            true => known += 1,
            false => unknown += 1,
        }
        let says = imported
            .notes
            .iter()
            .any(|note| note.contains("the ring of channel 0"));
        assert_eq!(says, !is_whole);
    }
    assert!(known > 0 && unknown > 0, "{known} whole, {unknown} cut");
}

#[test]
fn a_log_of_two_communicators_becomes_an_allocation() {
    let logs = [fixture("two-hosts-0.log"), fixture("two-hosts-1.log")];
    insta::assert_snapshot!(written(&logs, &Given::default()));
    // A log that is given twice says nothing new.
    let twice = [logs[0].clone(), logs[1].clone(), logs[0].clone()];
    let machine = |logs: &[Source]| imported(logs, &Given::default()).1.machine;
    assert_eq!(machine(&twice), machine(&logs));
}

/// NCCL counts hosts that NVLink joins as one node. Which ones is taken from the order of the hosts
/// only where that numbers their ranks as NCCL does.
#[test]
fn hosts_that_nvlink_joins_are_known_by_the_numbers_of_their_ranks() {
    let domain = |numbers: [u32; 4]| {
        let log = |name| {
            let mut text = fixture(name).text.to_string();
            for (rank, number) in numbers.into_iter().enumerate() {
                let own = format!("rank {rank} nRanks 4 nNodes");
                let of = rank % 2;
                let from = format!("{own} 2 localRanks 2 localRank {of}");
                text = text.replace(&from, &format!("{own} 1 localRanks 4 localRank {number}"));
            }
            Source::new(name, text)
        };
        let logs = [log("two-hosts-0.log"), log("two-hosts-1.log")];
        let (_, imported) = imported(&logs, &Given::default());
        let says = imported
            .notes
            .iter()
            .any(|note| note.contains("is not told"));
        (imported.machine.topology().hosts_per_nvlink_domain, says)
    };
    assert_eq!(domain([0, 1, 2, 3]), (2, false));
    assert_eq!(domain([0, 1, 0, 1]), (1, true));
}

/// The address of a communicator that is gone is used again: a split is of the one that was there.
#[test]
fn a_split_is_of_the_communicator_that_had_the_address_then() {
    let logs = [fixture("two-hosts-0.log"), fixture("two-hosts-1.log")];
    let again = "na:100:400 [1] NCCL INFO ncclCommInitRank comm 0x500 rank 0 nranks 1 cudaDev 1 \
        nvmlDev 1 busId 2000 commId 0x99 - Init START\n\
        na:100:400 [1] NCCL INFO comm 0x500 rank 0 nRanks 1 nNodes 1 localRanks 1 localRank 0 \
        MNNVL 0\n";
    let later = Source::new("two-hosts-0.log", logs[0].text.to_string() + again);
    let of = |logs: &[Source]| match imported(logs, &Given::default()).1.machine {
        Machine::Allocation(allocation) => allocation.recorded,
        Machine::Topology(_) => panic!("a log has communicators"),
    };
    assert_eq!(of(&[later, logs[1].clone()]), of(&logs));
}
