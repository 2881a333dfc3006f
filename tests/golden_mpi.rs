//! Open MPI's plans, evaluated, against results of the real library.
//!
//! The repository holds all cases without their expressions; with `BITPROOF_GOLDEN_DIR` the whole
//! file is read.

use bitproof::plan::Piece;
use bitproof::plan::open_mpi::{
    AllReduce, Reduce, ReduceScatter, ReduceScatterBlock, all_reduce, reduce, reduce_scatter,
    reduce_scatter_block,
};
use golden::golden;
use proptest::prelude::*;
use rayon::prelude::*;
use serde_json::Value;

#[path = "support/ctr64.rs"]
mod ctr64;
#[path = "support/golden.rs"]
mod golden;
#[path = "support/sha256.rs"]
mod sha256;

use ctr64::{Format, format, hex, input};

struct Case<'a> {
    op: &'a str,
    algorithm: &'a str,
    ranks: u32,
    root: u32,
    count: u64,
    /// Elements of each rank's block, where the operation scatters.
    counts: Vec<u64>,
    seed: u64,
    format: Format,
    sha256: &'a str,
}

impl<'a> Case<'a> {
    fn read(json: &'a Value) -> Case<'a> {
        let text = |key: &str| json[key].as_str().expect("a text");
        let number = |value: &Value| value.as_u64().expect("a number");
        let ranks = number(&json["n"]) as u32;
        let count = number(&json["count"]);
        let counts = match &json["counts"] {
            Value::Array(counts) => counts.iter().map(number).collect(),
            _ => vec![count; ranks as usize],
        };
        Case {
            op: text("op"),
            algorithm: text("algorithm"),
            ranks,
            root: json["root"].as_u64().unwrap_or(0) as u32,
            count,
            counts,
            seed: number(&json["seed"]),
            format: format(text("dtype")),
            sha256: text("sha256"),
        }
    }

    fn pieces(&self, algorithm: &str) -> Vec<Piece> {
        let (ranks, count, bytes) = (self.ranks, self.count, self.format.bytes);
        match self.op {
            "allreduce" => all_reduce(ranks, count, bytes, all_reduce_named(algorithm)),
            "reduce" => reduce(ranks, self.root, count, bytes, reduce_named(algorithm)),
            "reduce_scatter" => {
                reduce_scatter(&self.counts, bytes, reduce_scatter_named(algorithm))
            }
            "reduce_scatter_block" => {
                reduce_scatter_block(ranks, count, bytes, block_named(algorithm))
            }
            other => panic!("operation {other}"),
        }
    }

    /// The bits of every element.
    fn evaluate(&self, pieces: &[Piece]) -> Vec<u64> {
        let mut out = Vec::new();
        for piece in pieces {
            assert_eq!(piece.range.start, out.len() as u64, "pieces without gaps");
            assert_eq!(piece.tree.check(self.ranks), Ok(()));
            out.extend(piece.range.clone().map(|element| {
                let value = |rank: u32| input(self.seed, rank, element, &self.format, None);
                piece.tree.fold(value, |a, b| match self.format.bytes {
                    4 => u64::from((f32::from_bits(a as u32) + f32::from_bits(b as u32)).to_bits()),
                    _ => (f64::from_bits(a) + f64::from_bits(b)).to_bits(),
                })
            }));
        }
        out
    }

    fn agrees(&self, pieces: &[Piece]) -> bool {
        let out = self.evaluate(pieces);
        let width = self.format.bytes as usize;
        let packed = out
            .iter()
            .flat_map(|value| value.to_le_bytes()[..width].to_vec());
        sha256::hex(&packed.collect::<Vec<u8>>()) == self.sha256
    }
}

fn all_reduce_named(name: &str) -> AllReduce {
    match name {
        "default" => AllReduce::Default,
        "basic_linear" => AllReduce::BasicLinear,
        "nonoverlapping" => AllReduce::NonOverlapping,
        "recursive_doubling" => AllReduce::RecursiveDoubling,
        "ring" => AllReduce::Ring,
        "segmented_ring" => AllReduce::SegmentedRing,
        "rabenseifner" => AllReduce::Rabenseifner,
        other => panic!("algorithm {other}"),
    }
}

fn reduce_named(name: &str) -> Reduce {
    match name {
        "default" => Reduce::Default,
        "linear" => Reduce::Linear,
        "chain" => Reduce::Chain { fanout: 4 },
        "pipeline" => Reduce::Pipeline,
        "binary" => Reduce::Binary,
        "binomial" => Reduce::Binomial,
        "in_order_binary" => Reduce::InOrderBinary,
        "rabenseifner" => Reduce::Rabenseifner,
        other => panic!("algorithm {other}"),
    }
}

fn reduce_scatter_named(name: &str) -> ReduceScatter {
    match name {
        "default" => ReduceScatter::Default,
        "non_overlapping" => ReduceScatter::NonOverlapping,
        "recursive_halving" => ReduceScatter::RecursiveHalving,
        "ring" => ReduceScatter::Ring,
        "butterfly" => ReduceScatter::Butterfly,
        other => panic!("algorithm {other}"),
    }
}

fn block_named(name: &str) -> ReduceScatterBlock {
    match name {
        "default" => ReduceScatterBlock::Default,
        "basic_linear" => ReduceScatterBlock::BasicLinear,
        "recursive_doubling" => ReduceScatterBlock::RecursiveDoubling,
        "recursive_halving" => ReduceScatterBlock::RecursiveHalving,
        "butterfly" => ReduceScatterBlock::Butterfly,
        other => panic!("algorithm {other}"),
    }
}

#[test]
fn golden_open_mpi_results_are_reproduced_bit_for_bit() {
    let file = golden("mpi_allreduce.json");
    let cases = file["cases"].as_array().expect("a list");
    assert!(cases.len() >= 1376, "{} cases", cases.len());
    let failures: Vec<String> = cases
        .par_iter()
        .map(Case::read)
        .filter(|case| !case.agrees(&case.pieces(case.algorithm)))
        .map(|case| {
            let Case {
                op,
                algorithm,
                ranks,
                root,
                count,
                ..
            } = case;
            format!("{op} {algorithm} n {ranks} root {root} count {count}")
        })
        .collect();
    let (failed, all) = (failures.len(), cases.len());
    assert!(failures.is_empty(), "{failed} of {all}: {failures:#?}");
}

/// Negative control: with the trees of another algorithm the same comparison fails.
#[test]
fn golden_open_mpi_results_tell_algorithms_apart() {
    let file = golden("mpi_allreduce.json");
    let cases = file["cases"].as_array().expect("a list");
    let mut told = 0;
    for json in cases {
        let case = Case::read(json);
        if case.op != "reduce" || case.algorithm != "binary" || case.ranks < 5 || case.count < 64 {
            continue;
        }
        assert!(
            !case.agrees(&case.pieces("binomial")),
            "{}",
            hex(&[case.seed], 8)
        );
        told += 1;
    }
    assert!(told > 10, "{told} cases");
}

proptest! {
    /// Whatever the algorithm, each rank's value is added once to each element.
    #[test]
    fn every_rank_is_added_once(
        ranks in 1u32..200,
        root in 0u32..200,
        count in 1u64..3000,
        element_bytes in prop::sample::select(vec![4u64, 8]),
    ) {
        let root = root % ranks;
        let mut plans = Vec::new();
        for algorithm in ["default", "basic_linear", "nonoverlapping", "recursive_doubling", "ring",
            "segmented_ring", "rabenseifner"] {
            let algorithm = all_reduce_named(algorithm);
            plans.push((count, all_reduce(ranks, count, element_bytes, algorithm)));
        }
        for algorithm in ["default", "linear", "chain", "pipeline", "binary", "binomial",
            "in_order_binary", "rabenseifner"] {
            let algorithm = reduce_named(algorithm);
            plans.push((count, reduce(ranks, root, count, element_bytes, algorithm)));
        }
        let counts: Vec<u64> = (0..u64::from(ranks)).map(|rank| (count + rank) % 5).collect();
        for algorithm in ["default", "non_overlapping", "recursive_halving", "ring", "butterfly"] {
            let algorithm = reduce_scatter_named(algorithm);
            plans.push((counts.iter().sum(), reduce_scatter(&counts, element_bytes, algorithm)));
        }
        for algorithm in ["default", "basic_linear", "recursive_doubling", "recursive_halving",
            "butterfly"] {
            let algorithm = block_named(algorithm);
            let pieces = reduce_scatter_block(ranks, count, element_bytes, algorithm);
            plans.push((count * u64::from(ranks), pieces));
        }
        for (elements, pieces) in plans {
            let mut at = 0;
            for piece in pieces {
                prop_assert!(piece.range.start == at && piece.range.end > at);
                at = piece.range.end;
                // The check is of a program that pushes each addend once.
                prop_assert_eq!(piece.tree.check(ranks), Ok(()));
            }
            prop_assert_eq!(at, elements);
        }
    }
}
