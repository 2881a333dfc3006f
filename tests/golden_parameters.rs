//! The order of a model's parameters against `named_parameters()` of the real megatron-core 0.19.2,
//! whose local layers the golden models are built of.

use bitproof::model::{ModelShape, ModuleOrder, stage_parameters};
use bitproof::recipe::{Normalization, PositionEmbedding};
use golden::golden;
use harness::small_options;
use serde_json::Value;

#[path = "support/golden.rs"]
mod golden;
#[path = "harness/mod.rs"]
mod harness;

const LISTS: [&str; 4] = ["gpt_tied", "gpt_350m", "gpt_untied_fp32", "gpt_8b_layers"];
/// Any width of a head does: names and sizes follow from the widths of all heads together.
const KV_CHANNELS: u32 = 64;

/// Names and sizes, in order.
type Listed = Vec<(String, Vec<u32>)>;

fn listed_in(name: &str) -> Listed {
    let file = golden("megatron_buckets.json");
    let list = file["param_lists"][name].as_array().expect("a list");
    let entry = |entry: &Value| {
        let sizes = entry[1].as_array().expect("sizes").iter();
        let sizes = sizes.map(|size| size.as_u64().expect("a size") as u32);
        (
            entry[0].as_str().expect("a name").to_string(),
            sizes.collect(),
        )
    };
    list.iter().map(entry).collect()
}

/// The model that has the parameters of a list.
fn shape_of(list: &Listed, module_order: ModuleOrder) -> ModelShape {
    let find = |name: &str| list.iter().find(|(known, _)| known.ends_with(name));
    let sizes = |name: &str| &find(name).unwrap_or_else(|| panic!("no {name}")).1;
    let embedding = sizes("word_embeddings.weight");
    let (qkv, proj) = (
        sizes("linear_qkv.weight")[0],
        sizes("linear_proj.weight")[1],
    );
    let heads = proj / KV_CHANNELS;
    let ffn = sizes("linear_fc2.weight")[1];
    let layers = list
        .iter()
        .filter(|(name, _)| name.ends_with("linear_qkv.weight"));
    ModelShape {
        num_layers: layers.count() as u32,
        hidden_size: embedding[1],
        ffn_hidden_size: ffn,
        num_attention_heads: heads,
        num_query_groups: (qkv / KV_CHANNELS - heads) / 2,
        kv_channels: KV_CHANNELS,
        padded_vocab_size: embedding[0],
        max_position_embeddings: sizes("position_embeddings.weight")[0],
        module_order,
        normalization: match find("input_layernorm.bias") {
            Some(_) => Normalization::LayerNorm,
            None => Normalization::RMSNorm,
        },
        swiglu: sizes("linear_fc1.weight")[0] == 2 * ffn,
        add_bias_linear: find("linear_fc1.bias").is_some(),
        position_embedding_type: PositionEmbedding::LearnedAbsolute,
        untie_embeddings_and_output_weights: find("output_layer.weight").is_some(),
        ..small_options().model
    }
}

fn listed(shape: &ModelShape) -> Listed {
    let parameters = stage_parameters(shape, 0).into_iter();
    let entry = |parameter: bitproof::model::Parameter| {
        let is_vector = parameter.rows == 1 || parameter.columns == 1;
        let sizes = match is_vector {
            true => vec![parameter.len()],
            false => vec![parameter.rows, parameter.columns],
        };
        (parameter.name, sizes)
    };
    parameters.map(entry).collect()
}

#[test]
fn golden_parameters_of_local_layers_in_order() {
    for name in LISTS {
        let list = listed_in(name);
        assert!(list.len() > 20, "{name}");
        assert_eq!(listed(&shape_of(&list, ModuleOrder::Local)), list, "{name}");
        // The order is looked at.
        let computed = listed(&shape_of(&list, ModuleOrder::Computed));
        assert_ne!(computed, list, "{name}");
    }
}

/// Transformer Engine's `LayerNormLinear` holds the norm's gain and bias before its own weight
/// (`transformer_engine/pytorch/module/layernorm_linear.py`): the same parameters, with the first
/// norm behind `linear_proj`.
#[test]
fn norms_stand_in_the_linears_of_transformer_engine() {
    for name in LISTS {
        let list = listed_in(name);
        let engine = listed(&shape_of(&list, ModuleOrder::TransformerEngine));
        let mut moved = list.clone();
        let is_of = |module: &'static str| {
            move |(name, _): &(String, Vec<u32>)| name.contains(&format!(".{module}."))
        };
        for layer in 0.. {
            let of_layer = format!("decoder.layers.{layer}.");
            let places = (0..moved.len()).filter(|at| moved[*at].0.starts_with(&of_layer));
            let places: Vec<usize> = places.collect();
            let Some(first) = places.first().copied() else {
                break;
            };
            let of = &moved[first..first + places.len()];
            let norms = of
                .iter()
                .filter(|one| is_of("input_layernorm")(one))
                .count();
            let projections = of.iter().filter(|one| is_of("linear_proj")(one)).count();
            moved[first..first + norms + projections].rotate_left(norms);
        }
        assert_eq!(engine, moved, "{name}");
    }
}
