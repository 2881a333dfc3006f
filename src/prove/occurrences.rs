//! One hazard is many pairs: of ranks, steps and microbatches. It is none only if each of them is
//! ordered by way of other ranks; the first one says nothing of the rest, as a pipeline's steady
//! state orders what its cool-down does not.

use std::collections::BTreeSet;

use crate::prove::deviation::Deviation;
use crate::prove::reversal::Consequence;
use crate::prove::session::CheckError;
use crate::world::{Hazard, Reversal, RunRecord, Turned};

/// Runs of one hazard.
const PASSES_MAX: usize = 16;

/// A run with pairs turned round; an error in words where it could not go on.
pub(super) type Ran = Result<(RunRecord, Deviation), String>;

/// What a hazard is.
pub(super) enum Judged {
    /// None: other ranks order each of its pairs.
    Ordered(Hazard),
    /// One, of the pairs that are not known to be ordered.
    Open(Hazard, Consequence),
}

/// Turns the pairs of `hazard` round until one of them can be. A run decides as many as it can; of
/// what a bounded number of runs leaves open, nothing is believed.
///
/// # Errors
/// A failure of the machine.
pub(super) fn judge(
    hazard: Hazard,
    mut run: impl FnMut(&[Reversal]) -> Result<Ran, CheckError>,
) -> Result<Judged, CheckError> {
    let mut open: Vec<Reversal> = Vec::new();
    for pair in hazard.each().filter_map(pair) {
        if !open.contains(&pair) {
            open.push(pair);
        }
    }
    let mut ordered: BTreeSet<Reversal> = BTreeSet::new();
    let mut at_once = open.len();
    for _ in 0..PASSES_MAX {
        let tried = &open[..open.len().min(at_once)];
        let Some(first) = tried.first().copied() else {
            break;
        };
        let (record, deviation) = match run(tried)? {
            Ok(ran) => ran,
            // Which of them it was that stopped it is not known.
            Err(_) if tried.len() > 1 => {
                at_once = 1;
                continue;
            }
            Err(error) => return Ok(left(hazard, &ordered, first, Consequence::Stops(error))),
        };
        let went: Vec<(Reversal, Turned)> = tried.iter().copied().zip(record.turned).collect();
        let known = ordered.len();
        let of = |wanted| went.iter().filter(move |(_, turned)| *turned == wanted);
        ordered.extend(of(Turned::Ordered).map(|(pair, _)| *pair));
        if let Some((pair, _)) = of(Turned::Round).next() {
            let consequence = match deviation.is_none() {
                true => Consequence::Agrees,
                false => Consequence::Differs(deviation),
            };
            return Ok(left(hazard, &ordered, *pair, consequence));
        }
        if ordered.len() == known {
            break;
        }
        open.retain(|pair| !ordered.contains(pair));
    }
    let is_decided = |one: &Hazard| pair(one).is_some_and(|pair| ordered.contains(&pair));
    let decided = hazard.each().filter(|one| is_decided(one)).count() as u64;
    if decided == hazard.occurrences {
        return Ok(Judged::Ordered(hazard));
    }
    let consequence = match decided {
        0 => Consequence::NotTried,
        _ => Consequence::TriedInPart {
            ordered: decided,
            left: hazard.occurrences - decided,
        },
    };
    let named = hazard.each().find(|one| !is_decided(one)).and_then(pair);
    Ok(match named {
        Some(named) => left(hazard, &ordered, named, consequence),
        // Those that are left are not kept.
        None => {
            let occurrences = hazard.occurrences - decided;
            let hazard = Hazard {
                occurrences,
                ..hazard
            };
            Judged::Open(hazard, consequence)
        }
    })
}

/// The commands of an occurrence, where both ran.
fn pair(one: &Hazard) -> Option<Reversal> {
    let rank = one.rank;
    let (held, until) = one.ran?;
    Some(Reversal { rank, held, until })
}

/// What is left of a hazard, named by that pair.
fn left(
    hazard: Hazard,
    ordered: &BTreeSet<Reversal>,
    named: Reversal,
    consequence: Consequence,
) -> Judged {
    let is_ordered = |one: &Hazard| pair(one).is_some_and(|pair| ordered.contains(&pair));
    let left = hazard.without(is_ordered, |one| pair(one) == Some(named));
    let left = left.expect("the pair that is named is left");
    Judged::Open(left, consequence)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prove::oracle::reshard::tests::hazard;

    /// A hazard of so many occurrences that are kept, each of two commands of its own.
    fn of(kept: u32, occurrences: u64) -> Hazard {
        let one = |number: u32| Hazard {
            ran: Some((2 * number, 2 * number + 1)),
            ..hazard()
        };
        Hazard {
            further: (1..kept).map(one).collect(),
            occurrences,
            ..one(0)
        }
    }

    fn ran(turned: Vec<Turned>) -> Result<Ran, CheckError> {
        let record = RunRecord {
            turned,
            ..RunRecord::default()
        };
        Ok(Ok((record, Deviation::default())))
    }

    fn open(judged: Result<Judged, CheckError>) -> (Hazard, Consequence) {
        match judged.expect("no run fails") {
            Judged::Open(hazard, consequence) => (hazard, consequence),
            Judged::Ordered(hazard) => panic!("{hazard} is one"),
        }
    }

    #[test]
    fn what_is_ordered_each_time_is_none() {
        // A run decides all but the last one that it tries.
        let mut runs = 0;
        let judged = judge(of(3, 3), |pairs| {
            runs += 1;
            let mut turned = vec![Turned::Ordered; pairs.len()];
            if let [.., last] = &mut turned[1..] {
                *last = Turned::Undecided;
            }
            ran(turned)
        });
        let judged = judged.expect("no run fails");
        assert!(matches!(judged, Judged::Ordered(hazard) if hazard.occurrences == 3));
        assert_eq!(runs, 2);
    }

    #[test]
    fn the_one_that_is_turned_round_is_named() {
        let mut again = true;
        let (hazard, consequence) = open(judge(of(4, 9), |pairs| {
            assert!(std::mem::take(&mut again), "one run tells");
            assert_eq!(pairs.len(), 4);
            ran(vec![
                Turned::Ordered,
                Turned::Ordered,
                Turned::Round,
                Turned::Undecided,
            ])
        }));
        assert_eq!(consequence, Consequence::Agrees);
        assert_eq!((hazard.ran, hazard.occurrences), (Some((4, 5)), 7));
        assert_eq!(hazard.further.len(), 1);
    }

    /// Nothing is believed of occurrences that were not kept, or that no run decides.
    #[test]
    fn what_is_left_is_told() {
        let all = |pairs: &[Reversal]| ran(vec![Turned::Ordered; pairs.len()]);
        let (hazard, consequence) = open(judge(of(4, 9), all));
        let left = Consequence::TriedInPart {
            ordered: 4,
            left: 5,
        };
        assert_eq!((&consequence, hazard.occurrences), (&left, 5));
        assert!(
            consequence.to_string().contains("not all were tried"),
            "{consequence}"
        );
        let (hazard, consequence) = open(judge(of(100, 100), |pairs| {
            let mut turned = vec![Turned::Undecided; pairs.len()];
            turned[0] = Turned::Ordered;
            ran(turned)
        }));
        let (ordered, left) = (PASSES_MAX as u64, 100 - PASSES_MAX as u64);
        assert_eq!(consequence, Consequence::TriedInPart { ordered, left });
        let named = 2 * PASSES_MAX as u32;
        assert_eq!(
            (hazard.ran, hazard.occurrences),
            (Some((named, named + 1)), left)
        );
        let none = |pairs: &[Reversal]| ran(vec![Turned::Undecided; pairs.len()]);
        assert_eq!(open(judge(of(2, 2), none)).1, Consequence::NotTried);
    }

    /// Which of several pairs stops a run is found out one by one.
    #[test]
    fn the_pair_that_stops_a_run_is_named() {
        let (hazard, consequence) = open(judge(of(3, 3), |pairs| match pairs {
            [Reversal { held: 0, .. }] => ran(vec![Turned::Ordered]),
            _ => Ok(Err("it hangs".to_string())),
        }));
        assert_eq!(consequence, Consequence::Stops("it hangs".to_string()));
        assert_eq!((hazard.ran, hazard.occurrences), (Some((2, 3)), 2));
    }
}
