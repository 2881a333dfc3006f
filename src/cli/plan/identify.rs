//! `bitproof plan identify`: which plan a real collective had.

use std::path::{Path, PathBuf};

use clap::Args;

use super::captured::Captured;
use super::manifest::{Manifest, OUTPUTS};
use super::refused;
use crate::cli::output::{self, ObjectFormat, talk};
use crate::cli::save::OutputArgs;
use crate::diagnostic::Diagnostic;
use crate::plan::identify::{Identification, Operation, Probe, Shards, candidates};
use crate::report::Exit;
use crate::report::identified::Identified;
use crate::trace::shards::{self, Shard, Wanted, finding};

#[derive(Debug, Args)]
pub(super) struct IdentifyArgs {
    #[command(flatten)]
    captured: Captured,
    /// What came out: the whole buffer in one file, or a folder with each rank's
    #[arg(long, value_name = "PATH")]
    output: Option<PathBuf>,
    /// Where the ranks ran [default: one ring in the order of the ranks]
    #[arg(long, value_name = "FILE")]
    topology: Option<PathBuf>,
    /// Write the plan that was identified here, as JSON
    #[arg(long, value_name = "OUT.json")]
    basis: Option<PathBuf>,
    /// Replace OUT.json if it is there
    #[arg(long, requires = "basis")]
    force: bool,
    /// How the answer is written to standard output
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    format: ObjectFormat,
}

/// Why there is no answer, and how that ends: input that cannot be used, or ranks that disagree.
struct Refused(Vec<Diagnostic>, Exit);

impl From<Box<Diagnostic>> for Refused {
    fn from(found: Box<Diagnostic>) -> Refused {
        Refused(vec![*found], Exit::Usage)
    }
}

impl From<Vec<Diagnostic>> for Refused {
    fn from(found: Vec<Diagnostic>) -> Refused {
        Refused(found, Exit::Usage)
    }
}

pub(super) fn run(args: &IdentifyArgs) -> Exit {
    identify(args).unwrap_or_else(|Refused(found, exit)| {
        let name = args.captured.inputs.display().to_string();
        match refused(args.format, &name, &found) {
            Exit::Usage => exit,
            lost => lost,
        }
    })
}

fn identify(args: &IdentifyArgs) -> Result<Exit, Refused> {
    let basis = OutputArgs {
        output: args.basis.clone(),
        force: args.force,
    };
    basis.check(&[]).map_err(|error| {
        basis.unwritable(&error);
        Refused(Vec::new(), Exit::Usage)
    })?;
    let found = match Manifest::read(&args.captured.inputs) {
        Some(read) => {
            let (manifest, probe) = read?;
            probed(args, &manifest, probe)?
        }
        None => observed(args)?,
    };
    let text = found.basis();
    match (&args.basis, text) {
        (Some(_), Some(text)) => {
            if let Err(error) = basis.write(&text) {
                basis.unwritable(&error);
                return Err(Refused(Vec::new(), Exit::Usage));
            }
        }
        (Some(path), None) => talk(&format!(
            "not written: `{}`, as no single plan was identified",
            path.display()
        )),
        (None, _) => {}
    }
    let is_written = match args.format {
        ObjectFormat::Json => output::write_json(&found.to_json()),
        ObjectFormat::Human => output::write(&found.to_human()),
    };
    Ok(match is_written {
        true => found.exit(),
        false => Exit::Internal,
    })
}

fn probed(args: &IdentifyArgs, manifest: &Manifest, probe: Probe) -> Result<Identified, Refused> {
    let folder = args
        .output
        .clone()
        .unwrap_or(args.captured.inputs.join(OUTPUTS));
    let wanted = Wanted {
        dtype: Some(probe.dtype),
        tensor: None,
    };
    let operation = Operation::from(manifest.operation);
    let (allocation, members) = args.captured.group(args.topology.as_deref(), probe.ranks)?;
    let outputs = results(
        &folder,
        &wanted,
        operation,
        probe.ranks,
        probe.runs() as usize,
    )?;
    let elements = outputs[0].len() as u64;
    if elements != manifest.elements {
        let message = format!("{elements} elements, the probe has {}", manifest.elements);
        return Err(finding("wrong-size", &message, &folder).into());
    }
    let list = candidates(
        operation,
        probe.dtype,
        elements,
        &members,
        allocation.as_ref(),
    );
    let found = Identification::of_probe(probe, &probe.read(&outputs), list);
    Ok(Identified {
        operation,
        dtype: probe.dtype,
        ranks: probe.ranks,
        elements,
        is_probed: true,
        found,
    })
}

fn observed(args: &IdentifyArgs) -> Result<Identified, Refused> {
    let Some(path) = &args.output else {
        let message = "no results: `--output` names what came out of the collective";
        let found = Diagnostic::error("usage", message);
        let help = "a folder of `plan probe` needs none";
        return Err(vec![found.with_help(help)].into());
    };
    let wanted = args.captured.wanted();
    let inputs = shards::read_folder(&args.captured.inputs, &wanted)?;
    let (dtype, elements) = (inputs[0].dtype, inputs[0].words.len());
    let ranks = inputs.len() as u32;
    let operation = args.captured.operation(ranks, elements)?;
    let (allocation, members) = args.captured.group(args.topology.as_deref(), ranks)?;
    let output = match path.is_dir() {
        true => results(path, &wanted, operation, ranks, 1)?.remove(0),
        false => shards::read_file(path, &wanted)?.words,
    };
    if output.len() != elements {
        let message = format!(
            "{} elements, and the inputs have {elements}: expected the whole reduced buffer",
            output.len()
        );
        return Err(finding("wrong-size", &message, path).into());
    }
    let shards = Shards {
        dtype,
        inputs: inputs.into_iter().map(|shard| shard.words).collect(),
        output,
    };
    let elements = elements as u64;
    let list = candidates(operation, dtype, elements, &members, allocation.as_ref());
    let found = Identification::of_values(&shards, list);
    Ok(Identified {
        operation,
        dtype,
        ranks,
        elements,
        is_probed: false,
        found,
    })
}

/// The whole buffer of each run: every rank's is the same after an all-reduce, a block of it after
/// a reduce-scatter, and only the root's after a reduce.
fn results(
    folder: &Path,
    wanted: &Wanted,
    operation: Operation,
    ranks: u32,
    runs: usize,
) -> Result<Vec<Vec<u32>>, Refused> {
    let mut outputs: Vec<Vec<u32>> = Vec::new();
    let mut count = 0;
    let mut disagree = None;
    let mut see = |rank: u64, shard: Shard, path: &Path| {
        count += 1;
        let elements = shard.words.len() / runs;
        if elements * runs != shard.words.len() || elements == 0 {
            let message = format!("{} values are not of {runs} runs", shard.words.len());
            return Err(finding("wrong-size", &message, path));
        }
        let own = shard.words.chunks_exact(elements);
        let first = match operation {
            // The others hold sums of some ranks.
            Operation::Reduce { root } => u64::from(root),
            _ => 0,
        };
        if rank == first {
            outputs = own.map(<[u32]>::to_vec).collect();
        } else if operation == Operation::ReduceScatter {
            outputs
                .iter_mut()
                .zip(own)
                .for_each(|(run, block)| run.extend(block));
        } else if operation == Operation::AllReduce && disagree.is_none() {
            let first = outputs.iter().flatten().zip(&shard.words);
            let other = first.enumerate().find(|(_, (a, b))| a != b);
            disagree = other.map(|(at, _)| (at % elements, path.to_path_buf()));
        }
        Ok(())
    };
    shards::each(folder, wanted, &mut see)?;
    if count != u64::from(ranks) {
        let message = format!("results of {count} ranks, inputs of {ranks}");
        return Err(finding("world-mismatch", &message, folder).into());
    }
    match disagree {
        None => Ok(outputs),
        Some((element, path)) => {
            let message = format!(
                "other bits than rank 0 at element {element}: ranks disagree about one sum, \
                 which no plan explains"
            );
            let found = finding("ranks-disagree", &message, &path);
            Err(Refused(vec![*found], Exit::Divergent))
        }
    }
}
