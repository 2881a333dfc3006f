//! The in-node orders of NCCL's channels.

/// Where the links from child nodes attach to a node's chain `t[0], t[1], ...`. The link to the
/// parent is always at `t[0]`. Numbers are those of NCCL's graph files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TreePattern {
    /// 1: child 0 at `t[1]`, child 1 at `t[0]`.
    Balanced,
    /// 2: both at `t[1]`.
    Split,
    /// 3: both at `t[0]`.
    Tree,
}

/// What NCCL's topology search found inside a node, for each search channel.
///
/// An order lists the GPUs of a node (an NVLink domain where it spans hosts) by index. Ranks that a
/// communicator does not have are passed over. The basis of a plan is this list, taken from a
/// file: the search itself is not run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChannelGraph {
    /// In at the first GPU, out at the last.
    pub ring_orders: Vec<Vec<u32>>,
    /// The chain's head first. As many as `ring_orders`.
    pub tree_orders: Vec<Vec<u32>>,
    pub tree_pattern: TreePattern,
    /// The rings were found with crossNic 2: nodes of odd index swap the orders of channels c and
    /// c ^ 1 (NCCL 2.30.7 `graph/connect.cc`), if their number is even.
    pub cross_nic_swap: bool,
    /// Orders that nobody gave, where the others were given: ascending ones stand for them.
    pub missing: Option<MissingOrders>,
}

/// Which of a graph's orders were not given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MissingOrders {
    Rings,
    Trees,
}

impl ChannelGraph {
    /// One search channel, GPUs in ascending order: what NCCL finds in a single switched box.
    pub fn ascending(gpus: u32) -> ChannelGraph {
        let order: Vec<u32> = (0..gpus).collect();
        ChannelGraph {
            ring_orders: vec![order.clone()],
            tree_orders: vec![order],
            tree_pattern: TreePattern::Tree,
            cross_nic_swap: false,
            missing: None,
        }
    }

    /// NCCL's N: search channels that rings and trees both have.
    pub fn search_channels(&self) -> usize {
        self.ring_orders.len().min(self.tree_orders.len())
    }

    /// The order of a node's ring on search channel `channel`.
    pub fn ring_order(&self, channel: usize, node: usize) -> &[u32] {
        let swapped =
            self.cross_nic_swap && node % 2 == 1 && self.search_channels().is_multiple_of(2);
        &self.ring_orders[if swapped { channel ^ 1 } else { channel }]
    }
}
