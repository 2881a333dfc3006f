//! The layout and the switches of a job, by the names that Megatron and its tests use.

use serde::Serialize;

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
