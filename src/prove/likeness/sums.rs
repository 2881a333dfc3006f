//! The sums of one step, as a trace would name them.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::names;
use crate::engine::EngineError;
use crate::numerics::Dtype;
use crate::prove::recording::place_of;
use crate::world::fold::{FoldLab, FoldNode};
use crate::world::{Family, NodeId, Observer, Site};

/// One sum.
#[derive(Clone, Debug)]
pub(super) struct Sum {
    pub node: NodeId,
    pub site: Arc<Site>,
    pub family: Family,
    /// Of a collective: its kind and its group.
    pub collective: Option<(&'static str, String)>,
    pub ranks: Arc<[u32]>,
    pub dtype: Dtype,
    pub addends: u32,
    /// The kind of choice there, `pinned` where there is none.
    pub choice: &'static str,
    /// How many were alike before it, as [`crate::trace::symptom::Symptom`] counts: of the same
    /// kind and group, in the same step, microbatch and phase, by each of `ranks`.
    pub occurrences: Vec<u64>,
    /// As a check's own records call the place, and how many sums were there before.
    pub place: String,
    pub at_place: u64,
}

/// Collects the sums of a step.
pub(super) struct Sums<'a> {
    pub step: u32,
    pub group_names: &'a [String],
    pub found: Vec<Sum>,
    counts: BTreeMap<(u32, Key), u64>,
    places: BTreeMap<(u32, String), u64>,
}

/// What sums are counted by: kind or family, group, microbatch, phase.
type Key = (String, Option<String>, Option<u32>, &'static str);

impl<'a> Sums<'a> {
    pub fn of(step: u32, group_names: &'a [String]) -> Sums<'a> {
        Sums {
            step,
            group_names,
            found: Vec::new(),
            counts: BTreeMap::new(),
            places: BTreeMap::new(),
        }
    }

    fn add(&mut self, node: &FoldNode) {
        let group = node
            .group
            .map(|group| self.group_names[group.0 as usize].clone());
        let kind = node.shape.map(|shape| shape.kind.name());
        let collective = kind.zip(group.clone());
        let what = kind.map_or_else(|| format!("{:?}", node.family), str::to_string);
        // The names that a trace may give the phase begin with its own, or its hooks' phase.
        let phase = names::phases(node.site.phase)[0];
        let key = (what, group, node.site.microbatch, phase);
        let mut occurrences = Vec::with_capacity(node.ranks.len());
        for rank in node.ranks.iter() {
            let count = self.counts.entry((*rank, key.clone())).or_default();
            occurrences.push(*count);
            *count += 1;
        }
        let place = place_of(&node.site);
        let at_place = self
            .places
            .entry((node.ranks[0], place.clone()))
            .or_default();
        *at_place += 1;
        let at_place = *at_place - 1;
        if node.addend_count() < 2 {
            return;
        }
        self.found.push(Sum {
            node: node.id,
            site: node.site.clone(),
            family: node.family,
            collective,
            ranks: node.ranks.clone(),
            dtype: node.arithmetic().out,
            addends: node.addend_count(),
            choice: node.choice.name(),
            occurrences,
            place,
            at_place,
        });
    }
}

impl Observer for Sums<'_> {
    fn on_fold(&mut self, node: &FoldNode, _: &mut FoldLab<'_>) -> Result<(), EngineError> {
        if node.id.step == self.step {
            self.add(node);
        }
        Ok(())
    }
}
