//! Sums to test the rungs with, biased to where additions go wrong: signed zeros, subnormals, the
//! edge of overflow, cancellation, powers of two, equal magnitudes, values at rounding boundaries.

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use super::exact::largest_finite;
use super::sum::{Start, Sum};
use crate::numerics::Dtype;

/// A sum that owns its addends.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub addends: Vec<f32>,
    pub start: Start,
    pub types: Types,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Types {
    addend: Dtype,
    partial: Dtype,
    out: Dtype,
}

impl Case {
    pub fn sum(&self) -> Sum<'_> {
        let Types {
            addend,
            partial,
            out,
        } = self.types;
        Sum {
            addends: &self.addends,
            start: self.start,
            addend,
            partial,
            out,
        }
    }

    pub fn leaves(&self) -> usize {
        self.addends.len() + usize::from(self.start != Start::First)
    }
}

/// Rounding at each addition, and once at the end; addends narrower and wider than the partials.
const TYPES: [[Dtype; 3]; 11] = {
    use Dtype::{Bf16, F16, F32};
    [
        [F32, F32, F32],
        [Bf16, F32, Bf16],
        [F16, F32, F16],
        [Bf16, F32, F32],
        [Bf16, Bf16, Bf16],
        [F16, F16, F16],
        [F32, F32, Bf16],
        [F32, F32, F16],
        [F32, Bf16, Bf16],
        [F32, F16, F16],
        [F16, Bf16, Bf16],
    ]
};

/// How one addend is made from random bits.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Zero,
    PowerOfTwo,
    SmallInteger,
    FullInteger,
    Spread,
    AnyFinite,
    NearLargest,
    Subnormal,
    NegatedNeighbour,
    Neighbour,
}

use Kind::*;

/// Kinds that occur together.
const FAMILIES: [&[Kind]; 9] = [
    &[
        Zero,
        PowerOfTwo,
        SmallInteger,
        SmallInteger,
        NegatedNeighbour,
        Neighbour,
    ],
    &[
        PowerOfTwo,
        PowerOfTwo,
        FullInteger,
        SmallInteger,
        NegatedNeighbour,
    ],
    &[
        NearLargest,
        NearLargest,
        PowerOfTwo,
        NegatedNeighbour,
        Neighbour,
        SmallInteger,
    ],
    &[Subnormal, Subnormal, Zero, NegatedNeighbour, Neighbour],
    &[AnyFinite, AnyFinite, NegatedNeighbour],
    &[
        Zero,
        PowerOfTwo,
        SmallInteger,
        FullInteger,
        AnyFinite,
        NearLargest,
        Subnormal,
        Neighbour,
    ],
    &[Zero, Zero, NegatedNeighbour, Subnormal],
    &[Spread],
    &[Spread, Spread, NegatedNeighbour, PowerOfTwo],
];

/// Cases of 1 to `most` addends.
pub(super) fn cases(most: usize) -> impl Strategy<Value = Case> {
    let raw = proptest::collection::vec(any::<u64>(), 1..=most);
    let start = (0..4u8, any::<u64>());
    (0..TYPES.len(), 0..FAMILIES.len(), any::<u8>(), start, raw).prop_map(
        |(types, family, scale, (start, base), raw)| {
            let [addend, partial, out] = TYPES[types];
            let types = Types {
                addend,
                partial,
                out,
            };
            let maker = Maker {
                types,
                kinds: FAMILIES[family],
                scale: scale_of(partial, scale),
            };
            let mut addends = Vec::with_capacity(raw.len());
            for bits in raw {
                let x = maker.value(bits, addends.last().copied(), addend);
                addends.push(x);
            }
            let start = match start {
                0 => Start::Zero,
                1 => Start::Base(maker.value(base, addends.first().copied(), partial)),
                _ => Start::First,
            };
            Case {
                addends,
                start,
                types,
            }
        },
    )
}

/// The exponent that the values of one case lie around: ordinary, or an end of the range.
fn scale_of(partial: Dtype, choice: u8) -> i32 {
    let (lowest, highest) = match partial {
        Dtype::F16 => (-24, 15),
        Dtype::Bf16 => (-133, 127),
        Dtype::F32 | Dtype::U32 => (-149, 127),
    };
    let offset = i32::from(choice >> 2) % 12;
    match choice % 4 {
        0 => lowest + offset - 3,
        1 => highest - offset,
        _ => offset - 6,
    }
}

struct Maker {
    types: Types,
    kinds: &'static [Kind],
    scale: i32,
}

impl Maker {
    fn value(&self, bits: u64, neighbour: Option<f32>, dtype: Dtype) -> f32 {
        let kind = self.kinds[(bits >> 32) as usize % self.kinds.len()];
        let small = (bits >> 40 & 0xff) as i32;
        let scale = 2f64.powi(self.scale);
        let precision = self.types.partial.precision_bits();
        let magnitude = match kind {
            Zero => 0.0,
            PowerOfTwo => scale * 2f64.powi(small % 30 - 2),
            SmallInteger => scale * f64::from(small % 16),
            FullInteger => scale * ((bits & 0xffff_ffff) >> (32 - precision)) as f64,
            Spread => scale * (bits & 0xff_ffff) as f64 * 2f64.powi(small % 12 - 24),
            AnyFinite => f64::from(f32::from_bits(bits as u32 & 0x7f7f_ffff)),
            NearLargest => f64::from(largest_finite(self.types.partial)) / f64::from(small % 4 + 1),
            Subnormal => f64::from(small) * 2f64.powi(if small % 3 == 0 { -149 } else { -25 }),
            NegatedNeighbour => f64::from(-neighbour.unwrap_or(1.0)),
            Neighbour => f64::from(neighbour.unwrap_or(1.0)),
        };
        let negative = bits >> 63 == 1 && !matches!(kind, NegatedNeighbour | Neighbour);
        let x = dtype.round(if negative { -magnitude } else { magnitude } as f32);
        let largest = largest_finite(dtype);
        x.clamp(-largest, largest)
    }
}

/// A runner whose cases are the same in each run.
pub(super) fn runner(cases: u32) -> TestRunner {
    let config = Config {
        cases,
        failure_persistence: None,
        ..Config::default()
    };
    TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha))
}

/// The first case of at most `draws` that satisfies `wanted`.
pub(super) fn find_case(most: usize, draws: u32, wanted: impl Fn(&Case) -> bool) -> Option<Case> {
    let (strategy, mut runner) = (cases(most), runner(draws));
    (0..draws)
        .map(|_| {
            strategy
                .new_tree(&mut runner)
                .expect("no case is rejected")
                .current()
        })
        .find(wanted)
}
