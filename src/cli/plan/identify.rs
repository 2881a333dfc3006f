//! `bitproof plan identify`: which plan a real collective had.

use std::path::{Path, PathBuf};

use clap::Args;

use super::manifest::{Float, Manifest, OUTPUTS};
use super::refused;
use crate::cli::output::{self, ObjectFormat, talk};
use crate::cli::save::OutputArgs;
use crate::diagnostic::{Diagnostic, Place, Source};
use crate::numerics::Dtype;
use crate::plan::identify::{Identification, Operation, Probe, Shards, candidates};
use crate::report::Exit;
use crate::report::identified::Identified;
use crate::scenario::placed_any;
use crate::topology::Allocation;
use crate::trace::shards::{self, Shard, Wanted, finding};

/// An operation by the name of its option.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum Given {
    #[default]
    AllReduce,
    ReduceScatter,
    Reduce,
}

#[derive(Debug, Args)]
pub(super) struct IdentifyArgs {
    /// A folder of `plan probe` that the script has run in, or of each rank's input: a file a rank,
    /// .safetensors or .bin, its last number the rank
    #[arg(long, value_name = "DIR")]
    inputs: PathBuf,
    /// What came out: the whole buffer in one file, or a folder with each rank's
    #[arg(long, value_name = "PATH")]
    output: Option<PathBuf>,
    /// Where the ranks ran [default: one ring in the order of the ranks]
    #[arg(long, value_name = "FILE")]
    topology: Option<PathBuf>,
    /// The global ranks of the group, in its order [default: all of the topology's]
    #[arg(
        long,
        value_name = "R,R,...",
        value_delimiter = ',',
        requires = "topology"
    )]
    ranks: Vec<u32>,
    /// What was done [default: what the probe says, else all-reduce]
    #[arg(long, value_enum, value_name = "OPERATION")]
    operation: Option<Given>,
    /// The rank of the group that a reduce leaves its result on
    #[arg(long, value_name = "R", default_value_t = 0)]
    root: u32,
    /// The type of .bin files
    #[arg(long, value_enum, value_name = "TYPE")]
    dtype: Option<Float>,
    /// The tensor in safetensors files that have several
    #[arg(long, value_name = "NAME")]
    tensor: Option<String>,
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
        let name = args.inputs.display().to_string();
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
    let found = match Manifest::read(&args.inputs) {
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

/// The allocation and the group's ranks on it; without one, ranks by their number.
fn group(args: &IdentifyArgs, ranks: u32) -> Result<(Option<Allocation>, Vec<u32>), Refused> {
    let Some(path) = &args.topology else {
        return Ok((None, (0..ranks).collect()));
    };
    let given = (!args.ranks.is_empty()).then_some(&args.ranks);
    let world = given.map_or(ranks, |list| {
        list.iter()
            .copied()
            .max()
            .map_or(0, |rank| rank.saturating_add(1))
    });
    let allocation = placed_any(path, world)?;
    let members = match given {
        Some(list) => list.clone(),
        None => (0..allocation.placement.world()).collect(),
    };
    let mut sorted = members.clone();
    sorted.sort_unstable();
    sorted.dedup();
    let is_sound = members.len() == ranks as usize
        && sorted.len() == members.len()
        && sorted
            .iter()
            .all(|rank| *rank < allocation.placement.world());
    if !is_sound {
        let message = format!(
            "the group has {} ranks of the {} that are placed, and there are inputs of {ranks}",
            sorted.len(),
            allocation.placement.world()
        );
        let file = Source::new(path.display().to_string(), "");
        let found = Diagnostic::error("world-mismatch", message);
        let found = found.at(&Place::new(&file, 0..0), "of this topology");
        let help = "name the group's global ranks: `--ranks 0,8,16`";
        return Err(vec![found.with_help(help)].into());
    }
    Ok((Some(allocation), members))
}

fn wanted(args: &IdentifyArgs) -> Wanted {
    Wanted {
        dtype: args.dtype.map(Dtype::from),
        tensor: args.tensor.clone(),
    }
}

fn probed(args: &IdentifyArgs, manifest: &Manifest, probe: Probe) -> Result<Identified, Refused> {
    let folder = args.output.clone().unwrap_or(args.inputs.join(OUTPUTS));
    let wanted = Wanted {
        dtype: Some(probe.dtype),
        tensor: None,
    };
    let operation = Operation::from(manifest.operation);
    let (allocation, members) = group(args, probe.ranks)?;
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
    Ok(Identified::new(
        operation,
        probe.dtype,
        probe.ranks,
        elements,
        true,
        found,
    ))
}

fn observed(args: &IdentifyArgs) -> Result<Identified, Refused> {
    let Some(path) = &args.output else {
        let message = "no results: `--output` names what came out of the collective";
        let found = Diagnostic::error("usage", message);
        let help = "a folder of `plan probe` needs none";
        return Err(vec![found.with_help(help)].into());
    };
    let wanted = wanted(args);
    let inputs = shards::read_folder(&args.inputs, &wanted)?;
    let (dtype, elements) = (inputs[0].dtype, inputs[0].words.len());
    let ranks = inputs.len() as u32;
    let operation = match args.operation.unwrap_or_default() {
        Given::AllReduce => Operation::AllReduce,
        Given::ReduceScatter => Operation::ReduceScatter,
        Given::Reduce => Operation::Reduce { root: args.root },
    };
    if operation == (Operation::Reduce { root: args.root }) && args.root >= ranks {
        let message = format!("`--root {}`: inputs are of {ranks} ranks", args.root);
        return Err(vec![Diagnostic::error("usage", message)].into());
    }
    if operation == Operation::ReduceScatter && !elements.is_multiple_of(inputs.len()) {
        let message = format!("{elements} elements do not divide into {ranks} blocks");
        return Err(finding("uneven-blocks", &message, &args.inputs).into());
    }
    let (allocation, members) = group(args, ranks)?;
    let output = match path.is_dir() {
        true => results(path, &wanted, operation, ranks, 1)?.remove(0),
        false => shards::read_file(path, &wanted)?.words,
    };
    if output.len() != elements || elements == 0 {
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
    Ok(Identified::new(
        operation, dtype, ranks, elements, false, found,
    ))
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
