//! The MLP: `linear_fc1` (column parallel), an activation, `linear_fc2` (row parallel). SwiGLU
//! (Shazeer, arXiv:2002.05202) has gate and up fused in `linear_fc1`; else it is the tanh
//! approximation of GELU, fused with fc1's bias (Megatron-LM, fused_bias_gelu.py).

use crate::model::linear::Linear;
use crate::model::pass::Pass;
use crate::model::stage::Stage;
use crate::world::{Rank, Tensor};

#[derive(Clone, Debug)]
pub struct Mlp {
    pub module: String,
    activation: String,
    fc1: Linear,
    /// Its bias is added by the layer, after the tensor-parallel ranks have met.
    pub fc2: Linear,
}

/// What backward needs of one microbatch.
#[derive(Clone, Copy, Debug)]
pub struct MlpSaved {
    /// `[tokens, 2, ffn]`: gate, then up, with their biases; `[tokens, ffn]` without its bias
    /// for GELU.
    fc1: Tensor,
    /// `[tokens, ffn]`.
    activation: Tensor,
}

impl MlpSaved {
    pub fn allocate(rank: &mut Rank, stage: &Stage, name: &str) -> MlpSaved {
        let words = stage.shape.tokens() * stage.shape.local_ffn();
        let dtype = stage.shape.params_dtype;
        let halves = stage.shape.fc1_halves();
        MlpSaved {
            fc1: rank.alloc(&format!("{name}.fc1"), dtype, halves * words),
            activation: rank.alloc(&format!("{name}.activation"), dtype, words),
        }
    }
}

impl MlpSaved {
    /// Everything that the forward writes, by name.
    pub fn tensors(&self) -> [(&'static str, Tensor); 2] {
        [("mlp.fc1", self.fc1), ("mlp.activation", self.activation)]
    }
}

impl Mlp {
    pub fn new(stage: &Stage, module: &str) -> Mlp {
        let activation = if stage.shape.swiglu { "swiglu" } else { "gelu" };
        Mlp {
            module: module.to_string(),
            activation: format!("{module}.{activation}"),
            fc1: Linear::new(stage, format!("{module}.linear_fc1")),
            fc2: Linear::new(stage, format!("{module}.linear_fc2")),
        }
    }

    /// Writes this rank's partial output `[tokens, hidden]` for `x [tokens, hidden]`, without
    /// fc2's bias.
    pub fn forward(
        &self,
        rank: &mut Rank,
        stage: &mut Pass<'_>,
        saved: &MlpSaved,
        x: Tensor,
        partial: Tensor,
    ) {
        self.fc1.forward(rank, stage, x, saved.fc1);
        if stage.shape.swiglu {
            self.fc1.add_bias(rank, stage, saved.fc1);
        }
        self.activate(rank, stage, "forward", &[saved.fc1, saved.activation]);
        self.fc2.forward(rank, stage, saved.activation, partial);
    }

    /// Writes the partial gradient `[tokens, hidden]` of the input `x`, from `grad_y` of all
    /// tokens.
    pub fn backward(
        &self,
        rank: &mut Rank,
        stage: &mut Pass<'_>,
        saved: &MlpSaved,
        x: Tensor,
        grad_y: Tensor,
        grad_x: Tensor,
    ) {
        let (grad_activation, grad_fc1) = (stage.scratch.grad_activation, stage.scratch.grad_fc1);
        self.fc2
            .input_gradient(rank, stage, grad_y, grad_activation);
        self.fc2
            .weight_gradient(rank, stage, grad_y, saved.activation);
        let operands = [saved.fc1, grad_activation, grad_fc1];
        self.activate(rank, stage, "backward", &operands);
        self.fc1.bias_gradient(rank, stage, grad_fc1);
        self.fc1.input_gradient(rank, stage, grad_fc1, grad_x);
        self.fc1.weight_gradient(rank, stage, grad_fc1, x);
    }

    /// The activation's `forward` or `backward` kernel: fc1's output comes first in both.
    fn activate(&self, rank: &mut Rank, stage: &Stage, op: &str, operands: &[Tensor]) {
        let ffn = stage.shape.local_ffn();
        let (count, round) = (stage.shape.tokens() * ffn, stage.round_code());
        rank.module(&self.activation, |rank| {
            if stage.shape.swiglu {
                let kernel = format!("swiglu_{op}");
                rank.launch(op, &kernel, [count, 1, 1], operands, &[count, ffn, round]);
            } else {
                let bias = self.fc1.bias.map(|bias| stage.store.value(bias));
                // Without a bias the kernel does not read the operand.
                let mut operands = operands.to_vec();
                operands.insert(1, bias.unwrap_or(operands[0]));
                let params = [count, ffn, u32::from(bias.is_some()), round];
                let kernel = format!("gelu_{op}");
                rank.launch(op, &kernel, [count, 1, 1], &operands, &params);
            }
        });
    }
}
