//! Float arithmetic is IEEE 754, operation by operation; conversions; NaNs.

use super::{bits, run_body};

/// Floats whose products and sums round, vanish, overflow or cancel.
fn floats() -> Vec<f32> {
    let mut floats = vec![
        0.0,
        -0.0,
        1.0,
        -1.0,
        1.0 + f32::EPSILON,
        3.0,
        1e-40,
        -1e-45,
        f32::MIN_POSITIVE,
        f32::MAX,
        -f32::MAX,
        f32::INFINITY,
        f32::NEG_INFINITY,
        0.1,
        -2.5,
        8_388_607.5,
        16_777_217.0,
        4_294_967_040.0,
        4_294_967_296.0,
        2_147_483_648.0,
        -2_147_483_648.0,
        -2_147_483_904.0,
        1e20,
        0.999_999_94,
    ];
    floats.push(f32::from_bits(0x0000_0001));
    floats
}

fn canonical(value: f32) -> u32 {
    if value.is_nan() {
        0x7fc0_0000
    } else {
        value.to_bits()
    }
}

fn check_floats(expression: &str, want: &dyn Fn(f32, f32) -> u32) {
    let values = floats();
    let source = "
        @group(0) @binding(0) var<storage, read_write> input: array<vec2<f32>>;
        @group(0) @binding(1) var<storage, read_write> out: array<f32>;
        @compute @workgroup_size(8)
        fn main(@builtin(workgroup_id) group: vec3<u32>,
                @builtin(local_invocation_index) local: u32,
                @builtin(num_workgroups) groups: vec3<u32>) {
            let i = (group.x + group.y * groups.x) * 8u + local;
            let x = input[i].x;
            let y = input[i].y;
            out[i] = EXPRESSION;
        }"
    .replace("EXPRESSION", expression);
    let mut pairs: Vec<(f32, f32)> = values
        .iter()
        .flat_map(|&x| values.iter().map(move |&y| (x, y)))
        .collect();
    pairs.resize(pairs.len().next_multiple_of(16), (1.0, 2.0));
    let inputs: Vec<u32> = pairs
        .iter()
        .flat_map(|(x, y)| [x.to_bits(), y.to_bits()])
        .collect();
    let registry = crate::kernel::Registry::from_sources(&[("case", source.as_str())]).unwrap();
    let operands = [inputs, vec![0; pairs.len()]];
    let grid = [pairs.len() as u32 / 16, 2, 1];
    let got = super::run_on(1, &registry, "case", grid, &operands, &[]).expect("runs");
    for (&(x, y), got) in pairs.iter().zip(&got[1]) {
        assert_eq!(
            *got,
            want(x, y),
            "{expression} of {x:e} ({:#x}) and {y:e}",
            x.to_bits()
        );
    }
}

#[test]
fn float_arithmetic_is_ieee() {
    check_floats("x + y", &|x, y| canonical(x + y));
    check_floats("x - y", &|x, y| canonical(x - y));
    check_floats("x * y", &|x, y| canonical(x * y));
    check_floats("x / y", &|x, y| canonical(x / y));
    check_floats("sqrt(x)", &|x, _| canonical(x.sqrt()));
    check_floats("floor(x)", &|x, _| canonical(x.floor()));
    check_floats("trunc(x)", &|x, _| canonical(x.trunc()));
    check_floats("-abs(x)", &|x, _| canonical(-x.abs()));
    check_floats("select(x, y, x < y)", &|x, y| {
        canonical(if x < y { y } else { x })
    });
    // Neither contracted nor reassociated.
    check_floats("x * y + x", &|x, y| canonical((x * y) + x));
    check_floats("(x + y) - y", &|x, y| canonical((x + y) - y));
    check_floats("x * y / y", &|x, y| canonical(x * y / y));
}

/// Control of the test above: a fused or reassociated form differs on these floats.
#[test]
fn the_floats_tell_rewrites_apart() {
    let values = floats();
    let pairs = || {
        values
            .iter()
            .flat_map(|&x| values.iter().map(move |&y| (x, y)))
    };
    assert!(pairs().any(|(x, y)| canonical(x.mul_add(y, x)) != canonical(x * y + x)));
    assert!(pairs().any(|(x, y)| canonical(x) != canonical((x + y) - y)));
}

#[test]
fn float_comparisons_know_nan() {
    let code = "f32(u32(z < y) + 2u * u32(z <= y) + 4u * u32(z == y) + 8u * u32(z != y) \
                + 16u * u32(z > y) + 32u * u32(z >= y))";
    let expression = code.replace('z', "(x / x)");
    check_floats(&expression, &|x, y| {
        let z = x / x;
        let code = u32::from(z < y)
            + 2 * u32::from(z <= y)
            + 4 * u32::from(z == y)
            + 8 * u32::from(z != y)
            + 16 * u32::from(z > y)
            + 32 * u32::from(z >= y);
        (code as f32).to_bits()
    });
}

#[test]
fn conversions_clamp_and_truncate() {
    let as_u32 = |x: f32| (x as u32).min(0xffff_ff00);
    let as_i32 = |x: f32| (x as i32).min(0x7fff_ff80);
    check_floats("bitcast<f32>(u32(x) & 0x7fffffu)", &|x, _| {
        as_u32(x) & 0x7f_ffff
    });
    check_floats("f32(u32(x))", &|x, _| (as_u32(x) as f32).to_bits());
    check_floats("f32(i32(x))", &|x, _| (as_i32(x) as f32).to_bits());
    check_floats("f32(bool(x)) + 2.0 * f32(bool(u32(abs(y))))", &|x, y| {
        let (x, y) = (
            f32::from(u8::from(x != 0.0)),
            f32::from(u8::from(y.abs() as u32 != 0)),
        );
        (x + 2.0 * y).to_bits()
    });
    let words = [0, 1, 16_777_217, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff];
    let got = run_body("", "out[i] = bitcast<u32>(f32(input[i]));", &words);
    assert_eq!(got, words.map(|word| (word as f32).to_bits()));
    let got = run_body(
        "",
        "out[i] = bitcast<u32>(f32(bitcast<i32>(input[i])));",
        &words,
    );
    assert_eq!(got, words.map(|word| (word as i32 as f32).to_bits()));
    let body = "let v = vec4<f32>(bitcast<f32>(input[i])); \
                out[i] = vec4<u32>(v).w ^ bitcast<u32>(vec4<i32>(v * 2.0).z);";
    let inputs = bits(&floats());
    let want: Vec<u32> = floats()
        .iter()
        .map(|&x| as_u32(x) ^ as_i32(x * 2.0) as u32)
        .collect();
    assert_eq!(run_body("", body, &inputs), want);
}

/// Whatever NaN an operation makes, and whatever NaN is copied, the stored one is canonical.
#[test]
fn stored_and_cast_nans_are_canonical() {
    let nans = [
        0x7fc0_0000,
        0xffc0_0000,
        0x7f80_0001,
        0xffff_ffff,
        0x7fc0_1234,
    ];
    let copy = "
        @group(0) @binding(0) var<storage, read_write> input: array<vec4<f32>>;
        @group(0) @binding(1) var<storage, read_write> out: array<vec4<f32>>;
        @compute @workgroup_size(1)
        fn main(@builtin(global_invocation_id) gid: vec3<u32>) {
            let v = input[gid.x];
            out[gid.x] = v;
            if gid.x == 1u { out[gid.x].y = -(v.w + 1.0); }
        }";
    let registry = crate::kernel::Registry::from_sources(&[("copy", copy)]).unwrap();
    let mut input = nans.to_vec();
    input.extend(bits(&[f32::INFINITY, -0.0, f32::NAN]));
    let got =
        super::run_on(1, &registry, "copy", [2, 1, 1], &[input, vec![0; 8]], &[]).expect("runs");
    let nan = 0x7fc0_0000;
    assert_eq!(got[1], [nan, nan, nan, nan, nan, nan, 0x8000_0000, nan]);
    // A NaN made by arithmetic and looked at as an integer.
    let made = "let x = bitcast<f32>(input[i]); out[i] = bitcast<u32>(-((x - x) / (x - x)));";
    assert_eq!(run_body("", made, &bits(&[1.0, f32::INFINITY])), [nan, nan]);
}
