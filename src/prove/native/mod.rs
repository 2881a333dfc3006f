//! Native races: true atomics on an adapter, where the model has a fold in arrival order. Each
//! result that the adapter gives must be one that the model allows: with tickets, the bits of that
//! order; without, bits that some order gives. That a race shows is never asked for.

mod entry;
mod found;
mod judge;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::engine::{EngineError, NativeAtomics, Race};
use crate::numerics::Digest;
use crate::numerics::ladder::random_order;
use crate::prove::check::{self, CheckOptions};
use crate::prove::outcome::Bits;
use crate::prove::recording::Recorder;
use crate::prove::session::{CheckError, Session};
use crate::prove::sweep::{Elements, Sweep};
use crate::world::fold::{FoldLab, FoldNode, FoldOrder};
use crate::world::{Beside, Choice, Family, Observer, RunRecord};

pub use found::{Judged, NativeRaces, NotRaced, OutsideModel, RaceMode, RacedFold};
#[cfg(test)]
pub(crate) use found::{sample, sample_of_nothing};

use entry::Entry;
use judge::Model;

/// Folds of one family that are raced: they repeat themselves over layers and ranks.
pub const FOLDS_OF_A_FAMILY_MAX: u32 = 4;

/// Results outside the model that are told one by one.
const OUTSIDE_TOLD_MAX: usize = 20;

/// Repeats between two looks at their results.
const REPEATS_AT_ONCE: u32 = 64;

/// Where the orders of races begin among the seed's: a fold has 2^24 of them.
const FIRST_DRAW: u64 = 1 << 32;
const DRAWS_OF_A_FOLD: u64 = 1 << 24;

/// Races the folds that it is shown.
pub(crate) struct Races {
    adapter: Box<dyn NativeAtomics>,
    seed: u64,
    /// The first step, whose folds are raced.
    step: Option<u32>,
    raced: BTreeMap<Family, u32>,
    not_raced: BTreeMap<(Family, String), u64>,
    found: NativeRaces,
}

impl Races {
    /// The races that a check is asked for.
    ///
    /// # Errors
    /// No adapter to run them on.
    pub fn asked(options: &CheckOptions, seed: u64) -> Result<Option<Races>, EngineError> {
        let open = |repeats| Ok(Races::on(options.engine.open_native()?, repeats, seed));
        options.native_races.map(open).transpose()
    }

    pub fn on(adapter: Box<dyn NativeAtomics>, repeats: u32, seed: u64) -> Races {
        let found = NativeRaces {
            adapter: adapter.identity(),
            ticketed: repeats.div_ceil(2),
            free: repeats / 2,
            ticketed_apart: 0,
            folds: Vec::new(),
            not_raced: Vec::new(),
            judged: Judged::default(),
            outside: Vec::new(),
            outside_count: 0,
            reason: None,
        };
        Races {
            adapter,
            seed,
            step: None,
            raced: BTreeMap::new(),
            not_raced: BTreeMap::new(),
            found,
        }
    }

    pub fn end(self) -> NativeRaces {
        let not_raced = self.not_raced.into_iter();
        let not_raced = not_raced.map(|((family, reason), folds)| NotRaced {
            family,
            reason,
            folds,
        });
        let found = NativeRaces {
            not_raced: not_raced.collect(),
            ticketed_apart: self.adapter.repeats_apart(),
            ..self.found
        };
        found.reasoned()
    }

    fn skip(&mut self, node: &FoldNode, reason: String) {
        *self.not_raced.entry((node.family, reason)).or_default() += 1;
    }

    fn race(&mut self, node: &FoldNode, lab: &mut FoldLab<'_>) -> Result<(), EngineError> {
        let first_step = *self.step.get_or_insert(node.id.step);
        if node.id.step != first_step || !matches!(node.choice, Choice::Arrival) {
            return Ok(());
        }
        if node.addend_count() < 2 {
            self.skip(node, "fewer than two addends meet".to_owned());
            return Ok(());
        }
        let raced = self.raced.get(&node.family).copied().unwrap_or(0);
        if raced == FOLDS_OF_A_FAMILY_MAX {
            let reason = format!("{FOLDS_OF_A_FAMILY_MAX} of the family were raced before");
            self.skip(node, reason);
            return Ok(());
        }
        let entry = match Entry::of(node, lab)? {
            Ok(entry) => entry,
            Err(reason) => {
                self.skip(node, reason);
                return Ok(());
            }
        };
        self.raced.insert(node.family, raced + 1);
        let mut seen = Seen::new(node);
        let mut drawn = 0;
        while drawn < self.found.ticketed {
            let until = self.found.ticketed.min(drawn + REPEATS_AT_ONCE);
            let orders: Vec<Arc<[u32]>> = (drawn..until).map(|n| self.order(node, n)).collect();
            let free = orders
                .len()
                .min((self.found.free.max(drawn) - drawn) as usize);
            self.repeat(node, &entry, &orders, free, &mut seen, lab)?;
            drawn = until;
        }
        self.judge(node, &seen, lab)?;
        self.found.folds.push(seen.raced(node, &entry));
        Ok(())
    }

    /// Repeat `number`'s order of all that the fold numbers. The first is the reference order.
    fn order(&self, node: &FoldNode, number: u32) -> Arc<[u32]> {
        if number == 0 {
            return (0..node.permuted()).collect();
        }
        let fold = self.found.folds.len() as u64;
        let draw = FIRST_DRAW + fold * DRAWS_OF_A_FOLD + u64::from(number);
        random_order(node.permuted() as usize, self.seed, draw).into()
    }

    /// One repeat with tickets in each order, and a free one in each of the first `free`.
    fn repeat(
        &mut self,
        node: &FoldNode,
        entry: &Entry,
        orders: &[Arc<[u32]>],
        free: usize,
        seen: &mut Seen,
        lab: &mut FoldLab<'_>,
    ) -> Result<(), EngineError> {
        let permutations: Vec<Vec<u32>> =
            orders.iter().map(|order| entry.writers_in(order)).collect();
        let mut run = |permutations: &[Vec<u32>], is_ticketed: bool| {
            let results = self.adapter.race(&Race {
                addends: &entry.addends,
                width: entry.width,
                targets: &entry.targets,
                start: &entry.start,
                permutations,
                is_ticketed,
            });
            results.map(|results| finished(node, results))
        };
        let ticketed = run(&permutations, true)?;
        let freely = run(&permutations[..free], false)?;
        for (number, (order, got)) in orders.iter().zip(&ticketed).enumerate() {
            let expected = lab.evaluate(node, &FoldOrder::Permutation(order.clone()))?;
            seen.ticketed.insert(Digest::of_words(got));
            if *got != expected {
                self.outside(out_of_order(node, order, got, &expected));
            }
            if let Some(got) = freely.get(number) {
                seen.add_free(got, &expected);
            }
        }
        Ok(())
    }

    fn outside(&mut self, outside: OutsideModel) {
        self.found.outside_count += 1;
        if self.found.outside.len() < OUTSIDE_TOLD_MAX {
            self.found.outside.push(outside);
        }
    }

    /// Judges what free repeats have left in each element.
    fn judge(
        &mut self,
        node: &FoldNode,
        seen: &Seen,
        lab: &mut FoldLab<'_>,
    ) -> Result<(), EngineError> {
        if self.found.free == 0 {
            return Ok(());
        }
        let elements = Elements::read(node, lab)?;
        for (element, words) in seen.free_words.iter().enumerate() {
            let addends = elements.multiplied(element);
            let model = Model::of(elements.sum(element, &addends));
            model.count(&mut self.found.judged);
            for bits in words.iter().filter(|bits| !model.allows(**bits)) {
                self.outside(OutsideModel {
                    site: node.site.to_string(),
                    node: node.id,
                    ranks: node.ranks.to_vec(),
                    element: element as u64,
                    mode: RaceMode::Free,
                    got: Bits::of(f32::from_bits(*bits)),
                    expected: None,
                    order: None,
                    elements: 1,
                });
            }
        }
        Ok(())
    }
}

/// Results in the type that the fold gives: an adapter's accumulators are f32.
fn finished(node: &FoldNode, mut results: Vec<Vec<u32>>) -> Vec<Vec<u32>> {
    let out = node.arithmetic().out;
    for word in results.iter_mut().flatten() {
        *word = out.round(f32::from_bits(*word)).to_bits();
    }
    results
}

/// A ticketed result that is not its order's.
fn out_of_order(node: &FoldNode, order: &[u32], got: &[u32], expected: &[u32]) -> OutsideModel {
    assert_eq!(got.len(), expected.len(), "a word an element");
    let mut differing = (0..got.len()).filter(|element| got[*element] != expected[*element]);
    let element = differing.next().expect("the results differ");
    let bits = |words: &[u32]| Bits::of(f32::from_bits(words[element]));
    OutsideModel {
        site: node.site.to_string(),
        node: node.id,
        ranks: node.ranks.to_vec(),
        element: element as u64,
        mode: RaceMode::Ticketed,
        got: bits(got),
        expected: Some(bits(expected)),
        order: Some(order.to_vec()),
        elements: 1 + differing.count() as u64,
    }
}

/// What the repeats of one fold have given.
struct Seen {
    ticketed: BTreeSet<Digest>,
    free: BTreeSet<Digest>,
    /// By element.
    free_words: Vec<BTreeSet<u32>>,
    free_out_of_order: u32,
}

impl Seen {
    fn new(node: &FoldNode) -> Seen {
        Seen {
            ticketed: BTreeSet::new(),
            free: BTreeSet::new(),
            free_words: vec![BTreeSet::new(); node.elements() as usize],
            free_out_of_order: 0,
        }
    }

    fn add_free(&mut self, got: &[u32], in_order: &[u32]) {
        assert_eq!(got.len(), self.free_words.len(), "a word an element");
        self.free.insert(Digest::of_words(got));
        self.free_out_of_order += u32::from(got != in_order);
        for (words, word) in self.free_words.iter_mut().zip(got) {
            words.insert(*word);
        }
    }

    fn raced(&self, node: &FoldNode, entry: &Entry) -> RacedFold {
        RacedFold {
            site: node.site.to_string(),
            node: node.id,
            family: node.family,
            ranks: node.ranks.to_vec(),
            writers: entry.targets.len() as u32,
            addends_max: node.addend_count(),
            elements: node.elements(),
            ticketed_results: self.ticketed.len() as u64,
            free_results: self.free.len() as u64,
            free_out_of_order: self.free_out_of_order,
        }
    }
}

/// A sweep whose folds are raced as well, each before its results destroy its addends.
struct Racing<'a> {
    sweep: &'a mut Sweep,
    races: &'a mut Races,
}

impl Observer for Racing<'_> {
    fn on_fold(&mut self, node: &FoldNode, lab: &mut FoldLab<'_>) -> Result<(), EngineError> {
        self.sweep.on_fold(node, lab)?;
        self.races.race(node, lab)
    }
}

/// The reference run of a check, with its races and its recorder where there are any.
pub(super) fn reference_run(
    session: &mut Session,
    sweep: &mut Sweep,
    races: Option<&mut Races>,
    recorder: Option<&mut Recorder>,
) -> Result<RunRecord, CheckError> {
    let mut racing;
    let first: &mut dyn Observer = match races {
        None => sweep,
        Some(races) => {
            racing = Racing { sweep, races };
            &mut racing
        }
    };
    match recorder {
        None => check::reference_run(session, first),
        Some(second) => check::reference_run(session, &mut Beside { first, second }),
    }
}
