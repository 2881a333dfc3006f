//! Activation recomputation: which activations a stage keeps, and which it computes again in the
//! backward (Megatron-LM, `--recompute-granularity`; transformer_block.py `_checkpointed_forward`).

use std::ops::Range;

use crate::recipe::RecomputeMethod;

/// What is computed again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recompute {
    Nothing,
    /// Whole layers.
    Full {
        method: RecomputeMethod,
        layers: u32,
    },
    /// Parts of every layer.
    Selective(Selective),
}

/// Parts of a layer, as `--recompute-modules` names them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Selective {
    /// `core_attn`: scores, softmax, dropout, context.
    pub core_attention: bool,
    /// `mlp`: both linears and the activation.
    pub mlp: bool,
    /// `layernorm`: both norms.
    pub layernorm: bool,
}

impl Recompute {
    /// Runs of layers that are computed again together, of a stage with `layers`: ascending,
    /// disjoint.
    pub fn units(self, layers: u32) -> Vec<Range<u32>> {
        match self {
            Recompute::Full {
                method: RecomputeMethod::Uniform,
                layers: each,
            } => {
                let starts = (0..layers).step_by(each as usize);
                starts
                    .map(|start| start..start.saturating_add(each).min(layers))
                    .collect()
            }
            Recompute::Full {
                method: RecomputeMethod::Block,
                layers: first,
            } => (0..first.min(layers))
                .map(|layer| layer..layer + 1)
                .collect(),
            Recompute::Nothing | Recompute::Selective(_) => Vec::new(),
        }
    }

    /// Parts of each layer that are computed again.
    pub fn parts(self) -> Selective {
        match self {
            Recompute::Selective(parts) => parts,
            Recompute::Nothing | Recompute::Full { .. } => Selective::default(),
        }
    }

    /// Layers whose activations a stage has memory for beside those that microbatches keep.
    pub fn workspace_layers(self, layers: u32) -> u32 {
        let units = self.units(layers).into_iter();
        let longest = units.map(|unit| unit.end - unit.start).max();
        longest.unwrap_or(u32::from(self.parts() != Selective::default()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uniform_units_cover_all_layers_and_block_the_first() {
        let full = |method, layers| Recompute::Full { method, layers };
        let uniform = full(RecomputeMethod::Uniform, 2);
        assert_eq!(uniform.units(5), [0..2, 2..4, 4..5]);
        assert_eq!(uniform.workspace_layers(5), 2);
        assert_eq!(full(RecomputeMethod::Uniform, 9).units(5), vec![0..5]);
        let block = full(RecomputeMethod::Block, 2);
        assert_eq!(block.units(5), [0..1, 1..2]);
        assert_eq!(block.workspace_layers(5), 1);
        assert_eq!(full(RecomputeMethod::Block, 9).units(1), vec![0..1]);
    }

    #[test]
    fn selective_recomputes_no_whole_layer() {
        let mlp = Selective {
            mlp: true,
            ..Selective::default()
        };
        let selective = Recompute::Selective(mlp);
        assert_eq!((selective.units(4), selective.parts()), (Vec::new(), mlp));
        assert_eq!(selective.workspace_layers(4), 1);
        assert_eq!(Recompute::Nothing.workspace_layers(4), 0);
    }
}
