//! The layouts that a scenario is resumed on: `checkpoint.reshard`.

use super::{FullSize, RESHARDS_MAX};
use crate::diagnostic::document::{Item, Reader, Value};
use crate::diagnostic::{Diagnostic, Place};
use crate::recipe::{Recipe, ReshardLayout};

/// Reads the layouts, each of which the recipe must admit.
pub(super) fn read(reader: &mut Reader<'_>, recipe: &Recipe) -> Vec<ReshardLayout> {
    let Some(items) = reader.array("reshard", "an array of layouts, TPxPPxVPP") else {
        return Vec::new();
    };
    if items.len() > RESHARDS_MAX {
        let label = format!("expected at most {RESHARDS_MAX} layouts");
        let message = "`checkpoint.reshard` is too long: each layout is run".to_string();
        reader.complain("too-many", message, &items[0], &label);
        return Vec::new();
    }
    let mut layouts = Vec::new();
    for item in items {
        let Some(layout) = one(reader, item) else {
            continue;
        };
        if layouts.contains(&layout) {
            let message = format!("`{layout}` is named twice");
            reader.complain("twice", message, item, "named before");
            continue;
        }
        match recipe.resharded(layout) {
            Ok(_) => layouts.push(layout),
            Err(findings) => refuse(reader, layout, item, findings),
        }
    }
    layouts
}

fn one(reader: &mut Reader<'_>, item: &Item) -> Option<ReshardLayout> {
    let Value::Text(text) = &item.value else {
        return reader
            .wrong_type("reshard", item, "a layout, TPxPPxVPP", None)
            .value;
    };
    match text.parse() {
        Ok(layout) => Some(layout),
        Err(error) => {
            let message = format!("`{text}` is no layout");
            reader.complain("unknown-layout", message, item, &format!("{error}"));
            None
        }
    }
}

/// What the recipe's rules say of the layout, at the place where it is named.
fn refuse(reader: &mut Reader<'_>, layout: ReshardLayout, item: &Item, findings: Vec<Diagnostic>) {
    for finding in findings {
        let message = format!("resumed on {layout}: {}", finding.message);
        let label = finding.place.map(|(_, label)| label).unwrap_or_default();
        let refused = Diagnostic::error(finding.code, message).at(&item.place, label);
        reader.findings.push(
            refused.with_note("the ranks stay, and data parallelism follows from their number"),
        );
    }
}

impl FullSize {
    /// The real job moved from layout `from` to layout `to` of its ranks; `None` where it has
    /// another layout than the scenario, or does not divide so.
    pub fn resharded(&self, from: ReshardLayout, to: ReshardLayout) -> Option<FullSize> {
        if from == to {
            return Some(*self);
        }
        let (tensor, pipeline) = (
            to.tensor_model_parallel_size,
            to.pipeline_model_parallel_size,
        );
        let is_alike = self.tensor_model_parallel_size == from.tensor_model_parallel_size
            && self.pipeline_model_parallel_size == from.pipeline_model_parallel_size;
        let divided = |number: u64, by: u64| {
            let quotient = number.is_multiple_of(by).then_some(number / by)?;
            u32::try_from(quotient).ok()
        };
        let model_ranks = u64::from(tensor) * u64::from(pipeline);
        let data = divided(self.world_size(), model_ranks).filter(|_| is_alike)?;
        let microbatches = u64::from(self.microbatch_count) * u64::from(self.data_parallel_size);
        let stages = u64::from(pipeline) * u64::from(to.num_virtual_stages_per_pipeline_rank);
        if let Some(model) = &self.model {
            divided(u64::from(model.num_layers), stages)?;
            for size in [
                model.hidden_size,
                model.ffn_hidden_size,
                model.num_attention_heads,
                model.num_query_groups,
                model.padded_vocab_size,
            ] {
                divided(u64::from(size), u64::from(tensor))?;
            }
        }
        Some(FullSize {
            tensor_model_parallel_size: tensor,
            pipeline_model_parallel_size: pipeline,
            data_parallel_size: data,
            microbatch_count: divided(microbatches, u64::from(data))?,
            ..*self
        })
    }
}

/// Layouts that nothing would be resumed on.
pub(super) fn nothing_to_resume(layouts: &[ReshardLayout], place: &Place) -> Option<Diagnostic> {
    let first = layouts.first()?;
    let message = format!("nothing is resumed on {first}");
    Some(
        Diagnostic::error("nothing-to-reshard", message)
            .at(place, "`reshard` needs the RES oracle and a restart")
            .with_help("name a restart, and RES in `oracles` where it is given"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_real_job_moves_along_where_it_divides() {
        let layout = |text: &str| text.parse::<ReshardLayout>().unwrap();
        let full = FullSize {
            tensor_model_parallel_size: 2,
            pipeline_model_parallel_size: 4,
            data_parallel_size: 16,
            microbatch_count: 6,
            micro_batch_size: 2,
            seq_length: 4096,
            wgrad_splits: 1,
            model: None,
        };
        let from = layout("2x4xNone");
        assert_eq!(full.resharded(from, from), Some(full));
        let moved = full.resharded(from, layout("1x4xNone")).unwrap();
        assert_eq!((moved.data_parallel_size, moved.microbatch_count), (32, 3));
        assert_eq!(moved.world_size(), full.world_size());
        // 96 microbatches for 64 ranks; 128 ranks in threes; a job on another layout.
        for (from, to) in [
            ("2x4xNone", "1x2xNone"),
            ("2x4xNone", "3x1xNone"),
            ("2x2xNone", "1x4xNone"),
        ] {
            assert_eq!(
                full.resharded(layout(from), layout(to)),
                None,
                "{from} {to}"
            );
        }
    }
}
