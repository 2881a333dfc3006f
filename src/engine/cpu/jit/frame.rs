//! One function being translated: its locals, arguments, and what its expressions stand for.

use cranelift_codegen::ir::types::I64;
use cranelift_codegen::ir::{Block, InstBuilder, StackSlotData, StackSlotKind};
use cranelift_frontend::Variable;
use naga::{Expression, Function, Handle, Statement};

use super::Translator;
use super::place::Place;
use super::types::Ty;
use super::value::Val;

/// What an expression stands for.
#[derive(Clone, Debug)]
pub(super) enum Bound {
    Value(Val),
    Place(Place),
}

/// Where `break` and `continue` go.
pub(super) struct Target {
    pub exit: Block,
    /// `None` in a switch.
    pub again: Option<Block>,
    pub exit_used: bool,
    pub again_used: bool,
}

pub(super) struct Frame<'a> {
    pub function: &'a Function,
    pub bound: Vec<Option<Bound>>,
    pub locals: Vec<Place>,
    pub arguments: Vec<Bound>,
    pub targets: Vec<Target>,
    /// Where `return` goes, and what it leaves behind.
    pub return_to: Block,
    pub returned: Vec<Variable>,
}

/// Leaves of a local held in registers at most.
const MAX_REGISTER_LEAVES: usize = 32;
/// Bytes of stack slots of one kernel at most.
const MAX_SLOT_BYTES: u32 = 256 * 1024;

impl<'a> Translator<'a, '_> {
    /// Opens a function: its locals are declared and hold their initial values.
    pub(super) fn open(
        &mut self,
        function: &'a Function,
        arguments: Vec<Bound>,
        return_to: Block,
    ) -> Result<Frame<'a>, String> {
        let mut frame = Frame {
            function,
            bound: vec![None; function.expressions.len()],
            locals: Vec::new(),
            arguments,
            targets: Vec::new(),
            return_to,
            returned: Vec::new(),
        };
        if let Some(result) = &function.result {
            let leaves = Ty::of(self.module, result.ty)?.leaves();
            frame.returned = leaves
                .iter()
                .map(|leaf| self.b.declare_var(leaf.machine()))
                .collect();
        }
        let in_memory = indexed_at_run_time(function);
        for (handle, local) in function.local_variables.iter() {
            let ty = Ty::of(self.module, local.ty)?;
            let indexed = in_memory[handle.index()] && ty.has_array();
            let place = if indexed || ty.leaf_count() > MAX_REGISTER_LEAVES {
                self.stack_slot(&ty)?
            } else {
                let leaves = ty.leaves();
                let variables: Vec<Variable> = leaves
                    .iter()
                    .map(|leaf| self.b.declare_var(leaf.machine()))
                    .collect();
                Place::Variables {
                    variables: variables.into(),
                    first: 0,
                    ty,
                }
            };
            frame.locals.push(place);
        }
        for (handle, local) in function.local_variables.iter() {
            let place = frame.locals[handle.index()].clone();
            let value = match local.init {
                Some(init) => self.value(&frame, init)?,
                None => {
                    let ty = self.place_type(&place)?;
                    self.spend(ty.leaf_count())?;
                    self.zero(&ty)
                }
            };
            self.store(&place, &value)?;
        }
        Ok(frame)
    }

    /// New stack memory for a value of `ty`.
    pub(super) fn stack_slot(&mut self, ty: &Ty) -> Result<Place, String> {
        self.slot_bytes += ty.slot_bytes();
        if self.slot_bytes > MAX_SLOT_BYTES {
            return Err(format!("more than {MAX_SLOT_BYTES} bytes of local arrays"));
        }
        let data = StackSlotData::new(StackSlotKind::ExplicitSlot, ty.slot_bytes(), 4);
        let slot = self.b.create_sized_stack_slot(data);
        let address = self.b.ins().stack_addr(I64, slot, 0);
        Ok(Place::Slot {
            address,
            offset: 0,
            ty: ty.clone(),
        })
    }
}

/// For each local: whether some expression indexes into it at run time, or hands out its address.
fn indexed_at_run_time(function: &Function) -> Vec<bool> {
    let mut found = vec![false; function.local_variables.len()];
    let mut mark = |mut at: Handle<Expression>| loop {
        match function.expressions[at] {
            Expression::Access { base, .. } | Expression::AccessIndex { base, .. } => at = base,
            Expression::LocalVariable(local) => {
                found[local.index()] = true;
                return;
            }
            _ => return,
        }
    };
    for (_, expression) in function.expressions.iter() {
        if let Expression::Access { base, .. } = *expression {
            mark(base);
        }
    }
    let mut blocks = vec![&function.body];
    while let Some(block) = blocks.pop() {
        for statement in block {
            match statement {
                Statement::Call { arguments, .. } => arguments.iter().copied().for_each(&mut mark),
                Statement::Block(inner) => blocks.push(inner),
                Statement::If { accept, reject, .. } => blocks.extend([accept, reject]),
                Statement::Switch { cases, .. } => {
                    blocks.extend(cases.iter().map(|case| &case.body));
                }
                Statement::Loop {
                    body, continuing, ..
                } => blocks.extend([body, continuing]),
                _ => {}
            }
        }
    }
    found
}
