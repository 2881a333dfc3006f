//! XR, the part that says why: the node that let a difference into copies which must agree.
//!
//! That copies differ is seen where a step ends (`world/exec/boundary.rs`). The run is then done
//! again, twice: once for who reads and writes what, once for digests of all that the copies may
//! depend on. From the copies, differences are followed back through the nodes that wrote them, on
//! both ranks at once. They begin where both ranks read the same and write other bytes; where the
//! two ran other nodes, or one node with other parameters; or they are followed to operands whose
//! words are not matched one by one, and which no collective has joined since.

mod cause;
mod log;
mod seen;
#[cfg(test)]
mod tests;
mod watch;

use crate::prove::deviation::Course;
use crate::prove::session::{CheckError, Session};
use crate::world::{Drift, RunOptions};

use cause::Search;
pub use cause::{Beginning, Cause, LetIn, told};
use log::Log;
use seen::Seen;
use watch::{Sees, Watch};

/// What let the first drift between ranks of a run's `drifts` in; `None` where there is none, or
/// where its way back, or the run, is longer than is followed. `options` are what that run had.
///
/// # Errors
/// Whatever stops the runs.
pub(in crate::prove) fn let_in(
    session: &mut Session,
    course: Course<'_>,
    options: &RunOptions,
    drifts: &[Drift],
) -> Result<Option<LetIn>, CheckError> {
    let Some(drift) = drifts.iter().find(|drift| drift.microbatch.is_none()) else {
        return Ok(None);
    };
    let mut log = Log::until(drift);
    follow(session, course, (options, drift), &mut log)?;
    if log.copies().is_none() {
        return Ok(None);
    }
    let mut seen = Seen::until(drift, log.reach());
    follow(session, course, (options, drift), &mut seen)?;
    let search = Search {
        log: &log,
        seen: &seen,
    };
    Ok(search.let_in())
}

/// One run up to the step of the drift, watched from the step before it on, or from its start.
fn follow<S: Sees>(
    session: &mut Session,
    course: Course<'_>,
    (options, drift): (&RunOptions, &Drift),
    sees: &mut S,
) -> Result<(), CheckError> {
    let first = course.first();
    let last = drift.step.unwrap_or(0).max(first);
    let mut watch = Watch {
        from_step: if last > first { last - 1 } else { 0 },
        sees,
    };
    course.watched(session, options, last, &mut watch)?;
    Ok(())
}
