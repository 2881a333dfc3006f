//! Which kernels' orders a job fixes: the switches of `[determinism]`.

use super::super::{GivenVariable, setting};
use super::understood::Derivation;
use super::values::Values;
use crate::recipe::CUBLAS_WORKSPACES;

/// Orders that a kernel fixes, or leaves to the arrival of its parts.
const ORDERED: &str = "ordered";
const ARRIVAL: &str = "arrival";

/// Each switch with its reason. A log does not show the environment, and a script that reads other
/// files not all of it (`shown` is false).
pub(super) fn orders(values: &Values<'_>, env: &[GivenVariable], shown: bool) -> Vec<Derivation> {
    let mut derived = vec![
        embedding_backward(values),
        attention_backward(values, env, shown),
        derivation(
            "determinism.norm_weight_grad",
            ORDERED,
            "Transformer Engine's and Apex's norms add the rows of a block, then the blocks, in an \
             order of their own (layernorm backward, two stages)",
        ),
        wgrad(values, env),
        derivation(
            "determinism.microbatch_accumulation",
            ORDERED,
            "one stream adds the microbatches' gradients in the order of the schedule",
        ),
    ];
    let is_open = variable(env, "NCCL_ALGO").is_none_or(str::is_empty);
    if !values.flag("deterministic_mode") && is_open {
        let reason = match shown {
            true => "not set: NCCL would choose by size and topology; the plans here are Ring's",
            false => "not shown by the file: the plans here are Ring's",
        };
        derived.push(derivation("env.NCCL_ALGO", "Ring", reason));
    }
    derived
}

fn derivation(key: &'static str, value: &str, reason: impl Into<String>) -> Derivation {
    Derivation {
        key,
        value: value.to_string(),
        reason: reason.into(),
    }
}

fn embedding_backward(values: &Values<'_>) -> Derivation {
    let key = "determinism.embedding_backward";
    if values.flag("deterministic_mode") {
        let reason = "--deterministic-mode: the embedding is read by indexing, whose backward adds \
            in order (VocabParallelEmbedding, megatron/core/tensor_parallel/layers.py)";
        return derivation(key, ORDERED, reason);
    }
    let reason = "no --deterministic-mode: F.embedding's backward adds the rows of a repeated \
        token by atomics (megatron/core/tensor_parallel/layers.py)";
    derivation(key, ARRIVAL, reason)
}

/// Which attention runs, as far as the arguments say.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Attention {
    /// Matrix products and a softmax.
    Unfused,
    /// FlashAttention or cuDNN, one of them or whichever Transformer Engine picks.
    Fused,
}

fn attention(values: &Values<'_>, env: &[GivenVariable]) -> Attention {
    let is_off = |name: &str| variable(env, name) == Some("0");
    let local = values.text("transformer_impl") == Some("local");
    match values.text("attention_backend") {
        Some("unfused" | "local") => Attention::Unfused,
        _ if values.flag("use_flash_attn") => Attention::Fused,
        _ if local => Attention::Unfused,
        _ if is_off("NVTE_FLASH_ATTN") && is_off("NVTE_FUSED_ATTN") => Attention::Unfused,
        // Transformer Engine has the others for 16 bits and fewer (get_attention_backend).
        _ if !values.flag("bf16") && !values.flag("fp16") => Attention::Unfused,
        _ => Attention::Fused,
    }
}

fn attention_backward(values: &Values<'_>, env: &[GivenVariable], shown: bool) -> Derivation {
    let key = "determinism.attention_backward";
    if attention(values, env) == Attention::Unfused {
        let reason = "unfused attention: matrix products and a softmax, whose orders are fixed";
        return derivation(key, ORDERED, reason);
    }
    if values.flag("deterministic_mode") {
        let reason = "--deterministic-mode: Transformer Engine picks a deterministic backward only \
            (NVTE_ALLOW_NONDETERMINISTIC_ALGO=0, megatron/training/determinism.py)";
        return derivation(key, ORDERED, reason);
    }
    match variable(env, "NVTE_ALLOW_NONDETERMINISTIC_ALGO") {
        Some("0") => derivation(
            key,
            ORDERED,
            "NVTE_ALLOW_NONDETERMINISTIC_ALGO=0: Transformer Engine picks a deterministic backward \
             only",
        ),
        given => {
            let given = match given {
                Some(value) => format!("NVTE_ALLOW_NONDETERMINISTIC_ALGO={value}"),
                None if shown => {
                    "NVTE_ALLOW_NONDETERMINISTIC_ALGO is not set, and 1 is its default".to_string()
                }
                None => "the file does not show NVTE_ALLOW_NONDETERMINISTIC_ALGO, and 1 is its \
                    default"
                    .to_string(),
            };
            let reason = format!(
                "{given}: the fused backward adds blocks of keys into a query's gradient by atomics"
            );
            derivation(key, ARRIVAL, reason)
        }
    }
}

fn wgrad(values: &Values<'_>, env: &[GivenVariable]) -> Derivation {
    let key = "determinism.wgrad_split_k";
    let reason = match variable(env, "CUBLAS_WORKSPACE_CONFIG") {
        Some(value) if CUBLAS_WORKSPACES.contains(&value) => {
            "CUBLAS_WORKSPACE_CONFIG fixes cuBLAS's workspaces".to_string()
        }
        _ if values.flag("deterministic_mode") => {
            "--deterministic-mode sets CUBLAS_WORKSPACE_CONFIG=:4096:8".to_string()
        }
        _ => "cuBLAS adds the parts of a split product in an order of its own; which product it \
             picks may differ where several streams are active, as CUBLAS_WORKSPACE_CONFIG is not \
             :4096:8 or :16:8: not covered"
            .to_string(),
    };
    derivation(key, ORDERED, reason)
}

fn variable<'e>(env: &'e [GivenVariable], name: &str) -> Option<&'e str> {
    let given = setting(env, name)?;
    Some(given.value.trim())
}
