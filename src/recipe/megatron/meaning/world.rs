//! How many ranks a job has.

use super::super::catalogue::hydra::{DEVICES, NODES};
use super::super::{GivenJob, GivenKind, GivenPhase, GivenValue, GivenVariable};
use super::understood::{World, WorldBasis};
use super::values::Values;
use crate::diagnostic::{Diagnostic, Findings};
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
    let found = asked
        .map(|size| World {
            size,
            basis: WorldBasis::Given,
            reason: format!("--world {size}"),
        })
        .or_else(|| logged(job, values))
        .or_else(|| nemo(phase))
        .or_else(|| per_node(job, index));
    let Some(world) = found else {
        return assumed(replicas);
    };
    if !(1..=WORLD_SIZE_MAX).contains(&world.size) {
        let message = format!("{} ranks", world.size);
        findings.push(
            Diagnostic::error("out-of-range", message)
                .at(
                    &phase.place,
                    format!("expected 1 to {WORLD_SIZE_MAX} ranks"),
                )
                .with_note(world.reason),
        );
        return assumed(replicas);
    }
    world
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

fn per_node(job: &GivenJob, index: usize) -> Option<World> {
    let number = |names: &[&str]| -> Option<(String, u32)> {
        let variables = job.variables(index).rev();
        let is_named = |variable: &&GivenVariable| names.contains(&variable.name.as_str());
        variables.filter(is_named).find_map(|variable| {
            let value = variable.value.trim().parse().ok()?;
            Some((variable.name.clone(), value))
        })
    };
    let basis = match job.kind {
        GivenKind::CommandLine => WorldBasis::Launcher,
        GivenKind::FunctionalTest | GivenKind::ArgumentDump => WorldBasis::GpusPerNode,
    };
    if let Some((name, gpus)) = number(&["GPUS_PER_NODE"]) {
        let nodes = number(&["NNODES", "NUM_NODES"]);
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
        return Some(World {
            size: gpus.saturating_mul(nodes),
            basis,
            reason: format!("{name} {gpus} x {nodes_name} {nodes}"),
        });
    }
    let (name, size) = number(&["WORLD_SIZE"])?;
    Some(World {
        size,
        basis: WorldBasis::Launcher,
        reason: format!("{name} {size}"),
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
