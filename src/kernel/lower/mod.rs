//! The kernel ABI of engines that bind whole arenas: many instances in one dispatch.
//!
//! Instances lie one after the other along z: instance = workgroup_id.z / grid.z. A table, bound
//! after the operands, holds a row for each instance:
//!
//! ```text
//! header  [grid z, 0.0, rounds, 0]
//! row     [grid x, y, z] [code] [offset, extent of each operand, in elements] [words of params]
//! ```
//!
//! Many dispatches share one table: an immediate says where the header stands in it. A flag
//! follows the table. Every access to an operand becomes a call of a small function that compares
//! the index with the extent; outside, a load yields element 0 of the operand's place (the buffer
//! must go on for one element behind its last arena) and a store does nothing, and in the end the
//! invocation notes code + operand in the flag, where the least one stays. A run-time index into a
//! vector or a local array is compared with its length in the same way, and 0 is taken where it is
//! outside: 14 stands for that, and 15 for as many rounds of loops as the header says, or more
//! (`loops`). Operand k stays binding k of its own type, whatever arena is bound there, always
//! read_write.

mod access;
mod exact;
mod loops;
mod split;
mod text;

use std::collections::BTreeMap;

use naga::valid::{Capabilities, ModuleInfo, ValidationFlags, Validator};
use naga::{Binding, BuiltIn, Expression, Function, GlobalVariable, Handle, Module};

use super::{Kernel, canonical};
use access::lower_function;
use exact::keep_exact;
pub use loops::CUT_SHORT;
use loops::count;
use text::text_with_helpers;

/// The bit of `bp_outside` that stands for an index outside a vector or a local array, and the
/// operand that an error's code then has.
pub const OUTSIDE_LOCAL: u32 = 14;

/// Words before the first row of a table.
pub const HEADER_WORDS: u32 = 4;

/// Words of the immediates: where the header stands in the table.
pub const IMMEDIATE_WORDS: u32 = 1;

/// A kernel with the ABI above; its entry point is `bp_entry`.
pub struct Lowered {
    pub module: Module,
    pub info: ModuleInfo,
    /// Words of one row of the table.
    pub row_words: u32,
    /// Every index is compared with the extent or length in the code; else who writes the code for
    /// a driver has to see to it.
    pub bounded: bool,
}

/// The built-in values that `bp_body` takes, in order.
const BODY_ARGUMENTS: [BuiltIn; 5] = [
    BuiltIn::GlobalInvocationId,
    BuiltIn::WorkGroupId,
    BuiltIn::LocalInvocationId,
    BuiltIn::LocalInvocationIndex,
    BuiltIn::NumWorkGroups,
];

/// Rewrites a kernel for the ABI.
///
/// # Errors
/// What the kernel does that the ABI has no form for.
pub fn lower(kernel: &Kernel) -> Result<Lowered, String> {
    let row_words = 4 + 2 * kernel.operands.len() as u32 + kernel.params_words;
    let text = text_with_helpers(kernel, row_words);
    let mut module = naga::front::wgsl::parse_str(&text).map_err(|e| e.emit_to_string(&text))?;
    let info = validate(&module)?;
    let main = module
        .entry_points
        .iter()
        .position(|entry| entry.name == "main");
    let main = main.ok_or("a kernel without main")?;
    let main_info = info.get_entry_point(main).clone();
    let main = module.entry_points.remove(main).function;
    let names: BTreeMap<String, Handle<Function>> = module
        .functions
        .iter()
        .filter_map(|(handle, function)| Some((function.name.clone()?, handle)))
        .collect();
    let body = names["bp_body"];
    become_body(&mut module.functions[body], main)?;
    let is_helper = |handle: Handle<Function>| {
        let mut known = names.iter().filter(|(_, known)| **known == handle);
        known.any(|(name, _)| is_helper(name))
    };
    let handles = module.functions.iter().map(|(handle, _)| handle);
    let own: Vec<Handle<Function>> = handles.filter(|handle| !is_helper(*handle)).collect();
    for handle in &own {
        let info = match *handle == body {
            true => &main_info,
            false => &info[*handle],
        };
        let mut function = std::mem::take(&mut module.functions[*handle]);
        lower_function(&module, &names, info, &mut function)?;
        module.functions[*handle] = function;
    }
    let info = validate(&module)?;
    let zero = global(&module, "bp_zero");
    for handle in &own {
        let mut function = std::mem::take(&mut module.functions[*handle]);
        keep_exact(&module, zero, &info[*handle], &mut function);
        module.functions[*handle] = function;
    }
    let rounds = global(&module, "bp_rounds");
    for handle in &own {
        count(&mut module.functions[*handle], rounds);
    }
    let info = validate(&module)?;
    let loads = names
        .iter()
        .filter(|(name, _)| name.starts_with("bp_load_"));
    let loads = loads.map(|(_, handle)| *handle).collect();
    canonical::canonicalise_nans(&mut module, &info, &loads);
    naga::compact::compact(&mut module, naga::compact::KeepUnused::No);
    let info = validate(&module)?;
    Ok(Lowered {
        module,
        info,
        row_words,
        bounded: true,
    })
}

/// A global of `text`.
fn global(module: &Module, name: &str) -> Handle<GlobalVariable> {
    let mut globals = module.global_variables.iter();
    let found = globals.find(|(_, global)| global.name.as_deref() == Some(name));
    found.expect("a global of the text around kernels").0
}

fn validate(module: &Module) -> Result<ModuleInfo, String> {
    Validator::new(ValidationFlags::all(), Capabilities::IMMEDIATES)
        .validate(module)
        .map_err(|error| error.emit_to_string("(lowered kernel)"))
}

fn is_helper(name: &str) -> bool {
    [
        "bp_load_",
        "bp_store_",
        "bp_lane_",
        "bp_param_",
        "bp_local_",
    ]
    .iter()
    .any(|start| name.starts_with(start))
}

/// Puts the code of `main` into `body`, which takes all built-in values.
fn become_body(body: &mut Function, main: Function) -> Result<(), String> {
    let mut places = Vec::new();
    for argument in &main.arguments {
        let Some(Binding::BuiltIn(built_in)) = argument.binding else {
            return Err("built-in values in a struct".to_owned());
        };
        let place = BODY_ARGUMENTS.iter().position(|known| *known == built_in);
        places.push(place.ok_or(format!("built-in value {built_in:?}"))? as u32);
    }
    let arguments = std::mem::take(&mut body.arguments);
    let name = body.name.take();
    *body = Function {
        arguments,
        name,
        ..main
    };
    for (_, expression) in body.expressions.iter_mut() {
        if let Expression::FunctionArgument(place) = expression {
            *place = places[*place as usize];
        }
    }
    Ok(())
}
