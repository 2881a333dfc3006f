//! The few styles of the terminal report. `anstream` strips them where they are not wanted.

use crate::scenario::Grade;

const RESET: &str = "\u{1b}[0m";
const BOLD: &str = "\u{1b}[1m";
const DIM: &str = "\u{1b}[2m";
const RED: &str = "\u{1b}[1;31m";
const GREEN: &str = "\u{1b}[1;32m";
const YELLOW: &str = "\u{1b}[1;33m";

pub(super) fn bold(text: &str) -> String {
    format!("{BOLD}{text}{RESET}")
}

pub(super) fn dim(text: &str) -> String {
    format!("{DIM}{text}{RESET}")
}

pub(super) fn good(text: &str) -> String {
    format!("{GREEN}{text}{RESET}")
}

pub(super) fn bad(text: &str) -> String {
    format!("{RED}{text}{RESET}")
}

pub(super) fn grade(grade: Grade) -> String {
    let colour = match grade {
        Grade::Proved => GREEN,
        Grade::ProvedOnThisInput | Grade::Bounded | Grade::Vacuous => YELLOW,
        Grade::Masked | Grade::Hazard | Grade::Divergent | Grade::Uncontrolled => RED,
    };
    format!("{colour}{}{RESET}", grade.words())
}

/// `text` without styles.
pub(super) fn plain(text: &str) -> String {
    anstream::adapter::strip_str(text).to_string()
}
