//! What could not have failed: sums that are silent here and order-dependent in the real job, and
//! sums that the scenario does not have at all.

use std::collections::BTreeSet;

use crate::numerics::ladder::Rung;
use crate::plan::local;
use crate::prove::check::Findings;
use crate::prove::full_size::FullSizeCounts;
use crate::prove::oracle::topo::Topo;
use crate::prove::outcome::{VacuityFinding, VacuityReason};
use crate::prove::session::Session;
use crate::prove::sweep::{Silence, SilentPoint, Sweep};
use crate::prove::switch::families_of;
use crate::recipe::{Autotune, Determinism, LocalOrder, PositionEmbedding};
use crate::scenario::Scenario;
use crate::train::Trainer;
use crate::world::{Choice, Family, RunRecord};

/// Everything that could not have failed: steps of the reference run that are not finite, silent
/// points, and sums of two addends that another place cannot reorder.
pub(super) fn findings(session: &Session, findings: &Findings) -> Vec<VacuityFinding> {
    let (sweep, reference) = (&findings.sweep, &findings.reference);
    let mut found: Vec<VacuityFinding> = without_news(reference).into_iter().collect();
    found.extend(silent(sweep));
    found.extend(absent(&session.scenario, sweep));
    for few in findings.topo.iter().flat_map(commuting) {
        let is_known = found.iter().any(|known| known.family == few.family);
        if !is_known {
            found.push(few);
        }
    }
    found
}

/// Sums over ranks that have one plan in every place, as they have two addends.
fn commuting(topo: &Topo) -> Vec<VacuityFinding> {
    if topo.may_differ || topo.fails() {
        return Vec::new();
    }
    let few = topo.too_few.iter();
    few.map(|(family, here, full)| VacuityFinding {
        reason: VacuityReason::TooFewAddends,
        ..absent_family(*family, *here, u64::from(*full))
    })
    .collect()
}

/// Steps that agree in every order, whatever the order is.
pub fn without_news(reference: &RunRecord) -> Option<VacuityFinding> {
    not_finite(reference).or_else(|| all_skipped(reference))
}

/// Steps of a run that the loss scaler left out.
pub(super) fn skipped_steps(reference: &RunRecord) -> BTreeSet<u32> {
    let told = reference.metrics.iter();
    let skipped = told.filter(|((_, name), flag)| name == Trainer::SKIPPED && **flag > 0.0);
    skipped.map(|((step, _), _)| *step).collect()
}

/// Steps that the loss scaler left out, where these are all: what overflows is an infinity in every
/// order, and nothing is learnt from it.
fn all_skipped(reference: &RunRecord) -> Option<VacuityFinding> {
    let told = reference.metrics.iter();
    let told = told.filter(|((_, name), _)| name == Trainer::SKIPPED);
    let flags: Vec<f32> = told.map(|(_, flag)| *flag).collect();
    let is_idle = !flags.is_empty() && flags.iter().all(|flag| *flag > 0.0);
    is_idle.then(|| VacuityFinding {
        family: Family::FoundInf,
        reason: VacuityReason::Skipped,
        site: None,
        points: flags.len() as u64,
        addends_here: 0,
        addends_at_full_size: 0,
        change: "a smaller initial_loss_scale or loss_scale, or more steps".to_string(),
    })
}

/// Steps whose loss or norm is no finite number. What proves an order proves it for finite inputs,
/// and a NaN has one bit pattern here: such steps agree in every order.
fn not_finite(reference: &RunRecord) -> Option<VacuityFinding> {
    let metrics = reference.metrics.iter();
    let beyond = metrics.filter(|(_, value)| !value.is_finite());
    let mut steps: Vec<(u32, &str)> = beyond.map(|((step, name), _)| (*step, &**name)).collect();
    let (first, name) = *steps.iter().min_by_key(|(step, _)| *step)?;
    steps.sort_unstable();
    steps.dedup_by_key(|(step, _)| *step);
    let fewer = match first {
        0 | 1 => String::new(),
        _ => format!(", or `--steps {}`", first - 1),
    };
    Some(VacuityFinding {
        family: Family::LossMean,
        reason: VacuityReason::NotFinite,
        site: Some(format!("step {first}, {name}")),
        points: steps.len() as u64,
        addends_here: 0,
        addends_at_full_size: 0,
        change: format!("a smaller lr or clip_grad, a larger adam_eps{fewer}"),
    })
}

fn silent(sweep: &Sweep) -> Vec<VacuityFinding> {
    // A family that parts at one point is not silent: its quiet points need no retest.
    let parts = |of: Family| {
        let mut sensitive = sweep.tallies.keys().filter(|key| key.rung.is_none());
        sensitive.any(|key| key.family == of)
    };
    let silent = sweep
        .silent
        .iter()
        .filter(|((family, _), _)| !parts(*family))
        .filter(|((family, _), point)| !repeats_elsewhere(*family, point, sweep));
    let found = silent.map(|((family, _), point)| VacuityFinding {
        family: *family,
        reason: match (point.why, point.here <= 2) {
            (Silence::BufferSize, _) => VacuityReason::BufferSize,
            (Silence::Addends, true) => VacuityReason::TooFewAddends,
            (Silence::Addends, false) => VacuityReason::SilentHere,
        },
        site: Some(point.site.clone()),
        points: point.points,
        addends_here: point.here,
        addends_at_full_size: u64::from(point.full),
        change: change(*family, point),
    });
    found.collect()
}

/// Whether a sum over the places of a token has two addends at `point` because no token of that
/// microbatch occurs three times, while one of another microbatch does, in an order that is pinned
/// for the whole family.
fn repeats_elsewhere(family: Family, point: &SilentPoint, sweep: &Sweep) -> bool {
    let few = point.rung == Rung::L0 && point.why == Silence::Addends;
    let mut tallies = sweep.tallies.iter().filter(|(key, _)| key.family == family);
    let all_pinned = tallies
        .clone()
        .all(|(key, _)| key.choice == Choice::Pinned.name());
    let has_three =
        tallies.any(|(key, tally)| key.rung == Some(Rung::Plan) && tally.addends_max >= 3);
    family == Family::EmbeddingGrad && few && all_pinned && has_three
}

/// What would let the family differ here.
fn change(family: Family, point: &SilentPoint) -> String {
    let key = key(family);
    match (point.why, point.here <= 2) {
        (Silence::BufferSize, _) => "larger buffers (hidden_size, ddp_bucket_size)".to_string(),
        (Silence::Addends, true) => format!("{key} >= 3 (4 or 8 say more)"),
        (Silence::Addends, false) => {
            format!("more addends ({key}), or `bf16 = false`, or --accept input")
        }
    }
}

/// What decides how many addends the family has, in words.
fn key(family: Family) -> String {
    match (family, size_key(family)) {
        (Family::DpGradients | Family::FirstBuckets | Family::LossMean, key) => {
            format!("data_parallel_size ({key} over tensor and pipeline parallel size)")
        }
        (Family::MicrobatchAccumulation, key) => format!("microbatches ({key})"),
        (Family::EmbeddingGrad, key) => {
            format!("places of a token in a microbatch ({key}, or --data with words that repeat)")
        }
        (_, key) => key.to_string(),
    }
}

/// The recipe key that decides most directly how many addends a family has.
pub fn size_key(family: Family) -> &'static str {
    match family {
        Family::TensorParallel | Family::VocabCrossEntropy | Family::NormWeightTp => {
            "tensor_model_parallel_size"
        }
        Family::DpGradients
        | Family::FirstBuckets
        | Family::LossMean
        | Family::FoundInf
        | Family::NormGlobal => "world_size",
        Family::WgradSplitK => "determinism.wgrad_splits",
        Family::MicrobatchAccumulation => "global_batch_size",
        Family::EmbeddingGrad
        | Family::NormWeightGrad
        | Family::LossLocal
        | Family::AttentionGrad
        | Family::BiasGrad => "seq_length",
        Family::PositionGrad => "micro_batch_size",
        // Two stages share the matrix, at any size.
        Family::SharedEmbedding => "pipeline_model_parallel_size",
        Family::OptimizerInstances => "num_distributed_optimizer_instances",
        Family::NormLocal => "hidden_size",
    }
}

/// Families of one addend here: no such sum is issued, so no point of theirs was ever tested.
fn absent(scenario: &Scenario, sweep: &Sweep) -> Vec<VacuityFinding> {
    // What a tuned sum needs is more than what any sum does: it is said first, and alone.
    let mut found = match scenario.recipe.determinism.autotune {
        Autotune::Timed => untuned(sweep),
        Autotune::Fixed => Vec::new(),
    };
    let counts = FullSizeCounts::of(scenario, Vec::new()).of_layout();
    for (family, here, full) in counts {
        let known = found.iter().any(|finding| finding.family == family);
        if here <= 1 && full >= 3 && !known {
            found.push(absent_family(family, here as u32, full));
        }
    }
    let free = scenario.recipe.determinism.orders();
    let free = free
        .into_iter()
        .filter(|(_, order)| *order == LocalOrder::Arrival);
    for family in free.flat_map(|(name, _)| families_of(name)) {
        let widest = sweep.tallies.iter().filter(|(key, _)| key.family == family);
        let widest = widest
            .map(|(_, tally)| tally.addends_max)
            .max()
            .unwrap_or(0);
        let known = found.iter().any(|finding| finding.family == family);
        let full = freed_at_full_size(scenario, family);
        if widest <= 2 && full >= 3 && !known {
            // The switch says that the order is free, and nothing here has one.
            found.push(absent_family(family, widest, full));
        }
    }
    found
}

/// Addends that a sum needs to have more than one configuration.
fn tuned_addends_min() -> u32 {
    let mut sizes = 1..;
    let several = sizes.find(|addends| local::block_sizes(*addends).len() > 1);
    several.expect("some sum has several")
}

/// Families whose kernels are tuned, and have one configuration at every node: no choice was
/// tried.
fn untuned(sweep: &Sweep) -> Vec<VacuityFinding> {
    let least = tuned_addends_min();
    let mut found = Vec::new();
    for family in Determinism::TUNED.into_iter().flat_map(families_of) {
        let of_family = sweep.tallies.iter();
        let mut of_family = of_family.filter(|(key, _)| key.family == family);
        let widest = of_family.clone().map(|(_, tally)| tally.addends_max).max();
        if of_family.any(|(key, _)| key.choice == Choice::CONFIGURATION) {
            continue;
        }
        let here = widest.unwrap_or(0);
        found.push(VacuityFinding {
            change: format!("{} >= {least}", key(family)),
            ..absent_family(family, here, u64::from(least))
        });
    }
    found
}

/// Addends at full size of a family whose order is free: three at least, but for a position's
/// gradient, which a job without a table of positions has not, and which is a sum over the
/// sequences of a microbatch.
fn freed_at_full_size(scenario: &Scenario, family: Family) -> u64 {
    let recipe = &scenario.recipe;
    if family != Family::PositionGrad {
        return 3;
    }
    if recipe.position_embedding_type != PositionEmbedding::LearnedAbsolute {
        return 0;
    }
    let full = scenario.full_size.as_ref();
    u64::from(full.map_or(recipe.micro_batch_size, |full| full.micro_batch_size))
}

fn absent_family(family: Family, here: u32, full: u64) -> VacuityFinding {
    VacuityFinding {
        family,
        reason: VacuityReason::Absent,
        site: None,
        points: 0,
        addends_here: here,
        addends_at_full_size: full,
        change: format!("{} >= 3 (4 or 8 say more)", key(family)),
    }
}

/// Whether a sum that the scenario should have, and has not, is among the findings.
pub fn has_absent(scenario: &Scenario, sweep: &Sweep) -> bool {
    !absent(scenario, sweep).is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_step_that_is_not_finite_is_named() {
        let mut record = RunRecord::default();
        let mut set = |step: u32, name: &str, value: f32| {
            record.metrics.insert((step, name.to_owned()), value);
            not_finite(&record)
        };
        assert_eq!(set(1, "lm loss", 5.5), None);
        assert_eq!(set(1, "grad norm", f32::MAX), None);
        let last = set(12, "lm loss", f32::NAN).expect("a finding");
        assert_eq!(last.site.as_deref(), Some("step 12, lm loss"));
        set(3, "lm loss", f32::NEG_INFINITY);
        let first = set(3, "grad norm", f32::NAN).expect("a finding");
        assert_eq!(first.reason, VacuityReason::NotFinite);
        assert_eq!(first.site.as_deref(), Some("step 3, grad norm"));
        assert_eq!(first.points, 2, "steps");
        assert!(first.change.contains("--steps 2"), "{}", first.change);
        let begin = set(1, "lm loss", f32::INFINITY).expect("a finding");
        assert!(!begin.change.contains("--steps"), "{}", begin.change);
    }

    #[test]
    fn steps_that_all_overflow_say_nothing() {
        let mut record = RunRecord::default();
        assert_eq!(without_news(&record), None);
        let mut skip = |step: u32, flag: f32| {
            let key = (step, Trainer::SKIPPED.to_owned());
            record.metrics.insert(key, flag);
            without_news(&record)
        };
        let found = skip(1, 1.0).expect("a finding");
        assert_eq!((found.reason, found.points), (VacuityReason::Skipped, 1));
        assert_eq!(skip(2, 1.0).expect("a finding").points, 2);
        assert_eq!(skip(3, 0.0), None, "one step that went on");
    }
}
