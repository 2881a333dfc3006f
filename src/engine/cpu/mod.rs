//! The default engine: naga IR compiled by Cranelift, strict IEEE, nothing to install.
