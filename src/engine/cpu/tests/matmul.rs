//! The three matrix products against a serial loop in the documented order, bit for bit.

use super::{bits, run_shader};
use crate::numerics::Dtype;

fn sample(count: usize, seed: u32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(2_654_435_761).wrapping_add(1);
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        (state >> 8) as f32 / 8_388_608.0 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

/// One chain over k ascending from +0.
fn chain(terms: impl Iterator<Item = (f32, f32)>) -> f32 {
    terms.fold(0.0, |sum, (a, b)| sum + a * b)
}

const SHAPES: [(usize, usize, usize); 5] = [
    (1, 4, 4),
    (4, 8, 12),
    (5, 12, 8),
    (7, 260, 20),
    (66, 16, 64),
];

fn grid(x: usize, m: usize) -> [u32; 3] {
    [(x as u32).div_ceil(64), (m as u32).div_ceil(4), 1]
}

#[test]
fn nn_is_one_ascending_chain() {
    for (m, n, k) in SHAPES {
        for dtype in [Dtype::F32, Dtype::Bf16, Dtype::F16] {
            let (a, b) = (sample(m * k, 1), sample(k * n, 2));
            let operands = [bits(&a), bits(&b), vec![7; m * n]];
            let params = [m as u32, n as u32, k as u32, dtype.code()];
            let got = run_shader("matmul_nn", grid(n / 4, m), &operands, &params);
            for row in 0..m {
                for column in 0..n {
                    let want = chain((0..k).map(|i| (a[row * k + i], b[i * n + column])));
                    let want = dtype.round(want).to_bits();
                    assert_eq!(got[2][row * n + column], want, "{m} {n} {k} {row} {column}");
                }
            }
        }
    }
}

#[test]
fn wgrad_sums_each_part_of_the_tokens() {
    for (tokens, rows, columns) in [(1, 4, 4), (7, 12, 8), (20, 4, 260)] {
        let (a, b) = (sample(tokens * rows, 3), sample(tokens * columns, 4));
        for splits in [1, 2, 3] {
            let operands = [bits(&a), bits(&b), vec![7; splits * rows * columns]];
            let params = [tokens, rows, columns, splits].map(|size| size as u32);
            let blocks = (rows / 4 * (columns / 4)) as u32;
            let grid = [blocks.div_ceil(64), 1, splits as u32];
            let got = run_shader("matmul_wgrad", grid, &operands, &params);
            for part in 0..splits {
                let (begin, end) = (part * tokens / splits, (part + 1) * tokens / splits);
                for (row, column) in (0..rows).flat_map(|r| (0..columns).map(move |c| (r, c))) {
                    let terms = (begin..end).map(|t| (a[t * rows + row], b[t * columns + column]));
                    let place = (part * rows + row) * columns + column;
                    assert_eq!(
                        got[2][place],
                        chain(terms).to_bits(),
                        "{tokens} {part} {row}"
                    );
                }
            }
        }
    }
}

#[test]
fn nt_is_four_chains_and_a_small_tree() {
    for (m, n, k) in SHAPES {
        for dtype in [Dtype::F32, Dtype::Bf16] {
            let (a, b) = (sample(m * k, 5), sample(n * k, 6));
            let operands = [bits(&a), bits(&b), vec![7; m * n]];
            let params = [m as u32, n as u32, k as u32, dtype.code()];
            let got = run_shader("matmul_nt", grid(n, m), &operands, &params);
            for row in 0..m {
                for column in 0..n {
                    let lane = |l: usize| {
                        chain(
                            (l..k)
                                .step_by(4)
                                .map(|i| (a[row * k + i], b[column * k + i])),
                        )
                    };
                    let want = (lane(0) + lane(1)) + (lane(2) + lane(3));
                    let want = dtype.round(want).to_bits();
                    assert_eq!(got[2][row * n + column], want, "{m} {n} {k} {row} {column}");
                }
            }
        }
    }
}

/// Negative control of the three tests above: another order gives other bits on this sample.
#[test]
fn the_sample_tells_orders_apart() {
    let (a, b) = (sample(64, 5), sample(64, 6));
    let forward = chain((0..64).map(|i| (a[i], b[i])));
    let backward = chain((0..64).rev().map(|i| (a[i], b[i])));
    assert_ne!(forward.to_bits(), backward.to_bits());
}
