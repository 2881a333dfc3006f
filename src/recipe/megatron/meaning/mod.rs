//! What a Megatron-LM job asks for: its layout, its full-size recipe, and what becomes of every
//! argument.

mod fields;
mod understood;

pub use fields::CaseFields;
pub use understood::{
    Derivation, JudgedArgument, Rerun, Resharding, UnderstandOptions, Understood, Verdict, World,
    WorldBasis,
};

use super::GivenJob;
use crate::diagnostic::Findings;

/// Understands one phase of a job. Errors of single arguments and of their combination become
/// findings with their places; what was understood beside them is still returned.
pub fn understand(
    job: &GivenJob,
    options: &UnderstandOptions,
    findings: &mut Findings,
) -> Understood {
    let _ = (job, options, findings);
    todo!()
}
