//! What is wrong with a job's NCCL variables, told where they were written.

use super::{Environment, EnvironmentError};
use crate::diagnostic::{Diagnostic, Place, escaped};

/// A value that NCCL refuses, or that it would read as something else than was meant.
pub fn unreadable(name: &str, value: &str, place: &Place) -> Option<Diagnostic> {
    let error = Environment::parse([(name, value)]).err()?;
    Some(match value.contains(['$', '`']) {
        true => unknown(name, value, place),
        false => finding(&error, place),
    })
}

/// A value that another variable or a command gives.
fn unknown(name: &str, value: &str, place: &Place) -> Diagnostic {
    let (name, value) = (escaped(name), escaped(value));
    Diagnostic::error(
        "unset-variable",
        format!("the value of `{name}` is not known here: `{value}`"),
    )
    .at(place, "bits may follow from it")
    .with_help(format!("write the value that `{name}` has"))
}

/// Readable values for which no plan can be made.
pub fn finding(error: &EnvironmentError, place: &Place) -> Diagnostic {
    let message = error.to_string();
    let label = match error.need() {
        Some(_) => "bitproof does not simulate it",
        None => "read as NCCL reads it",
    };
    Diagnostic::error("environment", escaped(&message))
        .at(place, label)
        .with_help(error.help())
}
