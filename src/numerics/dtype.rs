//! Element types, and the rounding that each one implies.

use half::{bf16, f16};

/// The element type a buffer is tagged with.
///
/// Values of `Bf16` and `F16` live in memory as `f32` words that hold exactly representable
/// values; digests, wire bytes and checkpoints use the packed bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Dtype {
    F32,
    Bf16,
    F16,
    U32,
}

impl Dtype {
    /// The code that shaders take as a rounding parameter (`shaders/math/round.wgsl`).
    pub const fn code(self) -> u32 {
        match self {
            Dtype::F32 | Dtype::U32 => 0,
            Dtype::Bf16 => 1,
            Dtype::F16 => 2,
        }
    }

    /// Bytes of one element on the wire and in a checkpoint.
    pub const fn wire_bytes(self) -> u64 {
        match self {
            Dtype::F32 | Dtype::U32 => 4,
            Dtype::Bf16 | Dtype::F16 => 2,
        }
    }

    /// Significand bits, the hidden one included: `p` of the exactness rung.
    pub const fn precision_bits(self) -> u32 {
        match self {
            Dtype::F32 => 24,
            Dtype::F16 => 11,
            Dtype::Bf16 => 8,
            Dtype::U32 => 32,
        }
    }

    /// `value` rounded to nearest, ties to even, and widened back to `f32`.
    ///
    /// Every NaN becomes the canonical one, as a kernel's stores make it.
    pub fn round(self, value: f32) -> f32 {
        if value.is_nan() {
            return f32::from_bits(CANONICAL_NAN);
        }
        match self {
            Dtype::F32 | Dtype::U32 => value,
            Dtype::Bf16 => bf16::from_f32(value).to_f32(),
            Dtype::F16 => f16::from_f32(value).to_f32(),
        }
    }

    pub const fn name(self) -> &'static str {
        match self {
            Dtype::F32 => "f32",
            Dtype::Bf16 => "bf16",
            Dtype::F16 => "f16",
            Dtype::U32 => "u32",
        }
    }
}

impl std::fmt::Display for Dtype {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// The one NaN that arithmetic leaves behind (assumption A5).
pub const CANONICAL_NAN: u32 = 0x7fc0_0000;
