//! Puts the calls into the statements.

use naga::{Arena, Block, Expression, Range, Span, Statement};

use super::access::Plan;

/// Puts the calls where the loads and stores were.
pub(super) fn split(plan: &Plan, arena: &Arena<Expression>, block: &mut Block) {
    let old = std::mem::take(block);
    for (mut statement, span) in old.span_into_iter() {
        match &mut statement {
            Statement::Emit(range) => {
                split_emit(plan, arena, range.clone(), span, block);
                continue;
            }
            Statement::Store { pointer, value } => {
                if let Some(call) = plan.pointers.get(&pointer.index()) {
                    let mut arguments = call.arguments.clone();
                    arguments.push(*value);
                    let function = call.function;
                    let store = Statement::Call {
                        function,
                        arguments,
                        result: None,
                    };
                    block.push(store, span);
                    continue;
                }
            }
            Statement::Block(inner) => split(plan, arena, inner),
            Statement::If { accept, reject, .. } => {
                split(plan, arena, accept);
                split(plan, arena, reject);
            }
            Statement::Switch { cases, .. } => {
                cases
                    .iter_mut()
                    .for_each(|case| split(plan, arena, &mut case.body));
            }
            Statement::Loop {
                body, continuing, ..
            } => {
                split(plan, arena, body);
                split(plan, arena, continuing);
            }
            _ => {}
        }
        block.push(statement, span);
    }
}

fn split_emit(
    plan: &Plan,
    arena: &Arena<Expression>,
    range: Range<Expression>,
    span: Span,
    block: &mut Block,
) {
    let all = range.index_range();
    let mut start = all.start;
    for at in all.clone().chain([all.end]) {
        let load = plan.loads.get(&(at as usize));
        if at < all.end && load.is_none() && !plan.pointers.contains_key(&(at as usize)) {
            continue;
        }
        if start < at {
            block.push(
                Statement::Emit(Range::from_index_range(start..at, arena)),
                span,
            );
        }
        start = at + 1;
        if at < all.end
            && let Some(load) = load
        {
            let result = Range::from_index_range(at..at + 1, arena).next();
            let (function, arguments) = (load.function, load.arguments.clone());
            block.push(
                Statement::Call {
                    function,
                    arguments,
                    result,
                },
                span,
            );
        }
    }
}
