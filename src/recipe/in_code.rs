//! Recipes made in a program rather than in a file.

use super::{Determinism, LocalOrder, Recipe};
use crate::diagnostic::{Diagnostic, InvalidInput, Source};

/// The least job with data parallelism that trains: every key that has no default, at its least
/// sensible value.
const SMALL: &str = "\
world_size = 2
num_layers = 1
hidden_size = 16
ffn_hidden_size = 16
num_attention_heads = 4
seq_length = 8
micro_batch_size = 1
global_batch_size = 2
train_iters = 2
lr = 5e-3
";

impl Recipe {
    /// A recipe from a text in the form of a recipe file. Keys that are left out have the defaults
    /// that a file would have.
    ///
    /// # Errors
    /// Everything that is wrong with the text, with line and caret.
    pub fn from_toml(text: &str) -> Result<Recipe, InvalidInput> {
        let (recipe, _) = Recipe::from_source(&Source::new("<recipe>", text))?;
        Ok(recipe)
    }

    /// TP 1, PP 1, DP 2; one layer 16 wide with four heads; one sequence of 8 bytes a rank; fp32;
    /// two steps; every order fixed. A start for `Recipe { num_layers: 4, ..Recipe::small() }`.
    ///
    /// All fields are numbers, not rules: who changes `num_attention_heads` changes
    /// `num_query_groups` and `kv_channels` along with it. [`Recipe::from_toml`] derives them.
    pub fn small() -> Recipe {
        Recipe::from_toml(SMALL).expect("the small recipe is sound")
    }

    /// The recipe, if every rule between its values holds.
    ///
    /// # Errors
    /// The rules that are broken, in the text that the recipe would have in a file.
    pub fn validated(self) -> Result<Recipe, InvalidInput> {
        let text = toml::to_string(&self).expect("plain data has a TOML form");
        let read = Recipe::from_toml(&text)?;
        if read == self {
            return Ok(self);
        }
        let message = "the recipe is another one when it is read from a file";
        Err(Diagnostic::error("not-canonical", message).into())
    }
}

impl Determinism {
    /// Every order fixed, and weight gradients in one part.
    pub const ORDERED: Determinism = Determinism {
        embedding_backward: LocalOrder::Ordered,
        norm_weight_grad: LocalOrder::Ordered,
        wgrad_split_k: LocalOrder::Ordered,
        microbatch_accumulation: LocalOrder::Ordered,
        attention_backward: LocalOrder::Ordered,
        wgrad_splits: 1,
    };

    /// The same with one switch, named by its key in a recipe, in another position. `None` for a
    /// key that is no order switch.
    #[must_use]
    pub fn with_order(mut self, key: &str, order: LocalOrder) -> Option<Determinism> {
        let switch = match key {
            "embedding_backward" => &mut self.embedding_backward,
            "norm_weight_grad" => &mut self.norm_weight_grad,
            "wgrad_split_k" => &mut self.wgrad_split_k,
            "microbatch_accumulation" => &mut self.microbatch_accumulation,
            "attention_backward" => &mut self.attention_backward,
            _ => return None,
        };
        *switch = order;
        Some(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_small_recipe_is_sound_and_small() {
        let small = Recipe::small();
        assert_eq!(small.clone().validated().unwrap(), small);
        assert_eq!(small.data_parallel_size(), 2);
        assert_eq!(small.determinism, Determinism::ORDERED);
    }

    #[test]
    fn a_recipe_in_code_is_held_to_the_rules_of_a_file() {
        let odd = Recipe {
            world_size: 3,
            tensor_model_parallel_size: 2,
            ..Recipe::small()
        };
        let refused = odd.validated().unwrap_err();
        assert_eq!(refused.diagnostics()[0].code, "does-not-divide");
        let shown = refused.to_string();
        assert!(
            shown.contains("world_size = 3") && shown.contains('^'),
            "{shown}"
        );
        for lr in [f32::NAN, f32::INFINITY, -1.0] {
            let recipe = Recipe {
                lr,
                ..Recipe::small()
            };
            assert!(recipe.validated().is_err(), "lr = {lr}");
        }
        assert!(Recipe::from_toml("world_size = ").is_err());
    }

    #[test]
    fn every_order_switch_can_be_flipped_and_nothing_else() {
        for (key, _) in Determinism::ORDERED.orders() {
            let flipped = Determinism::ORDERED.with_order(key, LocalOrder::Arrival);
            let orders = flipped.expect("a switch").orders();
            for (other, order) in orders {
                assert_eq!(order == LocalOrder::Arrival, other == key, "{key}, {other}");
            }
        }
        assert_eq!(
            Determinism::ORDERED.with_order("wgrad_splits", LocalOrder::Arrival),
            None
        );
    }
}
