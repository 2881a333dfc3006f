//! Two runs of one recipe that are laid out otherwise: what of a step may part, and what does.
//!
//! Where tensor-parallel sums have other addends, or rings other members, they are other sums. So
//! the plans of both runs are compared first (`structure.rs`), and each place of a step may part
//! only where a plan differs that acts at or before it. Those are reported with their reasons, all
//! else is a fault.

mod acts;
mod judge;
mod order;
mod other_run;
mod steps;
mod structure;

use crate::prove::session::Session;
use crate::prove::sweep::Sums;
use crate::train::{CanonicalError, CanonicalState, Checkpoint};
use crate::world::{RunRecord, State};

pub use acts::{Acts, Parameters};
pub use judge::Parting;
pub(super) use judge::{FORWARD, Judge};
pub use other_run::OtherRun;
pub(super) use other_run::{options, take_ordered_out};
use steps::compared;
pub use steps::{LaterStep, MetricPair, TokenLosses};
pub(super) use steps::{by_sample, metrics, token_losses};
pub use structure::PlanDifference;
pub(super) use structure::{differences, masks_differ};

/// One of two runs that are compared, and how reports call its layout.
#[derive(Clone, Copy)]
pub(super) struct Side<'a> {
    pub name: &'a str,
    pub session: &'a Session,
    /// Its sums.
    pub sums: &'a Sums,
}

/// What a run kept.
#[derive(Clone, Copy)]
pub(super) struct Kept<'a> {
    pub record: &'a RunRecord,
    /// The state before the first step that is compared.
    pub before: &'a State,
}

/// A rank's state after `steps` steps in canonical form.
pub(super) fn whole(
    session: &Session,
    steps: u32,
    state: &State,
) -> Result<CanonicalState, CanonicalError> {
    let checkpoint = Checkpoint::from_state(steps, state, &[]);
    CanonicalState::gather(&session.options, &checkpoint)
}
