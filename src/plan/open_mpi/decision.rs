//! Which algorithm Open MPI chooses by itself: `coll_tuned_decision_fixed.c`, for commutative
//! operations.
//!
//! The tables were read in the source of a later version (2025), where the rules of 4.1 are the
//! general ones; they give what 4.1.4 chose in all 336 results that have the library's choice (n =
//! 3, 4, 5, 8). Versions after 5.0 have other rules for communicators of one node or of one rank a
//! node.

use super::{AllReduce, Reduce, ReduceScatter, ReduceScatterBlock};

/// Algorithms by the least bytes that the next one is taken at; the last one has no bound.
type BySize<A> = &'static [(u64, A)];
/// The same by ranks.
type Table<A> = &'static [(u32, BySize<A>)];

/// No bound.
const ANY: u32 = u32::MAX;
const REST: u64 = u64::MAX;

fn chosen<A: Copy>(table: Table<A>, ranks: u32, bytes: u64) -> A {
    let rows = table.iter().find(|(below, _)| ranks < *below);
    let (_, rows) = rows.expect("the last row has no bound");
    let row = rows.iter().find(|(below, _)| bytes < *below);
    row.expect("the last size has no bound").1
}

/// What an all-reduce of so many bytes takes.
pub(super) fn all_reduce(ranks: u32, bytes: u64) -> AllReduce {
    chosen(ALL_REDUCE, ranks, bytes)
}

/// What a reduce of so many bytes takes.
pub(super) fn reduce(ranks: u32, bytes: u64) -> Reduce {
    chosen(REDUCE, ranks, bytes)
}

/// What a reduce-scatter whose blocks have so many bytes together takes.
pub(super) fn reduce_scatter(ranks: u32, bytes: u64) -> ReduceScatter {
    chosen(REDUCE_SCATTER, ranks, bytes)
}

/// What a reduce-scatter of blocks of so many bytes takes.
pub(super) fn reduce_scatter_block(ranks: u32, bytes: u64) -> ReduceScatterBlock {
    chosen(REDUCE_SCATTER_BLOCK, ranks, bytes)
}

const ALL_REDUCE: Table<AllReduce> = &[
    (
        4,
        &[
            (8, AllReduce::Ring),
            (4096, AllReduce::RecursiveDoubling),
            (8192, AllReduce::Ring),
            (16384, AllReduce::RecursiveDoubling),
            (65536, AllReduce::Ring),
            (262144, AllReduce::SegmentedRing),
            (REST, AllReduce::Rabenseifner),
        ],
    ),
    (
        8,
        &[
            (16, AllReduce::Ring),
            (8192, AllReduce::RecursiveDoubling),
            (REST, AllReduce::Rabenseifner),
        ],
    ),
    (
        16,
        &[
            (8192, AllReduce::RecursiveDoubling),
            (REST, AllReduce::Rabenseifner),
        ],
    ),
    (
        32,
        &[
            (64, AllReduce::SegmentedRing),
            (4096, AllReduce::RecursiveDoubling),
            (REST, AllReduce::Rabenseifner),
        ],
    ),
    (
        64,
        &[
            (128, AllReduce::SegmentedRing),
            (REST, AllReduce::Rabenseifner),
        ],
    ),
    (
        128,
        &[
            (262144, AllReduce::RecursiveDoubling),
            (REST, AllReduce::Rabenseifner),
        ],
    ),
    (
        256,
        &[
            (131072, AllReduce::NonOverlapping),
            (262144, AllReduce::RecursiveDoubling),
            (REST, AllReduce::Rabenseifner),
        ],
    ),
    (
        512,
        &[
            (4096, AllReduce::NonOverlapping),
            (REST, AllReduce::Rabenseifner),
        ],
    ),
    (
        2048,
        &[
            (2048, AllReduce::NonOverlapping),
            (16384, AllReduce::RecursiveDoubling),
            (REST, AllReduce::Rabenseifner),
        ],
    ),
    (
        4096,
        &[
            (2048, AllReduce::NonOverlapping),
            (4096, AllReduce::SegmentedRing),
            (16384, AllReduce::RecursiveDoubling),
            (REST, AllReduce::Rabenseifner),
        ],
    ),
    (
        ANY,
        &[
            (2048, AllReduce::NonOverlapping),
            (16384, AllReduce::SegmentedRing),
            (32768, AllReduce::RecursiveDoubling),
            (REST, AllReduce::Rabenseifner),
        ],
    ),
];

const REDUCE: Table<Reduce> = &[
    (
        4,
        &[
            (8, Reduce::Rabenseifner),
            (16, Reduce::Binary),
            (32, Reduce::Pipeline),
            (262144, Reduce::Linear),
            (524288, Reduce::Pipeline),
            (1048576, Reduce::Chain { fanout: 1 }),
            (REST, Reduce::Pipeline),
        ],
    ),
    (
        8,
        &[
            (4096, Reduce::Binary),
            (65536, Reduce::Chain { fanout: 1 }),
            (262144, Reduce::Binomial),
            (524288, Reduce::Linear),
            (1048576, Reduce::Binomial),
            (REST, Reduce::Linear),
        ],
    ),
    (16, &[(8192, Reduce::Binary), (REST, Reduce::Binomial)]),
    (32, &[(4096, Reduce::Binary), (REST, Reduce::Binomial)]),
    (256, &[(REST, Reduce::Binomial)]),
    (
        512,
        &[
            (8192, Reduce::Binomial),
            (16384, Reduce::InOrderBinary),
            (REST, Reduce::Binomial),
        ],
    ),
    (2048, &[(REST, Reduce::Binomial)]),
    (
        4096,
        &[
            (512, Reduce::Binomial),
            (1024, Reduce::InOrderBinary),
            (8192, Reduce::Binomial),
            (16384, Reduce::InOrderBinary),
            (REST, Reduce::Binomial),
        ],
    ),
    (
        ANY,
        &[
            (16, Reduce::Binomial),
            (32, Reduce::InOrderBinary),
            (1024, Reduce::Binomial),
            (2048, Reduce::InOrderBinary),
            (8192, Reduce::Binomial),
            (16384, Reduce::InOrderBinary),
            (REST, Reduce::Binomial),
        ],
    ),
];

const REDUCE_SCATTER: Table<ReduceScatter> = &[
    (
        4,
        &[
            (65536, ReduceScatter::Ring),
            (131072, ReduceScatter::Butterfly),
            (REST, ReduceScatter::Ring),
        ],
    ),
    (
        8,
        &[
            (8, ReduceScatter::NonOverlapping),
            (262144, ReduceScatter::RecursiveHalving),
            (REST, ReduceScatter::Ring),
        ],
    ),
    (
        32,
        &[
            (262144, ReduceScatter::RecursiveHalving),
            (REST, ReduceScatter::Ring),
        ],
    ),
    (
        64,
        &[
            (64, ReduceScatter::NonOverlapping),
            (2048, ReduceScatter::RecursiveHalving),
            (524288, ReduceScatter::Butterfly),
            (REST, ReduceScatter::Ring),
        ],
    ),
    (
        128,
        &[
            (256, ReduceScatter::NonOverlapping),
            (512, ReduceScatter::RecursiveHalving),
            (2048, ReduceScatter::Butterfly),
            (4096, ReduceScatter::RecursiveHalving),
            (REST, ReduceScatter::Butterfly),
        ],
    ),
    (
        256,
        &[
            (256, ReduceScatter::NonOverlapping),
            (512, ReduceScatter::RecursiveHalving),
            (REST, ReduceScatter::Butterfly),
        ],
    ),
    (
        512,
        &[
            (256, ReduceScatter::NonOverlapping),
            (1024, ReduceScatter::RecursiveHalving),
            (REST, ReduceScatter::Butterfly),
        ],
    ),
    (
        1024,
        &[
            (512, ReduceScatter::NonOverlapping),
            (2048, ReduceScatter::RecursiveHalving),
            (8192, ReduceScatter::Butterfly),
            (16384, ReduceScatter::RecursiveHalving),
            (REST, ReduceScatter::Butterfly),
        ],
    ),
    (
        2048,
        &[
            (512, ReduceScatter::NonOverlapping),
            (4096, ReduceScatter::RecursiveHalving),
            (16384, ReduceScatter::Butterfly),
            (32768, ReduceScatter::RecursiveHalving),
            (REST, ReduceScatter::Butterfly),
        ],
    ),
    (
        4096,
        &[
            (512, ReduceScatter::NonOverlapping),
            (4096, ReduceScatter::RecursiveHalving),
            (REST, ReduceScatter::Butterfly),
        ],
    ),
    (
        ANY,
        &[
            (1024, ReduceScatter::NonOverlapping),
            (8192, ReduceScatter::RecursiveHalving),
            (REST, ReduceScatter::Butterfly),
        ],
    ),
];

const REDUCE_SCATTER_BLOCK: Table<ReduceScatterBlock> = &[
    (
        4,
        &[
            (4, ReduceScatterBlock::RecursiveDoubling),
            (8, ReduceScatterBlock::Butterfly),
            (16, ReduceScatterBlock::RecursiveHalving),
            (128, ReduceScatterBlock::Butterfly),
            (256, ReduceScatterBlock::RecursiveHalving),
            (4096, ReduceScatterBlock::Butterfly),
            (8192, ReduceScatterBlock::RecursiveHalving),
            (131072, ReduceScatterBlock::Butterfly),
            (REST, ReduceScatterBlock::BasicLinear),
        ],
    ),
    (
        8,
        &[
            (8, ReduceScatterBlock::RecursiveHalving),
            (32, ReduceScatterBlock::RecursiveDoubling),
            (256, ReduceScatterBlock::Butterfly),
            (8192, ReduceScatterBlock::RecursiveHalving),
            (16384, ReduceScatterBlock::Butterfly),
            (1048576, ReduceScatterBlock::RecursiveHalving),
            (REST, ReduceScatterBlock::BasicLinear),
        ],
    ),
    (
        16,
        &[
            (4, ReduceScatterBlock::BasicLinear),
            (32, ReduceScatterBlock::RecursiveHalving),
            (128, ReduceScatterBlock::Butterfly),
            (524288, ReduceScatterBlock::RecursiveHalving),
            (4194304, ReduceScatterBlock::BasicLinear),
            (REST, ReduceScatterBlock::Butterfly),
        ],
    ),
    (
        32,
        &[
            (32, ReduceScatterBlock::BasicLinear),
            (524288, ReduceScatterBlock::RecursiveHalving),
            (2097152, ReduceScatterBlock::BasicLinear),
            (4194304, ReduceScatterBlock::RecursiveHalving),
            (REST, ReduceScatterBlock::Butterfly),
        ],
    ),
    (
        ANY,
        &[
            (4, ReduceScatterBlock::RecursiveHalving),
            (16, ReduceScatterBlock::BasicLinear),
            (65536, ReduceScatterBlock::Butterfly),
            (262144, ReduceScatterBlock::BasicLinear),
            (REST, ReduceScatterBlock::Butterfly),
        ],
    ),
];
