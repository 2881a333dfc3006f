//! The model again, in f64, written from its formulas: an oracle for forward and, by central
//! differences, for every backward.

use std::collections::BTreeMap;

use bitproof::model::ModelShape;
use ndarray::{Array1, Array2, ArrayView2, Axis, s};

pub type Weights = BTreeMap<String, Vec<f64>>;

/// `[tokens, hidden]` multipliers of one dropout: 0 or 1 / (1 - p). Called with the site.
pub type Masks<'a> = dyn Fn(usize) -> Array2<f64> + 'a;

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
    pub fn forward(&self, tokens: &[u32], targets: &[u32], masks: Option<&Masks>) -> Activations {
        let hidden = self.shape.hidden_size as usize;
        let embed = self.matrix("embedding.word_embeddings", hidden);
        let rows: Vec<usize> = tokens.iter().map(|token| *token as usize).collect();
        let mut x = embed.select(Axis(0), &rows);
        let drop = |x: Array2<f64>, site| masks.map_or(x.clone(), |masks| x * masks(site));
        x = drop(x, 0);
        let mut layers = Vec::new();
        for layer in 0..self.shape.num_layers as usize {
            let name = |rest: &str| format!("decoder.layers.{layer}.{rest}");
            let attended = self.attention(
                &self.rms(&x, &name("input_layernorm")),
                &name("self_attention"),
            );
            x = x + drop(attended, 1 + 2 * layer);
            let fed = self.mlp(&self.rms(&x, &name("pre_mlp_layernorm")), &name("mlp"));
            x = x + drop(fed, 2 + 2 * layer);
            layers.push(x.clone());
        }
        let logits = self
            .rms(&x, "decoder.final_layernorm")
            .dot(&self.matrix("output_layer", hidden).t());
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

    fn rms(&self, x: &Array2<f64>, module: &str) -> Array2<f64> {
        let gain = Array1::from_vec(self.tensor(module).to_vec());
        let mut out = x.clone();
        for mut row in out.rows_mut() {
            let mean = row.iter().map(|v| v * v).sum::<f64>() / row.len() as f64;
            let scale = 1.0 / (mean + f64::from(self.shape.norm_epsilon)).sqrt();
            row.zip_mut_with(&gain, |v, g| *v = *v * scale * g);
        }
        out
    }

    fn attention(&self, a: &Array2<f64>, module: &str) -> Array2<f64> {
        let shape = self.shape;
        let (hidden, d) = (shape.hidden_size as usize, shape.head_dim() as usize);
        let batch = shape.micro_batch_size as usize;
        let qkv = a.dot(&self.matrix(&format!("{module}.linear_qkv"), hidden).t());
        let mut joined = Array2::zeros(a.raw_dim());
        for head in 0..shape.num_attention_heads as usize {
            for sample in 0..batch {
                let part = |which: usize| {
                    let first = (3 * head + which) * d;
                    qkv.slice(s![sample..;batch, first..first + d]).to_owned()
                };
                let (q, k) = (self.rotate(part(0)), self.rotate(part(1)));
                let context = causal(q.view(), k.view(), part(2).view());
                let columns = head * d..(head + 1) * d;
                joined
                    .slice_mut(s![sample..;batch, columns])
                    .assign(&context);
            }
        }
        joined.dot(&self.matrix(&format!("{module}.linear_proj"), hidden).t())
    }

    fn rotate(&self, u: Array2<f64>) -> Array2<f64> {
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
        let (hidden, ffn) = (
            self.shape.hidden_size as usize,
            self.shape.ffn_hidden_size as usize,
        );
        let both = b.dot(&self.matrix(&format!("{module}.linear_fc1"), hidden).t());
        let gate = both.slice(s![.., ..ffn]).mapv(|v| v / (1.0 + (-v).exp()));
        let active = gate * both.slice(s![.., ffn..]);
        active.dot(&self.matrix(&format!("{module}.linear_fc2"), ffn).t())
    }
}

fn causal(q: ArrayView2<f64>, k: ArrayView2<f64>, v: ArrayView2<f64>) -> Array2<f64> {
    let scores = q.dot(&k.t()) / (q.ncols() as f64).sqrt();
    let mut out = Array2::zeros(q.raw_dim());
    for t in 0..q.nrows() {
        let seen = scores.slice(s![t, ..=t]);
        let top = seen.fold(f64::NEG_INFINITY, |a, b| a.max(*b));
        let weights = seen.mapv(|v| (v - top).exp());
        let context = weights.dot(&v.slice(s![..=t, ..])) / weights.sum();
        out.row_mut(t).assign(&context);
    }
    out
}
