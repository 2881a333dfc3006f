//! exp, log, tanh, rsqrt, sin, cos: largest error in ulp, edge cases, symmetry.

use rayon::prelude::*;

use crate::bench::{Bench, CHUNK, PARTS};

/// A function, the part it is in, its reference, and the error its header states, in ulp.
struct Function {
    name: &'static str,
    part: &'static str,
    reference: fn(f64) -> f64,
    bound_ulp: f64,
}

const EXP: Function = Function {
    name: "bp_exp",
    part: "math/exp",
    reference: f64::exp,
    bound_ulp: 1.0,
};
const LOG: Function = Function {
    name: "bp_log",
    part: "math/log",
    reference: f64::ln,
    bound_ulp: 1.0,
};
const TANH: Function = Function {
    name: "bp_tanh",
    part: "math/tanh",
    reference: f64::tanh,
    bound_ulp: 2.0,
};
const RSQRT: Function = Function {
    name: "bp_rsqrt",
    part: "math/rsqrt",
    reference: root_inverse,
    bound_ulp: 1.5,
};
const SIN: Function = Function {
    name: "bp_sin",
    part: "math/sincos",
    reference: f64::sin,
    bound_ulp: 1.0,
};
const COS: Function = Function {
    name: "bp_cos",
    part: "math/sincos",
    reference: f64::cos,
    bound_ulp: 1.0,
};

fn root_inverse(x: f64) -> f64 {
    1.0 / x.sqrt()
}

impl Function {
    fn bench(&self, parts: &[(&str, &str)]) -> Bench {
        Bench::new(
            parts,
            self.part,
            "f32",
            &format!("y[i] = {}(x[i]);", self.name),
        )
    }

    fn values(&self, arguments: &[f32]) -> Vec<f32> {
        let bits: Vec<u32> = arguments.iter().map(|x| x.to_bits()).collect();
        self.bench(&PARTS)
            .run(&bits)
            .into_iter()
            .map(f32::from_bits)
            .collect()
    }

    /// Error of `y` at `x` in units of the last place of the rounded reference. Where that is a
    /// NaN, an infinity or a zero, the bits must agree: no error, or an infinite one.
    fn error_ulp(&self, x: f32, y: f32) -> f64 {
        let exact = (self.reference)(f64::from(x));
        let rounded = exact as f32;
        if rounded.is_nan() || rounded.is_infinite() || y.is_infinite() || exact == 0.0 {
            let wanted = if rounded.is_nan() {
                0x7fc0_0000
            } else {
                rounded.to_bits()
            };
            return if y.to_bits() == wanted {
                0.0
            } else {
                f64::INFINITY
            };
        }
        if y.is_nan() || y.is_sign_negative() != exact.is_sign_negative() {
            return f64::INFINITY;
        }
        (f64::from(y) - exact).abs() / unit_in_last_place(rounded)
    }

    /// The largest error over runs of arguments, and where it is.
    fn largest_error(
        &self,
        parts: &[(&str, &str)],
        chunks: u32,
        chunk: impl Fn(u32) -> Vec<u32>,
    ) -> (f64, f32) {
        let mut bench = self.bench(parts);
        let mut largest = (0.0, 0.0);
        for number in 0..chunks {
            let arguments = chunk(number);
            let results = bench.run(&arguments);
            let error = |(&x, &y): (&u32, &u32)| {
                let x = f32::from_bits(x);
                (self.error_ulp(x, f32::from_bits(y)), x)
            };
            let here = arguments.par_iter().zip(&results).map(error);
            largest = worse(largest, here.reduce(|| (0.0, 0.0), worse));
        }
        largest
    }

    fn check(&self) {
        let exhaustive = std::env::var("BITPROOF_EXHAUSTIVE").is_ok_and(|value| value == "1");
        let (error, x) = if exhaustive {
            let all = |number| (0..CHUNK).map(|low| number << 16 | low).collect();
            self.largest_error(&PARTS, 1 << 16, all)
        } else {
            println!(
                "{}: all of f32 skipped, a sample of 2^20: BITPROOF_EXHAUSTIVE",
                self.name
            );
            self.largest_error(&PARTS, 16, sample)
        };
        println!("{}: {error:.4} ulp at {x:e}", self.name);
        assert!(
            error <= self.bound_ulp,
            "{}: {error} ulp at {x:e}",
            self.name
        );
    }
}

fn worse(a: (f64, f32), b: (f64, f32)) -> (f64, f32) {
    if b.0 > a.0 { b } else { a }
}

fn unit_in_last_place(x: f32) -> f64 {
    let exponent = (x.to_bits() >> 23 & 0xff).max(1) as i32;
    2f64.powi(exponent - 150)
}

/// Part `number` of 16: each sign and exponent with 128 significands, other ones in each part.
fn sample(number: u32) -> Vec<u32> {
    let significand = |place: u32| match (number, place) {
        (0, 0) => 0,
        (0, 1) => 1,
        (0, 2) => 0x007f_ffff,
        _ => (number * 128 + place).wrapping_mul(0x9e37_79b9) >> 9,
    };
    (0..CHUNK)
        .map(|i| (i >> 7) << 23 | significand(i & 127))
        .collect()
}

#[test]
fn the_sample_has_every_exponent_and_no_repeats() {
    let mut all: Vec<u32> = (0..16).flat_map(sample).collect();
    assert_eq!(all.len(), 1 << 20);
    all.sort();
    all.dedup();
    assert!(all.len() > (1 << 20) - 4096, "{}", all.len());
    assert!((0..512).all(|exponent: u32| all.binary_search(&(exponent << 23)).is_ok()));
}

#[test]
fn exp_is_within_its_bound() {
    EXP.check();
}

#[test]
fn log_is_within_its_bound() {
    LOG.check();
}

#[test]
fn tanh_is_within_its_bound() {
    TANH.check();
}

#[test]
fn rsqrt_is_within_its_bound() {
    RSQRT.check();
}

#[test]
fn sin_is_within_its_bound() {
    SIN.check();
}

#[test]
fn cos_is_within_its_bound() {
    COS.check();
}

#[test]
fn edges_are_as_stated() {
    const INF: f32 = f32::INFINITY;
    const LEAST: f32 = f32::from_bits(1);
    let stated: [(&Function, &[(f32, f32)]); 6] = [
        (
            &EXP,
            &[
                (0.0, 1.0),
                (-0.0, 1.0),
                (INF, INF),
                (-INF, 0.0),
                (88.8, INF),
                (-104.0, 0.0),
            ],
        ),
        (
            &LOG,
            &[
                (1.0, 0.0),
                (0.0, -INF),
                (-0.0, -INF),
                (INF, INF),
                (-1.0, f32::NAN),
            ],
        ),
        (
            &TANH,
            &[
                (0.0, 0.0),
                (-0.0, -0.0),
                (INF, 1.0),
                (-INF, -1.0),
                (LEAST, LEAST),
            ],
        ),
        (
            &RSQRT,
            &[
                (4.0, 0.5),
                (0.0, INF),
                (-0.0, -INF),
                (INF, 0.0),
                (-1.0, f32::NAN),
            ],
        ),
        (
            &SIN,
            &[(0.0, 0.0), (-0.0, -0.0), (INF, f32::NAN), (-LEAST, -LEAST)],
        ),
        (
            &COS,
            &[(0.0, 1.0), (-0.0, 1.0), (-INF, f32::NAN), (LEAST, 1.0)],
        ),
    ];
    for (function, pairs) in stated {
        let mut arguments: Vec<f32> = pairs.iter().map(|pair| pair.0).collect();
        arguments.extend([f32::NAN, -f32::NAN]);
        let values = function.values(&arguments);
        for (&(x, wanted), y) in pairs.iter().zip(&values) {
            assert_eq!(
                y.to_bits(),
                wanted.to_bits(),
                "{}({x:e}) = {y:e}",
                function.name
            );
        }
        let of_nan = &values[pairs.len()..];
        assert!(
            of_nan.iter().all(|y| y.to_bits() == 0x7fc0_0000),
            "{}",
            function.name
        );
    }
}

#[test]
fn odd_and_even_functions_are_so_bit_for_bit() {
    for (function, sign) in [(&TANH, 0x8000_0000u32), (&SIN, 0x8000_0000), (&COS, 0)] {
        let positive: Vec<u32> = sample(5)
            .into_iter()
            .filter(|bits| bits >> 31 == 0)
            .collect();
        let negative: Vec<u32> = positive.iter().map(|bits| bits | 0x8000_0000).collect();
        let mut bench = function.bench(&PARTS);
        let (of_positive, of_negative) = (bench.run(&positive), bench.run(&negative));
        for ((x, a), b) in positive.iter().zip(of_positive).zip(of_negative) {
            let nan = a == 0x7fc0_0000 && b == a;
            assert!(nan || a ^ sign == b, "{} at {x:08x}", function.name);
        }
    }
}

/// Negative control: one wrong digit of one coefficient breaks each bound.
#[test]
fn a_wrong_coefficient_is_caught() {
    let wrong = [
        (&EXP, "0x1.55548cp-3", "0x1.5550p-3"),
        (&LOG, "0x1.99a4b6p-3", "0x1.99a0p-3"),
        (&TANH, "0x1.11107ap-3", "0x1.1100p-3"),
        (&SIN, "0x1.111174p-7", "0x1.1100p-7"),
        (&COS, "0x1.fb4p-12", "0x1.fbp-12"),
    ];
    for (function, right, mistaken) in wrong {
        let texts: Vec<String> = PARTS
            .iter()
            .map(|(_, text)| text.replace(right, mistaken))
            .collect();
        let parts: Vec<(&str, &str)> = PARTS
            .iter()
            .zip(&texts)
            .map(|((name, _), text)| (*name, text.as_str()))
            .collect();
        assert!(
            PARTS
                .iter()
                .zip(&texts)
                .any(|((_, text), changed)| text != changed)
        );
        let (error, _) = function.largest_error(&parts, 4, sample);
        assert!(error > function.bound_ulp, "{}: {error}", function.name);
    }
}
