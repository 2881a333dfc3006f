//! SPIR-V from naga, with what naga leaves out: every float operation is decorated NoContraction,
//! every storage buffer Aliased (two operands may be the same words of one heap), and the entry
//! point asks, as far as the driver can, for subnormals, signed zeros, infinities and NaNs to be
//! kept and for rounding to nearest even (SPV_KHR_float_controls). Without these Mesa turns
//! `(x + y) - y` into `x`.

use std::ops::Range;

use super::float_controls::FloatControls;
use crate::kernel::Lowered;

const OP_EXTENSION: u32 = 10;
const OP_EXT_INST: u32 = 12;
const OP_ENTRY_POINT: u32 = 15;
const OP_EXECUTION_MODE: u32 = 16;
const OP_CAPABILITY: u32 = 17;
const OP_DECORATE: u32 = 71;
const OP_MEMBER_DECORATE: u32 = 72;
const OP_VARIABLE: u32 = 59;
const NO_CONTRACTION: u32 = 42;
const ALIASED: u32 = 20;
const STORAGE_BUFFER: u32 = 12;
/// OpTypeVoid to OpTypeForwardPointer: the first of these ends the decorations.
const TYPES: Range<u32> = 19..40;
/// OpFNegate, OpFAdd, OpFSub, OpFMul, OpFDiv, OpVectorTimesScalar.
const FLOAT_OPS: [u32; 6] = [127, 129, 131, 133, 136, 142];
/// An execution mode and its capability.
const DENORM_PRESERVE: (u32, u32) = (4459, 4464);
const SIGNED_ZERO_INF_NAN_PRESERVE: (u32, u32) = (4461, 4466);
const ROUNDING_MODE_RTE: (u32, u32) = (4462, 4467);
const HEADER_WORDS: usize = 5;

/// # Errors
/// What naga cannot write.
pub(super) fn write(kernel: &Lowered, controls: FloatControls) -> Result<Vec<u32>, String> {
    use naga::back::spv;
    let policy = match kernel.bounded {
        true => naga::proc::BoundsCheckPolicy::Unchecked,
        false => naga::proc::BoundsCheckPolicy::Restrict,
    };
    let options = spv::Options {
        lang_version: (1, 3),
        bounds_check_policies: naga::proc::BoundsCheckPolicies {
            index: policy,
            buffer: policy,
            image_load: policy,
            binding_array: policy,
        },
        force_loop_bounding: false,
        flags: spv::WriterFlags::empty(),
        ..spv::Options::default()
    };
    let pipeline = spv::PipelineOptions {
        shader_stage: naga::ShaderStage::Compute,
        entry_point: "bp_entry".to_owned(),
    };
    let words = spv::write_vec(&kernel.module, &kernel.info, &options, Some(&pipeline))
        .map_err(|error| error.to_string())?;
    Ok(strict(&words, &modes(controls)))
}

/// (opcode, place of the instruction in `words`).
fn instructions(words: &[u32]) -> impl Iterator<Item = (u32, Range<usize>)> + '_ {
    let mut at = HEADER_WORDS;
    std::iter::from_fn(move || {
        let first = *words.get(at)?;
        let start = at;
        at += (first >> 16).max(1) as usize;
        Some((first & 0xffff, start..at))
    })
}

/// The modes to ask for: those that the driver has.
fn modes(controls: FloatControls) -> Vec<(u32, u32)> {
    let wanted = [
        (controls.denorm_preserve, DENORM_PRESERVE),
        (
            controls.signed_zero_inf_nan_preserve,
            SIGNED_ZERO_INF_NAN_PRESERVE,
        ),
        (controls.rounding_mode_rte, ROUNDING_MODE_RTE),
    ];
    let has = wanted.into_iter().filter(|(has, _)| *has);
    has.map(|(_, mode)| mode).collect()
}

/// Adds the decorations and modes.
fn strict(words: &[u32], modes: &[(u32, u32)]) -> Vec<u32> {
    let first = |wanted: &dyn Fn(u32) -> bool| {
        let found = instructions(words).find(|(opcode, _)| wanted(*opcode));
        found.map_or(words.len(), |(_, place)| place.start)
    };
    let entry = instructions(words)
        .find(|(opcode, _)| *opcode == OP_ENTRY_POINT)
        .map(|(_, place)| (words[place.start + 2], place.end))
        .expect("naga wrote an entry point");
    let mut added: Vec<(usize, Vec<u32>)> = Vec::new();
    if !modes.is_empty() {
        let capabilities = modes
            .iter()
            .flat_map(|(_, capability)| [2 << 16 | OP_CAPABILITY, *capability]);
        let mut extension = capabilities.collect::<Vec<u32>>();
        extension.extend(string_instruction(OP_EXTENSION, "SPV_KHR_float_controls"));
        added.push((first(&|opcode| opcode != OP_CAPABILITY), extension));
        let modes = modes
            .iter()
            .flat_map(|(mode, _)| [4 << 16 | OP_EXECUTION_MODE, entry.0, *mode, 32]);
        added.push((entry.1, modes.collect()));
    }
    let decorations = instructions(words)
        .filter_map(|(opcode, place)| {
            let is_float = FLOAT_OPS.contains(&opcode) || opcode == OP_EXT_INST;
            let is_buffer = opcode == OP_VARIABLE && words[place.start + 3] == STORAGE_BUFFER;
            let decoration = match (is_float, is_buffer) {
                (true, _) => NO_CONTRACTION,
                (_, true) => ALIASED,
                _ => return None,
            };
            Some((words[place.start + 2], decoration))
        })
        .flat_map(|(id, decoration)| [3 << 16 | OP_DECORATE, id, decoration]);
    let annotations = first(&|opcode| {
        [OP_DECORATE, OP_MEMBER_DECORATE].contains(&opcode) || TYPES.contains(&opcode)
    });
    added.push((annotations, decorations.collect()));
    let mut result = Vec::with_capacity(words.len() + 64);
    let mut copied = 0;
    for (place, new) in added {
        assert!(
            copied <= place,
            "sections are in the order of the specification"
        );
        result.extend_from_slice(&words[copied..place]);
        result.extend(new);
        copied = place;
    }
    result.extend_from_slice(&words[copied..]);
    result
}

/// An instruction whose only operand is a string: UTF-8, a zero byte, padded to whole words.
fn string_instruction(opcode: u32, text: &str) -> Vec<u32> {
    let mut bytes = text.as_bytes().to_vec();
    bytes.resize((bytes.len() + 1).next_multiple_of(4), 0);
    let words = bytes
        .chunks(4)
        .map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]));
    let mut instruction = vec![((bytes.len() as u32 / 4 + 1) << 16) | opcode];
    instruction.extend(words);
    instruction
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::{Registry, lower};

    #[test]
    fn every_float_operation_is_decorated_and_sections_stay_in_order() {
        let registry = Registry::new().expect("shaders link");
        let kernel = lower(registry.get("matmul_nt").expect("valid")).expect("lowers");
        let words = write(&kernel, FloatControls::ALL).expect("writes");
        let float: Vec<u32> = instructions(&words)
            .filter(|(opcode, _)| FLOAT_OPS.contains(opcode))
            .map(|(_, place)| words[place.start + 2])
            .collect();
        assert!(float.len() >= 8, "a matrix product multiplies and adds");
        let decorated: Vec<u32> = instructions(&words)
            .filter(|(opcode, place)| {
                *opcode == OP_DECORATE && words[place.start + 2] == NO_CONTRACTION
            })
            .map(|(_, place)| words[place.start + 1])
            .collect();
        assert!(float.iter().all(|id| decorated.contains(id)));
        let of = |wanted: u32| {
            let all = instructions(&words);
            all.filter(move |(opcode, _)| *opcode == wanted)
        };
        let buffers = of(OP_VARIABLE).filter(|(_, at)| words[at.start + 3] == STORAGE_BUFFER);
        let buffers: Vec<u32> = buffers.map(|(_, at)| words[at.start + 2]).collect();
        // The kernel's three operands, the table, the flag.
        assert_eq!(buffers.len(), 5);
        let aliased =
            |id: &u32| of(OP_DECORATE).any(|(_, at)| words[at.start + 1..at.end] == [*id, ALIASED]);
        assert!(buffers.iter().all(aliased));
        let asked = |words: &[u32]| {
            let all = instructions(words).filter(|(opcode, _)| *opcode == OP_EXECUTION_MODE);
            all.filter(|(_, at)| words[at.start + 2] >= DENORM_PRESERVE.0)
                .count()
        };
        let fewer = FloatControls {
            rounding_mode_rte: false,
            ..FloatControls::ALL
        };
        let of = |controls| asked(&write(&kernel, controls).expect("writes"));
        assert_eq!(
            (asked(&words), of(fewer), of(FloatControls::default())),
            (3, 2, 0)
        );
        let opcodes: Vec<u32> = instructions(&words).map(|(opcode, _)| opcode).collect();
        let last = |wanted: u32| opcodes.iter().rposition(|opcode| *opcode == wanted);
        let first = |wanted: u32| opcodes.iter().position(|opcode| *opcode == wanted);
        assert!(last(OP_CAPABILITY) < first(OP_EXTENSION));
        assert!(last(OP_ENTRY_POINT) < first(OP_EXECUTION_MODE));
        assert!(last(OP_DECORATE) < opcodes.iter().position(|opcode| TYPES.contains(opcode)));
    }
}
