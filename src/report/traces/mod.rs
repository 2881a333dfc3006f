//! Certified and compared traces, written for people, for programs and for test dashboards.

mod certified;
mod compared;
mod discriminated;
mod junit;

pub use certified::{certificate_to_human, certificate_to_json};
pub use compared::Compared;
pub use junit::trace_junit;

use crate::diagnostic::escaped;

/// A list of sentences under a heading; nothing where there is none.
fn listed(heading: &str, sentences: &[String]) -> String {
    if sentences.is_empty() {
        return String::new();
    }
    let mut text = format!("{heading}\n");
    for sentence in sentences {
        text.push_str(&format!("  {}\n", escaped(sentence)));
    }
    text
}
