//! The layout and the switches of a job, by the names that Megatron and its tests use.

use serde::Serialize;

use super::super::{GivenJob, GivenVariable};
use super::stages::stages;
use super::values::Values;
use crate::diagnostic::Findings;
use crate::recipe::lint::{Standing, Violation, violations};

/// Facts of the first phase.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CaseFields {
    /// Whether there is any argument.
    pub has_args: bool,
    pub test_type: Option<String>,
    /// `pretraining` unless given.
    pub mode: Option<String>,
    pub launcher: Option<String>,
    pub tp: u32,
    pub pp: u32,
    /// Model chunks of a pipeline rank; `None` without interleaving.
    pub vpp: Option<u32>,
    /// The argument that `vpp` follows from.
    pub vpp_source: Option<String>,
    pub cp: u32,
    pub ep: u32,
    /// `tp` unless given.
    pub etp: u32,
    pub etp_given: bool,
    /// tp x pp x cp.
    pub model_parallel_size: u32,
    /// etp x ep x pp.
    pub expert_model_parallel_size: u32,
    pub sequence_parallel_flag: bool,
    /// The flag after Megatron switches it off at tp 1.
    pub sequence_parallel: bool,
    pub distributed_optimizer_flag: bool,
    /// True as well where Megatron-FSDP forces it.
    pub distributed_optimizer: bool,
    pub megatron_fsdp: bool,
    pub torch_fsdp2: bool,
    pub sharding_strategy: Option<String>,
    pub num_distributed_optimizer_instances: u32,
    pub overlap_grad_reduce: bool,
    pub overlap_param_gather: bool,
    pub fp8_format: Option<String>,
    /// `delayed` where a format is given without a recipe.
    pub fp8_recipe: Option<String>,
    pub bf16: bool,
    pub fp16: bool,
    pub num_experts: Option<u32>,
    pub moe_topk: Option<u32>,
    /// `None` is the default, adam.
    pub optimizer: Option<String>,
    pub async_save: bool,
    /// Granularity.
    pub recompute: Option<String>,
    pub cuda_graph: Option<String>,
    pub deterministic_mode: bool,
    /// Rules of deterministic mode that are broken, whether or not the flag is given.
    pub violations_if_deterministic: Vec<String>,
    /// The flag is given and a rule of Megatron's validator is broken.
    pub rejected_at_launch: bool,
    /// The flag is given and a rule that Megatron is about to have is broken.
    pub rejected_by_pending_rules: bool,
    pub phases: u32,
}

/// What the first phase asks for. Findings of the derivations go to `findings`.
pub(super) fn case_fields(
    job: &GivenJob,
    values: &Values<'_>,
    env: &[GivenVariable],
    findings: &mut Findings,
) -> CaseFields {
    let mode = job
        .mode
        .clone()
        .unwrap_or_else(|| "pretraining".to_string());
    let mut fields = CaseFields {
        has_args: job.phases.iter().any(|phase| !phase.arguments.is_empty()),
        test_type: job.test_type.clone(),
        mode: Some(mode),
        launcher: job.launcher.clone(),
        phases: job.phases.len() as u32,
        deterministic_mode: values.flag("deterministic_mode"),
        async_save: values.flag("async_save"),
        recompute: recompute(values),
        cuda_graph: cuda_graph(values),
        ..CaseFields::default()
    };
    layout(&mut fields, values, findings);
    sharding(&mut fields, values);
    formats(&mut fields, values);
    let violations = violations(values, env);
    fields.rejected_at_launch = rejected(values, &violations, Standing::Current);
    fields.rejected_by_pending_rules = rejected(values, &violations, Standing::Pending);
    let names = violations
        .iter()
        .map(|violation| violation.rule.to_string());
    fields.violations_if_deterministic = names.collect();
    fields
}

fn layout(fields: &mut CaseFields, values: &Values<'_>, findings: &mut Findings) {
    let one = |dest: &str| values.count(dest).unwrap_or(1).max(1);
    let (tp, pp) = (
        one("tensor_model_parallel_size"),
        one("pipeline_model_parallel_size"),
    );
    let (cp, ep) = (
        one("context_parallel_size"),
        one("expert_model_parallel_size"),
    );
    let etp_given = values.is_given("expert_tensor_parallel_size");
    let etp = if etp_given {
        one("expert_tensor_parallel_size")
    } else {
        tp
    };
    let stages = stages(values, pp, findings);
    (fields.tp, fields.pp, fields.cp) = (tp, pp, cp);
    (fields.ep, fields.etp, fields.etp_given) = (ep, etp, etp_given);
    fields.vpp = stages.as_ref().map(|stages| stages.chunks);
    fields.vpp_source = stages.map(|stages| stages.source.to_string());
    fields.model_parallel_size = tp.saturating_mul(pp).saturating_mul(cp);
    fields.expert_model_parallel_size = etp.saturating_mul(ep).saturating_mul(pp);
    fields.sequence_parallel_flag = values.flag("sequence_parallel");
    fields.sequence_parallel = fields.sequence_parallel_flag && tp > 1;
    fields.num_experts = values.count("num_experts").filter(|count| *count > 0);
    fields.moe_topk = fields
        .num_experts
        .and_then(|_| values.count("moe_router_topk"));
}

fn sharding(fields: &mut CaseFields, values: &Values<'_>) {
    let sharded = values.flag("use_distributed_optimizer");
    fields.megatron_fsdp = values.flag("use_megatron_fsdp");
    fields.torch_fsdp2 = values.flag("use_torch_fsdp2");
    let forced = fields.megatron_fsdp && values.text("megatron_fsdp_version") != Some("2");
    fields.distributed_optimizer_flag = sharded;
    fields.distributed_optimizer = sharded || forced;
    fields.sharding_strategy = given(values, "data_parallel_sharding_strategy");
    let instances = values.count("num_distributed_optimizer_instances");
    fields.num_distributed_optimizer_instances = instances.unwrap_or(1).max(1);
    fields.overlap_grad_reduce = values.flag("overlap_grad_reduce");
    fields.overlap_param_gather = values.flag("overlap_param_gather");
    fields.optimizer = given(values, "optimizer");
}

fn formats(fields: &mut CaseFields, values: &Values<'_>) {
    fields.bf16 = values.flag("bf16");
    fields.fp16 = values.flag("fp16");
    fields.fp8_format = values.text("fp8").map(str::to_string);
    let recipe = || values.text("fp8_recipe").unwrap_or("delayed").to_string();
    fields.fp8_recipe = fields.fp8_format.is_some().then(recipe);
}

/// A text that was given.
fn given(values: &Values<'_>, dest: &str) -> Option<String> {
    let text = values.is_given(dest).then(|| values.text(dest)).flatten();
    text.map(str::to_string)
}

fn rejected(values: &Values<'_>, violations: &[Violation], standing: Standing) -> bool {
    values.flag("deterministic_mode")
        && violations
            .iter()
            .any(|violation| violation.standing == standing)
}

fn recompute(values: &Values<'_>) -> Option<String> {
    if values.flag("recompute_activations") {
        return Some("selective".to_string());
    }
    values.text("recompute_granularity").map(str::to_string)
}

/// Whose CUDA graphs a job has.
pub(super) fn cuda_graph(values: &Values<'_>) -> Option<String> {
    if values.flag("enable_cuda_graph") {
        return Some("local".to_string());
    }
    if values.flag("external_cuda_graph") {
        return Some("transformer_engine".to_string());
    }
    let implementation = values.text("cuda_graph_impl")?;
    (implementation != "none").then(|| implementation.to_string())
}
