//! What is known of ops by their names, as the dispatcher writes them (`aten.copy_.default`).
//!
//! Sources: Megatron-LM pull request 7262 (probe artefacts, one hop later), PyTorch's notes on
//! `torch.use_deterministic_algorithms`.

/// The name between `aten.` and the overload.
pub fn base(name: &str) -> &str {
    let rest = name
        .strip_prefix("aten.")
        .or_else(|| name.strip_prefix("aten::"));
    rest.unwrap_or(name).split('.').next().unwrap_or_default()
}

/// Whether the first of an op's `inputs` tensors is one that it writes whole and never reads. Some
/// recorders leave that operand out: then what `copy_` shows is its source.
pub fn writes_only_first(name: &str, inputs: usize) -> bool {
    const NAMES: [&str; 11] = [
        "copy_",
        "zero_",
        "fill_",
        "bernoulli_",
        "uniform_",
        "normal_",
        "random_",
        "exponential_",
        "cauchy_",
        "geometric_",
        "log_normal_",
    ];
    let base = base(name);
    let reads_another = base == "copy_" || name.ends_with(".Tensor");
    NAMES.contains(&base) && inputs > usize::from(reads_another)
}

/// Whether the op only looks at memory in another way.
pub fn is_view(name: &str) -> bool {
    const NAMES: [&str; 22] = [
        "as_strided",
        "view",
        "_unsafe_view",
        "reshape",
        "slice",
        "select",
        "narrow",
        "t",
        "transpose",
        "permute",
        "expand",
        "squeeze",
        "unsqueeze",
        "detach",
        "alias",
        "split",
        "split_with_sizes",
        "unbind",
        "chunk",
        "diagonal",
        "unfold",
        "view_as_real",
    ];
    NAMES.contains(&base(name))
}

/// Whether the op gives memory that nobody has written.
pub fn is_uninitialised(name: &str) -> bool {
    let base = base(name);
    base.starts_with("empty") || base.starts_with("new_empty") || base == "resize_"
}

/// Whether the op draws from a generator, whose state is an input that no record shows.
pub fn is_random(name: &str) -> bool {
    const NAMES: [&str; 16] = [
        "bernoulli_",
        "bernoulli",
        "uniform_",
        "uniform",
        "normal_",
        "normal",
        "random_",
        "exponential_",
        "rand",
        "rand_like",
        "randn",
        "randn_like",
        "randint",
        "randperm",
        "multinomial",
        "native_dropout",
    ];
    NAMES.contains(&base(name))
}

/// Whether the op cannot depend on an order: its difference was made before it.
pub fn is_fixed(name: &str) -> bool {
    const NAMES: [&str; 19] = [
        "add",
        "add_",
        "sub",
        "sub_",
        "mul",
        "mul_",
        "div",
        "div_",
        "neg",
        "cat",
        "stack",
        "clone",
        "copy_",
        "_to_copy",
        "gelu",
        "relu",
        "silu",
        "zeros_like",
        "ones_like",
    ];
    is_view(name) || NAMES.contains(&base(name))
}

/// Whether a collective moves bytes and computes nothing.
pub fn adds_nothing(name: &str) -> bool {
    let moves = [
        "broadcast",
        "gather",
        "scatter",
        "all_to_all",
        "send",
        "recv",
        "barrier",
    ];
    !name.contains("reduce") && moves.iter().any(|what| name.contains(what))
}

/// Whether the op is known to add by atomics, in the order in which threads come.
pub fn is_atomic(name: &str) -> bool {
    const NAMES: [&str; 15] = [
        "scatter_add",
        "scatter_add_",
        "scatter_reduce",
        "index_add",
        "index_add_",
        "index_put",
        "index_put_",
        "put_",
        "embedding_dense_backward",
        "embedding_bag",
        "histc",
        "bincount",
        "cumsum",
        "grid_sampler_2d_backward",
        "nll_loss2d_forward",
    ];
    let base = base(name);
    let is_backward = |what: &str| base.contains(what) && base.contains("backward");
    NAMES.contains(&base)
        || [
            "attention",
            "layer_norm",
            "convolution",
            "upsample",
            "_pool",
        ]
        .into_iter()
        .any(is_backward)
}

/// Whether the op is a matrix product: a library chooses its kernel.
pub fn is_gemm(name: &str) -> bool {
    const NAMES: [&str; 8] = [
        "mm",
        "addmm",
        "bmm",
        "baddbmm",
        "_scaled_mm",
        "_grouped_mm",
        "linear",
        "matmul",
    ];
    NAMES.contains(&base(name)) || name.starts_with("gemm")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_without_their_overload() {
        assert_eq!(base("aten.copy_.default"), "copy_");
        assert_eq!(base("gemm:tn:acc1"), "gemm:tn:acc1");
        assert!(
            writes_only_first("aten.bernoulli_.float", 1)
                && !writes_only_first("aten.add_.Tensor", 2)
        );
        // `self` and the source; the source alone, where the recorder leaves `self` out.
        for (name, inputs, is_self) in [
            ("aten.copy_.default", 2, true),
            ("aten.copy_.default", 1, false),
            ("aten.fill_.Tensor", 2, true),
            ("aten.fill_.Tensor", 1, false),
            ("aten.fill_.Scalar", 1, true),
            ("aten.bernoulli_.Tensor", 1, false),
            ("aten.zero_.default", 1, true),
        ] {
            assert_eq!(writes_only_first(name, inputs), is_self, "{name} {inputs}");
        }
        assert!(is_view("aten.t.default") && !is_view("aten.tanh.default"));
        assert!(adds_nothing("all_gather_into_tensor") && !adds_nothing("reduce_scatter_tensor"));
        assert!(is_uninitialised("aten.new_empty.default"));
        assert!(
            is_gemm("gemm:tn:acc1") && is_gemm("aten.mm.default") && !is_gemm("aten.mul.Tensor")
        );
        assert!(is_atomic(
            "aten._scaled_dot_product_flash_attention_backward.default"
        ));
    }
}
