//! What `--deterministic-mode` refuses (`megatron/training/determinism.py` of NVIDIA's
//! Megatron-LM; pending: NVIDIA/Megatron-LM#7419, #6254).

use crate::diagnostic::Place;
use crate::recipe::CUBLAS_WORKSPACES;
use crate::recipe::megatron::{GivenVariable, Values, setting};

/// Whether Megatron checks a rule today.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    Current,
    Pending,
}

/// A rule that a job breaks.
#[derive(Clone, Debug)]
pub(crate) struct Violation {
    /// The argument's attribute or the variable's name.
    pub rule: &'static str,
    pub standing: Standing,
    /// Where the value was written.
    pub place: Place,
    /// What would be accepted.
    pub accepted: &'static str,
    /// Why the rule is there.
    pub reason: &'static str,
}

/// An argument that must be off.
struct Refused {
    dest: &'static str,
    standing: Standing,
    reason: &'static str,
}

const REFUSED: [Refused; 2] = [
    Refused {
        dest: "cross_entropy_loss_fusion",
        standing: Standing::Current,
        reason: "the fused cross entropy sums in an order that differs from run to run",
    },
    Refused {
        dest: "tp_comm_overlap",
        standing: Standing::Current,
        reason: "overlapped tensor-parallel GEMMs add chunks as they arrive",
    },
];

/// A variable with a fixed set of accepted values.
struct Accepted {
    name: &'static str,
    values: &'static [&'static str],
    shown: &'static str,
    reason: &'static str,
}

const ACCEPTED: [Accepted; 2] = [
    Accepted {
        name: "NVTE_ALLOW_NONDETERMINISTIC_ALGO",
        values: &["0"],
        shown: "0",
        reason: "otherwise Transformer Engine may pick an attention backward that adds by atomics",
    },
    Accepted {
        name: "CUBLAS_WORKSPACE_CONFIG",
        values: &CUBLAS_WORKSPACES,
        shown: ":4096:8 or :16:8",
        reason: "with other workspaces cuBLAS may split a product differently from run to run",
    },
];

/// `NCCL_ALGO`'s accepted tokens.
pub(super) const NCCL_ALGO_TOKENS: [&str; 4] = ["Ring", "CollnetDirect", "CollnetChain", "^NVLS"];

/// Every rule that the job breaks, whether or not it asks for deterministic mode, in the order in
/// which Megatron checks them.
pub(crate) fn violations(values: &Values<'_>, env: &[GivenVariable]) -> Vec<Violation> {
    let mut found = Vec::new();
    for refused in REFUSED.iter().filter(|refused| values.flag(refused.dest)) {
        found.push(Violation {
            rule: refused.dest,
            standing: refused.standing,
            place: values.place(refused.dest).clone(),
            accepted: "off",
            reason: refused.reason,
        });
    }
    found.extend(aux_loss_fusion(values));
    found.extend(nccl_algo(env));
    for accepted in &ACCEPTED {
        let broken = |value: &str| !accepted.values.contains(&value);
        found.extend(variable(
            env,
            accepted.name,
            broken,
            accepted.shown,
            accepted.reason,
        ));
    }
    // Unset and empty both follow torch's setting.
    let off = |value: &str| !value.is_empty() && !value.starts_with('1');
    for name in ["MAMBA_DETERMINISTIC", "CAUSAL_CONV1D_DETERMINISTIC"] {
        let reason = "it switches the deterministic kernels of Mamba layers off";
        found.extend(variable(env, name, off, "1, or not set", reason));
    }
    found.extend(triton(env));
    found
}

/// Unset, it follows `--moe-router-fusion`.
fn aux_loss_fusion(values: &Values<'_>) -> Option<Violation> {
    let rule = "moe_router_aux_loss_fusion";
    let dest = if values.is_given(rule) {
        rule
    } else {
        "moe_router_fusion"
    };
    values.flag(dest).then(|| Violation {
        rule,
        standing: Standing::Pending,
        place: values.place(dest).clone(),
        accepted: "off",
        reason: "the fused auxiliary loss returns another value from run to run \
            (NVIDIA/Megatron-LM#6254)",
    })
}

/// As Megatron compares it, which is not as NCCL reads it: words between commas, in this case only,
/// and `^NVLS` is one of them (`apply_determinism_env`).
fn nccl_algo(env: &[GivenVariable]) -> Option<Violation> {
    let refused = |value: &str| {
        let mut tokens = value
            .split(',')
            .map(str::trim)
            .filter(|token| !token.is_empty())
            .peekable();
        tokens.peek().is_none() || tokens.any(|token| !NCCL_ALGO_TOKENS.contains(&token))
    };
    variable(
        env,
        "NCCL_ALGO",
        refused,
        "a list of Ring, CollnetDirect, CollnetChain, ^NVLS",
        "a tree's order within a node is not the user's to fix, and between nodes it may change \
         without a pinned topology file",
    )
}

/// Tuned kernels are shared by a cache, or ranks time them apart and disagree.
fn triton(env: &[GivenVariable]) -> Option<Violation> {
    let name = "TRITON_CACHE_AUTOTUNING";
    let has_folder = setting(env, "TRITON_CACHE_DIR").is_some_and(|dir| !dir.value.is_empty());
    let broken = |value: &str| match value {
        "0" => false,
        "1" => !has_folder,
        _ => true,
    };
    let violation = variable(
        env,
        name,
        broken,
        "0, or 1 with TRITON_CACHE_DIR on a shared path",
        "otherwise each rank times kernels by itself and picks its own",
    )?;
    Some(Violation {
        standing: Standing::Pending,
        ..violation
    })
}

fn variable(
    env: &[GivenVariable],
    name: &'static str,
    broken: impl Fn(&str) -> bool,
    accepted: &'static str,
    reason: &'static str,
) -> Option<Violation> {
    let given = setting(env, name)?;
    broken(&given.value).then(|| Violation {
        rule: name,
        standing: Standing::Current,
        place: given.place.clone(),
        accepted,
        reason,
    })
}
