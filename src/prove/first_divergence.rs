//! The first node where bits part, and why: the mistake before what it leads to.

use crate::prove::check::Findings;
use crate::prove::deviation::Deviation;
use crate::prove::oracle::r2r::NodeDifference;
use crate::prove::oracle::res::Resumption;
use crate::prove::outcome::FirstDivergence;
use crate::prove::reversal::{self, Consequence};
use crate::prove::session::Session;
use crate::prove::witness;
use crate::scenario::{ChoiceVariable, Scope, Values};
use crate::world::Hazard;

pub(super) fn of(session: &Session, findings: &Findings) -> Option<FirstDivergence> {
    if let Some((_, finding)) = findings.sweep.first.iter().next() {
        return Some(witness::first_divergence(session, finding));
    }
    if let Some(first) = by_hazard(findings) {
        return Some(first);
    }
    if let Some(Some(difference)) = &findings.second {
        return Some(uncontrolled(difference));
    }
    let mut resumptions = findings.resumptions.iter().flatten();
    resumptions.find_map(|(list, found)| {
        let difference = found.first_node.as_ref()?;
        Some(after_restart(session, list, found, difference))
    })
}

/// The first node that parts because of a hazard: when its pair is turned round, or by what
/// unwritten memory happens to hold.
fn by_hazard(findings: &Findings) -> Option<FirstDivergence> {
    let hazards = &findings.reference.hazards;
    let reads_from = |hazard: &Hazard| ChoiceVariable {
        name: format!(
            "the order of `{}` and `{}` on `{}`",
            hazard.first.site.op,
            hazard.second.site.op,
            hazard.buffer.as_deref().unwrap_or("memory")
        ),
        scope: Scope::Call,
        values: Values::Listed(vec!["as it ran".to_string(), "the other way round".into()]),
    };
    let turned = hazards.iter().zip(&findings.reversals.consequences);
    let parted = turned.filter_map(|(hazard, consequence)| match consequence {
        Consequence::Differs(Deviation {
            node: Some((rank, site)),
            ..
        }) => Some((hazard, *rank, site)),
        _ => None,
    });
    let first = parted.min_by_key(|(_, rank, site)| (site.step, *rank));
    if let Some((hazard, rank, site)) = first {
        return Some(FirstDivergence {
            site: site.clone(),
            node: None,
            family: None,
            group: None,
            ranks: vec![rank],
            is_origin: true,
            variable: reads_from(hazard),
            value_a: "as it ran".to_string(),
            value_b: "the other way round".to_string(),
            nodes_equal_before: 0,
        });
    }
    let difference = findings.second.as_ref()?.as_ref()?;
    if difference.corruption.is_some() {
        return None;
    }
    let hazard = reversal::explains(hazards, difference)?;
    Some(FirstDivergence {
        variable: ChoiceVariable {
            name: format!(
                "what `{}` holds where nothing has written it yet",
                hazard.buffer.as_deref().unwrap_or("memory")
            ),
            scope: Scope::Call,
            values: Values::Listed(Vec::new()),
        },
        ..uncontrolled(difference)
    })
}

/// The first node of a resumed run that differs from the straight run's.
fn after_restart(
    session: &Session,
    list: &[u32],
    found: &Resumption,
    difference: &NodeDifference,
) -> FirstDivergence {
    let lists = session.scenario.checkpoint.restarts.iter();
    FirstDivergence {
        // What the resumed run lacks came in by its state: the node received it.
        is_origin: found.components.is_empty() && found.uncovered.is_empty(),
        variable: ChoiceVariable {
            name: "checkpoint.restarts".to_string(),
            scope: Scope::Run,
            values: Values::Listed(lists.map(|list| format!("{list:?}")).collect()),
        },
        value_a: "never killed".to_string(),
        value_b: format!("restarts {list:?}: resumed after step {}", found.cut),
        ..uncontrolled(difference)
    }
}

/// The second run's first differing node: no variable of the model explains it.
fn uncontrolled(difference: &NodeDifference) -> FirstDivergence {
    let NodeDifference {
        a, b, equal_before, ..
    } = difference;
    let name = match &difference.corruption {
        Some(corruption) => format!("none: {corruption}"),
        None => "none: the same choices gave other bits".to_string(),
    };
    FirstDivergence {
        site: (*a.site).clone(),
        node: a.fold,
        family: None,
        group: None,
        ranks: vec![a.rank],
        is_origin: true,
        variable: ChoiceVariable {
            name,
            scope: Scope::Run,
            values: Values::Listed(Vec::new()),
        },
        value_a: a.digest.to_string(),
        value_b: b.digest.to_string(),
        nodes_equal_before: *equal_before,
    }
}
