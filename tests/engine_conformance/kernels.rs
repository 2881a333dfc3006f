//! Kernels on inputs made for them: the cpu engine and the adapter give the same bits.

use bitproof::engine::cpu::CpuEngine;
use bitproof::engine::wgpu::WgpuEngine;
use bitproof::engine::{Engine, EngineError, Launch, Span};
use bitproof::kernel::Registry;

use crate::{adapter, promises_bits};

/// Words that are floats of every kind: all binades, subnormals, infinities, NaNs, small integers.
pub fn words(count: usize, seed: u32, wild: bool) -> Vec<u32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state
    };
    let one = |(place, bits): (usize, u32)| match (wild, place % 8) {
        (true, 0) => bits,
        (true, 1) => (bits as i32 as f32 / 65_536.0).trunc().to_bits(),
        (true, 2) => bits & 0x80ff_ffff,
        _ => ((bits >> 8) as f32 / 8_388_608.0 - 1.0).to_bits(),
    };
    (0..count).map(|place| one((place, next()))).collect()
}

struct Case<'a> {
    registry: &'a Registry,
    kernel: &'a str,
    grid: [u32; 3],
    /// Words of each operand of one instance.
    operands: &'a [u32],
    params: &'a dyn Fn(u32) -> Vec<u32>,
    instances: u32,
    wild: bool,
    /// An operand, and what it holds in every instance.
    given: Option<(usize, &'a [u32])>,
}

/// Runs the case in one arena with gaps between the operands; the arena afterwards, or the error.
fn run(engine: &mut dyn Engine, case: &Case) -> Result<Vec<u32>, EngineError> {
    let kernel = case
        .registry
        .get(case.kernel)
        .unwrap_or_else(|error| panic!("{error}"));
    let program = engine.load(kernel)?;
    let stride: u32 = case
        .operands
        .iter()
        .map(|words| words.next_multiple_of(64) + 64)
        .sum();
    let total = stride * case.instances;
    let arena = engine.alloc(total, 0x7f80_0001)?;
    let whole = Span {
        arena,
        offset_words: 0,
        words: total,
    };
    engine.write(whole, &words(total as usize, 7, case.wild))?;
    let launches: Vec<Launch> = (0..case.instances)
        .map(|instance| {
            let mut at = instance * stride;
            let mut span = |words: &u32| {
                let span = Span {
                    arena,
                    offset_words: at,
                    words: *words,
                };
                at += words.next_multiple_of(64) + 64;
                span
            };
            let operands = case.operands.iter().map(&mut span).collect();
            Launch {
                program,
                grid: case.grid,
                operands,
                params: (case.params)(instance),
            }
        })
        .collect();
    for launch in &launches {
        if let Some((operand, words)) = case.given {
            engine.write(launch.operands[operand], words)?;
        }
    }
    engine.run(&launches)?;
    engine.read(whole)
}

fn compare(gpu: &mut WgpuEngine, case: &Case) {
    let mut cpu = CpuEngine::new(2).expect("an engine");
    let (want, got) = (
        run(&mut cpu, case).expect("runs"),
        run(gpu, case).expect("runs"),
    );
    let differing: Vec<usize> = (0..want.len()).filter(|&at| want[at] != got[at]).collect();
    if let Some(&at) = differing.first() {
        let count = differing.len();
        let (want, got) = (want[at], got[at]);
        let told = format!("{count} words differ, first {at}: {want:#010x} {got:#010x}");
        eprintln!("{}: {told}", case.kernel);
        assert!(!promises_bits(gpu), "{}: {told}", case.kernel);
        return;
    }
    let start = words(want.len(), 7, case.wild);
    assert_ne!(want, start, "{} wrote nothing", case.kernel);
}

#[test]
fn matrix_products() {
    let Some(mut gpu) = adapter() else { return };
    let registry = Registry::new().expect("shaders link");
    let (m, n, k) = (7u32, 12u32, 20u32);
    for code in 0..3 {
        for (kernel, operands, columns) in [
            ("matmul_nn", [m * k, k * n, m * n], n / 4),
            ("matmul_nt", [m * k, n * k, m * n], n),
        ] {
            let params = |instance: u32| vec![m, n, k - 4 * (instance % 2), code];
            let grid = [columns.div_ceil(64), m.div_ceil(4), 1];
            let case = Case {
                registry: &registry,
                kernel,
                grid,
                operands: &operands,
                params: &params,
                instances: 9,
                wild: false,
                given: None,
            };
            compare(&mut gpu, &case);
        }
    }
}

/// A kernel with the words of its operands, its invocations along x and z, and its parameters for a
/// rounding code.
type KernelCase = (&'static str, &'static [u32], [u32; 2], fn(u32) -> Vec<u32>);

const THIRD: u32 = 0x3eaa_aaab;

/// Norms, biases, the activation, positions and masks of GPT-3: 6 rows of 8.
const ROW_KERNELS: [KernelCase; 8] = [
    ("layernorm_forward", &[48, 8, 8, 12, 48], [6, 1], |code| {
        vec![6, 8, THIRD, code]
    }),
    (
        "residual_layernorm",
        &[48, 48, 8, 8, 48, 12, 48],
        [6, 1],
        |code| vec![6, 8, THIRD, code],
    ),
    (
        "layernorm_backward",
        &[48, 12, 8, 48, 48, 48, 48],
        [6, 1],
        |code| vec![6, 8, 1, code],
    ),
    ("bias_add", &[48, 8], [48, 1], |code| vec![48, 8, code]),
    ("gelu_forward", &[48, 8, 48], [48, 1], |code| {
        vec![48, 8, 1, code]
    }),
    ("gelu_backward", &[48, 8, 48, 48], [48, 1], |code| {
        vec![48, 8, 1, code]
    }),
    // The last two of three positions' tokens, two a position.
    ("position_embedding", &[48, 24, 16], [16, 1], |code| {
        vec![16, 8, 2, 4, code]
    }),
    ("dropout_mask", &[4, 48], [48, 1], |code| {
        vec![48, code, 0x4000_0000, THIRD]
    }),
];

/// Attention over 5 positions of 2 samples, 4 heads of queries in 2 groups, 4 wide.
const ATTENTION_KERNELS: [KernelCase; 6] = [
    ("rope_forward", &[320, 10, 10], [120, 1], |code| {
        vec![120, 2, 2, 2, 2, code]
    }),
    ("attention_scores", &[320, 200], [200, 1], |_| {
        vec![200, 5, 2, 4, 2, 4, THIRD]
    }),
    (
        "attention_forward",
        &[320, 200, 200, 200, 160],
        [40, 1],
        |code| vec![40, 5, 2, 4, 2, 4, code % 2, code],
    ),
    (
        "attention_backward_scores",
        &[320, 200, 200, 160, 200],
        [40, 1],
        |code| vec![40, 5, 2, 4, 2, 4, code % 2],
    ),
    (
        "attention_backward_query",
        &[320, 200, 480],
        [40, 3],
        |_| vec![40, 5, 2, 4, 2, 4, 2],
    ),
    (
        "attention_backward_qkv",
        &[320, 200, 200, 160, 10, 10, 200, 160, 320],
        [20, 1],
        |code| vec![20, 5, 2, 4, 2, 4, THIRD, code % 2, 1, code],
    ),
];

#[test]
fn kernels_of_gpt3() {
    let Some(mut gpu) = adapter() else { return };
    let registry = Registry::new().expect("shaders link");
    for (kernel, operands, [x, z], params) in ROW_KERNELS.into_iter().chain(ATTENTION_KERNELS) {
        let case = Case {
            registry: &registry,
            kernel,
            grid: [x.div_ceil(64), 1, z],
            operands,
            params: &|instance| params(instance % 3),
            instances: 9,
            wild: false,
            given: None,
        };
        compare(&mut gpu, &case);
    }
}

/// Negative control of every comparison here: one engine runs a kernel that was rewritten as an
/// optimiser would rewrite it, and the bits differ.
#[test]
fn the_comparison_sees_a_rewrite() {
    let Some(mut gpu) = adapter() else { return };
    let mutant = ELEMENTWISE.replace("(a + b) - b", "a");
    assert_ne!(mutant, ELEMENTWISE);
    let round = include_str!("../../shaders/math/round.wgsl");
    let sources = [("elementwise", mutant.as_str()), ("math/round", round)];
    let rewritten = Registry::from_sources(&sources).expect("links");
    let registry = own_kernels();
    let case = |registry| Case {
        registry,
        kernel: "elementwise",
        grid: [3, 1, 1],
        operands: &[192, 192, 8 * 192],
        params: &|_| vec![192, 1.5f32.to_bits(), 0],
        instances: 1,
        wild: true,
        given: None,
    };
    let mut cpu = CpuEngine::new(1).expect("an engine");
    let want = run(&mut cpu, &case(&registry)).expect("runs");
    if promises_bits(&gpu) {
        assert_eq!(want, run(&mut gpu, &case(&registry)).expect("runs"));
    }
    assert_ne!(want, run(&mut gpu, &case(&rewritten)).expect("runs"));
}

/// Element by element, on floats of every kind: what a driver likes to rewrite.
const ELEMENTWISE: &str = "
// use: math/round
struct Params { count: u32, scale: f32, code: u32 }
@group(0) @binding(0) var<storage, read_write> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> out: array<vec2<f32>>;
@group(1) @binding(0) var<uniform> params: Params;
fn two_sum_error(a: f32, b: f32) -> f32 {
    let s = a + b;
    let t = s - a;
    return (a - (s - t)) + (b - t);
}
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) gid: vec3<u32>) {
    let i = gid.x;
    if i >= params.count { return; }
    let a = x[i];
    let b = y[i / 4u][i % 4u];
    let c = y[i / 4u].y;
    out[i].x = round_to(a * b + params.scale, params.code);
    out[i].y = (a + b) - b;
    out[i + params.count] = vec2<f32>(two_sum_error(a, b), a / b);
    out[i + 2u * params.count] = vec2<f32>(sqrt(abs(a)), a * params.scale + a * c);
    out[i + 3u * params.count] = vec2<f32>(floor(a) - trunc(b), (a * b) / b);
}";

/// Chains over slots in an order given by an operand, with an accumulator: the shape of a fold.
const CHAIN: &str = "
struct Params { count: u32, slots: u32 }
@group(0) @binding(0) var<storage, read_write> addends: array<f32>;
@group(0) @binding(1) var<storage, read_write> order: array<i32>;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;
@group(1) @binding(0) var<uniform> params: Params;
@compute @workgroup_size(8, 2)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32,
        @builtin(num_workgroups) groups: vec3<u32>) {
    let element = local + 16u * (group.x + groups.x * (group.y + groups.y * group.z));
    if element >= params.count { return; }
    var stack: array<f32, 4>;
    stack[1] = out[element];
    for (var s = 0u; s < params.slots; s++) {
        let slot = u32(order[i32(s)] & 0x7fffffff) % params.slots;
        stack[1u + (s & 1u)] = stack[1] + addends[slot * params.count + element];
        stack[1] = stack[1u + (s & 1u)];
    }
    out[element] = stack[1];
}";

fn own_kernels() -> Registry {
    let round = include_str!("../../shaders/math/round.wgsl");
    let sources = [
        ("elementwise", ELEMENTWISE),
        ("chain", CHAIN),
        ("math/round", round),
    ];
    Registry::from_sources(&sources).expect("links")
}

#[test]
fn elementwise_on_floats_of_every_kind() {
    let Some(mut gpu) = adapter() else { return };
    let registry = own_kernels();
    for wild in [false, true] {
        let case = Case {
            registry: &registry,
            kernel: "elementwise",
            grid: [3, 1, 1],
            operands: &[192, 192, 8 * 192],
            params: &|instance| vec![192, (0.37f32 + instance as f32).to_bits(), instance % 3],
            instances: 40,
            wild,
            given: None,
        };
        compare(&mut gpu, &case);
    }
}

#[test]
fn chains_with_an_accumulator_and_three_axes() {
    let Some(mut gpu) = adapter() else { return };
    let registry = own_kernels();
    let case = Case {
        registry: &registry,
        kernel: "chain",
        grid: [2, 3, 2],
        operands: &[180 * 5, 5, 180],
        params: &|_| vec![180, 5],
        instances: 50,
        wild: false,
        given: None,
    };
    compare(&mut gpu, &case);
}

/// The real fold: chains and stack programs, every start of a value, every rounding, sums and
/// maxima, multiplied before and divided after.
#[test]
fn folds_of_every_kind() {
    let Some(mut gpu) = adapter() else { return };
    let registry = Registry::new().expect("shaders link");
    const COMBINE: u32 = 0xffff_ffff;
    let ring = [3, 0, 4, 1, 2];
    let tree = [0, 1, COMBINE, 2, 3, COMBINE, COMBINE, 4, COMBINE];
    let third = 0.333f32.to_bits();
    for (kind, program) in [(0, &ring[..]), (1, &tree[..])] {
        for wild in [false, true] {
            let params = |instance: u32| {
                let (init, combine) = (instance % 3, instance / 3 % 2);
                let (partial, out) = (instance % 3, instance / 2 % 3);
                let (multiply, divide) = ((instance & 1) * third, (instance >> 1 & 1) * third);
                let start = instance % 5;
                let length = program.len() as u32;
                vec![
                    24, 5, 24, kind, start, length, init, combine, partial, out, multiply, divide,
                ]
            };
            let case = Case {
                registry: &registry,
                kernel: "fold",
                grid: [1, 1, 1],
                operands: &[5 * 96, program.len() as u32, 96, 96],
                params: &params,
                instances: 36,
                wild,
                given: Some((1, program)),
            };
            compare(&mut gpu, &case);
        }
    }
}

/// Our own elementary functions, on floats of every kind.
#[test]
fn elementary_functions() {
    let Some(mut gpu) = adapter() else { return };
    let mut sources: Vec<(&str, String)> = Vec::new();
    for (name, text) in [
        ("math/exp", include_str!("../../shaders/math/exp.wgsl")),
        ("math/log", include_str!("../../shaders/math/log.wgsl")),
        ("math/tanh", include_str!("../../shaders/math/tanh.wgsl")),
        (
            "math/sincos",
            include_str!("../../shaders/math/sincos.wgsl"),
        ),
        ("math/rsqrt", include_str!("../../shaders/math/rsqrt.wgsl")),
        (
            "math/philox",
            include_str!("../../shaders/math/philox.wgsl"),
        ),
        (
            "math/product",
            include_str!("../../shaders/math/product.wgsl"),
        ),
    ] {
        sources.push((name, text.to_owned()));
    }
    let functions = ["exp", "log", "tanh", "sin", "cos", "rsqrt"];
    for function in functions {
        let file = if matches!(function, "sin" | "cos") {
            "sincos"
        } else {
            function
        };
        let kernel = format!(
            "// use: math/{file}\n\
             @group(0) @binding(0) var<storage, read_write> x: array<f32>;\n\
             @group(0) @binding(1) var<storage, read_write> out: array<f32>;\n\
             @compute @workgroup_size(64)\n\
             fn main(@builtin(global_invocation_id) gid: vec3<u32>) {{\n\
                 out[gid.x] = bp_{function}(x[gid.x]);\n\
             }}\n"
        );
        sources.push((function, kernel));
    }
    let sources: Vec<(&str, &str)> = sources
        .iter()
        .map(|(name, text)| (*name, text.as_str()))
        .collect();
    let registry = Registry::from_sources(&sources).expect("links");
    for kernel in functions {
        let case = Case {
            registry: &registry,
            kernel,
            grid: [64, 1, 1],
            operands: &[4096, 4096],
            params: &|_| Vec::new(),
            instances: 4,
            wild: true,
            given: None,
        };
        compare(&mut gpu, &case);
    }
}
