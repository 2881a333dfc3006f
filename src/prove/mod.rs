//! Proofs: the sweep, the oracles, planted faults, certificates.

pub mod sweep;
