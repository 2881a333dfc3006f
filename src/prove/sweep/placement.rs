//! Points whose plan is one of a list: of the allocations that a scenario names, or of a tuned
//! kernel's configurations. Evaluating each is a proof (rung L4) or a witness.

use std::sync::Arc;

use crate::engine::EngineError;
use crate::numerics::ladder::Rung;
use crate::plan::Plan;
use crate::world::fold::{FoldLab, FoldNode, FoldOrder};

use super::witness::{self, Variable};
use super::{Outcome, SweepOptions};

pub(super) fn test(
    options: &SweepOptions,
    node: &FoldNode,
    plans: &Arc<[Arc<Plan>]>,
    variable: impl Fn(u32) -> Variable,
    lab: &mut FoldLab<'_>,
) -> Result<Outcome, EngineError> {
    let reference = &plans[0];
    let others: Vec<u32> = (1..plans.len() as u32)
        .filter(|value| !reference.same_bits(&plans[*value as usize]))
        .collect();
    if others.is_empty() {
        return Ok(Outcome::Proved(Rung::Plan));
    }
    let expected = lab.evaluate(node, &FoldOrder::Plan(reference.clone()))?;
    for value in others {
        let plan = plans[value as usize].clone();
        let got = lab.evaluate(node, &FoldOrder::Plan(plan.clone()))?;
        if got != expected {
            let variable = variable(value);
            let orders = (FoldOrder::Plan(reference.clone()), FoldOrder::Plan(plan));
            let results = (expected, got);
            let finding = witness::finding(options, node, variable, orders, results, lab)?;
            return Ok(Outcome::Sensitive(Box::new(finding)));
        }
    }
    Ok(Outcome::Proved(Rung::L4))
}
