//! A witness: one fold, one deviation, the element where the bits part, and how they do.

use std::sync::Arc;

use crate::engine::EngineError;
use crate::numerics::bits::ulp_distance;
use crate::plan::Tree;
use crate::world::fold::{FoldJob, FoldLab, FoldNode, FoldOrder};
use crate::world::{Family, NodeId, Schedule, Site};

use super::SweepOptions;
use super::arrival::Elements;

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
}

/// One addend of the element that a witness shows.
#[derive(Clone, Debug, PartialEq)]
pub struct FoundAddend {
    /// `rank 4`, `slot 2` or `row 17`.
    pub name: String,
    pub value: f32,
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
    pub element: u64,
    pub expression_a: String,
    pub expression_b: String,
    pub addends: Vec<FoundAddend>,
    pub result_a: f32,
    pub result_b: f32,
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
    lab: &FoldLab<'_>,
) -> Result<Finding, EngineError> {
    let (a, b) = results;
    let differing: Vec<usize> = (0..a.len()).filter(|at| a[*at] != b[*at]).collect();
    let element = *differing.first().expect("the results differ");
    let out = node.arithmetic().out;
    let distance = |at: &usize| ulp_distance(out, f32::from_bits(a[*at]), f32::from_bits(b[*at]));
    let ulps: Option<Vec<u64>> = differing.iter().map(distance).collect();
    let elements = Elements::read(node, lab)?;
    let (writers, values) = elements.addends(element);
    let named = |writer: u32| name_of(node, writer);
    let addends = writers
        .iter()
        .zip(values)
        .map(|(writer, value)| FoundAddend {
            name: named(*writer),
            value,
        })
        .collect();
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
        expression_a: expression(node, &orders.0, element, &writers),
        expression_b: expression(node, &orders.1, element, &writers),
        addends,
        result_a: f32::from_bits(a[element]),
        result_b: f32::from_bits(b[element]),
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

fn expression(node: &FoldNode, order: &FoldOrder, element: usize, writers: &[u32]) -> String {
    let arithmetic = node.arithmetic();
    let name = |writer: u32| name_of(node, writer);
    match order {
        FoldOrder::Plan(plan) => plan.expression_at(element as u64, &name),
        FoldOrder::Permutation(permutation) => {
            // A segment takes its own rows only; for slots every writer is one.
            let own: Vec<u32> = permutation
                .iter()
                .copied()
                .filter(|writer| writers.contains(writer))
                .collect();
            let order = (0..own.len() as u32).collect();
            let named = |place: u32| name(own[place as usize]);
            arithmetic.expression(
                &Tree::Chain {
                    ring: order,
                    start: 0,
                },
                &named,
            )
        }
    }
}
