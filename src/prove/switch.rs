//! Which sums each order switch of a recipe frees: one table for tokens, remedies and vacuity.

use crate::world::Family;

/// A switch of `[determinism]` by its key, and the family whose order it is.
const SWITCHES: [(&str, Family); 6] = [
    ("embedding_backward", Family::EmbeddingGrad),
    ("norm_weight_grad", Family::NormWeightGrad),
    ("wgrad_split_k", Family::WgradSplitK),
    ("microbatch_accumulation", Family::MicrobatchAccumulation),
    ("attention_backward", Family::AttentionGrad),
    // Megatron-LM reads both tables with `F.embedding`.
    ("embedding_backward", Family::PositionGrad),
];

/// The switch of a family; `None` for one whose order no recipe frees.
pub fn switch_of(family: Family) -> Option<&'static str> {
    let mut switches = SWITCHES.iter();
    switches.find(|(_, of)| *of == family).map(|(key, _)| *key)
}

/// Every family whose order the switch frees, the first of them first.
pub fn families_of(key: &str) -> impl Iterator<Item = Family> {
    let of_key = SWITCHES.iter().filter(move |(switch, _)| *switch == key);
    of_key.map(|(_, family)| *family)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recipe::{Autotune, Determinism, LocalOrder};

    #[test]
    fn every_switch_of_a_recipe_has_a_family_of_its_own() {
        let ordered = LocalOrder::Ordered;
        let determinism = Determinism {
            embedding_backward: ordered,
            norm_weight_grad: ordered,
            wgrad_split_k: ordered,
            microbatch_accumulation: ordered,
            attention_backward: ordered,
            wgrad_splits: 1,
            autotune: Autotune::Fixed,
        };
        for (key, _) in determinism.orders() {
            let families: Vec<Family> = families_of(key).collect();
            assert!(!families.is_empty(), "{key}");
            for family in families {
                assert_eq!(switch_of(family), Some(key));
            }
        }
        let tables = [Family::EmbeddingGrad, Family::PositionGrad];
        assert!(families_of("embedding_backward").eq(tables));
        assert_eq!(switch_of(Family::PositionGrad), Some("embedding_backward"));
        assert_eq!(switch_of(Family::NormGlobal), None);
    }
}
