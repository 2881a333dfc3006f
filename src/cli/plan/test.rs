//! `bitproof plan test`: whether captured values come out the same on two topologies.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;

use super::captured::Captured;
use super::{refused, variables};
use crate::cli::output::{self, ObjectFormat};
use crate::diagnostic::Diagnostic;
use crate::numerics::Dtype;
use crate::plan::identify::compare;
use crate::plan::{Backend, Collective, Environment, Function, Plan, Reduction, Request, Selector};
use crate::report::Exit;
use crate::report::tested::Tested;
use crate::topology::{Allocation, ChannelGraph};
use crate::trace::shards;

#[derive(Debug, Args)]
pub(super) struct TestArgs {
    #[command(flatten)]
    captured: Captured,
    /// Where the ranks run: one file twice, or one alone with `--env`
    #[arg(long, value_name = "FILE", required = true, num_args = 1)]
    topology: Vec<PathBuf>,
    /// A variable of the environment on both sides, such as NCCL_ALGO=Tree (may be repeated)
    #[arg(long, value_name = "NAME=VALUE")]
    both_env: Vec<String>,
    /// A variable of the environment on the second side (may be repeated)
    #[arg(long, value_name = "NAME=VALUE")]
    env: Vec<String>,
    /// `input`: values that came out the same are enough, other values may not
    #[arg(long, value_name = "WHAT", value_parser = ["input"])]
    accept: Option<String>,
    /// How the comparison is written to standard output
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    format: ObjectFormat,
}

pub(super) fn run(args: &TestArgs) -> Exit {
    test(args).unwrap_or_else(|found| {
        let name = args.captured.inputs.display().to_string();
        refused(args.format, &name, &found)
    })
}

fn test(args: &TestArgs) -> Result<Exit, Vec<Diagnostic>> {
    let usage = |message: String| vec![Diagnostic::error("usage", message)];
    let (first, second) = match &args.topology[..] {
        [one] if !args.env.is_empty() => (one, one),
        [first, second] => (first, second),
        _ => {
            let message = "two sides are compared: give `--topology` twice, or once with `--env`";
            return Err(usage(message.to_string()));
        }
    };
    let both = variables(&args.both_env)?;
    let other = [&both[..], &variables(&args.env)?].concat();
    let inputs = shards::read_folder(&args.captured.inputs, &args.captured.wanted());
    let inputs = inputs.map_err(|found| vec![*found])?;
    let (dtype, elements) = (inputs[0].dtype, inputs[0].words.len());
    let mut assumed = Vec::new();
    let size = (dtype, elements, inputs.len());
    let (a, a_name) = plan(args, first, &both, size, &mut assumed)?;
    let (b, b_name) = plan(args, second, &other, size, &mut assumed)?;
    let words: Vec<Vec<u32>> = inputs.into_iter().map(|shard| shard.words).collect();
    let compared = compare(&words, &a, &b).map_err(|error| usage(error.to_string()))?;
    let changes = match args.env.is_empty() {
        true => b_name,
        false => format!("{b_name} with {}", args.env.join(" ")),
    };
    let tested = Tested {
        dtype,
        ranks: words.len() as u32,
        sides: [a_name, changes],
        hashes: [a.hash(), b.hash()],
        accepts_input: args.accept.is_some(),
        assumed,
        compared,
    };
    let is_written = match args.format {
        ObjectFormat::Json => output::write_json(&tested.to_json()),
        ObjectFormat::Human => output::write(&tested.to_human()),
    };
    Ok(match is_written {
        true => tested.exit(),
        false => Exit::Internal,
    })
}

/// The plan on one side, and what the side is called.
fn plan(
    args: &TestArgs,
    topology: &Path,
    env: &[(String, String)],
    (dtype, elements, ranks): (Dtype, usize, usize),
    assumed: &mut Vec<String>,
) -> Result<(Arc<Plan>, String), Vec<Diagnostic>> {
    let ranks = ranks as u32;
    let operation = args.captured.operation(ranks, elements);
    let operation = operation.map_err(|found| vec![*found])?;
    let (allocation, members) = args.captured.group(Some(topology), ranks)?;
    let allocation = allocation.expect("a topology was given");
    let name = allocation.name.clone();
    let no_plan = |error: String| {
        let message = format!("{error} (on {name})");
        vec![Diagnostic::error("no-plan", message)]
    };
    let pairs = env.iter();
    let pairs = pairs.map(|(name, value)| (name.as_str(), value.as_str()));
    let environment = Environment::parse(pairs).map_err(|error| no_plan(error.to_string()))?;
    let request = Request {
        backend: Backend::Nccl,
        members: &members,
        collective: operation.collective(),
        dtype,
        elements: elements as u64,
        reduction: Reduction::Sum,
    };
    assume(&allocation, &environment, &request, assumed);
    let plan = Selector::new(allocation, environment).plan(&request);
    Ok((plan.map_err(|error| no_plan(error.to_string()))?, name))
}

/// What one side leaves open and is taken for it, if it was not said of the other.
fn assume(
    allocation: &Allocation,
    environment: &Environment,
    request: &Request<'_>,
    assumed: &mut Vec<String>,
) {
    let function = match request.collective {
        Collective::ReduceScatter => Function::ReduceScatter,
        Collective::Reduce { .. } => Function::Reduce,
        _ => Function::AllReduce,
    };
    let mut list = environment.assumed(&[function]);
    let topology = &allocation.topology;
    let is_recorded = allocation.recorded.of(request.members).is_some();
    if topology.graph == ChannelGraph::ascending(topology.gpus_per_node()) && !is_recorded {
        list.push(format!(
            "the rings within a node of {}: one is assumed, GPUs in ascending order",
            allocation.name
        ));
    }
    list.extend(allocation.assumes.iter().cloned());
    for one in list {
        if !assumed.contains(&one) {
            assumed.push(one);
        }
    }
}
