//! Brute force over the orders of one sum, in plain Rust: nothing of the ladder or of the fold
//! kernels is used.

use bitproof::engine::EngineError;
use bitproof::numerics::Dtype;
use bitproof::plan::{Arithmetic, Combine, Init};
use bitproof::world::fold::{FoldJob, FoldLab, FoldNode};

/// Addends whose orders are all tried: 5,040 of seven.
const ADDENDS_MAX: usize = 7;

/// Whether two orders of the node's addends give two results; `None` where there are too many.
pub fn parts(node: &FoldNode, lab: &mut FoldLab<'_>) -> Result<Option<bool>, EngineError> {
    let words = lab.addends(node)?;
    let held = lab.accumulator(node)?;
    let arithmetic = node.arithmetic();
    assert_eq!(arithmetic.combine, Combine::Sum, "maxima have no order");
    if node.addend_count() as usize > ADDENDS_MAX {
        return Ok(None);
    }
    for element in 0..node.elements() as usize {
        let addends: Vec<f32> = match &node.job {
            FoldJob::Slots(_) => words
                .iter()
                .map(|slot| f32::from_bits(slot[element]))
                .collect(),
            FoldJob::Segments(job) => {
                let (row, column) = (element / job.width as usize, element % job.width as usize);
                let pointers = &job.segments.pointers;
                let rows = pointers[row] as usize..pointers[row + 1] as usize;
                let rows = job.segments.indices[rows].iter();
                rows.map(|row| f32::from_bits(words[*row as usize][column]))
                    .collect()
            }
        };
        let held = held.as_ref().map(|held| f32::from_bits(held[element]));
        if element_parts(&arithmetic, held, addends) {
            return Ok(Some(true));
        }
    }
    Ok(Some(false))
}

/// Whether two orders of an element's addends give two results.
fn element_parts(arithmetic: &Arithmetic, held: Option<f32>, mut addends: Vec<f32>) -> bool {
    let first = sum(arithmetic, held, &addends);
    !every_order(&mut addends, 0, &mut |order| {
        sum(arithmetic, held, order) == first
    })
}

/// Whether `holds` is true of every order of `values[from..]` after `values[..from]`.
fn every_order(values: &mut [f32], from: usize, holds: &mut impl FnMut(&[f32]) -> bool) -> bool {
    if from + 1 >= values.len() {
        return holds(values);
    }
    for chosen in from..values.len() {
        values.swap(from, chosen);
        let held = every_order(values, from + 1, holds);
        values.swap(from, chosen);
        if !held {
            return false;
        }
    }
    true
}

/// The bits of one order's result. One NaN is as good as another: arithmetic makes only one.
fn sum(arithmetic: &Arithmetic, held: Option<f32>, addends: &[f32]) -> u32 {
    let product = |x: f32| match arithmetic.pre_multiply_bits {
        Some(bits) => round(arithmetic.partial, x * f32::from_bits(bits)),
        None => x,
    };
    let mut values = addends.iter().copied().map(product);
    let mut partial = match arithmetic.init {
        Init::First => match values.next() {
            Some(first) => round(arithmetic.partial, first),
            None => 0.0,
        },
        Init::Zero => 0.0,
        Init::Accumulator => held.expect("the accumulator was read"),
    };
    for value in values {
        partial = round(arithmetic.partial, partial + value);
    }
    if let Some(bits) = arithmetic.post_divide_bits {
        partial = round(arithmetic.partial, partial / f32::from_bits(bits));
    }
    let result = round(arithmetic.out, partial);
    if result.is_nan() {
        f32::NAN.to_bits()
    } else {
        result.to_bits()
    }
}

/// To nearest, ties to even, by exact comparison with the two neighbours.
fn round(dtype: Dtype, value: f32) -> f32 {
    match dtype {
        Dtype::F32 => value,
        Dtype::Bf16 if value.is_finite() => {
            let (below, above) = (value.to_bits() & 0xffff_0000, value.to_bits() | 0xffff);
            // The next bf16 away from zero: infinity beyond the largest, as IEEE 754 rounds it.
            let above = above.wrapping_add(1);
            let low = f64::from(f32::from_bits(below));
            let exact = f64::from(value);
            let step = match f64::from(f32::from_bits(above)) {
                // Beyond the largest bf16 the next one would be 2^128.
                infinite if infinite.is_infinite() => 2f64.powi(128).copysign(exact),
                finite => finite,
            };
            let (down, up) = ((exact - low).abs(), (step - exact).abs());
            let is_even = below & 0x1_0000 == 0;
            match down.partial_cmp(&up).expect("finite numbers") {
                std::cmp::Ordering::Less => f32::from_bits(below),
                std::cmp::Ordering::Greater => f32::from_bits(above),
                std::cmp::Ordering::Equal if is_even => f32::from_bits(below),
                std::cmp::Ordering::Equal => f32::from_bits(above),
            }
        }
        Dtype::Bf16 => value,
        other => panic!("no sum of a drawn recipe is in {other}"),
    }
}

/// Negative controls: sums known to part, and known not to.
#[test]
fn brute_force_tells_sums_apart() {
    let fp32 = Arithmetic::sum(Dtype::F32, Dtype::F32, Dtype::F32);
    let tiny = f32::EPSILON / 2.0;
    assert!(element_parts(&fp32, None, vec![1.0, tiny, tiny]));
    assert!(!element_parts(&fp32, None, vec![1.0, 2.0, 4.0]));
    assert!(!element_parts(&fp32, None, vec![1.0, tiny]));
    let accumulated = Arithmetic {
        init: Init::Accumulator,
        ..fp32
    };
    assert!(element_parts(&accumulated, Some(1.0), vec![tiny, -1.0]));
    let bf16 = Arithmetic::sum(Dtype::Bf16, Dtype::Bf16, Dtype::Bf16);
    assert!(element_parts(&bf16, None, vec![256.0, 1.0, 1.0]));
    assert!(!element_parts(&fp32, None, vec![256.0, 1.0, 1.0]));
    assert_eq!(round(Dtype::Bf16, 257.0), 256.0);
    assert_eq!(round(Dtype::Bf16, 259.0), 260.0);
    assert_eq!(round(Dtype::Bf16, f32::MAX), f32::INFINITY);
}
