//! Copies a function's expressions into a new arena, so that a pass can put expressions before
//! others: naga wants operands before their users, and what one `Emit` covers side by side.

use naga::{Arena, Block, Expression, Function, Handle, Range, Span, Statement};

/// Where the old expressions went.
pub(crate) struct Moved {
    /// Place in the new arena, for each old one.
    to: Vec<Handle<Expression>>,
    /// Expressions of the new arena that were added for each old one, itself included.
    covered: Vec<std::ops::Range<u32>>,
}

impl Moved {
    pub fn get(&self, old: Handle<Expression>) -> Handle<Expression> {
        self.to[old.index()]
    }
}

/// Rebuilds the expressions and the body of `function`.
///
/// `preamble` adds what is evaluated before the function begins (literals). `rewrite` gets each
/// old handle with its expression, whose operands are already new, and appends it, alone or with
/// helpers; all of them are covered by the `Emit` that covered the old one.
pub(crate) fn rebuild<P>(
    function: &mut Function,
    preamble: impl FnOnce(&mut Arena<Expression>) -> P,
    mut rewrite: impl FnMut(
        &P,
        Handle<Expression>,
        Expression,
        Span,
        &mut Arena<Expression>,
    ) -> Handle<Expression>,
) -> P {
    let mut arena = Arena::new();
    let context = preamble(&mut arena);
    let mut moved = Moved {
        to: Vec::new(),
        covered: Vec::new(),
    };
    let old = std::mem::take(&mut function.expressions);
    for (handle, expression) in old.iter() {
        let first = arena.len() as u32;
        let mut expression = expression.clone();
        map_operands(&mut expression, &|operand| moved.get(operand));
        let new = rewrite(
            &context,
            handle,
            expression,
            old.get_span(handle),
            &mut arena,
        );
        moved.to.push(new);
        moved.covered.push(first..arena.len() as u32);
    }
    map_block(&mut function.body, &moved, &arena);
    for (_, local) in function.local_variables.iter_mut() {
        local.init = local.init.map(|init| moved.get(init));
    }
    let names = std::mem::take(&mut function.named_expressions);
    function.named_expressions = names
        .into_iter()
        .map(|(handle, name)| (moved.get(handle), name))
        .collect();
    function.expressions = arena;
    context
}

/// Replaces the operands of an expression of the supported kinds.
fn map_operands(
    expression: &mut Expression,
    map: &dyn Fn(Handle<Expression>) -> Handle<Expression>,
) {
    let each = |handle: &mut Handle<Expression>| *handle = map(*handle);
    match expression {
        Expression::Literal(_)
        | Expression::Constant(_)
        | Expression::ZeroValue(_)
        | Expression::FunctionArgument(_)
        | Expression::GlobalVariable(_)
        | Expression::LocalVariable(_)
        | Expression::CallResult(_)
        | Expression::AtomicResult { .. } => {}
        Expression::Compose { components, .. } => components.iter_mut().for_each(each),
        Expression::Access { base, index } => {
            each(base);
            each(index);
        }
        Expression::AccessIndex { base, .. } => each(base),
        Expression::Splat { value, .. } => each(value),
        Expression::Swizzle { vector, .. } => each(vector),
        Expression::Load { pointer } => each(pointer),
        Expression::Unary { expr, .. } | Expression::As { expr, .. } => each(expr),
        Expression::Binary { left, right, .. } => {
            each(left);
            each(right);
        }
        Expression::Select {
            condition,
            accept,
            reject,
        } => {
            each(condition);
            each(accept);
            each(reject);
        }
        Expression::Relational { argument, .. } => each(argument),
        Expression::Math {
            arg,
            arg1,
            arg2,
            arg3,
            ..
        } => {
            each(arg);
            [arg1, arg2, arg3].into_iter().flatten().for_each(each);
        }
        other => unreachable!("the support check lets no {other:?} through"),
    }
}

fn map_block(block: &mut Block, moved: &Moved, arena: &Arena<Expression>) {
    for statement in block.iter_mut() {
        map_statement(statement, moved, arena);
    }
}

fn map_statement(statement: &mut Statement, moved: &Moved, arena: &Arena<Expression>) {
    let each = |handle: &mut Handle<Expression>| *handle = moved.get(*handle);
    match statement {
        Statement::Emit(range) => {
            if let Some((first, last)) = range.first_and_last() {
                let start = moved.covered[first.index()].start;
                let end = moved.covered[last.index()].end;
                *range = Range::from_index_range(start..end, arena);
            }
        }
        Statement::Block(inner) => map_block(inner, moved, arena),
        Statement::If {
            condition,
            accept,
            reject,
        } => {
            each(condition);
            map_block(accept, moved, arena);
            map_block(reject, moved, arena);
        }
        Statement::Switch { selector, cases } => {
            each(selector);
            cases
                .iter_mut()
                .for_each(|case| map_block(&mut case.body, moved, arena));
        }
        Statement::Loop {
            body,
            continuing,
            break_if,
        } => {
            map_block(body, moved, arena);
            map_block(continuing, moved, arena);
            break_if.iter_mut().for_each(each);
        }
        Statement::Break | Statement::Continue => {}
        Statement::Return { value } => value.iter_mut().for_each(each),
        Statement::Store { pointer, value } => {
            each(pointer);
            each(value);
        }
        Statement::Atomic {
            pointer,
            value,
            result,
            ..
        } => {
            each(pointer);
            each(value);
            result.iter_mut().for_each(each);
        }
        Statement::Call {
            arguments, result, ..
        } => {
            arguments.iter_mut().chain(result.iter_mut()).for_each(each);
        }
        other => unreachable!("the support check lets no {other:?} through"),
    }
}
