//! What to say when nothing can go on: who waits for what, and who never comes.

use std::collections::BTreeMap;

use crate::world::command::{Command, Issued};
use crate::world::error::{Side, WorldError};

use super::coordinator::Coordinator;

/// How many ranks a message lists before it counts the rest.
const RANKS_LISTED_MAX: usize = 16;

/// The world is stuck: a collective that some member never joins is a mismatch, all else is a
/// deadlock.
pub(super) fn report(coordinator: &Coordinator<'_>) -> WorldError {
    missing_members(coordinator).unwrap_or_else(|| blocked(coordinator))
}

/// The communicator in which some members wait and others never call. A rank that went past a call
/// waits in its next one, where everybody else is absent: so the fullest communicator is named, of
/// those that somebody who has nothing left to run never joins, if there are any.
fn missing_members(coordinator: &Coordinator<'_>) -> Option<WorldError> {
    let mut waiting: BTreeMap<u32, Vec<(u32, &Issued)>> = BTreeMap::new();
    for (rank, state) in coordinator.ranks.iter().enumerate() {
        for queue in state.streams.values() {
            if let Some(issued) = queue.front()
                && let Command::Collective(call) = &issued.command
            {
                waiting
                    .entry(call.group.0)
                    .or_default()
                    .push((rank as u32, issued));
            }
        }
    }
    let members = |group: u32| &coordinator.world.communicators[group as usize];
    let urgency = |(group, calls): &(u32, Vec<(u32, &Issued)>)| {
        // Parts per million, so that the choice is one of integers.
        let present = calls.len() * 1_000_000 / members(*group).ranks.len();
        let abandoned = is_abandoned(coordinator, *group, calls);
        (abandoned, present, std::cmp::Reverse(*group))
    };
    let (group, calls) = waiting.into_iter().max_by_key(urgency)?;
    let communicator = members(group);
    let here: Vec<u32> = calls.iter().map(|(rank, _)| *rank).collect();
    let absent: Vec<u32> = communicator
        .ranks
        .iter()
        .copied()
        .filter(|rank| !here.contains(rank))
        .collect();
    let first = calls[0].1;
    let Command::Collective(call) = &first.command else {
        return None;
    };
    let elsewhere: Vec<Side> = sides_of(coordinator, &absent);
    let told: Vec<String> = elsewhere.iter().map(|side| side.what.clone()).collect();
    let detail = format!(
        "ranks {} wait in {} at {}; {}",
        listed(&here),
        call.signature(),
        first.site,
        told.join("; ")
    );
    let waiting = Side {
        ranks: here,
        site: Some(first.site.clone()),
        what: call.signature(),
    };
    Some(WorldError::CollectiveMismatch {
        group: communicator.name.clone(),
        detail,
        sides: std::iter::once(waiting).chain(elsewhere).collect(),
        hazards: Vec::new(),
    })
}

/// The first of these ranks, each with its whereabouts.
fn sides_of(coordinator: &Coordinator<'_>, ranks: &[u32]) -> Vec<Side> {
    let listed = ranks.iter().take(RANKS_LISTED_MAX);
    let side = |rank: &u32| {
        let mut heads = coordinator.ranks[*rank as usize].streams.values();
        let first = heads.find_map(|queue| queue.front());
        Side {
            ranks: vec![*rank],
            site: first.map(|issued| issued.site.clone()),
            what: whereabouts(coordinator, *rank),
        }
    };
    listed.map(side).collect()
}

/// Whether some absent member has nothing left to run.
fn is_abandoned(coordinator: &Coordinator<'_>, group: u32, calls: &[(u32, &Issued)]) -> bool {
    let members = &coordinator.world.communicators[group as usize].ranks;
    members.iter().any(|member| {
        let waits = calls.iter().any(|(rank, _)| rank == member);
        !waits && coordinator.ranks[*member as usize].idle()
    })
}

/// Where a rank is instead.
fn whereabouts(coordinator: &Coordinator<'_>, rank: u32) -> String {
    let state = &coordinator.ranks[rank as usize];
    let heads: Vec<String> = state
        .streams
        .values()
        .filter_map(|queue| queue.front())
        .map(|issued| format!("{} at {}", verb(&issued.command), issued.site))
        .collect();
    match (heads.is_empty(), state.finished) {
        (true, true) => format!("rank {rank} has finished and never joins"),
        (true, false) => format!("rank {rank} is parked and never joins"),
        (false, _) => format!("rank {rank} is in {}", heads.join(" and ")),
    }
}

fn blocked(coordinator: &Coordinator<'_>) -> WorldError {
    let stuck: Vec<u32> = (0..coordinator.ranks.len() as u32)
        .filter(|rank| {
            let state = &coordinator.ranks[*rank as usize];
            state.streams.values().any(|queue| !queue.is_empty())
        })
        .collect();
    let sides = sides_of(coordinator, &stuck);
    let told: Vec<&str> = sides.iter().map(|side| side.what.as_str()).collect();
    let rest = stuck.len().saturating_sub(RANKS_LISTED_MAX);
    let more = if rest > 0 {
        format!("; and {rest} more")
    } else {
        String::new()
    };
    let detail = format!("no rank can go on: {}{more}", told.join("; "));
    WorldError::Deadlock {
        detail,
        sides,
        hazards: Vec::new(),
    }
}

fn verb(command: &Command) -> String {
    match command {
        Command::Collective(call) => call.signature(),
        Command::Send { to, tensor, .. } => format!("a send of {} to rank {to}", tensor.len),
        Command::Recv { from, tensor, .. } => {
            format!("a receive of {} from rank {from}", tensor.len)
        }
        Command::Wait { ticket } => format!("a wait for `{}`", ticket.edge),
        Command::Launch { kernel, .. } => format!("a launch of {kernel}"),
        _ => "a command".to_string(),
    }
}

fn listed(ranks: &[u32]) -> String {
    let shown: Vec<String> = ranks
        .iter()
        .take(RANKS_LISTED_MAX)
        .map(u32::to_string)
        .collect();
    let rest = ranks.len().saturating_sub(RANKS_LISTED_MAX);
    let more = if rest > 0 {
        format!(" and {rest} more")
    } else {
        String::new()
    };
    format!("{}{more}", shown.join(", "))
}
