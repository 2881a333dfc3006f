//! WGSL kernels: linking, signatures, the shared pass over the IR, the registry.
//!
//! A kernel is one file of `shaders/` with an entry point `main`. Its way to an engine:
//! `link` pulls in what `// use: math/exp` names, naga parses and validates the text,
//! `support` refuses what no engine may run, `signature` reads the operands, `canonical`
//! makes every stored NaN the one canonical NaN. Engines see only the result, a [`Kernel`].
//!
//! Kernels index every operand from 0. An engine adds the offset of the instance, and reports an
//! index outside the instance's extent as an error; it never clamps.

mod canonical;
mod error;
mod link;
#[cfg(feature = "wgpu")]
mod lower;
#[cfg(feature = "wgpu")]
mod native;
mod rebuild;
mod registry;
mod shaders;
mod signature;
mod support;
#[cfg(test)]
mod tests;

pub use error::{KernelError, Location};
#[cfg(feature = "wgpu")]
pub use lower::{CUT_SHORT, HEADER_WORDS, IMMEDIATE_WORDS, Lowered, OUTSIDE_LOCAL, lower};
#[cfg(feature = "wgpu")]
pub use native::{ATOMIC_ADD, ATOMIC_ADD_OPERANDS, native};
pub use registry::Registry;
pub(crate) use registry::digest_kernels;
pub use signature::MAX_OPERANDS;

/// A linked, validated kernel, ready for an engine.
#[derive(Clone, Debug)]
pub struct Kernel {
    pub name: String,
    /// BLAKE3 of the final linked text.
    pub hash: [u8; 32],
    pub workgroup: [u32; 3],
    pub operands: Vec<Operand>,
    /// Words of the `params` struct, 0 when the kernel has none.
    pub params_words: u32,
    /// The linked text, for engines that take WGSL and for messages.
    pub text: String,
    /// The module after the shared pass: what engines run.
    pub module: naga::Module,
    pub info: naga::valid::ModuleInfo,
}

/// One storage operand of a kernel, in binding order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operand {
    pub name: String,
    /// Words of one array element (4 for `array<vec4<f32>>`).
    pub element_words: u32,
    /// What the entry point does to it, measured from the IR.
    pub reads: bool,
    pub writes: bool,
}

impl Kernel {
    /// Builds a kernel from linked text.
    ///
    /// # Errors
    /// What the parser, the validator, the support check or the signature refuses, with the place
    /// in the file it was written in.
    fn from_linked(name: &str, linked: &link::Linked) -> Result<Kernel, KernelError> {
        let mut module = naga::front::wgsl::parse_str(&linked.text)
            .map_err(|error| linked.parse_error(&error))?;
        let info = validate(&module, linked)?;
        support::check(&module, &info, linked)?;
        let signature = signature::read(&module, &info, linked)?;
        canonical::canonicalise_nans(&mut module, &info, &std::collections::BTreeSet::new());
        let info = validate(&module, linked)?;
        Ok(Kernel {
            name: name.to_owned(),
            hash: *blake3::hash(linked.text.as_bytes()).as_bytes(),
            workgroup: signature.workgroup,
            operands: signature.operands,
            params_words: signature.params_words,
            text: linked.text.clone(),
            module,
            info,
        })
    }
}

fn validate(
    module: &naga::Module,
    linked: &link::Linked,
) -> Result<naga::valid::ModuleInfo, KernelError> {
    use naga::valid::{Capabilities, ValidationFlags, Validator};
    Validator::new(ValidationFlags::all(), Capabilities::empty())
        .validate(module)
        .map_err(|error| linked.validation_error(&error))
}
