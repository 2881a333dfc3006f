//! Topologies and allocations that come with the program.

/// Topology files by name: machines without ranks.
pub const TOPOLOGIES: [(&str, &str); 3] = [
    (
        "dgx-a100-2",
        include_str!("../../topologies/dgx-a100-2.toml"),
    ),
    (
        "dgx-h100-1",
        include_str!("../../topologies/dgx-h100-1.toml"),
    ),
    (
        "dgx-h100-2",
        include_str!("../../topologies/dgx-h100-2.toml"),
    ),
];

/// Allocation files by name: sixteen ranks on two hosts.
pub const ALLOCATIONS: [(&str, &str); 2] = [
    ("block-2x8", include_str!("../../topologies/block-2x8.toml")),
    (
        "plane2-2x8",
        include_str!("../../topologies/plane2-2x8.toml"),
    ),
];
