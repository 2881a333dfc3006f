//! What may follow from commands and values that are not known.

use std::ops::Range;

use super::shell::{Exported, Remark};
use super::text::Text;
use crate::recipe::megatron::catalogue::{Effect, variable};

/// Whether a command may be one of the shell's own that sets variables: its name is not known, or
/// a variable holds it.
pub(super) fn may_set(name: &Text, is_written: bool) -> bool {
    // A path is a program.
    let is_open = name.is_open() && !name.string().contains('/');
    is_open || (!is_written && sets(&name.string()))
}

/// Whether a command of this name changes the shell that runs it.
pub(super) fn sets(name: &str) -> bool {
    const SETS: [&str; 24] = [
        ".",
        "break",
        "builtin",
        "command",
        "continue",
        "declare",
        "eval",
        "exec",
        "exit",
        "export",
        "getopts",
        "let",
        "local",
        "mapfile",
        "printf",
        "read",
        "readarray",
        "readonly",
        "return",
        "set",
        "shift",
        "source",
        "typeset",
        "unset",
    ];
    SETS.contains(&name)
}

/// A variable whose value a branch decides, and from which bits may follow.
pub(super) fn in_doubt(exported: &Exported, used: &Range<usize>) -> Option<Remark> {
    let (assigned, taken) = exported.conditional.clone()?;
    if !decides_bits(&exported.name) {
        return None;
    }
    Some(Remark::Conditional {
        name: exported.name.clone(),
        used: used.clone(),
        assigned,
        taken,
    })
}

pub(super) fn decides_bits(name: &str) -> bool {
    let is_idle = |effect| matches!(effect, Effect::NoBits(_) | Effect::Replaced(_));
    variable(name).is_some_and(|known| !is_idle(known.effect))
}
