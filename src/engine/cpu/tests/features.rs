//! One test for each part of WGSL that the JIT translates.

use super::run_body;

#[test]
fn integer_edge_cases() {
    let edges = [0u32, 1, 2, 7, 31, 32, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff];
    let pairs: Vec<(u32, u32)> = edges
        .iter()
        .flat_map(|&x| edges.iter().map(move |&y| (x, y)))
        .collect();
    let inputs: Vec<u32> = pairs.iter().flat_map(|&(x, y)| [x, y]).collect();
    let run = |expression: &str| {
        let body = format!(
            "let x = input[2u * (i / 2u)]; let y = input[2u * (i / 2u) + 1u]; \
             let sx = bitcast<i32>(x); let sy = bitcast<i32>(y); out[i] = {expression};"
        );
        run_body("", &body, &inputs)
            .into_iter()
            .step_by(2)
            .collect::<Vec<u32>>()
    };
    let check = |expression: &str, want: &dyn Fn(u32, u32) -> u32| {
        let want: Vec<u32> = pairs.iter().map(|&(x, y)| want(x, y)).collect();
        assert_eq!(run(expression), want, "{expression}");
    };
    check("x + y", &|x, y| x.wrapping_add(y));
    check("x - y", &|x, y| x.wrapping_sub(y));
    check("x * y", &|x, y| x.wrapping_mul(y));
    check("x / y", &|x, y| x.checked_div(y).unwrap_or(x));
    check("x % y", &|x, y| x.checked_rem(y).unwrap_or(0));
    check("x / 8u + y / 7u + x / 1u", &|x, y| {
        (x / 8 + y / 7).wrapping_add(x)
    });
    check("x % 8u + y % 7u + x % 1u + y % 0x80000000u", &|x, y| {
        (x % 8 + y % 7).wrapping_add(y % 0x8000_0000)
    });
    let signed = |x: u32, y: u32| (x as i32, y as i32);
    check("bitcast<u32>(sx / sy)", &|x, y| {
        let (x, y) = signed(x, y);
        x.checked_div(y).unwrap_or(x) as u32
    });
    check("bitcast<u32>(sx % sy)", &|x, y| {
        let (x, y) = signed(x, y);
        x.checked_rem(y).unwrap_or(0) as u32
    });
    check("x << y", &|x, y| x << (y & 31));
    check("x >> y", &|x, y| x >> (y & 31));
    check("bitcast<u32>(sx >> y)", &|x, y| {
        ((x as i32) >> (y & 31)) as u32
    });
    check("(x & y) | (x ^ ~y)", &|x, y| (x & y) | (x ^ !y));
    check("u32(x < y) + 2u * u32(sx < sy)", &|x, y| {
        u32::from(x < y) + 2 * u32::from((x as i32) < (y as i32))
    });
    check(
        "countLeadingZeros(x) + 64u * countTrailingZeros(y)",
        &|x, y| x.leading_zeros() + 64 * y.trailing_zeros(),
    );
    check("countOneBits(x) + max(x, y)", &|x, y| {
        x.count_ones().wrapping_add(x.max(y))
    });
    check(
        "bitcast<u32>(abs(sx)) ^ bitcast<u32>(min(sx, sy))",
        &|x, y| (x as i32).wrapping_abs() as u32 ^ (x as i32).min(y as i32) as u32,
    );
    check("bitcast<u32>(-sx)", &|x, _| {
        (x as i32).wrapping_neg() as u32
    });
}

#[test]
fn loops_switches_and_early_exits() {
    let body = "
        var sum = 0u;
        var n = input[i];
        loop {
            if n == 0u { break; }
            n = n - 1u;
            if n % 3u == 1u { continue; }
            for (var j = 0u; j < n; j++) {
                switch j % 5u {
                    case 0u, 3u: { sum = sum + 1u; }
                    case 1u: { if j > 6u { break; } sum = sum + 10u; }
                    case 4u: { continue; }
                    default: { sum = sum + 100u; }
                }
                sum = sum + 1000u;
            }
            continuing { sum = sum ^ 1u; break if sum > 90000u; }
        }
        while n < 5u { n = n + 2u; }
        if sum > 70000u { out[i] = sum; return; }
        out[i] = sum + n;";
    let want = |mut n: u32| {
        let mut sum = 0u32;
        while n != 0 {
            n -= 1;
            if n % 3 != 1 {
                for j in 0..n {
                    match j % 5 {
                        0 | 3 => sum += 1,
                        1 if j > 6 => {}
                        1 => sum += 10,
                        4 => continue,
                        _ => sum += 100,
                    }
                    sum += 1000;
                }
            }
            sum ^= 1;
            if sum > 90_000 {
                break;
            }
        }
        while n < 5 {
            n += 2;
        }
        if sum > 70_000 { sum } else { sum + n }
    };
    let inputs: Vec<u32> = (0..30).collect();
    let want: Vec<u32> = inputs.iter().map(|&n| want(n)).collect();
    assert_eq!(run_body("", body, &inputs), want);
}

/// A variable declared in a loop begins anew in each iteration.
#[test]
fn a_variable_declared_in_a_loop_starts_at_zero() {
    let body = "
        var total = 0u;
        for (var j = 0u; j < input[i]; j++) {
            var fresh: u32;
            var list: array<u32, 3>;
            fresh = fresh + 1u;
            list[j % 3u] = list[j % 3u] + 10u;
            total = total + fresh + list[j % 3u];
        }
        out[i] = total;";
    assert_eq!(run_body("", body, &[0, 1, 5]), [0, 11, 55]);
}

#[test]
fn the_whole_of_params_is_a_value() {
    let source = "
        struct Params { a: u32, b: f32, c: i32 }
        @group(0) @binding(0) var<storage, read_write> out: array<i32>;
        @group(1) @binding(0) var<uniform> params: Params;
        fn mix_all(p: Params) -> i32 { return i32(p.a) + i32(p.b) + p.c; }
        @compute @workgroup_size(1)
        fn main() { let p = params; out[1] = mix_all(p); }";
    let registry = crate::kernel::Registry::from_sources(&[("params", source)]).unwrap();
    let params = [7, 2.75f32.to_bits(), -100i32 as u32];
    let got = super::run_on(1, &registry, "params", [1, 1, 1], &[vec![5; 2]], &params);
    assert_eq!(got.expect("runs")[0], [5, -91i32 as u32]);
}

#[test]
fn functions_pointers_structs_and_arrays() {
    let helpers = "
        struct Pair { low: u32, high: vec2<u32>, flags: array<bool, 2> }
        const TABLE = array<u32, 4>(11u, 22u, 33u, 44u);
        fn bump(at: ptr<function, u32>, by: u32) {
            *at = *at + by;
            if by > 2u { return; }
            *at = 1u;
        }
        fn fill(list: ptr<function, array<u32, 3>>, n: u32) {
            for (var j = 0u; j < 3u; j++) { (*list)[j] = n * j; }
        }
        fn split(x: u32) -> Pair {
            if x > 100u { return Pair(0u, vec2<u32>(7u), array<bool, 2>(true, false)); }
            var p = Pair();
            p.low = x % 10u;
            p.high = vec2<u32>(x / 10u, x);
            p.flags[x & 1u] = true;
            return p;
        }";
    let body = "
        let p = split(input[i]);
        var total = p.low + 100u * p.high.x + 10000u * u32(p.flags[1]) + 20000u * u32(p.flags[0]);
        bump(&total, p.high.y);
        var list: array<u32, 3>;
        fill(&list, total);
        var m = array<array<vec4<u32>, 2>, 2>();
        m[i & 1u][1u - (i & 1u)].z = 5u;
        let q = TABLE[i & 3u];
        out[i] = list[2] + list[1] * 3u + q + m[0][1].z * 7u + m[1][0].z;";
    let want = |i: usize, x: u32| {
        let (low, high, even, odd) = if x > 100 {
            (0, [7, 7], 1, 0)
        } else {
            (x % 10, [x / 10, x], 1 - x % 2, x % 2)
        };
        let mut total = low + 100 * high[0] + 10_000 * odd + 20_000 * even;
        total = if high[1] > 2 { total + high[1] } else { 1 };
        let table = [11, 22, 33, 44][i & 3];
        total * 2 + total * 3 + table + if i & 1 == 0 { 35 } else { 5 }
    };
    let inputs = [0, 1, 2, 3, 57, 99, 100, 101, 5000];
    let want: Vec<u32> = inputs
        .iter()
        .enumerate()
        .map(|(i, &x)| want(i, x))
        .collect();
    assert_eq!(run_body(helpers, body, &inputs), want);
}

#[test]
fn vectors_swizzles_masks_and_dynamic_lanes() {
    let body = "
        let x = input[i];
        var v = vec4<u32>(x, x + 1u, x + 2u, x + 3u);
        v[x % 4u] = 9u;
        let w = v.wzyx + v.xxyy;
        let less = v < vec4<u32>(5u, 5u, 5u, 50u);
        let s = select(w, v << vec4<u32>(2u), less);
        let t = vec3<u32>(s.yz, s[(x + 1u) % 4u]) / vec3<u32>(3u, 1u, x - x);
        let u = vec2<u32>(t.xz) << vec2<u32>(1u, 4u);
        let flags = !(vec3<bool>(less.xyz) | vec3<bool>(true, x > 3u, false));
        out[i] = u.x + 31u * u.y + 1000u * u32(all(less)) + 2000u * u32(any(flags)) + t.y;";
    let want = |x: u32| {
        let mut v = [x, x + 1, x + 2, x + 3];
        v[(x % 4) as usize] = 9;
        let w = [v[3] + v[0], v[2] + v[0], v[1] + v[1], v[0] + v[1]];
        let less = [v[0] < 5, v[1] < 5, v[2] < 5, v[3] < 50];
        let s: [u32; 4] = std::array::from_fn(|l| if less[l] { v[l] << 2 } else { w[l] });
        let t = [s[1] / 3, s[2], s[((x + 1) % 4) as usize]];
        let u = [t[0] << 1, t[2] << 4];
        let flags = [false, !(less[1] || x > 3), !less[2]];
        u[0] + 31 * u[1]
            + 1000 * u32::from(less.iter().all(|&l| l))
            + 2000 * u32::from(flags.iter().any(|&f| f))
            + t[1]
    };
    let inputs: Vec<u32> = (0..12).collect();
    let want: Vec<u32> = inputs.iter().map(|&x| want(x)).collect();
    assert_eq!(run_body("", body, &inputs), want);
}

#[test]
fn ids_of_three_axes() {
    let source = "
        struct Ids { @builtin(local_invocation_id) local: vec3<u32>,
                     @builtin(workgroup_id) group: vec3<u32> }
        @group(0) @binding(0) var<storage, read_write> out: array<u32>;
        @compute @workgroup_size(2, 3, 2)
        fn main(ids: Ids, @builtin(global_invocation_id) gid: vec3<u32>,
                @builtin(num_workgroups) groups: vec3<u32>,
                @builtin(local_invocation_index) index: u32) {
            let size = groups * vec3<u32>(2u, 3u, 2u);
            let at = gid.x + size.x * (gid.y + size.y * gid.z);
            let l = ids.local;
            let g = ids.group;
            out[at] = l.x + 10u * l.y + 100u * l.z + 1000u * g.x + 10000u * g.y
                + 100000u * g.z + 1000000u * index;
        }";
    let registry = crate::kernel::Registry::from_sources(&[("ids", source)]).unwrap();
    let out = vec![0; 12 * 2 * 3 * 4];
    let got = super::run_on(1, &registry, "ids", [2, 3, 4], &[out], &[]).expect("runs");
    for (at, got) in got[0].iter().enumerate() {
        let at = at as u32;
        let gid = [at % 4, at / 4 % 9, at / 36];
        let (l, g) = (
            [gid[0] % 2, gid[1] % 3, gid[2] % 2],
            [gid[0] / 2, gid[1] / 3, gid[2] / 2],
        );
        let index = l[0] + 2 * l[1] + 6 * l[2];
        let want = l[0] + 10 * l[1] + 100 * l[2] + 1000 * g[0] + 10_000 * g[1] + 100_000 * g[2];
        assert_eq!(*got, want + 1_000_000 * index);
    }
}
