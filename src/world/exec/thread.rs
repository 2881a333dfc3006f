//! Rank threads: started in a given order, stopped whatever happens.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;

use crossbeam_channel::{bounded, unbounded};

use crate::engine::Engine;
use crate::fault::Fault;
use crate::world::error::WorldError;
use crate::world::observer::Observer;
use crate::world::rank::{Link, Rank, RankError};

use super::coordinator::Coordinator;
use super::{PlantedFault, Program, RunOptions, RunRecord, World};

/// A rank's thread keeps commands on the heap and needs little stack.
const STACK_BYTES: usize = 512 * 1024;

/// Starts the ranks, runs the coordinator on this thread, and joins everything.
pub(super) fn run(
    world: &World,
    engine: &mut dyn Engine,
    options: &RunOptions,
    program: &Program<'_>,
    observer: &mut dyn Observer,
) -> Result<RunRecord, WorldError> {
    let (to_coordinator, inbox) = unbounded();
    let mut outboxes = Vec::new();
    let mut inlets = Vec::new();
    for _ in 0..world.ranks {
        let (outbox, inlet) = bounded(1);
        outboxes.push(outbox);
        inlets.push(Some(inlet));
    }
    let named = options.faults.iter().filter_map(|fault| match fault {
        PlantedFault::Named(fault) => Some(fault.clone()),
        _ => None,
    });
    let named: Arc<[Fault]> = named.collect();
    thread::scope(|scope| {
        let mut order: Vec<u32> = (0..world.ranks).collect();
        if options.start_descending {
            order.reverse();
        }
        for id in order {
            let link = Link {
                to_coordinator: to_coordinator.clone(),
                from_coordinator: inlets[id as usize].take().expect("each rank starts once"),
            };
            let (communicators, faults) = (world.communicators.clone(), named.clone());
            let rank = Rank::new(id, communicators, options.memory, faults, link);
            let spawned = thread::Builder::new()
                .name(format!("rank {id}"))
                .stack_size(STACK_BYTES)
                .spawn_scoped(scope, move || host(rank, program));
            if let Err(error) = spawned {
                // Dropping the outboxes makes the ranks that did start return.
                outboxes.clear();
                return Err(WorldError::Thread {
                    rank: id,
                    reason: error.to_string(),
                });
            }
        }
        drop(to_coordinator);
        Coordinator::new(world, engine, options, observer, inbox, outboxes)?.run()
    })
}

/// A rank's host thread. A panic becomes that rank's message.
fn host(mut rank: Rank, program: &Program<'_>) {
    let result = catch_unwind(AssertUnwindSafe(|| program(&mut rank)));
    let result = result.unwrap_or_else(|payload| Err(RankError::Panicked(message_of(&*payload))));
    rank.finish(result);
}

fn message_of(payload: &(dyn Any + Send)) -> String {
    let text = payload
        .downcast_ref::<&str>()
        .map(|text| (*text).to_string());
    text.or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_string())
}
