//! What is left of the candidates, by real values or by probed trees.

use std::ops::Range;

use super::candidates::Candidate;
use super::fit::{Excluded, Shards, fit};
use super::probe::{Probe, Probed};
use crate::plan::{Arithmetic, Plan, Tree};

/// Why a candidate is not what ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// It gives an element other bits.
    Value(Excluded),
    /// Its tree at this element is another one.
    Order { element: u64 },
    /// It rounds otherwise, or is of other addends.
    Arithmetic,
    /// Not every element's tree could be read.
    Unread,
}

/// Elements, and the trees that explain them.
#[derive(Clone, Debug)]
pub struct Explained {
    pub range: Range<u64>,
    /// None where nothing does; with the arithmetic where that is known.
    pub trees: Vec<(Tree, Option<Arithmetic>)>,
    /// Why nothing does, where a probe says it.
    pub why_not: Option<String>,
}

/// What was identified.
#[derive(Clone, Debug)]
pub struct Identification {
    pub candidates: Vec<Candidate>,
    /// By candidate: nothing where it is not excluded.
    pub excluded: Vec<Option<Why>>,
    /// What was probed; or where no candidate is left, what explains the values.
    pub explained: Vec<Explained>,
    /// Elements that `explained` speaks of, where that is not all.
    pub looked_at: Option<u64>,
    /// What was probed, as one plan.
    pub probed: Option<Plan>,
}

impl Identification {
    /// By real inputs and results.
    pub fn of_values(shards: &Shards, candidates: Vec<Candidate>) -> Identification {
        let fits = fit(shards, &candidates);
        let elements = shards.output.len() as u64;
        let explained = fits.segments.into_iter().map(|segment| Explained {
            range: segment.range,
            trees: segment
                .trees
                .into_iter()
                .map(|(tree, arithmetic)| (tree, Some(arithmetic)))
                .collect(),
            why_not: None,
        });
        let explained: Vec<Explained> = explained.collect();
        let is_cut = !explained.is_empty() && fits.looked_at < elements;
        Identification {
            candidates,
            excluded: fits
                .excluded
                .into_iter()
                .map(|excluded| excluded.map(Why::Value))
                .collect(),
            explained,
            looked_at: is_cut.then_some(fits.looked_at),
            probed: None,
        }
    }

    /// By the outputs of a probe.
    pub fn of_probe(probe: Probe, probed: &[Probed], candidates: Vec<Candidate>) -> Identification {
        let plan = probe.plan(probed);
        let excluded = candidates.iter().map(|candidate| {
            let Some(plan) = &plan else {
                return Some(Why::Unread);
            };
            if plan.same_bits(&candidate.plan) {
                return None;
            }
            if !plan.same_rules(&candidate.plan) {
                return Some(Why::Arithmetic);
            }
            let element = plan.first_difference(&candidate.plan);
            Some(element.map_or(Why::Arithmetic, |element| Why::Order { element }))
        });
        let explained = probed.iter().map(|one| {
            let (trees, why_not) = match &one.tree {
                Ok(tree) => (vec![tree.clone()], None),
                Err(why) => (Vec::new(), Some(why.to_string())),
            };
            Explained {
                range: one.range.clone(),
                trees,
                why_not,
            }
        });
        Identification {
            excluded: excluded.collect(),
            explained: explained.collect(),
            looked_at: None,
            candidates,
            probed: plan,
        }
    }

    /// Candidates that are not excluded.
    pub fn left(&self) -> impl Iterator<Item = &Candidate> {
        let all = self.candidates.iter().zip(&self.excluded);
        all.filter(|(_, excluded)| excluded.is_none())
            .map(|(candidate, _)| candidate)
    }

    /// The one plan that ran, where only one is left.
    pub fn plan(&self) -> Option<&Plan> {
        let mut left = self.left();
        match (&self.probed, left.next(), left.next()) {
            (Some(plan), ..) => Some(plan),
            (None, Some(only), None) => Some(&only.plan),
            _ => None,
        }
    }
}
