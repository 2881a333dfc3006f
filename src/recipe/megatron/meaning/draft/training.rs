//! Batch, schedule, optimizer and gradient reduction of a recipe.

use super::super::schedule::Schedule;
use super::{Draft, global_batch};
use crate::recipe::default_ddp_bucket_size;

impl Draft<'_, '_> {
    pub(super) fn batch(&mut self) -> u64 {
        self.count("micro_batch_size");
        let batch = global_batch(self.inputs);
        self.whole("global_batch_size", batch, "global_batch_size");
        if !self.inputs.values.is_given("global_batch_size") {
            let reason = "micro_batch_size x data-parallel size (validate_args)";
            self.derive("global_batch_size", batch, reason);
        }
        batch
    }

    pub(super) fn schedule(&mut self, schedule: &Schedule) {
        let values = self.inputs.values;
        let source = |dests: &[&'static str]| {
            let given = dests.iter().find(|dest| values.is_given(dest));
            given.copied().unwrap_or(dests[0])
        };
        if let Some(steps) = schedule.train {
            let dest = source(&["train_iters", "train_samples"]);
            self.whole("train_iters", steps, dest);
            if dest == "train_samples" {
                let reason = "train_samples / global_batch_size (update_train_iters)";
                self.derive("train_iters", steps, reason);
            }
        }
        if let Some(steps) = schedule.decay.filter(|steps| *steps > 0) {
            self.whole(
                "lr_decay_iters",
                steps,
                source(&["lr_decay_iters", "lr_decay_samples"]),
            );
        }
        let warmups = ["lr_warmup_fraction", "lr_warmup_samples", "lr_warmup_iters"];
        let dest = source(&warmups);
        self.whole("lr_warmup_iters", schedule.warmup, dest);
        if dest == "lr_warmup_fraction" && values.is_given(dest) {
            let reason =
                "lr_warmup_fraction of the decay, in samples (get_optimizer_param_scheduler)";
            self.derive("lr_warmup_iters", schedule.warmup, reason);
        }
        self.word("lr_decay_style", "lr_decay_style");
        self.real("lr", "lr");
        self.real("min_lr", "min_lr");
    }

    pub(super) fn optimizer(&mut self) {
        for key in [
            "adam_beta1",
            "adam_beta2",
            "adam_eps",
            "weight_decay",
            "clip_grad",
        ] {
            self.real(key, key);
        }
        self.count("seed");
        for key in [
            "use_distributed_optimizer",
            "overlap_grad_reduce",
            "align_grad_reduce",
            "overlap_param_gather",
            "align_param_gather",
        ] {
            self.flag(key, self.inputs.values.flag(key), key);
        }
        self.count("num_distributed_optimizer_instances");
    }

    pub(super) fn reduction(&mut self) {
        let values = self.inputs.values;
        let bf16 = values.flag("bf16");
        self.flag("bf16", bf16, "bf16");
        let narrow = values.reduces_in_bf16();
        self.flag("grad_reduce_in_bf16", narrow, "grad_reduce_in_bf16");
        let wide = "accumulate_allreduce_grads_in_fp32";
        self.flag(wide, !narrow, wide);
        // Megatron drops it where gradients are reduced in fp32 already (validate_args); a log
        // shows what is left.
        let accumulation = "ddp_reduce_scatter_with_fp32_accumulation";
        self.flag(
            accumulation,
            values.flag(accumulation) && (narrow || values.resolved(accumulation).is_some()),
            accumulation,
        );
        if !values.flag("overlap_grad_reduce") {
            self.derive(
                "ddp_bucket_size",
                "one bucket",
                "gradients are reduced at the end of the step: bucket_size is infinite then \
                 (DistributedDataParallel)",
            );
            return;
        }
        if let Some(size) = values.count("ddp_bucket_size") {
            self.whole("ddp_bucket_size", u64::from(size), "ddp_bucket_size");
            return;
        }
        let fields = self.inputs.fields;
        let replicas = self.inputs.world.size / fields.tp.saturating_mul(fields.pp).max(1);
        let size = default_ddp_bucket_size(replicas);
        self.whole("ddp_bucket_size", size, "overlap_grad_reduce");
        self.derive(
            "ddp_bucket_size",
            size,
            "the larger of 40 million and one million x data-parallel size \
             (DistributedDataParallel)",
        );
    }
}
