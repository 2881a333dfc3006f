//! The loss scaler: what the loss is multiplied by before the backward, and whether a step's
//! gradients overflowed, so that the step is skipped (Megatron-LM, `core/optimizer/optimizer.py`,
//! `MixedPrecisionOptimizer.prepare_grads`; `core/optimizer/grad_scaler.py`).

use crate::numerics::Dtype;
use crate::plan::Combine;
use crate::recipe::LossScaling;
use crate::train::gradient::{Reduction, shards};
use crate::train::options::TrainOptions;
use crate::world::{Component, Family, Phase, Rank, RankError, Tensor};

/// How the scale comes about.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LossScale {
    /// `ConstantGradScaler`: it stays, and steps that overflow are skipped all the same.
    Constant(f32),
    /// `DynamicGradScaler`.
    Dynamic(Dynamic),
}

/// What the dynamic scale follows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dynamic {
    pub initial: f32,
    pub min: f32,
    /// Steps in a row without an overflow after which it doubles.
    pub window: u32,
    /// Overflows until it is halved.
    pub hysteresis: u32,
}

impl LossScale {
    /// The scaler that Megatron-LM's `get_megatron_optimizer` makes, if it makes one.
    pub fn of(scaling: &LossScaling) -> Option<LossScale> {
        match scaling.loss_scale {
            Some(scale) => Some(LossScale::Constant(scale)),
            None => scaling.fp16.then_some(LossScale::Dynamic(Dynamic {
                initial: scaling.initial_loss_scale,
                min: scaling.min_loss_scale,
                window: scaling.loss_scale_window,
                hysteresis: scaling.hysteresis,
            })),
        }
    }

    fn initial(&self) -> f32 {
        match self {
            LossScale::Constant(scale) => *scale,
            LossScale::Dynamic(dynamic) => dynamic.initial,
        }
    }
}

/// Threads that look for infinities and NaNs.
const LANES: u32 = 64;

/// One rank's scaler.
#[derive(Clone, Debug)]
pub struct LossScaler {
    kind: LossScale,
    /// `[1]` fp32.
    pub scale: Tensor,
    /// `[1]` u32 each, of a dynamic scale: steps in a row without an overflow; overflows that are
    /// still without consequence.
    trackers: Option<[Tensor; 2]>,
    /// `[64]` and `[1]` fp32: whether gradients of a lane, or any of the model, are not finite.
    lanes: Tensor,
    pub found_inf: Tensor,
    /// As long as what the optimizer reads, fp32: gradients of the loss itself.
    pub main_grads: Tensor,
}

impl LossScaler {
    /// `None` where the loss is not scaled. `grads` are what the optimizer would read then.
    pub fn allocate(rank: &mut Rank, options: &TrainOptions, grads: Tensor) -> Option<LossScaler> {
        let kind = options.loss_scale?;
        let is_dynamic = matches!(kind, LossScale::Dynamic(_));
        let mut cell = |name| rank.alloc(name, Dtype::U32, 1);
        let trackers = is_dynamic.then(|| ["growth_tracker", "hysteresis_tracker"].map(&mut cell));
        let mut new = |name, len| rank.alloc(name, Dtype::F32, len);
        Some(LossScaler {
            kind,
            scale: new("loss_scale", 1),
            trackers,
            lanes: new("found_inf_lanes", LANES),
            found_inf: new("found_inf", 1),
            main_grads: new("main_grads", grads.len),
        })
    }

    /// What a checkpoint holds of it, with what a fresh start has (`state_dict`).
    pub fn state(&self) -> impl Iterator<Item = (Component, &'static str, Tensor, [u32; 1])> {
        let scale = ("scale", self.scale, [self.kind.initial().to_bits()]);
        let hysteresis = match self.kind {
            LossScale::Constant(_) => 0,
            LossScale::Dynamic(dynamic) => dynamic.hysteresis,
        };
        let trackers = self.trackers.map(|[growth, left]| {
            [
                ("growth_tracker", growth, [0]),
                ("hysteresis_tracker", left, [hysteresis]),
            ]
        });
        let all = std::iter::once(scale).chain(trackers.into_iter().flatten());
        all.map(|(name, tensor, fresh)| (Component::LossScaler, name, tensor, fresh))
    }

    /// Makes main gradients of the reduced ones, and the next step's scale. Whether this step is
    /// skipped: the host waits for that.
    pub fn prepare(
        &self,
        rank: &mut Rank,
        reduction: &Reduction<'_>,
        grads: Tensor,
    ) -> Result<bool, RankError> {
        rank.set_phase(Phase::Optimizer);
        rank.set_microbatch(None);
        rank.module("grad_scaler", |rank| {
            let operands = [grads, self.scale, self.main_grads];
            rank.launch(
                "unscale",
                "unscale",
                [grads.len, 1, 1],
                &operands,
                &[grads.len],
            );
            self.find_overflow(rank, reduction, grads);
            let found = rank.read("found_inf", self.found_inf)?;
            self.update(rank);
            Ok(f32::from_bits(found[0]) > 0.0)
        })
    }

    /// Over all ranks that hold a part of the model, as for the norm (`grad_stats_parallel_group`).
    fn find_overflow(&self, rank: &mut Rank, reduction: &Reduction<'_>, grads: Tensor) {
        let mut look = |op, values: Tensor, least: f32, found: Tensor| {
            let (grid, params) = (found.len, [found.len, values.len, least.to_bits()]);
            let operands = [values, found];
            rank.launch(op, "any_at_least", [grid, 1, 1], &operands, &params);
        };
        look("non_finite_lanes", grads, f32::INFINITY, self.lanes);
        look("non_finite", self.lanes, 1.0, self.found_inf);
        let group = match shards(reduction.options) {
            true => reduction.groups.instance,
            false => reduction.groups.model,
        };
        if rank.group(group).len() > 1 {
            let family = Family::FoundInf;
            let handle = rank.all_reduce("found_inf", family, group, self.found_inf, Combine::Max);
            rank.wait(handle);
        }
    }

    fn update(&self, rank: &mut Rank) {
        let (LossScale::Dynamic(dynamic), Some([growth, left])) = (self.kind, self.trackers) else {
            return;
        };
        let params = [dynamic.min.to_bits(), dynamic.window, dynamic.hysteresis];
        let operands = [self.found_inf, self.scale, growth, left];
        rank.launch("update", "loss_scale_update", [1, 1, 1], &operands, &params);
    }
}
