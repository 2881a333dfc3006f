//! What a plan reads of a placement, group by group: for each rank its node, numbered in the order
//! of first appearance, and the place of its GPU there ([`crate::plan::Communicator`]). Groups with
//! the same reading have the same rings and trees.

use crate::topology::Allocation;
use crate::world::Communicator;

/// A rank's node and GPU, as a plan sees them.
type Seen = (u32, u32);

/// The readings of a job's groups.
pub struct Read(Vec<Vec<Seen>>);

impl Read {
    pub fn of(allocation: &Allocation, groups: &[Communicator]) -> Read {
        let mut numbers = Numbers::new(allocation);
        let seen = |group: &Communicator| numbers.seen(allocation, &group.ranks).collect();
        Read(groups.iter().map(seen).collect())
    }

    /// Groups that are read otherwise on another allocation of the same machines.
    pub fn changed(&self, allocation: &Allocation, groups: &[Communicator]) -> Vec<bool> {
        let mut numbers = Numbers::new(allocation);
        let pairs = groups.iter().zip(&self.0);
        pairs
            .map(|(group, own)| {
                !numbers
                    .seen(allocation, &group.ranks)
                    .eq(own.iter().copied())
            })
            .collect()
    }
}

/// Numbers of nodes in one group after the other.
struct Numbers {
    /// For each node the group that it was last met in, and its number there.
    met: Vec<(u32, u32)>,
    group: u32,
}

impl Numbers {
    fn new(allocation: &Allocation) -> Numbers {
        Numbers {
            met: vec![(0, 0); allocation.topology.hosts as usize],
            group: 0,
        }
    }

    fn seen<'a>(
        &'a mut self,
        allocation: &'a Allocation,
        ranks: &'a [u32],
    ) -> impl Iterator<Item = Seen> + 'a {
        self.group += 1;
        let mut next = 0;
        ranks.iter().map(move |rank| {
            let (node, gpu) = allocation.node_and_gpu(*rank);
            let met = &mut self.met[node as usize];
            if met.0 != self.group {
                *met = (self.group, next);
                next += 1;
            }
            (met.1, gpu)
        })
    }
}
