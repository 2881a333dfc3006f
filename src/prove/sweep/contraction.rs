//! Points where a build may contract a multiplication and an addition into one fused operation.
//!
//! The build is a choice that no order covers: NVIDIA compilers contract by default (`-fmad=true`),
//! and the kernels of this engine never do. So such a point is proved only where neither order nor
//! contraction can matter, else only sampled; that holds even where its plan is pinned.

use crate::engine::EngineError;
use crate::numerics::ladder::{RANDOM_ORDERS, Rung, l1_exact_products};
use crate::plan::{Arithmetic, Combine, Init};
use crate::world::Choice;
use crate::world::fold::{FoldLab, FoldNode};

use super::elements::Elements;
use super::witness::Variable;
use super::{Outcome, SweepOptions, arrival, placement};

/// Whether a build can make a difference at a node: in some plan, a product meets a partial sum.
pub(super) fn is_free(node: &FoldNode) -> bool {
    let addends = node.addend_count();
    match &node.choice {
        Choice::Placement(plans) => plans
            .iter()
            .any(|plan| contracts(&plan.arithmetic, addends)),
        // Configurations differ in their order alone.
        Choice::Pinned | Choice::Arrival | Choice::Configuration(_) => {
            contracts(&node.arithmetic(), addends)
        }
    }
}

fn contracts(arithmetic: &Arithmetic, addends: u32) -> bool {
    let values = addends + u32::from(arithmetic.init != Init::First);
    arithmetic.contraction_free
        && arithmetic.pre_multiply_bits.is_some()
        && arithmetic.combine == Combine::Sum
        && values >= 2
}

pub(super) fn test(
    options: &SweepOptions,
    node: &FoldNode,
    shrink: bool,
    lab: &mut FoldLab<'_>,
) -> Result<Outcome, EngineError> {
    if is_exact(node, lab)? {
        return Ok(Outcome::Proved(Rung::L1));
    }
    // What is left is to look for orders that part without any contraction.
    match &node.choice {
        Choice::Pinned => Ok(Outcome::Sampled { orders: 0 }),
        Choice::Placement(plans) => {
            let placed = |value| Variable::Placement { value };
            parting(placement::test(options, node, plans, placed, lab)?)
        }
        Choice::Configuration(plans) => {
            let key = node.tune_key();
            let tuned = |value| Variable::Configuration { key, value };
            parting(placement::test(options, node, plans, tuned, lab)?)
        }
        Choice::Arrival => {
            let ascending = arrival::ascending(node.permuted());
            let expected = lab.evaluate(node, &ascending)?;
            match arrival::parting(options, node, &expected, lab)? {
                Some(order) => arrival::sensitive(options, node, shrink, &expected, order, lab),
                None => Ok(Outcome::Sampled {
                    orders: RANDOM_ORDERS,
                }),
            }
        }
    }
}

/// Plans that part do so without any contraction; what else there is was not tried.
fn parting(of_plans: Outcome) -> Result<Outcome, EngineError> {
    Ok(match of_plans {
        Outcome::Sensitive(finding) => Outcome::Sensitive(finding),
        Outcome::Proved(_) | Outcome::Sampled { .. } => Outcome::Sampled { orders: 0 },
    })
}

/// Every product and every sum of products is exact, at every element.
fn is_exact(node: &FoldNode, lab: &mut FoldLab<'_>) -> Result<bool, EngineError> {
    let elements = Elements::read(node, lab)?;
    let arithmetic = node.arithmetic();
    let Some(factor) = arithmetic.pre_multiply_bits.map(f32::from_bits) else {
        return Ok(false);
    };
    if let Choice::Placement(plans) = &node.choice
        && plans.iter().any(|plan| plan.arithmetic != arithmetic)
    {
        return Ok(false);
    }
    Ok((0..elements.count).all(|element| {
        let addends = elements.arriving(element);
        l1_exact_products(&elements.sum(element, &addends), factor)
    }))
}
