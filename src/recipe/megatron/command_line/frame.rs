//! Functions that run: what they declare is their own, and names that stand before their call are
//! exported to them. Where both meet, or a branch decides, bash has rules of its own, and what it
//! does is not followed.
//!
//! Source: the bash manual, "Shell Functions" (dynamic scope).

use std::ops::Range;

use super::script::{Halt, Script, not_followed};
use super::shell::Saved;

/// A function that runs.
#[derive(Debug)]
pub(super) struct Frame {
    /// What its own names hide.
    pub hidden: Vec<(String, Saved)>,
    /// Shells and branches around its call.
    depth: usize,
}

impl Script {
    pub(super) fn enter_function(&mut self) {
        self.frames.push(Frame {
            hidden: Vec::new(),
            depth: self.shell.depth,
        });
    }

    pub(super) fn leave_function(&mut self) {
        let frame = self.frames.pop().expect("entered before");
        assert_eq!(frame.depth, self.shell.depth, "ways meet within a function");
        self.restore(frame.hidden);
    }

    /// A name of the running function's own, whatever its caller has. Whether it is so from here
    /// on. In a branch, a loop or a shell of its own it may be the caller's behind it.
    pub(super) fn hide(&mut self, name: &str, at: &Range<usize>) -> Result<bool, Halt> {
        let depth = self.shell.depth;
        let saved = self.shell.saved(name);
        let Some(frame) = self.frames.last_mut() else {
            return Ok(false);
        };
        if frame.depth != depth {
            return Err(not_followed(at.clone()));
        }
        if frame.hidden.iter().any(|(own, _)| own == name) {
            return Ok(false);
        }
        frame.hidden.push((name.to_string(), saved));
        Ok(true)
    }

    /// Whether a running function hides the name, or has it before its call.
    pub(super) fn is_scoped(&self, name: &str) -> bool {
        let hides = |frame: &Frame| frame.hidden.iter().any(|(own, _)| own == name);
        self.is_temporary(name) || self.frames.iter().any(hides)
    }

    /// `A=1 f`
    pub(super) fn is_temporary(&self, name: &str) -> bool {
        self.temporaries.iter().any(|temporary| temporary == name)
    }
}
