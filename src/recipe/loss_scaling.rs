//! How a job scales its loss, so that small gradients are not lost in a narrow format.
//!
//! Sources: Megatron-LM's `get_megatron_optimizer` (`core/optimizer/__init__.py`), which makes a
//! constant scaler where `loss_scale` is given, whatever the format, else a dynamic one for fp16
//! and none for bf16; `core/optimizer/grad_scaler.py`; the defaults of
//! `_add_mixed_precision_args`.

use serde::Serialize;

use crate::diagnostic::document::Reader;

/// Megatron-LM's arguments of the loss scale.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LossScaling {
    /// fp16 activations, weights and gradients with fp32 main parameters.
    #[serde(skip_serializing_if = "is_false")]
    pub fp16: bool,
    /// A scale that never changes; a dynamic one when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss_scale: Option<f32>,
    /// The dynamic scale of the first step; a power of two as a rule.
    #[serde(skip_serializing_if = "is_default_initial")]
    pub initial_loss_scale: f32,
    /// What the dynamic scale never falls below.
    #[serde(skip_serializing_if = "is_default_min")]
    pub min_loss_scale: f32,
    /// Steps in a row without an overflow, after which the scale doubles.
    #[serde(skip_serializing_if = "is_default_window")]
    pub loss_scale_window: u32,
    /// Overflows that it takes until the scale is halved.
    #[serde(skip_serializing_if = "is_default_hysteresis")]
    pub hysteresis: u32,
}

impl LossScaling {
    /// Megatron-LM's defaults.
    pub const DEFAULT: LossScaling = LossScaling {
        fp16: false,
        loss_scale: None,
        initial_loss_scale: 4_294_967_296.0,
        min_loss_scale: 1.0,
        loss_scale_window: 1000,
        hysteresis: 2,
    };
}

fn is_false(flag: &bool) -> bool {
    !flag
}

fn is_default_initial(scale: &f32) -> bool {
    *scale == LossScaling::DEFAULT.initial_loss_scale
}

fn is_default_min(scale: &f32) -> bool {
    *scale == LossScaling::DEFAULT.min_loss_scale
}

fn is_default_window(steps: &u32) -> bool {
    *steps == LossScaling::DEFAULT.loss_scale_window
}

fn is_default_hysteresis(overflows: &u32) -> bool {
    *overflows == LossScaling::DEFAULT.hysteresis
}

/// Scales whose doubles and inverses are normal numbers.
const SCALE_MIN: f32 = 1.0e-30;
const SCALE_MAX: f32 = 1.0e30;
/// Greatest window, and greatest number of overflows.
const STEPS_MAX: u32 = 1 << 30;

/// Keys of the dynamic scaler.
const DYNAMIC: [&str; 4] = [
    "initial_loss_scale",
    "min_loss_scale",
    "loss_scale_window",
    "hysteresis",
];

/// Reads the loss scale's keys of a recipe in fp16, in bf16 or in neither.
pub(super) fn read(reader: &mut Reader<'_>, fp16: bool, bf16: bool) -> LossScaling {
    let default = LossScaling::DEFAULT;
    let scales = || SCALE_MIN..=SCALE_MAX;
    let fixed = reader.real("loss_scale", scales(), Some(1.0));
    let mut dynamic = |key, value| reader.real(key, scales(), Some(value)).value;
    let initial_loss_scale = dynamic("initial_loss_scale", default.initial_loss_scale);
    let min_loss_scale = dynamic("min_loss_scale", default.min_loss_scale);
    let mut count = |key, value| reader.count(key, 1..=STEPS_MAX, Some(value)).value;
    let scaling = LossScaling {
        fp16,
        loss_scale: fixed.place.is_some().then_some(fixed.value),
        initial_loss_scale,
        min_loss_scale,
        loss_scale_window: count("loss_scale_window", default.loss_scale_window),
        hysteresis: count("hysteresis", default.hysteresis),
    };
    exclusions(reader, &scaling, bf16);
    scaling
}

fn exclusions(reader: &mut Reader<'_>, scaling: &LossScaling, bf16: bool) {
    let exclude = |reader: &mut Reader<'_>, key: &'static str, message: String, expected: &str| {
        if let Some(entry) = reader.entry(key) {
            reader.complain("excluded", message, &entry.item, expected);
        }
    };
    if scaling.fp16 && bf16 {
        let message = "`fp16` and `bf16` exclude each other".to_string();
        exclude(reader, "fp16", message, "expected one of the two");
    }
    if !scaling.fp16 && !bf16 {
        let message = "an fp32 recipe scales no loss".to_string();
        exclude(
            reader,
            "loss_scale",
            message,
            "expected a recipe with fp16 or bf16",
        );
    }
    if scaling.fp16 && scaling.loss_scale.is_none() {
        // `DynamicGradScaler.__init__` asserts it.
        let (min, initial) = (scaling.min_loss_scale, scaling.initial_loss_scale);
        if min > initial {
            let message = format!("the least scale, {min:e}, is above the first, {initial:e}");
            let is_least = reader.entry("min_loss_scale").is_some();
            let key = ["initial_loss_scale", "min_loss_scale"][usize::from(is_least)];
            let expected = "expected `min_loss_scale` of at most `initial_loss_scale`";
            if let Some(entry) = reader.entry(key) {
                reader.complain("excluded", message, &entry.item, expected);
            }
        }
        return;
    }
    for key in DYNAMIC {
        let message = format!("`{key}` is the dynamic loss scale's, and this recipe has none");
        let expected = "expected `fp16 = true` without `loss_scale`";
        exclude(reader, key, message, expected);
    }
}
