//! How many addends each family of sums has, here and at full size.

use crate::prove::sweep::FullSizeAddends;
use crate::recipe::KV_CHANNELS_MAX;
use crate::scenario::{FullSize, Scenario};
use crate::train::CommunicatorKind;
use crate::world::{Family, GroupId};

/// Sizes of the scenario and of the job that it stands for.
#[derive(Clone, Debug)]
pub struct FullSizeCounts {
    here: FullSize,
    full: FullSize,
    /// What each communicator joins.
    kinds: Vec<CommunicatorKind>,
    /// Optimizer state is sharded over data-parallel ranks, so the norm is a sum over the world.
    sharded: bool,
    sequence_parallel: bool,
    clips: bool,
}

/// Keys of a block of the fused attention's backward, each of which adds its part to a query's
/// gradient: `kBlockN` of FlashAttention-2 (`flash_bwd_launch_template.h`) on GPUs with the shared
/// memory of an A100 or H100, for heads of at most 128. cuDNN's blocks are not published.
const KEYS_A_BLOCK: u64 = 128;
const _: () = assert!(KV_CHANNELS_MAX <= 128, "wider heads have shorter blocks");

impl FullSizeCounts {
    /// Without `[full_size]` the scenario stands for itself.
    pub fn of(scenario: &Scenario, kinds: Vec<CommunicatorKind>) -> FullSizeCounts {
        let recipe = &scenario.recipe;
        let here = FullSize::of(recipe);
        FullSizeCounts {
            here,
            full: scenario.full_size.unwrap_or(here),
            kinds,
            sharded: recipe.use_distributed_optimizer,
            sequence_parallel: recipe.sequence_parallel,
            clips: recipe.clip_grad > 0.0,
        }
    }

    /// Families whose addends are a size of the layout or of the batch: (family, here, full).
    pub fn of_layout(&self) -> Vec<(Family, u64, u64)> {
        let mut families = vec![
            Family::TensorParallel,
            Family::VocabCrossEntropy,
            Family::DpGradients,
            Family::LossMean,
            Family::MicrobatchAccumulation,
            Family::WgradSplitK,
        ];
        if self.sequence_parallel {
            families.push(Family::NormWeightTp);
        }
        if self.clips {
            families.push(Family::NormGlobal);
        }
        let count = |family| {
            let of = |size| self.layout_size(family, size);
            (family, of(&self.here), of(&self.full))
        };
        families.into_iter().map(count).collect()
    }

    fn layout_size(&self, family: Family, size: &FullSize) -> u64 {
        let tensor = u64::from(size.tensor_model_parallel_size);
        match family {
            Family::DpGradients | Family::FirstBuckets | Family::LossMean => {
                u64::from(size.data_parallel_size)
            }
            Family::MicrobatchAccumulation => u64::from(size.microbatch_count),
            Family::WgradSplitK => u64::from(size.wgrad_splits),
            Family::NormGlobal if self.sharded => size.world_size(),
            Family::NormGlobal => tensor * u64::from(size.pipeline_model_parallel_size),
            _ => tensor,
        }
    }

    /// Tokens of one microbatch, of which sums over tokens have a share.
    fn tokens(size: &FullSize) -> u64 {
        u64::from(size.seq_length) * u64::from(size.micro_batch_size)
    }
}

impl FullSizeAddends for FullSizeCounts {
    fn addends(&self, family: Family, group: Option<GroupId>, here: u32) -> u32 {
        let (own, full) = (&self.here, &self.full);
        let grown = |full: u64, own: u64| u64::from(here).saturating_mul(full).div_ceil(own.max(1));
        let tensor = u64::from(full.tensor_model_parallel_size);
        let kind = group.map(|group| self.kinds[group.0 as usize]);
        let addends = match (kind, family) {
            (Some(CommunicatorKind::TensorParallel), _) => tensor,
            (Some(CommunicatorKind::DataParallel), _) => u64::from(full.data_parallel_size),
            (Some(CommunicatorKind::ModelParallel), _) => {
                tensor * u64::from(full.pipeline_model_parallel_size)
            }
            (Some(CommunicatorKind::World), _) => full.world_size(),
            // Two stages share the matrix, however many there are.
            (Some(CommunicatorKind::Embedding), _) => 2,
            // The scenario does not say how many instances the real job has: as many as here.
            (Some(CommunicatorKind::IntraInstance), _) => grown(
                u64::from(full.data_parallel_size),
                u64::from(own.data_parallel_size),
            ),
            (Some(CommunicatorKind::InterInstance), _) => u64::from(here),
            (Some(CommunicatorKind::Instance), _) => grown(full.world_size(), own.world_size()),
            // A rank's own half of a reduction: the ranks of its optimizer instance.
            (None, Family::DpGradients) => grown(
                u64::from(full.data_parallel_size),
                u64::from(own.data_parallel_size),
            ),
            (None, Family::WgradSplitK | Family::MicrobatchAccumulation) => {
                self.layout_size(family, full)
            }
            (None, Family::EmbeddingGrad | Family::NormWeightGrad | Family::BiasGrad) => {
                grown(Self::tokens(full), Self::tokens(own))
            }
            (None, Family::PositionGrad) => grown(
                u64::from(full.micro_batch_size),
                u64::from(own.micro_batch_size),
            ),
            (None, Family::LossLocal) => {
                let of_step = |size| Self::tokens(size) * u64::from(size.microbatch_count);
                grown(of_step(full), of_step(own))
            }
            // Never fewer than here, where a short sequence is cut into shorter blocks.
            (None, Family::AttentionGrad) => {
                let blocks = u64::from(full.seq_length).div_ceil(KEYS_A_BLOCK);
                blocks.max(u64::from(here))
            }
            // Sums over parameters: how a kernel splits them is its own matter.
            (None, _) => u64::from(here),
        };
        u32::try_from(addends).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_has_as_many_blocks_as_the_real_sequence() {
        let recipe = include_str!("../../scenarios/recipes/gpt-tp2-pp2-dp4.toml");
        let counted = |full: &str| {
            let text = format!("{recipe}\n");
            let source = crate::diagnostic::Source::new("recipe.toml", text);
            let path = std::path::Path::new("recipe.toml");
            let overrides = crate::scenario::Overrides {
                set: full.split_whitespace().map(str::to_string).collect(),
                ..Default::default()
            };
            let loaded = Scenario::from_source(&source, path, &overrides).expect("it is sound");
            let counts = FullSizeCounts::of(&loaded.scenario, Vec::new());
            counts.addends(Family::AttentionGrad, None, 8)
        };
        assert_eq!(counted(""), 8, "the scenario stands for itself");
        assert_eq!(counted("full_size.seq_length=4096"), 32);
        assert_eq!(counted("full_size.seq_length=4097"), 33);
        assert_eq!(
            counted("full_size.seq_length=64"),
            8,
            "never fewer than here"
        );
    }
}
