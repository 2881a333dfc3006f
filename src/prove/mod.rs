//! Proofs and their outcome: grades, witnesses, certificates, replay tokens.

pub mod outcome;
pub mod progress;
pub mod token;

pub use crate::scenario::Grade;
pub use progress::{Progress, Silent};
pub use token::{Token, TokenError};
