//! Operators, builtins and conversions. Every float operation is one IEEE 754 operation, rounded
//! to nearest even; nothing is contracted, reassociated or flushed.

use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::types::{F32, F32X4, I32, I32X4};
use cranelift_codegen::ir::{InstBuilder, Value};
use cranelift_frontend::FunctionBuilder;
use naga::{BinaryOperator as Op, MathFunction, RelationalFunction, ScalarKind, UnaryOperator};

use super::types::{Kind, Ty};
use super::value::{Val, blend, lane, recast, splat, vector_of};

/// Gives a scalar as many lanes as the other side has.
fn broadcast(b: &mut FunctionBuilder, value: &Val, lanes: u8) -> Result<Val, String> {
    let (kind, have) = value.shape()?;
    if have == lanes {
        return Ok(value.clone());
    }
    if have != 1 {
        return Err(format!("{have} lanes where {lanes} are wanted"));
    }
    Ok(Val::vector(kind, lanes, splat(b, kind, value.leaf())))
}

fn shaped(kind: Kind, lanes: u8, value: Value) -> Val {
    if lanes == 1 {
        Val::scalar(kind, value)
    } else {
        Val::vector(kind, lanes, value)
    }
}

/// Applies a scalar operation lane by lane.
fn per_lane(
    b: &mut FunctionBuilder,
    kind: Kind,
    lanes: u8,
    values: [Value; 2],
    mut apply: impl FnMut(&mut FunctionBuilder, Value, Value) -> Value,
) -> Value {
    if lanes == 1 {
        return apply(b, values[0], values[1]);
    }
    let results: Vec<Value> = (0..lanes)
        .map(|place| {
            let x = lane(b, kind, values[0], place);
            let y = lane(b, kind, values[1], place);
            apply(b, x, y)
        })
        .collect();
    vector_of(b, kind, &results)
}

pub(super) fn binary(
    b: &mut FunctionBuilder,
    op: Op,
    left: &Val,
    right: &Val,
) -> Result<Val, String> {
    let lanes = left.shape()?.1.max(right.shape()?.1);
    let (left, right) = (broadcast(b, left, lanes)?, broadcast(b, right, lanes)?);
    let kind = left.shape()?.0;
    let (x, y) = (left.leaf(), right.leaf());
    if let Some(result) = comparison(b, op, kind, lanes, x, y) {
        return Ok(shaped(Kind::Bool, lanes, result));
    }
    let result = match (op, kind) {
        (Op::Add, Kind::F32) => b.ins().fadd(x, y),
        (Op::Subtract, Kind::F32) => b.ins().fsub(x, y),
        (Op::Multiply, Kind::F32) => b.ins().fmul(x, y),
        (Op::Divide, Kind::F32) => b.ins().fdiv(x, y),
        (Op::Add, Kind::U32 | Kind::I32) => b.ins().iadd(x, y),
        (Op::Subtract, Kind::U32 | Kind::I32) => b.ins().isub(x, y),
        (Op::Multiply, Kind::U32 | Kind::I32) => b.ins().imul(x, y),
        (Op::Divide | Op::Modulo, Kind::U32 | Kind::I32) => {
            per_lane(b, kind, lanes, [x, y], |b, x, y| {
                integer_division(b, op, kind, x, y)
            })
        }
        (Op::ShiftLeft | Op::ShiftRight, Kind::U32 | Kind::I32) => {
            per_lane(b, kind, lanes, [x, y], |b, x, y| shift(b, op, kind, x, y))
        }
        (Op::And, Kind::U32 | Kind::I32 | Kind::Bool) | (Op::LogicalAnd, Kind::Bool) => {
            b.ins().band(x, y)
        }
        (Op::InclusiveOr, Kind::U32 | Kind::I32 | Kind::Bool) | (Op::LogicalOr, Kind::Bool) => {
            b.ins().bor(x, y)
        }
        (Op::ExclusiveOr, Kind::U32 | Kind::I32 | Kind::Bool) => b.ins().bxor(x, y),
        _ => return Err(format!("{op:?} of {kind:?}")),
    };
    Ok(shaped(kind, lanes, result))
}

fn comparison(
    b: &mut FunctionBuilder,
    op: Op,
    kind: Kind,
    lanes: u8,
    x: Value,
    y: Value,
) -> Option<Value> {
    let (float, signed, unsigned) = match op {
        Op::Equal => (FloatCC::Equal, IntCC::Equal, IntCC::Equal),
        Op::NotEqual => (FloatCC::NotEqual, IntCC::NotEqual, IntCC::NotEqual),
        Op::Less => (
            FloatCC::LessThan,
            IntCC::SignedLessThan,
            IntCC::UnsignedLessThan,
        ),
        Op::LessEqual => (
            FloatCC::LessThanOrEqual,
            IntCC::SignedLessThanOrEqual,
            IntCC::UnsignedLessThanOrEqual,
        ),
        Op::Greater => (
            FloatCC::GreaterThan,
            IntCC::SignedGreaterThan,
            IntCC::UnsignedGreaterThan,
        ),
        Op::GreaterEqual => (
            FloatCC::GreaterThanOrEqual,
            IntCC::SignedGreaterThanOrEqual,
            IntCC::UnsignedGreaterThanOrEqual,
        ),
        _ => return None,
    };
    let result = match kind {
        Kind::F32 => b.ins().fcmp(float, x, y),
        Kind::I32 => b.ins().icmp(signed, x, y),
        Kind::U32 | Kind::Bool => b.ins().icmp(unsigned, x, y),
    };
    Some(if lanes > 1 {
        recast(b, I32X4, result)
    } else {
        result
    })
}

/// WGSL defines what C does not: `x / 0` is `x`, `x % 0` is 0, and so for the least i32 by -1.
fn integer_division(b: &mut FunctionBuilder, op: Op, kind: Kind, x: Value, y: Value) -> Value {
    let mut undefined = b.ins().icmp_imm_u(IntCC::Equal, y, 0);
    if kind == Kind::I32 {
        let least = b.ins().icmp_imm_u(IntCC::Equal, x, 0x8000_0000);
        let minus_one = b.ins().icmp_imm_u(IntCC::Equal, y, 0xffff_ffff);
        let overflows = b.ins().band(least, minus_one);
        undefined = b.ins().bor(undefined, overflows);
    }
    let one = b.ins().iconst(I32, 1);
    let divisor = b.ins().select(undefined, one, y);
    match (op, kind) {
        (Op::Divide, Kind::I32) => b.ins().sdiv(x, divisor),
        (Op::Divide, _) => b.ins().udiv(x, divisor),
        (_, Kind::I32) => b.ins().srem(x, divisor),
        _ => b.ins().urem(x, divisor),
    }
}

/// `x / divisor` or `x % divisor`, with a shift or a mask for a power of two.
pub(super) fn divide_by_constant(b: &mut FunctionBuilder, op: Op, x: &Val, divisor: u32) -> Val {
    assert_ne!(divisor, 0, "the caller looks for other divisors");
    let (value, constant) = (x.leaf(), i64::from(divisor));
    let result = match (op, divisor.is_power_of_two()) {
        (Op::Divide, true) => b
            .ins()
            .ushr_imm_u(value, i64::from(divisor.trailing_zeros())),
        (Op::Divide, false) => b.ins().udiv_imm_u(value, constant),
        (_, true) => b.ins().band_imm_u(value, constant - 1),
        (_, false) => b.ins().urem_imm_u(value, constant),
    };
    Val::scalar(Kind::U32, result)
}

/// Cranelift masks the amount to five bits, as WGSL does.
fn shift(b: &mut FunctionBuilder, op: Op, kind: Kind, x: Value, amount: Value) -> Value {
    match (op, kind) {
        (Op::ShiftLeft, _) => b.ins().ishl(x, amount),
        (_, Kind::I32) => b.ins().sshr(x, amount),
        _ => b.ins().ushr(x, amount),
    }
}

/// A vector shifted by one amount in all lanes.
pub(super) fn shift_by_scalar(
    b: &mut FunctionBuilder,
    op: Op,
    left: &Val,
    amount: Value,
) -> Result<Val, String> {
    let (kind, lanes) = left.shape()?;
    let result = shift(b, op, kind, left.leaf(), amount);
    Ok(shaped(kind, lanes, result))
}

pub(super) fn unary(
    b: &mut FunctionBuilder,
    op: UnaryOperator,
    value: &Val,
) -> Result<Val, String> {
    let (kind, lanes) = value.shape()?;
    let x = value.leaf();
    let result = match (op, kind) {
        (UnaryOperator::Negate, Kind::F32) => b.ins().fneg(x),
        (UnaryOperator::Negate, Kind::I32) => b.ins().ineg(x),
        (UnaryOperator::LogicalNot, Kind::Bool) if lanes == 1 => b.ins().bxor_imm_u(x, 1),
        (UnaryOperator::LogicalNot, Kind::Bool) => b.ins().bnot(x),
        (UnaryOperator::BitwiseNot, Kind::U32 | Kind::I32) => b.ins().bnot(x),
        _ => return Err(format!("{op:?} of {kind:?}")),
    };
    Ok(shaped(kind, lanes, result))
}

pub(super) fn select(
    b: &mut FunctionBuilder,
    condition: &Val,
    accept: &Val,
    reject: &Val,
) -> Result<Val, String> {
    if let Ty::Vector(..) = condition.ty {
        let (kind, lanes) = accept.shape()?;
        let chosen = blend(b, condition.leaf(), accept.leaf(), reject.leaf());
        return Ok(shaped(kind, lanes, chosen));
    }
    let condition = condition.leaf();
    let pairs = accept.leaves.iter().zip(&reject.leaves);
    let leaves = pairs
        .map(|(&x, &y)| b.ins().select(condition, x, y))
        .collect();
    Ok(Val {
        ty: accept.ty.clone(),
        leaves,
    })
}

pub(super) fn relational(
    b: &mut FunctionBuilder,
    fun: RelationalFunction,
    value: &Val,
) -> Result<Val, String> {
    let (kind, lanes) = value.shape()?;
    if kind != Kind::Bool || !matches!(fun, RelationalFunction::All | RelationalFunction::Any) {
        return Err(format!("{fun:?} of {kind:?}"));
    }
    let mut result = if lanes == 1 {
        value.leaf()
    } else {
        lane(b, kind, value.leaf(), 0)
    };
    for place in 1..lanes {
        let next = lane(b, kind, value.leaf(), place);
        result = match fun {
            RelationalFunction::All => b.ins().band(result, next),
            _ => b.ins().bor(result, next),
        };
    }
    Ok(Val::scalar(Kind::Bool, result))
}

pub(super) fn math(
    b: &mut FunctionBuilder,
    fun: MathFunction,
    value: &Val,
    second: Option<&Val>,
) -> Result<Val, String> {
    use MathFunction as M;
    let (kind, lanes) = value.shape()?;
    let x = value.leaf();
    let result = match (fun, kind) {
        (M::Abs, Kind::F32) => b.ins().fabs(x),
        (M::Floor, Kind::F32) => b.ins().floor(x),
        (M::Trunc, Kind::F32) => b.ins().trunc(x),
        (M::Sqrt, Kind::F32) => b.ins().sqrt(x),
        (M::Abs, Kind::U32) => x,
        (M::Abs, Kind::I32) => per_lane(b, kind, lanes, [x, x], |b, x, _| {
            let negative = b.ins().icmp_imm_u(IntCC::SignedLessThan, x, 0);
            let negated = b.ins().ineg(x);
            b.ins().select(negative, negated, x)
        }),
        (M::CountLeadingZeros, Kind::U32 | Kind::I32) => {
            per_lane(b, kind, lanes, [x, x], |b, x, _| b.ins().clz(x))
        }
        (M::CountTrailingZeros, Kind::U32 | Kind::I32) => {
            per_lane(b, kind, lanes, [x, x], |b, x, _| b.ins().ctz(x))
        }
        (M::CountOneBits, Kind::U32 | Kind::I32) => {
            per_lane(b, kind, lanes, [x, x], |b, x, _| b.ins().popcnt(x))
        }
        (M::Min | M::Max, Kind::U32 | Kind::I32) => {
            let second = second.ok_or("one argument")?.leaf();
            match (fun, kind) {
                (M::Min, Kind::U32) => b.ins().umin(x, second),
                (M::Min, _) => b.ins().smin(x, second),
                (_, Kind::U32) => b.ins().umax(x, second),
                _ => b.ins().smax(x, second),
            }
        }
        _ => return Err(format!("{fun:?} of {kind:?}")),
    };
    Ok(shaped(kind, lanes, result))
}

/// Largest u32 and i32 that are values of an f32: WGSL converts a float by clamping it into the
/// range of the target's float values, then truncating. A NaN becomes 0.
const LARGEST_U32: i64 = 0xffff_ff00;
const LARGEST_I32: i64 = 0x7fff_ff80;

pub(super) fn cast(
    b: &mut FunctionBuilder,
    value: &Val,
    to: ScalarKind,
    converts: bool,
) -> Result<Val, String> {
    let (from, lanes) = value.shape()?;
    let to = match to {
        ScalarKind::Float => Kind::F32,
        ScalarKind::Uint => Kind::U32,
        ScalarKind::Sint => Kind::I32,
        ScalarKind::Bool => Kind::Bool,
        other => return Err(format!("a cast to {other:?}")),
    };
    let x = value.leaf();
    let result = if converts {
        convert(b, from, to, lanes, x)?
    } else {
        let ty = if lanes == 1 { to.scalar() } else { to.vector() };
        recast(b, ty, x)
    };
    Ok(shaped(to, lanes, result))
}

fn convert(
    b: &mut FunctionBuilder,
    from: Kind,
    to: Kind,
    lanes: u8,
    x: Value,
) -> Result<Value, String> {
    let (float, int) = if lanes == 1 {
        (F32, I32)
    } else {
        (F32X4, I32X4)
    };
    let constant = |b: &mut FunctionBuilder, value: i64| {
        let scalar = b.ins().iconst(I32, value);
        if lanes == 1 {
            scalar
        } else {
            b.ins().splat(I32X4, scalar)
        }
    };
    Ok(match (from, to) {
        (from, to) if from == to => x,
        (Kind::U32, Kind::I32) | (Kind::I32, Kind::U32) => x,
        (Kind::U32, Kind::F32) => b.ins().fcvt_from_uint(float, x),
        (Kind::I32, Kind::F32) => b.ins().fcvt_from_sint(float, x),
        (Kind::F32, Kind::U32) => {
            let wide = b.ins().fcvt_to_uint_sat(int, x);
            let largest = constant(b, LARGEST_U32);
            b.ins().umin(wide, largest)
        }
        (Kind::F32, Kind::I32) => {
            let wide = b.ins().fcvt_to_sint_sat(int, x);
            let largest = constant(b, LARGEST_I32);
            b.ins().smin(wide, largest)
        }
        (Kind::Bool, Kind::U32 | Kind::I32) if lanes == 1 => b.ins().uextend(I32, x),
        (Kind::Bool, Kind::U32 | Kind::I32) => {
            let one = constant(b, 1);
            b.ins().band(x, one)
        }
        (Kind::Bool, Kind::F32) => {
            let whole = convert(b, Kind::Bool, Kind::U32, lanes, x)?;
            b.ins().fcvt_from_sint(float, whole)
        }
        (Kind::U32 | Kind::I32, Kind::Bool) => {
            let zero = constant(b, 0);
            b.ins().icmp(IntCC::NotEqual, x, zero)
        }
        (Kind::F32, Kind::Bool) => {
            let zero = constant(b, 0);
            let zero = recast(b, float, zero);
            let result = b.ins().fcmp(FloatCC::NotEqual, x, zero);
            if lanes == 1 {
                result
            } else {
                recast(b, I32X4, result)
            }
        }
        _ => return Err(format!("a conversion from {from:?} to {to:?}")),
    })
}
