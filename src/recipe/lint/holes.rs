//! What deterministic mode does not look at: NCCL's choices, the allocation, when a setting is
//! read.

use std::collections::BTreeSet;

use super::rule::{Found, Job, Rule};
use crate::diagnostic::Severity::{Note, Warning};
use crate::recipe::CUBLAS_WORKSPACES;
use crate::recipe::megatron::GivenKind;
use crate::recipe::nccl::{Algorithm, Environment, Function};

const NCCL: &str = "NCCL documentation, environment variables; bitproof's plans";

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "nccl-protocol-open",
        severity: Note,
        reason: "NCCL picks Simple, LL or LL128 by size, and offers LL128 on some links only; \
            chunks, and with them the rank at which an element's sum starts, differ between \
             protocols",
        source: NCCL,
        fix: "set NCCL_PROTO=Simple",
        find: |job| job.unset("NCCL_PROTO"),
    },
    Rule {
        id: "nccl-channels-open",
        severity: Note,
        reason: "the number of channels follows from the topology that NCCL finds; it cuts a \
            buffer into the parts that start at different ranks",
        source: NCCL,
        fix: "set NCCL_MIN_NCHANNELS and NCCL_MAX_NCHANNELS to one number",
        find: channels,
    },
    Rule {
        id: "nccl-buffer-open",
        severity: Note,
        reason: "NCCL_BUFFSIZE sets the chunks of a ring; a site's nccl.conf may set it too",
        source: "docs of NCCL; Megatron-LM's CI sets NCCL_BUFFSIZE=4194304 and checks nothing",
        fix: "set NCCL_BUFFSIZE=4194304",
        find: |job| job.unset("NCCL_BUFFSIZE"),
    },
    Rule {
        id: "nccl-tuner-open",
        severity: Note,
        reason: "a tuner plugin that the image or the cloud installs overrides algorithm and \
         protocol",
        source: "NCCL's src/plugin/tuner.cc and plugin_open.cc, which take an empty name as none \
            was given and load libnccl-tuner.so; Megatron-LM's CI sets it empty",
        fix: "set NCCL_TUNER_PLUGIN=none",
        find: tuner_open,
    },
    Rule {
        id: "environment-unknown",
        severity: Note,
        reason: "which algorithm NCCL took, and which attention Transformer Engine, follows from \
            variables: bitproof takes Ring, and the defaults of the rest",
        source: "_print_args, megatron/training/arguments.py",
        fix: "check a launch script that sets them itself, or set `env` in a scenario",
        find: environment_unknown,
    },
    Rule {
        id: "nccl-tuner-plugin",
        severity: Warning,
        reason: "a tuner plugin chooses algorithm and protocol for each call, whatever NCCL_ALGO \
         says",
        source: "NCCL's src/plugin/tuner.cc",
        fix: "set NCCL_TUNER_PLUGIN=none",
        find: tuner,
    },
    Rule {
        id: "nvls-tree-left-on",
        severity: Warning,
        reason: "`^NVLS` excludes NVLS alone: NVLSTree, whose switches add in an order of their \
            own, and Tree stay open",
        source: "NCCL's parseList (src/graph/tuning.cc); Megatron-LM#2369; NVIDIA/nccl#1497",
        fix: "set NCCL_ALGO=Ring",
        find: nvls_tree,
    },
    Rule {
        id: "nvls-open",
        severity: Warning,
        reason: "NCCL may sum in the switch (NVLS), and its maintainers say that results may \
            differ from call to call",
        source: "NVIDIA/nccl#1497, #2360",
        fix: "set NCCL_ALGO=Ring and NCCL_NVLS_ENABLE=0",
        find: nvls,
    },
    Rule {
        id: "collnet-on",
        severity: Warning,
        reason: "SHARP sums in the network's switches, in an order that no argument fixes; \
            Megatron accepts it, torchtitan and vLLM switch it off",
        source: "megatron/training/determinism.py; NCCL documentation, NCCL_COLLNET_ENABLE",
        fix: "set NCCL_COLLNET_ENABLE=0 and NCCL_ALGO=Ring",
        find: collnet,
    },
    Rule {
        id: "nccl-function-without-algorithm",
        severity: Warning,
        reason: "since 2.24 NCCL takes NCCL_ALGO at its word: Megatron broadcasts batches over \
            tensor-parallel ranks and gathers parameters, and no tree does that",
        source: "NCCL documentation, NCCL_ALGO; broadcast_data, megatron/core/tensor_parallel",
        fix: "name it for one function: `NCCL_ALGO=Ring;AllReduce:Tree`",
        find: without_algorithm,
    },
    Rule {
        id: "rank-map-open",
        severity: Note,
        reason: "NCCL_ALGO=Ring pins the algorithm and not the physical ring: on other nodes the \
            ring has another order, and so has every sum along it",
        source: "Megatron-LM#5718: within an allocation; across allocations is an open gap",
        fix: "run `bitproof check` on a scenario with `free = [\"placement\"]` and two files of \
            `allocations`",
        find: rank_map,
    },
    Rule {
        id: "bf16-gradient-sums",
        severity: Note,
        reason: "NCCL rounds every partial sum to bf16, so another order of ranks gives other \
            bits in most elements; an all-to-all and a local fp32 sum go by rank alone",
        source: "NCCL's reduction kernels; megatron/core/distributed, \
            reduce_scatter_with_fp32_accumulation",
        fix: "add `--ddp-reduce-scatter-with-fp32-accumulation`, with the distributed optimizer",
        find: bf16_sums,
    },
    Rule {
        id: "set-inside-the-process",
        severity: Note,
        reason: "Megatron sets what is missing after the process has started; what was built or \
            read before keeps its old setting",
        source: "AReaL#1544; NVIDIA/Megatron-LM#7419; megatron/training/determinism.py",
        fix: "export NCCL_ALGO, NVTE_ALLOW_NONDETERMINISTIC_ALGO and CUBLAS_WORKSPACE_CONFIG in \
            the launcher",
        find: set_late,
    },
    Rule {
        id: "record-streams",
        severity: Note,
        reason: "without it PyTorch frees a collective's buffers when the device is done with \
            them: which block comes next depends on timing, and with it what an uninitialised \
             read sees",
        source: "PyTorch, ProcessGroupNCCL; Megatron-LM's CI sets it",
        fix: "set TORCH_NCCL_AVOID_RECORD_STREAMS=1",
        find: |job| job.unset("TORCH_NCCL_AVOID_RECORD_STREAMS"),
    },
    Rule {
        id: "half-deterministic",
        severity: Warning,
        reason: "attention is deterministic, and the embedding's backward and what torch's \
            deterministic algorithms cover is not",
        source: "Megatron-LM#5718, operation catalogue",
        fix: "add `--deterministic-mode`",
        find: half_deterministic,
    },
    Rule {
        id: "embedding-arrival",
        severity: Warning,
        reason: "rows of a repeated token are added by atomics, in the order in which they arrive",
        source: "F.embedding's backward; megatron/core/tensor_parallel/layers.py",
        fix: "add `--deterministic-mode`",
        find: |job| arrival(job, "determinism.embedding_backward"),
    },
    Rule {
        id: "attention-arrival",
        severity: Warning,
        reason: "the fused backward adds blocks into a query's gradient by atomics",
        source: "Transformer Engine, NVTE_ALLOW_NONDETERMINISTIC_ALGO",
        fix: "set NVTE_ALLOW_NONDETERMINISTIC_ALGO=0, or add `--attention-backend unfused`",
        find: |job| arrival(job, "determinism.attention_backward"),
    },
    Rule {
        id: "expert-combine-arrival",
        severity: Warning,
        reason: "the rows that several experts return for one token are added by atomics \
            (scatter_add_), in the order in which they arrive",
        source: "unpermute, megatron/core/transformer/moe/moe_utils.py; Megatron-LM#5718, #7149",
        fix: "add `--deterministic-mode`",
        find: expert_combine,
    },
    Rule {
        id: "mamba-arrival",
        severity: Warning,
        reason: "the convolution's backward adds by atomics, and Triton tunes the scan's kernels \
            by timing, on each rank by itself",
        source: "megatron/core/ssm; NVIDIA/Megatron-LM#6655, Megatron-LM#5718",
        fix: "add `--deterministic-mode`",
        find: mamba,
    },
    Rule {
        id: "cublas-workspace-open",
        severity: Note,
        reason: "where several streams are active cuBLAS may pick another product, and another \
            split of it, from run to run; it promises the same bits with :4096:8 and :16:8",
        source: "cuBLAS documentation, results reproducibility",
        fix: "set CUBLAS_WORKSPACE_CONFIG=:4096:8",
        find: cublas_workspace,
    },
    Rule {
        id: "causal-conv1d-version",
        severity: Note,
        reason: "before 1.6.0 the backward of causal_conv1d adds by atomics; Megatron asserts the \
            version when the layer is built",
        source: "NVIDIA/Megatron-LM#6655",
        fix: "use causal_conv1d 1.6.0 or newer",
        find: causal_conv1d,
    },
    Rule {
        id: "grouped-gemm-accumulation",
        severity: Warning,
        reason: "grouped GEMMs that accumulate into main gradients may have several writers for \
            one slot, in an order that the kernel picks",
        source: "Megatron-LM#5718, operation catalogue; 217 of 333 CI recipes switch it off",
        fix: "add `--no-gradient-accumulation-fusion`",
        find: grouped_gemm,
    },
    Rule {
        id: "gated-delta-net-packed",
        severity: Warning,
        reason: "the deterministic path of gated delta net refuses packed sequences",
        source: "megatron/core/ssm/gated_delta_net.py",
        fix: "train on unpacked sequences, or without `--deterministic-mode`",
        find: packed_delta_net,
    },
];

fn channels(job: &Job<'_>) -> Option<Found> {
    let (least, most) = (
        job.text("NCCL_MIN_NCHANNELS"),
        job.text("NCCL_MAX_NCHANNELS"),
    );
    match (least, most) {
        (Some(least), Some(most)) if least == most => None,
        (Some(_), Some(_))
            if job
                .nccl()
                .is_some_and(|nccl| nccl.min_channels > nccl.max_channels) =>
        {
            job.variable_found(
                "NCCL_MIN_NCHANNELS",
                "NCCL_MIN_NCHANNELS is above NCCL_MAX_NCHANNELS".to_string(),
                "NCCL cuts to the greatest, then fills up to this",
            )
        }
        (Some(_), Some(_)) => job.variable_found(
            "NCCL_MAX_NCHANNELS",
            "NCCL_MIN_NCHANNELS and NCCL_MAX_NCHANNELS differ".to_string(),
            "the topology decides between them",
        ),
        (None, _) => job.unset("NCCL_MIN_NCHANNELS"),
        (_, None) => job.unset("NCCL_MAX_NCHANNELS"),
    }
}

fn cublas_workspace(job: &Job<'_>) -> Option<Found> {
    let name = "CUBLAS_WORKSPACE_CONFIG";
    if job.is_deterministic() {
        // Set by Megatron where it is not; another value is a violation.
        return None;
    }
    let value = job.text(name).unwrap_or_default();
    if CUBLAS_WORKSPACES.contains(&value) {
        return None;
    }
    job.unset(name).or_else(|| {
        let message = format!("{name} is neither :4096:8 nor :16:8");
        job.variable_found(name, message, "fixes no workspace")
    })
}

const TUNER: &str = "NCCL_TUNER_PLUGIN";

/// NCCL looks for `libnccl-tuner.so`, and then for a tuner in the network plugin.
fn tuner_open(job: &Job<'_>) -> Option<Found> {
    if job.text(TUNER) != Some("") {
        return job.unset(TUNER);
    }
    let message = format!("{TUNER} is empty, which NCCL takes as not set");
    job.variable_found(
        TUNER,
        message,
        "libnccl-tuner.so is loaded where there is one",
    )
}

fn tuner(job: &Job<'_>) -> Option<Found> {
    let name = TUNER;
    // NCCL compares with `none` in letters of either size.
    let names_one = |value: &&str| !value.is_empty() && !value.eq_ignore_ascii_case("none");
    let value = job.text(name).filter(names_one)?;
    let message = format!(
        "{name} names a plugin, `{}`",
        crate::diagnostic::escaped(value)
    );
    job.variable_found(name, message, "it overrides NCCL_ALGO and NCCL_PROTO")
}

/// What `NCCL_ALGO` leaves for an all-reduce or a reduce-scatter, `left`, or asks for.
fn algorithms(
    job: &Job<'_>,
    of: fn(&Environment, Function) -> Vec<Algorithm>,
) -> BTreeSet<Algorithm> {
    let Some(environment) = job.nccl() else {
        return BTreeSet::new();
    };
    let functions = [Function::AllReduce, Function::ReduceScatter];
    let each = functions.map(|function| of(&environment, function));
    each.into_iter().flatten().collect()
}

fn left(environment: &Environment, function: Function) -> Vec<Algorithm> {
    environment.left(function).unwrap_or_default()
}

const SWITCH: [Algorithm; 2] = [Algorithm::Nvls, Algorithm::NvlsTree];
const NETWORK: [Algorithm; 2] = [Algorithm::CollNetDirect, Algorithm::CollNetChain];

fn nvls_tree(job: &Job<'_>) -> Option<Found> {
    let left = algorithms(job, left);
    let asked = algorithms(job, Environment::asked);
    let is_left = left.contains(&Algorithm::NvlsTree) && !asked.contains(&Algorithm::NvlsTree);
    if !is_left || left.contains(&Algorithm::Nvls) {
        return None;
    }
    let value = crate::diagnostic::escaped(job.text("NCCL_ALGO").unwrap_or_default());
    let message = format!("NCCL_ALGO={value} leaves NVLSTree on");
    job.variable_found("NCCL_ALGO", message, "excludes NVLS, and not NVLSTree")
}

fn nvls(job: &Job<'_>) -> Option<Found> {
    if job.text("NCCL_NVLS_ENABLE") == Some("0") || job.is_deterministic() {
        return None;
    }
    let asked = algorithms(job, Environment::asked);
    if SWITCH.iter().any(|algorithm| asked.contains(algorithm)) {
        let message = "NCCL_ALGO asks for sums in the switch".to_string();
        return job.variable_found("NCCL_ALGO", message, "NVLS");
    }
    if algorithms(job, left).contains(&Algorithm::Nvls) {
        let message = "NCCL_ALGO leaves sums in the switch open".to_string();
        return job.variable_found("NCCL_ALGO", message, "NVLS is among what it leaves");
    }
    job.unset("NCCL_ALGO")
}

fn collnet(job: &Job<'_>) -> Option<Found> {
    let enabled = job.text("NCCL_COLLNET_ENABLE");
    if enabled.is_some_and(|value| !["0", ""].contains(&value)) {
        let message = "NCCL_COLLNET_ENABLE is on".to_string();
        return job.variable_found("NCCL_COLLNET_ENABLE", message, "sums in the network");
    }
    let asked = algorithms(job, Environment::asked);
    if NETWORK.iter().any(|algorithm| asked.contains(algorithm)) {
        let message = "NCCL_ALGO asks for sums in the network".to_string();
        return job.variable_found("NCCL_ALGO", message, "SHARP's order is not fixed");
    }
    let sharp = job.values.flag("use_sharp");
    sharp.then(|| job.argument_found("use_sharp", "SHARP is on", "sums in the network"))?
}

/// A function of training for which `NCCL_ALGO` leaves nothing, though it only copies.
fn without_algorithm(job: &Job<'_>) -> Option<Found> {
    let environment = job.nccl()?;
    let copies = [Function::Broadcast, Function::AllGather];
    let without = copies.into_iter().find(|function| {
        let left = environment.left(*function);
        left.is_some_and(|left| left.is_empty())
    })?;
    let message = format!("NCCL_ALGO leaves no algorithm for {}", without.name());
    job.variable_found("NCCL_ALGO", message, "NCCL refuses the call")
}

fn rank_map(job: &Job<'_>) -> Option<Found> {
    // Two addends commute: a ring of two ranks has one sum.
    (job.understood.world.size > 2).then(|| Found {
        message: "nothing pins the order of ranks in a ring".to_string(),
        place: job.place_of_environment(),
        label: "another allocation has other rings".to_string(),
    })
}

fn bf16_sums(job: &Job<'_>) -> Option<Found> {
    let values = job.values;
    let wide = "accumulate_allreduce_grads_in_fp32";
    let dest = match values.resolved(wide) {
        Some(_) => wide,
        None => "grad_reduce_in_bf16",
    };
    let accumulates = values.flag("ddp_reduce_scatter_with_fp32_accumulation")
        && values.flag("use_distributed_optimizer");
    let narrow = values.reduces_in_bf16() && !accumulates;
    narrow
        .then(|| job.argument_found(dest, "gradients are summed in bf16", "rounded at each add"))?
}

fn environment_unknown(job: &Job<'_>) -> Option<Found> {
    if let Some(place) = &job.given.phases[job.understood.phase].reads {
        return Some(Found {
            message: "the job's environment is not known".to_string(),
            place: place.clone(),
            label: "this is not read, and may set any variable".to_string(),
        });
    }
    let form = match job.given.kind {
        GivenKind::ArgumentDump => "a log",
        _ => "a list of arguments",
    };
    (!job.shows_environment()).then(|| Found {
        message: format!("{form} does not show the job's environment"),
        place: job.values.phase_place().clone(),
        label: "arguments only".to_string(),
    })
}

fn set_late(job: &Job<'_>) -> Option<Found> {
    if !job.is_deterministic() || !job.shows_environment() {
        return None;
    }
    let filled = [
        "NCCL_ALGO",
        "NVTE_ALLOW_NONDETERMINISTIC_ALGO",
        "CUBLAS_WORKSPACE_CONFIG",
    ];
    let missing: Vec<&str> = filled
        .into_iter()
        .filter(|name| job.variable(name).is_none())
        .collect();
    if missing.is_empty() {
        return None;
    }
    let message = format!("{} will be set inside the process", missing.join(", "));
    job.argument_found(
        "deterministic_mode",
        &message,
        "sets what the launcher left out",
    )
}

fn half_deterministic(job: &Job<'_>) -> Option<Found> {
    let name = "NVTE_ALLOW_NONDETERMINISTIC_ALGO";
    if job.is_deterministic() || job.text(name) != Some("0") {
        return None;
    }
    let message = format!("{name}=0 without --deterministic-mode");
    job.variable_found(name, message, "governs attention alone")
}

fn arrival(job: &Job<'_>, key: &str) -> Option<Found> {
    let order = job
        .understood
        .derived
        .iter()
        .find(|order| order.key == key)?;
    (order.value == "arrival").then(|| Found {
        message: order.reason.clone(),
        place: job.values.phase_place().clone(),
        label: format!("{key} = \"arrival\""),
    })
}

fn is_hybrid(job: &Job<'_>) -> bool {
    let values = job.values;
    values.is_given("hybrid_layer_pattern")
        || values.is_given("hybrid_override_pattern")
        || values.flag("is_hybrid_model")
}

fn expert_combine(job: &Job<'_>) -> Option<Found> {
    let values = job.values;
    let several = values.count("moe_router_topk").unwrap_or(2) > 1;
    let experts = values.is_given("num_experts") && several;
    if job.is_deterministic() || !experts || values.flag("moe_permute_fusion") {
        return None;
    }
    job.argument_found(
        "num_experts",
        "what experts return is added as it arrives",
        "no --deterministic-mode",
    )
}

fn mamba(job: &Job<'_>) -> Option<Found> {
    if job.is_deterministic() || !is_hybrid(job) {
        return None;
    }
    Some(Found {
        message: "Mamba layers without deterministic kernels".to_string(),
        place: job.values.phase_place().clone(),
        label: "no --deterministic-mode".to_string(),
    })
}

fn causal_conv1d(job: &Job<'_>) -> Option<Found> {
    if !job.is_deterministic() || !is_hybrid(job) {
        return None;
    }
    let message = "deterministic Mamba layers need causal_conv1d 1.6.0";
    job.argument_found(
        "deterministic_mode",
        message,
        "the installed version is not known here",
    )
}

fn grouped_gemm(job: &Job<'_>) -> Option<Found> {
    let values = job.values;
    let grouped = values.flag("moe_grouped_gemm") && values.is_given("num_experts");
    if !grouped || !values.flag("gradient_accumulation_fusion") {
        return None;
    }
    let message = "grouped GEMMs accumulate into the main gradients";
    job.argument_found(
        "moe_grouped_gemm",
        message,
        "with gradient accumulation fusion",
    )
}

fn packed_delta_net(job: &Job<'_>) -> Option<Found> {
    let values = job.values;
    let variant = values.text("experimental_attention_variant")?;
    let delta = ["gdn", "gated_delta_net", "kda"].contains(&variant);
    let packed = values.flag("sft")
        || values.is_given("sequence_packing_scheduler")
        || values.flag("dataloader_inter_document_masking");
    if !(delta && packed && job.is_deterministic()) {
        return None;
    }
    let message = "gated delta net on packed sequences in deterministic mode";
    job.argument_found(
        "experimental_attention_variant",
        message,
        "asserts at the first step",
    )
}
