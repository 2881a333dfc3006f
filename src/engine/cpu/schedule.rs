//! Cuts the workgroups of a run into pieces of about equal size, one after the other.

use crate::engine::Launch;
use crate::engine::launch::{overlaps, workgroups};

/// Workgroups `begin..end` of one launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slice {
    pub launch: usize,
    pub begin: u32,
    pub end: u32,
}

/// Invocations below which waking another thread costs more than it saves.
const SMALL: u64 = 4096;
/// Pieces for each worker: enough to even out launches of unequal cost.
const PIECES: u64 = 8;

/// Pieces in launch order; each is run by one thread, from its first slice to its last.
/// `invocations` gives those of one workgroup of a launch.
pub(super) fn cut(
    launches: &[Launch],
    workers: usize,
    invocations: impl Fn(&Launch) -> u64,
) -> Vec<Vec<Slice>> {
    let total: u64 = launches
        .iter()
        .map(|launch| workgroups(launch).saturating_mul(invocations(launch)))
        .sum();
    let pieces = if workers == 1 || total < 2 * SMALL {
        1
    } else {
        workers as u64 * PIECES
    };
    let target = (total / pieces).max(SMALL);
    let mut cut: Vec<Vec<Slice>> = vec![Vec::new()];
    let mut filled = 0u64;
    for (place, launch) in launches.iter().enumerate() {
        let count = workgroups(launch) as u32;
        let each = invocations(launch).max(1);
        let whole = pieces == 1 || overlaps(launch);
        let mut begin = 0;
        while begin < count {
            let room = (target.saturating_sub(filled)).div_ceil(each).max(1);
            let end = if whole {
                count
            } else {
                begin + room.min(u64::from(count - begin)) as u32
            };
            cut.last_mut().expect("never empty").push(Slice {
                launch: place,
                begin,
                end,
            });
            filled += u64::from(end - begin) * each;
            begin = end;
            if filled >= target && pieces > 1 {
                cut.push(Vec::new());
                filled = 0;
            }
        }
    }
    cut.retain(|piece| !piece.is_empty());
    cut
}
