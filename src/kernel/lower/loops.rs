//! Loops that a driver ends before their time. Mesa's llvmpipe stops all loops of an invocation
//! after 65,535 rounds together (`LP_MAX_TGSI_LOOP_ITERATIONS`), as if they had been left, and says
//! nothing. A note that a loop was left by its own condition does not help: compilers know that
//! there is no other way out. So rounds are counted, and the entry point compares the count with
//! the driver's limit, which it finds in the table.

use naga::{
    Arena, BinaryOperator, Block, Expression, Function, GlobalVariable, Handle, Literal, Range,
    Span, Statement,
};

/// The bit of `bp_outside` that stands for too many rounds, and the operand that an error's code
/// then has.
pub const CUT_SHORT: u32 = 15;

/// Counts the rounds of every loop of a function in the global `rounds`.
pub(super) fn count(function: &mut Function, rounds: Handle<GlobalVariable>) {
    let mut body = std::mem::take(&mut function.body);
    in_block(&mut function.expressions, &mut body, rounds);
    function.body = body;
}

fn in_block(arena: &mut Arena<Expression>, block: &mut Block, rounds: Handle<GlobalVariable>) {
    for statement in block.iter_mut() {
        match statement {
            Statement::Block(inner) => in_block(arena, inner, rounds),
            Statement::If { accept, reject, .. } => {
                in_block(arena, accept, rounds);
                in_block(arena, reject, rounds);
            }
            Statement::Switch { cases, .. } => {
                let cases = cases.iter_mut();
                cases.for_each(|case| in_block(arena, &mut case.body, rounds));
            }
            Statement::Loop {
                body, continuing, ..
            } => {
                in_block(arena, body, rounds);
                in_block(arena, continuing, rounds);
                let mut counted = one_more(arena, rounds);
                counted.extend_block(std::mem::take(body));
                *body = counted;
            }
            _ => {}
        }
    }
}

/// `rounds = rounds + 1`
fn one_more(arena: &mut Arena<Expression>, rounds: Handle<GlobalVariable>) -> Block {
    let mut append = |expression| arena.append(expression, Span::UNDEFINED);
    let pointer = append(Expression::GlobalVariable(rounds));
    let right = append(Expression::Literal(Literal::U32(1)));
    let left = append(Expression::Load { pointer });
    let op = BinaryOperator::Add;
    let value = append(Expression::Binary { op, left, right });
    let mut block = Block::new();
    let emitted = Range::new_from_bounds(left, value);
    block.push(Statement::Emit(emitted), Span::UNDEFINED);
    block.push(Statement::Store { pointer, value }, Span::UNDEFINED);
    block
}
