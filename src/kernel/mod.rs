//! WGSL kernels: linking, signatures, the shared pass over the IR, the registry.

/// A linked, validated kernel, ready for an engine.
#[derive(Debug)]
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
pub struct Registry;
impl Registry {
    pub fn get(&self, _n: &str) -> Result<&Kernel, String> {
        Err(String::new())
    }
}
