//! Checks of launches, before anything runs: shared by the engines.

use super::{EngineError, Launch, Ran, Span};
use crate::kernel::{Kernel, Operand};

/// What of a kernel its launches are checked against, and named by.
pub(super) struct Signature {
    pub name: String,
    pub hash: [u8; 32],
    pub operands: Vec<Operand>,
    pub params_words: u32,
    pub workgroup: [u32; 3],
}

impl Signature {
    pub fn of(kernel: &Kernel) -> Signature {
        Signature {
            name: kernel.name.clone(),
            hash: kernel.hash,
            operands: kernel.operands.clone(),
            params_words: kernel.params_words,
            workgroup: kernel.workgroup,
        }
    }
}

/// The refusal of a launch of a program that the engine has not loaded.
pub(super) fn unknown_program(launch: &Launch, at: Ran) -> EngineError {
    EngineError::BadLaunch {
        kernel: "(unknown)".to_owned(),
        reason: format!("no program {} in this engine", launch.program.0),
        at,
    }
}

/// Refuses a launch whose operands, params or grid do not fit the kernel or the arenas.
pub(super) fn check(
    signature: &Signature,
    launch: &Launch,
    at: Ran,
    arena_words: impl Fn(u32) -> Option<usize>,
) -> Result<(), EngineError> {
    let bad = |reason: String| EngineError::BadLaunch {
        kernel: signature.name.clone(),
        reason,
        at,
    };
    if launch.operands.len() != signature.operands.len() {
        let (given, wanted) = (launch.operands.len(), signature.operands.len());
        return Err(bad(format!("{given} operands, the kernel takes {wanted}")));
    }
    if launch.params.len() != signature.params_words as usize {
        let (given, wanted) = (launch.params.len(), signature.params_words);
        return Err(bad(format!(
            "{given} words of params, the kernel takes {wanted}"
        )));
    }
    for (span, operand) in launch.operands.iter().zip(&signature.operands) {
        let name = &operand.name;
        let words = arena_words(span.arena.0)
            .ok_or_else(|| bad(format!("operand `{name}` is in no arena of this engine")))?;
        if u64::from(span.offset_words) + u64::from(span.words) > words as u64 {
            let (at, len) = (span.offset_words, span.words);
            return Err(bad(format!(
                "operand `{name}`: {len} words at {at} in an arena of {words}"
            )));
        }
        if span.words % operand.element_words != 0 {
            let (len, step) = (span.words, operand.element_words);
            return Err(bad(format!(
                "operand `{name}`: {len} words, elements have {step}"
            )));
        }
    }
    for axis in 0..3 {
        let size = u64::from(launch.grid[axis]) * u64::from(signature.workgroup[axis]);
        if size > u64::from(u32::MAX) {
            return Err(bad(format!("{size} invocations along axis {axis}")));
        }
    }
    if workgroups(launch) > u64::from(u32::MAX) {
        return Err(bad("more than 2^32 workgroups".to_owned()));
    }
    Ok(())
}

/// Workgroups of a launch, saturating: three sizes of 32 bits can pass 64 bits.
pub(super) fn workgroups(launch: &Launch) -> u64 {
    let [x, y, z] = launch.grid.map(u64::from);
    (x * y).saturating_mul(z)
}

/// Whether two operands of the launch share a word without being one place: then only the order of
/// workgroups, which a device does not promise, could say what is read.
#[cfg(feature = "wgpu")]
pub(super) fn overlap_in_part(launch: &Launch) -> bool {
    any_pair(launch, |a, b| a.meets(b) && a != b)
}

/// Whether two operands of the launch share a word: then one thread runs all of it, so that the
/// order of its workgroups is fixed.
pub(super) fn overlaps(launch: &Launch) -> bool {
    any_pair(launch, Span::meets)
}

fn any_pair(launch: &Launch, holds: impl Fn(&Span, &Span) -> bool) -> bool {
    let operands = &launch.operands;
    let mut places = operands.iter().enumerate();
    places.any(|(place, a)| operands[..place].iter().any(|b| holds(a, b)))
}
