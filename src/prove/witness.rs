//! A finding as reports show it.

use std::path::{Component, Path, PathBuf};

use crate::plan::local;
use crate::prove::effect::Alone;
use crate::prove::outcome::{Addend, Bits, FirstDivergence, ShrunkWitness, Witness};
use crate::prove::session::Session;
use crate::prove::shrink::{Shrunk, shrink};
use crate::prove::sweep::{Finding, FoundAddend, Variable, adjacent_swaps};
use crate::prove::switch::switch_of;
use crate::scenario::ChoiceVariable;

/// The witness of a finding: one element, two orders, both sums, and the same made small. `alone`
/// is what was measured of the node alone, where its variable reaches further.
pub fn of(session: &Session, finding: &Finding, alone: Option<&Alone>) -> Witness {
    let [a, b] = &finding.sides;
    Witness {
        site: (*finding.site).clone(),
        node: finding.node,
        group: finding.group.clone(),
        ranks: finding.ranks.to_vec(),
        element: finding.element,
        plan_a: a.expression(&finding.addends),
        plan_b: b.expression(&finding.addends),
        addends: finding.addends.iter().map(addend).collect(),
        sum_a: Bits::of(a.result),
        sum_b: Bits::of(b.result),
        differing_elements: finding.differing_elements,
        total_elements: finding.elements,
        max_ulp: finding.ulp_max,
        counterfactual: alone.is_some_and(|alone| alone.parts),
        alone: alone.map(|alone| alone.visible.clone()),
        adjacent_swaps: match &finding.variable {
            Variable::Arrival { permutation, .. } => Some(adjacent_swaps(permutation)),
            Variable::Placement { .. } | Variable::Configuration { .. } => None,
        },
        steps: finding.node.step,
        shrunk: shrink(finding).map(|shrunk| shrunk_witness(finding, &shrunk)),
        causes: causes(session, finding),
    }
}

fn shrunk_witness(finding: &Finding, shrunk: &Shrunk) -> ShrunkWitness {
    let places = shrunk.places.iter();
    let kept: Vec<FoundAddend> = places.map(|at| finding.addends[*at].clone()).collect();
    let [a, b] = &shrunk.sides;
    ShrunkWitness {
        plan_a: a.expression(&kept),
        plan_b: b.expression(&kept),
        sum_a: Bits::of(a.result),
        sum_b: Bits::of(b.result),
        addends: kept.iter().map(addend).collect(),
    }
}

fn addend(found: &FoundAddend) -> Addend {
    Addend {
        source: found.name.clone(),
        value: Bits::of(found.value),
    }
}

/// The files that the selector maps to the two plans.
fn causes(session: &Session, finding: &Finding) -> Vec<String> {
    let Variable::Placement { value } = finding.variable else {
        return Vec::new();
    };
    let files = &session.scenario.allocations;
    [0, value as usize]
        .iter()
        .map(|place| plain_path(&files[*place].source.name))
        .collect()
}

/// The path without `folder/..` steps, for reading; no link is followed.
fn plain_path(name: &str) -> String {
    let mut plain = PathBuf::new();
    for part in Path::new(name).components() {
        let is_up = part == Component::ParentDir;
        let goes_back = matches!(plain.components().next_back(), Some(Component::Normal(_)));
        match is_up && goes_back {
            true => drop(plain.pop()),
            false => plain.push(part),
        }
    }
    plain.display().to_string()
}

pub fn first_divergence(session: &Session, finding: &Finding) -> FirstDivergence {
    let (value_a, value_b) = values(session, finding);
    FirstDivergence {
        site: (*finding.site).clone(),
        node: Some(finding.node),
        family: Some(finding.family),
        group: finding.group.clone(),
        ranks: finding.ranks.to_vec(),
        // The sweep feeds every node its reference inputs, so what it names is an origin.
        is_origin: true,
        variable: variable(session, finding),
        value_a,
        value_b,
        nodes_equal_before: finding.nodes_before,
    }
}

/// Both values of the variable, as a user would name them.
pub fn values(session: &Session, finding: &Finding) -> (String, String) {
    match &finding.variable {
        Variable::Placement { value } => {
            let name = |place: usize| session.allocations[place].name.clone();
            (name(0), name(*value as usize))
        }
        Variable::Configuration { key, value } => {
            let blocks = local::block_sizes(key.addends);
            let of = |value: usize| match blocks[value] {
                block if block >= key.addends => format!("one block of {block}"),
                block => format!("blocks of {block}"),
            };
            let tuned = |value: usize| format!("rank {} chose {}", key.rank, of(value));
            (tuned(0), tuned(*value as usize))
        }
        Variable::Arrival {
            swap: Some(place), ..
        } => (
            "writers land in ascending order".to_string(),
            format!("writers {place} and {} change places", place + 1),
        ),
        Variable::Arrival { permutation, .. } => {
            let shown: Vec<String> = permutation.iter().take(16).map(u32::to_string).collect();
            let more = if permutation.len() > 16 { ", ..." } else { "" };
            let order = format!("writers land as {}{more}", shown.join(", "));
            ("writers land in ascending order".to_string(), order)
        }
    }
}

/// The choice variable that the finding varies.
pub fn variable(session: &Session, finding: &Finding) -> ChoiceVariable {
    let variables = session.scenario.choice_variables();
    variables[variable_place(session, finding) as usize].clone()
}

/// Its place in `Scenario::choice_variables`.
pub fn variable_place(session: &Session, finding: &Finding) -> u8 {
    let name = match &finding.variable {
        Variable::Placement { .. } => "placement",
        Variable::Configuration { .. } => "autotune",
        Variable::Arrival { .. } => {
            switch_of(finding.family).expect("an arrival order is a switch's")
        }
    };
    let variables = session.scenario.choice_variables();
    let place = variables.iter().position(|variable| variable.name == name);
    place.expect("a sensitive point reads a free variable") as u8
}
