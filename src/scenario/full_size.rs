//! The real job that a small scenario stands for.

use serde::Serialize;

use crate::diagnostic::document::{Read, Reader, Table};
use crate::diagnostic::{Diagnostic, Findings, Place};
use crate::recipe::{
    FFN_HIDDEN_SIZE_MAX, HIDDEN_SIZE_MAX, KV_CHANNELS_MAX, MAX_POSITION_EMBEDDINGS_MAX,
    MICROBATCH_COUNT_MAX, NUM_ATTENTION_HEADS_MAX, NUM_LAYERS_MAX, PADDED_VOCAB_SIZE_MAX, Recipe,
    SEQ_LENGTH_MAX, WGRAD_SPLITS_MAX, WORLD_SIZE_MAX,
};

/// Sizes that decide how many addends each family of sums has at full size. A key that the
/// scenario leaves out has the recipe's own value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct FullSize {
    pub tensor_model_parallel_size: u32,
    pub pipeline_model_parallel_size: u32,
    pub data_parallel_size: u32,
    /// Microbatches of one rank in one step.
    pub microbatch_count: u32,
    pub micro_batch_size: u32,
    pub seq_length: u32,
    pub wgrad_splits: u32,
    /// `None`: how large the real model is, and so its buffers, is not known.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub model: Option<FullModel>,
}

/// Sizes of the real model. They decide how large the buffers of its collectives are, and so which
/// elements NCCL adds in which order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct FullModel {
    pub num_layers: u32,
    pub hidden_size: u32,
    pub ffn_hidden_size: u32,
    pub num_attention_heads: u32,
    pub num_query_groups: u32,
    pub kv_channels: u32,
    pub max_position_embeddings: u32,
    pub padded_vocab_size: u32,
    /// Parameters; absent: Megatron's own rule.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ddp_bucket_size: Option<u32>,
}

impl FullModel {
    pub fn of(recipe: &Recipe) -> FullModel {
        FullModel {
            num_layers: recipe.num_layers,
            hidden_size: recipe.hidden_size,
            ffn_hidden_size: recipe.ffn_hidden_size,
            num_attention_heads: recipe.num_attention_heads,
            num_query_groups: recipe.num_query_groups,
            kv_channels: recipe.kv_channels,
            max_position_embeddings: recipe.max_position_embeddings,
            padded_vocab_size: recipe.padded_vocab_size,
            ddp_bucket_size: recipe.ddp_bucket_size,
        }
    }
}

impl FullSize {
    /// The recipe itself, its model left open.
    pub fn of(recipe: &Recipe) -> FullSize {
        FullSize {
            tensor_model_parallel_size: recipe.tensor_model_parallel_size,
            pipeline_model_parallel_size: recipe.pipeline_model_parallel_size,
            data_parallel_size: recipe.data_parallel_size(),
            microbatch_count: recipe.microbatch_count(),
            micro_batch_size: recipe.micro_batch_size,
            seq_length: recipe.seq_length,
            wgrad_splits: recipe.determinism.wgrad_splits,
            model: None,
        }
    }

    /// A whole full-size recipe.
    pub fn of_job(recipe: &Recipe) -> FullSize {
        FullSize {
            model: Some(FullModel::of(recipe)),
            ..FullSize::of(recipe)
        }
    }

    /// Ranks of the full-size job.
    pub fn world_size(&self) -> u64 {
        u64::from(self.tensor_model_parallel_size)
            * u64::from(self.pipeline_model_parallel_size)
            * u64::from(self.data_parallel_size)
    }

    /// `here` with the sizes of the real job, if its model is known.
    pub fn recipe(&self, here: &Recipe) -> Option<Recipe> {
        let model = self.model?;
        Some(Recipe {
            world_size: u32::try_from(self.world_size()).unwrap_or(u32::MAX),
            tensor_model_parallel_size: self.tensor_model_parallel_size,
            pipeline_model_parallel_size: self.pipeline_model_parallel_size,
            num_layers: model.num_layers,
            hidden_size: model.hidden_size,
            ffn_hidden_size: model.ffn_hidden_size,
            num_attention_heads: model.num_attention_heads,
            num_query_groups: model.num_query_groups,
            kv_channels: model.kv_channels,
            seq_length: self.seq_length,
            max_position_embeddings: model.max_position_embeddings,
            padded_vocab_size: model.padded_vocab_size,
            micro_batch_size: self.micro_batch_size,
            global_batch_size: self
                .micro_batch_size
                .saturating_mul(self.microbatch_count)
                .saturating_mul(self.data_parallel_size),
            ddp_bucket_size: model.ddp_bucket_size,
            ..here.clone()
        })
    }

    pub(super) fn read(table: &Table, recipe: &Recipe, findings: &mut Findings) -> FullSize {
        let own = FullSize::of(recipe);
        let errors_before = findings.error_count();
        let mut reader = Reader::new(table, "full_size", findings);
        let mut count = |key, most, own| reader.count(key, 1..=most, Some(own));
        let tensor = count(
            "tensor_model_parallel_size",
            WORLD_SIZE_MAX,
            own.tensor_model_parallel_size,
        );
        let pipeline = count(
            "pipeline_model_parallel_size",
            WORLD_SIZE_MAX,
            own.pipeline_model_parallel_size,
        );
        let data = count("data_parallel_size", WORLD_SIZE_MAX, own.data_parallel_size);
        let microbatches = count(
            "microbatch_count",
            MICROBATCH_COUNT_MAX,
            own.microbatch_count,
        );
        let micro = count("micro_batch_size", 1 << 16, own.micro_batch_size);
        let seq = count("seq_length", SEQ_LENGTH_MAX << 8, own.seq_length);
        let splits = count("wgrad_splits", WGRAD_SPLITS_MAX, own.wgrad_splits);
        let (model, layers) = model(&mut reader, recipe);
        reader.finish();
        if findings.error_count() == errors_before
            && let Some(model) = &model
        {
            let (tensor, pipeline) = (&tensor, &pipeline);
            whole(model, recipe, [tensor, pipeline, &layers], table, findings);
            instances(&data, recipe, table, findings);
        }
        FullSize {
            tensor_model_parallel_size: tensor.value,
            pipeline_model_parallel_size: pipeline.value,
            data_parallel_size: data.value,
            microbatch_count: microbatches.value,
            micro_batch_size: micro.value,
            seq_length: seq.value,
            wgrad_splits: splits.value,
            model,
        }
    }
}

/// The model's sizes, if any of them is given; and the layers, for what they are divided by.
fn model(reader: &mut Reader<'_>, recipe: &Recipe) -> (Option<FullModel>, Read<u32>) {
    let own = FullModel::of(recipe);
    let mut is_given = false;
    let mut count = |key, most, own| {
        let read = reader.count(key, 1..=most, Some(own));
        is_given |= read.is_given();
        read
    };
    let layers = count("num_layers", NUM_LAYERS_MAX, own.num_layers);
    let heads = NUM_ATTENTION_HEADS_MAX;
    let positions = MAX_POSITION_EMBEDDINGS_MAX;
    let hidden = count("hidden_size", HIDDEN_SIZE_MAX, own.hidden_size).value;
    let model = FullModel {
        num_layers: layers.value,
        hidden_size: hidden,
        ffn_hidden_size: count("ffn_hidden_size", FFN_HIDDEN_SIZE_MAX, own.ffn_hidden_size).value,
        num_attention_heads: count("num_attention_heads", heads, own.num_attention_heads).value,
        num_query_groups: count("num_query_groups", heads, own.num_query_groups).value,
        kv_channels: count("kv_channels", KV_CHANNELS_MAX, own.kv_channels).value,
        max_position_embeddings: count(
            "max_position_embeddings",
            positions,
            own.max_position_embeddings,
        )
        .value,
        padded_vocab_size: count(
            "padded_vocab_size",
            PADDED_VOCAB_SIZE_MAX,
            own.padded_vocab_size,
        )
        .value,
        ddp_bucket_size: {
            let read = count("ddp_bucket_size", u32::MAX, 1);
            read.is_given().then_some(read.value)
        },
    };
    (is_given.then_some(model), layers)
}

/// What tensor-parallel ranks and pipeline stages must share out evenly.
/// Every instance of the distributed optimizer has as many ranks, at full size as here.
fn instances(data: &Read<u32>, recipe: &Recipe, table: &Table, findings: &mut Findings) {
    let instances = recipe.num_distributed_optimizer_instances;
    if !data.value.is_multiple_of(instances) {
        let place: &Place = data.place.as_ref().unwrap_or(&table.place);
        let message = format!(
            "`full_size.data_parallel_size` is {}, not a multiple of {instances}",
            data.value
        );
        findings.push(Diagnostic::error("does-not-divide", message).at(
            place,
            "expected whole instances of the distributed optimizer",
        ));
    }
}

fn whole(
    model: &FullModel,
    recipe: &Recipe,
    [tensor, pipeline, layers]: [&Read<u32>; 3],
    table: &Table,
    findings: &mut Findings,
) {
    let chunks = pipeline
        .value
        .saturating_mul(recipe.num_virtual_stages_per_pipeline_rank);
    let shares = [
        ("num_layers", model.num_layers, chunks, &layers.place),
        (
            "ffn_hidden_size",
            model.ffn_hidden_size,
            tensor.value,
            &tensor.place,
        ),
        (
            "num_attention_heads",
            model.num_attention_heads,
            tensor.value,
            &tensor.place,
        ),
        (
            "num_query_groups",
            model.num_query_groups,
            tensor.value,
            &tensor.place,
        ),
        (
            "padded_vocab_size",
            model.padded_vocab_size,
            tensor.value,
            &tensor.place,
        ),
    ];
    for (key, value, parts, place) in shares {
        if !value.is_multiple_of(parts) {
            let place: &Place = place.as_ref().unwrap_or(&table.place);
            let message = format!("`full_size.{key}` is {value}, not a multiple of {parts}");
            findings.push(
                Diagnostic::error("does-not-divide", message)
                    .at(place, "the full-size job could not be laid out"),
            );
        }
    }
}
