//! Evaluates a tree on the host: an oracle for tests.

use bitproof::numerics::Dtype;
use bitproof::plan::{Arithmetic, Combine, Init, Tree};

/// What the text of a plan leaves to a build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Build {
    /// An addend that meets a partial result is used as it arrived.
    Plain,
    /// Every addend is rounded to the type of the partial results when it is read.
    RoundsAtPush,
    /// Multiply and add are fused where that is allowed.
    Fused,
}

/// A value on the stack: an addend as it arrived, or a partial result.
#[derive(Clone, Copy)]
enum Value {
    Addend(f32),
    Partial(f32),
}

/// The bits of the result. Addends are rounded to their type first.
pub fn evaluate(tree: &Tree, rules: &Arithmetic, addends: &[f32], start: f32, build: Build) -> u32 {
    let step = Step { rules, build };
    let start = match rules.init {
        Init::First => None,
        Init::Zero => Some(0.0),
        Init::Accumulator => Some(rules.partial.round(start)),
    };
    let mut started = false;
    let leaf = |addend: u32| {
        let value = Value::Addend(rules.addend.round(addends[addend as usize]));
        match start {
            Some(start) if !started => {
                started = true;
                step.combine(Value::Partial(start), value)
            }
            _ => value,
        }
    };
    let sum = step.partial(tree.fold(leaf, |a, b| step.combine(a, b)));
    let result = match rules.post_divide_bits {
        None => sum,
        Some(bits) => sum / f32::from_bits(bits),
    };
    rules.out.round(result).to_bits()
}

struct Step<'a> {
    rules: &'a Arithmetic,
    build: Build,
}

impl Step<'_> {
    fn round(&self, value: f32) -> f32 {
        self.rules.partial.round(value)
    }

    fn multiplied(&self, addend: f32) -> f32 {
        match self.rules.pre_multiply_bits {
            None if self.build == Build::RoundsAtPush => self.round(addend),
            None => addend,
            Some(bits) => self.round(addend * f32::from_bits(bits)),
        }
    }

    fn partial(&self, value: Value) -> f32 {
        match value {
            Value::Addend(addend) => self.round(self.multiplied(addend)),
            Value::Partial(partial) => partial,
        }
    }

    fn combine(&self, left: Value, right: Value) -> Value {
        // The operand that is still an addend; of two, the second.
        let (base, addend) = match (left, right) {
            (base, Value::Addend(addend)) | (Value::Addend(addend), base) => {
                (self.partial(base), Some(addend))
            }
            (left, right) => {
                return Value::Partial(self.join(self.partial(left), self.partial(right)));
            }
        };
        let addend = addend.expect("one of the two is an addend");
        let fuses = self.build == Build::Fused && self.rules.contraction_free;
        match (self.rules.pre_multiply_bits, self.rules.combine) {
            (Some(bits), Combine::Sum) if fuses => {
                Value::Partial(self.round(addend.mul_add(f32::from_bits(bits), base)))
            }
            _ => Value::Partial(self.join(base, self.multiplied(addend))),
        }
    }

    fn join(&self, a: f32, b: f32) -> f32 {
        match self.rules.combine {
            Combine::Sum => self.round(a + b),
            Combine::Max => self.round(if a.total_cmp(&b).is_ge() { a } else { b }),
        }
    }
}

/// The types that are evaluated here.
#[test]
fn rounding_shows() {
    let tree = Tree::ascending(2);
    let bf16 = Arithmetic::sum(Dtype::Bf16, Dtype::Bf16, Dtype::Bf16);
    let bits = evaluate(&tree, &bf16, &[256.0, 1.0], 0.0, Build::Plain);
    assert_eq!(f32::from_bits(bits), 256.0);
}
