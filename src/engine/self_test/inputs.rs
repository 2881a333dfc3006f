//! What the expressions are tried on: edges first, then floats drawn from Philox. The same on
//! every machine.

use crate::numerics::philox::philox4x32;

/// Inputs of each expression.
pub const INPUTS: usize = 256;
/// x, y and z.
pub type Triple = [f32; 3];

/// Zeros, subnormals, both ends of the normal numbers, infinities, NaNs.
const EDGES: [f32; 15] = [
    0.0,
    -0.0,
    f32::from_bits(1),
    -f32::from_bits(0x007f_ffff),
    f32::MIN_POSITIVE,
    -f32::MIN_POSITIVE,
    1.0,
    -1.5,
    1.0 + f32::EPSILON,
    3.0,
    f32::MAX,
    -f32::MAX,
    f32::INFINITY,
    f32::NEG_INFINITY,
    f32::from_bits(0xffc0_1234),
];

/// Seeds the draws, with a number for each set.
const SEED: u32 = 0x5e1f_7e57;

fn drawn(set: u32, make: impl Fn(usize, [u32; 4]) -> Triple) -> Vec<Triple> {
    let words = |place: usize| philox4x32([place as u32, 0, 0, 0], [SEED, set]);
    (0..INPUTS).map(|place| make(place, words(place))).collect()
}

/// A float of either sign whose biased exponent is one of `binades` from `lowest` on.
fn float(word: u32, lowest: u32, binades: u32) -> f32 {
    let exponent = lowest + (word >> 23 & 0xff) % binades;
    assert!(exponent < 255, "finite");
    f32::from_bits(word & 0x807f_ffff | exponent << 23)
}

fn subnormal(word: u32) -> f32 {
    f32::from_bits(word & 0x807f_ffff | 1)
}

/// The set with its first x replaced.
fn after(first: &[f32], mut set: Vec<Triple>) -> Vec<Triple> {
    for (triple, x) in set.iter_mut().zip(first) {
        triple[0] = *x;
    }
    set
}

/// Magnitudes of about one: nothing vanishes in a sum, everything rounds.
pub fn near() -> Vec<Triple> {
    drawn(1, |_, words| [0, 1, 2].map(|at| float(words[at], 124, 7)))
}

/// Normal numbers of every size; x is positive.
pub fn magnitudes() -> Vec<Triple> {
    positive(drawn(2, |_, words| {
        [0, 1, 2].map(|at| float(words[at], 1, 254))
    }))
}

fn positive(mut set: Vec<Triple>) -> Vec<Triple> {
    set.iter_mut()
        .for_each(|triple| triple[0] = triple[0].abs());
    set
}

/// Each edge with each.
pub fn edges() -> Vec<Triple> {
    let edge = |number: usize| EDGES[number % EDGES.len()];
    drawn(3, |place, _| {
        let row = place / EDGES.len();
        [edge(place), edge(row), edge(place + row)]
    })
}

pub fn subnormals() -> Vec<Triple> {
    let least = [f32::from_bits(1), -f32::from_bits(0x007f_ffff)];
    let set = drawn(4, |_, words| [0, 1, 2].map(|at| subnormal(words[at])));
    after(&least, set)
}

pub fn subnormal_magnitudes() -> Vec<Triple> {
    positive(subnormals())
}

/// x subnormal, y so large that the product is normal.
pub fn subnormal_factors() -> Vec<Triple> {
    drawn(5, |_, words| {
        let [x, y, z, _] = words;
        [subnormal(x), float(y, 180, 20), float(z, 124, 7)]
    })
}

/// Products about the least normal number.
pub fn small_products() -> Vec<Triple> {
    drawn(6, |_, words| {
        let [x, y, z, _] = words;
        [float(x, 50, 10), float(y, 55, 18), float(z, 124, 7)]
    })
}

/// Normal numbers so small that many sums are not.
pub fn small_sums() -> Vec<Triple> {
    drawn(7, |_, words| [0, 1, 2].map(|at| float(words[at], 1, 2)))
}

pub fn small_quotients() -> Vec<Triple> {
    drawn(8, |_, words| {
        let [x, y, z, _] = words;
        [float(x, 20, 11), float(y, 145, 16), float(z, 124, 7)]
    })
}

/// Products about the largest number.
pub fn large_products() -> Vec<Triple> {
    drawn(9, |_, words| {
        let [x, y, z, _] = words;
        [float(x, 180, 16), float(y, 180, 21), float(z, 124, 7)]
    })
}

pub fn large_sums() -> Vec<Triple> {
    drawn(10, |_, words| [0, 1, 2].map(|at| float(words[at], 253, 2)))
}

/// y is half of x's last place: the sum is a tie, and x even in half of them.
pub fn ties() -> Vec<Triple> {
    drawn(11, |_, words| {
        let x = float(words[0], 120, 10);
        let half_place = (x.to_bits() >> 23 & 0xff) - 24;
        let y = f32::from_bits(half_place << 23 | words[1] & 0x8000_0000);
        [x, y, float(words[2], 124, 7)]
    })
}

/// z is the rounded product, negated, in every other triple: unfused, the sum is zero.
pub fn cancelling() -> Vec<Triple> {
    drawn(12, |place, words| {
        let [x, y, z] = [0, 1, 2].map(|at| float(words[at], 124, 7));
        [x, y, if place % 2 == 0 { -(x * y) } else { z }]
    })
}

/// The same, for a difference.
pub fn equal_products() -> Vec<Triple> {
    let negate = |[x, y, z]: Triple| [x, y, -z];
    cancelling().into_iter().map(negate).collect()
}

/// y a few binades below x: much of it is lost in the sum; z small beside both.
pub fn uneven() -> Vec<Triple> {
    drawn(13, |_, words| {
        let [x, y, z, _] = words;
        [float(x, 126, 5), float(y, 112, 12), float(z, 90, 14)]
    })
}

/// x a few binades below y.
pub fn lost() -> Vec<Triple> {
    let swap = |[x, y, z]: Triple| [y, x, z];
    uneven().into_iter().map(swap).collect()
}

/// NaNs, quiet and signalling, of every payload; y is a number.
pub fn nans() -> Vec<Triple> {
    drawn(14, |_, words| {
        let x = f32::from_bits(words[0] | 0x7f80_0001);
        [x, float(words[1], 124, 7), float(words[2], 124, 7)]
    })
}

/// One of the two is a NaN, or both.
pub fn nan_pairs() -> Vec<Triple> {
    drawn(15, |place, words| {
        let nan = f32::from_bits(words[0] | 0x7fc0_0000);
        let other = EDGES[place % EDGES.len()];
        match place % 2 {
            0 => [nan, other, 0.0],
            _ => [other, nan, 0.0],
        }
    })
}

/// Subnormals with each other and with zeros.
pub fn subnormal_pairs() -> Vec<Triple> {
    drawn(16, |place, words| {
        let (x, y) = (subnormal(words[0]), subnormal(words[1]));
        match place % 4 {
            0 => [x, 0.0, 0.0],
            1 => [-0.0, y, 0.0],
            2 => [x, x, 0.0],
            _ => [x, y, 0.0],
        }
    })
}

/// Below 2^27 in magnitude, with a fraction or without.
pub fn integers() -> Vec<Triple> {
    let first = [-0.0, 0.0, 0.5, -0.5, -0.124, -0.99, 1.5, -2.5, 16_777_215.0];
    let set = drawn(17, |_, words| [0, 1, 2].map(|at| float(words[at], 118, 36)));
    after(&first, set)
}

/// Not negative, below 2^32.
pub fn naturals() -> Vec<Triple> {
    let set = drawn(18, |_, words| [0, 1, 2].map(|at| float(words[at], 118, 41)));
    after(
        &[0.0, 0.99, 4_294_967_040.0, 2_147_483_648.0],
        positive(set),
    )
}

/// Every size, and what floor and trunc must leave as it is.
pub fn fractions() -> Vec<Triple> {
    let first = [-0.0, -0.5, 0.999_999_94, -8_388_607.5, 8_388_609.0];
    let more = [f32::INFINITY, f32::NEG_INFINITY, f32::NAN, -1e30];
    let set = drawn(19, |_, words| [0, 1, 2].map(|at| float(words[at], 110, 50)));
    after(&[&first[..], &more].concat(), set)
}

/// Bits that are read as integers: no NaN, and ties above 2^24 first.
pub fn integer_bits() -> Vec<Triple> {
    let ties = [
        0x0100_0001,
        0x0100_0003,
        0x0200_0002,
        0x0200_0006,
        0x4000_0040,
        0x4000_00c0,
        0xff7f_ff80,
        0x8000_0001,
    ];
    let set = drawn(20, |_, words| [0, 1, 2].map(|at| float(words[at], 0, 255)));
    after(&ties.map(f32::from_bits), set)
}

/// Where e^x is neither 0 nor infinite, mostly. Sets of functions repeat after 64.
pub fn of_exp() -> Vec<Triple> {
    let edges = [0.0, -0.0, -87.5, -95.0, -103.9, 88.7, 89.0, -200.0];
    repeated(after(&edges, drawn(21, |_, words| ranged(words, 90.0))))
}

pub fn of_log() -> Vec<Triple> {
    let edges = [1.0, 0.0, f32::from_bits(1), 1e-40, f32::INFINITY, -1.0];
    repeated(after(&edges, magnitudes()))
}

pub fn of_tanh() -> Vec<Triple> {
    let edges = [0.0, -0.0, f32::from_bits(1), 1e-5, 0.625, 9.02, -40.0];
    repeated(after(&edges, drawn(22, |_, words| ranged(words, 9.5))))
}

/// Half within a few turns, half of every size.
pub fn of_sin() -> Vec<Triple> {
    let edges = [0.0, -0.0, f32::from_bits(1), f32::INFINITY, f32::MAX];
    let set = drawn(23, |place, words| match place % 2 {
        0 => ranged(words, 30.0),
        _ => [0, 1, 2].map(|at| float(words[at], 1, 254)),
    });
    repeated(after(&edges, set))
}

/// Numbers of [-bound, bound).
fn ranged(words: [u32; 4], bound: f32) -> Triple {
    [0, 1, 2].map(|at| ((words[at] >> 8) as f32 / 8_388_608.0 - 1.0) * bound)
}

/// Distinct arguments of a function whose results are kept in a table.
pub const POINTS: usize = 64;

fn repeated(set: Vec<Triple>) -> Vec<Triple> {
    set[..POINTS].iter().copied().cycle().take(INPUTS).collect()
}
