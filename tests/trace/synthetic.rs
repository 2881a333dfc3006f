//! Runs made up of hashes: values flow from op to op and, through collectives, from rank to rank,
//! so that a planted difference spreads as a real one would.
#![allow(dead_code, reason = "each test binary uses its own part")]

use std::fmt::Write as _;
use std::path::Path;

/// A record before it is a line.
#[derive(Clone, Debug, PartialEq)]
pub struct Made {
    pub iteration: u64,
    pub kind: &'static str,
    pub name: &'static str,
    pub id: String,
    pub inputs: Vec<u64>,
    pub output: u64,
}

/// Each rank's records in its own order.
pub type Run = Vec<Vec<Made>>;

/// Where something is planted.
#[derive(Clone, Copy, Debug)]
pub struct Plant {
    pub rank: usize,
    pub iteration: u64,
    /// Which record of the iteration.
    pub place: usize,
}

/// How large a run is.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    pub ranks: usize,
    pub iterations: u64,
    /// Ops of an iteration; every third is a collective.
    pub ops: usize,
}

impl Size {
    /// Records of an iteration: ops, a gradient and a parameter.
    pub fn records(self) -> usize {
        self.ops + 2
    }
}

const OPS: [&str; 4] = [
    "aten.mm.default",
    "aten.mul.Tensor",
    "aten.gelu.default",
    "aten.embedding_dense_backward.default",
];

fn mix(values: &[u64]) -> u64 {
    values.iter().fold(0x9e37_79b9_7f4a_7c15, |all, value| {
        (all ^ value)
            .wrapping_mul(0xff51_afd7_ed55_8ccd)
            .rotate_left(29)
    })
}

/// Runs the made-up training, with a difference planted in the output of one record.
pub fn run(size: Size, plant: Option<Plant>) -> Run {
    let mut ranks: Run = vec![Vec::new(); size.ranks];
    let mut states: Vec<u64> = (0..size.ranks as u64).map(|rank| mix(&[rank])).collect();
    for iteration in 1..=size.iterations {
        let first: Vec<u64> = states.clone();
        for place in 0..size.records() {
            let at = |rank: usize| {
                plant.is_some_and(|plant| {
                    (plant.rank, plant.iteration, plant.place) == (rank, iteration, place)
                })
            };
            let group = mix(&states);
            for rank in 0..size.ranks {
                let occurrence = place as u64;
                let (kind, name, inputs, clean) = match size.ops.checked_sub(place) {
                    Some(1..) if place % 3 == 2 => (
                        "collective",
                        "all_reduce",
                        vec![states[rank]],
                        mix(&[group]),
                    ),
                    Some(1..) => {
                        let inputs = vec![states[rank], first[rank]];
                        let output = mix(&[inputs[0], inputs[1], occurrence]);
                        ("op", OPS[place % OPS.len()], inputs, output)
                    }
                    Some(0) => ("grad", "w", Vec::new(), states[rank]),
                    None => ("param", "w", Vec::new(), mix(&[states[rank], 1])),
                };
                let output = if at(rank) { clean ^ 1 } else { clean };
                ranks[rank].push(Made {
                    iteration,
                    kind,
                    name,
                    id: format!("{kind}:{name}:{occurrence}"),
                    inputs,
                    output,
                });
                states[rank] = output;
            }
        }
    }
    ranks
}

/// Whether the record of that place is a collective.
pub fn is_collective(size: Size, place: usize) -> bool {
    place < size.ops && place % 3 == 2
}

fn operand(value: u64) -> String {
    let other = mix(&[value]);
    format!(
        "{{\"shape\":[4,2],\"dtype\":\"float32\",\"numel\":8,\"digest\":\"{value:016x}\",\
         \"bytes64\":\"{other:016x}\"}}"
    )
}

/// The lines of one rank.
pub fn lines(rank: usize, records: &[Made]) -> Vec<String> {
    let line = |(seq, made): (usize, &Made)| {
        let inputs: Vec<String> = made.inputs.iter().map(|value| operand(*value)).collect();
        let mut line = format!(
            "{{\"schema_version\":1,\"seq\":{seq},\"rank\":{rank},\"iteration\":{},\
             \"microbatch\":0,\"phase\":\"forward\",\"kind\":\"{}\",\"name\":\"{}\",\
             \"payload\":{{\"id\":\"{}\",\"scope\":\"a/b\",\"in\":[{}],\"out\":[{}]",
            made.iteration,
            made.kind,
            made.name,
            made.id,
            inputs.join(","),
            operand(made.output)
        );
        if made.kind == "collective" {
            line.push_str(",\"group\":\"dp\"");
        }
        line + "}}"
    };
    records.iter().enumerate().map(line).collect()
}

/// Writes a run as a folder of traces.
pub fn write(folder: &Path, run: &Run) {
    std::fs::create_dir_all(folder).expect("a writable folder");
    let run_file = format!("{{\"world_size\":{}}}", run.len());
    std::fs::write(folder.join("run.json"), run_file).expect("written");
    for (rank, records) in run.iter().enumerate() {
        let mut text = String::new();
        for line in lines(rank, records) {
            writeln!(text, "{line}").expect("memory");
        }
        std::fs::write(folder.join(format!("rank_{rank:06}.jsonl")), text).expect("written");
    }
}
