//! Proofs and their outcome: the sweep, the oracles, planted faults, certificates, replay tokens.

pub mod mutation;
pub mod oracle;
pub mod outcome;
pub mod plans;
pub mod progress;
pub mod session;
pub mod sweep;
pub mod token;

pub use crate::scenario::Grade;
pub use progress::{Progress, Silent};
pub use token::{Token, TokenError};
