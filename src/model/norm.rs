//! RMSNorm (Zhang and Sennrich, arXiv:1910.07467) and LayerNorm (Ba, Kiros and Hinton,
//! arXiv:1607.06450), on the tokens that this rank holds.

use crate::model::parameter::ParameterId;
use crate::model::pass::Pass;
use crate::model::stage::Stage;
use crate::plan::Init;
use crate::world::{Family, Rank, SlotFold, Tensor};

#[derive(Clone, Debug)]
pub struct Norm {
    pub module: String,
    pub weight: ParameterId,
    /// LayerNorm's bias; RMSNorm has none.
    bias: Option<ParameterId>,
}

/// Words of one row that backward needs besides the row itself: `1 / rms`, or mean and
/// `1 / deviation`.
pub fn stats_a_row(stage: &Stage) -> u32 {
    match stage.shape.normalization {
        crate::recipe::Normalization::RMSNorm => 1,
        crate::recipe::Normalization::LayerNorm => 2,
    }
}

impl Norm {
    pub fn new(stage: &Stage, module: String) -> Norm {
        let weight = stage.store.find(&format!("{module}.weight"));
        let bias = stage.store.look_up(&format!("{module}.bias"));
        assert_eq!(bias.is_some(), stats_a_row(stage) == 2);
        Norm {
            module,
            weight,
            bias,
        }
    }

    /// `out = norm(x)`, `[local tokens, hidden]`; `stats [local tokens, 1 or 2]` fp32 is kept for
    /// backward.
    pub fn forward(
        &self,
        rank: &mut Rank,
        stage: &mut Pass<'_>,
        x: Tensor,
        stats: Tensor,
        out: Tensor,
    ) {
        stage.enter(rank, [self.weight].into_iter().chain(self.bias));
        let mut operands = vec![x, stage.store.value(self.weight)];
        operands.extend(self.bias.map(|bias| stage.store.value(bias)));
        operands.extend([stats, out]);
        let kernel = match self.bias {
            None => "rmsnorm_forward",
            Some(_) => "layernorm_forward",
        };
        self.launch_forward(rank, stage, "forward", kernel, &operands);
    }

    /// `sum = x + y`, `out = norm(sum)`.
    #[allow(clippy::too_many_arguments, reason = "the kernel's own operands")]
    pub fn add_forward(
        &self,
        rank: &mut Rank,
        stage: &mut Pass<'_>,
        x: Tensor,
        y: Tensor,
        sum: Tensor,
        stats: Tensor,
        out: Tensor,
    ) {
        stage.enter(rank, [self.weight].into_iter().chain(self.bias));
        let mut operands = vec![x, y, stage.store.value(self.weight)];
        operands.extend(self.bias.map(|bias| stage.store.value(bias)));
        operands.extend([sum, stats, out]);
        let kernel = match self.bias {
            None => "residual_rmsnorm",
            Some(_) => "residual_layernorm",
        };
        self.launch_forward(rank, stage, "add_forward", kernel, &operands);
    }

    fn launch_forward(
        &self,
        rank: &mut Rank,
        stage: &Stage,
        op: &str,
        kernel: &str,
        operands: &[Tensor],
    ) {
        let shape = &stage.shape;
        let (rows, eps) = (shape.local_tokens(), shape.norm_epsilon.to_bits());
        let params = [rows, shape.hidden_size, eps, stage.round_code()];
        rank.module(&self.module, |rank| {
            rank.launch(op, kernel, [rows, 1, 1], operands, &params);
        });
    }

    /// `grad_x` from `grad_out`, plus `residual` where the norm's input also went round it; the
    /// gradients of gain and bias go to the microbatch's slots.
    #[allow(
        clippy::too_many_arguments,
        reason = "a backward has its forward's tensors and more"
    )]
    pub fn backward(
        &self,
        rank: &mut Rank,
        stage: &mut Pass<'_>,
        saved: (Tensor, Tensor),
        grad_out: Tensor,
        residual: Option<Tensor>,
        grad_x: Tensor,
    ) {
        let (x, stats) = saved;
        let rows = stage.shape.local_tokens();
        let weight = stage.store.value(self.weight);
        let contributions = stage.scratch.contributions;
        let added = residual.unwrap_or(grad_out);
        let operands = [x, stats, weight, grad_out, added, grad_x, contributions];
        let add = u32::from(residual.is_some());
        let params = [rows, stage.shape.hidden_size, add, stage.round_code()];
        let kernel = match self.bias {
            None => "rmsnorm_backward",
            Some(_) => "layernorm_backward",
        };
        rank.module(&self.module, |rank| {
            rank.launch("backward", kernel, [rows, 1, 1], &operands, &params);
            let sum = |addends, id| SlotFold {
                family: Family::NormWeightGrad,
                addends,
                slots: rows,
                out: stage.slot(id),
                init: Init::First,
                order: stage.shape.orders.norm_weight_grad,
            };
            rank.fold("weight_grad", sum(contributions, self.weight));
            if let Some(bias) = self.bias {
                rank.fold("bias_grad", sum(grad_out, bias));
            }
        });
        for parameter in [self.weight].into_iter().chain(self.bias) {
            stage.leave(rank, parameter);
        }
    }
}
