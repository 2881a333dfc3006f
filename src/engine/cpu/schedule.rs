//! Cuts the workgroups of a run into pieces of about equal size, one after the other.

use crate::engine::Launch;
use crate::engine::launch::workgroups;

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

/// What the cut depends on, for each launch.
#[derive(Clone, Copy)]
pub(super) struct Cost {
    /// Work of one workgroup, in invocations.
    pub invocations: u64,
    /// Workgroups may see what others wrote: one thread runs them all, in order.
    pub whole: bool,
}

/// Pieces in launch order; each is run by one thread, from its first slice to its last.
pub(super) fn cut(
    launches: &[Launch],
    workers: usize,
    cost: impl Fn(&Launch) -> Cost,
) -> Vec<Vec<Slice>> {
    let total: u64 = launches
        .iter()
        .map(|launch| workgroups(launch).saturating_mul(cost(launch).invocations))
        .fold(0, u64::saturating_add);
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
        let Cost { invocations, whole } = cost(launch);
        let each = invocations.max(1);
        let whole = whole || pieces == 1;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::ProgramId;
    use proptest::prelude::*;

    fn launch(grid: [u32; 3]) -> Launch {
        Launch {
            program: ProgramId(0),
            grid,
            operands: Vec::new(),
            params: Vec::new(),
        }
    }

    proptest! {
        /// Every workgroup once, in order; no launch that must stay whole is cut.
        #[test]
        fn pieces_cover_the_run_in_order(
            grids in prop::collection::vec(prop::array::uniform3(0u32..40), 0..20),
            workers in 1usize..5,
            invocations in 1u64..300,
            whole_every in 1usize..4,
        ) {
            let launches: Vec<Launch> = grids.iter().map(|grid| launch(*grid)).collect();
            let is_whole = |launch: &Launch| (launch.grid[0] as usize).is_multiple_of(whole_every);
            let cost = |launch: &Launch| Cost { invocations, whole: is_whole(launch) };
            let slices: Vec<Slice> = cut(&launches, workers, cost).concat();
            let mut next = slices.iter().peekable();
            for (place, launch) in launches.iter().enumerate() {
                let count = workgroups(launch) as u32;
                let mut done = 0;
                let mut parts = 0;
                while done < count {
                    let slice = next.next().expect("a slice");
                    prop_assert_eq!((slice.launch, slice.begin), (place, done));
                    prop_assert!(slice.end > slice.begin);
                    done = slice.end;
                    parts += 1;
                }
                prop_assert_eq!(done, count);
                prop_assert!(parts <= 1 || !is_whole(launch));
            }
            prop_assert!(next.peek().is_none());
        }
    }

    #[test]
    fn large_runs_are_cut_and_small_ones_are_not() {
        let cost = |_: &Launch| Cost {
            invocations: 64,
            whole: false,
        };
        assert_eq!(cut(&[launch([100, 1, 1])], 2, cost).len(), 1);
        assert!(cut(&[launch([1000, 10, 1])], 2, cost).len() >= 8);
        assert_eq!(cut(&[launch([1000, 10, 1])], 1, cost).len(), 1);
    }
}
