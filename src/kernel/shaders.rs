//! Every training kernel of `shaders/`, embedded: the binary needs no files beside it.

/// `(name, WGSL)`, ascending by name. A test compares the list with the folder, but for its
/// `native/` and `digest/`.
pub(super) const SHADERS: &[(&str, &str)] = &[
    ("adamw", include_str!("../../shaders/adamw.wgsl")),
    ("advance", include_str!("../../shaders/advance.wgsl")),
    (
        "any_at_least",
        include_str!("../../shaders/any_at_least.wgsl"),
    ),
    (
        "attention_backward_qkv",
        include_str!("../../shaders/attention_backward_qkv.wgsl"),
    ),
    (
        "attention_backward_query",
        include_str!("../../shaders/attention_backward_query.wgsl"),
    ),
    (
        "attention_backward_scores",
        include_str!("../../shaders/attention_backward_scores.wgsl"),
    ),
    (
        "attention_forward",
        include_str!("../../shaders/attention_forward.wgsl"),
    ),
    (
        "attention_scores",
        include_str!("../../shaders/attention_scores.wgsl"),
    ),
    ("bias_add", include_str!("../../shaders/bias_add.wgsl")),
    (
        "clip_coefficient",
        include_str!("../../shaders/clip_coefficient.wgsl"),
    ),
    (
        "cross_entropy_backward",
        include_str!("../../shaders/cross_entropy_backward.wgsl"),
    ),
    (
        "cross_entropy_loss",
        include_str!("../../shaders/cross_entropy_loss.wgsl"),
    ),
    (
        "cross_entropy_max",
        include_str!("../../shaders/cross_entropy_max.wgsl"),
    ),
    (
        "cross_entropy_sums",
        include_str!("../../shaders/cross_entropy_sums.wgsl"),
    ),
    ("dropout", include_str!("../../shaders/dropout.wgsl")),
    (
        "dropout_mask",
        include_str!("../../shaders/dropout_mask.wgsl"),
    ),
    (
        "embedding_forward",
        include_str!("../../shaders/embedding_forward.wgsl"),
    ),
    ("fill", include_str!("../../shaders/fill.wgsl")),
    ("fold", include_str!("../../shaders/fold.wgsl")),
    (
        "fold_segments",
        include_str!("../../shaders/fold_segments.wgsl"),
    ),
    (
        "gelu_backward",
        include_str!("../../shaders/gelu_backward.wgsl"),
    ),
    (
        "gelu_forward",
        include_str!("../../shaders/gelu_forward.wgsl"),
    ),
    (
        "grad_squares",
        include_str!("../../shaders/grad_squares.wgsl"),
    ),
    (
        "layernorm_backward",
        include_str!("../../shaders/layernorm_backward.wgsl"),
    ),
    (
        "layernorm_forward",
        include_str!("../../shaders/layernorm_forward.wgsl"),
    ),
    (
        "learning_rate",
        include_str!("../../shaders/learning_rate.wgsl"),
    ),
    (
        "loss_scale_update",
        include_str!("../../shaders/loss_scale_update.wgsl"),
    ),
    (
        "math/combine",
        include_str!("../../shaders/math/combine.wgsl"),
    ),
    (
        "math/dropout",
        include_str!("../../shaders/math/dropout.wgsl"),
    ),
    ("math/exp", include_str!("../../shaders/math/exp.wgsl")),
    ("math/gelu", include_str!("../../shaders/math/gelu.wgsl")),
    ("math/log", include_str!("../../shaders/math/log.wgsl")),
    (
        "math/philox",
        include_str!("../../shaders/math/philox.wgsl"),
    ),
    (
        "math/product",
        include_str!("../../shaders/math/product.wgsl"),
    ),
    ("math/round", include_str!("../../shaders/math/round.wgsl")),
    ("math/rsqrt", include_str!("../../shaders/math/rsqrt.wgsl")),
    (
        "math/sincos",
        include_str!("../../shaders/math/sincos.wgsl"),
    ),
    ("math/tanh", include_str!("../../shaders/math/tanh.wgsl")),
    ("matmul_nn", include_str!("../../shaders/matmul_nn.wgsl")),
    ("matmul_nt", include_str!("../../shaders/matmul_nt.wgsl")),
    (
        "matmul_wgrad",
        include_str!("../../shaders/matmul_wgrad.wgsl"),
    ),
    (
        "optimizer_advance",
        include_str!("../../shaders/optimizer_advance.wgsl"),
    ),
    (
        "position_embedding",
        include_str!("../../shaders/position_embedding.wgsl"),
    ),
    (
        "residual_add",
        include_str!("../../shaders/residual_add.wgsl"),
    ),
    (
        "residual_layernorm",
        include_str!("../../shaders/residual_layernorm.wgsl"),
    ),
    (
        "residual_rmsnorm",
        include_str!("../../shaders/residual_rmsnorm.wgsl"),
    ),
    (
        "rmsnorm_backward",
        include_str!("../../shaders/rmsnorm_backward.wgsl"),
    ),
    (
        "rmsnorm_forward",
        include_str!("../../shaders/rmsnorm_forward.wgsl"),
    ),
    ("rng_take", include_str!("../../shaders/rng_take.wgsl")),
    (
        "rope_forward",
        include_str!("../../shaders/rope_forward.wgsl"),
    ),
    ("scale", include_str!("../../shaders/scale.wgsl")),
    ("self_test", include_str!("../../shaders/self_test.wgsl")),
    (
        "swiglu_backward",
        include_str!("../../shaders/swiglu_backward.wgsl"),
    ),
    (
        "swiglu_forward",
        include_str!("../../shaders/swiglu_forward.wgsl"),
    ),
    ("unscale", include_str!("../../shaders/unscale.wgsl")),
];

/// What computes digests on an engine. It trains nothing, and so is in no hash of the kernels that
/// a training step runs.
pub(super) const DIGEST: &[(&str, &str)] = &[
    (
        "digest/compress",
        include_str!("../../shaders/digest/compress.wgsl"),
    ),
    (
        "digest_chunks",
        include_str!("../../shaders/digest/chunks.wgsl"),
    ),
    (
        "digest_parents",
        include_str!("../../shaders/digest/parents.wgsl"),
    ),
];

#[cfg(test)]
mod tests {
    use super::SHADERS;
    use std::path::Path;

    fn names_below(folder: &Path, prefix: &str, names: &mut Vec<String>) {
        for entry in std::fs::read_dir(folder).expect("shaders/ can be read") {
            let path = entry.expect("an entry of shaders/").path();
            let stem = path
                .file_stem()
                .expect("a name")
                .to_string_lossy()
                .into_owned();
            if path.is_dir() {
                names_below(&path, &format!("{prefix}{stem}/"), names);
            } else if path
                .extension()
                .is_some_and(|extension| extension == "wgsl")
            {
                names.push(format!("{prefix}{stem}"));
            }
        }
    }

    #[test]
    fn the_list_is_the_folder() {
        let mut names = Vec::new();
        names_below(
            &Path::new(env!("CARGO_MANIFEST_DIR")).join("shaders"),
            "",
            &mut names,
        );
        // What only adapters run is no training kernel (`kernel::native`).
        names.retain(|name| !name.starts_with("native/") && !name.starts_with("digest/"));
        names.sort();
        let listed: Vec<&str> = SHADERS.iter().map(|(name, _)| *name).collect();
        assert_eq!(
            listed, names,
            "src/kernel/shaders.rs lists other files than shaders/ holds"
        );
    }
}
