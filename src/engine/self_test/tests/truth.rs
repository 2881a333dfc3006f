//! The expected bits, worked out another way.

use super::super::expressions::{Truth, all};
use super::super::inputs::{INPUTS, POINTS};
use crate::engine::cpu::CpuEngine;
use crate::engine::self_test::{Case, digest};
use crate::engine::{Engine, self_test};
use crate::kernel::Registry;
use crate::numerics::CANONICAL_NAN;

/// The nearest f32, ties to even, by integer arithmetic on the bits.
fn rounded(value: f64) -> u32 {
    if value.is_nan() {
        return CANONICAL_NAN;
    }
    let bits = value.to_bits();
    let sign = (bits >> 32) as u32 & 0x8000_0000;
    let exponent = (bits >> 52 & 0x7ff) as i64 - 1023;
    if value.is_infinite() || exponent > 127 {
        return sign | 0x7f80_0000;
    }
    if exponent < -150 {
        return sign;
    }
    let significand = bits & ((1 << 52) - 1) | 1 << 52;
    // Places below the last that is kept: 29 for a normal f32, one more for each binade below.
    let dropped = 29 + (-126 - exponent).max(0);
    let kept = significand >> dropped;
    let rest = significand & ((1 << dropped) - 1);
    let half = 1u64 << (dropped - 1);
    let up = rest > half || rest == half && kept & 1 == 1;
    let biased = (exponent + 126).max(0) as u32;
    // The significand's top bit adds one to the exponent, as does a carry.
    sign | ((biased << 23) + (kept + u64::from(up)) as u32)
}

#[test]
fn the_rounding_is_right_at_its_edges() {
    let least = f64::from(f32::from_bits(1));
    for (value, bits) in [
        (1.0, 0x3f80_0000),
        (-0.0, 0x8000_0000),
        (least, 1),
        (least * 0.5, 0),
        (least * 0.500_001, 1),
        (least * 1.5, 2),
        (f64::from(f32::MAX), 0x7f7f_ffff),
        (f64::from(f32::MAX) * (1.0 + 1e-9), 0x7f7f_ffff),
        (3.5e38, 0x7f80_0000),
        (1.0 + 2f64.powi(-24), 0x3f80_0000),
        (1.0 + 3.0 * 2f64.powi(-24), 0x3f80_0002),
        (f64::from(f32::MIN_POSITIVE) * 0.999_999_99, 0x0080_0000),
    ] {
        assert_eq!(rounded(value), bits, "{value:e}");
    }
}

/// Of two f32, `+ - * /` and root in f64 and then rounded to f32 are the correctly rounded results:
/// 53 places are more than twice 24 and 2 (Figueroa, "When is double rounding innocuous?", 1995),
/// and a quotient or root that is not itself a midpoint of subnormals is further from one than
/// 2^-53 of it.
#[test]
fn operations_are_correctly_rounded() {
    let mut seen = 0;
    for case in all().map(Case::new) {
        let operation: fn(f64, f64) -> f64 = match case.expression.case {
            2 => |x, y| x + y,
            3 => |x, y| x - y,
            4 => |x, y| x * y,
            5 => |x, y| x / y,
            6 => |x, _| 1.0 / x,
            7 => |x, _| x.sqrt(),
            _ => continue,
        };
        for ([x, y, _], expected) in case.inputs.iter().zip(&case.expected) {
            let exact = operation(f64::from(*x), f64::from(*y));
            let (name, bits) = (case.expression.name, rounded(exact));
            assert_eq!(*expected, bits, "{name} of {x:e} and {y:e}");
        }
        seen += 1;
    }
    assert!(seen >= 18, "{seen}");
}

/// Every set of inputs tries what it is for.
#[test]
fn inputs_do_what_they_are_for() {
    let share = |name: &str, holds: fn(u32) -> bool| {
        let mut all = all().filter(|expression| expression.name == name);
        let case = Case::new(all.next().expect("an expression"));
        case.expected.iter().filter(|bits| holds(**bits)).count() as f64 / INPUTS as f64
    };
    let is_subnormal = |bits: u32| (1..0x0080_0000).contains(&(bits & 0x7fff_ffff));
    for name in [
        "subnormal sums",
        "subnormal products",
        "subnormal quotients",
    ] {
        let share = share(name, is_subnormal);
        assert!((0.2..0.95).contains(&share), "{name}: {share}");
    }
    assert_eq!(share("subnormals copied", is_subnormal), 1.0);
    let is_infinite = |bits: u32| bits & 0x7fff_ffff == 0x7f80_0000;
    for name in ["overflow of a sum", "overflow of a product"] {
        let share = share(name, is_infinite);
        assert!((0.2..0.8).contains(&share), "{name}: {share}");
    }
    assert!(share("contraction", |bits| bits == 0) >= 0.5);
    assert!(share("TwoSum's error", |bits| bits << 1 != 0) > 0.9);
    assert!(share("Kahan's carry", |bits| bits << 1 != 0) > 0.9);
    assert_eq!(share("NaNs stored", |bits| bits == CANONICAL_NAN), 1.0);
}

/// Error bounds as the headers of `shaders/math/` state them, in units of the last place.
fn reference(name: &str) -> (fn(f64) -> f64, f64) {
    match name {
        "exp" => (f64::exp, 1.0),
        "log" => (f64::ln, 1.0),
        "tanh" => (f64::tanh, 2.0),
        "sin" => (f64::sin, 1.0),
        "cos" => (f64::cos, 1.0),
        other => panic!("no reference of {other}"),
    }
}

#[test]
fn tables_of_functions_are_within_their_bounds() {
    let mut seen = 0;
    for case in all().map(Case::new) {
        let Truth::Table(table) = case.expression.truth else {
            continue;
        };
        let (exact, bound) = reference(case.expression.name);
        for ([x, ..], bits) in case.inputs.iter().zip(table) {
            let exact = exact(f64::from(*x));
            let nearest = rounded(exact);
            let magnitude = nearest & 0x7fff_ffff;
            if exact == 0.0 || magnitude >= 0x7f80_0000 {
                assert_eq!(*bits, nearest, "{} of {x:e}", case.expression.name);
                continue;
            }
            let place = 2f64.powi((magnitude >> 23).max(1) as i32 - 150);
            let error = (f64::from(f32::from_bits(*bits)) - exact).abs() / place;
            assert!(error <= bound, "{} of {x:e}: {error}", case.expression.name);
        }
        seen += 1;
    }
    assert_eq!(seen, 5);
}

/// Fails with the tables and the digest as they have to be.
#[test]
fn tables_of_functions_are_what_the_cpu_engine_gives() {
    let kernels = Registry::new().expect("shaders link");
    let mut engine = CpuEngine::new(1).expect("an engine");
    let cases: Vec<Case> = all().map(Case::new).collect();
    let kernel = kernels.get(self_test::KERNEL).expect("valid");
    let program = engine.load(kernel).expect("loads");
    let words = cases.len() as u32 * self_test::OPERANDS * self_test::COUNT;
    let arena = engine.alloc(words, 0).expect("memory");
    let results = self_test::results(&mut engine, program, arena, &cases).expect("runs");
    let mut wrong = String::new();
    for (case, got) in cases.iter().zip(&results) {
        if matches!(case.expression.truth, Truth::Table(table) if table[..] != got[..POINTS]) {
            wrong += &format!("\n{}:", case.expression.name);
            for (place, bits) in got[..POINTS].iter().enumerate() {
                let gap = if place % 8 == 0 { "\n    " } else { " " };
                wrong += &format!("{gap}{bits:#010x},");
            }
        }
    }
    let digest = digest(&cases);
    assert!(
        wrong.is_empty(),
        "digest {digest}, tables in functions.rs: {wrong}"
    );
}
