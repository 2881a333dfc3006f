//! The same recipe on other layouts of the same ranks: what a job is resumed on.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

use super::Recipe;
use crate::diagnostic::{Diagnostic, Source};

/// A layout in the notation of Megatron-LM's test names (`..._reshard_1x4xNone`): tensor-parallel
/// size, pipeline-parallel size, and the model chunks of a pipeline rank, `None` without
/// interleaving. Data parallelism follows from the number of ranks, which stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReshardLayout {
    pub tensor_model_parallel_size: u32,
    pub pipeline_model_parallel_size: u32,
    /// 1 is no interleaving.
    pub num_virtual_stages_per_pipeline_rank: u32,
}

/// A text that is no layout.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected TPxPPxVPP, such as 1x4xNone or 2x2x2; VPP is None or at least 2")]
pub struct ReshardLayoutError;

impl FromStr for ReshardLayout {
    type Err = ReshardLayoutError;

    fn from_str(text: &str) -> Result<Self, ReshardLayoutError> {
        let size = |text: &str| {
            let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
            let number = text
                .parse::<u32>()
                .ok()
                .filter(|size| *size > 0 && is_plain);
            number.ok_or(ReshardLayoutError)
        };
        let parts: Vec<&str> = text.split('x').collect();
        let [tensor, pipeline, chunks] = parts[..] else {
            return Err(ReshardLayoutError);
        };
        let chunks = match chunks {
            "None" => 1,
            chunks => size(chunks)?,
        };
        // One chunk has one spelling.
        if chunks == 1 && !text.ends_with("None") {
            return Err(ReshardLayoutError);
        }
        Ok(ReshardLayout {
            tensor_model_parallel_size: size(tensor)?,
            pipeline_model_parallel_size: size(pipeline)?,
            num_virtual_stages_per_pipeline_rank: chunks,
        })
    }
}

impl fmt::Display for ReshardLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (tensor, pipeline) = (
            self.tensor_model_parallel_size,
            self.pipeline_model_parallel_size,
        );
        match self.num_virtual_stages_per_pipeline_rank {
            1 => write!(f, "{tensor}x{pipeline}xNone"),
            chunks => write!(f, "{tensor}x{pipeline}x{chunks}"),
        }
    }
}

impl Serialize for ReshardLayout {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Recipe {
    /// The recipe's own layout.
    pub fn own_layout(&self) -> ReshardLayout {
        ReshardLayout {
            tensor_model_parallel_size: self.tensor_model_parallel_size,
            pipeline_model_parallel_size: self.pipeline_model_parallel_size,
            num_virtual_stages_per_pipeline_rank: self.num_virtual_stages_per_pipeline_rank,
        }
    }

    /// The recipe on another layout of its ranks, if every rule holds there, too. Sequence
    /// parallelism is off with one tensor-parallel rank, as Megatron-LM switches it off
    /// (`validate_args`).
    pub fn resharded(&self, layout: ReshardLayout) -> Result<Recipe, Vec<Diagnostic>> {
        let changed = self.moved(layout);
        if layout == self.own_layout() {
            return Ok(changed);
        }
        let text = toml::to_string(&changed).expect("plain data has a TOML form");
        let source = Source::new(format!("resharded to {layout}"), text);
        Recipe::from_source(&source).map(|(recipe, _)| recipe)
    }

    /// [`Recipe::resharded`], whatever the rules say of it.
    pub(crate) fn moved(&self, layout: ReshardLayout) -> Recipe {
        let mut changed = self.clone();
        if layout == self.own_layout() {
            return changed;
        }
        changed.tensor_model_parallel_size = layout.tensor_model_parallel_size;
        changed.pipeline_model_parallel_size = layout.pipeline_model_parallel_size;
        changed.num_virtual_stages_per_pipeline_rank = layout.num_virtual_stages_per_pipeline_rank;
        // Megatron-LM's default: one microbatch a stage before the next chunk's turn.
        changed.microbatch_group_size_per_virtual_pipeline_stage =
            layout.pipeline_model_parallel_size;
        changed.sequence_parallel &= layout.tensor_model_parallel_size > 1;
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(text: &str) -> Result<ReshardLayout, ReshardLayoutError> {
        text.parse()
    }

    fn recipe() -> Recipe {
        let text = include_str!("../../scenarios/recipes/gpt-tp2-pp2-dp4.toml");
        Recipe::from_source(&Source::new("recipe.toml", text))
            .expect("a shipped recipe")
            .0
    }

    #[test]
    fn layouts_are_written_as_megatrons_tests_write_them() {
        for text in ["1x4xNone", "2x2x2", "8x1xNone", "1x16x4"] {
            assert_eq!(layout(text).unwrap().to_string(), text);
        }
        for text in [
            "",
            "1x4",
            "1x4x",
            "1x4x1",
            "1x4x0",
            "0x4xNone",
            "1x0xNone",
            "1x4xNonex",
            "1x4xnone",
            "+1x4xNone",
            "-1x4xNone",
            "1x4xNone ",
            "1X4XNone",
            "99999999999x1xNone",
        ] {
            assert_eq!(layout(text), Err(ReshardLayoutError), "{text:?}");
        }
    }

    #[test]
    fn a_recipe_moves_to_layouts_that_its_rules_admit() {
        let recipe = recipe();
        assert_eq!(recipe.own_layout().to_string(), "2x2xNone");
        assert_eq!(recipe.resharded(recipe.own_layout()).unwrap(), recipe);
        let moved = recipe.resharded(layout("1x4xNone").unwrap()).unwrap();
        assert_eq!(moved.data_parallel_size(), recipe.data_parallel_size());
        assert!(recipe.sequence_parallel && !moved.sequence_parallel);
        for (bad, word) in [
            ("3x2xNone", "world_size"),
            ("1x8xNone", "num_layers"),
            ("8x1xNone", "num_attention_heads"),
        ] {
            let findings = recipe.resharded(layout(bad).unwrap()).unwrap_err();
            let named = findings
                .iter()
                .any(|finding| finding.message.contains(word));
            assert!(named, "{bad}: {findings:?}");
        }
    }
}
