//! Points whose addends land in any order: a few orders on the whole tensor by the engine, then the
//! ladder element by element.

use std::sync::Arc;

use crate::engine::EngineError;
use crate::numerics::ladder::{Order, OrderClass, RANDOM_ORDERS, Rung, Verdict, portfolio, prove};
use crate::world::Family;
use crate::world::fold::{FoldJob, FoldLab, FoldNode, FoldOrder};

use super::elements::Elements;
use super::witness::{self, Variable};
use super::{Outcome, SweepOptions, order};

/// Orders that the engine tries on the whole tensor before the ladder starts.
const ENGINE_ORDERS_MAX: usize = 8;

pub(super) fn test(
    options: &SweepOptions,
    node: &FoldNode,
    shrink: bool,
    lab: &mut FoldLab<'_>,
) -> Result<Outcome, EngineError> {
    let expected = lab.evaluate(node, &ascending(node.permuted()))?;
    match parting(options, node, &expected, lab)? {
        Some(permutation) => sensitive(options, node, shrink, &expected, permutation, lab),
        None => climb(options, node, shrink, &expected, lab),
    }
}

/// The reference order.
pub(super) fn ascending(writers: u32) -> FoldOrder {
    FoldOrder::Permutation((0..writers).collect())
}

/// The first of a few orders in which the engine gets other bits than `expected`.
pub(super) fn parting(
    options: &SweepOptions,
    node: &FoldNode,
    expected: &[u32],
    lab: &mut FoldLab<'_>,
) -> Result<Option<Arc<[u32]>>, EngineError> {
    for permutation in engine_orders(node.permuted(), options.seed) {
        if lab.evaluate(node, &FoldOrder::Permutation(permutation.clone()))? != expected {
            return Ok(Some(permutation));
        }
    }
    Ok(None)
}

/// Orders without a look at the data: reverse, rotations, a few random ones.
fn engine_orders(writers: u32, seed: u64) -> Vec<Arc<[u32]>> {
    let blank = vec![0.0; writers as usize];
    let orders = portfolio(&blank, seed).into_iter().skip(1);
    let mut orders: Vec<Arc<[u32]>> = orders.map(Arc::from).collect();
    if orders.len() > ENGINE_ORDERS_MAX {
        // The portfolio ends with its random orders: keep both ends.
        orders.drain(ENGINE_ORDERS_MAX / 2..orders.len() - ENGINE_ORDERS_MAX / 2);
    }
    orders
}

/// A witness, its order made as plain as possible where `shrink` asks for it.
pub(super) fn sensitive(
    options: &SweepOptions,
    node: &FoldNode,
    shrink: bool,
    expected: &[u32],
    permutation: Arc<[u32]>,
    lab: &mut FoldLab<'_>,
) -> Result<Outcome, EngineError> {
    let mut still_parts = |permutation: &Arc<[u32]>| -> Result<bool, EngineError> {
        let order = FoldOrder::Permutation(permutation.clone());
        Ok(lab.evaluate(node, &order)? != expected)
    };
    let (permutation, swap) = match shrink {
        true => order::plainest(permutation, &mut still_parts)?,
        false => (permutation, None),
    };
    let got = lab.evaluate(node, &FoldOrder::Permutation(permutation.clone()))?;
    let orders = (
        ascending(permutation.len() as u32),
        FoldOrder::Permutation(permutation.clone()),
    );
    let variable = Variable::Arrival { permutation, swap };
    let results = (expected.to_vec(), got);
    let finding = witness::finding(options, node, variable, orders, results, lab)?;
    Ok(Outcome::Sensitive(Box::new(finding)))
}

/// The ladder on every element; the worst rung is the point's.
fn climb(
    options: &SweepOptions,
    node: &FoldNode,
    shrink: bool,
    expected: &[u32],
    lab: &mut FoldLab<'_>,
) -> Result<Outcome, EngineError> {
    let elements = Elements::read(node, lab)?;
    // Which rows meet is this input's: no rung above the ones that say so. In a row of the position
    // table it is the microbatch size's.
    let mut worst = match &node.job {
        FoldJob::Slots(_) => Rung::L0,
        FoldJob::Segments(_) if node.family == Family::PositionGrad => Rung::L0,
        FoldJob::Segments(_) => Rung::L1,
    };
    for element in 0..elements.count {
        let addends = elements.multiplied(element);
        let sum = elements.sum(element, &addends);
        let budget = options.element_budget;
        match prove(&sum, OrderClass::Chains, budget, options.seed) {
            Verdict::Proved(rung) => worst = worst.max(rung),
            Verdict::Undecided => worst = Rung::L5,
            Verdict::Different(difference) => {
                let rows = elements.writers(element);
                for order in [difference.a_order, difference.b_order] {
                    let permutation = whole(&rows, &order, node.permuted());
                    let evaluated = FoldOrder::Permutation(permutation.clone());
                    if lab.evaluate(node, &evaluated)? != expected {
                        return sensitive(options, node, shrink, expected, permutation, lab);
                    }
                }
                assert!(
                    elements.is_wider_than_node(element),
                    "the ladder adds as fold.wgsl does, so one of two orders parts"
                );
                worst = Rung::L5;
            }
        }
    }
    Ok(match worst {
        Rung::L5 => Outcome::Sampled {
            orders: RANDOM_ORDERS,
        },
        rung => Outcome::Proved(rung),
    })
}

/// One element's order as an order of all writers: its own first, in that order. A row that an
/// element adds twice lands once, so the order is the nearest that the node can take.
fn whole(rows: &[u32], order: &Order, writers: u32) -> Arc<[u32]> {
    let Order::Chain(places) = order else {
        unreachable!("chains were asked for")
    };
    let mut landed = vec![false; writers as usize];
    let own = places.iter().map(|place| rows[*place as usize]);
    own.chain(0..writers)
        .filter(|row| !std::mem::replace(&mut landed[*row as usize], true))
        .collect()
}
