//! `case`: the branch whose pattern matches, where that is known; else any that may.
//!
//! Source: POSIX.1-2024, Shell Command Language, section 2.9.4.3; `;;&` is bash's.

use std::ops::Range;

use super::lexer::CaseEnd;
use super::parse::{Case, Clause};
use super::script::{Flow, Halt, Script};
use super::shell::Remark;
use super::text::{NO_CHAR, Text};
use super::word::{Piece, Word, literal_word, plain_word};

impl Script {
    pub(super) fn case(&mut self, case: &Case, at: &Range<usize>) -> Result<Flow, Halt> {
        let mut remarks = Vec::new();
        let word = match &case.word {
            Some(word) => self.shell.text(word, &mut remarks)?,
            None => Text::default(),
        };
        // A value in doubt, or of the first round only, decides nothing.
        let is_known = !word.is_open() && !remarks.iter().any(Remark::is_doubt);
        let word = is_known.then(|| word.string());
        self.clauses(word.as_deref(), &case.clauses, at)
    }

    /// The first of the branches that matches, or may.
    fn clauses(
        &mut self,
        word: Option<&str>,
        clauses: &[Clause],
        at: &Range<usize>,
    ) -> Result<Flow, Halt> {
        let mut may_run = Vec::new();
        let mut is_sure = false;
        for (index, clause) in clauses.iter().enumerate() {
            match matches_any(word, &clause.patterns) {
                Some(false) => {}
                matched => {
                    may_run.push(index);
                    is_sure = matched.is_some();
                }
            }
            if is_sure {
                break;
            }
        }
        match may_run[..] {
            [] => return Ok(Flow::Next),
            [only] if is_sure => return self.clause(word, &clauses[only..], at),
            _ => {}
        }
        let run = |script: &mut Self, index: usize| script.clause(word, &clauses[index..], at);
        self.any_of(&may_run, !is_sure, at, run)
    }

    /// The first of `clauses`, and what follows from how it ends.
    fn clause(
        &mut self,
        word: Option<&str>,
        clauses: &[Clause],
        at: &Range<usize>,
    ) -> Result<Flow, Halt> {
        for (index, clause) in clauses.iter().enumerate() {
            let rest = &clauses[index + 1..];
            // Behind what may have left, whether a further branch runs is not known.
            let flow = self.nodes(&clause.body)?;
            if flow != Flow::Next || clause.end == CaseEnd::Done || rest.is_empty() {
                return Ok(flow);
            }
            if self.may_have_left() {
                return Err(super::script::not_followed(at.clone()));
            }
            if clause.end == CaseEnd::Further {
                self.deeper(NO_CHAR)?;
                let flow = self.clauses(word, rest, at)?;
                self.shallower();
                return Ok(flow);
            }
        }
        Ok(Flow::Next)
    }
}

/// Whether one of the patterns matches, where that is known.
fn matches_any(word: Option<&str>, patterns: &[Word]) -> Option<bool> {
    let all: Vec<Option<bool>> = patterns
        .iter()
        .map(|pattern| matches_one(word, pattern))
        .collect();
    match all.contains(&Some(true)) {
        true => Some(true),
        false if all.contains(&None) => None,
        false => Some(false),
    }
}

fn matches_one(word: Option<&str>, pattern: &Word) -> Option<bool> {
    if plain_word(pattern).as_deref() == Some("*") {
        return Some(true);
    }
    let is_pattern = |piece: &Piece| match piece {
        Piece::Literal { text, is_quoted } => {
            let marks = ['*', '?', '[', '\\', '~'];
            let is_group = text.0.iter().any(|(c, _)| *c == '(');
            is_group || text.is_open() || (!is_quoted && text.string().contains(marks))
        }
        Piece::Variable(_) | Piece::Arithmetic { .. } => true,
    };
    if pattern.iter().any(is_pattern) {
        return None;
    }
    Some(literal_word(pattern)? == word?)
}
