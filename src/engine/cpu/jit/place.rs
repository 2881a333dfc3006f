//! Places: what pointers point to, and loads and stores through them.
//!
//! Every access to an operand tests its index against the extent of the instance: one compare and
//! one branch, to a cold block that records which operand it was and ends the function.

use std::rc::Rc;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{F32, I8, I32, I64, I64X2};
use cranelift_codegen::ir::{Endianness, InstBuilder, MemFlagsData, Value};
use cranelift_frontend::Variable;

use super::Translator;
use super::types::{Kind, Ty};
use super::value::{Val, blend, dynamic_lane, lane, lane_mask, splat, with_lane};

/// One storage operand, as values of the function.
#[derive(Clone, Debug)]
pub(super) struct OperandValues {
    /// Where its slot lies, in bytes from the first slot.
    pub slot: i32,
    pub element: Ty,
}

#[derive(Clone, Debug)]
pub(super) enum Lane {
    Fixed(u8),
    At(Value),
}

#[derive(Clone, Debug)]
pub(super) enum Place {
    /// A local held in registers: leaves `first..` of `variables`.
    Variables {
        variables: Rc<[Variable]>,
        first: usize,
        ty: Ty,
    },
    /// A local held in a stack slot.
    Slot {
        address: Value,
        offset: i32,
        ty: Ty,
    },
    /// A whole storage operand.
    Operand(usize),
    Element {
        operand: usize,
        index: Value,
    },
    /// The whole params struct, and one word of it.
    Params,
    Param(usize),
    /// One lane of a vector.
    Lane {
        of: Box<Place>,
        lane: Lane,
    },
}

/// Operands may lie at any word: no access may assume more than 4-byte alignment.
fn flags() -> MemFlagsData {
    MemFlagsData::new().with_notrap()
}

/// What no kernel can change while it runs: slots and params.
pub(super) fn frozen() -> MemFlagsData {
    MemFlagsData::trusted().with_readonly().with_can_move()
}

impl Translator<'_, '_> {
    /// The type of the value at `place`.
    pub(super) fn place_type(&self, place: &Place) -> Result<Ty, String> {
        Ok(match place {
            Place::Variables { ty, .. } | Place::Slot { ty, .. } => ty.clone(),
            Place::Element { operand, .. } => self.operands[*operand].element.clone(),
            Place::Param(word) => Ty::Scalar(self.params[*word]),
            Place::Lane { of, .. } => match self.place_type(of)? {
                Ty::Vector(kind, _) => Ty::Scalar(kind),
                other => return Err(format!("a lane of {other:?}")),
            },
            Place::Params => Ty::Struct(self.params.iter().map(|kind| Ty::Scalar(*kind)).collect()),
            Place::Operand(_) => return Err("a whole operand as a value".into()),
        })
    }

    /// Member, element or lane `index` of `place`, known now.
    pub(super) fn member_place(&mut self, place: &Place, index: u32) -> Result<Place, String> {
        match place {
            Place::Operand(operand) => {
                let index = self.b.ins().iconst(I32, i64::from(index));
                return Ok(Place::Element {
                    operand: *operand,
                    index,
                });
            }
            Place::Params => return Ok(Place::Param(index as usize)),
            _ => {}
        }
        let ty = self.place_type(place)?;
        if let Ty::Vector(..) = ty {
            return Ok(Place::Lane {
                of: Box::new(place.clone()),
                lane: Lane::Fixed(index as u8),
            });
        }
        let (member, leaf, byte) = ty
            .member(index)
            .ok_or_else(|| format!("member {index} of {ty:?}"))?;
        match place {
            Place::Variables {
                variables, first, ..
            } => Ok(Place::Variables {
                variables: variables.clone(),
                first: first + leaf,
                ty: member,
            }),
            Place::Slot {
                address, offset, ..
            } => Ok(Place::Slot {
                address: *address,
                offset: offset + byte as i32,
                ty: member,
            }),
            other => Err(format!("member {index} of {other:?}")),
        }
    }

    /// Element or lane `index` of `place`, known at run time.
    pub(super) fn element_place(&mut self, place: &Place, index: Value) -> Result<Place, String> {
        if let Place::Operand(operand) = place {
            return Ok(Place::Element {
                operand: *operand,
                index,
            });
        }
        let ty = self.place_type(place)?;
        match (place, &ty) {
            (_, Ty::Vector(_, lanes)) => {
                self.check_local(index, u32::from(*lanes));
                Ok(Place::Lane {
                    of: Box::new(place.clone()),
                    lane: Lane::At(index),
                })
            }
            (
                Place::Slot {
                    address, offset, ..
                },
                Ty::Array(element, len),
            ) => {
                self.check_local(index, *len);
                let wide = self.b.ins().uextend(I64, index);
                let bytes = self
                    .b
                    .ins()
                    .imul_imm_u(wide, i64::from(element.slot_bytes()));
                let address = self.b.ins().iadd(*address, bytes);
                Ok(Place::Slot {
                    address,
                    offset: *offset,
                    ty: (**element).clone(),
                })
            }
            _ => Err(format!("run-time index into {ty:?}")),
        }
    }

    pub(super) fn load(&mut self, place: &Place) -> Result<Val, String> {
        match place {
            Place::Variables {
                variables,
                first,
                ty,
            } => {
                let leaves = &variables[*first..*first + ty.leaf_count()];
                let leaves = leaves
                    .iter()
                    .map(|variable| self.b.use_var(*variable))
                    .collect();
                Ok(Val {
                    ty: ty.clone(),
                    leaves,
                })
            }
            Place::Slot {
                address,
                offset,
                ty,
            } => {
                let mut at = *offset;
                let mut leaves = Vec::new();
                for leaf in ty.leaves() {
                    leaves.push(self.load_slot_leaf(*address, at, &leaf));
                    at += leaf.slot_bytes() as i32;
                }
                Ok(Val {
                    ty: ty.clone(),
                    leaves,
                })
            }
            Place::Element { operand, index } => {
                let address = self.element_address(*operand, *index);
                let ty = self.operands[*operand].element.clone();
                Ok(Val {
                    leaves: vec![self.load_element(address, &ty)?],
                    ty,
                })
            }
            Place::Param(word) => {
                let kind = self.params[*word];
                let at = *word as i32 * 4;
                let value = self
                    .b
                    .ins()
                    .load(kind.scalar(), frozen(), self.params_at, at);
                Ok(Val::scalar(kind, value))
            }
            Place::Lane { of, lane: which } => self.load_lane(of, which),
            Place::Params => {
                let words: Result<Vec<Val>, String> = (0..self.params.len())
                    .map(|word| self.load(&Place::Param(word)))
                    .collect();
                let leaves = words?.iter().map(Val::leaf).collect();
                Ok(Val {
                    ty: self.place_type(place)?,
                    leaves,
                })
            }
            Place::Operand(_) => Err("a load of a whole operand".into()),
        }
    }

    pub(super) fn store(&mut self, place: &Place, value: &Val) -> Result<(), String> {
        match place {
            Place::Variables {
                variables, first, ..
            } => {
                for (variable, leaf) in variables[*first..].iter().zip(&value.leaves) {
                    self.b.def_var(*variable, *leaf);
                }
                Ok(())
            }
            Place::Slot {
                address,
                offset,
                ty,
            } => {
                let mut at = *offset;
                for (leaf, value) in ty.leaves().iter().zip(&value.leaves) {
                    self.store_slot_leaf(*address, at, leaf, *value);
                    at += leaf.slot_bytes() as i32;
                }
                Ok(())
            }
            Place::Element { operand, index } => {
                let address = self.element_address(*operand, *index);
                let ty = self.operands[*operand].element.clone();
                self.store_element(address, &ty, value.leaf())
            }
            Place::Lane { of, lane } => self.store_lane(of, lane, value.leaf()),
            Place::Param(_) | Place::Operand(_) | Place::Params => {
                Err("a store to params or to a whole operand".into())
            }
        }
    }

    fn load_lane(&mut self, of: &Place, which: &Lane) -> Result<Val, String> {
        let Ty::Vector(kind, lanes) = self.place_type(of)? else {
            return Err("a lane of no vector".into());
        };
        if let Place::Element { operand, index } = of {
            let base = self.element_address(*operand, *index);
            let address = self.lane_address(base, which);
            let value = self.b.ins().load(kind.scalar(), flags(), address, 0);
            return Ok(Val::scalar(kind, value));
        }
        let vector = self.load(of)?.leaf();
        let value = match which {
            Lane::Fixed(place) => lane(&mut self.b, kind, vector, *place),
            Lane::At(index) => dynamic_lane(&mut self.b, kind, lanes, vector, *index),
        };
        Ok(Val::scalar(kind, value))
    }

    fn store_lane(&mut self, of: &Place, which: &Lane, scalar: Value) -> Result<(), String> {
        let Ty::Vector(kind, lanes) = self.place_type(of)? else {
            return Err("a lane of no vector".into());
        };
        if let Place::Element { operand, index } = of {
            let base = self.element_address(*operand, *index);
            let address = self.lane_address(base, which);
            self.b.ins().store(flags(), scalar, address, 0);
            return Ok(());
        }
        let vector = self.load(of)?.leaf();
        let changed = match which {
            Lane::Fixed(place) => with_lane(&mut self.b, kind, vector, *place, scalar),
            Lane::At(index) => {
                let mask = lane_mask(&mut self.b, *index);
                let wide = splat(&mut self.b, kind, scalar);
                blend(&mut self.b, mask, wide, vector)
            }
        };
        self.store(of, &Val::vector(kind, lanes, changed))
    }

    fn lane_address(&mut self, base: Value, which: &Lane) -> Value {
        match which {
            Lane::Fixed(place) => self.b.ins().iadd_imm_u(base, i64::from(*place) * 4),
            Lane::At(index) => {
                let wide = self.b.ins().uextend(I64, *index);
                let bytes = self.b.ins().ishl_imm_u(wide, 2);
                self.b.ins().iadd(base, bytes)
            }
        }
    }

    /// Address of an element whose index is in range, after the test that it is.
    fn element_address(&mut self, operand: usize, index: Value) -> Value {
        // Read anew at each access: values that live across a whole kernel would be spilled and
        // reloaded in its innermost loops.
        let slot = self.operands[operand].slot;
        let extent = self.b.ins().load(I32, frozen(), self.slots, slot + 8);
        let inside = self.b.ins().icmp(IntCC::UnsignedLessThan, index, extent);
        let cold = self.operand_fault(operand);
        self.branch_unless(inside, cold);
        let shift = match self.operands[operand].element {
            Ty::Scalar(_) => 2,
            Ty::Vector(_, 2) => 3,
            _ => 4,
        };
        let base = self.b.ins().load(I64, frozen(), self.slots, slot);
        let wide = self.b.ins().uextend(I64, index);
        let bytes = self.b.ins().ishl_imm_u(wide, shift);
        self.b.ins().iadd(base, bytes)
    }

    /// Tests an index into a local array or vector.
    pub(super) fn check_local(&mut self, index: Value, len: u32) {
        let inside = self
            .b
            .ins()
            .icmp_imm_u(IntCC::UnsignedLessThan, index, i64::from(len));
        let cold = self.local_fault();
        self.branch_unless(inside, cold);
    }

    fn load_element(&mut self, address: Value, ty: &Ty) -> Result<Value, String> {
        match ty {
            Ty::Scalar(_) | Ty::Vector(_, 4) => {
                Ok(self.b.ins().load(ty.machine(), flags(), address, 0))
            }
            Ty::Vector(_, 2) => {
                let pair = self.b.ins().load(I64, flags(), address, 0);
                let pair = self.b.ins().scalar_to_vector(I64X2, pair);
                Ok(self.b.ins().bitcast(ty.machine(), little(), pair))
            }
            other => Err(format!("an operand of {other:?}")),
        }
    }

    fn store_element(&mut self, address: Value, ty: &Ty, value: Value) -> Result<(), String> {
        match ty {
            Ty::Scalar(_) | Ty::Vector(_, 4) => {
                self.b.ins().store(flags(), value, address, 0);
            }
            Ty::Vector(_, 2) => {
                let pair = self.b.ins().bitcast(I64X2, little(), value);
                let pair = self.b.ins().extractlane(pair, 0);
                self.b.ins().store(flags(), pair, address, 0);
            }
            other => return Err(format!("an operand of {other:?}")),
        }
        Ok(())
    }

    fn load_slot_leaf(&mut self, address: Value, at: i32, leaf: &Ty) -> Value {
        match leaf {
            Ty::Scalar(Kind::Bool) => self.b.ins().load(I8, flags(), address, at),
            Ty::Scalar(Kind::F32) => self.b.ins().load(F32, flags(), address, at),
            _ => self.b.ins().load(leaf.machine(), flags(), address, at),
        }
    }

    fn store_slot_leaf(&mut self, address: Value, at: i32, leaf: &Ty, value: Value) {
        debug_assert_eq!(self.b.func.dfg.value_type(value), leaf.machine());
        self.b.ins().store(flags(), value, address, at);
    }
}

fn little() -> MemFlagsData {
    MemFlagsData::new().with_endianness(Endianness::Little)
}
