//! Kernels that only an adapter runs: real atomics, to be compared with the folds that stand for
//! them. They are in no registry, and so in no hash of the kernels that a training step runs.

use super::Lowered;

/// Additions by compare-and-exchange, in an order of tickets or in none.
pub const ATOMIC_ADD: &str = include_str!("../../shaders/native/atomic_add.wgsl");

/// Storage operands of [`ATOMIC_ADD`].
pub const ATOMIC_ADD_OPERANDS: u32 = 6;

/// Makes a kernel of the text ready for an adapter. It binds its operands as they are written, with
/// no table: accesses are bounded by the lengths of the buffers.
///
/// # Errors
/// What the parser or the validator refuses.
pub fn native(text: &str) -> Result<Lowered, String> {
    let mut module = naga::front::wgsl::parse_str(text).map_err(|e| e.emit_to_string(text))?;
    match module.entry_points.as_mut_slice() {
        [entry] => "bp_entry".clone_into(&mut entry.name),
        _ => return Err("a kernel has one entry point".to_owned()),
    }
    use naga::valid::{Capabilities, ValidationFlags, Validator};
    let info = Validator::new(ValidationFlags::all(), Capabilities::IMMEDIATES)
        .validate(&module)
        .map_err(|error| error.emit_to_string(text))?;
    Ok(Lowered {
        module,
        info,
        row_words: 0,
        bounded: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_is_valid_and_other_texts_are_refused() {
        let kernel = native(ATOMIC_ADD).expect("a shipped kernel");
        let bound = kernel.module.global_variables.iter();
        let bound = bound.filter(|(_, variable)| variable.binding.is_some());
        assert_eq!(bound.count(), ATOMIC_ADD_OPERANDS as usize);
        assert!(native("fn main() {}").is_err());
        assert!(native(&ATOMIC_ADD.replace("bitcast<f32>(seen)", "seen")).is_err());
    }
}
