//! Making an order plain: as few swaps of neighbours as a greedy search finds.

use std::sync::Arc;

/// Single swaps of neighbours that are tried before anything else.
const SWAPS_MAX: u32 = 64;
/// Further orders that are tried.
const TRIALS_MAX: u32 = 256;

/// The order, and the place of its one swap where one suffices.
type Plain = (Arc<[u32]>, Option<u32>);

/// The plainest order found that `still_parts`: ascending but for one swap of neighbours, else the
/// given one with whatever stretches of it could be sorted, and then single inversions undone.
pub(super) fn plainest<E>(
    permutation: Arc<[u32]>,
    still_parts: &mut impl FnMut(&Arc<[u32]>) -> Result<bool, E>,
) -> Result<Plain, E> {
    let writers = permutation.len() as u32;
    for place in 0..writers.saturating_sub(1).min(SWAPS_MAX) {
        let swapped = swapped_neighbours(writers, place);
        if still_parts(&swapped)? {
            return Ok((swapped, Some(place)));
        }
    }
    let mut trials = TRIALS_MAX;
    let mut best = permutation;
    // Sorting a stretch never adds an inversion, so whatever is kept is plainer.
    let mut length = best.len() / 2;
    while length >= 2 {
        for from in (0..best.len()).step_by(length) {
            let to = (from + length).min(best.len());
            let mut sorted = best.to_vec();
            sorted[from..to].sort_unstable();
            try_order(sorted, &mut best, &mut trials, still_parts)?;
        }
        length /= 2;
    }
    while undo_inversion(&mut best, &mut trials, still_parts)? {}
    Ok((best, None))
}

/// Undoes the first inversion of neighbours that is not needed.
fn undo_inversion<E>(
    best: &mut Arc<[u32]>,
    trials: &mut u32,
    still_parts: &mut impl FnMut(&Arc<[u32]>) -> Result<bool, E>,
) -> Result<bool, E> {
    for place in 1..best.len() {
        if best[place - 1] > best[place] {
            let mut undone = best.to_vec();
            undone.swap(place - 1, place);
            if try_order(undone, best, trials, still_parts)? {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

fn try_order<E>(
    order: Vec<u32>,
    best: &mut Arc<[u32]>,
    trials: &mut u32,
    still_parts: &mut impl FnMut(&Arc<[u32]>) -> Result<bool, E>,
) -> Result<bool, E> {
    if *trials == 0 || order[..] == best[..] {
        return Ok(false);
    }
    *trials -= 1;
    let order: Arc<[u32]> = order.into();
    let parts = still_parts(&order)?;
    if parts {
        *best = order;
    }
    Ok(parts)
}

/// Ascending, but for the neighbours at `place` and `place + 1`.
fn swapped_neighbours(writers: u32, place: u32) -> Arc<[u32]> {
    let mut order: Vec<u32> = (0..writers).collect();
    order.swap(place as usize, place as usize + 1);
    order.into()
}

/// Swaps of neighbours that an order is away from ascending: its inversions.
pub fn adjacent_swaps(order: &[u32]) -> u64 {
    let pairs = |(place, writer): (usize, &u32)| {
        let later = order[place + 1..].iter();
        later.filter(|other| *other < writer).count() as u64
    };
    order.iter().enumerate().map(pairs).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    fn shrunk(from: &[u32], parts: impl Fn(&[u32]) -> bool) -> Plain {
        assert!(parts(from), "the search starts with an order that parts");
        let mut still_parts = |order: &Arc<[u32]>| Ok::<bool, Infallible>(parts(order));
        let (order, swap) = plainest(from.into(), &mut still_parts).unwrap();
        assert!(parts(&order), "{order:?} does not part");
        (order, swap)
    }

    fn place(order: &[u32], writer: u32) -> usize {
        order.iter().position(|other| *other == writer).unwrap()
    }

    #[test]
    fn one_swap_is_found_where_it_suffices() {
        let parts = |order: &[u32]| place(order, 5) < place(order, 4);
        let (order, swap) = shrunk(&[7, 6, 5, 4, 3, 2, 1, 0], parts);
        assert_eq!(order[..], [0, 1, 2, 3, 5, 4, 6, 7]);
        assert_eq!((swap, adjacent_swaps(&order)), (Some(4), 1));
    }

    #[test]
    fn unneeded_inversions_are_undone() {
        // Writer 6 must land before writer 2: four swaps at least.
        let parts = |order: &[u32]| place(order, 6) < place(order, 2);
        let (order, swap) = shrunk(&[7, 6, 5, 4, 3, 2, 1, 0], parts);
        assert_eq!((swap, adjacent_swaps(&order)), (None, 4), "{order:?}");
    }

    #[test]
    fn what_needs_the_whole_reverse_keeps_it() {
        let reverse: Vec<u32> = (0..6).rev().collect();
        let (order, _) = shrunk(&reverse, |order| order == [5, 4, 3, 2, 1, 0]);
        assert_eq!(adjacent_swaps(&order), 15);
    }

    #[test]
    fn swaps_are_those_of_a_bubble_sort() {
        for seed in 0..50u32 {
            let mut order: Vec<u32> = (0..7).collect();
            for k in 0..6u32 {
                let other = (seed.wrapping_mul(0x9e37_79b9) >> (3 * k)) % 7;
                order.swap(k as usize, other as usize);
            }
            let (mut sorted, mut swaps) = (order.clone(), 0);
            while let Some(place) = (1..7).find(|place| sorted[place - 1] > sorted[*place]) {
                sorted.swap(place - 1, place);
                swaps += 1;
            }
            assert_eq!(adjacent_swaps(&order), swaps, "{order:?}");
        }
    }
}
