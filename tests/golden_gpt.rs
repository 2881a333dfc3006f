//! The GPT against a float64 run of the same model and optimizer (`golden/models/gpt`): forward,
//! every gradient, two AdamW steps.

mod harness;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use bitproof::model::ModelShape;
use bitproof::train::{Corpus, Initial, TrainOptions};
use bitproof::world::{Component, Rank, RankError};
use harness::{distance, small_options, train, whole_gradients};
use safetensors::SafeTensors;

/// What another f32 implementation may be off by, in units of what torch's f32 run was off by.
const SLACK: f64 = 4.0;

fn golden_file(name: &str) -> Vec<u8> {
    let root = std::env::var_os("BITPROOF_GOLDEN_DIR").map_or("tests/golden".into(), PathBuf::from);
    let path = root.join("models").join(name);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

struct Golden {
    bytes: Vec<u8>,
    tolerances: serde_json::Value,
}

impl Golden {
    fn load() -> Golden {
        let tolerances = serde_json::from_slice(&golden_file("tolerances.json")).unwrap();
        Golden {
            bytes: golden_file("gpt.safetensors"),
            tolerances,
        }
    }

    /// Any float or integer tensor, widened.
    fn tensor(&self, name: &str) -> Vec<f64> {
        let file = SafeTensors::deserialize(&self.bytes).unwrap();
        let view = file.tensor(name).unwrap_or_else(|_| panic!("no {name}"));
        let data = view.data();
        let eight = |b: &[u8]| <[u8; 8]>::try_from(b).unwrap();
        match view.dtype() {
            safetensors::Dtype::F64 => data
                .chunks(8)
                .map(|b| f64::from_le_bytes(eight(b)))
                .collect(),
            safetensors::Dtype::I64 => data
                .chunks(8)
                .map(|b| i64::from_le_bytes(eight(b)) as f64)
                .collect(),
            safetensors::Dtype::F32 => data
                .chunks(4)
                .map(|b| f64::from(f32::from_le_bytes(b.try_into().unwrap())))
                .collect(),
            other => panic!("{name} is {other:?}"),
        }
    }

    /// `[greatest, 2-norm]` distance of torch's own f32 run.
    fn tolerance(&self, name: &str) -> (f64, f64) {
        let pair = &self.tolerances["gpt"]["f32_vs_f64"][name];
        let number = |i: usize| {
            pair[i]
                .as_f64()
                .unwrap_or_else(|| panic!("no tolerance of {name}"))
        };
        (number(0), number(1))
    }

    /// Tensors `prefix.NAME` in the model's own names and fused shapes.
    fn fused(&self, prefix: &str, heads: usize) -> BTreeMap<String, Vec<f64>> {
        let mut map = BTreeMap::new();
        let get = |name: &str| self.tensor(&format!("{prefix}.{name}"));
        map.insert("embedding.word_embeddings.weight".to_string(), get("embed"));
        map.insert(
            "decoder.final_layernorm.weight".to_string(),
            get("final_norm"),
        );
        map.insert("output_layer.weight".to_string(), get("head"));
        for layer in 0..2 {
            let part = |name: &str| get(&format!("layers.{layer}.{name}"));
            let (q, k, v) = (part("wq"), part("wk"), part("wv"));
            let words = q.len() / heads;
            let qkv = (0..heads).flat_map(|head| {
                let rows = head * words..(head + 1) * words;
                [&q[rows.clone()], &k[rows.clone()], &v[rows]].concat()
            });
            let fc1 = [part("w_gate"), part("w_up")].concat();
            for (name, values) in [
                ("input_layernorm", part("norm1")),
                ("self_attention.linear_qkv", qkv.collect()),
                ("self_attention.linear_proj", part("wo")),
                ("pre_mlp_layernorm", part("norm2")),
                ("mlp.linear_fc1", fc1),
                ("mlp.linear_fc2", part("w_down")),
            ] {
                map.insert(format!("decoder.layers.{layer}.{name}.weight"), values);
            }
        }
        map
    }

    fn options(&self) -> TrainOptions {
        let small = small_options();
        TrainOptions {
            model: ModelShape {
                hidden_size: 32,
                ffn_hidden_size: 40,
                kv_channels: 8,
                padded_vocab_size: 64,
                seq_length: 16,
                max_position_embeddings: 16,
                ..small.model
            },
            global_batch_size: 2,
            lr: 0.003,
            clip_grad: 0.75,
            ..small
        }
    }

    fn corpus(&self) -> Corpus {
        let (tokens, targets) = (self.tensor("in.tokens"), self.tensor("in.targets"));
        let samples = (0..2).map(|sample| {
            let row = &tokens[sample * 16..(sample + 1) * 16];
            let last = targets[sample * 16 + 15];
            row.iter()
                .chain([&last])
                .map(|token| *token as u32)
                .collect::<Vec<u32>>()
        });
        Corpus::Samples(samples.collect::<Vec<_>>().into())
    }

    fn initial(&self) -> Initial {
        let narrow = |(name, values): (String, Vec<f64>)| {
            (name, values.into_iter().map(|value| value as f32).collect())
        };
        Initial::Given(Arc::new(
            self.fused("w", 4).into_iter().map(narrow).collect(),
        ))
    }
}

/// Splits a fused tensor into the golden names it stands for, each with its tolerance's name.
fn parts(name: &str, values: &[f32], heads: usize) -> Vec<(String, Vec<f32>)> {
    let whole = |golden: &str| vec![(golden.to_string(), values.to_vec())];
    match name {
        "embedding.word_embeddings.weight" => return whole("embed"),
        "decoder.final_layernorm.weight" => return whole("final_norm"),
        "output_layer.weight" => return whole("head"),
        _ => {}
    }
    let rest = name.strip_prefix("decoder.layers.").unwrap();
    let (layer, rest) = rest.split_once('.').unwrap();
    let named = |part: &str, values: Vec<f32>| (format!("layers.{layer}.{part}"), values);
    match rest.strip_suffix(".weight").unwrap() {
        "input_layernorm" => vec![named("norm1", values.to_vec())],
        "self_attention.linear_proj" => vec![named("wo", values.to_vec())],
        "pre_mlp_layernorm" => vec![named("norm2", values.to_vec())],
        "mlp.linear_fc2" => vec![named("w_down", values.to_vec())],
        "mlp.linear_fc1" => {
            let (gate, up) = values.split_at(values.len() / 2);
            vec![named("w_gate", gate.to_vec()), named("w_up", up.to_vec())]
        }
        "self_attention.linear_qkv" => {
            let words = values.len() / heads / 3;
            let pick = |which: usize| {
                values
                    .chunks(words)
                    .skip(which)
                    .step_by(3)
                    .flatten()
                    .copied()
                    .collect::<Vec<f32>>()
            };
            vec![
                named("wq", pick(0)),
                named("wk", pick(1)),
                named("wv", pick(2)),
            ]
        }
        other => panic!("unknown {other}"),
    }
}

/// Every tensor of `have` that is farther from `prefix.NAME` than it may be.
fn too_far(
    golden: &Golden,
    have: &BTreeMap<String, Vec<f32>>,
    prefix: &str,
    tolerance: &str,
) -> Vec<String> {
    let mut far = Vec::new();
    for (name, values) in have {
        for (part, values) in parts(name, values, 4) {
            let want = golden.tensor(&format!("{prefix}.{part}"));
            let (greatest, norm) = distance(&values, &want);
            let (greatest_allowed, norm_allowed) = golden.tolerance(&format!("{tolerance}.{part}"));
            if greatest > SLACK * greatest_allowed || norm > SLACK * norm_allowed {
                far.push(format!(
                    "{prefix}.{part}: {greatest:.2e} and {norm:.2e}, torch {greatest_allowed:.2e} \
                     and {norm_allowed:.2e}"
                ));
            }
        }
    }
    far
}

fn floats(words: &[u32]) -> Vec<f32> {
    words.iter().map(|word| f32::from_bits(*word)).collect()
}

/// Reads gradients (one rank, so `reduced` is the flat buffer).
fn gradients_and_parameters(
    rank: &mut Rank,
    trainer: &bitproof::train::Trainer,
    _: u32,
) -> Result<Vec<u32>, RankError> {
    let mut words = rank.read("gradients", trainer.gradients.reduced)?;
    words.extend(rank.read("main", trainer.optimizer.main_params)?);
    Ok(words)
}

#[test]
fn golden_gpt_forward_gradients_and_two_steps() {
    let golden = Golden::load();
    let options = golden.options();
    let (record, seen) = train(
        &options,
        &golden.corpus(),
        &golden.initial(),
        3,
        gradients_and_parameters,
    );
    for (step, loss, norm) in [
        (0, "s.loss64", Some("s.norm164")),
        (1, "s.loss264", Some("s.norm264")),
        (2, "s.loss364", None),
    ] {
        let metric = |name: &str| f64::from(record.metrics[&(step, name.to_string())]);
        let check = |have: f64, want: &str| {
            let want = golden.tensor(want)[0];
            assert!(
                (have / want - 1.0).abs() < 1e-6,
                "step {step}: {have} for {want}"
            );
        };
        check(metric("lm loss"), loss);
        norm.into_iter()
            .for_each(|norm| check(metric("grad norm"), norm));
    }
    let split = |step: u32| {
        let words = &seen[&step][&0];
        let (grads, main) = words.split_at(words.len() / 2);
        let whole = |part: &[u32]| whole_gradients(&options, &BTreeMap::from([(0, part.to_vec())]));
        (whole(grads), whole(main))
    };
    let (grads, first) = split(0);
    let (_, second) = split(1);
    let mut far = too_far(&golden, &grads, "g64", "g");
    far.extend(too_far(&golden, &first, "p64", "p"));
    far.extend(too_far(&golden, &second, "q", "q"));
    assert!(
        far.is_empty(),
        "too far from the float64 run:\n{}",
        far.join("\n")
    );
}

#[test]
fn golden_gpt_activations() {
    let golden = Golden::load();
    let options = golden.options();
    let read = |rank: &mut Rank, trainer: &bitproof::train::Trainer, _: u32| {
        let chunk = &trainer.pipeline.chunks[0];
        let mut words = rank.read("logits", chunk.saved[0].head.as_ref().unwrap().logits)?;
        for layer in &chunk.saved[0].layers {
            words.extend(rank.read("output", layer.output)?);
        }
        Ok(words)
    };
    let (_, seen) = train(&options, &golden.corpus(), &golden.initial(), 1, read);
    let words = floats(&seen[&0][&0]);
    // Ours are [seq, batch, width], golden [batch, seq, width].
    let reordered = |values: &[f32], width: usize| -> Vec<f32> {
        (0..2 * 16 * width)
            .map(|i| {
                let (sample, position, column) = (i / width / 16, i / width % 16, i % width);
                values[(position * 2 + sample) * width + column]
            })
            .collect()
    };
    let (logits, layers) = words.split_at(32 * 64);
    let sets = [
        ("logits", reordered(logits, 64)),
        ("layer0_out", reordered(&layers[..32 * 32], 32)),
        ("layer1_out", reordered(&layers[32 * 32..], 32)),
    ];
    for (name, values) in sets {
        let (greatest, norm) = distance(&values, &golden.tensor(&format!("a64.{name}")));
        // The worst activation of torch's f32 run is 5.0e-7 off.
        assert!(
            greatest < SLACK * 5e-7 && norm < SLACK * 5e-7,
            "{name}: {greatest:e} {norm:e}"
        );
    }
}

/// Negative control: one weight's gradient off by a thousandth of the greatest is seen, and named.
#[test]
fn golden_comparison_sees_a_small_error() {
    let golden = Golden::load();
    let narrow = |(name, values): (String, Vec<f64>)| {
        (
            name,
            values
                .into_iter()
                .map(|value| value as f32)
                .collect::<Vec<f32>>(),
        )
    };
    let mut grads: BTreeMap<_, _> = golden.fused("g64", 4).into_iter().map(narrow).collect();
    assert_eq!(too_far(&golden, &grads, "g64", "g"), Vec::<String>::new());
    let values = grads
        .get_mut("decoder.layers.1.self_attention.linear_qkv.weight")
        .unwrap();
    let greatest = values.iter().fold(0f32, |a, b| a.max(b.abs()));
    values[8 * 32 + 5] += greatest / 1000.0;
    let far = too_far(&golden, &grads, "g64", "g");
    assert_eq!(far.len(), 1);
    assert!(far[0].contains("layers.1.wk"), "{far:?}");
}

/// The state that checkpoints hold is what training changed.
#[test]
fn golden_run_persists_every_component() {
    let golden = Golden::load();
    let options = golden.options();
    let world = harness::world(&options);
    let run = bitproof::world::RunOptions {
        checkpoint_after: [0].into(),
        ..Default::default()
    };
    let steps = bitproof::train::Run {
        steps: 0..1,
        checkpoint: None,
        saves_after: Default::default(),
        variables: Vec::new().into(),
        saves: bitproof::train::Saves::default(),
    };
    let program =
        bitproof::train::program(Arc::new(options), golden.corpus(), golden.initial(), steps);
    let mut engine = bitproof::engine::cpu::CpuEngine::new(1).expect("the engine starts");
    let record = world
        .run(
            &mut engine,
            &run,
            &program,
            &mut bitproof::world::Unobserved,
        )
        .unwrap();
    let state = &record.checkpoints[&0];
    // The loss is not scaled here.
    let all = Component::ALL.into_iter();
    for component in all.filter(|of| *of != Component::LossScaler) {
        assert!(
            state.keys().any(|(_, c, _)| *c == component),
            "{component:?}"
        );
    }
    assert_eq!(
        state[&(0, Component::DataPosition, "samples".to_string())].words,
        [2]
    );
    assert_eq!(
        state[&(0, Component::OptimizerStep, "step".to_string())].words,
        [1]
    );
}
