//! Two plans of one sum on values that ranks have captured: where the bits differ, by how much, and
//! what proves that they do not.

use std::collections::BTreeMap;
use std::ops::Range;

use rayon::prelude::*;

use super::evaluate::Folded;
use crate::numerics::Dtype;
use crate::numerics::ladder::{
    MIN_MAX_ADDENDS, OrderClass, Rung, l0, l1_exact, l2_absorbed, l3_min_max,
};
use crate::plan::{Plan, Tree};

/// Addends up to which all orders are looked at together (L3): 12 would be half a millisecond each.
const L3_ADDENDS: usize = if MIN_MAX_ADDENDS < 8 {
    MIN_MAX_ADDENDS
} else {
    8
};
/// Elements that one thread takes at a time.
const CHUNK: u64 = 16_384;

/// A plan that is no plain sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("only sums are tried on values: no averages or maxima")]
pub struct NotASum;

/// One element whose bits differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Differing {
    pub element: u64,
    /// Bits of f32.
    pub a: u32,
    pub b: u32,
    /// Values of the result's type from one to the other; `None` where one is no number.
    pub ulps: Option<u64>,
}

/// What two plans make of the same values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Compared {
    pub elements: u64,
    /// Elements whose bits do not differ, by what shows it. P: they have one tree, whatever the
    /// values. L0 to L3: any order gives these bits. L4: these two orders do.
    pub equal: BTreeMap<Rung, u64>,
    pub differing: u64,
    pub first: Option<Differing>,
    /// The farthest apart, of numbers; of equal ones the first.
    pub largest: Option<Differing>,
}

impl Compared {
    /// All elements have one tree on both sides: equal whatever the values.
    pub fn is_for_all_inputs(&self) -> bool {
        self.equal.keys().all(|rung| rung.holds_for_all_inputs()) && self.differing == 0
    }

    fn merged(mut self, later: Compared) -> Compared {
        self.elements += later.elements;
        self.differing += later.differing;
        for (rung, count) in later.equal {
            *self.equal.entry(rung).or_default() += count;
        }
        self.first = self.first.or(later.first);
        let farther = later.largest.filter(|later| {
            let own = self.largest.and_then(|own| own.ulps);
            own.is_none() || later.ulps > own
        });
        self.largest = farther.or(self.largest);
        self
    }

    fn count(&mut self, rung: Rung, elements: u64) {
        self.elements += elements;
        *self.equal.entry(rung).or_default() += elements;
    }

    fn differ(&mut self, found: Differing) {
        let one = Compared {
            elements: 1,
            differing: 1,
            first: Some(found),
            largest: found.ulps.map(|_| found),
            ..Compared::default()
        };
        *self = std::mem::take(self).merged(one);
    }
}

/// Carries both plans out on `inputs`, bits of f32 by rank.
///
/// # Errors
/// A plan that is no plain sum.
///
/// # Panics
/// Where plans and inputs are of different sizes.
pub fn compare(inputs: &[Vec<u32>], a: &Plan, b: &Plan) -> Result<Compared, NotASum> {
    let sizes = |plan: &Plan| (plan.element_count, plan.addend_count as usize);
    assert_eq!(sizes(a), (inputs[0].len() as u64, inputs.len()));
    assert_eq!(sizes(b), sizes(a));
    let differing = a.differing_ranges(b);
    let parts = parts(a, b, &differing)?;
    let is_one_arithmetic = a.same_rules(b);
    let compared = parts
        .par_iter()
        .map(|part| part.compared(inputs, is_one_arithmetic));
    let compared: Vec<Compared> = compared.collect();
    let mut all = compared
        .into_iter()
        .fold(Compared::default(), Compared::merged);
    let apart: u64 = differing.iter().map(|range| range.end - range.start).sum();
    if apart < a.element_count {
        all.count(Rung::Plan, a.element_count - apart);
    }
    Ok(all)
}

/// Elements with one tree on each side.
struct Part {
    range: Range<u64>,
    a: Folded,
    b: Folded,
}

/// The ranges, cut where a tree ends and to a size for one thread.
fn parts(a: &Plan, b: &Plan, ranges: &[Range<u64>]) -> Result<Vec<Part>, NotASum> {
    let end_of = |plan: &Plan, element: u64| {
        let after = plan
            .pieces
            .partition_point(|piece| piece.range.end <= element);
        plan.pieces[after].range.end
    };
    let folded = |plan: &Plan, tree: &Tree| Folded::new(tree, plan.arithmetic).ok_or(NotASum);
    let mut parts = Vec::new();
    for range in ranges {
        let mut at = range.start;
        while at < range.end {
            let end = range
                .end
                .min(end_of(a, at))
                .min(end_of(b, at))
                .min(at + CHUNK);
            parts.push(Part {
                range: at..end,
                a: folded(a, a.tree_at(at))?,
                b: folded(b, b.tree_at(at))?,
            });
            at = end;
        }
    }
    Ok(parts)
}

impl Part {
    fn compared(&self, inputs: &[Vec<u32>], is_one_arithmetic: bool) -> Compared {
        let mut compared = Compared::default();
        let mut addends = vec![0.0; inputs.len()];
        for element in self.range.clone() {
            for (addend, rank) in addends.iter_mut().zip(inputs) {
                *addend = f32::from_bits(rank[element as usize]);
            }
            let (a, b) = (self.a.value(&addends), self.b.value(&addends));
            let dtype = self.a.sum(&addends).out;
            if a == b {
                compared.count(self.rung(&addends, is_one_arithmetic), 1);
            } else {
                compared.differ(Differing {
                    element,
                    a,
                    b,
                    ulps: ulps(dtype, a, b),
                });
            }
        }
        compared
    }

    /// What shows that the two orders give the same bits: the cheapest of what holds for any order,
    /// else that both were carried out.
    fn rung(&self, addends: &[f32], is_one_arithmetic: bool) -> Rung {
        let sum = self.a.sum(addends);
        if !is_one_arithmetic {
            return Rung::L4;
        }
        if l0(&sum) {
            return Rung::L0;
        }
        if l1_exact(&sum) {
            return Rung::L1;
        }
        if l2_absorbed(&sum) {
            return Rung::L2;
        }
        let class = match self.a.is_chain() && self.b.is_chain() {
            true => OrderClass::Chains,
            false => OrderClass::Trees,
        };
        let extremes = (addends.len() <= L3_ADDENDS)
            .then(|| l3_min_max(&sum, class))
            .flatten();
        match extremes.is_some_and(|extremes| extremes.is_single()) {
            true => Rung::L3,
            false => Rung::L4,
        }
    }
}

/// Values of a type from one to another, -0 and +0 counted as two. `None` for what is no number.
fn ulps(dtype: Dtype, a: u32, b: u32) -> Option<u64> {
    let place = |bits: u32| {
        let value = f32::from_bits(bits);
        let (sign, size) = match dtype {
            Dtype::F16 => {
                let bits = half::f16::from_f32(value).to_bits();
                (bits >> 15 == 1, i64::from(bits & 0x7fff))
            }
            Dtype::Bf16 => (bits >> 31 == 1, i64::from((bits & 0x7fff_ffff) >> 16)),
            Dtype::F32 | Dtype::U32 => (bits >> 31 == 1, i64::from(bits & 0x7fff_ffff)),
        };
        (!value.is_nan()).then_some(if sign { -1 - size } else { size })
    };
    Some(place(a)?.abs_diff(place(b)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_one_apart_in_their_type() {
        let bits = |value: f32| value.to_bits();
        let next = f32::from_bits(bits(1.0) + 1);
        assert_eq!(ulps(Dtype::F32, bits(1.0), bits(next)), Some(1));
        assert_eq!(ulps(Dtype::F32, bits(-0.0), bits(0.0)), Some(1));
        assert_eq!(
            ulps(Dtype::Bf16, bits(1.0), bits(1.0 + 1.0 / 128.0)),
            Some(1)
        );
        assert_eq!(
            ulps(Dtype::F16, bits(1.0), bits(1.0 + 1.0 / 512.0)),
            Some(2)
        );
        assert_eq!(
            ulps(Dtype::F16, bits(-1.0), bits(-1.0 - 1.0 / 1024.0)),
            Some(1)
        );
        assert_eq!(ulps(Dtype::F32, bits(f32::NAN), bits(0.0)), None);
        assert_eq!(
            ulps(Dtype::F32, bits(f32::MAX), bits(f32::INFINITY)),
            Some(1)
        );
    }
}
