//! A linear map `y = x W^T + b`, as this rank holds it: column- or row-parallel is only a matter of
//! which sizes are local, and of where the bias is added: at once, or after the ranks have met.
//!
//! A bias is added by a kernel of its own, rounded on its own, as Megatron-LM does where
//! `bias_dropout_fusion` is off; the fused form saves a rounding and has the same sums. The MLP's
//! GELU is the exception: it adds the bias itself.

use crate::model::parameter::ParameterId;
use crate::model::pass::Pass;
use crate::model::stage::Stage;
use crate::plan::Init;
use crate::world::{Family, LocalOrder, Rank, SlotFold, Tensor};

/// `weight [outputs, inputs]`, both as held here.
#[derive(Clone, Debug)]
pub struct Linear {
    pub module: String,
    pub weight: ParameterId,
    pub bias: Option<ParameterId>,
    pub inputs: u32,
    pub outputs: u32,
    /// The weight is the embedding of the same stage, whose backward comes later.
    is_embedding: bool,
}

impl Linear {
    /// The linear named `module`, whose weight the stage holds.
    pub fn new(stage: &Stage, module: String) -> Linear {
        let weight = stage.store.find(&format!("{module}.weight"));
        Linear::with_weight(stage, module, weight)
    }

    /// The same with a weight of another name.
    pub fn with_weight(stage: &Stage, module: String, weight: ParameterId) -> Linear {
        let parameter = stage.store.parameter(weight);
        Linear {
            bias: stage.store.look_up(&format!("{module}.bias")),
            module,
            weight,
            inputs: parameter.columns,
            outputs: parameter.rows,
            is_embedding: parameter.is_embedding(),
        }
    }

    /// `y [tokens, outputs] = x [tokens, inputs] W^T`, rounded once.
    pub fn forward(&self, rank: &mut Rank, stage: &mut Pass<'_>, x: Tensor, y: Tensor) {
        stage.enter(rank, [self.weight].into_iter().chain(self.bias));
        let tokens = stage.shape.tokens();
        let weight = stage.store.value(self.weight);
        let params = [tokens, self.outputs, self.inputs, stage.round_code()];
        // Four rows an invocation.
        let grid = [self.outputs, tokens.div_ceil(4), 1];
        rank.module(&self.module, |rank| {
            rank.launch("forward", "matmul_nt", grid, &[x, weight, y], &params);
        });
    }

    /// Adds the bias, if there is one, to each row of `y [rows, outputs]`.
    pub fn add_bias(&self, rank: &mut Rank, stage: &Stage, y: Tensor) {
        let Some(bias) = self.bias else {
            return;
        };
        let operands = [y, stage.store.value(bias)];
        let params = [y.len, self.outputs, stage.round_code()];
        rank.module(&self.module, |rank| {
            rank.launch("bias", "bias_add", [y.len, 1, 1], &operands, &params);
        });
    }

    /// The bias's gradient, if there is one: the rows of `grad_y [rows, outputs]` in ascending
    /// order. The column sums of PyTorch and cuBLASLt use no atomics: the order is not free.
    pub fn bias_gradient(&self, rank: &mut Rank, stage: &mut Pass<'_>, grad_y: Tensor) {
        let Some(bias) = self.bias else {
            return;
        };
        let fold = SlotFold {
            family: Family::BiasGrad,
            addends: grad_y,
            slots: grad_y.len / self.outputs,
            out: stage.slot(bias),
            init: Init::First,
            order: LocalOrder::Ordered,
        };
        rank.module(&self.module, |rank| rank.fold("bias_grad", fold));
        stage.leave(rank, bias);
    }

    /// `grad_x [tokens, inputs] = grad_y [tokens, outputs] W`, rounded once.
    pub fn input_gradient(&self, rank: &mut Rank, stage: &Stage, grad_y: Tensor, grad_x: Tensor) {
        let tokens = stage.shape.tokens();
        let weight = stage.store.value(self.weight);
        let params = [tokens, self.inputs, self.outputs, stage.round_code()];
        // Four rows, four columns an invocation.
        let grid = [self.inputs / 4, tokens.div_ceil(4), 1];
        rank.module(&self.module, |rank| {
            rank.launch(
                "dgrad",
                "matmul_nn",
                grid,
                &[grad_y, weight, grad_x],
                &params,
            );
        });
    }

    /// `slot = grad_y^T x`, fp32: parts over tokens, then a fold over the parts. It is the weight's
    /// whole gradient, unless the embedding on this stage adds its own.
    pub fn weight_gradient(
        &self,
        rank: &mut Rank,
        stage: &mut Pass<'_>,
        grad_y: Tensor,
        x: Tensor,
    ) {
        let splits = stage.shape.wgrad_splits;
        let slot = stage.slot(self.weight);
        let whole = splits == 1;
        let parts = if whole {
            slot
        } else {
            stage.scratch.parts.slice(0, splits * slot.len)
        };
        let params = [stage.shape.tokens(), self.outputs, self.inputs, splits];
        let grid = [self.outputs / 4 * (self.inputs / 4), 1, splits];
        rank.module(&self.module, |rank| {
            rank.launch("wgrad", "matmul_wgrad", grid, &[grad_y, x, parts], &params);
            if !whole {
                let family = Family::WgradSplitK;
                let (out, order) = (slot, stage.wgrad_order());
                let fold = SlotFold {
                    family,
                    addends: parts,
                    slots: splits,
                    out,
                    init: Init::First,
                    order,
                };
                rank.fold("wgrad_sum", fold);
            }
        });
        if !self.is_embedding {
            stage.leave(rank, self.weight);
        }
    }
}
