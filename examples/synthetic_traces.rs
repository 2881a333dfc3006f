//! Writes two large made-up traces that part at one op, to see how fast `bitproof trace diff` is on
//! a disk of your own.
//!
//! `cargo run --release --example synthetic_traces -- DIR RANKS MEGABYTES_A_RANK [same|parted|other]`
//!
//! `parted` (the default) parts at one op in the middle on rank 0; `other` writes every line in
//! another order of keys in B, so that every line must be parsed.

use std::io::{BufWriter, Error, Write};
use std::path::Path;

fn main() -> Result<(), Error> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| arguments.get(at).and_then(|text| text.parse::<u64>().ok());
    let (Some(folder), Some(ranks), Some(megabytes)) = (arguments.first(), number(1), number(2))
    else {
        eprintln!("usage: synthetic_traces DIR RANKS MEGABYTES_A_RANK [same|parted|other]");
        std::process::exit(2);
    };
    let how = arguments.get(3).map_or("parted", String::as_str);
    for side in ["a", "b"] {
        let folder = Path::new(folder).join(side);
        std::fs::create_dir_all(&folder)?;
        for rank in 0..ranks {
            let file = std::fs::File::create_new(folder.join(format!("rank_{rank:06}.jsonl")))?;
            let mut file = BufWriter::with_capacity(1 << 20, file);
            let is_other = side == "b" && how == "other";
            let is_parted = side == "b" && how == "parted" && rank == 0;
            write_rank(&mut file, rank, megabytes << 20, is_parted, is_other)?;
            file.flush()?;
        }
    }
    Ok(())
}

/// Ops of an iteration.
const OPS: u64 = 10_000;

fn write_rank(
    file: &mut impl Write,
    rank: u64,
    bytes: u64,
    is_parted: bool,
    is_other: bool,
) -> Result<(), Error> {
    let (mut written, mut seq) = (0, 0u64);
    let mut state = rank + 1;
    while written < bytes {
        let (iteration, op) = (1 + seq / OPS, seq % OPS);
        let input = operand(state);
        state = state.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31) ^ seq;
        let is_here = is_parted && written >= bytes / 2;
        let output = operand(state ^ u64::from(is_here));
        let name = ["aten.mm.default", "aten.add.Tensor", "aten.gelu.default"][(op % 3) as usize];
        let (first, second) = match is_other {
            false => ("\"microbatch\":0", "\"phase\":\"forward\""),
            true => ("\"phase\":\"forward\"", "\"microbatch\":0"),
        };
        let line = format!(
            "{{\"schema_version\":1,\"seq\":{seq},\"rank\":{rank},\"iteration\":{iteration},\
             {first},{second},\"kind\":\"op\",\"name\":\"{name}\",\"payload\":{{\
             \"id\":\"aten:{name}:{op}\",\"scope\":\"decoder/layers.3/mlp\",\
             \"in\":[{input},{input}],\"out\":[{output}]}}}}\n"
        );
        file.write_all(line.as_bytes())?;
        written += line.len() as u64;
        seq += 1;
    }
    Ok(())
}

fn operand(value: u64) -> String {
    format!(
        "{{\"shape\":[24,8],\"dtype\":\"float32\",\"numel\":192,\"digest\":\"{value:016x}\",\
         \"bytes64\":\"{:016x}\"}}",
        !value
    )
}
