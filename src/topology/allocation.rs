//! Shapes of machines, and where ranks run on them.

use crate::topology::{ChannelGraph, MAX_RANKS, Recorded};

/// The machines of a job, without its ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    pub name: String,
    pub hosts: u32,
    /// GPUs of the largest host.
    pub gpus_per_host: u32,
    /// Consecutive hosts joined by NVLink (a rack of GB200 trays). 1 where NVLink ends at the host.
    pub hosts_per_nvlink_domain: u32,
    pub graph: ChannelGraph,
    /// What NCCL finds for a group that has all GPUs of one node and no others, where that is known
    /// and `graph` is what it finds for several nodes.
    pub alone: Option<ChannelGraph>,
}

impl Topology {
    /// `hosts` equal hosts whose GPUs lie behind one switch.
    pub fn switched(name: &str, hosts: u32, gpus_per_host: u32) -> Topology {
        Topology {
            name: name.to_owned(),
            hosts,
            gpus_per_host,
            hosts_per_nvlink_domain: 1,
            graph: ChannelGraph::ascending(gpus_per_host),
            alone: None,
        }
    }

    /// GPUs of one node in NCCL's sense: a host, or an NVLink domain.
    pub fn gpus_per_node(&self) -> u32 {
        self.gpus_per_host * self.hosts_per_nvlink_domain
    }

    /// Ranks 0, 1, ... on the GPUs in order, host by host. `None` where they do not fit.
    pub fn block(&self, world: u32) -> Option<Allocation> {
        let room = u64::from(self.hosts) * u64::from(self.gpus_per_host);
        if world == 0 || world > MAX_RANKS || u64::from(world) > room {
            return None;
        }
        let slot = |rank| Slot {
            host: rank / self.gpus_per_host,
            gpu: rank % self.gpus_per_host,
        };
        Some(Allocation {
            name: self.name.clone(),
            topology: self.clone(),
            placement: Placement {
                slots: (0..world).map(slot).collect(),
            },
            recorded: Recorded::default(),
            assumes: Vec::new(),
        })
    }
}

/// One GPU: a host and an index on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot {
    pub host: u32,
    pub gpu: u32,
}

/// Where each rank runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// By global rank.
    pub slots: Vec<Slot>,
}

impl Placement {
    pub fn world(&self) -> u32 {
        self.slots.len() as u32
    }
}

/// A job's ranks on machines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allocation {
    pub name: String,
    pub topology: Topology,
    pub placement: Placement,
    /// Communicators whose rings and trees are known: theirs are not made from the topology.
    pub recorded: Recorded,
    /// What is taken for granted of the machines, in words: plans rest on it.
    pub assumes: Vec<String>,
}

impl Allocation {
    /// A rank's node in NCCL's sense, and the index of its GPU there.
    pub fn node_and_gpu(&self, rank: u32) -> (u32, u32) {
        let Slot { host, gpu } = self.placement.slots[rank as usize];
        let span = self.topology.hosts_per_nvlink_domain;
        (host / span, host % span * self.topology.gpus_per_host + gpu)
    }
}
