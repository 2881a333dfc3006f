//! From naga's IR to Cranelift's: one function for a kernel, which runs the invocations of a range
//! of workgroups one after the other.
//!
//! The kernels of today never wait for each other, so an invocation is a plain loop iteration and
//! all its values live in registers. A kernel with barriers or atomics will become a resumable
//! function: the body is cut at each such statement, values that live across a cut go to a frame
//! of the invocation, and `fn(frame, resume_point) -> resume_point` is driven by a scheduler that
//! chooses the next invocation. What is here stays: [`Translator`] translates the pieces, only the
//! driving loop in this file and the homes of locals (`Place::Slot` in the frame) change.

mod arithmetic;
mod expression;
mod frame;
mod place;
mod statement;
mod types;
mod value;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I32, I64};
use cranelift_codegen::ir::{AbiParam, Block, InstBuilder, MemFlagsData, Signature, Value};
use cranelift_frontend::{FunctionBuilder, Variable};
use naga::{Binding, BuiltIn, TypeInner};

use crate::kernel::Kernel;
use frame::Bound;
use place::OperandValues;
use statement::Flow;
use types::{Kind, Ty};
use value::{Val, vector_of};

/// What went out of its range, for the error record: code `n` of the record is place `n - 1`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The operand of this number.
    Operand(usize),
    /// A local array or vector.
    Local,
}

/// One operand of one instance, as the compiled function reads it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct OperandSlot {
    /// Address of the instance's first word.
    pub first: usize,
    pub extent: u32,
    pub reserved: u32,
}

/// Which workgroups to run, numbered x fastest, and the grid they belong to.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    pub begin: u32,
    pub end: u32,
    pub grid: [u32; 3],
}

/// Adds the four pointers (slots, params, work, error) to a signature.
pub(super) fn declare(signature: &mut Signature) {
    for _ in 0..4 {
        signature.params.push(AbiParam::new(I64));
    }
}

/// Expressions translated for one kernel at most, after inlining: a bound on compile time.
const MAX_EXPRESSIONS: usize = 400_000;

pub(super) struct Translator<'a, 'b> {
    b: FunctionBuilder<'b>,
    module: &'a naga::Module,
    operands: Vec<OperandValues>,
    /// Address of the first operand's slot, and of the params.
    slots: Value,
    params_at: Value,
    params: Vec<Kind>,
    faults: Vec<(Fault, Block)>,
    slot_bytes: u32,
    spent: usize,
}

/// Translates the kernel; the faults are what its error codes stand for.
pub(super) fn translate(
    kernel: &Kernel,
    b: FunctionBuilder,
    config: cranelift_codegen::isa::TargetFrontendConfig,
) -> Result<Vec<Fault>, String> {
    let mut translator = Translator {
        b,
        module: &kernel.module,
        operands: Vec::new(),
        slots: Value::from_u32(0),
        params_at: Value::from_u32(0),
        params: Vec::new(),
        faults: Vec::new(),
        slot_bytes: 0,
        spent: 0,
    };
    translator.kernel(kernel)?;
    let faults = translator
        .faults
        .iter()
        .map(|(fault, _)| fault.clone())
        .collect();
    translator.b.seal_all_blocks();
    translator.b.finalize(config);
    Ok(faults)
}

fn flags() -> MemFlagsData {
    MemFlagsData::trusted()
}

/// The ids of the invocation being run.
struct Ids {
    workgroup: [Value; 3],
    grid: [Value; 3],
    local_index: Value,
}

impl<'a> Translator<'a, '_> {
    fn kernel(&mut self, kernel: &'a Kernel) -> Result<(), String> {
        let entry = self.b.create_block();
        self.b.append_block_params_for_function_params(entry);
        self.b.switch_to_block(entry);
        let pointers = self.b.block_params(entry).to_vec();
        let [slots, params, work, error] = pointers[..] else {
            return Err("not the kernel signature".into());
        };
        (self.slots, self.params_at) = (slots, params);
        self.read_operands()?;
        self.read_params()?;
        let word = |this: &mut Self, at: i32| this.b.ins().load(I32, flags(), work, at);
        let (begin, end) = (word(self, 0), word(self, 4));
        let grid = [word(self, 8), word(self, 12), word(self, 16)];

        let current = self.b.declare_var(I32);
        self.b.def_var(current, begin);
        let (head, body) = (self.b.create_block(), self.b.create_block());
        let done = self.b.create_block();
        self.b.ins().jump(head, &[]);
        self.b.switch_to_block(head);
        let group = self.b.use_var(current);
        let more = self.b.ins().icmp(IntCC::UnsignedLessThan, group, end);
        self.b.ins().brif(more, body, &[], done, &[]);

        self.b.switch_to_block(body);
        self.workgroup(kernel, group, grid)?;
        let next = self.b.ins().iadd_imm_u(group, 1);
        self.b.def_var(current, next);
        self.b.ins().jump(head, &[]);

        self.b.switch_to_block(done);
        self.b.ins().return_(&[]);
        for (place, (_, cold)) in self.faults.iter().enumerate() {
            self.b.switch_to_block(*cold);
            let code = self.b.ins().iconst(I32, place as i64 + 1);
            self.b.ins().store(flags(), code, error, 0);
            self.b.ins().return_(&[]);
        }
        Ok(())
    }

    fn read_operands(&mut self) -> Result<(), String> {
        let size = std::mem::size_of::<OperandSlot>() as i32;
        let mut operands: Vec<(u32, Ty)> = Vec::new();
        for (_, variable) in self.module.global_variables.iter() {
            let TypeInner::Array { base, .. } = self.module.types[variable.ty].inner else {
                continue;
            };
            let binding = variable.binding.ok_or("an operand without a binding")?;
            operands.push((binding.binding, Ty::of(self.module, base)?));
        }
        operands.sort_by_key(|(binding, _)| *binding);
        for (binding, element) in operands {
            self.operands.push(OperandValues {
                slot: binding as i32 * size,
                element,
            });
        }
        Ok(())
    }

    fn read_params(&mut self) -> Result<(), String> {
        for (_, variable) in self.module.global_variables.iter() {
            let TypeInner::Struct { members, .. } = &self.module.types[variable.ty].inner else {
                continue;
            };
            for member in members {
                let Ty::Scalar(kind) = Ty::of(self.module, member.ty)? else {
                    return Err("a params member that is not one word".into());
                };
                self.params.push(kind);
            }
        }
        Ok(())
    }

    /// The loop over the invocations of one workgroup.
    fn workgroup(
        &mut self,
        kernel: &'a Kernel,
        group: Value,
        grid: [Value; 3],
    ) -> Result<(), String> {
        let plane = self.b.ins().imul(grid[0], grid[1]);
        let z = self.b.ins().udiv(group, plane);
        let in_plane = self.b.ins().urem(group, plane);
        let y = self.b.ins().udiv(in_plane, grid[0]);
        let x = self.b.ins().urem(in_plane, grid[0]);

        let local: Variable = self.b.declare_var(I32);
        let zero = self.b.ins().iconst(I32, 0);
        self.b.def_var(local, zero);
        let (head, body) = (self.b.create_block(), self.b.create_block());
        let (next, done) = (self.b.create_block(), self.b.create_block());
        self.b.ins().jump(head, &[]);
        self.b.switch_to_block(head);
        let local_index = self.b.use_var(local);
        let size = i64::from(kernel.workgroup.iter().product::<u32>());
        let more = self
            .b
            .ins()
            .icmp_imm_u(IntCC::UnsignedLessThan, local_index, size);
        self.b.ins().brif(more, body, &[], done, &[]);

        self.b.switch_to_block(body);
        let ids = Ids {
            workgroup: [x, y, z],
            grid,
            local_index,
        };
        self.invocation(kernel, &ids, next)?;

        self.b.switch_to_block(next);
        let following = self.b.ins().iadd_imm_u(local_index, 1);
        self.b.def_var(local, following);
        self.b.ins().jump(head, &[]);
        self.b.switch_to_block(done);
        Ok(())
    }

    fn invocation(&mut self, kernel: &'a Kernel, ids: &Ids, next: Block) -> Result<(), String> {
        let function = &kernel.module.entry_points[0].function;
        let mut arguments = Vec::new();
        for argument in &function.arguments {
            let ty = Ty::of(self.module, argument.ty)?;
            let leaves = match &argument.binding {
                Some(binding) => vec![self.built_in(kernel, ids, binding)?],
                None => self.built_in_members(kernel, ids, argument.ty)?,
            };
            arguments.push(Bound::Value(Val { ty, leaves }));
        }
        let mut frame = self.open(function, arguments, next)?;
        if self.block(&mut frame, &function.body)? == Flow::Falls {
            self.b.ins().jump(next, &[]);
        }
        Ok(())
    }

    fn built_in_members(
        &mut self,
        kernel: &Kernel,
        ids: &Ids,
        ty: naga::Handle<naga::Type>,
    ) -> Result<Vec<Value>, String> {
        let TypeInner::Struct { members, .. } = &self.module.types[ty].inner else {
            return Err("an argument of main without a binding".into());
        };
        let bindings = members.iter().map(|member| member.binding.as_ref());
        bindings
            .map(|binding| self.built_in(kernel, ids, binding.ok_or("a member without a binding")?))
            .collect()
    }

    fn built_in(&mut self, kernel: &Kernel, ids: &Ids, binding: &Binding) -> Result<Value, String> {
        let Binding::BuiltIn(built_in) = binding else {
            return Err(format!("argument {binding:?}"));
        };
        let size = kernel.workgroup;
        let lanes = match built_in {
            BuiltIn::LocalInvocationIndex => return Ok(ids.local_index),
            BuiltIn::WorkGroupId => ids.workgroup,
            BuiltIn::NumWorkGroups => ids.grid,
            BuiltIn::LocalInvocationId => self.local_id(ids, size),
            BuiltIn::GlobalInvocationId => {
                let local = self.local_id(ids, size);
                std::array::from_fn(|axis| {
                    let first = self
                        .b
                        .ins()
                        .imul_imm_u(ids.workgroup[axis], i64::from(size[axis]));
                    self.b.ins().iadd(first, local[axis])
                })
            }
            other => return Err(format!("builtin {other:?}")),
        };
        Ok(vector_of(&mut self.b, Kind::U32, &lanes))
    }

    fn local_id(&mut self, ids: &Ids, size: [u32; 3]) -> [Value; 3] {
        let zero = self.b.ins().iconst(I32, 0);
        if size[1] == 1 && size[2] == 1 {
            return [ids.local_index, zero, zero];
        }
        let plane = self.b.ins().iconst(I32, i64::from(size[0] * size[1]));
        let row = self.b.ins().iconst(I32, i64::from(size[0]));
        let z = self.b.ins().udiv(ids.local_index, plane);
        let in_plane = self.b.ins().urem(ids.local_index, plane);
        let y = self.b.ins().udiv(in_plane, row);
        let x = self.b.ins().urem(in_plane, row);
        [x, y, z]
    }

    /// Goes on in a new block if `inside` holds, else to `cold`.
    fn branch_unless(&mut self, inside: Value, cold: Block) {
        let go_on = self.b.create_block();
        self.b.ins().brif(inside, go_on, &[], cold, &[]);
        self.b.switch_to_block(go_on);
    }

    fn operand_fault(&mut self, operand: usize) -> Block {
        self.fault(Fault::Operand(operand))
    }

    fn local_fault(&mut self) -> Block {
        self.fault(Fault::Local)
    }

    /// The cold block that records `fault`, one for each kind of fault.
    fn fault(&mut self, fault: Fault) -> Block {
        if let Some((_, block)) = self.faults.iter().find(|(known, _)| *known == fault) {
            return *block;
        }
        let block = self.b.create_block();
        self.b.set_cold_block(block);
        self.faults.push((fault, block));
        block
    }

    fn spend(&mut self, expressions: usize) -> Result<(), String> {
        self.spent += expressions;
        if self.spent > MAX_EXPRESSIONS {
            return Err(format!(
                "more than {MAX_EXPRESSIONS} expressions after inlining"
            ));
        }
        Ok(())
    }
}
