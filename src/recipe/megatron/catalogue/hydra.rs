//! The dotted keys of NeMo's recipes, as attributes of Megatron.

/// Keys whose last word is not Megatron's.
const RENAMED: [(&str, &str); 12] = [
    ("trainer.max_steps", "train_iters"),
    ("trainer.val_check_interval", "eval_interval"),
    ("trainer.limit_val_batches", "eval_iters"),
    ("trainer.log_every_n_steps", "log_interval"),
    ("model.config.num_moe_experts", "num_experts"),
    ("model.config.bias_activation_fusion", "bias_gelu_fusion"),
    (
        "model.config.share_embeddings_and_output_weights",
        "share_embeddings_and_output_weights",
    ),
    ("optim.config.clip_grad", "clip_grad"),
    ("log.log_dir", "tensorboard_dir"),
    ("log.ckpt.save_top_k", "save_retain_interval"),
    (
        "trainer.strategy.virtual_pipeline_model_parallel_size",
        "virtual_pipeline_model_parallel_size",
    ),
    (
        "trainer.strategy.ddp.grad_reduce_in_fp32",
        "accumulate_allreduce_grads_in_fp32",
    ),
];

/// Sections whose keys are Megatron's attributes.
const SECTIONS: [&str; 6] = [
    "trainer.strategy.ddp.",
    "trainer.strategy.",
    "model.config.",
    "optim.config.",
    "data.",
    "model.",
];

/// Keys that give the number of ranks.
pub(crate) const NODES: &str = "trainer.num_nodes";
pub(crate) const DEVICES: &str = "trainer.devices";

/// The attribute that a dotted key sets; `None` for a section that is not known.
pub(super) fn attribute(key: &str) -> Option<&str> {
    if let Some((_, dest)) = RENAMED.iter().find(|(dotted, _)| *dotted == key) {
        return Some(dest);
    }
    let section = SECTIONS
        .iter()
        .find_map(|section| key.strip_prefix(section));
    section.filter(|rest| !rest.contains('.'))
}
