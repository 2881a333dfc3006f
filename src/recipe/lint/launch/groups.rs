//! What is refused when process groups, the pipeline and the gradients' buffers are made.

use super::{Found, Job, PARALLEL_STATE, Rule, VALIDATOR};
use crate::diagnostic::Severity::Error;

pub(in super::super) const RULES: &[Rule] = &[
    Rule {
        id: "sharp-group-alone",
        severity: Error,
        reason: "a group sums in switches where the job does",
        source: PARALLEL_STATE,
        fix: "add `--use-sharp`, or leave `--sharp-enabled-group` out",
        find: sharp_group,
    },
    Rule {
        id: "ucc-with-one-connection",
        severity: Error,
        reason: "UCC's sends need more than one hardware queue",
        source: PARALLEL_STATE,
        fix: "leave CUDA_DEVICE_MAX_CONNECTIONS out, or use NCCL between the stages",
        find: ucc,
    },
    Rule {
        id: "fp32-accumulation-of-instances",
        severity: Error,
        reason: "a reduce-scatter that adds in fp32 has one instance of the optimizer",
        source: "_ParamAndGradBucketGroup.__init__, megatron/core/distributed",
        fix: "leave `--ddp-reduce-scatter-with-fp32-accumulation` out, or the instances",
        find: fp32_accumulation,
    },
    Rule {
        id: "expert-tensor-ranks",
        severity: Error,
        reason: "groups of experts are made in every job, and must fit those of the other ranks",
        source: PARALLEL_STATE,
        fix: "leave `--expert-tensor-parallel-size` out",
        find: expert_tensor,
    },
    Rule {
        id: "virtual-stages-of-no-layers",
        severity: Error,
        reason: "virtual stages are counted from the decoder's layers before the encoder's count \
            stands for them",
        source: VALIDATOR,
        fix: "say `--num-layers`",
        find: virtual_stages,
    },
    Rule {
        id: "ranks-in-reserve",
        severity: Error,
        reason: "the in-process restart keeps the ranks beyond its active world in reserve: \
            Megatron sees the smaller world",
        source: "inprocess_restart, megatron/training/inprocess_restart.py",
        fix: "give the active world as the number of ranks, with `--world`",
        find: reserve,
    },
];

fn sharp_group(job: &Job<'_>) -> Option<Found> {
    let dest = "sharp_enabled_group";
    let alone = job.values.is_given(dest) && !job.values.flag("use_sharp");
    alone.then(|| job.argument_found(dest, "a group with SHARP", "without `--use-sharp`"))?
}

fn ucc(job: &Job<'_>) -> Option<Found> {
    let dest = "pipeline_model_parallel_comm_backend";
    let asked = job.values.text(dest) == Some("ucc");
    let refused = asked && job.text("CUDA_DEVICE_MAX_CONNECTIONS") == Some("1");
    let message = "sends by UCC with CUDA_DEVICE_MAX_CONNECTIONS=1";
    refused.then(|| job.argument_found(dest, message, "refused"))?
}

fn fp32_accumulation(job: &Job<'_>) -> Option<Found> {
    let dest = "ddp_reduce_scatter_with_fp32_accumulation";
    let fields = job.asked();
    let is_read = job.values.reduces_in_bf16() || !job.values.flag("bf16");
    let several = fields.distributed_optimizer && fields.num_distributed_optimizer_instances > 1;
    let refused = job.values.flag(dest) && is_read && several;
    let message = "an fp32 reduce-scatter with several instances of the optimizer";
    refused.then(|| job.argument_found(dest, message, "refused"))?
}

/// The order of ranks with `--use-tp-pp-dp-mapping` must keep both kinds of data parallelism apart
/// from the pipeline, and instances cut both.
fn expert_tensor(job: &Job<'_>) -> Option<Found> {
    let (fields, dest) = (job.asked(), "expert_tensor_parallel_size");
    if !fields.etp_given {
        return None;
    }
    let experts = u64::from(fields.etp) * u64::from(fields.ep);
    let others = u64::from(fields.tp) * u64::from(fields.cp);
    let is_mapped = job.values.flag("use_tp_pp_dp_mapping") && fields.pp > 1;
    if is_mapped && experts != others {
        let message = format!("{experts} ranks of experts where other layers have {others}");
        return job.argument_found(dest, &message, "refused with --use-tp-pp-dp-mapping");
    }
    let ranks = job.understood.world.size;
    let data = ranks / fields.expert_model_parallel_size.max(1);
    let instances = fields.num_distributed_optimizer_instances.max(1);
    let message = format!("{data} data-parallel ranks of experts in {instances} instances");
    let divides = data.is_multiple_of(instances);
    (!divides).then(|| job.argument_found(dest, &message, "expected a multiple"))?
}

fn virtual_stages(job: &Job<'_>) -> Option<Found> {
    let dest = "num_layers_per_virtual_pipeline_stage";
    let given = |dest: &str| job.values.is_given(dest);
    let counts = ["num_layers", "decoder_num_layers"];
    let refused = given(dest) && !counts.into_iter().any(given);
    refused.then(|| job.argument_found(dest, "virtual stages of no layers", "no `--num-layers`"))?
}

fn reserve(job: &Job<'_>) -> Option<Found> {
    let dest = "inprocess_active_world_size";
    let ranks = i64::from(job.understood.world.size);
    let active = job.values.integer(dest)?;
    let refused = job.values.flag("inprocess_restart") && active != ranks;
    let message = format!("{active} of {ranks} ranks train, the others wait in reserve");
    refused.then(|| job.argument_found(dest, &message, "another world"))?
}
