//! The expressions, each with what it guards and where its expected bits are from.
//!
//! `+ - * /` and square root of Rust's `f32` are IEEE 754's, correctly rounded, and the compiler
//! may not rearrange them; a digest of all expected bits shows that this process computes them so
//! (`mod.rs`), and a test works them out again in integers and `f64`. Results of our own functions
//! are kept in tables, which a test compares with `f64` references.

use super::functions;
use super::inputs::{self, Triple};
use crate::numerics::CANONICAL_NAN;

/// One expression and its inputs.
pub struct Expression {
    pub name: &'static str,
    /// As `shaders/self_test.wgsl` has it.
    pub formula: &'static str,
    /// The number of its case there.
    pub case: u32,
    /// What would break it.
    pub guards: &'static str,
    pub inputs: fn() -> Vec<Triple>,
    pub truth: Truth,
}

pub enum Truth {
    Float(fn(f32, f32, f32) -> f32),
    Word(fn(f32, f32) -> u32),
    /// z plus the products of x and y up to the input's own place.
    Chain,
    /// Results at the first distinct inputs.
    Table(&'static [u32; inputs::POINTS]),
}

/// The first case whose result is a word.
pub const FIRST_WORD_CASE: u32 = 99;

impl Expression {
    /// The bits expected for each input.
    pub fn expected(&self, triples: &[Triple]) -> Vec<u32> {
        let canonical = |value: f32| match value.is_nan() {
            true => CANONICAL_NAN,
            false => value.to_bits(),
        };
        let places = triples.iter().enumerate();
        match &self.truth {
            Truth::Float(truth) => triples
                .iter()
                .map(|[x, y, z]| canonical(truth(*x, *y, *z)))
                .collect(),
            Truth::Word(truth) => triples.iter().map(|[x, y, _]| truth(*x, *y)).collect(),
            Truth::Chain => places
                .map(|(place, [_, _, z])| {
                    let products = triples[..=place].iter().map(|[x, y, _]| x * y);
                    canonical(products.fold(*z, |sum, product| sum + product))
                })
                .collect(),
            Truth::Table(table) => places
                .map(|(place, _)| table[place % table.len()])
                .collect(),
        }
    }
}

/// All expressions.
pub fn all() -> impl Iterator<Item = &'static Expression> {
    let tables = [
        OPERATIONS,
        REWRITES,
        SPECIAL_VALUES,
        SUBNORMALS,
        CONVERSIONS,
        FUNCTIONS,
    ];
    tables.into_iter().flatten()
}

const fn float(
    name: &'static str,
    (case, formula): (u32, &'static str),
    inputs: fn() -> Vec<Triple>,
    truth: fn(f32, f32, f32) -> f32,
    guards: &'static str,
) -> Expression {
    Expression {
        name,
        formula,
        case,
        guards,
        inputs,
        truth: Truth::Float(truth),
    }
}

const COPY: (u32, &str) = (0, "x");
const NEGATION: (u32, &str) = (1, "-x");
const SUM: (u32, &str) = (2, "x + y");
const DIFFERENCE: (u32, &str) = (3, "x - y");
const PRODUCT: (u32, &str) = (4, "x * y");
const QUOTIENT: (u32, &str) = (5, "x / y");
const ROOT: (u32, &str) = (7, "sqrt(x)");

const ROUNDED: &str = "a result that is not the nearest float";
const OPERATIONS: &[Expression] = &[
    float("sum", SUM, inputs::near, |x, y, _| x + y, ROUNDED),
    float(
        "difference",
        DIFFERENCE,
        inputs::near,
        |x, y, _| x - y,
        ROUNDED,
    ),
    float("product", PRODUCT, inputs::near, |x, y, _| x * y, ROUNDED),
    float(
        "division",
        QUOTIENT,
        inputs::near,
        |x, y, _| x / y,
        "a division by way of an approximate reciprocal",
    ),
    float(
        "reciprocal",
        (6, "1.0 / x"),
        inputs::near,
        |x, _, _| 1.0 / x,
        "an approximate reciprocal",
    ),
    float(
        "square root",
        ROOT,
        inputs::magnitudes,
        |x, _, _| x.sqrt(),
        "an approximate root",
    ),
    float(
        "ties of a sum",
        SUM,
        inputs::ties,
        |x, y, _| x + y,
        "a rounding other than to nearest, ties to even",
    ),
];

const CONTRACTED: &str = "a product and a sum fused into one rounding";
const REASSOCIATED: &str = "sums taken in another order";
const REWRITES: &[Expression] = &[
    float(
        "contraction",
        (9, "x * y + z"),
        inputs::cancelling,
        |x, y, z| x * y + z,
        CONTRACTED,
    ),
    float(
        "contraction of a difference",
        (10, "z - x * y"),
        inputs::equal_products,
        |x, y, z| z - x * y,
        CONTRACTED,
    ),
    float(
        "contraction of vectors",
        (32, "vector_lane(x, y, z)"),
        inputs::near,
        vector_lane,
        CONTRACTED,
    ),
    Expression {
        name: "chain of products",
        formula: "z + x[0] * y[0] + x[1] * y[1] + ...",
        case: 98,
        guards: "a loop that is fused, split or vectorised",
        inputs: inputs::near,
        truth: Truth::Chain,
    },
    float(
        "factoring",
        (11, "x * y + x * z"),
        inputs::near,
        |x, y, z| x * y + x * z,
        "two products turned into x * (y + z)",
    ),
    float(
        "cancelled sum",
        (12, "(x + y) - y"),
        inputs::lost,
        |x, y, _| (x + y) - y,
        "an optimiser that makes it x",
    ),
    float(
        "sum from the left",
        (13, "(x + y) + z"),
        inputs::near,
        |x, y, z| (x + y) + z,
        REASSOCIATED,
    ),
    float(
        "sum from the right",
        (14, "x + (y + z)"),
        inputs::near,
        |x, y, z| x + (y + z),
        REASSOCIATED,
    ),
    float(
        "product from the left",
        (15, "(x * y) * z"),
        inputs::near,
        |x, y, z| (x * y) * z,
        "products taken in another order",
    ),
    float(
        "TwoSum's error",
        (16, "two_sum_error(x, y)"),
        inputs::uneven,
        |x, y, _| two_sum_error(x, y),
        "an optimiser that reassociates makes it 0",
    ),
    float(
        "Kahan's carry",
        (17, "kahan_carry(x, y, z)"),
        inputs::uneven,
        kahan_carry,
        "an optimiser that reassociates makes it 0",
    ),
    float(
        "division by a constant",
        (18, "x / 3.0"),
        inputs::near,
        |x, _, _| x / 3.0,
        "a product with the rounded third in its place",
    ),
    float(
        "cancelled product",
        (19, "(x * y) / y"),
        inputs::near,
        |x, y, _| (x * y) / y,
        "an optimiser that makes it x",
    ),
    float(
        "square of a root",
        (8, "sqrt(abs(x)) * sqrt(abs(x))"),
        inputs::near,
        |x, _, _| x.abs().sqrt() * x.abs().sqrt(),
        "an optimiser that makes it abs(x)",
    ),
];

fn vector_lane(x: f32, y: f32, z: f32) -> f32 {
    let lanes = [x * y + z, y * y + x, z * y + y, -x * y + x];
    lanes[x.to_bits() as usize & 3]
}

fn two_sum_error(x: f32, y: f32) -> f32 {
    let sum = x + y;
    let of_y = sum - x;
    (x - (sum - of_y)) + (y - of_y)
}

fn kahan_carry(x: f32, y: f32, z: f32) -> f32 {
    let term = y - z;
    let sum = x + term;
    (sum - x) - term
}

const SPECIALS: &str = "wrong zeros, infinities or NaNs";
const OVERFLOW: &str = "a result that stays at the largest float";
const SPECIAL_VALUES: &[Expression] = &[
    float(
        "negation",
        NEGATION,
        inputs::edges,
        |x, _, _| -x,
        "0 - x, or a sign lost",
    ),
    float(
        "sums of edges",
        SUM,
        inputs::edges,
        |x, y, _| x + y,
        SPECIALS,
    ),
    float(
        "differences of edges",
        DIFFERENCE,
        inputs::edges,
        |x, y, _| x - y,
        SPECIALS,
    ),
    float(
        "products of edges",
        PRODUCT,
        inputs::edges,
        |x, y, _| x * y,
        SPECIALS,
    ),
    float(
        "quotients of edges",
        QUOTIENT,
        inputs::edges,
        |x, y, _| x / y,
        SPECIALS,
    ),
    float(
        "roots of edges",
        ROOT,
        inputs::edges,
        |x, _, _| x.sqrt(),
        SPECIALS,
    ),
    float(
        "a number plus zero",
        (21, "x + 0.0"),
        inputs::edges,
        |x, _, _| x + 0.0,
        "an optimiser that makes it x: -0 + 0 is 0",
    ),
    float(
        "a sum from zero",
        (39, "sum_from_zero(x, y)"),
        inputs::edges,
        |x, y, _| (0.0 + x) + y,
        "an optimiser that drops the zero: 0 + -0 is 0",
    ),
    float(
        "zero minus a number",
        (22, "0.0 - x"),
        inputs::edges,
        |x, _, _| 0.0 - x,
        "an optimiser that makes it -x: 0 - 0 is 0",
    ),
    float(
        "a number times zero",
        (20, "x * 0.0"),
        inputs::edges,
        |x, _, _| x * 0.0,
        "an optimiser that makes it 0: it has x's sign, or is a NaN",
    ),
    float(
        "a number minus itself",
        (23, "x - x"),
        inputs::edges,
        |x, _, _| same(x) - x,
        "an optimiser that makes it 0: inf - inf is a NaN",
    ),
    float(
        "a number by itself",
        (24, "x / x"),
        inputs::edges,
        |x, _, _| same(x) / x,
        "an optimiser that makes it 1: 0 / 0 is a NaN",
    ),
    float(
        "overflow of a sum",
        SUM,
        inputs::large_sums,
        |x, y, _| x + y,
        OVERFLOW,
    ),
    float(
        "overflow of a product",
        PRODUCT,
        inputs::large_products,
        |x, y, _| x * y,
        OVERFLOW,
    ),
    float(
        "NaNs stored",
        COPY,
        inputs::nans,
        |x, _, _| x,
        "a NaN that is not 0x7fc00000",
    ),
    float(
        "the larger of two",
        (25, "select(x, y, y > x)"),
        inputs::edges,
        |x, y, _| if y > x { y } else { x },
        "a maximum in its place, which drops NaNs",
    ),
];

/// For operations on a number and itself, as they are meant.
fn same(x: f32) -> f32 {
    x
}

const FLUSHED: &str = "a result below the normal numbers made 0";
const SUBNORMALS: &[Expression] = &[
    float(
        "subnormals copied",
        COPY,
        inputs::subnormals,
        |x, _, _| x,
        "loads or stores that make them 0",
    ),
    float(
        "subnormal sums",
        SUM,
        inputs::small_sums,
        |x, y, _| x + y,
        FLUSHED,
    ),
    float(
        "subnormal products",
        PRODUCT,
        inputs::small_products,
        |x, y, _| x * y,
        FLUSHED,
    ),
    float(
        "subnormal quotients",
        QUOTIENT,
        inputs::small_quotients,
        |x, y, _| x / y,
        FLUSHED,
    ),
    float(
        "subnormal factors",
        PRODUCT,
        inputs::subnormal_factors,
        |x, y, _| x * y,
        "operands below the normal numbers taken as 0",
    ),
    float(
        "roots of subnormals",
        ROOT,
        inputs::subnormal_magnitudes,
        |x, _, _| x.sqrt(),
        "operands below the normal numbers taken as 0",
    ),
    word(
        "subnormals compared",
        (100, "comparisons(x, y)"),
        inputs::subnormal_pairs,
        comparisons,
        "operands below the normal numbers taken as 0",
    ),
];

const fn word(
    name: &'static str,
    (case, formula): (u32, &'static str),
    inputs: fn() -> Vec<Triple>,
    truth: fn(f32, f32) -> u32,
    guards: &'static str,
) -> Expression {
    Expression {
        name,
        formula,
        case,
        guards,
        inputs,
        truth: Truth::Word(truth),
    }
}

fn comparisons(x: f32, y: f32) -> u32 {
    let bits = [x < y, x <= y, x > y, x >= y, x == y, x != y];
    let bits = bits.iter().enumerate();
    bits.map(|(place, bit)| u32::from(*bit) << place).sum()
}

const CONVERSIONS: &[Expression] = &[
    word(
        "NaNs compared",
        (100, "comparisons(x, y)"),
        inputs::nan_pairs,
        comparisons,
        "x < y turned into !(x >= y)",
    ),
    float(
        "through an integer",
        (28, "f32(i32(x))"),
        inputs::integers,
        |x, _, _| x as i32 as f32,
        "trunc(x) in its place, which keeps -0",
    ),
    float(
        "eighths through an integer",
        (29, "f32(i32(x * 8.0))"),
        inputs::integers,
        |x, _, _| (x * 8.0) as i32 as f32,
        "trunc in its place, which keeps -0",
    ),
    word(
        "f32 to i32",
        (101, "bitcast<u32>(i32(x))"),
        inputs::integers,
        |x, _| x as i32 as u32,
        "rounding in place of cutting",
    ),
    word(
        "f32 to u32",
        (102, "u32(x)"),
        inputs::naturals,
        |x, _| x as u32,
        "rounding in place of cutting",
    ),
    float(
        "u32 to f32",
        (30, "f32(bitcast<u32>(x))"),
        inputs::integer_bits,
        |x, _, _| x.to_bits() as f32,
        "another rounding above 2^24",
    ),
    float(
        "i32 to f32",
        (31, "f32(bitcast<i32>(x))"),
        inputs::integer_bits,
        |x, _, _| x.to_bits() as i32 as f32,
        "another rounding above 2^24",
    ),
    word(
        "bits of a float",
        (99, "bitcast<u32>(x)"),
        inputs::nans,
        |x, _| x.to_bits(),
        "a load that changes NaNs",
    ),
    word(
        "bits of a result",
        (103, "bitcast<u32>(x - y)"),
        inputs::edges,
        |x, y| {
            if (x - y).is_nan() {
                CANONICAL_NAN
            } else {
                (x - y).to_bits()
            }
        },
        "a NaN that is not 0x7fc00000",
    ),
    float(
        "floor",
        (26, "floor(x)"),
        inputs::fractions,
        |x, _, _| x.floor(),
        "another rounding",
    ),
    float(
        "trunc",
        (27, "trunc(x)"),
        inputs::fractions,
        |x, _, _| x.trunc(),
        "another rounding",
    ),
];

const fn table(
    name: &'static str,
    (case, formula): (u32, &'static str),
    inputs: fn() -> Vec<Triple>,
    table: &'static [u32; inputs::POINTS],
) -> Expression {
    Expression {
        name,
        formula,
        case,
        guards: "a rewrite inside our own function",
        inputs,
        truth: Truth::Table(table),
    }
}

const FUNCTIONS: &[Expression] = &[
    table("exp", (33, "bp_exp(x)"), inputs::of_exp, &functions::EXP),
    table("log", (34, "bp_log(x)"), inputs::of_log, &functions::LOG),
    table(
        "tanh",
        (35, "bp_tanh(x)"),
        inputs::of_tanh,
        &functions::TANH,
    ),
    table("sin", (36, "bp_sin(x)"), inputs::of_sin, &functions::SIN),
    table("cos", (37, "bp_cos(x)"), inputs::of_sin, &functions::COS),
    float(
        "rsqrt",
        (38, "bp_rsqrt(x)"),
        inputs::magnitudes,
        |x, _, _| 1.0 / x.sqrt(),
        "an approximate root",
    ),
];
