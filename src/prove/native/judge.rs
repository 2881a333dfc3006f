//! Whether bits are among those that some order of a sum gives.

use std::collections::BTreeSet;

use crate::numerics::bits::total_key;
use crate::numerics::ladder::{OrderClass, Sum, l3_min_max, reachable, within_any_order};

use super::found::Judged;

/// What is known of the results that a sum may have, the strongest there is.
pub(super) enum Model<'a> {
    /// All of them.
    Set(BTreeSet<u32>),
    /// The keys of the least and the greatest.
    Between(i32, i32),
    /// An interval that holds all of them.
    Interval(Sum<'a>),
    Unknown,
}

impl<'a> Model<'a> {
    pub fn of(sum: Sum<'a>) -> Model<'a> {
        if let Some(all) = reachable(&sum) {
            return Model::Set(all);
        }
        if let Some(range) = l3_min_max(&sum, OrderClass::Chains) {
            return Model::Between(total_key(range.low), total_key(range.high));
        }
        match within_any_order(&sum, 0.0) {
            Some(_) => Model::Interval(sum),
            None => Model::Unknown,
        }
    }

    pub fn allows(&self, bits: u32) -> bool {
        let value = f32::from_bits(bits);
        match self {
            Model::Set(all) => all.contains(&bits),
            Model::Between(low, high) => (*low..=*high).contains(&total_key(value)),
            Model::Interval(sum) => within_any_order(sum, value).unwrap_or(false),
            Model::Unknown => true,
        }
    }

    pub fn count(&self, judged: &mut Judged) {
        *match self {
            Model::Set(_) => &mut judged.exact_set,
            Model::Between(..) => &mut judged.min_max,
            Model::Interval(_) => &mut judged.interval,
            Model::Unknown => &mut judged.unjudged,
        } += 1;
    }
}
