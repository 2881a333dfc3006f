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

/// Ops that write their first operand whole and never read it. `python/bitproof_trace.py` has the
/// same list, and a test compares the two: whoever adds an op here adds it there.
const WRITE_ONLY: [&str; 15] = [
    "copy_",
    "zero_",
    "fill_",
    "bernoulli_",
    "uniform_",
    "normal_",
    "random_",
    "exponential_",
    "geometric_",
    "cauchy_",
    "log_normal_",
    "_foreach_copy_",
    "_foreach_zero_",
    "set_",
    "eye_",
];

/// How many of an op's `inputs` tensors, from the first on, it writes whole and never reads. Some
/// recorders leave those operands out: then what `copy_` shows is its source.
pub fn written_only(name: &str, inputs: usize, outputs: usize) -> usize {
    let base = base(name);
    if !WRITE_ONLY.contains(&base) {
        return 0;
    }
    match base {
        // The operand is a list, and there is no other.
        "_foreach_zero_" => inputs,
        // A list, and a source for each of its tensors.
        "_foreach_copy_" if inputs == 2 * outputs => outputs,
        "_foreach_copy_" => 0,
        _ => {
            let source = base == "copy_" || name.ends_with(".Tensor") || name.contains(".source_T");
            usize::from(inputs > usize::from(source))
        }
    }
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
        // `self` and the source; the source alone, where the recorder leaves `self` out.
        for (name, (inputs, outputs), written) in [
            ("aten.copy_.default", (2, 1), 1),
            ("aten.copy_.default", (1, 1), 0),
            ("aten.fill_.Tensor", (2, 1), 1),
            ("aten.fill_.Tensor", (1, 1), 0),
            ("aten.fill_.Scalar", (1, 1), 1),
            ("aten.bernoulli_.Tensor", (1, 1), 0),
            ("aten.bernoulli_.float", (1, 1), 1),
            ("aten.zero_.default", (1, 1), 1),
            ("aten.zero_.default", (0, 1), 0),
            ("aten.set_.source_Tensor", (2, 1), 1),
            ("aten.set_.source_Tensor", (1, 1), 0),
            ("aten._foreach_zero_.default", (3, 3), 3),
            ("aten._foreach_copy_.default", (6, 3), 3),
            ("aten._foreach_copy_.default", (3, 3), 0),
            ("aten._foreach_copy_.default", (3, 0), 0),
            ("aten.add_.Tensor", (2, 1), 0),
        ] {
            assert_eq!(
                written_only(name, inputs, outputs),
                written,
                "{name} {inputs}"
            );
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

    /// The recorder is one file that imports nothing of ours, so it has a list of its own.
    #[test]
    fn the_recorder_leaves_out_what_is_known_here() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(path.join("python/bitproof_trace.py")).unwrap();
        let (_, list) = text
            .split_once("\nWRITE_ONLY = frozenset(\n")
            .expect("its list");
        let (list, _) = list.split_once(".split())").expect("its end");
        let names = list.split(['"', ' ', '\n']).filter(|name| !name.is_empty());
        let mut names: Vec<&str> = names.collect();
        let mut own = WRITE_ONLY.to_vec();
        names.sort_unstable();
        own.sort_unstable();
        assert_eq!(names, own);
    }
}
