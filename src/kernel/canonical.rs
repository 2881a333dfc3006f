//! The shared pass over the IR: arithmetic leaves one NaN behind, 0x7fc00000 (assumption A5).
//!
//! Which NaN an operation makes is left open by IEEE 754 and differs between processors. So a NaN
//! is replaced, by a test on its bits, at the two places where bits can be seen: where an f32 is
//! stored to an operand, and where a computed f32 is cast to an integer. Copies by kernels go
//! through the same stores; only `Engine::copy` keeps payloads.

use std::collections::BTreeSet;

use naga::valid::{FunctionInfo, ModuleInfo};
use naga::{
    AddressSpace, Arena, BinaryOperator, Block, Expression, Function, Handle, Literal, Module,
    Range, ScalarKind, Span, Statement, TypeInner, UniqueArena, VectorSize,
};

use super::rebuild::rebuild;

/// Shape of a float value: its lanes, `None` for a scalar.
type Lanes = Option<VectorSize>;

/// The literals that the test needs.
#[derive(Clone, Copy)]
struct Literals {
    magnitude: Handle<Expression>,
    infinity: Handle<Expression>,
    nan: Handle<Expression>,
}

/// Rewrites every function of the module. `info` belongs to the module as it was before; `loads`
/// are functions that only load from an operand.
pub(super) fn canonicalise_nans(
    module: &mut Module,
    info: &ModuleInfo,
    loads: &BTreeSet<Handle<Function>>,
) {
    let Module {
        functions,
        entry_points,
        types,
        global_variables,
        ..
    } = module;
    for (handle, function) in functions.iter_mut() {
        Pass {
            types,
            global_variables,
            loads,
            info: &info[handle],
        }
        .run(function);
    }
    for (place, entry) in entry_points.iter_mut().enumerate() {
        let info = info.get_entry_point(place);
        Pass {
            types,
            global_variables,
            loads,
            info,
        }
        .run(&mut entry.function);
    }
}

struct Pass<'a> {
    types: &'a UniqueArena<naga::Type>,
    global_variables: &'a Arena<naga::GlobalVariable>,
    loads: &'a BTreeSet<Handle<Function>>,
    info: &'a FunctionInfo,
}

impl Pass<'_> {
    fn run(&self, function: &mut Function) {
        // What an operand holds is canonical already, or was put there by the host.
        let expressions = &function.expressions;
        let casts: Vec<Option<Lanes>> = function
            .expressions
            .iter()
            .map(|(_, expression)| match *expression {
                Expression::As {
                    expr,
                    kind,
                    convert: None,
                } if kind != ScalarKind::Float && !self.is_loaded(expressions, expr) => {
                    self.float_lanes(expr)
                }
                _ => None,
            })
            .collect();
        let lanes_of: Vec<Option<Lanes>> = function
            .expressions
            .iter()
            .map(|(handle, _)| self.float_lanes(handle))
            .collect();
        let mut new_lanes: Vec<Option<Lanes>> = Vec::new();
        let literals = rebuild(
            function,
            |arena| Literals {
                magnitude: literal(arena, Literal::I32(0x7fff_ffff)),
                infinity: literal(arena, Literal::I32(0x7f80_0000)),
                nan: literal(arena, Literal::I32(0x7fc0_0000)),
            },
            |literals, old, mut expression, span, arena| {
                if let (Some(lanes), Expression::As { expr, .. }) =
                    (casts[old.index()], &mut expression)
                {
                    *expr = canonical(arena, *literals, *expr, lanes, span);
                }
                let new = arena.append(expression, span);
                new_lanes.resize(new.index() + 1, None);
                new_lanes[new.index()] = lanes_of[old.index()];
                new
            },
        );
        let mut body = std::mem::take(&mut function.body);
        self.rewrite_stores(&mut function.expressions, literals, &new_lanes, &mut body);
        function.body = body;
    }

    /// Whether a value, or a lane of it, is just what an operand holds.
    fn is_loaded(&self, arena: &Arena<Expression>, handle: Handle<Expression>) -> bool {
        match arena[handle] {
            Expression::Load { pointer } => self.reaches_operand(arena, pointer),
            Expression::CallResult(function) => self.loads.contains(&function),
            Expression::Access { base, .. } | Expression::AccessIndex { base, .. } => {
                self.is_loaded(arena, base)
            }
            _ => false,
        }
    }

    fn float_lanes(&self, handle: Handle<Expression>) -> Option<Lanes> {
        match *self.info[handle].ty.inner_with(self.types) {
            TypeInner::Scalar(scalar) if scalar.kind == ScalarKind::Float => Some(None),
            TypeInner::Vector { size, scalar } if scalar.kind == ScalarKind::Float => {
                Some(Some(size))
            }
            _ => None,
        }
    }

    fn rewrite_stores(
        &self,
        arena: &mut Arena<Expression>,
        literals: Literals,
        lanes: &[Option<Lanes>],
        block: &mut Block,
    ) {
        let old = std::mem::take(block);
        for (mut statement, span) in old.span_into_iter() {
            match &mut statement {
                Statement::Store { pointer, value } => {
                    let floats = lanes.get(value.index()).copied().flatten();
                    if let Some(lanes) = floats
                        && self.reaches_operand(arena, *pointer)
                    {
                        let first = arena.len() as u32;
                        *value = canonical(arena, literals, *value, lanes, span);
                        let added = Range::from_index_range(first..arena.len() as u32, arena);
                        block.push(Statement::Emit(added), span);
                    }
                }
                Statement::Block(inner) => self.rewrite_stores(arena, literals, lanes, inner),
                Statement::If { accept, reject, .. } => {
                    self.rewrite_stores(arena, literals, lanes, accept);
                    self.rewrite_stores(arena, literals, lanes, reject);
                }
                Statement::Switch { cases, .. } => {
                    for case in cases {
                        self.rewrite_stores(arena, literals, lanes, &mut case.body);
                    }
                }
                Statement::Loop {
                    body, continuing, ..
                } => {
                    self.rewrite_stores(arena, literals, lanes, body);
                    self.rewrite_stores(arena, literals, lanes, continuing);
                }
                _ => {}
            }
            block.push(statement, span);
        }
    }

    fn reaches_operand(&self, arena: &Arena<Expression>, pointer: Handle<Expression>) -> bool {
        match arena[pointer] {
            Expression::Access { base, .. } | Expression::AccessIndex { base, .. } => {
                self.reaches_operand(arena, base)
            }
            Expression::GlobalVariable(variable) => {
                matches!(
                    self.global_variables[variable].space,
                    AddressSpace::Storage { .. }
                )
            }
            _ => false,
        }
    }
}

fn literal(arena: &mut Arena<Expression>, value: Literal) -> Handle<Expression> {
    arena.append(Expression::Literal(value), Span::UNDEFINED)
}

/// Appends `value`, or the canonical NaN in each lane where `value` is a NaN. Infinity is the
/// largest magnitude that is not a NaN, and magnitudes order as signed integers.
fn canonical(
    arena: &mut Arena<Expression>,
    literals: Literals,
    value: Handle<Expression>,
    lanes: Lanes,
    span: Span,
) -> Handle<Expression> {
    let mut add = |expression| arena.append(expression, span);
    let mut wide = |literal| match lanes {
        Some(size) => add(Expression::Splat {
            size,
            value: literal,
        }),
        None => literal,
    };
    let magnitude_mask = wide(literals.magnitude);
    let infinity = wide(literals.infinity);
    let nan = wide(literals.nan);
    let bits = add(Expression::As {
        expr: value,
        kind: ScalarKind::Sint,
        convert: None,
    });
    let magnitude = add(Expression::Binary {
        op: BinaryOperator::And,
        left: bits,
        right: magnitude_mask,
    });
    let is_nan = add(Expression::Binary {
        op: BinaryOperator::Greater,
        left: magnitude,
        right: infinity,
    });
    let chosen = add(Expression::Select {
        condition: is_nan,
        accept: nan,
        reject: bits,
    });
    add(Expression::As {
        expr: chosen,
        kind: ScalarKind::Float,
        convert: None,
    })
}
