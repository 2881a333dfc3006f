//! `a && b || c`: whether each runs follows from what runs before it.

use super::item::range_of;
use super::lexer::{Item, Operator};
use super::parse::{Kind, Node};
use super::script::{Flow, Halt, Script};
use super::word::{Piece, Word, literal_word, plain_word};

/// What decides whether a command runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Joined {
    /// Nothing: it does.
    No,
    /// `&&` behind `cd` and the like: a launch counts as run, and what is set as in doubt.
    Soft,
    And,
    Or,
}

/// How a command is joined to those before it in its list.
pub(super) fn joined_by(operator: Operator, before: &[Node]) -> Joined {
    match operator {
        Operator::And if before.iter().all(is_sure) => Joined::No,
        Operator::And if before.iter().all(|node| is_sure(node) || goes_on(node)) => Joined::Soft,
        Operator::And => Joined::And,
        _ => Joined::Or,
    }
}

/// Whether a command never fails.
fn is_sure(node: &Node) -> bool {
    let Some(items) = only_items(node) else {
        return false;
    };
    // `A=$(cmd)` fails where its command does.
    let is_closed = |word: &Word| {
        let is_plain = |piece: &Piece| match piece {
            Piece::Literal { text, .. } => !text.is_open(),
            Piece::Variable(variable) => variable.default.is_none(),
            Piece::Arithmetic { .. } => false,
        };
        word.iter().all(is_plain)
    };
    let is_set = |item: &Item| match item {
        Item::Assignment { value, .. } => is_closed(value),
        Item::Array { values, .. } => values.iter().all(is_closed),
        Item::Word(word) => literal_word(word).is_some(),
        Item::Arithmetic(_) => false,
    };
    match &items[0] {
        Item::Word(word) => {
            let name = plain_word(word).unwrap_or_default();
            matches!(name.as_str(), "echo" | ":" | "true")
                || (name == "export" && items[1..].iter().all(is_set))
        }
        first => items.len() == 1 && is_set(first),
    }
}

/// Whether, where a command fails, a job is lost anyhow.
fn goes_on(node: &Node) -> bool {
    const USUAL: [&str; 16] = [
        "cd", "pushd", "export", "source", ".", "mkdir", "set", "ulimit", "module", "conda",
        "unset", "sleep", "rm", "cp", "pip", "declare",
    ];
    match only_items(node).and_then(<[Item]>::first) {
        Some(Item::Word(word)) => plain_word(word).is_some_and(|word| USUAL.contains(&&*word)),
        _ => false,
    }
}

/// The words of a simple command that runs in the script's own shell.
pub(super) fn only_items(node: &Node) -> Option<&[Item]> {
    match &node.kind {
        Kind::Simple(command) if !node.is_negated && !node.is_own_shell => Some(&command.items),
        _ => None,
    }
}

impl Script {
    pub(super) fn nodes(&mut self, nodes: &[Node]) -> Result<Flow, Halt> {
        let mut index = 0;
        while let Some(node) = nodes.get(index) {
            let is_soft = |node: &&Node| node.joined == Joined::Soft;
            let soft = nodes[index..].iter().take_while(is_soft).count();
            let mut end = index + soft.max(1);
            let flow = match (soft, self.decides(&nodes[index..])?) {
                (0, Some(runs)) => {
                    end += 1;
                    match runs {
                        true => self.in_its_shell(&nodes[index + 1])?,
                        false => Flow::Next,
                    }
                }
                (0, None) => self.node(node)?,
                _ => self.softly(&nodes[index..end])?,
            };
            if flow != Flow::Next {
                return Ok(flow);
            }
            if self.may_have_left() {
                let at = range_of(node.at);
                let left = (self.may_have_returned, self.may_have_broken);
                (self.may_have_returned, self.may_have_broken) = (false, false);
                self.maybe(&at, |script| script.nodes(&nodes[end..]))?;
                self.may_have_returned |= left.0;
                self.may_have_broken |= left.1;
                break;
            }
            index = end;
        }
        Ok(Flow::Next)
    }

    /// `[ 2 -gt 1 ] && b`, and nothing behind it: whether `b` runs, where that is known.
    fn decides(&mut self, nodes: &[Node]) -> Result<Option<bool>, Halt> {
        let [test, second, rest @ ..] = nodes else {
            return Ok(None);
        };
        let is_pair = test.joined == Joined::No
            && matches!(second.joined, Joined::And | Joined::Or)
            && rest.first().is_none_or(|node| node.joined == Joined::No);
        if !is_pair {
            return Ok(None);
        }
        let holds = self.decided(&nodes[..1])?;
        Ok(holds.map(|holds| holds == (second.joined == Joined::And)))
    }

    /// Commands behind `cd x &&`.
    fn softly(&mut self, nodes: &[Node]) -> Result<Flow, Halt> {
        let outer = self.undecided.clone();
        let sets_functions = nodes
            .iter()
            .any(|node| matches!(node.kind, Kind::Function { .. }));
        self.maybe(&range_of(nodes[0].at), |script| {
            if !sets_functions {
                script.undecided = outer;
            }
            for node in nodes {
                match script.node(node)? {
                    Flow::Next => {}
                    flow => return Ok(flow),
                }
            }
            Ok(Flow::Next)
        })?;
        Ok(Flow::Next)
    }

    pub(super) fn may_have_left(&self) -> bool {
        self.may_have_returned || self.may_have_broken
    }
}
