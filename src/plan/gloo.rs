//! Gloo's ring: always in rank order, whatever the placement.
//!
//! Checked against torch.distributed 2.15.0 on gloo. Chunk c folds
//! `(((x[c-1] + x[c-2]) + ...) + x[c+1]) + x[c]`, ranks modulo n, one rounding at each addition.

use std::sync::Arc;

use crate::plan::{Piece, Tree};

/// `kMaxSegmentSize` of gloo's ring.
const SEGMENT_BYTES: u64 = 1024 * 1024;

/// Elements of one chunk of an all-reduce: S equal segments, S a multiple of n, at least 2n, none
/// over 1 MiB; S / n to a chunk.
pub fn all_reduce_chunk(ranks: u64, elements: u64, element_bytes: u64) -> u64 {
    let bytes = elements * element_bytes;
    let segments = bytes
        .div_ceil(SEGMENT_BYTES)
        .max(2 * ranks)
        .next_multiple_of(ranks);
    let segment = bytes.div_ceil(segments).next_multiple_of(element_bytes);
    segment / element_bytes * (segments / ranks)
}

/// Elements of one chunk of a reduce: segments are sized first, then counted. The root plays no
/// part.
pub fn reduce_chunk(ranks: u64, elements: u64, element_bytes: u64) -> u64 {
    let bytes = elements * element_bytes;
    let segment = bytes
        .div_ceil(2 * ranks)
        .min(SEGMENT_BYTES)
        .next_multiple_of(element_bytes);
    let segments = bytes
        .div_ceil(segment.max(1))
        .max(2 * ranks)
        .next_multiple_of(ranks);
    segment / element_bytes * (segments / ranks)
}

/// An all-reduce of `elements` elements. A reduce-scatter is one too, of its whole input, followed
/// by a slice: its folds change at the all-reduce's borders, not at those of the output blocks.
pub fn all_reduce(ranks: u32, elements: u64, element_bytes: u64) -> Vec<Piece> {
    chunks(
        ranks,
        elements,
        all_reduce_chunk(u64::from(ranks), elements, element_bytes),
    )
}

/// A reduce of `elements` elements, to any root.
pub fn reduce(ranks: u32, elements: u64, element_bytes: u64) -> Vec<Piece> {
    chunks(
        ranks,
        elements,
        reduce_chunk(u64::from(ranks), elements, element_bytes),
    )
}

fn chunks(ranks: u32, elements: u64, chunk: u64) -> Vec<Piece> {
    assert!(ranks >= 1, "a communicator has ranks");
    // Descending ranks: chunk c starts at rank c - 1, which is at position n - c.
    let ring: Arc<[u32]> = (0..ranks).rev().collect();
    let mut pieces = Vec::new();
    for c in 0..u64::from(ranks) {
        let start = c * chunk;
        let range = start..(start + chunk).min(elements);
        if start < range.end {
            let start = (u64::from(ranks) - c) % u64::from(ranks);
            pieces.push(Piece {
                range,
                tree: Tree::Chain {
                    ring: ring.clone(),
                    start: start as u32,
                },
            });
        }
    }
    pieces
}
