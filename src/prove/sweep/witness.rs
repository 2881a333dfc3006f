//! A witness: one fold, one deviation, the element where the bits part, and how they do.

use std::sync::Arc;

use crate::engine::EngineError;
use crate::numerics::bits::ulp_distance;
use crate::plan::{Arithmetic, Tree};
use crate::world::fold::{FoldJob, FoldLab, FoldNode, FoldOrder};
use crate::world::{Family, NodeId, Schedule, Site, TuneKey};

use super::SweepOptions;
use super::elements::Elements;

/// The choice variable that a finding deviates in, and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Variable {
    /// Run-scoped: the allocation.
    Placement { value: u32 },
    /// Call-scoped: the order in which writers land; `swap` is the place of the one pair of
    /// neighbours that changes places, where one suffices.
    Arrival {
        permutation: Arc<[u32]>,
        swap: Option<u32>,
    },
    /// First-use-scoped: the configuration that a rank has chosen by timing, by its number.
    Configuration { key: TuneKey, value: u32 },
}

/// One addend of the element that a witness shows.
#[derive(Clone, Debug, PartialEq)]
pub struct FoundAddend {
    /// `rank4`, `slot2` or `row17`.
    pub name: String,
    /// As it arrives: before any multiplication that the fold begins with.
    pub value: f32,
}

/// How one of the two results came about.
#[derive(Clone, Debug, PartialEq)]
pub struct Side {
    pub arithmetic: Arithmetic,
    /// Its leaves are places in `Finding::addends`.
    pub tree: Tree,
    pub result: f32,
}

impl Side {
    /// The expression, with addends by their names.
    pub fn expression(&self, addends: &[FoundAddend]) -> String {
        let name = |place: u32| addends[place as usize].name.clone();
        self.arithmetic.expression(&self.tree, &name)
    }
}

/// The first sensitive fold.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    pub node: NodeId,
    pub wave: u32,
    pub site: Arc<Site>,
    pub family: Family,
    pub group: Option<String>,
    pub ranks: Arc<[u32]>,
    pub variable: Variable,
    /// The first of the differing elements: the least number, not the greatest difference, so that
    /// a replay finds the same one whatever it is asked to print.
    pub element: u64,
    pub addends: Vec<FoundAddend>,
    /// What the element's accumulator held before the first addend.
    pub held: Option<f32>,
    /// The reference, and what parts from it.
    pub sides: [Side; 2],
    pub differing_elements: u64,
    pub elements: u64,
    /// `None` when a NaN is among the differing results.
    pub ulp_max: Option<u64>,
    /// Folds that were tested before it.
    pub nodes_before: u64,
}

impl Finding {
    /// The schedule that deviates from the canonical one in this finding's variable.
    pub fn schedule(&self) -> Schedule {
        match &self.variable {
            Variable::Placement { value } => Schedule {
                placement: *value,
                ..Schedule::default()
            },
            Variable::Arrival { permutation, .. } => Schedule {
                arrivals: [(self.node, permutation.clone())].into(),
                ..Schedule::default()
            },
            Variable::Configuration { key, value } => Schedule {
                configurations: [(*key, *value)].into(),
                ..Schedule::default()
            },
        }
    }
}

/// Describes where `results` part, at the first differing element.
pub(super) fn finding(
    options: &SweepOptions,
    node: &FoldNode,
    variable: Variable,
    orders: (FoldOrder, FoldOrder),
    results: (Vec<u32>, Vec<u32>),
    lab: &mut FoldLab<'_>,
) -> Result<Finding, EngineError> {
    let (a, b) = results;
    let differing: Vec<usize> = (0..a.len()).filter(|at| a[*at] != b[*at]).collect();
    let element = *differing.first().expect("the results differ");
    let out = node.arithmetic().out;
    let distance = |at: &usize| ulp_distance(out, f32::from_bits(a[*at]), f32::from_bits(b[*at]));
    let ulps: Option<Vec<u64>> = differing.iter().map(distance).collect();
    let elements = Elements::read(node, lab)?;
    let writers = elements.writers(element);
    let values = elements.arriving(element);
    let addends = writers
        .iter()
        .zip(values)
        .map(|(writer, value)| FoundAddend {
            name: name_of(node, *writer),
            value,
        });
    let side = |order: &FoldOrder, words: &[u32]| {
        let (arithmetic, tree) = tree_at(node, order, element, &writers);
        Side {
            arithmetic,
            tree,
            result: f32::from_bits(words[element]),
        }
    };
    Ok(Finding {
        node: node.id,
        wave: node.wave,
        site: node.site.clone(),
        family: node.family,
        group: node
            .group
            .map(|group| options.groups[group.0 as usize].clone()),
        ranks: node.ranks.clone(),
        variable,
        element: element as u64,
        addends: addends.collect(),
        held: elements.held(element),
        sides: [side(&orders.0, &a), side(&orders.1, &b)],
        differing_elements: differing.len() as u64,
        elements: a.len() as u64,
        ulp_max: ulps.and_then(|ulps| ulps.into_iter().max()),
        nodes_before: 0,
    })
}

/// What an addend is called: the rank that holds it, its slot, or its row.
fn name_of(node: &FoldNode, writer: u32) -> String {
    match (&node.job, node.group) {
        (FoldJob::Slots(_), Some(_)) => format!("rank{}", node.ranks[writer as usize]),
        (FoldJob::Slots(_), None) => format!("slot{writer}"),
        (FoldJob::Segments(_), _) => format!("row{writer}"),
    }
}

/// The arithmetic of `order`, and its tree at `element` over the places of `writers`.
fn tree_at(
    node: &FoldNode,
    order: &FoldOrder,
    element: usize,
    writers: &[u32],
) -> (Arithmetic, Tree) {
    match order {
        FoldOrder::Plan(plan) => (plan.arithmetic, plan.tree_at(element as u64).clone()),
        FoldOrder::Permutation(permutation) => {
            let mut landing = vec![0; permutation.len()];
            for (turn, writer) in permutation.iter().enumerate() {
                landing[*writer as usize] = turn;
            }
            // A segment takes its own rows only; for slots every writer is one.
            let mut ring: Vec<u32> = (0..writers.len() as u32).collect();
            ring.sort_by_key(|place| landing[writers[*place as usize] as usize]);
            let (ring, start) = (ring.into(), 0);
            (node.arithmetic(), Tree::Chain { ring, start })
        }
    }
}
