//! With additions of the host in the adapter's place, which can be made wrong in one way each.

use super::*;
use crate::engine::EngineIdentity;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    None,
    /// The writer whose turn is last adds nothing.
    Drops,
    /// The writer whose turn is first adds twice.
    AddsTwice,
    /// The first two have both loaded before either stores.
    LosesAnUpdate,
    /// The last writer adds the row of the first.
    ReadsAnother,
    /// Writers add in another order than their tickets'.
    Disorders,
}

struct Host(Flaw);

impl Host {
    fn order(&self, permutation: &[u32], is_ticketed: bool) -> Vec<u32> {
        let mut order = permutation.to_vec();
        // Free repeats may go any way.
        if !is_ticketed || self.0 == Flaw::Disorders {
            order.reverse();
        }
        order
    }

    fn sums(&self, race: &Race<'_>, order: &[u32]) -> Vec<u32> {
        let mut held: Vec<f32> = race
            .start
            .iter()
            .map(|bits| f32::from_bits(*bits))
            .collect();
        let width = race.width as usize;
        for (turn, writer) in order.iter().enumerate() {
            let is_last = turn + 1 == order.len();
            let row = match self.0 {
                Flaw::ReadsAnother if is_last => order[0],
                _ => *writer,
            } as usize;
            let target = race.targets[*writer as usize] as usize;
            for column in 0..width {
                let addend = f32::from_bits(race.addends[row * width + column]);
                let place = &mut held[target + column];
                let loaded = match self.0 {
                    Flaw::LosesAnUpdate if turn == 1 => f32::from_bits(race.start[target + column]),
                    _ => *place,
                };
                match self.0 {
                    Flaw::Drops if is_last => {}
                    Flaw::AddsTwice if turn == 0 => *place = loaded + addend + addend,
                    _ => *place = loaded + addend,
                }
            }
        }
        held.into_iter()
            .map(|x| Dtype::F32.round(x).to_bits())
            .collect()
    }
}

impl NativeAtomics for Host {
    fn identity(&self) -> EngineIdentity {
        EngineIdentity {
            name: "host".to_owned(),
            adapter: "host".to_owned(),
            versions: Vec::new(),
            strict: true,
        }
    }

    fn race(&mut self, race: &Race<'_>) -> Result<Vec<Vec<u32>>, EngineError> {
        race.assert_sound();
        let repeats = race.permutations.iter();
        let orders = repeats.map(|permutation| self.order(permutation, race.is_ticketed));
        Ok(orders.map(|order| self.sums(race, &order)).collect())
    }
}

fn raced_by(
    flaw: Flaw,
    repeats: u32,
    program: impl Fn(&mut Rank) -> Result<(), RankError> + Sync,
) -> NativeRaces {
    raced(Box::new(Host(flaw)), repeats, program).expect("the host does not fail")
}

#[test]
fn honest_atomics_are_inside_the_model() {
    let found = raced_by(Flaw::None, 130, all_kinds);
    assert!(found.is_inside(), "{:?}", found.outside);
    assert_eq!((found.ticketed, found.free), (65, 65));
    let folds: Vec<(u32, u32, u64)> = found
        .folds
        .iter()
        .map(|fold| (fold.writers, fold.addends_max, fold.elements))
        .collect();
    let expected = [(5, 5, 4), (5, 5, 4), (5, 5, 4), (3, 3, 4), (4, 3, 12)];
    assert_eq!(folds, expected);
    assert!(found.folds[0].ticketed_results > 1 && found.folds[0].free_results > 1);
    assert!(found.folds[0].free_out_of_order > 0);
    assert_eq!(found.folds[3].ticketed_results, 1);
    assert_eq!(found.judged.exact_set, 28);
    assert!(found.not_raced.is_empty());
}

#[test]
fn every_flaw_is_outside_the_model_in_the_order_of_tickets() {
    let flaws = [
        Flaw::Drops,
        Flaw::AddsTwice,
        Flaw::LosesAnUpdate,
        Flaw::ReadsAnother,
        Flaw::Disorders,
    ];
    for flaw in flaws {
        let found = raced_by(flaw, 12, |rank| {
            plain(rank, &VALUES);
            rank.end_step()
        });
        let ticketed = found
            .outside
            .iter()
            .find(|outside| outside.mode == RaceMode::Ticketed);
        let outside = ticketed.unwrap_or_else(|| panic!("{flaw:?} is not seen"));
        assert_eq!(outside.node.ordinal, 0);
        assert_eq!(outside.order.as_ref().map(Vec::len), Some(5));
        assert_ne!(outside.expected.as_ref(), Some(&outside.got));
        let free = found
            .outside
            .iter()
            .any(|outside| outside.mode == RaceMode::Free);
        // Another order of the same addends is no fault where there are no tickets.
        assert_eq!(free, flaw != Flaw::Disorders, "{flaw:?}");
        assert!(found.outside_count >= found.outside.len() as u64);
        assert!(found.outside.len() <= OUTSIDE_TOLD_MAX);
    }
}

#[test]
fn a_flaw_shows_in_rows_and_with_many_writers() {
    for flaw in [Flaw::Drops, Flaw::AddsTwice, Flaw::ReadsAnother] {
        let found = raced_by(flaw, 12, |rank| {
            rows(rank, &VALUES, &[0, 5], &[3, 0, 1, 2, 4]);
            rank.end_step()
        });
        assert!(!found.is_inside(), "{flaw:?}");
        for count in [10, 40] {
            let found = raced_by(flaw, 12, |rank| {
                plain(rank, &many(count));
                rank.end_step()
            });
            assert!(!found.is_inside(), "{flaw:?} of {count}");
        }
    }
}

#[test]
fn the_number_of_addends_decides_what_judges() {
    let judged = |count: u32| {
        let found = raced_by(Flaw::None, 8, |rank| {
            plain(rank, &many(count));
            rank.end_step()
        });
        assert!(found.is_inside(), "{count}: {:?}", found.outside);
        found.judged
    };
    let none = Judged::default();
    assert_eq!(
        judged(8),
        Judged {
            exact_set: 4,
            ..none
        }
    );
    assert_eq!(judged(12), Judged { min_max: 4, ..none });
    assert_eq!(
        judged(13),
        Judged {
            interval: 4,
            ..none
        }
    );
    let overflows = raced_by(Flaw::None, 8, |rank| {
        plain(rank, &[f32::MAX; 13]);
        rank.end_step()
    });
    assert_eq!(
        overflows.judged,
        Judged {
            unjudged: 4,
            ..none
        }
    );
    let once = raced_by(Flaw::None, 1, all_kinds);
    assert_eq!((once.ticketed, once.free, once.judged), (1, 0, none));
}

#[test]
fn what_is_not_raced_is_named() {
    let found = raced_by(Flaw::None, 2, |rank| {
        slots(rank, &VALUES, Init::First, Dtype::F32, LocalOrder::Ordered);
        plain(rank, &VALUES[..1]);
        rows(rank, &VALUES, &[0, 2, 4], &[0, 1, 0, 2]);
        for _ in 0..FOLDS_OF_A_FAMILY_MAX + 2 {
            plain(rank, &VALUES);
        }
        rank.end_step()?;
        // A later step repeats the first.
        rank.set_step(1);
        plain(rank, &VALUES);
        rank.end_step()
    });
    assert_eq!(found.folds.len(), FOLDS_OF_A_FAMILY_MAX as usize);
    let reasons: Vec<(Family, &str, u64)> = found
        .not_raced
        .iter()
        .map(|skipped| (skipped.family, skipped.reason.as_str(), skipped.folds))
        .collect();
    assert_eq!(
        reasons,
        [
            (
                Family::EmbeddingGrad,
                "a row lands in more than one place",
                1
            ),
            (Family::WgradSplitK, "4 of the family were raced before", 2),
            (Family::WgradSplitK, "fewer than two addends meet", 1),
        ]
    );
}
