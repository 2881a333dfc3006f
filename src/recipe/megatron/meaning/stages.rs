//! Model chunks of a pipeline rank, derived as `validate_args` derives them
//! (`megatron/training/arguments.py`).

use super::values::Values;
use crate::diagnostic::{Diagnostic, Findings};

/// The number of model chunks and the argument that it follows from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stages {
    pub chunks: u32,
    pub source: &'static str,
}

/// `None` without interleaving.
pub(super) fn stages(values: &Values<'_>, pp: u32, findings: &mut Findings) -> Option<Stages> {
    let pp = pp.max(1);
    let (chunks, source) = match values.resolved(RESOLVED) {
        Some(_) => resolved(values, pp, findings)?,
        None => asked(values, pp, findings)?,
    };
    (chunks > 1).then_some(Stages { chunks, source })
}

const RESOLVED: &str = "virtual_pipeline_model_parallel_size";

/// What a log shows came of everything that cuts layers into virtual stages.
fn resolved(values: &Values<'_>, pp: u32, findings: &mut Findings) -> Option<(u32, &'static str)> {
    if values.is_given(RESOLVED) {
        let chunks = values.count(RESOLVED)?;
        return Some((chunks, "virtual-pipeline-model-parallel-size"));
    }
    let (chunks, source) = asked(values, pp, &mut Findings::default())?;
    if chunks > 1 {
        let message = format!("no virtual stages, where {source} asks for {chunks}");
        findings.push(
            Diagnostic::error("contradiction", message)
                .at(values.place(RESOLVED), format!("expected {chunks}"))
                .with_note("validate_args sets it, and a log shows what it set")
                .with_help("give the block as one job printed it"),
        );
    }
    None
}

fn asked(values: &Values<'_>, pp: u32, findings: &mut Findings) -> Option<(u32, &'static str)> {
    hybrid(values, pp, findings)
        .or_else(|| custom(values, pp, findings))
        .or_else(|| {
            let chunks = values.count("num_virtual_stages_per_pipeline_rank")?;
            Some((chunks, "num-virtual-stages-per-pipeline-rank"))
        })
        .or_else(|| by_layers(values, pp, findings))
        .or_else(|| {
            let chunks = values.count(RESOLVED)?;
            Some((chunks, "virtual-pipeline-model-parallel-size"))
        })
}

/// A hybrid pattern's pipeline segments: `|` between them, multi-token prediction after a `/`.
fn hybrid(values: &Values<'_>, pp: u32, findings: &mut Findings) -> Option<(u32, &'static str)> {
    let (dest, pattern) = pattern(values)?;
    let main = pattern.split('/').next().unwrap_or_default();
    let segments = main.matches('|').count() as u32 + 1;
    // Without a `|` the layers are split evenly when the model is built.
    if segments == 1 && pp > 1 {
        return Some((1, "hybrid-layer-pattern"));
    }
    divided(segments, pp, "pipeline segments", values, dest, findings)
        .map(|chunks| (chunks, "hybrid-layer-pattern"))
}

/// The pattern of a hybrid model and the attribute that holds it.
pub(super) fn pattern<'v>(values: &'v Values<'_>) -> Option<(&'static str, &'v str)> {
    let named = |dest: &'static str| Some((dest, values.text(dest)?));
    named("hybrid_layer_pattern").or_else(|| named("hybrid_override_pattern"))
}

fn custom(values: &Values<'_>, pp: u32, findings: &mut Findings) -> Option<(u32, &'static str)> {
    let dest = "pipeline_model_parallel_layout";
    let layout = values.text(dest)?;
    let Some(count) = stage_count(layout) else {
        findings.push(
            Diagnostic::error(
                "pipeline-layout",
                "a pipeline layout that cannot be unrolled",
            )
            .at(values.place(dest), "expected such as `Et|(tt|)*6mL`"),
        );
        return None;
    };
    divided(count, pp, "stages", values, dest, findings)
        .map(|chunks| (chunks, "pipeline-model-parallel-layout"))
}

fn by_layers(values: &Values<'_>, pp: u32, findings: &mut Findings) -> Option<(u32, &'static str)> {
    let dest = "num_layers_per_virtual_pipeline_stage";
    let per_chunk = values.count(dest)?;
    let layers = values
        .count("num_layers")
        .or_else(|| values.count("decoder_num_layers"))?;
    let extra = u32::from(values.flag("account_for_embedding_in_pipeline_split"))
        + u32::from(values.flag("account_for_loss_in_pipeline_split"));
    let layers = layers.saturating_add(extra);
    if per_chunk == 0 || !layers.is_multiple_of(pp) || !(layers / pp).is_multiple_of(per_chunk) {
        let message = format!("{layers} layers on {pp} stages in chunks of {per_chunk}");
        findings.push(Diagnostic::error("does-not-divide", message).at(
            values.place(dest),
            "expected a divisor of the layers of a stage",
        ));
        return None;
    }
    Some((
        layers / pp / per_chunk,
        "num-layers-per-virtual-pipeline-stage",
    ))
}

fn divided(
    count: u32,
    pp: u32,
    what: &str,
    values: &Values<'_>,
    dest: &str,
    findings: &mut Findings,
) -> Option<u32> {
    if count.is_multiple_of(pp) {
        return Some(count / pp);
    }
    let message = format!("{count} {what} for a pipeline of {pp}");
    findings.push(
        Diagnostic::error("does-not-divide", message)
            .at(values.place(dest), format!("expected a multiple of {pp}")),
    );
    None
}

/// Longest unrolled layout: far above any pipeline, far below what a bomb would ask for.
const LAYOUT_CHARS_MAX: usize = 1 << 16;

/// Stages of a layout such as `Et|(tt|)*6mL`: `|` separates them, `*n` repeats a layer or a group
/// (`PipelineParallelLayerLayout.parse_str_to_list`).
fn stage_count(layout: &str) -> Option<u32> {
    let chars: Vec<char> = layout.chars().filter(|c| *c != ',' && *c != ' ').collect();
    let mut unrolled = 0usize;
    let mut bars = 0usize;
    let mut at = 0;
    while at < chars.len() {
        let (unit, after) = match chars[at] {
            '(' => {
                let close = at + chars[at..].iter().position(|c| *c == ')')?;
                (&chars[at + 1..close], close + 1)
            }
            ')' | '*' => return None,
            _ => (&chars[at..=at], at + 1),
        };
        let (times, after) = repetition(&chars, after)?;
        let unit_bars = unit.iter().filter(|c| **c == '|').count();
        unrolled = unrolled.checked_add(unit.len().checked_mul(times)?)?;
        bars = bars.checked_add(unit_bars.checked_mul(times)?)?;
        if unrolled > LAYOUT_CHARS_MAX {
            return None;
        }
        at = after;
    }
    u32::try_from(bars + 1).ok()
}

/// `*n` at `at`, and where it ends; once where there is none.
fn repetition(chars: &[char], at: usize) -> Option<(usize, usize)> {
    if chars.get(at) != Some(&'*') {
        return Some((1, at));
    }
    let digits: String = chars[at + 1..]
        .iter()
        .take_while(|c| c.is_ascii_digit())
        .collect();
    let times = digits.parse().ok()?;
    Some((times, at + 1 + digits.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_of_a_layout_are_counted_unrolled() {
        for (layout, count) in [
            ("Et|(tt|)*6mL", Some(8)),
            ("E|(tt|)*2,(t|)*4,mL", Some(8)),
            ("Et*3|(tt|)*29,m|L", Some(32)),
            ("EtttL", Some(1)),
            ("E||L", Some(3)),
            ("t*0|", Some(2)),
            ("", Some(1)),
            ("(t|", None),
            ("t|)*2", None),
            ("*3", None),
            ("t*", None),
            ("(t|)*99999999", None),
            ("(t|)*99999999999999999999999", None),
        ] {
            assert_eq!(stage_count(layout), count, "{layout}");
        }
    }
}
