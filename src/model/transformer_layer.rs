//! One decoder layer: norm, attention, residual; norm, MLP, residual.
//!
//! `forward` writes nothing but `saved` and the stage's scratch, and draws from saved RNG words:
//! run again on the same input it gives the same bits.

mod selective;

use crate::model::attention::{Attention, AttentionSaved};
use crate::model::dropout::Site;
use crate::model::linear::Linear;
use crate::model::mlp::{Mlp, MlpSaved};
use crate::model::norm::{Norm, stats_a_row};
use crate::model::pass::Pass;
use crate::model::stage::Stage;
use crate::numerics::Dtype;
use crate::world::{Rank, Tensor};

#[derive(Clone, Debug)]
pub struct TransformerLayer {
    module: String,
    /// Number of the layer within its stage.
    place: u32,
    input_norm: Norm,
    attention: Attention,
    mlp_norm: Norm,
    mlp: Mlp,
}

/// What backward needs of one microbatch.
#[derive(Clone, Copy, Debug)]
pub struct LayerSaved {
    /// `[tokens, hidden]` each: outputs of the two norms, gathered.
    input_normed: Tensor,
    mlp_normed: Tensor,
    /// `[local tokens, 1 or 2]` fp32: what the norms keep of each row.
    input_stats: Tensor,
    mlp_stats: Tensor,
    /// `[local tokens, hidden]`: the residual stream between attention and MLP, and after.
    middle: Tensor,
    pub output: Tensor,
    attention: AttentionSaved,
    mlp: MlpSaved,
}

impl LayerSaved {
    /// Memory of one layer. Parts that are computed again in the backward lie in `shared`. Without
    /// `keeps_output` the output's place is empty: it is set anew in each forward.
    pub fn allocate(
        rank: &mut Rank,
        stage: &Stage,
        name: &str,
        shared: Option<&LayerSaved>,
        keeps_output: bool,
    ) -> LayerSaved {
        let shape = &stage.shape;
        let parts = stage.recompute.parts();
        let norms = shared.filter(|_| parts.layernorm);
        let dtype = shape.params_dtype;
        let whole = shape.tokens() * shape.hidden_size;
        let local = shape.local_tokens() * shape.hidden_size;
        let rows = shape.local_tokens() * stats_a_row(stage);
        let mut new = |part: &str, dtype, len, shared: Option<Tensor>| {
            shared.unwrap_or_else(|| rank.alloc(&format!("{name}.{part}"), dtype, len))
        };
        let (normed, stats) = (whole, rows);
        let middle = new("middle", dtype, local, None);
        LayerSaved {
            input_normed: new("input_normed", dtype, normed, norms.map(|s| s.input_normed)),
            mlp_normed: new("mlp_normed", dtype, normed, norms.map(|s| s.mlp_normed)),
            input_stats: new(
                "input_stats",
                Dtype::F32,
                stats,
                norms.map(|s| s.input_stats),
            ),
            mlp_stats: new("mlp_stats", Dtype::F32, stats, norms.map(|s| s.mlp_stats)),
            middle,
            output: match keeps_output {
                true => new("output", dtype, local, None),
                false => middle.slice(0, 0),
            },
            attention: {
                let shared = shared.filter(|_| parts.core_attention);
                let shared = shared.map(|s| &s.attention);
                AttentionSaved::allocate(rank, stage, &format!("{name}.attention"), shared)
            },
            mlp: match shared.filter(|_| parts.mlp) {
                Some(shared) => shared.mlp,
                None => MlpSaved::allocate(rank, stage, &format!("{name}.mlp")),
            },
        }
    }

    /// The same memory, but an output of its own: what is kept of a layer that is computed again.
    pub fn with_output(self, rank: &mut Rank, name: &str) -> LayerSaved {
        let Tensor { dtype, len, .. } = self.output;
        LayerSaved {
            output: rank.alloc(&format!("{name}.output"), dtype, len),
            ..self
        }
    }

    /// The same memory, with no place for the output.
    pub fn without_output(self) -> LayerSaved {
        LayerSaved {
            output: self.middle.slice(0, 0),
            ..self
        }
    }

    /// Everything that the forward writes, by name, in the order in which it does.
    fn tensors(&self) -> Vec<(&'static str, Tensor)> {
        let output = [("output", self.output)];
        self.activations().chain(output).collect()
    }

    /// The same without the output.
    pub fn activations(&self) -> impl Iterator<Item = (&'static str, Tensor)> + use<> {
        let before = [
            ("input_layernorm", self.input_normed),
            ("input_layernorm.stats", self.input_stats),
        ];
        let between = [
            ("residual", self.middle),
            ("pre_mlp_layernorm", self.mlp_normed),
            ("pre_mlp_layernorm.stats", self.mlp_stats),
        ];
        let attention = self.attention.tensors();
        let first = before.into_iter().chain(attention).chain(between);
        first.chain(self.mlp.tensors())
    }
}

impl TransformerLayer {
    pub fn module(&self) -> &str {
        &self.module
    }

    /// Layer `place` of the stage.
    pub fn new(stage: &Stage, place: u32) -> TransformerLayer {
        let number = stage.stage * stage.shape.layers_per_stage() + place;
        let module = format!("decoder.layers.{number}");
        TransformerLayer {
            place,
            input_norm: Norm::new(stage, format!("{module}.input_layernorm")),
            attention: Attention::new(stage, &format!("{module}.self_attention")),
            mlp_norm: Norm::new(stage, format!("{module}.pre_mlp_layernorm")),
            mlp: Mlp::new(stage, &format!("{module}.mlp")),
            module,
        }
    }

    /// `saved.output` from the residual stream `input`, `[local tokens, hidden]` both.
    pub fn forward(
        &self,
        rank: &mut Rank,
        stage: &mut Pass<'_>,
        saved: &LayerSaved,
        input: Tensor,
        rng: Tensor,
    ) {
        let added = stage.scratch.reduced;
        let local = stage.local_for(saved.input_normed);
        self.input_norm
            .forward(rank, stage, input, saved.input_stats, local);
        self.gather(rank, stage, local, saved.input_normed);
        self.remember_norm(rank, stage, self.input_norm_run(saved));
        let partial = stage.partial_for(added);
        let (x, site) = (saved.input_normed, self.attention_site());
        self.attention
            .forward(rank, stage, &saved.attention, x, partial, site, rng);
        self.remember_attention(rank, stage, saved);
        let (linear, site) = self.attention_end();
        self.leave(rank, stage, linear, partial, added, site, rng);

        let (middle, stats) = (saved.middle, saved.mlp_stats);
        let local = stage.local_for(saved.mlp_normed);
        self.mlp_norm
            .add_forward(rank, stage, input, added, middle, stats, local);
        self.gather(rank, stage, local, saved.mlp_normed);
        self.remember_norm(rank, stage, self.mlp_norm_run(saved));
        self.mlp
            .forward(rank, stage, &saved.mlp, saved.mlp_normed, partial);
        self.remember_mlp(rank, stage, saved, partial);
        let (linear, site) = self.mlp_end();
        self.leave(rank, stage, linear, partial, added, site, rng);
        rank.module(&self.module, |rank| {
            let count = middle.len;
            let operands = [middle, added, saved.output];
            let params = [count, stage.round_code()];
            rank.launch(
                "residual",
                "residual_add",
                [count, 1, 1],
                &operands,
                &params,
            );
        });
    }

    /// `grad_input` from `grad_output`; the two may be the same tensor.
    #[allow(
        clippy::too_many_arguments,
        reason = "a backward has its forward's tensors and more"
    )]
    pub fn backward(
        &self,
        rank: &mut Rank,
        stage: &mut Pass<'_>,
        saved: &LayerSaved,
        input: Tensor,
        rng: Tensor,
        grad_output: Tensor,
        grad_input: Tensor,
    ) {
        let reduced = stage.scratch.reduced;
        let partial = stage.partial_for(reduced);
        let grad_middle = stage.scratch.grad_middle;

        self.rerun_mlp(rank, stage, saved);
        let end = self.mlp_end();
        let grad_y = self.enter_backward(rank, stage, end, grad_output, rng);
        let x = saved.mlp_normed;
        self.mlp
            .backward(rank, stage, &saved.mlp, x, grad_y, partial);
        rank.module(&self.module, |rank| stage.reduce(rank, partial, reduced));
        let kept = (saved.middle, saved.mlp_stats);
        let around = Some(grad_output);
        self.mlp_norm
            .backward(rank, stage, kept, reduced, around, grad_middle);

        self.rerun_attention(rank, stage, saved, input, rng);
        let end = self.attention_end();
        let grad_y = self.enter_backward(rank, stage, end, grad_middle, rng);
        let x = saved.input_normed;
        self.attention.backward(
            rank,
            stage,
            &saved.attention,
            x,
            grad_y,
            partial,
            self.attention_site(),
            rng,
        );
        rank.module(&self.module, |rank| stage.reduce(rank, partial, reduced));
        let kept = (input, saved.input_stats);
        let around = Some(grad_middle);
        self.input_norm
            .backward(rank, stage, kept, reduced, around, grad_input);
    }

    /// After a forward whose activations will be computed again: what they were.
    pub fn remember(&self, rank: &mut Rank, saved: &LayerSaved) {
        rank.remember(&self.module, &saved.tensors());
    }

    /// After the second forward: the activations must be what they were.
    pub fn expect(&self, rank: &mut Rank, saved: &LayerSaved) {
        rank.expect(&self.module, &saved.tensors());
    }

    fn attention_site(&self) -> Site {
        Site::Attention(self.place)
    }

    /// The row-parallel linear that ends the attention, and the dropout that follows it.
    fn attention_end(&self) -> (&Linear, Site) {
        let site = Site::AfterAttention(self.place);
        (&self.attention.projection, site)
    }

    fn mlp_end(&self) -> (&Linear, Site) {
        (&self.mlp.fc2, Site::AfterMlp(self.place))
    }

    fn gather(&self, rank: &mut Rank, stage: &Stage, local: Tensor, full: Tensor) {
        rank.module(&self.module, |rank| stage.gather(rank, local, full));
    }

    /// The end of a row-parallel linear: ranks meet, its bias is added, dropout follows.
    #[allow(clippy::too_many_arguments, reason = "a linear's end and a dropout")]
    fn leave(
        &self,
        rank: &mut Rank,
        stage: &Stage,
        linear: &Linear,
        partial: Tensor,
        added: Tensor,
        site: Site,
        rng: Tensor,
    ) {
        rank.module(&self.module, |rank| stage.reduce(rank, partial, added));
        linear.add_bias(rank, stage, added);
        if stage.drops() {
            rank.module(&self.module, |rank| {
                stage.dropout(rank, site, rng, added, added);
            });
        }
    }

    /// The backward of `leave`: dropout's mask again, the bias's gradient from this rank's tokens,
    /// then the gradient of all tokens.
    fn enter_backward(
        &self,
        rank: &mut Rank,
        stage: &mut Pass<'_>,
        (linear, site): (&Linear, Site),
        grad: Tensor,
        rng: Tensor,
    ) -> Tensor {
        let mut masked = grad;
        if stage.drops() {
            masked = stage.scratch.masked;
            rank.module(&self.module, |rank| {
                stage.dropout(rank, site, rng, grad, masked);
            });
        }
        linear.bias_gradient(rank, stage, masked);
        rank.module(&self.module, |rank| {
            stage.gather(rank, masked, stage.scratch.gathered)
        })
    }
}
