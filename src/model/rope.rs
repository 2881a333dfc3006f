//! Tables of rotary position embedding (Su et al., arXiv:2104.09864).
//!
//! Made once, on the host, in f64 with nothing but + - * / and rounding: these are IEEE operations,
//! so the table has the same bits on every machine, which a libm's sin and cos do not promise.

use crate::numerics::Dtype;

/// Cosines and sines of `position * base^(-2 j / head_dim)`, `[positions, head_dim / 2]`, rounded
/// to f32.
pub fn rope_tables(positions: u32, head_dim: u32, base: f32) -> (Vec<f32>, Vec<f32>) {
    let half = head_dim / 2;
    let log_base = natural_log(f64::from(base));
    let mut cosines = Vec::with_capacity((positions * half) as usize);
    let mut sines = Vec::with_capacity((positions * half) as usize);
    for position in 0..positions {
        for j in 0..half {
            let exponent = -2.0 * f64::from(j) / f64::from(head_dim);
            let (sine, cosine) =
                sine_cosine(f64::from(position) * exponential(exponent * log_base));
            cosines.push(Dtype::F32.round(cosine as f32));
            sines.push(Dtype::F32.round(sine as f32));
        }
    }
    (cosines, sines)
}

const LN_2: f64 = std::f64::consts::LN_2;

/// ln x for a finite x > 0: x = m 2^e with m in [2/3, 4/3), then 2 artanh((m - 1) / (m + 1)).
fn natural_log(x: f64) -> f64 {
    assert!(x > 0.0 && x.is_finite(), "ln of {x}");
    let (mut mantissa, mut exponent) = (x, 0.0);
    while mantissa >= 4.0 / 3.0 {
        mantissa *= 0.5;
        exponent += 1.0;
    }
    while mantissa < 2.0 / 3.0 {
        mantissa *= 2.0;
        exponent -= 1.0;
    }
    let z = (mantissa - 1.0) / (mantissa + 1.0);
    // |z| <= 1/5: the term z^27 / 27 is below 2^-64.
    let mut sum = 0.0;
    for n in (0..14).rev() {
        sum = sum * z * z + 1.0 / f64::from(2 * n + 1);
    }
    exponent * LN_2 + 2.0 * z * sum
}

/// e^x for x in [-700, 0]: halved until small, Taylor, squared back.
fn exponential(x: f64) -> f64 {
    assert!((-700.0..=0.0).contains(&x), "e^{x}");
    let halvings = 10;
    let reduced = x / 1024.0;
    let mut sum = 1.0;
    for n in (1..=20).rev() {
        sum = 1.0 + sum * reduced / f64::from(n);
    }
    for _ in 0..halvings {
        sum *= sum;
    }
    sum
}

/// sin and cos of x in [0, 2^20]: reduced by multiples of pi/2 in three parts, then Taylor.
fn sine_cosine(x: f64) -> (f64, f64) {
    assert!((0.0..=1_048_576.0).contains(&x), "sine of {x}");
    // pi/2 in parts of 33 bits: the first two times a quarter count below 2^20 are exact.
    const HIGH: f64 = 1.570_796_326_734_125_6;
    const MIDDLE: f64 = 6.077_100_506_303_966e-11;
    const LOW: f64 = 2.022_266_248_795_950_6e-21;
    let quarters = (x / std::f64::consts::FRAC_PI_2 + 0.5).floor();
    let reduced = ((x - quarters * HIGH) - quarters * MIDDLE) - quarters * LOW;
    let square = reduced * reduced;
    let (mut sine, mut cosine) = (1.0, 1.0);
    for n in (1..=10).rev() {
        let m = f64::from(2 * n);
        sine = 1.0 - sine * square / (m * (m + 1.0));
        cosine = 1.0 - cosine * square / (m * (m - 1.0));
    }
    sine *= reduced;
    match quarters as u64 % 4 {
        0 => (sine, cosine),
        1 => (cosine, -sine),
        2 => (-sine, -cosine),
        _ => (-cosine, sine),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// libm is the oracle here, and only here.
    #[test]
    fn tables_agree_with_libm() {
        for (positions, head_dim, base) in [(16, 8, 10_000.0f32), (300, 64, 500_000.0), (5, 2, 1.5)]
        {
            let (cosines, sines) = rope_tables(positions, head_dim, base);
            for place in 0..cosines.len() {
                let half = head_dim as usize / 2;
                let (position, j) = (place / half, place % half);
                let power = -2.0 * j as f64 / f64::from(head_dim);
                let angle = position as f64 * f64::from(base).powf(power);
                assert!((f64::from(cosines[place]) - angle.cos()).abs() < 4e-8);
                assert!((f64::from(sines[place]) - angle.sin()).abs() < 4e-8);
            }
        }
    }

    #[test]
    fn series_are_good_to_f64() {
        for x in [0.1, 0.7, 1.0, 1.4, 2.0, 10_000.0, 1e30] {
            assert!(
                (natural_log(x) - x.ln()).abs() <= 4e-16 * x.ln().abs().max(1.0),
                "ln {x}"
            );
        }
        for x in [0.0, -0.3, -1.0, -13.8, -100.0] {
            assert!((exponential(x) / x.exp() - 1.0).abs() < 1e-12, "exp {x}");
        }
        for x in [0.0, 0.5, 1.6, 3.0, 5.0, 700.25, 99_999.0] {
            let (sine, cosine) = sine_cosine(x);
            assert!(
                (sine - x.sin()).abs() < 1e-14 && (cosine - x.cos()).abs() < 1e-14,
                "sin {x}"
            );
        }
    }
}
