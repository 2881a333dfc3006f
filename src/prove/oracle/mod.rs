//! Oracles: comparisons that expose a fault. Each has a negative control among the planted faults.
//!
//! R2R compares two runs, RES a resumed run with a straight one, on its layout or on another. The
//! third, XR, compares replicas while a run goes on, in `world/exec/boundary.rs`; `replicas` names
//! the node that let a drift in, and `prove/certificate/oracles.rs` makes its verdict of both. TOPO
//! compares the run with runs of another size or in another place. REF follows who contributed to
//! each gradient, and compares values with a serial run.

pub(crate) mod generations;
pub mod parting;
pub mod r2r;
pub mod reference;
pub mod replicas;
pub mod res;
pub mod reshard;
pub mod snapshot;
pub mod topo;

use crate::world::Family;

/// A family's name in reports.
pub(crate) fn family_name(family: Family) -> String {
    let name = serde_json::to_value(family).ok();
    name.and_then(|name| name.as_str().map(str::to_string))
        .unwrap_or_default()
}
