//! Parts of a layer that are computed again in its backward, and compared with the forward.

use super::{LayerSaved, TransformerLayer};
use crate::model::norm::Norm;
use crate::model::pass::Pass;
use crate::model::stage::Stage;
use crate::world::{Rank, Tensor};

/// A norm, its output and what it keeps of each row.
type NormRun<'a> = (&'a Norm, Tensor, Tensor);

impl TransformerLayer {
    pub(super) fn input_norm_run(&self, saved: &LayerSaved) -> NormRun<'_> {
        (&self.input_norm, saved.input_normed, saved.input_stats)
    }

    pub(super) fn mlp_norm_run(&self, saved: &LayerSaved) -> NormRun<'_> {
        (&self.mlp_norm, saved.mlp_normed, saved.mlp_stats)
    }

    pub(super) fn remember_norm(&self, rank: &mut Rank, stage: &Stage, run: NormRun<'_>) {
        if stage.recompute.parts().layernorm {
            let (norm, output, stats) = run;
            rank.remember(&norm.module, &[("output", output), ("stats", stats)]);
        }
    }

    pub(super) fn remember_attention(&self, rank: &mut Rank, stage: &Stage, saved: &LayerSaved) {
        if stage.recompute.parts().core_attention {
            let tensors = self.attention.core_tensors(&saved.attention);
            rank.remember(&self.attention.core, &tensors);
        }
    }

    pub(super) fn remember_mlp(
        &self,
        rank: &mut Rank,
        stage: &Stage,
        saved: &LayerSaved,
        partial: Tensor,
    ) {
        if stage.recompute.parts().mlp {
            let [fc1, activation] = saved.mlp.tensors();
            let tensors = [fc1, activation, ("output", partial)];
            rank.remember(&self.mlp.module, &tensors);
        }
    }

    /// The parts of the MLP's half, before its backward reads them.
    pub(super) fn rerun_mlp(&self, rank: &mut Rank, stage: &mut Pass<'_>, saved: &LayerSaved) {
        self.rerun_norm(rank, stage, self.mlp_norm_run(saved), saved.middle);
        if !stage.recompute.parts().mlp {
            return;
        }
        let reduced = stage.scratch.reduced;
        let partial = stage.partial_for(reduced);
        rank.module("recompute", |rank| {
            self.mlp
                .forward(rank, stage, &saved.mlp, saved.mlp_normed, partial);
            let [fc1, activation] = saved.mlp.tensors();
            let tensors = [fc1, activation, ("output", partial)];
            rank.expect(&self.mlp.module, &tensors);
            // What is checkpointed has the ranks' meeting in it, as in Megatron-LM.
            rank.module(&self.module, |rank| stage.reduce(rank, partial, reduced));
        });
    }

    /// The parts of the attention's half, whose norm has read `input`.
    pub(super) fn rerun_attention(
        &self,
        rank: &mut Rank,
        stage: &mut Pass<'_>,
        saved: &LayerSaved,
        input: Tensor,
        rng: Tensor,
    ) {
        self.rerun_norm(rank, stage, self.input_norm_run(saved), input);
        if !stage.recompute.parts().core_attention {
            return;
        }
        rank.module("recompute", |rank| {
            let rng = stage.restore_attention_rng(rank, rng);
            let again = self.attention.core_again(&saved.attention);
            self.attention
                .rerun_core(rank, stage, &again, self.attention_site(), rng);
            let tensors = self.attention.core_tensors(&again);
            rank.expect(&self.attention.core, &tensors);
        });
    }

    fn rerun_norm(&self, rank: &mut Rank, stage: &mut Pass<'_>, run: NormRun<'_>, x: Tensor) {
        if !stage.recompute.parts().layernorm {
            return;
        }
        let (norm, output, stats) = run;
        rank.module("recompute", |rank| {
            let local = stage.local_for(output);
            norm.forward(rank, stage, x, stats, local);
            self.gather(rank, stage, local, output);
            rank.expect(&norm.module, &[("output", output), ("stats", stats)]);
        });
    }
}
