//! Negative controls: an engine that computes as some optimiser or device does fails exactly the
//! expressions that guard against it, and each expression is failed by one of them.

use std::collections::BTreeSet;

use super::run;
use crate::engine::cpu::CpuEngine;
use crate::engine::self_test::expressions::all;
use crate::engine::self_test::{Case, SelfTest};
use crate::engine::{
    ArenaId, CopyWords, Engine, EngineError, EngineIdentity, Launch, ProgramId, Span,
};
use crate::kernel::{Kernel, Registry};
use crate::numerics::{CANONICAL_NAN, Digest};

/// Runs another kernel than it is given, and spoils what is read.
struct Tampered {
    engine: CpuEngine,
    kernels: Registry,
    spoil: fn(u32) -> u32,
}

impl Engine for Tampered {
    fn identity(&self) -> EngineIdentity {
        self.engine.identity()
    }
    fn load(&mut self, kernel: &Kernel) -> Result<ProgramId, EngineError> {
        let other = self.kernels.get(&kernel.name);
        self.engine
            .load(other.unwrap_or_else(|error| panic!("{error}")))
    }
    fn alloc_on(&mut self, shard: u32, words: u32, poison: u32) -> Result<ArenaId, EngineError> {
        self.engine.alloc_on(shard, words, poison)
    }
    fn runs(&self) -> u64 {
        self.engine.runs()
    }
    fn grow(&mut self, arena: ArenaId, words: u32, poison: u32) -> Result<(), EngineError> {
        self.engine.grow(arena, words, poison)
    }
    fn release(&mut self, arena: ArenaId) -> Result<(), EngineError> {
        self.engine.release(arena)
    }
    fn run(&mut self, launches: &[Launch]) -> Result<(), EngineError> {
        self.engine.run(launches)
    }
    fn copy(&mut self, copies: &[CopyWords]) -> Result<(), EngineError> {
        self.engine.copy(copies)
    }
    fn read(&mut self, span: Span) -> Result<Vec<u32>, EngineError> {
        let words = self.engine.read(span)?;
        Ok(words.into_iter().map(self.spoil).collect())
    }
    fn write(&mut self, span: Span, words: &[u32]) -> Result<(), EngineError> {
        self.engine.write(span, words)
    }
    fn note(&mut self, spans: &[Span]) -> Result<(), EngineError> {
        self.engine.note(spans)
    }
    fn noted(&mut self) -> Result<Vec<Digest>, EngineError> {
        self.engine.noted()
    }
}

const SHADERS: [(&str, &str); 7] = [
    (
        "self_test",
        include_str!("../../../../shaders/self_test.wgsl"),
    ),
    (
        "math/exp",
        include_str!("../../../../shaders/math/exp.wgsl"),
    ),
    (
        "math/log",
        include_str!("../../../../shaders/math/log.wgsl"),
    ),
    (
        "math/product",
        include_str!("../../../../shaders/math/product.wgsl"),
    ),
    (
        "math/rsqrt",
        include_str!("../../../../shaders/math/rsqrt.wgsl"),
    ),
    (
        "math/sincos",
        include_str!("../../../../shaders/math/sincos.wgsl"),
    ),
    (
        "math/tanh",
        include_str!("../../../../shaders/math/tanh.wgsl"),
    ),
];

/// What tampered kernels call. `fused` is a fused multiply-add of numbers about one.
const HELPERS: &str = "
fn flush(x: f32) -> f32 {
    return select(x, bitcast<f32>(bitcast<u32>(x) & 0x80000000u), abs(x) < 0x1p-126);
}
fn clamped(x: f32) -> f32 {
    return select(x, bitcast<f32>(bitcast<u32>(x) & 0xff7fffffu), abs(x) > 0x1.fffffep+127);
}
fn head(x: f32) -> f32 {
    return bitcast<f32>(bitcast<u32>(x) & 0xfffff000u);
}
fn fused(x: f32, y: f32, z: f32) -> f32 {
    let product = x * y;
    let a = x - head(x);
    let b = y - head(y);
    let error = ((head(x) * head(y) - product) + head(x) * b + a * head(y)) + a * b;
    return (product + z) + (two_sum_error(product, z) + error);
}
";

fn tampered(from: &str, to: &str, spoil: fn(u32) -> u32) -> SelfTest {
    let mut changed = 0;
    let sources = SHADERS.map(|(name, text)| {
        changed += text.matches(from).count();
        let helpers = if name == "self_test" { HELPERS } else { "" };
        (name, format!("{}{helpers}", text.replace(from, to)))
    });
    assert_eq!(changed, 1, "`{from}` is not in the shaders once");
    let sources: Vec<(&str, &str)> = sources.iter().map(|(n, text)| (*n, &**text)).collect();
    let kernels = Registry::from_sources(&sources).expect("links");
    let engine = CpuEngine::new(1).expect("an engine");
    run(&mut Tampered {
        engine,
        kernels,
        spoil,
    })
}

fn differing(test: &SelfTest) -> Vec<&'static str> {
    test.differing().collect()
}

/// What is replaced, by what, and the names of the expressions that fail.
type Tampering = (&'static str, &'static str, &'static [&'static str]);

const TAMPERINGS: &[Tampering] = &[
    // Rounding.
    (
        "return x + y;",
        "return x + y * 0x1.000002p+0;",
        &[
            "sum",
            "ties of a sum",
            "sums of edges",
            "overflow of a sum",
            "subnormal sums",
        ],
    ),
    (
        "return x - y;",
        "return x * 0x1.000002p+0 - y;",
        &["difference", "differences of edges"],
    ),
    (
        "return x - y;",
        "return x + (0.0 - y);",
        &["differences of edges"],
    ),
    (
        "return x * y;",
        "return x * 0.5 * y * 2.0;",
        &[
            "products of edges",
            "subnormal products",
            "subnormal factors",
        ],
    ),
    (
        "return x / y;",
        "return x * (1.0 / y);",
        &["division", "quotients of edges", "subnormal quotients"],
    ),
    (
        "return 1.0 / x;",
        "return bp_rsqrt(abs(x)) * bp_rsqrt(abs(x));",
        &["reciprocal"],
    ),
    (
        "return sqrt(x);",
        "return x * bp_rsqrt(x);",
        &["square root", "roots of edges", "roots of subnormals"],
    ),
    ("return -x;", "return 0.0 - x;", &["negation"]),
    (
        "return x * y;",
        "return x / (1.0 / y);",
        &[
            "product",
            "products of edges",
            "overflow of a product",
            "subnormal products",
            "subnormal factors",
        ],
    ),
    // Contraction.
    (
        "return x * y + z;",
        "return fused(x, y, z);",
        &["contraction"],
    ),
    (
        "return z - x * y;",
        "return fused(-x, y, z);",
        &["contraction of a difference"],
    ),
    (
        "vec4<f32>(x, y, z, -x) * y + vec4<f32>(z, x, y, x)",
        "vec4<f32>(fused(x, y, z), fused(y, y, x), fused(z, y, y), fused(-x, y, x))",
        &["contraction of vectors"],
    ),
    (
        "sum = sum + xs[k] * ys[k];",
        "sum = fused(xs[k], ys[k], sum);",
        &["chain of products"],
    ),
    // Algebra.
    (
        "return x * y + x * z;",
        "return x * (y + z);",
        &["factoring"],
    ),
    ("return (x + y) - y;", "return x;", &["cancelled sum"]),
    (
        "return (x + y) + z;",
        "return x + (y + z);",
        &["sum from the left"],
    ),
    (
        "return x + (y + z);",
        "return (x + y) + z;",
        &["sum from the right"],
    ),
    (
        "return (x * y) * z;",
        "return x * (y * z);",
        &["product from the left"],
    ),
    (
        "return (x - (sum - of_y)) + (y - of_y);",
        "return 0.0;",
        &["TwoSum's error"],
    ),
    (
        "return (sum - x) - term;",
        "return 0.0;",
        &["Kahan's carry"],
    ),
    (
        "return x / 3.0;",
        "return x * 0x1.555556p-2;",
        &["division by a constant"],
    ),
    ("return (x * y) / y;", "return x;", &["cancelled product"]),
    (
        "return sqrt(abs(x)) * sqrt(abs(x));",
        "return abs(x);",
        &["square of a root"],
    ),
    // Zeros and NaNs.
    ("return x * 0.0;", "return 0.0;", &["a number times zero"]),
    ("return x + 0.0;", "return x;", &["a number plus zero"]),
    (
        "    sum = sum + x;\n",
        "    sum = x;\n",
        &["a sum from zero"],
    ),
    ("return 0.0 - x;", "return -x;", &["zero minus a number"]),
    ("return x - x;", "return 0.0;", &["a number minus itself"]),
    ("return x / x;", "return 1.0;", &["a number by itself"]),
    (
        "select(x, y, y > x)",
        "select(x, y, x != x || y > x)",
        &["the larger of two"],
    ),
    (
        "select(0u, 32u, x != y)",
        "select(0u, 32u, x < y || x > y)",
        &["NaNs compared"],
    ),
    (
        "bitcast<u32>(xs[i])",
        "bitcast<u32>(xs[i]) | 0x400000u",
        &["bits of a float"],
    ),
    (
        "return bitcast<u32>(x - y);",
        "return bitcast<u32>(x - y) | select(0u, 0x80000000u, (x - y) != (x - y));",
        &["bits of a result"],
    ),
    // Overflow and subnormals.
    (
        "return x + y;",
        "return clamped(x + y);",
        &["sums of edges", "overflow of a sum"],
    ),
    (
        "return x * y;",
        "return clamped(x * y);",
        &["products of edges", "overflow of a product"],
    ),
    (
        "case 0u: { return x; }",
        "case 0u: { return flush(x); }",
        &["subnormals copied"],
    ),
    (
        "return x + y;",
        "return flush(x + y);",
        &["sums of edges", "subnormal sums"],
    ),
    (
        "return x * y;",
        "return flush(x * y);",
        &["products of edges", "subnormal products"],
    ),
    (
        "return x * y;",
        "return flush(x) * flush(y);",
        &["products of edges", "subnormal factors"],
    ),
    (
        "return x / y;",
        "return flush(x / y);",
        &["quotients of edges", "subnormal quotients"],
    ),
    (
        "return sqrt(x);",
        "return sqrt(flush(x));",
        &["roots of edges", "roots of subnormals"],
    ),
    (
        "return comparisons(x, y);",
        "return comparisons(flush(x), flush(y));",
        &["subnormals compared"],
    ),
    // Conversions.
    (
        "return f32(i32(x));",
        "return trunc(x);",
        &["through an integer"],
    ),
    (
        "return f32(i32(x * 8.0));",
        "return trunc(x * 8.0);",
        &["eighths through an integer"],
    ),
    (
        "bitcast<u32>(i32(x))",
        "bitcast<u32>(i32(floor(x + 0.5)))",
        &["f32 to i32"],
    ),
    (
        "return u32(x);",
        "return u32(floor(x + 0.5));",
        &["f32 to u32"],
    ),
    (
        "f32(bitcast<u32>(x))",
        "f32(bitcast<u32>(x) & 0xffffff80u)",
        &["u32 to f32"],
    ),
    (
        "f32(bitcast<i32>(x))",
        "f32(bitcast<i32>(x) & -128)",
        &["i32 to f32"],
    ),
    ("return floor(x);", "return trunc(x);", &["floor"]),
    ("return trunc(x);", "return floor(x);", &["trunc"]),
    // Our own functions.
    (
        "(x - n * 0x1.62e4p-1) - n * 0x1.7f7d1cp-20",
        "x - (n * 0x1.62e4p-1 + n * 0x1.7f7d1cp-20)",
        &["exp"],
    ),
    (
        "(f + tail) + n * 0x1.62e4p-1",
        "f + (tail + n * 0x1.62e4p-1)",
        &["log"],
    ),
    ("t = a + a * z * p;", "t = a * (1.0 + z * p);", &["tanh"]),
    (
        "return high + (high * z * p + low * (1.0 - 0.5 * z));",
        "return (high + high * z * p) + low * (1.0 - 0.5 * z);",
        &["sin", "cos"],
    ),
    ("(((1.0 - lead) - half) + (z", "(0.0 + (z", &["sin", "cos"]),
    ("return 1.0 / sqrt(x);", "return sqrt(1.0 / x);", &["rsqrt"]),
];

#[test]
fn each_tampering_fails_the_expressions_that_guard_against_it() {
    let mut failed = BTreeSet::new();
    let mut wrong = String::new();
    for (from, to, expected) in TAMPERINGS {
        let differing = differing(&tampered(from, to, |word| word));
        if differing != *expected {
            wrong += &format!("\n{from} -> {to}\n    {differing:?}");
        }
        failed.extend(differing);
    }
    assert!(wrong.is_empty(), "{wrong}");
    failed.insert("NaNs stored"); // Below.
    let all: BTreeSet<&str> = all().map(|expression| expression.name).collect();
    assert_eq!(failed, all);
}

/// Names of the expressions that expect a word for which `holds`.
fn expecting(holds: fn(u32) -> bool) -> Vec<&'static str> {
    let cases = all().map(Case::new);
    let expecting = cases.filter(|case| case.expected.iter().any(|word| holds(*word)));
    expecting.map(|case| case.expression.name).collect()
}

const UNTOUCHED: &str = "if i >= params.count {";

/// x86's own NaN has its sign set.
#[test]
fn a_device_with_another_nan_fails_wherever_one_is_made() {
    let sign = |word| {
        if word == CANONICAL_NAN {
            0xffc0_0000
        } else {
            word
        }
    };
    let differing = differing(&tampered(UNTOUCHED, UNTOUCHED, sign));
    assert!(differing.contains(&"NaNs stored"));
    assert_eq!(differing, expecting(|word| word == CANONICAL_NAN));
}

#[test]
fn a_device_that_flushes_subnormal_results_fails_wherever_one_is_made() {
    let flush = |word: u32| match word & 0x7f80_0000 {
        0 => word & 0x8000_0000,
        _ => word,
    };
    let differing = differing(&tampered(UNTOUCHED, UNTOUCHED, flush));
    let is_subnormal = |word: u32| word & 0x7f80_0000 == 0 && word << 1 != 0;
    assert_eq!(differing, expecting(is_subnormal));
}

#[test]
fn a_device_that_writes_nothing_fails_everything() {
    let test = tampered(UNTOUCHED, "if i >= 0u {", |word| word);
    assert_eq!(differing(&test).len(), all().count());
    let all_differ = |differing: u32, inputs: u32| differing == inputs;
    assert!(
        test.expressions
            .iter()
            .all(|t| all_differ(t.differing, t.inputs))
    );
}

/// The first difference is that of the first input with other bits.
#[test]
fn the_first_difference_is_shown_with_its_input() {
    let test = tampered("return (x + y) - y;", "return x;", |word| word);
    let mut failed = test.expressions.iter().filter(|tested| !tested.passed());
    let tested = failed.next().expect("caught");
    let first = tested.first.as_ref().expect("a difference");
    let [x, y] = [first.x, first.y].map(f32::from_bits);
    assert_eq!(
        (first.got, first.expected),
        (first.x, ((x + y) - y).to_bits())
    );
    assert!(first.got != first.expected && tested.differing > 200);
}
