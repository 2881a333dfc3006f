//! Machines by name: `preset:dgx-h100x304`. Made by rule, not read from files.
//!
//! In-node orders are those that the search of NCCL 2.30.7 finds on these shapes, where its host
//! code was run on them; of other machines nothing is known, and one ring in the order of the GPUs
//! stands for it, which plans say.

use std::fmt;

use super::{Allocation, ChannelGraph, MAX_RANKS, Topology, TreePattern};
use crate::diagnostic::nearest;

/// What stands before a preset's name where a file could be named.
pub const PREFIX: &str = "preset:";

/// What is known of the orders within a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Orders {
    /// Run for so many search channels over several nodes, and for one node alone.
    Searched {
        channels: u32,
        trees: TreeTurn,
        pattern: TreePattern,
        cross_nic_swap: bool,
        alone: u32,
    },
    Unknown,
}

/// How a chain runs from the GPU of its channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TreeTurn {
    Up,
    /// Up on even channels, down on odd ones.
    Alternating,
}

/// A kind of machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preset {
    pub name: &'static str,
    /// Hosts of one unit, joined by NVLink: `x4` is four units.
    hosts_per_unit: u32,
    gpus_per_host: u32,
    orders: Orders,
    /// What it is, and what follows from no source.
    pub about: &'static str,
}

const SEARCHED_H100: Orders = Orders::Searched {
    channels: 8,
    trees: TreeTurn::Up,
    pattern: TreePattern::Tree,
    cross_nic_swap: true,
    alone: 12,
};
const SEARCHED_A100: Orders = Orders::Searched {
    channels: 8,
    trees: TreeTurn::Alternating,
    pattern: TreePattern::Balanced,
    cross_nic_swap: false,
    alone: 12,
};
const SEARCHED_GB200: Orders = Orders::Searched {
    channels: 16,
    trees: TreeTurn::Alternating,
    pattern: TreePattern::Balanced,
    cross_nic_swap: false,
    alone: 16,
};

/// All kinds.
pub const PRESETS: [Preset; 9] = [
    Preset {
        name: "dgx-a100",
        hosts_per_unit: 1,
        gpus_per_host: 8,
        orders: SEARCHED_A100,
        about: "hosts of 8 A100 behind NVSwitches, 8 NICs",
    },
    Preset {
        name: "dgx-h100",
        hosts_per_unit: 1,
        gpus_per_host: 8,
        orders: SEARCHED_H100,
        about: "hosts of 8 H100 behind NVSwitches, 8 NICs",
    },
    Preset {
        name: "dgx-b200",
        hosts_per_unit: 1,
        gpus_per_host: 8,
        orders: Orders::Unknown,
        about: "hosts of 8 B200 behind NVSwitches, 8 NICs",
    },
    Preset {
        name: "gb200-nvl64",
        hosts_per_unit: 16,
        gpus_per_host: 4,
        orders: SEARCHED_GB200,
        about: "racks of which 16 trays of 4 GPUs are used, joined by NVLink: a rack is a node",
    },
    Preset {
        name: "gb200-nvl72",
        hosts_per_unit: 18,
        gpus_per_host: 4,
        orders: SEARCHED_GB200,
        about: "racks of 18 trays of 4 GPUs, joined by NVLink: a rack is a node (orders over \
                several racks are those of racks of 64)",
    },
    Preset {
        name: "mi300x",
        hosts_per_unit: 1,
        gpus_per_host: 8,
        orders: Orders::Unknown,
        about: "hosts of 8 MI300X, each linked to each; plans are NCCL's, of which RCCL is a fork \
                with rings of its own for some boards",
    },
    Preset {
        name: "rail-fat-tree",
        hosts_per_unit: 1,
        gpus_per_host: 8,
        orders: Orders::Unknown,
        about: "hosts of 8 GPUs, GPU k of each on leaf k: no library reads the fabric, so nothing \
                of it is in a plan",
    },
    Preset {
        name: "dragonfly",
        hosts_per_unit: 1,
        gpus_per_host: 4,
        orders: Orders::Unknown,
        about: "hosts of 4 GPUs in groups: no library reads the fabric, so nothing of it is in a \
                plan",
    },
    Preset {
        name: "tpu-v5p",
        hosts_per_unit: 1,
        gpus_per_host: 4,
        orders: Orders::Unknown,
        about: "hosts of 4 chips in a torus: XLA's collectives are not modelled, plans are those \
                that NCCL would have on such hosts",
    },
];

/// Why a name is no preset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoPreset {
    Unknown {
        near: Option<&'static str>,
    },
    /// No units, or more GPUs than ranks are supported.
    Count {
        text: String,
    },
}

impl fmt::Display for NoPreset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoPreset::Unknown { near: Some(near) } => {
                write!(f, "no such preset: did you mean `{PREFIX}{near}`?")
            }
            NoPreset::Unknown { near: None } => {
                let names = PRESETS.iter().map(|preset| preset.name);
                let names = names.collect::<Vec<_>>().join(", ");
                write!(
                    f,
                    "no such preset: expected one of {names}, and a number as in x304"
                )
            }
            NoPreset::Count { text } => {
                write!(f, "`x{text}`: expected machines of 1 to {MAX_RANKS} GPUs")
            }
        }
    }
}

impl Preset {
    /// The preset that `dgx-h100x304` names, and how many units: as many as a job needs where no
    /// number is given.
    ///
    /// # Errors
    /// A name that is none, or a number that is too small or large.
    pub fn named(text: &str) -> Result<(Preset, Option<u32>), NoPreset> {
        let find = |name: &str| PRESETS.into_iter().find(|preset| preset.name == name);
        if let Some(preset) = find(text) {
            return Ok((preset, None));
        }
        let digits = text.trim_end_matches(|c: char| c.is_ascii_digit()).len();
        let (name, count) = text.split_at(digits);
        let name = name.strip_suffix('x').filter(|_| !count.is_empty());
        let Some(preset) = find(name.unwrap_or(text)) else {
            let names = PRESETS.iter().map(|preset| preset.name);
            let near = nearest(name.unwrap_or(text), names);
            let near = near.and_then(find).map(|preset| preset.name);
            return Err(NoPreset::Unknown { near });
        };
        let gpus = u64::from(preset.hosts_per_unit * preset.gpus_per_host);
        let units = count.parse::<u32>().ok();
        let units =
            units.filter(|units| (1..=u64::from(MAX_RANKS)).contains(&(u64::from(*units) * gpus)));
        match units {
            Some(units) => Ok((preset, Some(units))),
            None => Err(NoPreset::Count {
                text: count.to_string(),
            }),
        }
    }

    /// GPUs of so many units.
    pub fn gpus(&self, units: u32) -> u32 {
        units * self.hosts_per_unit * self.gpus_per_host
    }

    /// `world` ranks on these machines, unit by unit; `None` where they do not fit.
    pub fn allocation(&self, units: Option<u32>, world: u32) -> Option<Allocation> {
        if world == 0 || world > MAX_RANKS {
            return None;
        }
        // The last unit of a job that needs no whole one is not whole.
        let needed = world.div_ceil(self.gpus_per_host);
        let hosts = units.map_or(needed, |units| units * self.hosts_per_unit);
        let gpus = self.hosts_per_unit * self.gpus_per_host;
        let name = match units {
            Some(units) => format!("{PREFIX}{}x{units}", self.name),
            None => format!("{PREFIX}{}", self.name),
        };
        let topology = Topology {
            name,
            hosts,
            gpus_per_host: self.gpus_per_host,
            hosts_per_nvlink_domain: self.hosts_per_unit,
            graph: self.graph(world.div_ceil(gpus)),
            alone: (self.orders != Orders::Unknown && world > gpus).then(|| self.graph(1)),
        };
        let mut allocation = topology.block(world)?;
        allocation.assumes = self.assumes(world % gpus);
        Some(allocation)
    }

    /// The orders of a job over so many nodes.
    fn graph(&self, nodes: u32) -> ChannelGraph {
        let gpus = self.hosts_per_unit * self.gpus_per_host;
        let Orders::Searched {
            channels,
            trees,
            pattern,
            cross_nic_swap,
            alone,
        } = self.orders
        else {
            return ChannelGraph::ascending(gpus);
        };
        if nodes == 1 {
            let orders = vec![turn(gpus, 0, true); alone as usize];
            return ChannelGraph {
                ring_orders: orders.clone(),
                tree_orders: orders,
                tree_pattern: TreePattern::Balanced,
                cross_nic_swap: false,
                missing: None,
            };
        }
        let is_odd = |channel: u32| channel % 2 == 1;
        let goes_up = |channel| trees == TreeTurn::Up || !is_odd(channel);
        ChannelGraph {
            ring_orders: (0..channels)
                .map(|channel| turn(gpus, channel, is_odd(channel)))
                .collect(),
            tree_orders: (0..channels)
                .map(|channel| turn(gpus, channel, goes_up(channel)))
                .collect(),
            tree_pattern: pattern,
            cross_nic_swap,
            missing: None,
        }
    }

    fn assumes(&self, rest: u32) -> Vec<String> {
        let mut list = vec![format!("that the machines are {}", self.about)];
        if self.orders != Orders::Unknown {
            list.push(
                "that rings and chains are those that the search of NCCL 2.30.7 finds for ranks \
                 on whole nodes of this shape: a group of some of a node's GPUs is taken to have \
                 the same ones, its own GPUs in their order"
                    .to_string(),
            );
        }
        if rest > 0 {
            list.push(format!(
                "that the last node, of which {rest} GPUs are used, has the channels of the others"
            ));
        }
        list
    }
}

/// GPUs from `first` up, or down, and round.
fn turn(gpus: u32, first: u32, goes_up: bool) -> Vec<u32> {
    let step = |at: u32| match goes_up {
        true => (first + at) % gpus,
        false => (first + gpus - at) % gpus,
    };
    (0..gpus).map(step).collect()
}
