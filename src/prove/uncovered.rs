//! What a check says nothing about.

use std::collections::BTreeSet;

use crate::diagnostic::escaped;
use crate::prove::oracle::reshard::PLACES_MAX;
use crate::prove::session::Session;
use crate::prove::{memory, vacuity};
use crate::scenario::{OracleKind, Scenario};
use crate::world::RunRecord;

/// `more`: what the check's own runs left open.
pub(super) fn sentences(session: &Session, reference: &RunRecord, more: &[String]) -> Vec<String> {
    let mut list = vec![
        "other inputs, where a point is proved by L1 to L4 only".to_string(),
        "other drivers, GPUs and compilers than the engine named here".to_string(),
        "the insides of closed kernels: cuBLAS, cuDNN, FlashAttention and their autotuning"
            .to_string(),
        "the real order of sums inside network switches (NVLS, SHARP)".to_string(),
        "rings and trees that NCCL's own search finds: orders inside a node are the topology \
         file's"
            .to_string(),
        "hardware corruption, and whether the training is correct".to_string(),
    ];
    list.extend(own_arithmetic(session));
    let recipe = &session.scenario.recipe;
    list.extend(asynchronous_saves(session));
    let scenario = &session.scenario;
    let others = !scenario.topo.is_empty() || !scenario.checkpoint.reshard.is_empty();
    if scenario.checkpoint.polls && (others || scenario.resumes_elsewhere()) {
        list.push(
            "other answers to the queries of variations and of resumes on other layouts and \
             allocations"
                .to_string(),
        );
    }
    list.extend(unseen_gathers(session, reference));
    list.extend(exits_elsewhere(scenario));
    list.extend(not_moved_to(scenario));
    list.extend(session.environment.assumed(&recipe.nccl_reductions()));
    let watched = memory::hazard_steps(&session.scenario);
    list.push(format!(
        "hazards after the first {watched} steps, and anything after step {}",
        session.scenario.steps
    ));
    list.push(match session.plans_at_full_size {
        true => "plans at buffer sizes other than those of `[full_size]`".to_string(),
        false => {
            "plans at buffer sizes other than the scenario's and 256 MiB, the two that are compared"
                .to_string()
        }
    });
    if session.scenario.topo.is_empty() && session.scenario.free.is_empty() {
        list.push("other placements, node counts, message and bucket sizes".to_string());
    }
    if !session.scenario.checkpoint.reshard.is_empty() {
        list.push(
            "whether the sums of the other layouts could have differed at full size: check each \
             layout as a recipe of its own"
                .to_string(),
        );
        if session.options.use_distributed_optimizer {
            list.push(
                "that the job's checkpoints can be loaded so: Megatron-LM loads the distributed \
                 optimizer's state on another TP or PP where it was saved with \
                 --dist-ckpt-optim-fully-reshardable"
                    .to_string(),
            );
        }
    }
    let variables = recipe.variables_not_covered();
    let changes = |(name, what)| format!("what {} changes: {what}", escaped(name));
    list.extend(variables.map(changes));
    list.extend(more.iter().cloned());
    list.extend(session.scenario.not_covered.iter().cloned());
    list
}

/// Allocations that a job may go on on, and that none was resumed on.
fn not_moved_to(scenario: &Scenario) -> Option<String> {
    let others = scenario.other_allocations().len();
    let beyond = others.checked_sub(PLACES_MAX).filter(|beyond| *beyond > 0);
    let beyond = beyond.filter(|_| scenario.resumes_elsewhere())?;
    Some(format!("resumes on {beyond} of the other allocations"))
}

/// A job that the clock ends after a step saves there, and goes on from it in another process.
fn exits_elsewhere(scenario: &Scenario) -> Option<String> {
    scenario.recipe.exit_duration_in_mins?;
    let cuts: BTreeSet<u32> = scenario
        .checkpoint
        .restarts
        .iter()
        .flatten()
        .copied()
        .collect();
    let other = (1..scenario.steps).find(|step| !cuts.contains(step))?;
    Some(format!(
        "how a job goes on that its clock ends after another step than `checkpoint.restarts` \
         names, as after step {other}"
    ))
}

/// What an adapter that is not strict leaves open.
fn own_arithmetic(session: &Session) -> Option<String> {
    let identity = session.engine_identity();
    if identity.strict {
        return None;
    }
    let differing: Vec<&str> = session.self_test.differing().collect();
    let found = match differing[..] {
        [] => "its compiler may rewrite expressions, though the self-test found none that it does"
            .to_string(),
        _ => format!(
            "its self-test differs from IEEE 754 in: {}",
            differing.join(", ")
        ),
    };
    Some(format!(
        "sums that are exact, absorbed or ordered by IEEE 754's rules (L1 to L4), which count as \
         bounded here: {} is not strict; {found}",
        identity.adapter
    ))
}

/// What the job does beside the training and the simulation does in its place.
fn asynchronous_saves(session: &Session) -> Option<String> {
    let scenario = &session.scenario;
    let saves = !memory::background_saves(scenario).is_empty();
    let is_compared = saves && scenario.oracles.contains(&OracleKind::RES);
    let sentence = "files of async_save: a run saves after the steps that `checkpoint.restarts` \
        names, and RES compares what was written; none of it happened here";
    (scenario.recipe.async_save && !is_compared).then(|| sentence.to_string())
}

/// A save waits for all parameters, and a process's first step has nothing to gather: in a short
/// run, one that is resumed after every step, or one of skipped steps, no gather is left to a
/// forward.
fn unseen_gathers(session: &Session, reference: &RunRecord) -> Option<String> {
    let skipped = vacuity::skipped_steps(reference);
    memory::hides_gathers(&session.scenario, &skipped).then(|| {
        "hazards of overlap_param_gather: after every step but the last the state is kept, or the \
         step is skipped, and no gather is left to the next forward; check more steps, with fewer \
         restarts"
            .to_string()
    })
}
