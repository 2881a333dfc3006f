//! Amplified retests: would a point that holds here hold with more addends, or less tame ones?
//!
//! Toy data pass too easily: bf16 values summed in f32 are insensitive in at least 99.97 % of the
//! elements as long as ranks share a scale. So the fold's own values are repeated to at least
//! eight addends, each scaled by another power of two, and summed in other orders.

use std::sync::Arc;

use crate::engine::EngineError;
use crate::numerics::Dtype;
use crate::numerics::ladder::portfolio;
use crate::plan::{Arithmetic, Init, Tree};
use crate::world::Family;
use crate::world::fold::{FoldLab, FoldNode};

use super::SweepOptions;
use super::elements::Elements;

/// Addends of a retest, at least.
const ADDENDS_MIN: usize = 8;
/// Elements of a retest, at most.
const ELEMENTS_MAX: usize = 1024;

/// Points that share a key share the retest's answer: the arithmetic decides it, not the place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    family: Family,
    choice: &'static str,
    arithmetic: Arithmetic,
}

impl Key {
    pub fn of(node: &FoldNode) -> Key {
        Key {
            family: node.family,
            choice: node.choice.name(),
            arithmetic: node.arithmetic(),
        }
    }
}

/// Whether amplified values of `node` have different sums in different orders.
pub(super) fn differs(
    options: &SweepOptions,
    node: &FoldNode,
    lab: &mut FoldLab<'_>,
) -> Result<bool, EngineError> {
    let elements = Elements::read(node, lab)?;
    let arithmetic = Arithmetic {
        init: Init::First,
        // The values below have been multiplied already.
        pre_multiply_bits: None,
        ..node.arithmetic()
    };
    let count = elements.count.min(ELEMENTS_MAX);
    let addends = amplified(&elements, count, arithmetic.addend);
    let n = addends.len();
    let mut chains = portfolio(&vec![0.0; n], options.seed)
        .into_iter()
        .map(|ring| Tree::Chain {
            ring: Arc::from(ring),
            start: 0,
        });
    let reference = chains
        .next()
        .expect("a portfolio starts with the reference order");
    let expected = lab.evaluate_values(arithmetic, &addends, &reference)?;
    for chain in chains {
        if lab.evaluate_values(arithmetic, &addends, &chain)? != expected {
            return Ok(true);
        }
    }
    Ok(false)
}

/// At least eight addends of `count` elements: the fold's own, repeated, addend k scaled by
/// 2^(3 (k mod 8)). A zero or a value without low bits is given some, so that a retest of
/// all-zero gradients says something.
fn amplified(elements: &Elements, count: usize, dtype: Dtype) -> Vec<Vec<u32>> {
    let mut addends = Vec::new();
    let mut element_addends: Vec<Vec<f32>> = (0..count)
        .map(|element| elements.multiplied(element))
        .collect();
    let n = element_addends
        .iter()
        .map(Vec::len)
        .max()
        .unwrap_or(1)
        .clamp(ADDENDS_MIN, 64);
    for (element, values) in element_addends.iter_mut().enumerate() {
        if values.is_empty() {
            values.push(0.0);
        }
        let own = values.len();
        for k in 0..n {
            let tame = if k < own { values[k] } else { values[k % own] };
            let value = dtype.round(scaled(tame, element, k));
            match values.get_mut(k) {
                Some(place) => *place = value,
                None => values.push(value),
            }
        }
    }
    for k in 0..n {
        addends.push(
            element_addends
                .iter()
                .map(|values| values[k].to_bits())
                .collect(),
        );
    }
    addends
}

fn scaled(value: f32, element: usize, k: usize) -> f32 {
    // 2^32 / golden ratio: a Weyl sequence gives every addend low bits of its own.
    let weyl = ((element * 31 + k + 1) as u32).wrapping_mul(0x9e37_79b9);
    let fraction = f32::from_bits(0x3f80_0000 | weyl >> 9);
    let base = if value == 0.0 || !value.is_finite() {
        1.0
    } else {
        value
    };
    let sign = if weyl & 1 == 0 { 1.0 } else { -1.0 };
    let power = f32::from_bits((127 + 3 * (k as u32 % 8)) << 23);
    sign * base * fraction * power
}
