//! Global gradient norm, clipping, learning rate and AdamW, on all parameters or on this rank's
//! shard of them.

use std::ops::Range;

use crate::model::{ParameterStore, Partition, Role};
use crate::numerics::Dtype;
use crate::plan::{Combine, Init};
use crate::recipe::LrDecayStyle;
use crate::train::bucket::FlatLayout;
use crate::train::gradient::{Reduction, bucket_module, shards};
use crate::train::options::TrainOptions;
use crate::train::process_groups::GroupIds;
use crate::world::{Family, Handle, LocalOrder, Phase, Rank, SlotFold, Tensor};

/// Optimizer state. All but the cells has the shard's length.
#[derive(Clone, Debug)]
pub struct Optimizer {
    pub main_params: Tensor,
    pub exp_avg: Tensor,
    pub exp_avg_sq: Tensor,
    /// `[1]` u32: steps taken. `[2]` fp32: beta1 and beta2 to that power.
    pub step: Tensor,
    pub powers: Tensor,
    /// `[1]` u32: samples that the scheduler has seen, Megatron-LM's `num_steps`.
    pub num_steps: Tensor,
    /// `[1]` fp32: this step's learning rate.
    pub learning_rate: Tensor,
    /// Bit 0: decays. Bit 1: counted by this rank in the global norm.
    flags: Tensor,
    /// The shard of the model's parameters, or all of them.
    model: Tensor,
    /// As many as `lanes` divide: words behind the shard stay +0.
    squares: Tensor,
    /// `[64]`, `[1]`, `[2]` fp32: partial sums of squares; the sum; norm and clip coefficient.
    lanes: Tensor,
    sum: Tensor,
    clip: Tensor,
}

const DECAYS: u32 = 1;
const COUNTED: u32 = 2;
/// Partial sums of the first of two folds, as a kernel's threads would hold them.
const LANES: u32 = 64;

fn clips(options: &TrainOptions) -> bool {
    options.clip_grad > 0.0
}

impl Optimizer {
    pub fn allocate(
        rank: &mut Rank,
        options: &TrainOptions,
        store: &ParameterStore,
        layout: &FlatLayout,
    ) -> Optimizer {
        let sharded = shards(options);
        let len = if sharded {
            layout.shard_len()
        } else {
            layout.len()
        };
        let mut new = |name: &str, len| rank.alloc(name, Dtype::F32, len);
        let (main_params, exp_avg) = (new("main_params", len), new("exp_avg", len));
        let (exp_avg_sq, powers) = (new("exp_avg_sq", len), new("beta_powers", 2));
        let squares = new("grad_squares", len.next_multiple_of(LANES));
        let (lanes, learning_rate) = (new("norm_lanes", LANES), new("learning_rate", 1));
        let (sum, clip) = (new("norm_sum", 1), new("clip", 2));
        let model = if sharded {
            rank.alloc("model_shard", options.model.params_dtype, len)
        } else {
            store.values
        };
        Optimizer {
            main_params,
            exp_avg,
            exp_avg_sq,
            step: rank.alloc("optimizer_step", Dtype::U32, 1),
            powers,
            num_steps: rank.alloc("scheduler_num_steps", Dtype::U32, 1),
            learning_rate,
            flags: rank.alloc("parameter_flags", Dtype::U32, len),
            model,
            squares,
            lanes,
            sum,
            clip,
        }
    }

    /// `[1]` fp32: the global gradient norm of the step, before clipping; `None` where nothing is
    /// clipped, as Megatron-LM then computes none (`MixedPrecisionOptimizer.step`).
    pub fn norm(&self, options: &TrainOptions) -> Option<Tensor> {
        clips(options).then(|| self.clip.slice(0, 1))
    }

    /// `[2]` fp32: that norm, and what gradients are multiplied by.
    pub fn clip(&self) -> Tensor {
        self.clip
    }

    /// Tells each element of the shard how it is treated. `owned` are the flat words of the shard.
    pub fn upload_flags(
        &self,
        rank: &mut Rank,
        store: &ParameterStore,
        owned: &[Range<u32>],
        tensor_rank: u32,
    ) {
        let mut whole = vec![0; store.values.len as usize];
        for (parameter, offset) in store.parameters.iter().zip(&store.offsets) {
            // What is whole on every tensor-parallel rank is counted by the first one; a copy of
            // another stage's embedding by none (Megatron-LM, `param_is_not_shared`).
            let counted = (parameter.partition != Partition::Replicated || tensor_rank == 0)
                && parameter.role != Role::SharedCopy;
            let bits = u32::from(parameter.decays) * DECAYS + u32::from(counted) * COUNTED;
            let start = *offset as usize;
            whole[start..start + parameter.len() as usize].fill(bits);
        }
        let parts = owned
            .iter()
            .flat_map(|part| &whole[part.start as usize..part.end as usize]);
        let words: Vec<u32> = parts.copied().collect();
        rank.upload("flags", self.flags, &words);
    }

    /// Words that no step writes and every norm sums.
    pub fn clear_padding(&self, rank: &mut Rank) {
        let len = self.squares.len;
        rank.launch(
            "clear_squares",
            "fill",
            [len, 1, 1],
            &[self.squares],
            &[len, 0],
        );
    }

    /// Without clipping nobody computes the norm, and the coefficient is 1 for good.
    pub fn upload_coefficient(&self, rank: &mut Rank, options: &TrainOptions) {
        if !clips(options) {
            rank.upload_f32("clip", self.clip, &[0.0, 1.0]);
        }
    }

    /// One step on the reduced gradients. With the distributed optimizer only this rank's shard of
    /// the model's parameters is new afterwards, until the buckets are gathered. `clip` takes the
    /// place of the norm and the coefficient of these gradients in the update.
    pub fn step(
        &self,
        rank: &mut Rank,
        reduction: &Reduction<'_>,
        grads: Tensor,
        clip: Option<Tensor>,
    ) {
        let Reduction {
            options, groups, ..
        } = *reduction;
        rank.set_phase(Phase::Optimizer);
        rank.module("optimizer", |rank| {
            if clips(options) {
                self.global_norm(rank, options, groups, grads);
            }
            let betas = [options.adam_beta1.to_bits(), options.adam_beta2.to_bits()];
            let cells = [self.step, self.powers];
            rank.launch("advance", "optimizer_advance", [1, 1, 1], &cells, &betas);
            self.set_learning_rate(rank, options);
            self.adamw(rank, options, grads, clip.unwrap_or(self.clip));
        });
        rank.module("opt_param_scheduler", |rank| {
            let samples = [options.global_batch_size];
            rank.launch("step", "advance", [1, 1, 1], &[self.num_steps], &samples);
        });
    }

    /// The learning rate that the scheduler set when the last step ended: from the samples before
    /// this one (Megatron-LM, `train_step` steps the scheduler after the optimizer).
    fn set_learning_rate(&self, rank: &mut Rank, options: &TrainOptions) {
        let (warmup, decay) = options.lr_samples();
        let style = match options.lr_decay_style {
            LrDecayStyle::Constant => 0,
            LrDecayStyle::Linear => 1,
            LrDecayStyle::Cosine => 2,
        };
        let (most, least) = (options.lr.to_bits(), options.min_lr.to_bits());
        let operands = [self.num_steps, self.learning_rate];
        let params = [most, least, warmup, decay, style];
        rank.launch(
            "learning_rate",
            "learning_rate",
            [1, 1, 1],
            &operands,
            &params,
        );
    }

    fn global_norm(
        &self,
        rank: &mut Rank,
        options: &TrainOptions,
        groups: GroupIds,
        grads: Tensor,
    ) {
        let count = grads.len;
        let operands = [grads, self.flags, self.squares.slice(0, count)];
        rank.launch(
            "squares",
            "grad_squares",
            [count, 1, 1],
            &operands,
            &[count],
        );
        let fold = |addends: Tensor, out: Tensor| SlotFold {
            family: Family::NormLocal,
            addends,
            slots: addends.len / out.len,
            out,
            init: Init::First,
            order: LocalOrder::Ordered,
        };
        rank.fold("norm_lanes", fold(self.squares, self.lanes));
        rank.fold("norm_local", fold(self.lanes, self.sum));
        // Shards differ over the data-parallel ranks of an instance; whole gradients are the same
        // there.
        let group = if shards(options) {
            groups.instance
        } else {
            groups.model
        };
        if rank.group(group).len() > 1 {
            let family = Family::NormGlobal;
            let handle = rank.all_reduce("norm_global", family, group, self.sum, Combine::Sum);
            rank.wait(handle);
        }
        let params = [options.clip_grad.to_bits()];
        rank.launch(
            "clip",
            "clip_coefficient",
            [1, 1, 1],
            &[self.sum, self.clip],
            &params,
        );
    }

    fn adamw(&self, rank: &mut Rank, options: &TrainOptions, grads: Tensor, clip: Tensor) {
        let count = grads.len;
        let operands = [
            grads,
            self.flags,
            clip,
            self.powers,
            self.main_params,
            self.exp_avg,
            self.exp_avg_sq,
            self.model,
            self.learning_rate,
        ];
        let params = [
            count,
            options.adam_beta1.to_bits(),
            options.adam_beta2.to_bits(),
            options.adam_eps.to_bits(),
            options.weight_decay.to_bits(),
            options.model.params_dtype.code(),
        ];
        rank.launch("adamw", "adamw", [count, 1, 1], &operands, &params);
    }

    /// Every rank's shard of a bucket into every rank's parameters (Megatron-LM,
    /// `_ParamAndGradBucketGroup.start_param_sync`).
    pub fn gather(&self, rank: &mut Rank, reduction: &Reduction<'_>, number: usize) -> Handle {
        let (options, layout) = (reduction.options, reduction.layout);
        let ranks = options.layout.instance_size();
        let bucket = &layout.buckets[number];
        let (start, len) = (bucket.range.start, bucket.len());
        let shard = self.model.slice(start / ranks, len / ranks);
        let whole = reduction.store.values.slice(start, len);
        let group = reduction.groups.intra_instance;
        rank.module(&bucket_module(number), |rank| {
            rank.edge(&format!("param_gather.bucket{number}"), |rank| {
                rank.all_gather("all_gather", group, shard, whole)
            })
        })
    }

    /// All buckets, before anything else.
    pub fn gather_all(&self, rank: &mut Rank, reduction: &Reduction<'_>) {
        rank.set_phase(Phase::Optimizer);
        for number in 0..reduction.layout.buckets.len() {
            let handle = self.gather(rank, reduction, number);
            rank.module(&bucket_module(number), |rank| rank.wait(handle));
        }
    }
}
