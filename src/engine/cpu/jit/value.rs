//! Values and their lanes.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{F32X4, I8X16, I32, I32X4};
use cranelift_codegen::ir::{InstBuilder, MemFlagsData, Value};
use cranelift_frontend::FunctionBuilder;

use super::types::{Kind, Ty};

/// A WGSL value: its type and one machine value a leaf.
#[derive(Clone, Debug)]
pub(super) struct Val {
    pub ty: Ty,
    pub leaves: Vec<Value>,
}

impl Val {
    pub fn scalar(kind: Kind, value: Value) -> Val {
        Val {
            ty: Ty::Scalar(kind),
            leaves: vec![value],
        }
    }

    pub fn vector(kind: Kind, lanes: u8, value: Value) -> Val {
        Val {
            ty: Ty::Vector(kind, lanes),
            leaves: vec![value],
        }
    }

    /// The one machine value of a scalar or vector.
    pub fn leaf(&self) -> Value {
        assert_eq!(self.leaves.len(), 1, "{:?} is not one leaf", self.ty);
        self.leaves[0]
    }

    /// Kind and lanes (1 for a scalar) of a scalar or vector.
    pub fn shape(&self) -> Result<(Kind, u8), String> {
        match self.ty {
            Ty::Scalar(kind) => Ok((kind, 1)),
            Ty::Vector(kind, lanes) => Ok((kind, lanes)),
            ref other => Err(format!("arithmetic on {other:?}")),
        }
    }
}

/// A bool (0 or 1) as a mask of 32 bits.
pub(super) fn mask_of_bool(b: &mut FunctionBuilder, bool_value: Value) -> Value {
    let wide = b.ins().uextend(I32, bool_value);
    b.ins().ineg(wide)
}

/// One lane on its own, chosen now.
pub(super) fn lane(b: &mut FunctionBuilder, kind: Kind, vector: Value, index: u8) -> Value {
    let value = b.ins().extractlane(vector, index);
    match kind {
        Kind::Bool => b.ins().icmp_imm_u(IntCC::NotEqual, value, 0),
        _ => value,
    }
}

pub(super) fn with_lane(
    b: &mut FunctionBuilder,
    kind: Kind,
    vector: Value,
    index: u8,
    scalar: Value,
) -> Value {
    let scalar = if kind == Kind::Bool {
        mask_of_bool(b, scalar)
    } else {
        scalar
    };
    b.ins().insertlane(vector, scalar, index)
}

/// A vector with `scalar` in every lane.
pub(super) fn splat(b: &mut FunctionBuilder, kind: Kind, scalar: Value) -> Value {
    let scalar = if kind == Kind::Bool {
        mask_of_bool(b, scalar)
    } else {
        scalar
    };
    b.ins().splat(kind.vector(), scalar)
}

/// A vector from two to four lanes.
pub(super) fn vector_of(b: &mut FunctionBuilder, kind: Kind, lanes: &[Value]) -> Value {
    let mut vector = splat(b, kind, lanes[0]);
    for (index, &scalar) in lanes.iter().enumerate().skip(1) {
        if scalar != lanes[0] {
            vector = with_lane(b, kind, vector, index as u8, scalar);
        }
    }
    vector
}

/// Bits of a four-lane vector as another four-lane type.
pub(super) fn recast(b: &mut FunctionBuilder, ty: cranelift_codegen::ir::Type, v: Value) -> Value {
    if b.func.dfg.value_type(v) == ty {
        v
    } else {
        b.ins().bitcast(ty, MemFlagsData::new(), v)
    }
}

/// `mask ? accept : reject`, lane by lane.
pub(super) fn blend(b: &mut FunctionBuilder, mask: Value, accept: Value, reject: Value) -> Value {
    let ty = b.func.dfg.value_type(accept);
    if ty == F32X4 {
        let mask = recast(b, F32X4, mask);
        b.ins().bitselect(mask, accept, reject)
    } else {
        b.ins().bitselect(mask, accept, reject)
    }
}

/// The lane that `index` names at run time, as a mask; no lane when it is out of range.
pub(super) fn lane_mask(b: &mut FunctionBuilder, index: Value) -> Value {
    let numbers: Vec<u8> = (0u32..4).flat_map(u32::to_le_bytes).collect();
    let constant = b.func.dfg.constants.insert(numbers.into());
    let numbers = b.ins().vconst(I32X4, constant);
    let wanted = b.ins().splat(I32X4, index);
    b.ins().icmp(IntCC::Equal, numbers, wanted)
}

/// The lane of `vector` that `index` names at run time; the caller has checked its range.
pub(super) fn dynamic_lane(
    b: &mut FunctionBuilder,
    kind: Kind,
    lanes: u8,
    vector: Value,
    index: Value,
) -> Value {
    let mut chosen = lane(b, kind, vector, 0);
    for place in 1..lanes {
        let candidate = lane(b, kind, vector, place);
        let here = b.ins().icmp_imm_u(IntCC::Equal, index, i64::from(place));
        chosen = b.ins().select(here, candidate, chosen);
    }
    chosen
}

/// Lanes `pattern` of a vector.
pub(super) fn swizzle(b: &mut FunctionBuilder, vector: Value, pattern: &[u8]) -> Value {
    let ty = b.func.dfg.value_type(vector);
    let bytes: Vec<u8> = (0..4)
        .flat_map(|lane| {
            let from = pattern.get(lane).copied().unwrap_or(0);
            (0..4).map(move |byte| from * 4 + byte)
        })
        .collect();
    let mask = b.func.dfg.immediates.push(bytes.into());
    let little = MemFlagsData::new().with_endianness(cranelift_codegen::ir::Endianness::Little);
    let raw = b.ins().bitcast(I8X16, little, vector);
    let shuffled = b.ins().shuffle(raw, raw, mask);
    b.ins().bitcast(ty, little, shuffled)
}
