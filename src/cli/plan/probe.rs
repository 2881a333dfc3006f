//! `bitproof plan probe`: inputs whose results tell in which order a collective adds.

use std::io;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;

use super::manifest::{FILE, Float, INPUTS, Manifest, OUTPUTS, Sum};
use super::refused;
use crate::cli::output::{self, ObjectFormat};
use crate::diagnostic::Diagnostic;
use crate::numerics::Dtype;
use crate::plan::identify::Probe;
use crate::report::Exit;
use crate::trace::shards::SHARD_BYTES_MAX;

/// What is run on the user's machines.
const SCRIPT: &str = include_str!("../../../python/bitproof_probe.py");
const SCRIPT_FILE: &str = "probe.py";

#[derive(Debug, Args)]
pub(super) struct ProbeArgs {
    /// Ranks of the collective
    #[arg(long, value_name = "N")]
    ranks: u32,
    /// Elements of the whole reduced buffer: the order follows from the size, so that of the job
    #[arg(long, value_name = "M", default_value_t = 65_536)]
    elements: u64,
    #[arg(long, value_enum, default_value_t, value_name = "TYPE")]
    dtype: Float,
    #[arg(long, value_enum, default_value_t, value_name = "OPERATION")]
    operation: Sum,
    /// A folder that is not there yet
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// How what was written is told on standard output
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    format: ObjectFormat,
}

pub(super) fn run(args: &ProbeArgs) -> Exit {
    let name = args.out.display().to_string();
    match probe(args) {
        Ok(exit) => exit,
        Err(found) => refused(args.format, &name, &[*found]),
    }
}

fn probe(args: &ProbeArgs) -> Result<Exit, Box<Diagnostic>> {
    let usage = |message: String| Box::new(Diagnostic::error("usage", message));
    let dtype = Dtype::from(args.dtype);
    let probe = Probe::new(args.ranks, dtype).map_err(|error| usage(error.to_string()))?;
    let ranks = u64::from(args.ranks);
    if args.elements == 0 {
        return Err(usage("`--elements 0`: nothing is added".to_string()));
    }
    if args.operation == Sum::ReduceScatter && !args.elements.is_multiple_of(ranks) {
        let elements = args.elements;
        let message = format!("{elements} elements do not divide into {ranks} blocks");
        return Err(usage(message));
    }
    let most = SHARD_BYTES_MAX / dtype.wire_bytes() / u64::from(probe.runs());
    if args.elements > most {
        let message = format!(
            "{} elements in {} runs are too much to bring back: expected {most} at most",
            args.elements,
            probe.runs()
        );
        return Err(usage(message));
    }
    let manifest = Manifest::new(probe, args.elements, args.dtype, args.operation);
    write(&args.out, probe, &manifest).map_err(|error| {
        let message = format!("cannot write `{}`: {error}", args.out.display());
        let found = Diagnostic::error("unwritable", message);
        Box::new(found.with_help("name a folder that is not there yet with --out"))
    })?;
    let is_written = match args.format {
        ObjectFormat::Json => output::write_json(&json!({
            "folder": args.out.display().to_string(),
            "ranks": args.ranks,
            "elements": args.elements,
            "runs": probe.runs(),
            "next": next(args),
        })),
        ObjectFormat::Human => output::write(&format!(
            "{} runs of {} elements for {} ranks in {}; next:\n{}",
            probe.runs(),
            args.elements,
            args.ranks,
            args.out.display(),
            next(args).map(|line| format!("  {line}\n")).concat(),
        )),
    };
    Ok(match is_written {
        true => Exit::Proved,
        false => Exit::Internal,
    })
}

/// The commands that bring an answer.
fn next(args: &ProbeArgs) -> [String; 2] {
    let folder = args.out.display();
    let ranks = args.ranks;
    [
        format!("torchrun --nproc-per-node {ranks} {folder}/{SCRIPT_FILE}"),
        format!("bitproof plan identify --inputs {folder}"),
    ]
}

/// Writes the folder aside and renames it: it is there whole or not at all.
fn write(out: &Path, probe: Probe, manifest: &Manifest) -> io::Result<()> {
    if std::fs::symlink_metadata(out).is_ok() {
        return Err(io::Error::other("it is there already"));
    }
    let parent = out.parent().filter(|parent| *parent != Path::new(""));
    let aside = tempfile::Builder::new()
        .prefix(".bitproof-")
        .tempdir_in(parent.unwrap_or(Path::new(".")))?;
    let inputs = aside.path().join(INPUTS);
    std::fs::create_dir(&inputs)?;
    std::fs::create_dir(aside.path().join(OUTPUTS))?;
    for rank in 0..probe.ranks {
        let packed = probe.inputs(rank).into_iter();
        let packed: Vec<u8> = packed.flat_map(|value| bytes(probe.dtype, value)).collect();
        save(&inputs.join(format!("rank_{rank:06}.bin")), &packed)?;
    }
    save(&aside.path().join(SCRIPT_FILE), SCRIPT.as_bytes())?;
    let text = serde_json::to_string_pretty(manifest).expect("plain data has a JSON form");
    save(&aside.path().join(FILE), format!("{text}\n").as_bytes())?;
    readable(aside.path())?;
    std::fs::rename(aside.keep(), out)
}

fn save(path: &Path, bytes: &[u8]) -> io::Result<()> {
    std::fs::write(path, bytes)?;
    std::fs::File::open(path)?.sync_all()
}

/// Temporary folders are their owner's alone; this one is taken to other machines.
fn readable(folder: &Path) -> io::Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755))?;
    }
    Ok(())
}

fn bytes(dtype: Dtype, value: f32) -> Vec<u8> {
    match dtype {
        Dtype::Bf16 => half::bf16::from_f32(value).to_le_bytes().to_vec(),
        Dtype::F16 => half::f16::from_f32(value).to_le_bytes().to_vec(),
        Dtype::F32 | Dtype::U32 => value.to_le_bytes().to_vec(),
    }
}
