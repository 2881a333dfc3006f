//! The side conditions of the rungs, as data: tests switch each one off and show that a search over
//! all orders catches what it lets through.

/// Every field has one right value, that of `EXACT`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Conditions {
    /// L0: most values that may be added.
    pub structural_count: usize,
    /// L0: the addends must be in the type of the partial sums.
    pub structural_types: bool,
    /// The accumulator's value counts as an addend.
    pub count_base: bool,
    /// L1: bits added to the precision of the type that partial sums are rounded to.
    pub precision_excess: u32,
    /// L1: precision is that of `partial`; otherwise of f32.
    pub narrowest_precision: bool,
    /// L1 and L2: magnitudes are summed; otherwise signed values.
    pub magnitudes: bool,
    /// L1: the unit is not below the least subnormal.
    pub least_subnormal: bool,
    /// L1 and L2: the magnitudes stay below the largest finite value.
    pub largest_finite: bool,
    /// L2: partial sums are held in f32.
    pub wide_partial: bool,
    /// L2: the error of the additions widens the interval.
    pub error_bound: bool,
    /// L3: least and greatest in total order; otherwise the two zeros are equal.
    pub total_order: bool,
}

pub(super) const EXACT: Conditions = Conditions {
    structural_count: 2,
    structural_types: true,
    count_base: true,
    precision_excess: 0,
    narrowest_precision: true,
    magnitudes: true,
    least_subnormal: true,
    largest_finite: true,
    wide_partial: true,
    error_bound: true,
    total_order: true,
};
