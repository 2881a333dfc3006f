//! Statements: control flow, stores and calls. Functions are inlined where they are called (WGSL
//! has no recursion), so a pointer argument is simply the caller's place.

use cranelift_codegen::ir::InstBuilder;
use cranelift_frontend::Switch;
use naga::{Block, Expression, Function, Handle, Statement, SwitchCase, SwitchValue};

use super::Translator;
use super::frame::{Bound, Frame, Target};
use super::types::Ty;
use super::value::Val;

/// Whether control goes on after a statement.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Flow {
    Falls,
    Ends,
}

impl<'a> Translator<'a, '_> {
    pub(super) fn block(
        &mut self,
        frame: &mut Frame<'a>,
        block: &'a Block,
    ) -> Result<Flow, String> {
        for statement in block {
            if self.statement(frame, statement)? == Flow::Ends {
                return Ok(Flow::Ends);
            }
        }
        Ok(Flow::Falls)
    }

    fn statement(
        &mut self,
        frame: &mut Frame<'a>,
        statement: &'a Statement,
    ) -> Result<Flow, String> {
        match statement {
            Statement::Emit(range) => {
                for handle in range.clone() {
                    let bound = self.evaluate(frame, handle)?;
                    frame.bound[handle.index()] = Some(bound);
                }
            }
            Statement::Block(inner) => return self.block(frame, inner),
            Statement::If {
                condition,
                accept,
                reject,
            } => {
                return self.branch(frame, *condition, accept, reject);
            }
            Statement::Switch { selector, cases } => return self.switch(frame, *selector, cases),
            Statement::Loop {
                body,
                continuing,
                break_if,
            } => {
                return self.repeat(frame, body, continuing, *break_if);
            }
            Statement::Break | Statement::Continue | Statement::Return { .. } => {
                return self.leave(frame, statement);
            }
            Statement::Store { pointer, value } => {
                let value = self.value(frame, *value)?;
                let place = self.place(frame, *pointer)?;
                self.store(&place, &value)?;
            }
            Statement::Call {
                function,
                arguments,
                result,
            } => {
                let callee = &self.module.functions[*function];
                let value = self.call(frame, callee, arguments)?;
                if let Some(result) = result {
                    frame.bound[result.index()] = value.map(Bound::Value);
                }
            }
            other => return Err(format!("statement {other:?}")),
        }
        Ok(Flow::Falls)
    }

    /// Statements after which control is elsewhere.
    fn leave(&mut self, frame: &mut Frame<'a>, statement: &'a Statement) -> Result<Flow, String> {
        match statement {
            Statement::Break => {
                let target = frame.targets.last_mut().ok_or("break outside a loop")?;
                target.exit_used = true;
                self.b.ins().jump(target.exit, &[]);
            }
            Statement::Continue => {
                let mut targets = frame.targets.iter_mut().rev();
                let target = targets.find(|target| target.again.is_some());
                let target = target.ok_or("continue outside a loop")?;
                target.again_used = true;
                let again = target.again.expect("a loop");
                self.b.ins().jump(again, &[]);
            }
            Statement::Return { value } => {
                if let Some(value) = value {
                    let value = self.value(frame, *value)?;
                    for (variable, leaf) in frame.returned.iter().zip(value.leaves) {
                        self.b.def_var(*variable, leaf);
                    }
                }
                self.b.ins().jump(frame.return_to, &[]);
            }
            other => return Err(format!("statement {other:?}")),
        }
        Ok(Flow::Ends)
    }

    fn branch(
        &mut self,
        frame: &mut Frame<'a>,
        condition: Handle<Expression>,
        accept: &'a Block,
        reject: &'a Block,
    ) -> Result<Flow, String> {
        let condition = self.value(frame, condition)?.leaf();
        let (then, otherwise) = (self.b.create_block(), self.b.create_block());
        let after = self.b.create_block();
        self.b.ins().brif(condition, then, &[], otherwise, &[]);
        let mut falls = false;
        for (start, body) in [(then, accept), (otherwise, reject)] {
            self.b.switch_to_block(start);
            if self.block(frame, body)? == Flow::Falls {
                self.b.ins().jump(after, &[]);
                falls = true;
            }
        }
        Ok(self.join(after, falls))
    }

    /// Goes on at `after`, if anything jumps there.
    fn join(&mut self, after: cranelift_codegen::ir::Block, reached: bool) -> Flow {
        if reached {
            self.b.switch_to_block(after);
            Flow::Falls
        } else {
            Flow::Ends
        }
    }

    fn repeat(
        &mut self,
        frame: &mut Frame<'a>,
        body: &'a Block,
        continuing: &'a Block,
        break_if: Option<Handle<Expression>>,
    ) -> Result<Flow, String> {
        let (start, again) = (self.b.create_block(), self.b.create_block());
        let exit = self.b.create_block();
        self.b.ins().jump(start, &[]);
        self.b.switch_to_block(start);
        frame.targets.push(Target {
            exit,
            again: Some(again),
            exit_used: false,
            again_used: false,
        });
        let falls = self.block(frame, body)? == Flow::Falls;
        if falls {
            self.b.ins().jump(again, &[]);
        }
        let again_used = frame.targets.last().expect("pushed above").again_used;
        if falls || again_used {
            self.b.switch_to_block(again);
            if self.block(frame, continuing)? == Flow::Ends {
                return Err("a continuing block that leaves the loop".into());
            }
            match break_if {
                Some(condition) => {
                    let condition = self.value(frame, condition)?.leaf();
                    self.b.ins().brif(condition, exit, &[], start, &[]);
                    frame.targets.last_mut().expect("pushed above").exit_used = true;
                }
                None => {
                    self.b.ins().jump(start, &[]);
                }
            }
        }
        let target = frame.targets.pop().expect("pushed above");
        Ok(self.join(exit, target.exit_used))
    }

    fn switch(
        &mut self,
        frame: &mut Frame<'a>,
        selector: Handle<Expression>,
        cases: &'a [SwitchCase],
    ) -> Result<Flow, String> {
        let selector = self.value(frame, selector)?.leaf();
        let exit = self.b.create_block();
        let bodies: Vec<_> = cases.iter().map(|_| self.b.create_block()).collect();
        let mut table = Switch::new();
        let mut otherwise = exit;
        for (case, body) in cases.iter().zip(&bodies) {
            match case.value {
                SwitchValue::I32(value) => table.set_entry(u128::from(value as u32), *body),
                SwitchValue::U32(value) => table.set_entry(u128::from(value), *body),
                SwitchValue::Default => otherwise = *body,
            }
        }
        table.emit(&mut self.b, selector, otherwise);
        frame.targets.push(Target {
            exit,
            again: None,
            exit_used: false,
            again_used: false,
        });
        let mut falls = otherwise == exit;
        for (place, case) in cases.iter().enumerate() {
            self.b.switch_to_block(bodies[place]);
            if self.block(frame, &case.body)? == Flow::Falls {
                let next = bodies.get(place + 1).filter(|_| case.fall_through);
                falls |= next.is_none();
                self.b.ins().jump(next.copied().unwrap_or(exit), &[]);
            }
        }
        let target = frame.targets.pop().expect("pushed above");
        Ok(self.join(exit, falls || target.exit_used))
    }

    fn call(
        &mut self,
        frame: &Frame<'a>,
        callee: &'a Function,
        arguments: &[Handle<Expression>],
    ) -> Result<Option<Val>, String> {
        let arguments: Result<Vec<Bound>, String> = arguments
            .iter()
            .map(|&argument| self.bound(frame, argument))
            .collect();
        let after = self.b.create_block();
        let mut inner = self.open(callee, arguments?, after)?;
        if self.block(&mut inner, &callee.body)? == Flow::Falls {
            self.b.ins().jump(after, &[]);
        }
        self.b.switch_to_block(after);
        let Some(result) = &callee.result else {
            return Ok(None);
        };
        let ty = Ty::of(self.module, result.ty)?;
        let leaves = inner
            .returned
            .iter()
            .map(|variable| self.b.use_var(*variable))
            .collect();
        Ok(Some(Val { ty, leaves }))
    }
}
