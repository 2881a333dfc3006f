//! Where two runs parted: per rank the first record that differs in that rank's own order, whether
//! it made the difference or received it, and what all ranks together suggest.
//!
//! No order between ranks is claimed. A collective's inputs are its whole group's. What the
//! recorder alone may have caused is set apart ([`Reason`]), and only as long as nothing that was
//! computed shows it.

mod artefact;
mod boundary;
mod compare;
mod comparison;
mod discriminator;
mod divergence;
mod group;
mod ops;
mod pattern;
mod rank;

pub use artefact::{Artefact, Reason};
pub use boundary::{Metric, MetricResult};
pub use comparison::{Comparison, Verdict, compare};
pub use discriminator::{Axis, Cell, Discriminator};
pub use divergence::{Collective, Difference, Divergence, Role, Side};
pub(crate) use ops::base as op_base;
pub use pattern::{Hint, Pattern, sites};
pub use rank::PARSED_LINES;
