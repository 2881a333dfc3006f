//! From a table to a [`Recipe`]: each key's type, range and default.

use super::rules::{self, Draft};
use super::{
    Autotune, CUDA_GRAPH_WARMUP_STEPS, CudaGraphImpl, DataParallelKind, Determinism,
    DistributedBackend, LocalOrder, LrDecayStyle, Normalization, PositionEmbedding, Recipe,
    RecomputeGranularity, RecomputeMethod, RecomputeModule, TransformerImpl, environment,
    graph_rules, limits::*, loss_scaling, schedule_rules, torch_rules,
};
use crate::diagnostic::Findings;
use crate::diagnostic::document::{Item, Read, Reader, Table, Value};

/// Whether a document is a bare recipe (rather than a scenario around one).
pub fn is_recipe(document: &Table) -> bool {
    let signs = ["num_layers", "hidden_size", "world_size"];
    document.get("recipe").is_none() && signs.iter().any(|key| document.get(key).is_some())
}

pub(super) fn recipe(table: &Table, path: &str, findings: &mut Findings) -> Option<Recipe> {
    let recipe = full_size_recipe(table, path, findings)?;
    let errors_before = findings.error_count();
    rules::size(&recipe, &table.place, findings);
    schedule_rules::samples(&recipe, table, findings);
    (findings.error_count() == errors_before).then_some(recipe)
}

/// A recipe whose rules hold, however large it is.
pub(super) fn full_size_recipe(
    table: &Table,
    path: &str,
    findings: &mut Findings,
) -> Option<Recipe> {
    let errors_before = findings.error_count();
    let mut reader = Reader::new(table, path, findings);
    let draft = draft(&mut reader);
    let recipe = assembled(&mut reader, &draft);
    neutral_arguments(&mut reader);
    reader.finish();
    rules::layout(&draft, &table.place, findings);
    if findings.error_count() == errors_before {
        schedule_rules::schedules(&recipe, table, findings);
        torch_rules::torch_ddp(&recipe, table, findings);
        graph_rules::cuda_graphs(&recipe, table, findings);
    }
    (findings.error_count() == errors_before).then_some(recipe)
}

/// The keys that rules relate to each other.
fn draft(reader: &mut Reader<'_>) -> Draft {
    let hidden_size = reader.count("hidden_size", 4..=HIDDEN_SIZE_MAX, None);
    // Megatron's default for a model without gating.
    let four_times = hidden_size.value.saturating_mul(4).min(FFN_HIDDEN_SIZE_MAX);
    let heads = reader.count("num_attention_heads", 1..=NUM_ATTENTION_HEADS_MAX, None);
    let mut groups = reader.count(
        "num_query_groups",
        1..=NUM_ATTENTION_HEADS_MAX,
        Some(heads.value),
    );
    groups.sound &= heads.sound || groups.is_given();
    let width = (hidden_size.value / heads.value).clamp(1, KV_CHANNELS_MAX);
    let (determinism, wgrad_splits) = determinism(reader);
    Draft {
        world_size: reader.count("world_size", 1..=WORLD_SIZE_MAX, None),
        tensor_model_parallel_size: parallel(reader, "tensor_model_parallel_size"),
        pipeline_model_parallel_size: parallel(reader, "pipeline_model_parallel_size"),
        num_virtual_stages_per_pipeline_rank: reader.count(
            "num_virtual_stages_per_pipeline_rank",
            1..=NUM_LAYERS_MAX,
            Some(1),
        ),
        sequence_parallel: reader.boolean("sequence_parallel", false),
        num_layers: reader.count("num_layers", 1..=NUM_LAYERS_MAX, None),
        hidden_size,
        ffn_hidden_size: reader.count("ffn_hidden_size", 4..=FFN_HIDDEN_SIZE_MAX, Some(four_times)),
        num_query_groups: groups,
        num_attention_heads: heads,
        kv_channels: reader.count("kv_channels", 1..=KV_CHANNELS_MAX, Some(width)),
        seq_length: reader.count("seq_length", 2..=SEQ_LENGTH_MAX, None),
        padded_vocab_size: reader.count(
            "padded_vocab_size",
            256..=PADDED_VOCAB_SIZE_MAX,
            Some(256),
        ),
        micro_batch_size: reader.count("micro_batch_size", 1..=MICRO_BATCH_SIZE_MAX, None),
        global_batch_size: reader.count("global_batch_size", 1..=u32::MAX, None),
        bf16: reader.boolean("bf16", false),
        fp16: reader.boolean("fp16", false),
        accumulate_allreduce_grads_in_fp32: reader
            .boolean("accumulate_allreduce_grads_in_fp32", true),
        grad_reduce_in_bf16: reader.boolean("grad_reduce_in_bf16", false),
        use_distributed_optimizer: reader.boolean("use_distributed_optimizer", false),
        num_distributed_optimizer_instances: parallel(
            reader,
            "num_distributed_optimizer_instances",
        ),
        ddp_reduce_scatter_with_fp32_accumulation: reader
            .boolean("ddp_reduce_scatter_with_fp32_accumulation", false),
        determinism,
        wgrad_splits,
    }
}

fn parallel(reader: &mut Reader<'_>, key: &'static str) -> Read<u32> {
    reader.count(key, 1..=WORLD_SIZE_MAX, Some(1))
}

fn determinism(reader: &mut Reader<'_>) -> (Determinism, Read<u32>) {
    let empty = Table {
        place: reader.place().clone(),
        entries: Default::default(),
    };
    let table = reader.table("determinism").unwrap_or(&empty);
    let mut reader = Reader::new(table, "determinism", reader.findings);
    let splits = reader.count("wgrad_splits", 1..=WGRAD_SPLITS_MAX, Some(1));
    let mut order = |key| {
        reader
            .word(key, &LocalOrder::WORDS, LocalOrder::Ordered)
            .value
    };
    let determinism = Determinism {
        embedding_backward: order("embedding_backward"),
        norm_weight_grad: order("norm_weight_grad"),
        wgrad_split_k: order("wgrad_split_k"),
        microbatch_accumulation: order("microbatch_accumulation"),
        attention_backward: order("attention_backward"),
        wgrad_splits: splits.value,
        autotune: reader
            .word("autotune", &Autotune::WORDS, Autotune::Fixed)
            .value,
    };
    tuned_orders(&determinism, &mut reader);
    reader.finish();
    (determinism, splits)
}

/// A configuration decides the order of a tuned kernel: it cannot be that of arrival as well.
fn tuned_orders(determinism: &Determinism, reader: &mut Reader<'_>) {
    if determinism.autotune == Autotune::Fixed {
        return;
    }
    for key in determinism.tuned_and_free() {
        let Some(entry) = reader.entry(key) else {
            continue;
        };
        let message = format!(
            "`determinism.{key}` lets parts land in any order, which no configuration of \
             `determinism.autotune` = \"timed\" orders then"
        );
        let expected = "expected \"ordered\", or autotune = \"fixed\"";
        reader.complain("excluded", message, &entry.item, expected);
    }
}

/// The largest `f32` below one: `1 - beta` must not be zero.
const BELOW_ONE: f32 = 1.0 - f32::EPSILON / 2.0;

/// Puts the keys that rules relate together with those that no rule does, area by area.
fn assembled(reader: &mut Reader<'_>, draft: &Draft) -> Recipe {
    // Every field is read below: a recipe that is written and read again is the same.
    let mut recipe = Recipe {
        world_size: draft.world_size.value,
        tensor_model_parallel_size: draft.tensor_model_parallel_size.value,
        pipeline_model_parallel_size: draft.pipeline_model_parallel_size.value,
        num_virtual_stages_per_pipeline_rank: draft.num_virtual_stages_per_pipeline_rank.value,
        sequence_parallel: draft.sequence_parallel.value,
        num_layers: draft.num_layers.value,
        hidden_size: draft.hidden_size.value,
        ffn_hidden_size: draft.ffn_hidden_size.value,
        num_attention_heads: draft.num_attention_heads.value,
        num_query_groups: draft.num_query_groups.value,
        kv_channels: draft.kv_channels.value,
        seq_length: draft.seq_length.value,
        padded_vocab_size: draft.padded_vocab_size.value,
        micro_batch_size: draft.micro_batch_size.value,
        global_batch_size: draft.global_batch_size.value,
        bf16: draft.bf16.value,
        accumulate_allreduce_grads_in_fp32: draft.reduces_in_fp32(),
        grad_reduce_in_bf16: draft.grad_reduce_in_bf16.value,
        use_distributed_optimizer: draft.use_distributed_optimizer.value,
        num_distributed_optimizer_instances: draft.num_distributed_optimizer_instances.value,
        ddp_reduce_scatter_with_fp32_accumulation: draft
            .ddp_reduce_scatter_with_fp32_accumulation
            .value,
        determinism: draft.determinism,
        ..Recipe::small()
    };
    schedule(reader, &mut recipe);
    model(reader, &mut recipe);
    optimizer(reader, &mut recipe);
    let (fp16, bf16) = (draft.fp16.value, draft.bf16.value);
    recipe.loss_scaling = loss_scaling::read(reader, fp16, bf16);
    overlap_and_recompute(reader, &mut recipe);
    torch_ddp(reader, &mut recipe);
    data_loader(reader, &mut recipe);
    recipe.env = match reader.table("env") {
        Some(table) => environment::environment(table, reader.findings),
        None => Default::default(),
    };
    recipe
}

fn schedule(reader: &mut Reader<'_>, recipe: &mut Recipe) {
    let stages = Some(recipe.pipeline_model_parallel_size);
    let key = "microbatch_group_size_per_virtual_pipeline_stage";
    let group = reader.count(key, 1..=MICROBATCH_COUNT_MAX, stages);
    recipe.microbatch_group_size_per_virtual_pipeline_stage = group.value;
    recipe.use_tp_pp_dp_mapping = reader.boolean("use_tp_pp_dp_mapping", false).value;
}

fn model(reader: &mut Reader<'_>, recipe: &mut Recipe) {
    let seq = recipe.seq_length;
    let positions = seq..=MAX_POSITION_EMBEDDINGS_MAX;
    recipe.max_position_embeddings = reader
        .count("max_position_embeddings", positions, Some(seq))
        .value;
    let (words, default) = (&TransformerImpl::WORDS, TransformerImpl::TransformerEngine);
    recipe.transformer_impl = reader.word("transformer_impl", words, default).value;
    let (words, default) = (&Normalization::WORDS, Normalization::RMSNorm);
    recipe.normalization = reader.word("normalization", words, default).value;
    recipe.norm_epsilon = reader.real("norm_epsilon", 1e-12..=1.0, Some(1e-5)).value;
    recipe.swiglu = reader.boolean("swiglu", true).value;
    recipe.disable_bias_linear = reader.boolean("disable_bias_linear", true).value;
    let (words, default) = (&PositionEmbedding::WORDS, PositionEmbedding::Rope);
    recipe.position_embedding_type = reader.word("position_embedding_type", words, default).value;
    recipe.rotary_base = reader.real("rotary_base", 2.0..=1e9, Some(10_000.0)).value;
    recipe.attention_dropout = reader.real("attention_dropout", 0.0..=0.9, Some(0.0)).value;
    recipe.hidden_dropout = reader.real("hidden_dropout", 0.0..=0.9, Some(0.0)).value;
    recipe.untie_embeddings_and_output_weights = reader
        .boolean("untie_embeddings_and_output_weights", true)
        .value;
}

fn optimizer(reader: &mut Reader<'_>, recipe: &mut Recipe) {
    let iters = reader.count("train_iters", 1..=TRAIN_ITERS_MAX, None).value;
    recipe.train_iters = iters;
    recipe.lr = reader.real("lr", 0.0..=100.0, None).value;
    let (words, default) = (&LrDecayStyle::WORDS, LrDecayStyle::Constant);
    recipe.lr_decay_style = reader.word("lr_decay_style", words, default).value;
    recipe.lr_decay_iters = reader
        .count("lr_decay_iters", 1..=TRAIN_ITERS_MAX, Some(iters))
        .value;
    recipe.lr_warmup_iters = reader
        .count("lr_warmup_iters", 0..=TRAIN_ITERS_MAX, Some(0))
        .value;
    recipe.min_lr = reader.real("min_lr", 0.0..=100.0, Some(0.0)).value;
    let below_one = 0.0..=BELOW_ONE;
    recipe.adam_beta1 = reader
        .real("adam_beta1", below_one.clone(), Some(0.9))
        .value;
    recipe.adam_beta2 = reader.real("adam_beta2", below_one, Some(0.999)).value;
    recipe.adam_eps = reader.real("adam_eps", 1e-30..=1.0, Some(1e-8)).value;
    recipe.weight_decay = reader.real("weight_decay", 0.0..=1.0, Some(0.01)).value;
    recipe.clip_grad = reader.real("clip_grad", 0.0..=1e6, Some(1.0)).value;
    recipe.seed = reader.integer("seed", 0..=i64::MAX, Some(1234)).value as u64;
}

fn overlap_and_recompute(reader: &mut Reader<'_>, recipe: &mut Recipe) {
    recipe.overlap_grad_reduce = reader.boolean("overlap_grad_reduce", false).value;
    recipe.align_grad_reduce = reader.boolean("align_grad_reduce", true).value;
    recipe.overlap_param_gather = reader.boolean("overlap_param_gather", false).value;
    recipe.align_param_gather = reader.boolean("align_param_gather", true).value;
    recipe.ddp_bucket_size = bucket_size(reader);
    let words = &RecomputeGranularity::WORDS;
    recipe.recompute_granularity = optional_word(reader, "recompute_granularity", words);
    let words = &RecomputeMethod::WORDS;
    recipe.recompute_method = optional_word(reader, "recompute_method", words);
    recipe.recompute_num_layers = reader
        .count("recompute_num_layers", 0..=NUM_LAYERS_MAX, Some(0))
        .value;
    recipe.recompute_modules = reader
        .words("recompute_modules", &RecomputeModule::WORDS)
        .unwrap_or_default();
    recipe.cpu_offloading_num_layers = reader
        .count("cpu_offloading_num_layers", 0..=NUM_LAYERS_MAX, Some(0))
        .value;
    recipe.cpu_offloading_double_buffering = reader
        .boolean("cpu_offloading_double_buffering", false)
        .value;
    let (words, default) = (&CudaGraphImpl::WORDS, CudaGraphImpl::default());
    recipe.cuda_graph_impl = reader.word("cuda_graph_impl", words, default).value;
    let (steps, default) = (0..=TRAIN_ITERS_MAX, Some(CUDA_GRAPH_WARMUP_STEPS));
    let warmup = reader.count("cuda_graph_warmup_steps", steps, default);
    recipe.cuda_graph_warmup_steps = warmup.value;
    recipe.async_save = reader.boolean("async_save", false).value;
    let minutes = reader.count("exit_duration_in_mins", 1..=u32::MAX, Some(1));
    recipe.exit_duration_in_mins = minutes.place.is_some().then_some(minutes.value);
}

fn data_loader(reader: &mut Reader<'_>, recipe: &mut Recipe) {
    let by_rank = reader.boolean("data_parallel_random_init", false);
    recipe.data_parallel_random_init = by_rank.value;
    let workers = reader.count("num_workers", 0..=NUM_WORKERS_MAX, Some(0));
    recipe.num_workers = workers.value;
    let samples = reader.count("epoch_samples", 1..=EPOCH_SAMPLES_MAX, Some(1));
    recipe.epoch_samples = samples.place.is_some().then_some(samples.value);
}

fn torch_ddp(reader: &mut Reader<'_>, recipe: &mut Recipe) {
    let (words, default) = (&DataParallelKind::WORDS, DataParallelKind::default());
    recipe.ddp = reader.word("ddp", words, default).value;
    let cap = reader.real("bucket_cap_mb", 1e-6..=1e6, Some(25.0));
    recipe.bucket_cap_mb = cap.place.is_some().then_some(cap.value);
    recipe.find_unused_parameters = reader.boolean("find_unused_parameters", false).value;
    let (words, default) = (&DistributedBackend::WORDS, DistributedBackend::default());
    recipe.distributed_backend = reader.word("distributed_backend", words, default).value;
}

fn bucket_size(reader: &mut Reader<'_>) -> Option<u32> {
    let read = reader.count("ddp_bucket_size", 1..=u32::MAX, Some(1));
    read.place.is_some().then_some(read.value)
}

fn optional_word<T: Clone>(
    reader: &mut Reader<'_>,
    key: &'static str,
    words: &[(&str, T)],
) -> Option<T> {
    let words: Vec<(&str, Option<T>)> = words.iter().map(|(w, v)| (*w, Some(v.clone()))).collect();
    reader.word(key, &words, None).value
}

/// Megatron arguments that are accepted at the one value that is simulated, so that a real
/// recipe needs no deletions.
const NEUTRAL: [(&str, &str); 7] = [
    ("context_parallel_size", "1"),
    ("expert_model_parallel_size", "1"),
    ("num_experts", "0"),
    ("optimizer", "adam"),
    ("rotary_percent", "1.0"),
    ("tp_comm_overlap", "false"),
    ("use_megatron_fsdp", "false"),
];

fn neutral_arguments(reader: &mut Reader<'_>) {
    for (key, neutral) in NEUTRAL {
        let Some(entry) = reader.entry(key) else {
            continue;
        };
        if !is_written_as(&entry.item, neutral) {
            let message = format!("`{key}` is simulated only as {neutral}");
            reader.complain(
                "not-simulated",
                message,
                &entry.item,
                &format!("expected {neutral}"),
            );
        }
    }
}

fn is_written_as(item: &Item, neutral: &str) -> bool {
    match &item.value {
        Value::Text(text) => text == neutral,
        Value::Boolean(boolean) => boolean.to_string() == neutral,
        Value::Integer(number) => neutral.parse::<f64>().is_ok_and(|n| n == *number as f64),
        Value::Float(text) => text.parse::<f64>().is_ok_and(|a| neutral.parse() == Ok(a)),
        Value::Datetime | Value::Array(_) | Value::Table(_) => false,
    }
}
