//! WGSL types as the JIT holds them: a value is a list of leaves, one machine value each.
//!
//! A scalar is one F32, I32 or (bool) I8. A vector of two, three or four lanes is one four-lane
//! SIMD value; lanes past its length hold anything and are never observed. A bool vector is an
//! I32X4 mask, all ones or all zeros a lane. Arrays and structs are their members' leaves.

use std::rc::Rc;

use cranelift_codegen::ir;
use cranelift_codegen::ir::types::{F32, F32X4, I8, I32, I32X4};
use naga::{ArraySize, Handle, Scalar, ScalarKind, TypeInner};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    F32,
    U32,
    I32,
    Bool,
}

impl Kind {
    pub fn of(scalar: Scalar) -> Result<Kind, String> {
        match (scalar.kind, scalar.width) {
            (ScalarKind::Float, 4) => Ok(Kind::F32),
            (ScalarKind::Uint, 4) => Ok(Kind::U32),
            (ScalarKind::Sint, 4) => Ok(Kind::I32),
            (ScalarKind::Bool, _) => Ok(Kind::Bool),
            _ => Err(format!("scalar {scalar:?}")),
        }
    }

    /// Machine type of one lane on its own.
    pub fn scalar(self) -> ir::Type {
        match self {
            Kind::F32 => F32,
            Kind::U32 | Kind::I32 => I32,
            Kind::Bool => I8,
        }
    }

    pub fn vector(self) -> ir::Type {
        match self {
            Kind::F32 => F32X4,
            Kind::U32 | Kind::I32 | Kind::Bool => I32X4,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ty {
    Scalar(Kind),
    Vector(Kind, u8),
    Array(Rc<Ty>, u32),
    Struct(Rc<[Ty]>),
}

/// Elements of a function-local array at most.
const MAX_ARRAY: u32 = 4096;

impl Ty {
    pub fn of(module: &naga::Module, handle: Handle<naga::Type>) -> Result<Ty, String> {
        match &module.types[handle].inner {
            TypeInner::Scalar(scalar) => Ok(Ty::Scalar(Kind::of(*scalar)?)),
            TypeInner::Vector { size, scalar } => Ok(Ty::Vector(Kind::of(*scalar)?, *size as u8)),
            TypeInner::Array {
                base,
                size: ArraySize::Constant(len),
                ..
            } => {
                if len.get() > MAX_ARRAY {
                    return Err(format!("an array of {len} elements, {MAX_ARRAY} at most"));
                }
                Ok(Ty::Array(Rc::new(Ty::of(module, *base)?), len.get()))
            }
            TypeInner::Struct { members, .. } => {
                let members: Result<Vec<Ty>, String> = members
                    .iter()
                    .map(|member| Ty::of(module, member.ty))
                    .collect();
                Ok(Ty::Struct(members?.into()))
            }
            other => Err(format!("type {other:?}")),
        }
    }

    pub fn leaf_count(&self) -> usize {
        match self {
            Ty::Scalar(_) | Ty::Vector(..) => 1,
            Ty::Array(element, len) => element.leaf_count() * *len as usize,
            Ty::Struct(members) => members.iter().map(Ty::leaf_count).sum(),
        }
    }

    /// Bytes in a stack slot, where leaves lie one after the other: 4 a scalar, 16 a vector.
    pub fn slot_bytes(&self) -> u32 {
        match self {
            Ty::Scalar(_) => 4,
            Ty::Vector(..) => 16,
            Ty::Array(element, len) => element.slot_bytes() * len,
            Ty::Struct(members) => members.iter().map(Ty::slot_bytes).sum(),
        }
    }

    /// The leaves' types in order: each a scalar or a vector.
    pub fn leaves(&self) -> Vec<Ty> {
        match self {
            Ty::Scalar(_) | Ty::Vector(..) => vec![self.clone()],
            Ty::Array(element, len) => {
                let leaves = element.leaves();
                (0..*len).flat_map(|_| leaves.iter().cloned()).collect()
            }
            Ty::Struct(members) => members.iter().flat_map(Ty::leaves).collect(),
        }
    }

    /// Member or element `index`: (its type, first leaf, first byte in a slot).
    pub fn member(&self, index: u32) -> Option<(Ty, usize, u32)> {
        match self {
            Ty::Array(element, len) if index < *len => Some((
                (**element).clone(),
                element.leaf_count() * index as usize,
                element.slot_bytes() * index,
            )),
            Ty::Struct(members) => {
                let before = &members[..index as usize];
                Some((
                    members.get(index as usize)?.clone(),
                    before.iter().map(Ty::leaf_count).sum(),
                    before.iter().map(Ty::slot_bytes).sum(),
                ))
            }
            _ => None,
        }
    }

    /// Machine type of a leaf.
    pub fn machine(&self) -> ir::Type {
        match self {
            Ty::Scalar(kind) => kind.scalar(),
            Ty::Vector(kind, _) => kind.vector(),
            _ => unreachable!("{self:?} is not a leaf"),
        }
    }

    pub fn has_array(&self) -> bool {
        match self {
            Ty::Scalar(_) | Ty::Vector(..) => false,
            Ty::Array(..) => true,
            Ty::Struct(members) => members.iter().any(Ty::has_array),
        }
    }
}
