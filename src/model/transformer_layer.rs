//! One decoder layer: norm, attention, residual; norm, MLP, residual.

use crate::model::attention::{Attention, AttentionSaved};
use crate::model::mlp::{Mlp, MlpSaved};
use crate::model::norm::RmsNorm;
use crate::model::stage::Stage;
use crate::numerics::Dtype;
use crate::world::{Rank, Tensor};

#[derive(Clone, Debug)]
pub struct TransformerLayer {
    module: String,
    /// Number of the layer within its stage.
    place: u32,
    input_norm: RmsNorm,
    attention: Attention,
    mlp_norm: RmsNorm,
    mlp: Mlp,
}

/// What backward needs of one microbatch.
#[derive(Clone, Copy, Debug)]
pub struct LayerSaved {
    /// `[tokens, hidden]` each: outputs of the two norms, gathered.
    input_normed: Tensor,
    mlp_normed: Tensor,
    /// `[local tokens]` fp32.
    input_rstd: Tensor,
    mlp_rstd: Tensor,
    /// `[local tokens, hidden]`: the residual stream between attention and MLP, and after.
    middle: Tensor,
    pub output: Tensor,
    attention: AttentionSaved,
    mlp: MlpSaved,
}

impl LayerSaved {
    pub fn allocate(rank: &mut Rank, stage: &Stage, name: &str) -> LayerSaved {
        let shape = &stage.shape;
        let dtype = shape.params_dtype;
        let whole = shape.tokens() * shape.hidden_size;
        let local = shape.local_tokens() * shape.hidden_size;
        let rows = shape.local_tokens();
        LayerSaved {
            input_normed: rank.alloc(&format!("{name}.input_normed"), dtype, whole),
            mlp_normed: rank.alloc(&format!("{name}.mlp_normed"), dtype, whole),
            input_rstd: rank.alloc(&format!("{name}.input_rstd"), Dtype::F32, rows),
            mlp_rstd: rank.alloc(&format!("{name}.mlp_rstd"), Dtype::F32, rows),
            middle: rank.alloc(&format!("{name}.middle"), dtype, local),
            output: rank.alloc(&format!("{name}.output"), dtype, local),
            attention: AttentionSaved::allocate(rank, stage, &format!("{name}.attention")),
            mlp: MlpSaved::allocate(rank, stage, &format!("{name}.mlp")),
        }
    }
}

impl TransformerLayer {
    /// Layer `place` of the stage.
    pub fn new(stage: &Stage, place: u32) -> TransformerLayer {
        let number = stage.stage * stage.shape.layers_per_stage() + place;
        let module = format!("decoder.layers.{number}");
        TransformerLayer {
            place,
            input_norm: RmsNorm::new(stage, format!("{module}.input_layernorm")),
            attention: Attention::new(stage, &format!("{module}.self_attention")),
            mlp_norm: RmsNorm::new(stage, format!("{module}.pre_mlp_layernorm")),
            mlp: Mlp::new(stage, &format!("{module}.mlp")),
            module,
        }
    }

    /// `saved.output` from the residual stream `input`, `[local tokens, hidden]` both.
    pub fn forward(
        &self,
        rank: &mut Rank,
        stage: &Stage,
        saved: &LayerSaved,
        input: Tensor,
        rng: Tensor,
    ) {
        let added = stage.scratch.reduced;
        let local = stage.local_for(saved.input_normed);
        self.input_norm
            .forward(rank, stage, input, saved.input_rstd, local);
        self.gather(rank, stage, local, saved.input_normed);
        let partial = stage.partial_for(added);
        self.attention
            .forward(rank, stage, &saved.attention, saved.input_normed, partial);
        self.leave(rank, stage, partial, added, self.site(0), rng);

        let (middle, rstd) = (saved.middle, saved.mlp_rstd);
        let local = stage.local_for(saved.mlp_normed);
        self.mlp_norm
            .add_forward(rank, stage, input, added, middle, rstd, local);
        self.gather(rank, stage, local, saved.mlp_normed);
        self.mlp
            .forward(rank, stage, &saved.mlp, saved.mlp_normed, partial);
        self.leave(rank, stage, partial, added, self.site(1), rng);
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
        stage: &Stage,
        saved: &LayerSaved,
        input: Tensor,
        rng: Tensor,
        grad_output: Tensor,
        grad_input: Tensor,
        microbatch: u32,
    ) {
        let reduced = stage.scratch.reduced;
        let partial = stage.partial_for(reduced);
        let grad_middle = stage.scratch.grad_middle;

        let grad_y = self.enter_backward(rank, stage, grad_output, self.site(1), rng);
        let x = saved.mlp_normed;
        self.mlp
            .backward(rank, stage, &saved.mlp, x, grad_y, partial, microbatch);
        rank.module(&self.module, |rank| stage.reduce(rank, partial, reduced));
        let kept = (saved.middle, saved.mlp_rstd);
        let around = Some(grad_output);
        self.mlp_norm
            .backward(rank, stage, kept, reduced, around, grad_middle, microbatch);

        let grad_y = self.enter_backward(rank, stage, grad_middle, self.site(0), rng);
        let x = saved.input_normed;
        self.attention.backward(
            rank,
            stage,
            &saved.attention,
            x,
            grad_y,
            partial,
            microbatch,
        );
        rank.module(&self.module, |rank| stage.reduce(rank, partial, reduced));
        let kept = (input, saved.input_rstd);
        let around = Some(grad_middle);
        self.input_norm
            .backward(rank, stage, kept, reduced, around, grad_input, microbatch);
    }

    /// Dropout site of the stage: 0 is the embedding's.
    fn site(&self, half: u32) -> u32 {
        1 + 2 * self.place + half
    }

    fn gather(&self, rank: &mut Rank, stage: &Stage, local: Tensor, full: Tensor) {
        rank.module(&self.module, |rank| stage.gather(rank, local, full));
    }

    /// The end of a row-parallel linear: ranks meet, dropout follows.
    fn leave(
        &self,
        rank: &mut Rank,
        stage: &Stage,
        partial: Tensor,
        added: Tensor,
        site: u32,
        rng: Tensor,
    ) {
        rank.module(&self.module, |rank| {
            stage.reduce(rank, partial, added);
            if stage.drops() {
                stage.dropout(rank, site, rng, added, added);
            }
        });
    }

    /// The backward of `leave`: dropout's mask again, then the gradient of all tokens.
    fn enter_backward(
        &self,
        rank: &mut Rank,
        stage: &Stage,
        grad: Tensor,
        site: u32,
        rng: Tensor,
    ) -> Tensor {
        rank.module(&self.module, |rank| {
            let mut masked = grad;
            if stage.drops() {
                masked = stage.scratch.masked;
                stage.dropout(rank, site, rng, grad, masked);
            }
            stage.gather(rank, masked, stage.scratch.gathered)
        })
    }
}
