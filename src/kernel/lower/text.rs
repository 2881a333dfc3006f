//! The WGSL around a lowered kernel: the functions that accesses become, and the entry point.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use naga::proc::IndexableLength;
use naga::{AddressSpace, Module, ScalarKind, TypeInner};

use super::{CUT_SHORT, HEADER_WORDS, OUTSIDE_LOCAL};
use crate::kernel::Kernel;

/// The kernel's text with the functions that its accesses become, and the new entry point.
pub(super) fn text_with_helpers(kernel: &Kernel, row_words: u32) -> String {
    let table = kernel.operands.len();
    let flag = table + 1;
    let mut text = format!(
        "struct BpBatch {{ table: u32 }}\n\
         var<immediate> bp_batch: BpBatch;\n\
         @group(0) @binding({table}) var<storage, read_write> bp_table: array<u32>;\n\
         @group(0) @binding({flag}) var<storage, read_write> bp_flag: atomic<u32>;\n\
         var<private> bp_zero: f32;\n\
         var<private> bp_outside: u32;\n\
         var<private> bp_rounds: u32;\n"
    );
    for place in 0..kernel.operands.len() {
        operand_helpers(kernel, place, &mut text);
    }
    for length in lengths(&kernel.module) {
        let _ = writeln!(
            text,
            "fn bp_local_{length}(index: u32) -> u32 {{\n\
                 let inside = index < {length}u;\n\
                 bp_outside = bp_outside | select({}u, 0u, inside);\n\
                 return select(0u, index, inside);\n\
             }}",
            1u32 << OUTSIDE_LOCAL
        );
    }
    for (word, scalar) in params_types(&kernel.module).iter().enumerate() {
        let _ = writeln!(
            text,
            "var<private> bp_word_{word}: u32;\n\
             fn bp_param_{word}() -> {scalar} {{\n\
                 return bitcast<{scalar}>(bp_word_{word});\n\
             }}"
        );
    }
    text.push_str(&kernel.text);
    let row_text = row_text(kernel);
    let cut = 1u32 << CUT_SHORT;
    let [x, y, z] = kernel.workgroup;
    let _ = writeln!(
        text,
        "fn bp_body(gid: vec3<u32>, group: vec3<u32>, local: vec3<u32>, index: u32, \
             groups: vec3<u32>) {{}}\n\
         @compute @workgroup_size({x}, {y}, {z})\n\
         fn bp_entry(@builtin(workgroup_id) place: vec3<u32>,\n\
                     @builtin(local_invocation_id) local: vec3<u32>,\n\
                     @builtin(local_invocation_index) index: u32) {{\n\
             let depth = bp_table[bp_batch.table];\n\
             bp_zero = bitcast<f32>(bp_table[bp_batch.table + 1u]);\n\
             let instance = place.z / depth;\n\
             let row = bp_batch.table + {HEADER_WORDS}u + instance * {row_words}u;\n\
             {row_text}\n\
             let group = vec3<u32>(place.xy, place.z % depth);\n\
             let groups =\n\
                 vec3<u32>(bp_table[row], bp_table[row + 1u], bp_table[row + 2u]);\n\
             bp_body(group * vec3<u32>({x}u, {y}u, {z}u) + local, group, local, index, groups);\n\
             if bp_rounds >= bp_table[bp_batch.table + 2u] {{\n\
                 bp_outside = bp_outside | {cut}u;\n\
             }}\n\
             if bp_outside != 0u {{\n\
                 let operand = countTrailingZeros(bp_outside);\n\
                 atomicMin(&bp_flag, bp_table[row + 3u] + operand);\n\
             }}\n\
         }}"
    );
    text
}

/// Takes an instance's row out of the table, once: a compiler must otherwise believe that any store
/// to an operand may have changed it.
fn row_text(kernel: &Kernel) -> String {
    let mut text = String::new();
    let operands = (0..kernel.operands.len())
        .flat_map(|place| [format!("bp_offset_{place}"), format!("bp_extent_{place}")]);
    let params = (0..kernel.params_words).map(|word| format!("bp_word_{word}"));
    for (variable, at) in operands.chain(params).zip(4..) {
        let _ = write!(text, "{variable} = bp_table[row + {at}u]; ");
    }
    text
}

fn operand_helpers(kernel: &Kernel, place: usize, text: &mut String) {
    let name = &kernel.operands[place].name;
    let (scalar, lanes) = element_type(&kernel.module, place as u32);
    let element = if lanes == 1 {
        scalar.to_owned()
    } else {
        format!("vec{lanes}<{scalar}>")
    };
    // Loads have no branch: on processors a branch costs more than the load.
    let note = format!(
        "let inside = index < bp_extent_{place};\n\
         bp_outside = bp_outside | select({}u, 0u, inside);",
        1u32 << place
    );
    let at = format!("{name}[bp_offset_{place} + index]");
    let _ = write!(
        text,
        "var<private> bp_offset_{place}: u32;\n\
         var<private> bp_extent_{place}: u32;\n\
         fn bp_load_{place}(index: u32) -> {element} {{\n\
             {note}\n\
             return {name}[bp_offset_{place} + select(0u, index, inside)];\n\
         }}\n\
         fn bp_store_{place}(index: u32, value: {element}) {{\n\
             {note}\n\
             if inside {{ {at} = value; }}\n\
         }}\n"
    );
    if lanes > 1 {
        let note = note.replace("index < ", &format!("lane < {lanes}u && index < "));
        let _ = write!(
            text,
            "fn bp_lane_{place}(index: u32, lane: u32, value: {scalar}) {{\n\
                 {note}\n\
                 if inside {{ {at}[lane] = value; }}\n\
             }}\n"
        );
    }
}

/// Elements of every vector and every array of fixed length that the kernel has a type for.
fn lengths(module: &Module) -> BTreeSet<u32> {
    let of = |inner: &TypeInner| match inner.indexable_length(module) {
        Ok(IndexableLength::Known(length)) => Some(length),
        _ => None,
    };
    let known = module.types.iter().filter_map(|(_, ty)| of(&ty.inner));
    // Types of expressions are not all among the module's.
    known.chain([2, 3, 4]).collect()
}

fn scalar_name(inner: &TypeInner) -> &'static str {
    match inner.scalar_kind() {
        Some(ScalarKind::Float) => "f32",
        Some(ScalarKind::Sint) => "i32",
        _ => "u32",
    }
}

fn element_type(module: &Module, binding: u32) -> (&'static str, u32) {
    let variable = module
        .global_variables
        .iter()
        .map(|(_, variable)| variable)
        .find(|variable| {
            variable
                .binding
                .is_some_and(|at| at.group == 0 && at.binding == binding)
        });
    let variable = variable.expect("the signature has shown contiguous bindings");
    let TypeInner::Array { base, .. } = module.types[variable.ty].inner else {
        unreachable!("the signature has shown an array");
    };
    let inner = &module.types[base].inner;
    let lanes = if let TypeInner::Vector { size, .. } = inner {
        *size as u32
    } else {
        1
    };
    (scalar_name(inner), lanes)
}

fn params_types(module: &Module) -> Vec<&'static str> {
    let uniform = module
        .global_variables
        .iter()
        .find(|(_, v)| v.space == AddressSpace::Uniform);
    match uniform.map(|(_, variable)| &module.types[variable.ty].inner) {
        Some(TypeInner::Struct { members, .. }) => members
            .iter()
            .map(|member| scalar_name(&module.types[member.ty].inner))
            .collect(),
        _ => Vec::new(),
    }
}
