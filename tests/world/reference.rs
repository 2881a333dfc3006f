//! What a collective or fold should give, element by element, in plain host code.

use bitproof::numerics::Dtype;
use bitproof::numerics::ladder::rounded_add;
use bitproof::plan::{Arithmetic, Combine, Init, Op, Plan, Tree};

/// The bits of `plan` applied to `addends` (one vector each), starting from `accumulator`.
pub fn evaluate(plan: &Plan, addends: &[Vec<f32>], accumulator: Option<&[f32]>) -> Vec<u32> {
    let mut result = vec![None; plan.element_count as usize];
    for piece in &plan.pieces {
        for element in piece.range.clone() {
            let element = element as usize;
            let column: Vec<f32> = addends.iter().map(|addend| addend[element]).collect();
            let held = accumulator.map(|held| held[element]);
            let value = one(&plan.arithmetic, &piece.tree, &column, held);
            assert!(result[element].replace(value).is_none(), "covered twice");
        }
    }
    let covered = result.into_iter().map(|word| word.expect("covered"));
    covered.collect()
}

fn one(arithmetic: &Arithmetic, tree: &Tree, column: &[f32], held: Option<f32>) -> u32 {
    let factor = arithmetic.pre_multiply_bits.map(f32::from_bits);
    let leaf = |k: u32| match factor {
        Some(factor) => arithmetic.partial.round(column[k as usize] * factor),
        None => column[k as usize],
    };
    let meet = |a: f32, b: f32| match arithmetic.combine {
        Combine::Sum => rounded_add(a, b, arithmetic.partial),
        Combine::Max if b.total_cmp(&a).is_gt() => b,
        Combine::Max => a,
    };
    let start = match arithmetic.init {
        Init::First => None,
        Init::Zero => Some(0.0),
        Init::Accumulator => Some(held.expect("an accumulator")),
    };
    let total = match tree {
        Tree::Chain { ring, start: from } => {
            let n = ring.len();
            let places = (0..n).map(|k| ring[(*from as usize + k) % n]);
            let values = places.map(leaf);
            start
                .into_iter()
                .chain(values)
                .reduce(meet)
                .expect("an addend")
        }
        Tree::Ops(ops) => {
            let mut stack: Vec<f32> = Vec::new();
            for op in ops.iter() {
                match op {
                    Op::Push(k) => stack.push(leaf(*k)),
                    Op::Combine => {
                        let right = stack.pop().expect("two values");
                        let left = stack.pop().expect("two values");
                        stack.push(meet(left, right));
                    }
                }
            }
            let total = stack.pop().expect("one value");
            start.map_or(total, |start| meet(start, total))
        }
    };
    let divisor = arithmetic.post_divide_bits.map(f32::from_bits);
    let total = divisor.map_or(total, |divisor| total / divisor);
    arithmetic.out.round(total).to_bits()
}

/// The segments' sums: +0, then the rows in the order listed, in f32.
pub fn segment_sums(rows: &[f32], width: usize, segments: &[Vec<u32>], out: Dtype) -> Vec<u32> {
    let mut result = Vec::new();
    for segment in segments {
        for column in 0..width {
            let values = segment
                .iter()
                .map(|row| rows[*row as usize * width + column]);
            let sum = values.fold(0.0, |sum, value| rounded_add(sum, value, Dtype::F32));
            result.push(out.round(sum).to_bits());
        }
    }
    result
}

/// Values that take every path of an addition, with the ordinary in between.
pub fn special(seed: u32, len: u32, dtype: Dtype) -> Vec<f32> {
    const SPECIAL: [f32; 12] = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
        f32::MIN_POSITIVE,
        1e-40,
        -1e-44,
        3.0e38,
        -3.0e38,
    ];
    let ordinary = crate::cluster::rough(seed, 99, len);
    let choose = |(i, value): (u32, f32)| {
        let pick = (i * 7 + seed * 5 + i / 12) % 16;
        dtype.round(*SPECIAL.get(pick as usize).unwrap_or(&value))
    };
    (0..len).zip(ordinary).map(choose).collect()
}
