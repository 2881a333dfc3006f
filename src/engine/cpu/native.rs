//! Native code: the one place that owns compiled functions and calls them.

use cranelift_codegen::ir::types::I64;
use cranelift_codegen::settings::{self, Configurable};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};
use cranelift_jit::{JITBuilder, JITModule};
use cranelift_module::{Module, ModuleError, default_libcall_names};

use super::jit::{self, Fault, OperandSlot, Work};
use crate::kernel::Kernel;

type Entry = unsafe extern "C" fn(*const OperandSlot, *const u32, *const Work, *mut u32);

/// Owns the executable memory. Dropped after every [`Compiled`] of the engine that holds both.
pub(super) struct NativeCode {
    /// `None` only while being dropped.
    module: Option<JITModule>,
    context: FunctionBuilderContext,
}

/// One compiled kernel.
pub(super) struct Compiled {
    entry: Entry,
    pub faults: Vec<Fault>,
}

/// Why a kernel was not compiled.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// No memory for its code.
    Memory(String),
    /// What the kernel does that is not supported.
    Code(String),
}

impl From<ModuleError> for Refusal {
    fn from(error: ModuleError) -> Refusal {
        match error {
            ModuleError::Allocation { err } => Refusal::Memory(err.to_string()),
            error => Refusal::Code(error.to_string()),
        }
    }
}

impl NativeCode {
    /// # Errors
    /// A machine that Cranelift has no code generator for.
    pub fn new() -> Result<NativeCode, String> {
        let mut flags = settings::builder();
        let verifier = if cfg!(any(test, debug_assertions)) {
            "true"
        } else {
            "false"
        };
        // Cranelift's optimiser recomputes what a kernel hoisted inside its inner loops, and made
        // the matrix products a fifth slower; its code generator alone keeps the kernel's order.
        for (name, value) in [
            ("opt_level", "none"),
            ("enable_verifier", verifier),
            ("use_colocated_libcalls", "false"),
            ("is_pic", "false"),
        ] {
            flags.set(name, value).map_err(|error| error.to_string())?;
        }
        let target = cranelift_native::builder()?;
        let target = target
            .finish(settings::Flags::new(flags))
            .map_err(|e| e.to_string())?;
        if target.pointer_type() != I64 {
            return Err("the cpu engine needs 64-bit addresses".to_owned());
        }
        let builder = JITBuilder::with_isa(target, default_libcall_names());
        let module = Some(JITModule::new(builder));
        Ok(NativeCode {
            module,
            context: FunctionBuilderContext::new(),
        })
    }

    /// The instruction set that code is made for.
    pub fn target(&self) -> String {
        let module = self.module.as_ref().expect("not being dropped");
        module.isa().triple().to_string()
    }

    /// Compiles a kernel.
    ///
    /// # Errors
    /// What the kernel does that is not supported, and memory that cannot be had.
    pub fn compile(&mut self, kernel: &Kernel) -> Result<Compiled, Refusal> {
        let module = self.module.as_mut().expect("not being dropped");
        let mut context = module.make_context();
        jit::declare(&mut context.func.signature);
        let builder = FunctionBuilder::new(&mut context.func, &mut self.context);
        let translated = jit::translate(kernel, builder, module.target_config());
        let faults = match translated {
            Ok(faults) => faults,
            Err(reason) => {
                // A builder that was left half-way must not be used again.
                self.context = FunctionBuilderContext::new();
                return Err(Refusal::Code(reason));
            }
        };
        let function = module.declare_anonymous_function(&context.func.signature)?;
        module.define_function(function, &mut context)?;
        module.finalize_definitions()?;
        let address = module.get_finalized_function(function);
        // SAFETY: `address` is the start of a function that Cranelift has just made with exactly
        // this signature and the platform's C calling convention (`make_context` sets it).
        let entry = unsafe { std::mem::transmute::<*const u8, Entry>(address) };
        Ok(Compiled { entry, faults })
    }
}

impl Drop for NativeCode {
    fn drop(&mut self) {
        if let Some(module) = self.module.take() {
            // SAFETY: the pointers into this memory are the `entry` of `Compiled` values, which
            // `CpuEngine` declares before, and so drops before, its `NativeCode`. They are called
            // only within `CpuEngine::run`, which borrows the engine, so none is running now.
            unsafe { module.free_memory() }
        }
    }
}

impl Compiled {
    /// Runs workgroups `work.begin..work.end`. Returns the fault that stopped it, if any.
    ///
    /// # Safety
    /// There is one slot for each operand of the kernel, in binding order; `slot.first` is valid
    /// for reads and writes of `slot.extent` elements of the operand's type, aligned to 4, and no
    /// Rust reference to those words lives during the call. `params` holds the kernel's words.
    pub unsafe fn call(
        &self,
        slots: &[OperandSlot],
        params: &[u32],
        work: &Work,
    ) -> Option<&Fault> {
        let mut error = 0u32;
        // SAFETY: the code reads `slots`, `params` and `work` within the lengths that the caller
        // vouches for and writes `error`. It touches operand memory only at indices that it has
        // compared with `extent` (`Translator::element_address` is the only maker of such
        // addresses), stack slots only at indices compared with their length, and divides only
        // by divisors that it made non-zero or by grid sizes, non-zero where `begin < end`.
        unsafe { (self.entry)(slots.as_ptr(), params.as_ptr(), work, &mut error) };
        match error {
            0 => None,
            code => Some(&self.faults[code as usize - 1]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_cannot_be_had_is_told_from_code_that_cannot_be_made() {
        let err = std::io::Error::other("none left");
        let memory = Refusal::from(ModuleError::Allocation { err });
        assert_eq!(memory, Refusal::Memory("none left".to_owned()));
        let code = Refusal::from(ModuleError::Undeclared("f".to_owned()));
        assert!(matches!(code, Refusal::Code(reason) if reason.ends_with(": f")));
    }
}
