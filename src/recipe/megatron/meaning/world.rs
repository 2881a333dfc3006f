//! How many ranks a job has.

use super::super::catalogue::hydra::{DEVICES, NODES};
use super::super::{GivenJob, GivenKind, GivenPhase, GivenValue, GivenVariable};
use super::understood::{JudgedArgument, Verdict, World, WorldBasis};
use super::values::Values;
use crate::diagnostic::{Diagnostic, Findings, escaped};
use crate::recipe::WORLD_SIZE_MAX;

/// GPUs of the nodes that Megatron's functional tests run on (`tests/test_utils/recipes`).
const ASSUMED: u32 = 8;

/// Finds the number of ranks of phase `index`; `replicas` is the least number that its layout
/// takes.
pub(super) fn world(
    job: &GivenJob,
    index: usize,
    values: &Values<'_>,
    asked: Option<u32>,
    replicas: u32,
    findings: &mut Findings,
) -> World {
    let phase = &job.phases[index];
    check_counts(job, phase, findings);
    check_log(job, values, asked, findings);
    let found = asked
        .map(|size| World {
            size,
            basis: WorldBasis::Given,
            reason: format!("--world {size}"),
        })
        .or_else(|| logged(job, values))
        .or_else(|| nemo(phase))
        .or_else(|| match job.kind {
            GivenKind::FunctionalTest => of_test(job, index),
            GivenKind::CommandLine | GivenKind::ArgumentDump => per_node(job, index),
        });
    let Some(world) = found else {
        return assumed(replicas);
    };
    if !(1..=WORLD_SIZE_MAX).contains(&world.size) {
        let message = format!("{} ranks", world.size);
        let place = match world.basis {
            WorldBasis::Logged => values.place("world_size"),
            _ => &phase.place,
        };
        findings.push(
            Diagnostic::error("out-of-range", message)
                .at(place, format!("expected 1 to {WORLD_SIZE_MAX} ranks"))
                .with_note(world.reason),
        );
        return assumed(replicas);
    }
    world
}

/// Variables that say how many ranks there are.
const COUNTS: [&str; 5] = [
    "GPUS_PER_NODE",
    "NNODES",
    "NUM_NODES",
    "SLURM_NNODES",
    "WORLD_SIZE",
];

/// Those of them that the script of functional tests does not read: `torchrun` sets WORLD_SIZE
/// itself.
const UNREAD: [&str; 2] = ["NNODES", "WORLD_SIZE"];
const SCRIPT: &str = "tests/functional_tests/shell_test_utils/_run_training.sh";

/// Counts of a functional test that decide nothing: a warning, and their verdict.
pub(super) fn unread_counts(
    job: &GivenJob,
    judged: &mut [JudgedArgument],
    findings: &mut Findings,
) {
    let is_unread = |one: &&mut JudgedArgument| UNREAD.contains(&one.flag.as_str());
    let is_test = job.kind == GivenKind::FunctionalTest;
    for variable in judged.iter_mut().filter(|one| is_test && is_unread(one)) {
        let name = &variable.flag;
        let message = format!("`{name}` does not say how many ranks a functional test has");
        findings.push(
            Diagnostic::warning("ranks-not-read", message)
                .at(&variable.place, "not used")
                .with_note(format!("{SCRIPT} reads GPUS_PER_NODE and NUM_NODES"))
                .with_help("set NUM_NODES, or give `--world N`"),
        );
        variable.verdict = Verdict::NoBits;
        variable.reason = format!("{SCRIPT} does not read it");
    }
}

/// A count that is none. One with a variable left in it is told where the world is.
fn check_counts(job: &GivenJob, phase: &GivenPhase, findings: &mut Findings) {
    let variables = job.env.iter().chain(&phase.variables);
    for given in variables.filter(|given| COUNTS.contains(&&*given.name)) {
        let value = given.value.trim();
        let is_count = value.parse::<u32>().is_ok_and(|count| count > 0);
        let is_open = value.is_empty() || value.contains(['$', '`', ':']);
        if is_count || is_open {
            continue;
        }
        let message = format!("`{}` is `{}`", given.name, escaped(value));
        findings.push(
            Diagnostic::error("wrong-value", message)
                .at(&given.place, "expected a whole number above 0"),
        );
    }
}

/// Megatron prints `world_size` with the other arguments.
fn check_log(job: &GivenJob, values: &Values<'_>, asked: Option<u32>, findings: &mut Findings) {
    if job.kind != GivenKind::ArgumentDump || asked.is_some() {
        return;
    }
    // A block without it, or at which it is no number at all, was refused where it was read.
    let place = values.place("world_size");
    let is_read = values.setting("world_size").is_some();
    let is_count = values.is_given("world_size") && values.count("world_size").is_some();
    if is_read && !is_count {
        let message = "`world_size` is no number of ranks";
        findings.push(Diagnostic::error("wrong-value", message).at(
            place,
            format!("expected a whole number from 1 to {WORLD_SIZE_MAX}"),
        ));
    }
}

/// A log shows the data-parallel size that Megatron found (`validate_args`).
pub(super) fn check_replicas(
    values: &Values<'_>,
    world: &World,
    model_parallel_size: u32,
    findings: &mut Findings,
) {
    let dest = "data_parallel_size";
    if world.basis != WorldBasis::Logged || !values.is_given(dest) {
        return;
    }
    let replicas = world.size / model_parallel_size.max(1);
    if values.count(dest) != Some(replicas) {
        let size = world.size;
        let shown = values.integer(dest).unwrap_or_default();
        let message = format!("a data-parallel size of {shown} in a world of {size} ranks");
        findings.push(
            Diagnostic::error("contradiction", message)
                .at(values.place(dest), format!("expected {replicas}"))
                .with_note(format!(
                    "world_size {size} over tensor x pipeline x context parallel size \
                     {model_parallel_size}, as validate_args divides"
                ))
                .with_help("give the block as one job printed it"),
        );
    }
}

fn logged(job: &GivenJob, values: &Values<'_>) -> Option<World> {
    if job.kind != GivenKind::ArgumentDump || !values.is_given("world_size") {
        return None;
    }
    let size = values.count("world_size")?;
    Some(World {
        size,
        basis: WorldBasis::Logged,
        reason: format!("the log says world_size {size}"),
    })
}

/// `trainer.devices` times `trainer.num_nodes`.
fn nemo(phase: &GivenPhase) -> Option<World> {
    let number = |key: &str| {
        let argument = phase.arguments.iter().rfind(|given| given.flag == key)?;
        match &argument.value {
            GivenValue::Text(text) => text.trim().parse::<u32>().ok(),
            _ => None,
        }
    };
    let devices = number(DEVICES)?;
    let nodes = number(NODES).unwrap_or(1);
    Some(World {
        size: devices.saturating_mul(nodes),
        basis: WorldBasis::Launcher,
        reason: format!("{DEVICES} {devices} x {NODES} {nodes}"),
    })
}

/// What the script of functional tests starts: GPUS_PER_NODE processes, 8 unless set, on each of
/// NUM_NODES nodes, else SLURM_NNODES, one unless set. An empty variable is as good as none.
fn of_test(job: &GivenJob, index: usize) -> Option<World> {
    let set = |name: &'static str| {
        let given = job.variable(index, name)?;
        (!given.value.trim().is_empty()).then_some((name, given.value.trim()))
    };
    let count = |set: Option<(&str, &str)>| set.and_then(|(_, value)| value.parse::<u32>().ok());
    let gpus = set("GPUS_PER_NODE");
    let nodes = set("NUM_NODES").or_else(|| set("SLURM_NNODES"));
    if count(gpus).is_none() && count(nodes).is_none() {
        return None;
    }
    let of_node = match (gpus, count(gpus)) {
        (Some((name, _)), Some(count)) => format!("{name} {count}"),
        _ => format!("{ASSUMED} GPUs of a node"),
    };
    let size = count(gpus).unwrap_or(ASSUMED);
    let open = [gpus, nodes].into_iter().flatten();
    if let Some((name, value)) = open.into_iter().find(|set| count(Some(*set)).is_none()) {
        return Some(World {
            size: size.saturating_mul(count(nodes).unwrap_or(1)),
            basis: WorldBasis::Assumed,
            reason: match count(nodes) {
                None => format!(
                    "{of_node}, and one node assumed: {name} is `{}`",
                    escaped(value)
                ),
                Some(nodes) => format!(
                    "{of_node} assumed, x {nodes} nodes: {name} is `{}`",
                    escaped(value)
                ),
            },
        });
    }
    let (nodes_name, nodes) = match (nodes, count(nodes)) {
        (Some((name, _)), Some(count)) => (name, count),
        _ => ("nodes", 1),
    };
    Some(World {
        size: size.saturating_mul(nodes),
        basis: WorldBasis::GpusPerNode,
        reason: format!("{of_node} x {nodes_name} {nodes}"),
    })
}

/// The last number that one of the variables `names` has, and its name.
fn number(job: &GivenJob, index: usize, names: &[&str]) -> Option<(String, u32)> {
    let variables = job.variables(index).rev();
    let is_named = |variable: &&GivenVariable| names.contains(&variable.name.as_str());
    variables.filter(is_named).find_map(|variable| {
        let value = variable.value.trim().parse().ok()?;
        Some((variable.name.clone(), value))
    })
}

fn per_node(job: &GivenJob, index: usize) -> Option<World> {
    let phase = &job.phases[index];
    if phase.is_alone {
        return alone(job, index);
    }
    let basis = match job.kind {
        GivenKind::CommandLine => WorldBasis::Launcher,
        GivenKind::FunctionalTest | GivenKind::ArgumentDump => WorldBasis::GpusPerNode,
    };
    // `mpirun -np N`, `srun -n N`: what the launch itself says comes last in the list.
    let is_size = |given: &&GivenVariable| matches!(&*given.name, "WORLD_SIZE" | "GPUS_PER_NODE");
    let own = phase.variables.iter().rfind(is_size);
    let own = own.filter(|given| given.name == "WORLD_SIZE" && job.kind == GivenKind::CommandLine);
    if let Some(size) = own.and_then(|given| given.value.trim().parse().ok()) {
        return Some(World {
            size,
            basis,
            reason: format!("the launcher starts {size} processes"),
        });
    }
    if let Some(world) = of_nodes(job, index, basis) {
        return Some(world);
    }
    let (name, size) = number(job, index, &["WORLD_SIZE"])?;
    Some(World {
        size,
        basis: WorldBasis::Launcher,
        reason: format!("{name} {size}"),
    })
}

/// `GPUS_PER_NODE` times `NNODES`.
fn of_nodes(job: &GivenJob, index: usize, basis: WorldBasis) -> Option<World> {
    let (name, gpus) = number(job, index, &["GPUS_PER_NODE"])?;
    let nodes = number(job, index, &["NNODES", "NUM_NODES"]);
    let mut all = job.variables(index).rev();
    let named = |given: &&GivenVariable| matches!(&*given.name, "NNODES" | "NUM_NODES");
    if let (None, Some(unread)) = (&nodes, all.find(named)) {
        let (given, value) = (&unread.name, &unread.value);
        return Some(World {
            size: gpus,
            basis: WorldBasis::Assumed,
            reason: format!("{name} {gpus}, and one node assumed: {given} is `{value}`"),
        });
    }
    let (nodes_name, nodes) = nodes.unwrap_or(("nodes".to_string(), 1));
    Some(World {
        size: gpus.saturating_mul(nodes),
        basis,
        reason: format!("{name} {gpus} x {nodes_name} {nodes}"),
    })
}

/// `int(os.getenv("WORLD_SIZE", '1'))` (`megatron/training/arguments.py`): nothing else is read
/// where no launcher is. Without it, whoever runs the script is taken to start it on each GPU.
fn alone(job: &GivenJob, index: usize) -> Option<World> {
    if let Some((name, size)) = number(job, index, &["WORLD_SIZE"]) {
        return Some(World {
            size,
            basis: WorldBasis::Launcher,
            reason: format!("{name} {size}, which a program without a launcher reads"),
        });
    }
    let counted = of_nodes(job, index, WorldBasis::Assumed)?;
    let reason = &counted.reason;
    Some(World {
        reason: format!("{reason} assumed: a program without a launcher reads WORLD_SIZE alone"),
        ..counted
    })
}

/// 8 ranks; where the layout does not fit them, the least multiple of it that is not fewer.
fn assumed(replicas: u32) -> World {
    let replicas = replicas.clamp(1, WORLD_SIZE_MAX);
    let fitting = ASSUMED.div_ceil(replicas).saturating_mul(replicas);
    let reason = if fitting == ASSUMED {
        format!("nothing says how many ranks there are: {ASSUMED} assumed, one node")
    } else {
        format!(
            "nothing says how many ranks there are: {fitting} assumed, as the layout takes \
             multiples of {replicas}"
        )
    };
    World {
        size: fitting,
        basis: WorldBasis::Assumed,
        reason,
    }
}
