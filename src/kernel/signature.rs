//! What a kernel takes: operands in group 0, the words of `params` in group 1.

use naga::valid::{GlobalUse, ModuleInfo};
use naga::{AddressSpace, ArraySize, GlobalVariable, Scalar, ScalarKind, TypeInner};

use super::Operand;
use super::error::KernelError;
use super::link::Linked;

/// Operands of one kernel at most: what wgpu lets any adapter bind, less room for the tables.
pub const MAX_OPERANDS: usize = 12;
/// Words of `params` at most.
pub const MAX_PARAMS: u32 = 64;

pub(super) struct Signature {
    pub workgroup: [u32; 3],
    pub operands: Vec<Operand>,
    pub params_words: u32,
}

/// Reads the signature of the one entry point `main`.
pub(super) fn read(
    module: &naga::Module,
    info: &ModuleInfo,
    linked: &Linked,
) -> Result<Signature, KernelError> {
    let entry = match module.entry_points.as_slice() {
        [entry] if entry.name == "main" && entry.stage == naga::ShaderStage::Compute => entry,
        _ => {
            return Err(KernelError::Signature {
                location: linked.location_of(naga::Span::UNDEFINED),
                reason: "a kernel has one entry point, `@compute fn main`".to_owned(),
            });
        }
    };
    let uses = info.get_entry_point(0);
    let mut operands: Vec<(u32, Operand)> = Vec::new();
    let mut params_words = 0;
    for (handle, variable) in module.global_variables.iter() {
        let reject = |reason: String| KernelError::Signature {
            location: linked.location_of(module.global_variables.get_span(handle)),
            reason,
        };
        match variable.space {
            AddressSpace::Storage { .. } => {
                operands.push(operand(module, variable, uses[handle]).map_err(reject)?);
            }
            AddressSpace::Uniform => {
                params_words = params(module, variable).map_err(reject)?;
            }
            _ => {
                return Err(reject(
                    "a kernel's globals are operands and params only".into(),
                ));
            }
        }
    }
    operands.sort_by_key(|(binding, _)| *binding);
    let contiguous = operands
        .iter()
        .enumerate()
        .all(|(place, (binding, _))| place == *binding as usize);
    if !contiguous || operands.is_empty() || operands.len() > MAX_OPERANDS {
        return Err(KernelError::Signature {
            location: linked.location_of(naga::Span::UNDEFINED),
            reason: format!(
                "operands are bindings 0, 1, 2, ... of group 0, {MAX_OPERANDS} at most"
            ),
        });
    }
    Ok(Signature {
        workgroup: entry.workgroup_size,
        operands: operands.into_iter().map(|(_, operand)| operand).collect(),
        params_words,
    })
}

fn operand(
    module: &naga::Module,
    variable: &GlobalVariable,
    uses: GlobalUse,
) -> Result<(u32, Operand), String> {
    let name = variable.name.clone().unwrap_or_default();
    let binding = match variable.binding {
        Some(binding) if binding.group == 0 => binding.binding,
        _ => return Err(format!("operand `{name}` is not in group 0")),
    };
    let read_write = naga::StorageAccess::LOAD | naga::StorageAccess::STORE;
    if variable.space != (AddressSpace::Storage { access: read_write }) {
        return Err(format!("operand `{name}` is not var<storage, read_write>"));
    }
    let TypeInner::Array {
        base,
        size: ArraySize::Dynamic,
        ..
    } = module.types[variable.ty].inner
    else {
        return Err(format!("operand `{name}` is not an array without a length"));
    };
    let element_words = element_words(&module.types[base].inner).ok_or_else(|| {
        format!("operand `{name}` is not an array of f32, u32, i32, vec2 or vec4")
    })?;
    let (reads, writes) = (
        uses.contains(GlobalUse::READ),
        uses.contains(GlobalUse::WRITE),
    );
    Ok((
        binding,
        Operand {
            name,
            element_words,
            reads,
            writes,
        },
    ))
}

fn element_words(inner: &TypeInner) -> Option<u32> {
    let word = |scalar: Scalar| scalar.width == 4 && scalar.kind != ScalarKind::Bool;
    match *inner {
        TypeInner::Scalar(scalar) if word(scalar) => Some(1),
        TypeInner::Vector { size, scalar } if word(scalar) && size != naga::VectorSize::Tri => {
            Some(size as u32)
        }
        _ => None,
    }
}

fn params(module: &naga::Module, variable: &GlobalVariable) -> Result<u32, String> {
    if !variable
        .binding
        .is_some_and(|binding| binding.group == 1 && binding.binding == 0)
    {
        return Err("params is not binding 0 of group 1".to_owned());
    }
    let TypeInner::Struct { members, .. } = &module.types[variable.ty].inner else {
        return Err("params is not a struct".to_owned());
    };
    for (place, member) in members.iter().enumerate() {
        let scalar = matches!(module.types[member.ty].inner, TypeInner::Scalar(s) if s.width == 4
            && s.kind != ScalarKind::Bool);
        if !scalar || member.offset != place as u32 * 4 {
            let name = member.name.as_deref().unwrap_or_default();
            return Err(format!(
                "member `{name}` of params is not a u32, i32 or f32"
            ));
        }
    }
    let words = members.len() as u32;
    if words > MAX_PARAMS {
        return Err(format!("params has {words} words, {MAX_PARAMS} at most"));
    }
    Ok(words)
}
