//! The model again, in f64, written from its formulas: an oracle for forward and, by central
//! differences, for every backward.

use std::collections::BTreeMap;

use bitproof::model::ModelShape;
use bitproof::recipe::{Normalization, PositionEmbedding};
use ndarray::{Array1, Array2, ArrayView2, Axis, s};

pub type Weights = BTreeMap<String, Vec<f64>>;

/// One dropout of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dropped {
    /// `[tokens, hidden]`: the embedding; what the attention and what the MLP of a layer adds.
    Embedding,
    AfterAttention(usize),
    AfterMlp(usize),
    /// `[seq, seq]`: the probabilities of one sample and one head of a layer's attention.
    Probabilities {
        layer: usize,
        sample: usize,
        head: usize,
    },
}

/// Multipliers of one dropout: 0 or 1 / (1 - p); `None` where it drops nothing.
pub type Masks<'a> = dyn Fn(Dropped) -> Option<Array2<f64>> + 'a;

pub struct Reference<'a> {
    pub shape: &'a ModelShape,
    pub weights: &'a Weights,
}

/// Activations of one microbatch, rows `position * batch + sample`.
pub struct Activations {
    pub layers: Vec<Array2<f64>>,
    pub logits: Array2<f64>,
    pub losses: Array1<f64>,
}

impl Reference<'_> {
    /// One microbatch: `tokens` and `targets` are `[seq, batch]`.
    pub fn forward(&self, tokens: &[u32], targets: &[u32], masks: &Masks) -> Activations {
        let hidden = self.shape.hidden_size as usize;
        let embed = self.matrix("embedding.word_embeddings", hidden);
        let rows: Vec<usize> = tokens.iter().map(|token| *token as usize).collect();
        let mut x = embed.select(Axis(0), &rows);
        if self.shape.position_embedding_type == PositionEmbedding::LearnedAbsolute {
            let table = self.matrix("embedding.position_embeddings", hidden);
            let batch = self.shape.micro_batch_size as usize;
            let places: Vec<usize> = (0..rows.len()).map(|token| token / batch).collect();
            x += &table.select(Axis(0), &places);
        }
        let drop = |x: Array2<f64>, place| masks(place).map_or(x.clone(), |mask| x * mask);
        x = drop(x, Dropped::Embedding);
        let mut layers = Vec::new();
        for layer in 0..self.shape.num_layers as usize {
            let name = |rest: &str| format!("decoder.layers.{layer}.{rest}");
            let attended = self.attention(&self.norm(&x, &name("input_layernorm")), layer, masks);
            x = x + drop(attended, Dropped::AfterAttention(layer));
            let fed = self.mlp(&self.norm(&x, &name("pre_mlp_layernorm")), &name("mlp"));
            x = x + drop(fed, Dropped::AfterMlp(layer));
            layers.push(x.clone());
        }
        let output = if self.shape.untie_embeddings_and_output_weights {
            self.matrix("output_layer", hidden)
        } else {
            embed
        };
        let logits = self.norm(&x, "decoder.final_layernorm").dot(&output.t());
        let losses = logits.rows().into_iter().zip(targets).map(|(row, target)| {
            let top = row.fold(f64::NEG_INFINITY, |a, b| a.max(*b));
            let sum: f64 = row.iter().map(|v| (v - top).exp()).sum();
            sum.ln() + top - row[*target as usize]
        });
        let losses = losses.collect();
        Activations {
            layers,
            logits,
            losses,
        }
    }

    fn tensor(&self, module: &str) -> &[f64] {
        &self.weights[&format!("{module}.weight")]
    }

    fn matrix(&self, module: &str, columns: usize) -> Array2<f64> {
        let values = self.tensor(module);
        let rows = values.len() / columns;
        Array2::from_shape_vec((rows, columns), values.to_vec()).unwrap()
    }

    fn norm(&self, x: &Array2<f64>, module: &str) -> Array2<f64> {
        let gain = Array1::from_vec(self.tensor(module).to_vec());
        let centres = self.shape.normalization == Normalization::LayerNorm;
        let mut out = x.clone();
        for mut row in out.rows_mut() {
            if centres {
                let mean = row.mean().unwrap();
                row -= mean;
            }
            let square = row.iter().map(|v| v * v).sum::<f64>() / row.len() as f64;
            let scale = 1.0 / (square + f64::from(self.shape.norm_epsilon)).sqrt();
            row.zip_mut_with(&gain, |v, g| *v = *v * scale * g);
        }
        if centres {
            let bias = Array1::from_vec(self.weights[&format!("{module}.bias")].clone());
            out += &bias;
        }
        out
    }

    /// `x W^T + b`.
    fn linear(&self, x: &Array2<f64>, module: &str) -> Array2<f64> {
        let mut y = x.dot(&self.matrix(module, x.ncols()).t());
        if self.shape.add_bias_linear {
            let bias = Array1::from_vec(self.weights[&format!("{module}.bias")].clone());
            y += &bias;
        }
        y
    }

    fn attention(&self, a: &Array2<f64>, layer: usize, masks: &Masks) -> Array2<f64> {
        let shape = self.shape;
        let module = format!("decoder.layers.{layer}.self_attention");
        let (heads, d) = (
            shape.num_attention_heads as usize,
            shape.kv_channels as usize,
        );
        let each = heads / shape.num_query_groups as usize;
        let batch = shape.micro_batch_size as usize;
        let qkv = self.linear(a, &format!("{module}.linear_qkv"));
        let mut joined = Array2::zeros((a.nrows(), heads * d));
        for head in 0..heads {
            // Rows of a group: its queries, then the key and the value that they share.
            let (group, own) = (head / each * (each + 2), head % each);
            for sample in 0..batch {
                let part = |which: usize| {
                    let first = (group + which) * d;
                    qkv.slice(s![sample..;batch, first..first + d]).to_owned()
                };
                let (q, k) = (self.rotate(part(own)), self.rotate(part(each)));
                let mask = masks(Dropped::Probabilities {
                    layer,
                    sample,
                    head,
                });
                let context = causal(q.view(), k.view(), part(each + 1).view(), mask);
                let columns = head * d..(head + 1) * d;
                joined
                    .slice_mut(s![sample..;batch, columns])
                    .assign(&context);
            }
        }
        self.linear(&joined, &format!("{module}.linear_proj"))
    }

    fn rotate(&self, u: Array2<f64>) -> Array2<f64> {
        if self.shape.position_embedding_type != PositionEmbedding::Rope {
            return u;
        }
        let half = u.ncols() / 2;
        let mut out = u.clone();
        for t in 0..u.nrows() {
            for j in 0..half {
                let power = -2.0 * j as f64 / u.ncols() as f64;
                let angle = t as f64 * f64::from(self.shape.rotary_base).powf(power);
                let (first, second) = (u[[t, j]], u[[t, j + half]]);
                out[[t, j]] = first * angle.cos() - second * angle.sin();
                out[[t, j + half]] = second * angle.cos() + first * angle.sin();
            }
        }
        out
    }

    fn mlp(&self, b: &Array2<f64>, module: &str) -> Array2<f64> {
        let ffn = self.shape.ffn_hidden_size as usize;
        let both = self.linear(b, &format!("{module}.linear_fc1"));
        let active = if self.shape.swiglu {
            let gate = both.slice(s![.., ..ffn]).mapv(|v| v / (1.0 + (-v).exp()));
            gate * both.slice(s![.., ffn..])
        } else {
            both.mapv(|v| 0.5 * v * (1.0 + (0.79788456 * (v + 0.044715 * v * v * v)).tanh()))
        };
        self.linear(&active, &format!("{module}.linear_fc2"))
    }
}

fn causal(
    q: ArrayView2<f64>,
    k: ArrayView2<f64>,
    v: ArrayView2<f64>,
    mask: Option<Array2<f64>>,
) -> Array2<f64> {
    let scores = q.dot(&k.t()) / (q.ncols() as f64).sqrt();
    let mut out = Array2::zeros(q.raw_dim());
    for t in 0..q.nrows() {
        let seen = scores.slice(s![t, ..=t]);
        let top = seen.fold(f64::NEG_INFINITY, |a, b| a.max(*b));
        let weights = seen.mapv(|v| (v - top).exp());
        let mut probs = &weights / weights.sum();
        if let Some(mask) = &mask {
            probs *= &mask.slice(s![t, ..=t]);
        }
        out.row_mut(t).assign(&probs.dot(&v.slice(s![..=t, ..])));
    }
    out
}
