//! What a way of carrying a job's collectives out costs: bytes on the wire and steps that wait for
//! each other. No time: that would need the hardware.
//!
//! For n ranks and B bytes of the whole buffer, all ranks of a group together send
//! * ring or tree all-reduce: 2 (n - 1) B; reduce-scatter, reduce, all-to-all: (n - 1) B (Patarasuk
//!   and Yuan 2009; NVIDIA/nccl-tests, doc/PERFORMANCE.md; a tree sends each link's B up and down);
//! * by LL twice as much (4 bytes of data and 4 of flag), by LL128 16/15 (120 bytes of 128).
//!
//! Steps, as NCCL's cost model counts them (`src/graph/tuning.cc`): ring 2 (n - 1) for an
//! all-reduce, n - 1 for others; tree 2 (n/m - 1 + floor(log2 m)) over m nodes; an all-to-all 1;
//! PAT, of its trees' depth, ceil(log2 n).

use std::collections::BTreeSet;

use crate::plan::{CarriedOut, Collective, Protocol, Request, Selector};
use crate::recipe::nccl::Algorithm;
use crate::topology::Allocation;

/// What a step of training costs in its collectives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
pub struct Cost {
    /// Bytes that all ranks send.
    pub wire_bytes: u64,
    /// Steps one after the other, of the rank that has most.
    pub steps: u64,
    /// Bytes on one channel, of the rank and with the channels of the plans: where this grows, so
    /// does the time, as channels share the links.
    pub channel_bytes: u64,
}

/// Costs of each rank while they are added up.
pub(super) struct Tally {
    wire_bytes: u64,
    steps: Vec<u64>,
    channel_bytes: Vec<u64>,
}

impl Tally {
    pub fn new(world: u32) -> Tally {
        let none = vec![0; world as usize];
        Tally {
            wire_bytes: 0,
            steps: none.clone(),
            channel_bytes: none,
        }
    }

    /// Adds what one group does so many times in a step.
    pub fn add(
        &mut self,
        selector: &Selector,
        request: &Request<'_>,
        times: u64,
    ) -> Result<(), crate::plan::PlanError> {
        let ranks = request.members.len() as u64;
        if ranks < 2 {
            return Ok(());
        }
        let how = selector.carried_out(request)?;
        let nodes = nodes(selector.allocation(), request.members);
        let bytes = request.elements * request.dtype.wire_bytes();
        let sent = sent(request.collective, how, ranks, bytes);
        let steps = steps(request.collective, how, ranks, nodes);
        let channels = how.map_or(1, |how| u64::from(how.channels.max(1)));
        let on_channel = sent.div_ceil(ranks * channels);
        self.wire_bytes = self.wire_bytes.saturating_add(sent.saturating_mul(times));
        for rank in request.members {
            let place = *rank as usize;
            self.steps[place] += steps * times;
            self.channel_bytes[place] =
                self.channel_bytes[place].saturating_add(on_channel.saturating_mul(times));
        }
        Ok(())
    }

    pub fn total(&self) -> Cost {
        let most = |list: &[u64]| list.iter().copied().max().unwrap_or(0);
        Cost {
            wire_bytes: self.wire_bytes,
            steps: most(&self.steps),
            channel_bytes: most(&self.channel_bytes),
        }
    }
}

fn sent(collective: Collective, how: Option<CarriedOut>, ranks: u64, bytes: u64) -> u64 {
    let passes = match collective {
        Collective::AllReduce => 2,
        _ => 1,
    };
    let data = (passes * (ranks - 1)).saturating_mul(bytes);
    match how.map(|how| how.protocol) {
        None | Some(Protocol::Simple) => data,
        Some(Protocol::Ll) => data.saturating_mul(2),
        Some(Protocol::Ll128) => (u128::from(data) * 16).div_ceil(15) as u64,
    }
}

fn steps(collective: Collective, how: Option<CarriedOut>, ranks: u64, nodes: u64) -> u64 {
    let is_tree = how.is_some_and(|how| how.algorithm == Algorithm::Tree);
    match collective {
        Collective::AllReduce if is_tree => {
            2 * ((ranks / nodes).saturating_sub(1) + u64::from(nodes.ilog2()))
        }
        Collective::AllReduce => 2 * (ranks - 1),
        Collective::ReduceScatterFp32Accumulation | Collective::AllToAll => 1,
        _ if how.is_some_and(|how| how.algorithm == Algorithm::Pat) => {
            u64::from(ranks.next_power_of_two().ilog2())
        }
        _ => ranks - 1,
    }
}

fn nodes(allocation: &Allocation, members: &[u32]) -> u64 {
    let node = |rank: &u32| allocation.node_and_gpu(*rank).0;
    members.iter().map(node).collect::<BTreeSet<_>>().len() as u64
}
