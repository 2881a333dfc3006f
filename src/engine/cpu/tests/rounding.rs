//! `math/round` against the `half` crate: every binade, every place where bits are dropped.

use super::run_on;
use crate::kernel::Registry;
use crate::numerics::Dtype;

const KERNEL: &str = "
// use: math/round
@group(0) @binding(0) var<storage, read_write> values: array<f32>;
@group(0) @binding(1) var<storage, read_write> out: array<vec4<f32>>;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) gid: vec3<u32>) {
    let x = values[gid.x];
    let four = round_to4(vec4<f32>(x, -x, x, x), 1u);
    out[gid.x] = vec4<f32>(round_to(x, 0u), four.x, round_to(x, 2u), -four.y);
}";

/// All high halves, each with low halves around the ties of bf16 and f16.
fn sample(low: &[u32]) -> Vec<u32> {
    (0..=0xffffu32)
        .flat_map(|high| low.iter().map(move |low| high << 16 | low))
        .collect()
}

fn check(values: Vec<u32>) {
    let registry = Registry::from_sources(&[
        ("round", KERNEL),
        (
            "math/round",
            include_str!("../../../../shaders/math/round.wgsl"),
        ),
    ])
    .expect("links");
    let count = values.len();
    let grid = [count as u32 / 64, 1, 1];
    let got = run_on(
        2,
        &registry,
        "round",
        grid,
        &[values.clone(), vec![0; 4 * count]],
        &[],
    )
    .unwrap();
    for (bits, got) in values.iter().zip(got[1].chunks(4)) {
        let x = f32::from_bits(*bits);
        for (dtype, got) in [Dtype::F32, Dtype::Bf16, Dtype::F16].into_iter().zip(got) {
            assert_eq!(*got, dtype.round(x).to_bits(), "{bits:#010x} to {dtype}");
        }
        // Symmetric: the negated bf16 of -x, except that a NaN has lost its sign.
        if !x.is_nan() {
            assert_eq!(got[3], got[1], "{bits:#010x}");
        }
    }
}

#[test]
fn rounding_is_that_of_the_half_crate() {
    check(sample(&[
        0, 1, 0x0fff, 0x1000, 0x1001, 0x2fff, 0x3000, 0x7fff, 0x8000, 0x8001, 0xffff,
    ]));
}

/// f16 subnormals: every place that can be dropped, exactly half, one below and one above.
#[test]
fn f16_subnormals_round_to_even() {
    let mut values = Vec::new();
    for exponent in 100..116u32 {
        for place in 0..23u32 {
            for kept in [0u32, 1, 2, 3] {
                let tie = ((kept << (place + 1)) | (1 << place)) & 0x7f_ffff;
                let bits = exponent << 23 | tie;
                values.extend([bits, bits + 1, bits - 1, bits | 0x8000_0000]);
            }
        }
    }
    assert!(values.len() % 64 == 0);
    check(values);
}
