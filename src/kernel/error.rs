//! Why a kernel cannot be had, with the place in the file it was written in.

/// A place in a shader file; line and column count from 1, columns in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// Path below the repository's root, such as `shaders/math/exp.wgsl`.
    pub file: String,
    pub line: u32,
    pub column: u32,
}

impl std::fmt::Display for Location {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

/// Why a kernel cannot be had.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KernelError {
    #[error("there is no kernel `{name}`")]
    Unknown { name: String },
    #[error("{location}: `// use: {used}` names no file of shaders/")]
    UnknownUse { location: Location, used: String },
    #[error("{location}: `// use:` goes round in a circle: {chain}")]
    Cycle { location: Location, chain: String },
    #[error("{location}: {message}")]
    Parse { location: Location, message: String },
    #[error("{location}: {message}")]
    Invalid { location: Location, message: String },
    /// Valid WGSL that the engines do not run, or may not: it would leave the bits open.
    #[error("{location}: {what} is not supported{why}")]
    Unsupported {
        location: Location,
        what: String,
        why: String,
    },
    #[error("{location}: {reason}")]
    Signature { location: Location, reason: String },
}
