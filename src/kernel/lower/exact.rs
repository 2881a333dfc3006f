//! What compilers below get wrong although they are told to be exact, put so that they cannot.
//!
//! * Mesa's llvmpipe drops a constant 0 from sums and products whatever the float controls say:
//!   `x + 0.0` becomes `x`, which keeps -0, and `x * 0.0` becomes 0, which loses a sign or a NaN
//!   (`lp_build_add`, `lp_build_mul` in its `lp_bld_arit.c`). So a zero comes from the table, where
//!   no compiler sees it: `bp_zero`. A local array's first zeros stay as they are.
//! * naga writes `a != b` as OpFOrdNotEqual, which is false for a NaN. `!(a == b)` is right.

use std::collections::BTreeMap;

use naga::valid::FunctionInfo;
use naga::{
    Arena, BinaryOperator, Block, Constant, Expression, Function, GlobalVariable, Handle, Literal,
    Module, Range, ScalarKind, Span, Statement, Type, TypeInner, UnaryOperator, VectorSize,
};

use crate::kernel::rebuild::rebuild;

/// Rewrites one function. `info` belongs to it as it is.
pub(super) fn keep_exact(
    module: &Module,
    zero: Handle<GlobalVariable>,
    info: &FunctionInfo,
    function: &mut Function,
) {
    let is_float = |handle: Handle<Expression>| {
        info[handle].ty.inner_with(&module.types).scalar_kind() == Some(ScalarKind::Float)
    };
    let compared: Vec<bool> = function
        .expressions
        .iter()
        .map(|(_, expression)| match expression {
            Expression::Binary {
                op: BinaryOperator::NotEqual,
                left,
                ..
            } => is_float(*left),
            _ => false,
        })
        .collect();
    store_initial_values(module, function);
    let used = function.expressions.iter();
    let mixed: BTreeMap<_, _> = used.filter_map(|(_, found)| mixed(module, found)).collect();
    let zeros = rebuild(
        function,
        |arena| Zeros::add(module, arena, zero, &mixed),
        |zeros, old, expression, span, arena| {
            if let Some(shape) = zero_shape(module, &expression) {
                return zeros.of(shape);
            }
            let is_compared = compared.get(old.index()).is_some_and(|is_float| *is_float);
            match expression {
                Expression::Constant(constant) if zeros.mixed.contains_key(&constant) => {
                    zeros.mixed[&constant]
                }
                Expression::Binary { left, right, .. } if is_compared => {
                    let op = BinaryOperator::Equal;
                    let expr = arena.append(Expression::Binary { op, left, right }, span);
                    let op = UnaryOperator::LogicalNot;
                    arena.append(Expression::Unary { op, expr }, span)
                }
                other => arena.append(other, span),
            }
        },
    );
    zeros.begin(function);
}

/// Zeros of each shape, and constants with zeros among their lanes, in the new arena.
struct Zeros {
    scalar: Handle<Expression>,
    vectors: BTreeMap<u32, Handle<Expression>>,
    mixed: BTreeMap<Handle<Constant>, Handle<Expression>>,
}

impl Zeros {
    fn add(
        module: &Module,
        arena: &mut Arena<Expression>,
        zero: Handle<GlobalVariable>,
        mixed: &BTreeMap<Handle<Constant>, Vec<f32>>,
    ) -> Zeros {
        // Before what is evaluated: literals are not.
        let mut literals = BTreeMap::new();
        for lane in mixed.values().flatten().filter(|lane| !is_zero(**lane)) {
            let literal = Expression::Literal(Literal::F32(*lane));
            let known = literals.entry(lane.to_bits());
            known.or_insert_with(|| arena.append(literal, Span::UNDEFINED));
        }
        let pointer = arena.append(Expression::GlobalVariable(zero), Span::UNDEFINED);
        let scalar = arena.append(Expression::Load { pointer }, Span::UNDEFINED);
        let sizes = [VectorSize::Bi, VectorSize::Tri, VectorSize::Quad];
        let vectors = sizes.map(|size| {
            let splat = Expression::Splat {
                size,
                value: scalar,
            };
            (size as u32, arena.append(splat, Span::UNDEFINED))
        });
        let composed = |(constant, lanes): (&Handle<Constant>, &Vec<f32>)| {
            let lane = |lane: &f32| *literals.get(&lane.to_bits()).unwrap_or(&scalar);
            let compose = Expression::Compose {
                ty: module.constants[*constant].ty,
                components: lanes.iter().map(lane).collect(),
            };
            (*constant, arena.append(compose, Span::UNDEFINED))
        };
        Zeros {
            scalar,
            vectors: vectors.into(),
            mixed: mixed.iter().map(composed).collect(),
        }
    }

    /// Evaluates them where the function begins.
    fn begin(&self, function: &mut Function) {
        let last = self
            .vectors
            .values()
            .chain(self.mixed.values())
            .max()
            .copied();
        let emitted = Range::new_from_bounds(self.scalar, last.unwrap_or(self.scalar));
        let mut body = Block::new();
        body.push(Statement::Emit(emitted), Span::UNDEFINED);
        body.extend_block(std::mem::take(&mut function.body));
        function.body = body;
    }

    fn of(&self, shape: Option<VectorSize>) -> Handle<Expression> {
        shape.map_or(self.scalar, |size| self.vectors[&(size as u32)])
    }
}

/// Whether an expression is a constant 0.0, or a vector of them: its lanes, `None` for a scalar.
fn zero_shape(module: &Module, expression: &Expression) -> Option<Option<VectorSize>> {
    match expression {
        Expression::Literal(Literal::F32(value)) => is_zero(*value).then_some(None),
        Expression::ZeroValue(ty) => float_shape(module, *ty),
        Expression::Constant(constant) => {
            let constant = &module.constants[*constant];
            let lanes = lanes(module, constant.init)?;
            let shape = float_shape(module, constant.ty)?;
            lanes.into_iter().all(is_zero).then_some(shape)
        }
        _ => None,
    }
}

fn is_zero(value: f32) -> bool {
    value.to_bits() == 0
}

/// The lanes of a module's constant, a float or a vector of them.
fn lanes(module: &Module, value: Handle<Expression>) -> Option<Vec<f32>> {
    match &module.global_expressions[value] {
        Expression::Literal(Literal::F32(value)) => Some(vec![*value]),
        Expression::ZeroValue(ty) => {
            let shape = float_shape(module, *ty)?;
            Some(vec![0.0; shape.map_or(1, |size| size as usize)])
        }
        Expression::Constant(constant) => lanes(module, module.constants[*constant].init),
        Expression::Splat { size, value } => Some(lanes(module, *value)?.repeat(*size as usize)),
        Expression::Compose { ty, components } => {
            float_shape(module, *ty)?;
            let parts = components.iter().map(|part| lanes(module, *part));
            let parts: Option<Vec<Vec<f32>>> = parts.collect();
            Some(parts?.concat())
        }
        _ => None,
    }
}

/// A module's constant of which some lanes are zero, and others not.
fn mixed(module: &Module, expression: &Expression) -> Option<(Handle<Constant>, Vec<f32>)> {
    let Expression::Constant(constant) = expression else {
        return None;
    };
    let lanes = lanes(module, module.constants[*constant].init)?;
    let zeros = lanes.iter().filter(|lane| is_zero(**lane)).count();
    (zeros > 0 && zeros < lanes.len()).then_some((*constant, lanes))
}

/// The lanes of a float type.
fn float_shape(module: &Module, ty: Handle<Type>) -> Option<Option<VectorSize>> {
    match module.types[ty].inner {
        TypeInner::Scalar(scalar) if scalar.kind == ScalarKind::Float => Some(None),
        TypeInner::Vector { size, scalar } if scalar.kind == ScalarKind::Float => Some(Some(size)),
        _ => None,
    }
}

/// Stores the initial values of local floats where the function begins: what stands with the local
/// must be a constant. A local without a value begins with zero.
fn store_initial_values(module: &Module, function: &mut Function) {
    let mut body = Block::new();
    let arena = &mut function.expressions;
    for (handle, local) in function.local_variables.iter_mut() {
        if float_shape(module, local.ty).is_none() {
            continue;
        }
        let value = match local.init.take() {
            Some(init) => copied(arena, init, &mut body),
            None => arena.append(Expression::ZeroValue(local.ty), Span::UNDEFINED),
        };
        let pointer = arena.append(Expression::LocalVariable(handle), Span::UNDEFINED);
        body.push(Statement::Store { pointer, value }, Span::UNDEFINED);
    }
    let rest = std::mem::take(&mut function.body);
    body.extend_block(rest);
    function.body = body;
}

/// A copy of a constant, evaluated in `body`.
fn copied(
    arena: &mut Arena<Expression>,
    constant: Handle<Expression>,
    body: &mut Block,
) -> Handle<Expression> {
    let copy = match arena[constant].clone() {
        Expression::Compose { ty, components } => Expression::Compose {
            ty,
            components: components
                .into_iter()
                .map(|component| copied(arena, component, body))
                .collect(),
        },
        Expression::Splat { size, value } => Expression::Splat {
            size,
            value: copied(arena, value, body),
        },
        other => other,
    };
    let needs_emit = !copy.needs_pre_emit();
    let copy = arena.append(copy, Span::UNDEFINED);
    if needs_emit {
        let emitted = Range::new_from_bounds(copy, copy);
        body.push(Statement::Emit(emitted), Span::UNDEFINED);
    }
    copy
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::{Registry, lower};

    /// Constant zeros in functions of the kernel's own.
    fn left(module: &Module) -> usize {
        let own = |function: &&Function| {
            let name = function.name.as_deref().unwrap_or_default();
            !["bp_load_", "bp_store_", "bp_lane_"]
                .iter()
                .any(|start| name.starts_with(start))
        };
        let functions = module.functions.iter().map(|(_, function)| function);
        let entries = module.entry_points.iter().map(|entry| &entry.function);
        let functions = functions.chain(entries).filter(own);
        let expressions = functions.flat_map(|function| function.expressions.iter());
        expressions
            .filter(|(_, expression)| {
                zero_shape(module, expression).is_some() || mixed(module, expression).is_some()
            })
            .count()
    }

    #[test]
    fn no_constant_zero_of_a_float_is_left_in_any_kernel() {
        let registry = Registry::new().expect("shaders link");
        let mut before = 0;
        for name in registry.names() {
            let kernel = registry.get(name).expect("valid");
            before += left(&kernel.module);
            let lowered = lower(kernel).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(left(&lowered.module), 0, "{name}");
        }
        assert!(before > 50, "{before}");
    }

    const EVERY_FORM: &str = "
        const NONE: f32 = 0.0;
        const SPLAT = vec4<f32>(0.0);
        const COMPOSED = vec4<f32>(vec2<f32>(NONE), 0.0, 0.0);
        const MIXED = vec4<f32>(1.0, 0.0, 0.0, 0.0);
        @group(0) @binding(0) var<storage, read_write> out: array<vec4<f32>>;
        @compute @workgroup_size(1)
        fn main(@builtin(global_invocation_id) gid: vec3<u32>) {
            var unset: f32;
            var scalar = 0.0;
            var vector = vec4<f32>(0.0, 1.0, 0.0, NONE);
            var value = vec4<f32>();
            for (var k = 0u; k < gid.x; k++) {
                var inner = vec2<f32>(0.0);
                inner.x = inner.x + 0.0;
                vector = vector + inner.xyxy;
            }
            if all(vector != value) || scalar != NONE { unset = unset + 0.0; }
            out[gid.x] = vector + value + vec4<f32>(unset + scalar);
            out[gid.x] = (out[gid.x] + SPLAT) * MIXED + COMPOSED;
        }";

    #[test]
    fn every_form_of_a_zero_and_of_a_comparison_is_rewritten() {
        let registry = Registry::from_sources(&[("every", EVERY_FORM)]).expect("links");
        let kernel = registry.get("every").expect("valid");
        let main = &kernel.module.entry_points[0].function.expressions;
        let constants = main.iter().filter(|(_, found)| {
            let is_constant = matches!(found, Expression::Constant(_));
            is_constant && zero_shape(&kernel.module, found).is_some()
        });
        assert!(constants.count() >= 3, "NONE, SPLAT and COMPOSED");
        assert!(
            main.iter()
                .any(|(_, found)| mixed(&kernel.module, found).is_some())
        );
        let lowered = lower(kernel).expect("lowers");
        assert_eq!(left(&lowered.module), 0);
        let functions = lowered.module.functions.iter();
        let expressions = functions.flat_map(|(_, function)| function.expressions.iter());
        let not_equal = expressions.filter(|(_, expression)| {
            let op = BinaryOperator::NotEqual;
            matches!(expression, Expression::Binary { op: found, .. } if *found == op)
        });
        assert_eq!(not_equal.count(), 0);
    }
}
