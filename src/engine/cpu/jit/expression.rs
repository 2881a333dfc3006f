//! Expressions to values and places.

use cranelift_codegen::ir::InstBuilder;
use cranelift_codegen::ir::types::{I8, I32};
use naga::{AddressSpace, Arena, BinaryOperator, Expression, Handle, Literal, SwizzleComponent};

use super::frame::{Bound, Frame};
use super::place::Place;
use super::types::{Kind, Ty};
use super::value::{Val, dynamic_lane, lane, splat, swizzle, vector_of};
use super::{Translator, arithmetic};

impl Translator<'_, '_> {
    /// The value of an expression.
    pub(super) fn value(
        &mut self,
        frame: &Frame,
        handle: Handle<Expression>,
    ) -> Result<Val, String> {
        match self.bound(frame, handle)? {
            Bound::Value(value) => Ok(value),
            Bound::Place(place) => Err(format!("the pointer {place:?} as a value")),
        }
    }

    pub(super) fn place(
        &mut self,
        frame: &Frame,
        handle: Handle<Expression>,
    ) -> Result<Place, String> {
        match self.bound(frame, handle)? {
            Bound::Place(place) => Ok(place),
            Bound::Value(value) => Err(format!("a value of {:?} as a pointer", value.ty)),
        }
    }

    /// What an expression stands for: what its `Emit` made, or a constant, variable or argument.
    pub(super) fn bound(
        &mut self,
        frame: &Frame,
        handle: Handle<Expression>,
    ) -> Result<Bound, String> {
        match &frame.bound[handle.index()] {
            Some(bound) => Ok(bound.clone()),
            None => self.evaluate(frame, handle),
        }
    }

    /// Generates the code of one expression.
    pub(super) fn evaluate(
        &mut self,
        frame: &Frame,
        handle: Handle<Expression>,
    ) -> Result<Bound, String> {
        self.spend(1)?;
        let place = |place: Place| Ok(Bound::Place(place));
        let value = match frame.function.expressions[handle] {
            Expression::GlobalVariable(variable) => return self.global(variable).map(Bound::Place),
            Expression::LocalVariable(variable) => {
                return place(frame.locals[variable.index()].clone());
            }
            Expression::FunctionArgument(index) => {
                return Ok(frame.arguments[index as usize].clone());
            }
            Expression::Access { base, index } => {
                let index = self.value(frame, index)?.leaf();
                match self.bound(frame, base)? {
                    Bound::Place(base) => {
                        return self.element_place(&base, index).map(Bound::Place);
                    }
                    Bound::Value(base) => self.element_value(&base, index)?,
                }
            }
            Expression::AccessIndex { base, index } => match self.bound(frame, base)? {
                Bound::Place(base) => return self.member_place(&base, index).map(Bound::Place),
                Bound::Value(base) => self.member_value(&base, index)?,
            },
            Expression::Load { pointer } => {
                let from = self.place(frame, pointer)?;
                self.load(&from)?
            }
            Expression::Binary { op, left, right } => self.binary(frame, op, left, right)?,
            Expression::CallResult(_) => return Err("a call's result before the call".into()),
            _ => self.operation(frame, handle)?,
        };
        Ok(Bound::Value(value))
    }

    /// Operations on values, and the expressions that build values.
    fn operation(&mut self, frame: &Frame, handle: Handle<Expression>) -> Result<Val, String> {
        Ok(match frame.function.expressions[handle] {
            Expression::Unary { op, expr } => {
                let value = self.value(frame, expr)?;
                arithmetic::unary(&mut self.b, op, &value)?
            }
            Expression::Select {
                condition,
                accept,
                reject,
            } => {
                let condition = self.value(frame, condition)?;
                let accept = self.value(frame, accept)?;
                let reject = self.value(frame, reject)?;
                arithmetic::select(&mut self.b, &condition, &accept, &reject)?
            }
            Expression::Relational { fun, argument } => {
                let value = self.value(frame, argument)?;
                arithmetic::relational(&mut self.b, fun, &value)?
            }
            Expression::Math { fun, arg, arg1, .. } => {
                let value = self.value(frame, arg)?;
                let second = arg1.map(|arg| self.value(frame, arg)).transpose()?;
                arithmetic::math(&mut self.b, fun, &value, second.as_ref())?
            }
            Expression::As {
                expr,
                kind,
                convert,
            } => {
                let value = self.value(frame, expr)?;
                arithmetic::cast(&mut self.b, &value, kind, convert.is_some())?
            }
            _ => {
                let function = frame.function;
                self.constructor(&function.expressions, handle, |this, part| {
                    this.value(frame, part)
                })?
            }
        })
    }

    /// A constant of the module.
    fn constant(&mut self, handle: Handle<Expression>) -> Result<Val, String> {
        let module = self.module;
        self.constructor(&module.global_expressions, handle, |this, part| {
            this.constant(part)
        })
    }

    /// Expressions that build values and occur in functions and in constants alike.
    fn constructor(
        &mut self,
        arena: &Arena<Expression>,
        handle: Handle<Expression>,
        mut part: impl FnMut(&mut Self, Handle<Expression>) -> Result<Val, String>,
    ) -> Result<Val, String> {
        match arena[handle] {
            Expression::Literal(literal) => self.literal(literal),
            Expression::Constant(constant) => self.constant(self.module.constants[constant].init),
            Expression::ZeroValue(ty) => {
                let ty = Ty::of(self.module, ty)?;
                Ok(self.zero(&ty))
            }
            Expression::Splat { size, value } => {
                let value = part(self, value)?;
                let (kind, _) = value.shape()?;
                let wide = splat(&mut self.b, kind, value.leaf());
                Ok(Val::vector(kind, size as u8, wide))
            }
            Expression::Swizzle {
                size,
                vector,
                pattern,
            } => {
                let value = part(self, vector)?;
                let (kind, _) = value.shape()?;
                let lanes: Vec<u8> = pattern[..size as usize]
                    .iter()
                    .map(|c: &SwizzleComponent| *c as u8)
                    .collect();
                let shuffled = swizzle(&mut self.b, value.leaf(), &lanes);
                Ok(Val::vector(kind, size as u8, shuffled))
            }
            Expression::Compose { ty, ref components } => {
                let parts: Result<Vec<Val>, String> = components
                    .iter()
                    .map(|&component| part(self, component))
                    .collect();
                self.compose(ty, &parts?)
            }
            ref other => Err(format!("expression {other:?}")),
        }
    }

    fn compose(&mut self, ty: Handle<naga::Type>, parts: &[Val]) -> Result<Val, String> {
        let ty = Ty::of(self.module, ty)?;
        if let Ty::Vector(kind, lanes) = ty {
            let mut scalars = Vec::new();
            for part in parts {
                match part.shape()? {
                    (_, 1) => scalars.push(part.leaf()),
                    (_, count) => {
                        for place in 0..count {
                            scalars.push(lane(&mut self.b, kind, part.leaf(), place));
                        }
                    }
                }
            }
            let vector = vector_of(&mut self.b, kind, &scalars);
            return Ok(Val::vector(kind, lanes, vector));
        }
        let leaves = parts
            .iter()
            .flat_map(|part| part.leaves.iter().copied())
            .collect();
        Ok(Val { ty, leaves })
    }

    fn literal(&mut self, literal: Literal) -> Result<Val, String> {
        Ok(match literal {
            Literal::F32(value) => Val::scalar(Kind::F32, self.b.ins().f32const(value)),
            Literal::U32(value) => {
                Val::scalar(Kind::U32, self.b.ins().iconst(I32, i64::from(value)))
            }
            Literal::I32(value) => {
                // An i32 constant is given by its bits, not by its sign.
                let bits = i64::from(value as u32);
                Val::scalar(Kind::I32, self.b.ins().iconst(I32, bits))
            }
            Literal::Bool(value) => {
                Val::scalar(Kind::Bool, self.b.ins().iconst(I8, i64::from(value)))
            }
            other => return Err(format!("literal {other:?}")),
        })
    }

    /// The zero value of a type.
    pub(super) fn zero(&mut self, ty: &Ty) -> Val {
        let mut leaves = Vec::new();
        for leaf in ty.leaves() {
            let (kind, vector) = match leaf {
                Ty::Scalar(kind) => (kind, false),
                Ty::Vector(kind, _) => (kind, true),
                other => unreachable!("{other:?} is not a leaf"),
            };
            let zero = match kind {
                Kind::F32 => self.b.ins().f32const(0.0),
                Kind::U32 | Kind::I32 => self.b.ins().iconst(I32, 0),
                Kind::Bool => self.b.ins().iconst(I8, 0),
            };
            leaves.push(if vector {
                splat(&mut self.b, kind, zero)
            } else {
                zero
            });
        }
        Val {
            ty: ty.clone(),
            leaves,
        }
    }

    fn global(&self, variable: Handle<naga::GlobalVariable>) -> Result<Place, String> {
        let variable = &self.module.global_variables[variable];
        match (variable.space, variable.binding) {
            (AddressSpace::Storage { .. }, Some(binding)) => {
                Ok(Place::Operand(binding.binding as usize))
            }
            (AddressSpace::Uniform, _) => Ok(Place::Params),
            (space, _) => Err(format!("a global in {space:?} space")),
        }
    }

    fn binary(
        &mut self,
        frame: &Frame,
        op: BinaryOperator,
        left: Handle<Expression>,
        right: Handle<Expression>,
    ) -> Result<Val, String> {
        let x = self.value(frame, left)?;
        let is_shift = matches!(op, BinaryOperator::ShiftLeft | BinaryOperator::ShiftRight);
        if is_shift
            && x.shape()?.1 > 1
            && let Some(value) = one_scalar(frame, right)
        {
            let amount = self.value(frame, value)?.leaf();
            return arithmetic::shift_by_scalar(&mut self.b, op, &x, amount);
        }
        if let Some(divisor) = constant_divisor(frame, op, right)
            && x.ty == Ty::Scalar(Kind::U32)
        {
            return Ok(arithmetic::divide_by_constant(&mut self.b, op, &x, divisor));
        }
        let y = self.value(frame, right)?;
        arithmetic::binary(&mut self.b, op, &x, &y)
    }

    fn member_value(&mut self, base: &Val, index: u32) -> Result<Val, String> {
        if let Ty::Vector(kind, _) = base.ty {
            let value = lane(&mut self.b, kind, base.leaf(), index as u8);
            return Ok(Val::scalar(kind, value));
        }
        let (ty, first, _) = base
            .ty
            .member(index)
            .ok_or_else(|| format!("member {index} of {:?}", base.ty))?;
        let leaves = base.leaves[first..first + ty.leaf_count()].to_vec();
        Ok(Val { ty, leaves })
    }

    /// Element of a value chosen at run time: an array goes through a stack slot.
    fn element_value(
        &mut self,
        base: &Val,
        index: cranelift_codegen::ir::Value,
    ) -> Result<Val, String> {
        if let Ty::Vector(kind, lanes) = base.ty {
            self.check_local(index, u32::from(lanes));
            let value = dynamic_lane(&mut self.b, kind, lanes, base.leaf(), index);
            return Ok(Val::scalar(kind, value));
        }
        let slot = self.stack_slot(&base.ty)?;
        self.store(&slot, base)?;
        let element = self.element_place(&slot, index)?;
        self.load(&element)
    }
}

/// The right side of `/` or `%` when it is a literal other than 0.
fn constant_divisor(frame: &Frame, op: BinaryOperator, right: Handle<Expression>) -> Option<u32> {
    let divides = matches!(op, BinaryOperator::Divide | BinaryOperator::Modulo);
    match frame.function.expressions[right] {
        Expression::Literal(Literal::U32(value)) if divides && value != 0 => Some(value),
        _ => None,
    }
}

/// The scalar that fills every lane of a vector, where that can be seen.
fn one_scalar(frame: &Frame, vector: Handle<Expression>) -> Option<Handle<Expression>> {
    let expressions = &frame.function.expressions;
    match expressions[vector] {
        Expression::Splat { value, .. } => Some(value),
        Expression::Compose { ref components, .. } => {
            let first = *components.first()?;
            let same =
                |other: &Handle<Expression>| match (&expressions[first], &expressions[*other]) {
                    (Expression::Literal(a), Expression::Literal(b)) => a == b,
                    _ => false,
                };
            components.iter().all(same).then_some(first)
        }
        _ => None,
    }
}
