//! Gloo's plans, evaluated, against results of real torch.distributed on gloo.

use bitproof::plan::{Piece, gloo};
use golden::{edge_table, golden};
use half::{bf16, f16};
use rayon::prelude::*;
use serde_json::Value;

#[path = "support/ctr64.rs"]
mod ctr64;
#[path = "support/golden.rs"]
mod golden;
#[path = "support/sha256.rs"]
mod sha256;

use ctr64::{Format, format, hex, input};

#[inline]
fn add_f32(a: u64, b: u64) -> u64 {
    u64::from((f32::from_bits(a as u32) + f32::from_bits(b as u32)).to_bits())
}

#[inline]
fn add_f64(a: u64, b: u64) -> u64 {
    (f64::from_bits(a) + f64::from_bits(b)).to_bits()
}

#[inline]
fn add_f16(a: u64, b: u64) -> u64 {
    let sum = f16::from_bits(a as u16).to_f32() + f16::from_bits(b as u16).to_f32();
    u64::from(f16::from_f32(sum).to_bits())
}

#[inline]
fn add_bf16(a: u64, b: u64) -> u64 {
    let sum = bf16::from_bits(a as u16).to_f32() + bf16::from_bits(b as u16).to_f32();
    u64::from(bf16::from_f32(sum).to_bits())
}

fn divide_f32(sum: u64, ranks: u32) -> u64 {
    u64::from((f32::from_bits(sum as u32) / ranks as f32).to_bits())
}

struct Case<'a> {
    json: &'a Value,
    op: &'a str,
    ranks: u32,
    elements: u64,
    format: Format,
    edge: Option<Vec<u64>>,
}

impl<'a> Case<'a> {
    fn read(json: &'a Value, file: &Value) -> Case<'a> {
        let text = |key: &str| json[key].as_str().expect("a text");
        let ranks = json["n"].as_u64().expect("a number") as u32;
        // A coalesced call lists its tensors, which are reduced as their concatenation.
        let count = match &json["count"] {
            Value::Array(counts) => counts.iter().filter_map(Value::as_u64).sum(),
            count => count.as_u64().expect("a number"),
        };
        let blocks = if text("op") == "reduce_scatter" {
            u64::from(ranks)
        } else {
            1
        };
        let table = || edge_table(file, text("dtype"));
        Case {
            json,
            op: text("op"),
            ranks,
            elements: count * blocks,
            format: format(text("dtype")),
            edge: (text("profile") == "edge").then(table),
        }
    }

    fn pieces(&self) -> Vec<Piece> {
        match self.op {
            "reduce_dst0" | "reduce_dstlast" => {
                gloo::reduce(self.ranks, self.elements, self.format.bytes)
            }
            _ => gloo::all_reduce(self.ranks, self.elements, self.format.bytes),
        }
    }

    fn evaluate(&self, pieces: &[Piece]) -> Vec<u64> {
        // One copy of the loop for each type: a billion additions are made here.
        let sums = match self.json["dtype"].as_str() {
            Some("float32") => self.sums(pieces, add_f32),
            Some("float64") => self.sums(pieces, add_f64),
            Some("float16") => self.sums(pieces, add_f16),
            Some("bfloat16") => self.sums(pieces, add_bf16),
            other => panic!("unknown type {other:?}"),
        };
        match self.op {
            "all_reduce_avg" => sums
                .into_iter()
                .map(|sum| divide_f32(sum, self.ranks))
                .collect(),
            _ => sums,
        }
    }

    fn sums(&self, pieces: &[Piece], add: impl Fn(u64, u64) -> u64) -> Vec<u64> {
        let seed = self.json["seed"].as_u64().expect("a number");
        let edge = self.edge.as_deref();
        let mut out = Vec::with_capacity(self.elements as usize);
        for piece in pieces {
            assert_eq!(
                piece.range.start,
                out.len() as u64,
                "pieces are in order, without gaps"
            );
            let order = piece.tree.order_for_chain().expect("gloo has rings only");
            out.extend(piece.range.clone().map(|element| {
                let value = |rank: u32| input(seed, rank, element, &self.format, edge);
                let first = value(order[0]);
                order[1..]
                    .iter()
                    .fold(first, |partial, rank| add(partial, value(*rank)))
            }));
        }
        assert_eq!(out.len() as u64, self.elements);
        out
    }

    fn agrees(&self, out: &[u64]) -> Result<(), String> {
        let bytes = self.format.bytes;
        let mut packed = Vec::with_capacity(out.len() * bytes as usize);
        for value in out {
            packed.extend_from_slice(&value.to_le_bytes()[..bytes as usize]);
        }
        let mut views = vec![("sha256", sha256::hex(&packed))];
        if self.json.get("out").is_some() {
            views.push(("out", hex(out, bytes)));
        } else {
            views.push(("first64", hex(&out[..64], bytes)));
            views.push(("last64", hex(&out[out.len() - 64..], bytes)));
        }
        for (key, found) in views.into_iter().rev() {
            let expected = self.json[key].as_str().expect("a text");
            if found != expected {
                return Err(format!("{} {}: {key}", self.json["dtype"], self.op));
            }
        }
        Ok(())
    }
}

#[test]
fn golden_gloo_results_are_reproduced_bit_for_bit() {
    let file = golden("gloo_allreduce.json");
    let cases = file["cases"].as_array().expect("a list");
    assert!(cases.len() >= 328, "{} cases", cases.len());
    let failures: Vec<String> = cases
        .par_iter()
        .filter_map(|json| {
            let case = Case::read(json, &file);
            case.agrees(&case.evaluate(&case.pieces())).err()
        })
        .collect();
    assert!(
        failures.is_empty(),
        "{} of {}: {failures:#?}",
        failures.len(),
        cases.len()
    );
}

/// Negative control: with the chunk borders of the other operation the same comparison fails.
#[test]
fn golden_gloo_results_tell_reduce_from_all_reduce() {
    let file = golden("gloo_allreduce.json");
    let cases = file["cases"].as_array().expect("a list");
    let other = |case: &Case| gloo::all_reduce(case.ranks, case.elements, case.format.bytes);
    let reduces = cases.iter().map(|json| Case::read(json, &file));
    let reduces = reduces.filter(|case| case.op == "reduce_dst0" && other(case) != case.pieces());
    let case = reduces
        .min_by_key(|case| case.elements)
        .expect("a reduce with its own borders");
    assert!(case.agrees(&case.evaluate(&case.pieces())).is_ok());
    assert!(case.agrees(&case.evaluate(&other(&case))).is_err());
}

#[test]
fn generator_and_hash_match_the_files_examples() {
    let file = golden("gloo_allreduce.json");
    for (name, example) in file["generator_examples"].as_object().expect("a table") {
        let format = format(name);
        let (seed, rank) = (
            example["seed"].as_u64().unwrap(),
            example["rank"].as_u64().unwrap(),
        );
        let values: Vec<u64> = (0..1000)
            .map(|i| input(seed, rank as u32, i, &format, None))
            .collect();
        assert_eq!(
            hex(&values[..8], format.bytes),
            example["first8"].as_str().unwrap()
        );
        let packed: Vec<u8> = values
            .iter()
            .flat_map(|value| value.to_le_bytes()[..format.bytes as usize].to_vec())
            .collect();
        assert_eq!(
            sha256::hex(&packed),
            example["sha256_of_1000"].as_str().unwrap()
        );
    }
}
