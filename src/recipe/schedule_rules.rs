//! The rules of schedules: which microbatches an interleaved pipeline takes, what the learning
//! rate's decay needs, where gradients can be reduced in parts.
//!
//! Sources: Megatron-LM's `validate_args` (`megatron/training/arguments.py`),
//! `forward_backward_pipelining_with_interleaving` and `OptimizerParamScheduler`.

use super::{Recipe, RecomputeGranularity};
use crate::diagnostic::document::Table;
use crate::diagnostic::{Diagnostic, Findings, Place};

/// Checks a recipe whose sizes divide.
pub(super) fn schedules(recipe: &Recipe, table: &Table, findings: &mut Findings) {
    let mut rules = Rules { table, findings };
    interleaving(recipe, &mut rules);
    instances(recipe, &mut rules);
    learning_rate(recipe, &mut rules);
    overlap(recipe, &mut rules);
    recompute(recipe, &mut rules);
    offload(recipe, &mut rules);
}

pub(super) struct Rules<'a> {
    pub table: &'a Table,
    pub findings: &'a mut Findings,
}

impl Rules<'_> {
    /// Where `key` was written, else the table that leaves it out.
    pub fn place(&self, key: &str) -> &Place {
        let entry = self.table.get(key);
        entry.map_or(&self.table.place, |entry| &entry.item.place)
    }

    pub fn refuse(&mut self, key: &str, message: String, label: String, why: &str) {
        let finding = Diagnostic::error("out-of-range", message)
            .at(self.place(key), label)
            .with_note(why);
        self.findings.push(finding);
    }
}

fn interleaving(recipe: &Recipe, rules: &mut Rules<'_>) {
    let chunks = recipe.num_virtual_stages_per_pipeline_rank;
    if chunks == 1 {
        return;
    }
    let stages = recipe.pipeline_model_parallel_size;
    let key = "num_virtual_stages_per_pipeline_rank";
    if stages == 1 {
        rules.refuse(
            key,
            format!("{chunks} model chunks a stage, and one pipeline stage"),
            "expected 1, or a pipeline_model_parallel_size of at least 2".to_owned(),
            "Megatron-LM: \"When interleaved schedule is used, pipeline-model-parallel size should \
             be greater than 1\"",
        );
        return;
    }
    let key = "microbatch_group_size_per_virtual_pipeline_stage";
    let group = recipe.microbatch_group_size_per_virtual_pipeline_stage;
    let microbatches = recipe.microbatch_count();
    if group < stages || group > microbatches {
        rules.refuse(
            key,
            format!("groups of {group} microbatches, of {microbatches}, over {stages} stages"),
            format!("expected at least {stages} and at most {microbatches}"),
            "Megatron-LM: a chunk's microbatches must fill the pipeline before the next chunk's \
             turn",
        );
    }
    let last = microbatches % group.max(1);
    if group >= stages && group <= microbatches && last != 0 && last < stages {
        rules.refuse(
            key,
            format!(
                "the last group has {last} of {microbatches} microbatches, over {stages} stages"
            ),
            format!("expected a last group of none or of at least {stages}"),
            "Megatron-LM: \"The remainder of M (the total micro-batches) divided by N (number of \
             contiguous micro-batches in a virtual pipeline stage) should be 0, or larger than or \
             equal to the pipeline-parallel size\"",
        );
    }
}

fn instances(recipe: &Recipe, rules: &mut Rules<'_>) {
    let instances = recipe.num_distributed_optimizer_instances;
    let data = recipe.data_parallel_size();
    let key = "num_distributed_optimizer_instances";
    if instances > 1 && !recipe.use_distributed_optimizer {
        rules.refuse(
            key,
            format!("{instances} optimizer instances without the distributed optimizer"),
            "expected 1, or use_distributed_optimizer = true".to_owned(),
            "Megatron-LM: \"Partial DistOpt is only supported with DistOpt\"",
        );
    }
    if !data.is_multiple_of(instances) {
        rules.refuse(
            key,
            format!("{instances} optimizer instances of {data} data-parallel ranks"),
            format!("expected a divisor of {data}"),
            "Megatron-LM: \"Data parallel size should be divisible by partial DistOpt shard \
             factor\"",
        );
    }
}

fn learning_rate(recipe: &Recipe, rules: &mut Rules<'_>) {
    let (warmup, decay) = (recipe.lr_warmup_iters, recipe.lr_decay_iters);
    if warmup >= decay {
        rules.refuse(
            "lr_warmup_iters",
            format!("{warmup} steps of warm-up in {decay} steps of decay"),
            format!(
                "expected fewer than lr_decay_iters = {decay}, which is train_iters unless given"
            ),
            "OptimizerParamScheduler: `assert self.lr_warmup_steps < self.lr_decay_steps`",
        );
    }
    if recipe.min_lr > recipe.lr {
        rules.refuse(
            "min_lr",
            format!("min_lr {} is above lr {}", recipe.min_lr, recipe.lr),
            "expected at most lr".to_owned(),
            "OptimizerParamScheduler: `assert self.max_lr >= self.min_lr`",
        );
    }
}

/// The scheduler that runs counts samples in 32 bits (`learning_rate.wgsl`); a job that is only
/// scaled from may count further.
pub(super) fn samples(recipe: &Recipe, table: &Table, findings: &mut Findings) {
    let mut rules = Rules { table, findings };
    let decay = recipe.lr_decay_iters;
    let samples = u64::from(decay) * u64::from(recipe.global_batch_size);
    if samples > u64::from(u32::MAX) {
        rules.refuse(
            "lr_decay_iters",
            format!("the learning rate decays over {samples} samples"),
            "expected at most 2^32 - 1, lr_decay_iters times global_batch_size".to_owned(),
            "the scheduler counts samples in 32 bits",
        );
    }
}

fn overlap(recipe: &Recipe, rules: &mut Rules<'_>) {
    if recipe.ddp_bucket_size.is_some() && !recipe.overlap_grad_reduce {
        let key = "ddp_bucket_size";
        let message = "`ddp_bucket_size` has no effect without `overlap_grad_reduce`";
        let finding = Diagnostic::warning("no-effect", message)
            .at(rules.place(key), "one bucket a model chunk")
            .with_help("add `overlap_grad_reduce = true`, or leave it out");
        rules.findings.push(finding);
    }
    if recipe.overlap_param_gather
        && !(recipe.overlap_grad_reduce && recipe.use_distributed_optimizer)
    {
        rules.refuse(
            "overlap_param_gather",
            "`overlap_param_gather` alone".to_owned(),
            "expected use_distributed_optimizer and overlap_grad_reduce beside it".to_owned(),
            "Megatron-LM: \"--overlap-param-gather only supported with distributed optimizer\", \
             and \"Must use --overlap-param-gather with --overlap-grad-reduce\"",
        );
    }
}

/// `TransformerConfig.__post_init__`.
fn recompute(recipe: &Recipe, rules: &mut Rules<'_>) {
    let (method, layers) = (recipe.recompute_method, recipe.recompute_num_layers);
    match recipe.recompute_granularity {
        Some(RecomputeGranularity::Full) => {
            if method.is_none() {
                rules.refuse(
                    "recompute_granularity",
                    "full recomputation without a method".to_owned(),
                    "expected recompute_method beside it".to_owned(),
                    "Megatron-LM: \"Using recompute_granularity: full so recompute_method must be \
                     block or uniform\"",
                );
            }
            if layers == 0 {
                rules.refuse(
                    "recompute_granularity",
                    "full recomputation of 0 layers at a time".to_owned(),
                    "expected recompute_num_layers of at least 1 beside it".to_owned(),
                    "Megatron-LM: \"When using recompute_granularity: full recompute_num_layers \
                     must be between 1 and num_layers_per_pipeline_rank\"",
                );
            }
        }
        Some(RecomputeGranularity::Selective) if layers > 0 => rules.refuse(
            "recompute_num_layers",
            format!("selective recomputation of {layers} layers"),
            "expected no number of layers".to_owned(),
            "Megatron-LM: \"When using recompute_granularity: selective recompute_num_layers must \
             be None\"",
        ),
        Some(RecomputeGranularity::Selective) => {}
        None => {
            let named = method.is_some() || layers > 0 || !recipe.recompute_modules.is_empty();
            if named {
                let message = "recompute arguments have no effect without `recompute_granularity`";
                let finding = Diagnostic::warning("no-effect", message)
                    .at(&rules.table.place, "nothing is recomputed");
                rules.findings.push(finding);
            }
        }
    }
}

/// `TransformerConfig.__post_init__`; `validate_args` sets `cpu_offloading` where any layer is
/// offloaded.
fn offload(recipe: &Recipe, rules: &mut Rules<'_>) {
    let key = "cpu_offloading_num_layers";
    let (offloaded, layers) = (recipe.cpu_offloading_num_layers, recipe.num_layers);
    if offloaded == 0 {
        if recipe.cpu_offloading_double_buffering {
            let key = "cpu_offloading_double_buffering";
            let message =
                "`cpu_offloading_double_buffering` has no effect without offloaded layers";
            let finding = Diagnostic::warning("no-effect", message)
                .at(rules.place(key), "nothing comes back")
                .with_help("add `cpu_offloading_num_layers`, or leave it out");
            rules.findings.push(finding);
        }
        return;
    }
    if offloaded >= layers {
        rules.refuse(
            key,
            format!("activations of {offloaded} layers on the host, of {layers} layers"),
            format!("expected less than num_layers = {layers}"),
            "Megatron-LM: \"CPU offloading can be done only for layers less than\" num_layers",
        );
    }
    let stages = recipe.pipeline_model_parallel_size;
    if stages > 1 {
        rules.refuse(
            key,
            format!("activations on the host, and {stages} pipeline stages"),
            "expected 0, or pipeline_model_parallel_size = 1".to_owned(),
            "Megatron-LM: \"Currently there is no support for Pipeline parallelism with CPU \
             offloading\"",
        );
    }
    if recipe.recompute_granularity.is_some() {
        rules.refuse(
            key,
            "activations on the host, and recomputation".to_owned(),
            "expected 0, or no recompute_granularity".to_owned(),
            "Megatron-LM: \"CPU offloading does not work when activation recomputation is \
             enabled\"",
        );
    }
}

#[cfg(test)]
mod tests {
    use crate::diagnostic::Source;
    use crate::recipe::Recipe;
    use crate::recipe::tests::messages;

    const SAMPLE: &str = "world_size = 16\ntensor_model_parallel_size = 2\n\
        pipeline_model_parallel_size = 2\nnum_layers = 8\nhidden_size = 32\n\
        num_attention_heads = 4\nseq_length = 32\nmicro_batch_size = 1\nglobal_batch_size = 16\n\
        train_iters = 4\nlr = 1e-3\nuse_distributed_optimizer = true\n";

    fn found(more: &str) -> Vec<String> {
        messages(&format!("{SAMPLE}{more}"))
    }

    #[test]
    fn what_megatron_runs_is_accepted() {
        for more in [
            "num_virtual_stages_per_pipeline_rank = 2",
            "num_virtual_stages_per_pipeline_rank = 4\n\
             microbatch_group_size_per_virtual_pipeline_stage = 4",
            "num_distributed_optimizer_instances = 2",
            "lr_decay_style = \"cosine\"\nlr_warmup_iters = 3\nmin_lr = 1e-4",
            "overlap_grad_reduce = true\noverlap_param_gather = true\nddp_bucket_size = 1000",
            "recompute_granularity = \"selective\"\nrecompute_modules = [\"mlp\"]",
            "recompute_granularity = \"full\"\nrecompute_method = \"uniform\"\n\
             recompute_num_layers = 1",
            "async_save = true",
        ] {
            assert_eq!(found(more), Vec::<String>::new(), "{more}");
        }
    }

    #[test]
    fn what_does_not_go_together_is_named() {
        for (more, said) in [
            (
                "num_virtual_stages_per_pipeline_rank = 2\n\
                 microbatch_group_size_per_virtual_pipeline_stage = 1",
                "groups of 1 microbatches",
            ),
            (
                "num_virtual_stages_per_pipeline_rank = 2\n\
                 microbatch_group_size_per_virtual_pipeline_stage = 3",
                "the last group has 1 of 4 microbatches",
            ),
            (
                "num_distributed_optimizer_instances = 3",
                "3 optimizer instances of 4",
            ),
            ("lr_warmup_iters = 4", "4 steps of warm-up in 4 steps"),
            ("min_lr = 1.0", "is above lr"),
            ("lr_decay_iters = 1000000\nmin_lr = 2.0", "is above lr"),
            ("ddp_bucket_size = 1000", "has no effect"),
            (
                "overlap_param_gather = true",
                "`overlap_param_gather` alone",
            ),
            (
                "recompute_granularity = \"full\"\nrecompute_num_layers = 1",
                "without a method",
            ),
            (
                "recompute_granularity = \"full\"\nrecompute_method = \"block\"",
                "0 layers at a time",
            ),
            (
                "recompute_granularity = \"selective\"\nrecompute_num_layers = 1",
                "selective recomputation of 1 layers",
            ),
            (
                "cpu_offloading_num_layers = 1",
                "activations on the host, and 2 pipeline stages",
            ),
            (
                "recompute_method = \"block\"",
                "no effect without `recompute_granularity`",
            ),
            (
                "cpu_offloading_double_buffering = true",
                "no effect without offloaded layers",
            ),
        ] {
            let found = found(more);
            assert!(
                found.len() == 1 && found[0].contains(said),
                "{more}: {found:?}"
            );
        }
        let alone = SAMPLE.replace("use_distributed_optimizer = true\n", "");
        let source = Source::new(
            "recipe.toml",
            format!("{alone}num_distributed_optimizer_instances = 2"),
        );
        let findings = Recipe::from_source(&source).unwrap_err();
        assert!(
            findings[0]
                .message
                .contains("without the distributed optimizer")
        );
        let one_stage = SAMPLE.replace("pipeline_model_parallel_size = 2", "");
        let source = Source::new(
            "recipe.toml",
            format!("{one_stage}num_virtual_stages_per_pipeline_rank = 2"),
        );
        let findings = Recipe::from_source(&source).unwrap_err();
        assert!(findings[0].message.contains("one pipeline stage"));
        for (more, said) in [
            ("cpu_offloading_num_layers = 1", None),
            ("cpu_offloading_num_layers = 7", None),
            (
                "cpu_offloading_num_layers = 8",
                Some("8 layers on the host, of 8 layers"),
            ),
            (
                "cpu_offloading_num_layers = 1\nrecompute_granularity = \"selective\"",
                Some("on the host, and recomputation"),
            ),
        ] {
            let source = Source::new("recipe.toml", format!("{one_stage}{more}"));
            let refused = Recipe::from_source(&source).err();
            let message = refused.map(|findings| findings[0].message.clone());
            match (message, said) {
                (None, None) => {}
                (Some(message), Some(said)) if message.contains(said) => {}
                (message, _) => panic!("{more}: {message:?}"),
            }
        }
    }
}
