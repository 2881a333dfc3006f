//! The ladder: cheap proofs, cheapest first, that one sum of floating-point addends has the same
//! bits in every admissible order; and, where it has not, two orders that part them.
//!
//! Each rung is a pure function of one element's addends. A rung that says yes where two orders
//! give two results is the one bug that must not exist here, so every condition is decided in
//! integers or by exact comparison, and a doubtful case is a no. Round to nearest even and
//! subnormals kept are assumed throughout: an engine that flushes, fuses or reassociates is
//! outside these proofs.

mod absorbed;
mod conditions;
mod exact;
mod fixed;
mod min_max;
mod orders;
mod prove;
mod reachable;
mod rung;
mod sum;

#[cfg(test)]
mod brute;
#[cfg(test)]
mod cases;
#[cfg(test)]
mod tests;

pub use absorbed::{l2_absorbed, within_any_order};
pub use exact::{l0, l0_by_shape, l1_exact, l1_exact_products};
pub use min_max::{MIN_MAX_ADDENDS, MinMax, l3_min_max};
pub use orders::{RANDOM_ORDERS, order_count, portfolio, random_order, sign_partition};
pub use prove::{Difference, Verdict, find_difference, prove, sampling_bound};
pub use reachable::{REACHABLE_ADDENDS, reachable};
pub use rung::{OrderClass, Rung};
pub use sum::{Order, Start, Sum, TreeOp, rounded_add};
