//! RMSNorm (Zhang and Sennrich, arXiv:1910.07467), on the tokens that this rank holds.

use crate::model::parameter::ParameterId;
use crate::model::stage::Stage;
use crate::world::{Rank, Tensor};

#[derive(Clone, Debug)]
pub struct RmsNorm {
    pub module: String,
    pub weight: ParameterId,
}

impl RmsNorm {
    pub fn new(stage: &Stage, module: String) -> RmsNorm {
        let weight = stage.store.find(&format!("{module}.weight"));
        RmsNorm { module, weight }
    }

    /// `out = rms(x)`, `[local tokens, hidden]`; `rstd [local tokens]` is kept for backward.
    pub fn forward(&self, rank: &mut Rank, stage: &Stage, x: Tensor, rstd: Tensor, out: Tensor) {
        let rows = stage.shape.local_tokens();
        let operands = [x, stage.store.value(self.weight), rstd, out];
        rank.module(&self.module, |rank| {
            let params = forward_params(stage);
            rank.launch(
                "forward",
                "rmsnorm_forward",
                [rows, 1, 1],
                &operands,
                &params,
            );
        });
    }

    /// `sum = x + y`, `out = rms(sum)`.
    #[allow(clippy::too_many_arguments, reason = "the kernel's own operands")]
    pub fn add_forward(
        &self,
        rank: &mut Rank,
        stage: &Stage,
        x: Tensor,
        y: Tensor,
        sum: Tensor,
        rstd: Tensor,
        out: Tensor,
    ) {
        let rows = stage.shape.local_tokens();
        let operands = [x, y, stage.store.value(self.weight), sum, rstd, out];
        rank.module(&self.module, |rank| {
            let params = forward_params(stage);
            rank.launch(
                "add_forward",
                "residual_rmsnorm",
                [rows, 1, 1],
                &operands,
                &params,
            );
        });
    }

    /// `grad_x` from `grad_out`, plus `residual` where the norm's input also went round it; the
    /// gain's gradient goes to the microbatch's slot.
    #[allow(
        clippy::too_many_arguments,
        reason = "a backward has its forward's tensors and more"
    )]
    pub fn backward(
        &self,
        rank: &mut Rank,
        stage: &Stage,
        saved: (Tensor, Tensor),
        grad_out: Tensor,
        residual: Option<Tensor>,
        grad_x: Tensor,
        microbatch: u32,
    ) {
        let (x, rstd) = saved;
        let rows = stage.shape.local_tokens();
        let weight = stage.store.value(self.weight);
        let added = residual.unwrap_or(grad_out);
        let operands = [
            x,
            rstd,
            weight,
            grad_out,
            added,
            grad_x,
            stage.scratch.contributions,
        ];
        let add = u32::from(residual.is_some());
        let params = [rows, stage.shape.hidden_size, add, stage.round_code()];
        rank.module(&self.module, |rank| {
            rank.launch(
                "backward",
                "rmsnorm_backward",
                [rows, 1, 1],
                &operands,
                &params,
            );
            stage.fold_gain(rank, self.weight, microbatch);
        });
    }
}

fn forward_params(stage: &Stage) -> [u32; 4] {
    let shape = &stage.shape;
    let eps = shape.norm_epsilon.to_bits();
    [
        shape.local_tokens(),
        shape.hidden_size,
        eps,
        stage.round_code(),
    ]
}
