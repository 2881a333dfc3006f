//! What a trace's words mean in the simulated program. What is not known here is left open.

use crate::numerics::Dtype;
use crate::world::{Family, Phase};

/// The collective that a record's name means: as torch.distributed, its functional collectives and
/// c10d call it (`all_reduce`, `c10d.allreduce_.default`, `_reduce_scatter_base`).
pub(super) fn collective(name: &str) -> Option<&'static str> {
    let name = name.to_ascii_lowercase().replace('_', "");
    let is = |what: &str| name.contains(what);
    match () {
        () if is("allreduce") => Some("all_reduce"),
        () if is("reducescatter") => Some("reduce_scatter"),
        () => None,
    }
}

/// The sums that an ATen op of backward makes, by the name between `aten.` and the overload
/// (PyTorch's notes on `torch.use_deterministic_algorithms`, native_functions.yaml).
pub(super) fn families(op: &str) -> &'static [Family] {
    match op {
        "embedding_dense_backward" => &[Family::EmbeddingGrad, Family::PositionGrad],
        "native_layer_norm_backward" | "_fused_rms_norm_backward" => &[Family::NormWeightGrad],
        "mm" | "addmm" | "bmm" | "linear_backward" => &[Family::WgradSplitK],
        "add_" => &[Family::MicrobatchAccumulation],
        "sum" => &[Family::BiasGrad],
        _ if op.contains("attention") && op.contains("backward") => &[Family::AttentionGrad],
        _ => &[],
    }
}

/// Whether a trace may call the phase so: what the program counts as a phase of its own is part of
/// backward or forward where hooks do it.
pub(super) fn phases(phase: Phase) -> &'static [&'static str] {
    match phase {
        Phase::Setup => &["setup"],
        Phase::Data => &["data", "forward"],
        Phase::Forward => &["forward"],
        Phase::Loss => &["loss", "forward"],
        Phase::Backward => &["backward", "recompute"],
        Phase::GradReduce => &["grad-reduce", "backward", "gradients"],
        Phase::Optimizer => &["optimizer"],
        Phase::Checkpoint => &["checkpoint"],
    }
}

/// The kind of a group by its name: `dp0`, `dp` and `DP_3` are data parallel.
pub(super) fn group_kind(name: &str) -> Option<String> {
    let letters = name.trim_end_matches(|c: char| c.is_ascii_digit() || "_-.:".contains(c));
    let kind = letters.to_ascii_lowercase();
    let known = [
        "tp",
        "dp",
        "mp",
        "world",
        "embedding",
        "intra",
        "inter",
        "instance",
    ];
    let longer = [
        ("tensor", "tp"),
        ("tensor_parallel", "tp"),
        ("tensor_model_parallel", "tp"),
        ("data", "dp"),
        ("data_parallel", "dp"),
        ("model_parallel", "mp"),
    ];
    let short = longer.iter().find(|(long, _)| *long == kind);
    let kind = short.map_or(&*kind, |(_, short)| short);
    known.contains(&kind).then(|| kind.to_string())
}

/// A type as PyTorch calls it.
pub(super) fn torch_name(dtype: Dtype) -> &'static str {
    match dtype {
        Dtype::F32 => "float32",
        Dtype::Bf16 => "bfloat16",
        Dtype::F16 => "float16",
        Dtype::U32 => "uint32",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_other_libraries_are_understood_or_left_open() {
        for (name, meant) in [
            ("all_reduce", Some("all_reduce")),
            ("c10d.allreduce_.default", Some("all_reduce")),
            ("_reduce_scatter_base", Some("reduce_scatter")),
            ("reduce_scatter_tensor", Some("reduce_scatter")),
            ("all_gather_into_tensor", None),
            ("broadcast", None),
        ] {
            assert_eq!(collective(name), meant, "{name}");
        }
        let kind = |name| group_kind(name).as_deref().map(str::to_owned);
        assert_eq!(kind("dp"), kind("dp12"));
        assert_eq!(kind("DATA_PARALLEL"), Some("dp".to_string()));
        assert_eq!((kind("default_pg"), kind("7")), (None, None));
        assert_eq!(families("index_put_"), &[] as &[Family]);
    }
}
