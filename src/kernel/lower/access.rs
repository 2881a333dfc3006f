//! From accesses to calls: which expressions point into operands, and what stands in their place.

use std::collections::{BTreeMap, BTreeSet};

use naga::proc::IndexableLength;
use naga::valid::FunctionInfo;
use naga::{AddressSpace, Arena, Expression, Function, Handle, Literal, Module, ScalarKind, Span};

use super::split::split;
use crate::kernel::rebuild::rebuild;

/// An index or a lane: written in the kernel, or an expression.
#[derive(Clone, Copy)]
enum Index {
    Fixed(u32),
    At(Handle<Expression>),
}

/// What a pointer expression points to, when it is not a local.
#[derive(Clone, Copy)]
enum Target {
    Operand(u32),
    Element(u32, Index),
    Lane(u32, Index, Index),
    Params,
    Param(u32),
}

fn target(
    module: &Module,
    expressions: &Arena<Expression>,
    handle: Handle<Expression>,
) -> Option<Target> {
    let (base, index) = match expressions[handle] {
        Expression::GlobalVariable(variable) => {
            let variable = &module.global_variables[variable];
            return match (variable.space, variable.binding) {
                (AddressSpace::Storage { .. }, Some(at)) => Some(Target::Operand(at.binding)),
                (AddressSpace::Uniform, _) => Some(Target::Params),
                _ => None,
            };
        }
        Expression::Access { base, index } => (base, Index::At(index)),
        Expression::AccessIndex { base, index } => (base, Index::Fixed(index)),
        _ => return None,
    };
    Some(match (target(module, expressions, base)?, index) {
        (Target::Operand(operand), index) => Target::Element(operand, index),
        (Target::Element(operand, at), lane) => Target::Lane(operand, at, lane),
        (Target::Params, Index::Fixed(word)) => Target::Param(word),
        _ => return None,
    })
}

/// A call that stands for a load or a store, in new handles.
pub(super) struct Call {
    pub function: Handle<Function>,
    pub arguments: Vec<Handle<Expression>>,
}

/// What the new expressions of a function stand for.
#[derive(Default)]
pub(super) struct Plan {
    /// Loads, by their new expression: a call before it gives the value.
    pub loads: BTreeMap<usize, Call>,
    /// Pointers to operands, by their new expression: never emitted; the call that stores there,
    /// to which the value is added.
    pub pointers: BTreeMap<usize, Call>,
}

/// Rewrites the accesses of one function. `info` belongs to it as it is.
pub(super) fn lower_function(
    module: &Module,
    names: &BTreeMap<String, Handle<Function>>,
    info: &FunctionInfo,
    function: &mut Function,
) -> Result<(), String> {
    let old = function.expressions.clone();
    let targets: Vec<Option<Target>> = old
        .iter()
        .map(|(handle, _)| target(module, &old, handle))
        .collect();
    let fixed = fixed_indices(&targets);
    let signed = |handle: Handle<Expression>| {
        info[handle].ty.inner_with(&module.types).scalar_kind() == Some(ScalarKind::Sint)
    };
    let length = |handle: Handle<Expression>| {
        let inner = info[handle].ty.inner_with(&module.types);
        match inner.indexable_length(module) {
            Ok(IndexableLength::Known(length)) => Some(length),
            _ => None,
        }
    };
    let mut rewriter = Rewriter {
        names,
        lengths: old.iter().map(|(handle, _)| length(handle)).collect(),
        targets,
        signed: old.iter().map(|(handle, _)| signed(handle)).collect(),
        new_of: Vec::new(),
        plan: Plan::default(),
        error: None,
    };
    rebuild(
        function,
        |arena| {
            let literal = |value: &u32| {
                let literal = Expression::Literal(Literal::U32(*value));
                (*value, arena.append(literal, Span::UNDEFINED))
            };
            fixed
                .iter()
                .map(literal)
                .collect::<BTreeMap<u32, Handle<Expression>>>()
        },
        |literals, handle, expression, span, arena| {
            let new = rewriter.rewrite(literals, &old, handle, expression, span, arena);
            rewriter.new_of.push(new);
            new
        },
    );
    if let Some(error) = rewriter.error {
        return Err(error);
    }
    let mut body = std::mem::take(&mut function.body);
    split(&rewriter.plan, &function.expressions, &mut body);
    function.body = body;
    Ok(())
}

/// Indices and lanes that are written in the kernel.
fn fixed_indices(targets: &[Option<Target>]) -> BTreeSet<u32> {
    let indices = targets.iter().flatten().flat_map(|found| match *found {
        Target::Element(_, index) => [Some(index), None],
        Target::Lane(_, index, lane) => [Some(index), Some(lane)],
        _ => [None, None],
    });
    let fixed = |index| match index {
        Index::Fixed(value) => Some(value),
        Index::At(_) => None,
    };
    indices.flatten().filter_map(fixed).collect()
}

struct Rewriter<'a> {
    names: &'a BTreeMap<String, Handle<Function>>,
    /// By old expression, as the two that follow.
    targets: Vec<Option<Target>>,
    /// Elements of an array or a vector, or of what a pointer to one points to.
    lengths: Vec<Option<u32>>,
    signed: Vec<bool>,
    new_of: Vec<Handle<Expression>>,
    plan: Plan,
    error: Option<String>,
}

impl Rewriter<'_> {
    fn rewrite(
        &mut self,
        literals: &BTreeMap<u32, Handle<Expression>>,
        old: &Arena<Expression>,
        handle: Handle<Expression>,
        expression: Expression,
        span: Span,
        arena: &mut Arena<Expression>,
    ) -> Handle<Expression> {
        if let Expression::Load { pointer } = old[handle]
            && let Some(target) = self.targets[pointer.index()]
        {
            // Of a pointer to a lane, the base points to the whole vector.
            let lanes = match old[pointer] {
                Expression::Access { base, .. } => self.lengths[base.index()],
                _ => None,
            };
            return self.load(literals, (target, lanes), span, arena);
        }
        let Some(target) = self.targets[handle.index()] else {
            let expression = match (&old[handle], expression) {
                (Expression::Access { base, index }, Expression::Access { base: new, .. }) => {
                    let index = self.inside(self.lengths[base.index()], *index, span, arena);
                    Expression::Access { base: new, index }
                }
                (_, expression) => expression,
            };
            return arena.append(expression, span);
        };
        let call = match target {
            Target::Element(operand, index) => Some((format!("bp_store_{operand}"), vec![index])),
            Target::Lane(operand, index, lane) => {
                Some((format!("bp_lane_{operand}"), vec![index, lane]))
            }
            Target::Operand(_) | Target::Params | Target::Param(_) => None,
        };
        let call = call.map(|(name, indices)| {
            let indices = indices.into_iter();
            let arguments = indices
                .map(|index| self.index(literals, index, span, arena))
                .collect();
            Call {
                function: self.names[&name],
                arguments,
            }
        });
        let is_global = matches!(expression, Expression::GlobalVariable(_));
        let new = arena.append(expression, span);
        match call {
            Some(call) => {
                self.plan.pointers.insert(new.index(), call);
            }
            None if !is_global => {
                let nothing = Call {
                    function: self.names["bp_body"],
                    arguments: Vec::new(),
                };
                self.plan.pointers.insert(new.index(), nothing);
            }
            None => {}
        }
        new
    }

    /// An index as a u32.
    fn index(
        &self,
        literals: &BTreeMap<u32, Handle<Expression>>,
        index: Index,
        span: Span,
        arena: &mut Arena<Expression>,
    ) -> Handle<Expression> {
        match index {
            Index::Fixed(value) => literals[&value],
            Index::At(old) => {
                let new = self.new_of[old.index()];
                if !self.signed[old.index()] {
                    return new;
                }
                let cast = Expression::As {
                    expr: new,
                    kind: ScalarKind::Uint,
                    convert: None,
                };
                arena.append(cast, span)
            }
        }
    }

    /// A run-time index into a value or a local, old, as one inside it, new.
    fn inside(
        &mut self,
        length: Option<u32>,
        index: Handle<Expression>,
        span: Span,
        arena: &mut Arena<Expression>,
    ) -> Handle<Expression> {
        let name = length.map(|length| format!("bp_local_{length}"));
        let Some(function) = name.and_then(|name| self.names.get(&name)).copied() else {
            self.error = Some("an index into what has no fixed length".to_owned());
            return self.new_of[index.index()];
        };
        let index = self.index(&BTreeMap::new(), Index::At(index), span, arena);
        let inside = arena.append(Expression::CallResult(function), span);
        let call = Call {
            function,
            arguments: vec![index],
        };
        self.plan.loads.insert(inside.index(), call);
        inside
    }

    fn load(
        &mut self,
        literals: &BTreeMap<u32, Handle<Expression>>,
        (target, lanes): (Target, Option<u32>),
        span: Span,
        arena: &mut Arena<Expression>,
    ) -> Handle<Expression> {
        let (name, index, lane) = match target {
            Target::Element(operand, index) => (format!("bp_load_{operand}"), Some(index), None),
            Target::Lane(operand, index, lane) => {
                (format!("bp_load_{operand}"), Some(index), Some(lane))
            }
            Target::Param(word) => (format!("bp_param_{word}"), None, None),
            Target::Operand(_) | Target::Params => {
                self.error = Some("params as one value".to_owned());
                return literals
                    .values()
                    .next()
                    .copied()
                    .unwrap_or_else(|| arena.append(Expression::Literal(Literal::U32(0)), span));
            }
        };
        let function = self.names[&name];
        let arguments = index.map(|index| self.index(literals, index, span, arena));
        let value = arena.append(Expression::CallResult(function), span);
        let call = Call {
            function,
            arguments: arguments.into_iter().collect(),
        };
        self.plan.loads.insert(value.index(), call);
        match lane {
            None => value,
            Some(Index::Fixed(index)) => {
                arena.append(Expression::AccessIndex { base: value, index }, span)
            }
            Some(Index::At(old)) => {
                let index = self.inside(lanes, old, span, arena);
                arena.append(Expression::Access { base: value, index }, span)
            }
        }
    }
}
