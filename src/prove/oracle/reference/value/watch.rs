//! What a run computes on its way that no state holds: token losses, the gradients that optimizers
//! read, and what they clip by.

use std::collections::BTreeMap;

use crate::engine::{Engine, EngineError};
use crate::world::fold::{FoldLab, FoldNode};
use crate::world::{Family, LaunchNode, Observer};

/// Bits by (step, rank).
pub(super) type ByRank = BTreeMap<(u32, u32), Vec<u32>>;

/// Watches one run.
#[derive(Debug, Default)]
pub(in crate::prove::oracle::reference) struct ValueWatch {
    /// As each rank of a last stage adds them up.
    pub(super) token_losses: ByRank,
    /// What each rank's optimizer reads.
    pub(super) gradients: ByRank,
    /// Norm and coefficient of each rank.
    pub(super) clips: ByRank,
    /// Sums over microbatches of the magnitudes of what they add to each word, where there are
    /// several. Of one rank with one bucket.
    pub(super) magnitudes: Option<Vec<f64>>,
    /// Whether `magnitudes` are taken.
    measures: bool,
}

impl ValueWatch {
    /// Of the one rank of a serial run.
    pub(super) fn of_serial() -> ValueWatch {
        ValueWatch {
            measures: true,
            ..ValueWatch::default()
        }
    }

    fn measure(&mut self, addends: &[Vec<u32>]) {
        let mut sums = vec![0.0; addends.first().map_or(0, Vec::len)];
        for addend in addends {
            for (sum, word) in sums.iter_mut().zip(addend) {
                *sum += f64::from(f32::from_bits(*word)).abs();
            }
        }
        assert!(self.magnitudes.is_none(), "a serial run has one bucket");
        self.magnitudes = Some(sums);
    }
}

impl Observer for ValueWatch {
    fn on_fold(&mut self, node: &FoldNode, lab: &mut FoldLab<'_>) -> Result<(), EngineError> {
        let key = (node.id.step, node.ranks[0]);
        match node.family {
            Family::LossLocal => {
                let words = lab.addends(node)?.concat();
                self.token_losses.insert(key, words);
            }
            Family::MicrobatchAccumulation if self.measures => {
                let addends = lab.addends(node)?;
                self.measure(&addends);
            }
            _ => {}
        }
        Ok(())
    }

    fn on_launch(
        &mut self,
        node: &LaunchNode<'_>,
        engine: &mut dyn Engine,
    ) -> Result<(), EngineError> {
        if &*node.kernel.name == "adamw" {
            let key = (node.site.step, node.rank);
            let [gradients, clip] = [node.operands[0], node.operands[2]];
            self.gradients.insert(key, engine.read(gradients)?);
            self.clips.insert(key, engine.read(clip)?);
        }
        Ok(())
    }
}
