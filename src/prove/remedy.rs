//! Known switches that could remove a divergence, each tried on the scenario before it is advised.

use crate::prove::check::Findings;
use crate::prove::outcome::Remedy;
use crate::prove::session::{CheckError, Session};
use crate::prove::sweep::{Finding, Reach, Sweep, Variable};
use crate::prove::{Progress, grade, memory};
use crate::recipe::{Autotune, LocalOrder, Recipe};
use crate::scenario::{Free, Scenario};
use crate::world::{Family, RunOptions, WorldError};

/// A change to a recipe, under the name a user would write.
struct Switch {
    name: &'static str,
    apply: fn(&mut Scenario),
}

/// Tries every switch that could act on the first divergence.
///
/// # Errors
/// Failures of the machine. A switch that the recipe cannot take is left out.
pub fn tried(
    session: &Session,
    findings: &Findings,
    progress: &dyn Progress,
) -> Result<Vec<Remedy>, CheckError> {
    let Some((reach, finding)) = findings.sweep.first.iter().next() else {
        return Ok(Vec::new());
    };
    let switches = switches(&session.scenario.recipe, *reach, finding);
    progress.begin("remedies", switches.len() as u64);
    let mut remedies = Vec::new();
    for switch in switches {
        let mut scenario = session.scenario.clone();
        (switch.apply)(&mut scenario);
        let mut changed = match session.changed(scenario) {
            Ok(changed) => changed,
            // A recipe that the layout or the optimizer refuses is no advice.
            Err(error) if refuses_recipe(&error) => continue,
            Err(error) => return Err(error),
        };
        let mut sweep = Sweep::new(changed.sweep_options());
        let steps = changed.steps();
        let run = RunOptions {
            hazard_steps_max: memory::hazard_steps_max(&changed.scenario),
            ..RunOptions::default()
        };
        let record = match changed.run(&run, steps, None, &mut sweep) {
            Ok(record) => record,
            // NCCL would refuse the job: no advice either.
            Err(WorldError::NoPlan { .. }) => continue,
            // Nor for what does not run to its end.
            Err(WorldError::CollectiveMismatch { .. } | WorldError::Deadlock { .. }) => continue,
            Err(error) => return Err(error.into()),
        };
        let still = sweep.tallies.iter().any(|(key, _)| {
            key.rung.is_none() && key.reach == *reach && key.family == finding.family
        });
        remedies.push(Remedy {
            switch: switch.name.to_string(),
            removes: !still,
            tried_grade: grade::of_sweep(&sweep, &record, changed.engine_identity().strict),
            still_parts: sweep
                .first
                .values()
                .next()
                .map(|found| found.site.to_string()),
        });
        progress.advance(1);
    }
    progress.end();
    remedies.sort_by_key(|remedy| (!remedy.removes, remedy.tried_grade));
    Ok(remedies)
}

/// Whether the changed scenario is at fault, and not the machine.
fn refuses_recipe(error: &CheckError) -> bool {
    match error {
        CheckError::Environment(_)
        | CheckError::Options(_)
        | CheckError::Corpus(_)
        | CheckError::UnmetFaults(_)
        | CheckError::TooLarge(_)
        | CheckError::Input(_) => true,
        CheckError::Kernel(_)
        | CheckError::Engine(_)
        | CheckError::World(_)
        | CheckError::Checkpoint(_)
        | CheckError::Token(_)
        | CheckError::Stopped(_)
        | CheckError::Recording(_)
        | CheckError::Internal(_) => false,
    }
}

fn switches(recipe: &Recipe, reach: Reach, finding: &Finding) -> Vec<Switch> {
    match reach {
        Reach::Within => match finding.variable {
            Variable::Configuration { .. } => vec![ONE_TABLE],
            _ => order_switch(finding.family).into_iter().collect(),
        },
        Reach::Across => plan_switches(recipe),
    }
}

/// Every rank takes its configurations from one table.
const ONE_TABLE: Switch = Switch {
    name: "determinism.autotune = \"fixed\"",
    apply: |scenario| scenario.recipe.determinism.autotune = Autotune::Fixed,
};

/// The deterministic twin of an order-dependent kernel.
fn order_switch(family: Family) -> Option<Switch> {
    Some(match family {
        Family::EmbeddingGrad | Family::PositionGrad => Switch {
            name: "determinism.embedding_backward = \"ordered\"",
            apply: |scenario| {
                scenario.recipe.determinism.embedding_backward = LocalOrder::Ordered;
            },
        },
        Family::NormWeightGrad => Switch {
            name: "determinism.norm_weight_grad = \"ordered\"",
            apply: |scenario| scenario.recipe.determinism.norm_weight_grad = LocalOrder::Ordered,
        },
        Family::WgradSplitK => Switch {
            name: "determinism.wgrad_split_k = \"ordered\"",
            apply: |scenario| scenario.recipe.determinism.wgrad_split_k = LocalOrder::Ordered,
        },
        Family::MicrobatchAccumulation => Switch {
            name: "determinism.microbatch_accumulation = \"ordered\"",
            apply: |scenario| {
                scenario.recipe.determinism.microbatch_accumulation = LocalOrder::Ordered;
            },
        },
        Family::AttentionGrad => Switch {
            name: "determinism.attention_backward = \"ordered\"",
            apply: |scenario| {
                scenario.recipe.determinism.attention_backward = LocalOrder::Ordered;
            },
        },
        _ => return None,
    })
}

/// Switches that change or pin the plans of collectives.
fn plan_switches(recipe: &Recipe) -> Vec<Switch> {
    let mut switches = Vec::new();
    if recipe.use_distributed_optimizer && !recipe.ddp_reduce_scatter_with_fp32_accumulation {
        switches.push(Switch {
            name: "ddp_reduce_scatter_with_fp32_accumulation = true",
            apply: fp32_accumulation,
        });
        if recipe.clip_grad > 0.0 {
            switches.push(Switch {
                name: "ddp_reduce_scatter_with_fp32_accumulation = true, clip_grad = 0",
                apply: |scenario| {
                    fp32_accumulation(scenario);
                    scenario.recipe.clip_grad = 0.0;
                },
            });
        }
    }
    switches.push(Switch {
        // NCCL has no tree for a reduce-scatter: a bare "Tree" would leave it without algorithm.
        name: "env.NCCL_ALGO = \"ring;allreduce:tree\", env.NCCL_MAX_NCHANNELS = \"1\"",
        apply: |scenario| {
            set(scenario, "NCCL_ALGO", "ring;allreduce:tree");
            set(scenario, "NCCL_MAX_NCHANNELS", "1");
        },
    });
    switches.push(Switch {
        name: "env.NCCL_MAX_NCHANNELS = \"1\"",
        apply: |scenario| set(scenario, "NCCL_MAX_NCHANNELS", "1"),
    });
    switches.push(Switch {
        name: "the first allocation only (placement no longer free)",
        apply: |scenario| {
            scenario.free.remove(&Free::Placement);
        },
    });
    switches
}

fn fp32_accumulation(scenario: &mut Scenario) {
    scenario.recipe.ddp_reduce_scatter_with_fp32_accumulation = true;
}

fn set(scenario: &mut Scenario, name: &str, value: &str) {
    scenario
        .recipe
        .env
        .insert(name.to_string(), value.to_string());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::EngineError;

    #[test]
    fn an_engine_that_fails_is_no_refused_recipe() {
        let reason = "the driver is gone".to_string();
        assert!(!refuses_recipe(&EngineError::Device { reason }.into()));
        assert!(!refuses_recipe(&CheckError::Internal(String::new())));
        assert!(refuses_recipe(&CheckError::Input(String::new())));
    }
}
