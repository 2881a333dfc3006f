//! The ladder's one addition on the host against the same addition in WGSL.

use bitproof::numerics::Dtype;
use bitproof::numerics::ladder::rounded_add;

use crate::bench::{Bench, CHUNK, PARTS};

/// Pairs that meet at every distance of exponents, cancel, overflow, or are not numbers.
fn pairs() -> Vec<(u32, u32)> {
    let pair = |i: u32| {
        let a = i.wrapping_mul(0x9e37_79b9) ^ (i >> 3);
        let b = match i % 4 {
            0 => a ^ 0x8000_0000 ^ (i >> 9),
            1 => a.wrapping_add((i >> 2 & 0x1f) << 23),
            2 => i.wrapping_mul(0x85eb_ca6b).rotate_left(7),
            _ => a & 0xff80_0000 | i & 3,
        };
        (a, b)
    };
    (0..1 << 19).map(pair).collect()
}

#[test]
fn host_and_shader_add_alike() {
    for dtype in [Dtype::F32, Dtype::Bf16, Dtype::F16] {
        let sum = |a, b| format!("round_to(x[i].{a} + x[i].{b}, {}u)", dtype.code());
        let body = format!(
            "y[i] = vec4<f32>({}, {}, 0.0, 0.0);",
            sum('x', 'y'),
            sum('z', 'w')
        );
        let mut bench = Bench::new(&PARTS, "math/round", "vec4<f32>", &body);
        for pairs in pairs().chunks(CHUNK as usize / 2) {
            let words: Vec<u32> = pairs.iter().flat_map(|&(a, b)| [a, b]).collect();
            let sums = bench.run(&words);
            for (pairs, sums) in pairs.chunks_exact(2).zip(sums.chunks_exact(4)) {
                for (&(a, b), &sum) in pairs.iter().zip(sums) {
                    let host = rounded_add(f32::from_bits(a), f32::from_bits(b), dtype);
                    assert_eq!(host.to_bits(), sum, "{dtype} {a:08x} + {b:08x}");
                }
            }
        }
    }
}
