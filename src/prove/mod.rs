//! Proofs and their outcome: the sweep, the oracles, planted faults, certificates, replay tokens.

pub mod certificate;
pub mod check;
pub mod deviation;
pub mod effect;
pub mod faults;
mod first_divergence;
pub mod full_size;
pub mod grade;
pub mod memory;
pub mod mutation;
pub mod native;
pub mod oracle;
pub mod outcome;
pub mod plans;
pub mod progress;
pub mod queries;
pub mod remedy;
pub mod replay;
pub mod reversal;
pub mod room;
pub mod session;
pub mod shrink;
pub mod sweep;
pub mod switch;
pub mod token;
pub mod twins;
mod uncovered;
pub mod vacuity;
pub mod witness;

pub use crate::scenario::Grade;
pub use check::{CheckOptions, check};
pub use progress::{Progress, Silent};
pub use replay::replay;
pub use token::{Token, TokenError};
