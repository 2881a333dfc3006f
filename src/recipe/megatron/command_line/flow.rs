//! Branches and loops: what may run is followed, and what it changes is not known behind it.

use std::collections::BTreeSet;
use std::ops::Range;

use super::branch::{Fork, Way};
use super::chain::{Joined, only_items};
use super::item::{as_word, command_name};
use super::lexer::Item;
use super::parse::{Kind, Node, Other};
use super::program::Launch;
use super::script::{Flow, Halt, Script, not_followed};
use super::shell::{Remark, Taken, Value};
use super::text::Text;
use super::word::{Word, literal_word};

/// Rounds of a loop until nothing more changes: a variable follows from another in each.
const ROUNDS_MAX: usize = 8;

impl Script {
    /// What may run, or may not.
    pub(super) fn maybe(
        &mut self,
        at: &Range<usize>,
        run: impl FnOnce(&mut Self) -> Result<Flow, Halt>,
    ) -> Result<(), Halt> {
        let fork = self.shell.fork();
        let mut ways = Vec::new();
        self.way(&fork, &mut ways, at, run)?;
        self.join(fork, &ways, true, at)
    }

    /// One of several ways. Behind one that exits nothing runs.
    fn way(
        &mut self,
        fork: &Fork,
        ways: &mut Vec<Way>,
        at: &Range<usize>,
        run: impl FnOnce(&mut Self) -> Result<Flow, Halt>,
    ) -> Result<Flow, Halt> {
        let outer = self.undecided.clone();
        self.undecided.get_or_insert(at.clone());
        let flow = run(self)?;
        self.undecided = outer;
        let way = self.shell.end_way(fork);
        match flow {
            Flow::Exit => {}
            Flow::Return => {
                self.may_have_returned = true;
                ways.push(way);
            }
            Flow::Break => {
                self.may_have_broken = true;
                ways.push(way);
            }
            Flow::Next => ways.push(way),
        }
        Ok(flow)
    }

    /// One of several ways, or none where `stays` says so.
    pub(super) fn any_of(
        &mut self,
        all: &[usize],
        stays: bool,
        at: &Range<usize>,
        run: impl Fn(&mut Self, usize) -> Result<Flow, Halt>,
    ) -> Result<Flow, Halt> {
        let fork = self.shell.fork();
        let mut ways = Vec::new();
        for one in all {
            self.way(&fork, &mut ways, at, |script| run(script, *one))?;
        }
        let is_end = ways.is_empty() && !stays;
        self.join(fork, &ways, stays, at)?;
        Ok(if is_end { Flow::Exit } else { Flow::Next })
    }

    fn join(
        &mut self,
        fork: Fork,
        ways: &[Way],
        stays: bool,
        at: &Range<usize>,
    ) -> Result<(), Halt> {
        match self.shell.join(fork, ways, stays, at) {
            true => Ok(()),
            false => Err(not_followed(at.clone())),
        }
    }

    /// `if`: one body, where what decides is known; else any of them.
    pub(super) fn branches(
        &mut self,
        condition: &[Node],
        others: &[Other],
        is_exhaustive: bool,
        at: &Range<usize>,
    ) -> Result<Flow, Halt> {
        let is_condition = |other: &Other| matches!(other, Other::Condition(_));
        let end = others.iter().position(is_condition).unwrap_or(others.len());
        let (bodies, rest) = others.split_at(end);
        // Its words are expanded once: what they assign is seen by what follows.
        let decided = self.decided(condition)?;
        if decided.is_none() {
            match self.nodes(condition)? {
                Flow::Next => {}
                flow => return Ok(flow),
            }
        }
        let otherwise = |script: &mut Self| match rest {
            [Other::Condition(condition), others @ ..] => {
                script.depth += 1;
                if script.depth > crate::recipe::limits::SCRIPT_NESTING_MAX * 2 {
                    return Err(not_followed(at.clone()));
                }
                let flow = script.branches(condition, others, is_exhaustive, at);
                script.depth -= 1;
                flow
            }
            _ => match bodies.get(1) {
                Some(Other::Body(body)) => script.nodes(body),
                _ => Ok(Flow::Next),
            },
        };
        match (decided, bodies.first()) {
            (Some(true), Some(Other::Body(body))) => return self.nodes(body),
            (Some(false), _) => return otherwise(self),
            _ => {}
        }
        let fork = self.shell.fork();
        let mut ways = Vec::new();
        for body in bodies {
            if let Other::Body(body) = body {
                self.way(&fork, &mut ways, at, |script| script.nodes(body))?;
            }
        }
        if !rest.is_empty() {
            self.way(&fork, &mut ways, at, otherwise)?;
        }
        let stays = !is_exhaustive && rest.is_empty();
        let is_end = ways.is_empty() && !stays;
        self.join(fork, &ways, stays, at)?;
        Ok(if is_end { Flow::Exit } else { Flow::Next })
    }

    /// `while`, `until`: a first round, which may not be, and any later one.
    pub(super) fn repeated(
        &mut self,
        condition: &[Node],
        body: &[Node],
        is_while: bool,
        at: &Range<usize>,
    ) -> Result<Flow, Halt> {
        if is_while && self.asks_for_arguments(condition) {
            self.without_arguments.push(at.clone());
            return Ok(Flow::Next);
        }
        let outer = self.undecided.clone();
        self.undecided.get_or_insert(at.clone());
        self.rounds(at, true, |script, _| match script.nodes(condition)? {
            Flow::Next => script.nodes(body),
            flow => Ok(flow),
        })?;
        self.undecided = outer;
        Ok(Flow::Next)
    }

    /// A first round of a loop, and, where there may be `several`, a later one: whatever a round
    /// changes is not known in it. Rounds are added until the last changes nothing more.
    fn rounds(
        &mut self,
        at: &Range<usize>,
        several: bool,
        mut round: impl FnMut(&mut Self, bool) -> Result<Flow, Halt>,
    ) -> Result<Flow, Halt> {
        let had_broken = std::mem::replace(&mut self.may_have_broken, false);
        let outer = self.undecided.clone();
        let fork = self.shell.fork();
        let start = (self.launches.len(), self.bare.len());
        let first = round(self, true)?;
        self.may_have_returned |= first == Flow::Return;
        let mut ways = vec![self.shell.end_way(&fork)];
        let told = (self.launches.len(), self.bare.len());
        self.undecided.get_or_insert(at.clone());
        let mut is_stable = !several;
        for _ in 0..ROUNDS_MAX {
            if is_stable {
                break;
            }
            let before = changed_by(&ways);
            self.shell.forget_rounds(&ways, at);
            let flow = round(self, false)?;
            self.may_have_returned |= flow == Flow::Return;
            let way = self.shell.end_way(&fork);
            if flow != Flow::Exit {
                ways.push(way);
            }
            is_stable = changed_by(&ways) == before;
        }
        if !is_stable {
            return Err(not_followed(at.clone()));
        }
        // What a later round launches, or says, was launched and said in the first.
        let spans: Vec<_> = self.launches[start.0..told.0]
            .iter()
            .map(Launch::at)
            .collect();
        let later = self.launches.split_off(told.0);
        let is_new = |launch: &Launch| !spans.contains(&launch.at());
        self.launches.extend(later.into_iter().filter(is_new));
        self.bare.truncate(told.1);
        self.undecided = outer;
        self.may_have_broken = had_broken;
        self.join(fork, &ways, true, at)?;
        Ok(first)
    }

    /// `while [ $# -gt 0 ]`, `while getopts ...`: false where the script has no arguments.
    fn asks_for_arguments(&self, condition: &[Node]) -> bool {
        let given = self.shell.positional.as_ref();
        if given.is_some_and(|words| !words.is_empty()) || self.shell.is_positional_lost {
            return false;
        }
        let Some(items) = only_command(condition) else {
            return false;
        };
        let literal = |item: &Item| literal_word(&as_word(item));
        let words: Vec<Option<String>> = items.iter().map(literal).collect();
        let words: Vec<&str> = words.iter().map(|w| w.as_deref().unwrap_or("$")).collect();
        matches!(
            words.as_slice(),
            ["[" | "[[", "$#", "-gt" | "-ne", "0", "]" | "]]"]
                | ["[" | "[[", "$#", "-ge", "1", "]" | "]]"]
                | ["test", "$#", "-gt" | "-ne", "0"]
                | ["(($#))" | "(( $# ))" | "(($#>0))" | "(( $# > 0 ))"]
                | ["getopts", _, _]
        )
    }

    /// The first round of a loop.
    pub(super) fn loop_over(
        &mut self,
        variable: Option<&Text>,
        values: &[Word],
        body: &[Node],
        at: &Range<usize>,
    ) -> Result<Flow, Halt> {
        let mut remarks = Vec::new();
        let values = self.shell.fields(values, &mut remarks)?;
        let is_known = |word: &Text| {
            let mut chars = word.0.iter().map(|(c, _)| *c);
            !chars.any(|c| matches!(c, '$' | '`' | '{' | '*' | '?' | '['))
        };
        // Where a round may be left, the first one may not be the one that launches.
        let first = values
            .first()
            .filter(|word| is_known(word) && !leaves(body));
        let several = first.is_none() || values.len() > 1;
        let outer = self.undecided.clone();
        if first.is_none() {
            self.undecided.get_or_insert(at.clone());
        }
        let flow = self.rounds(at, several, |script, is_first| {
            if let Some(name) = variable {
                script.take_value(name, first.filter(|_| is_first), several, &remarks);
            }
            script.nodes(body)
        })?;
        self.undecided = outer;
        // A round that surely runs, and ends the script.
        let ends = flow == Flow::Exit && first.is_some();
        Ok(if ends { Flow::Exit } else { Flow::Next })
    }

    /// The variable of a loop, at the value of its first round, or of any.
    fn take_value(&mut self, name: &Text, value: Option<&Text>, several: bool, remarks: &[Remark]) {
        let Some(value) = value else {
            return self.shell.forget(&name.string(), name.span());
        };
        let value = Value {
            words: vec![value.clone()],
            conditional: several.then(|| (name.span(), Taken::FirstRound)),
            remarks: remarks.to_vec(),
            ..Value::default()
        };
        self.shell.assign(name, value, false);
    }

    /// `true`, or `$DEBUG` that holds it.
    fn constant(&mut self, words: &[Word]) -> Result<Option<bool>, Halt> {
        let mut remarks = Vec::new();
        let fields = self.shell.fields(words, &mut remarks)?;
        let [only] = fields.as_slice() else {
            return Ok(None);
        };
        let name = only.string();
        Ok(match name.as_str() {
            _ if remarks.iter().any(Remark::is_doubt) || self.is_function(&name) => None,
            "true" | ":" => Some(true),
            "false" => Some(false),
            _ => None,
        })
    }

    /// Whether a condition holds, where all of it is known: `[ "$TP" -gt 1 ]`, `[[ $A == b ]]`.
    /// Of several behind each other, `a || b`, as far as the shell runs them.
    pub(super) fn decided(&mut self, condition: &[Node]) -> Result<Option<bool>, Halt> {
        let Some((first, others)) = condition.split_first() else {
            return Ok(None);
        };
        let are_joined = others
            .iter()
            .all(|node| matches!(node.joined, Joined::And | Joined::Or));
        if first.joined != Joined::No || !are_joined {
            return Ok(None);
        }
        let mut holds = self.decided_one(first)?;
        for node in others {
            holds = match (holds, node.joined) {
                (None, _) => return Ok(None),
                (Some(true), Joined::And) | (Some(false), Joined::Or) => self.decided_one(node)?,
                (known, _) => known,
            };
        }
        Ok(holds)
    }

    fn decided_one(&mut self, node: &Node) -> Result<Option<bool>, Halt> {
        let Some(items) = only_items(node) else {
            return Ok(None);
        };
        if let [Item::Arithmetic(text)] = items {
            return Ok(self.shell.holds(text));
        }
        let words: Vec<Word> = items.iter().map(as_word).collect();
        if words.len() == 1 {
            return self.constant(&words);
        }
        let first = words.first().and_then(literal_word).unwrap_or_default();
        if !matches!(first.as_str(), "[" | "[[" | "test") || self.is_function(&first) {
            return Ok(None);
        }
        let mut remarks = Vec::new();
        let fields = match first == "[[" {
            // There no word is split.
            true => {
                let mut texts = Vec::new();
                for word in &words {
                    texts.push(self.shell.text(word, &mut remarks)?);
                }
                texts
            }
            false => self.shell.fields(&words, &mut remarks)?,
        };
        // A value in doubt, or of the first round only, decides nothing.
        if remarks.iter().any(Remark::is_doubt) {
            return Ok(None);
        }
        let texts: Vec<String> = fields.iter().map(Text::string).collect();
        let mut texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        if first != "test" {
            texts.pop();
        }
        let is_plain = |text: &&str| {
            let is_sign = |c| matches!(c, '$' | '`' | '*' | '?' | '[' | '\\' | '(' | '{' | '~');
            !text.contains(is_sign)
        };
        if !texts.iter().skip(1).all(is_plain)
            || texts.len() != words.len() - usize::from(first != "test")
        {
            return Ok(None);
        }
        Ok(match texts[1..] {
            ["-n", text] => Some(!text.is_empty()),
            ["-z", text] => Some(text.is_empty()),
            [a, operator, b] => compared(a, operator, b),
            _ => None,
        })
    }
}

/// Whether a `break` or `continue` stands in a loop's body.
fn leaves(body: &[Node]) -> bool {
    let of_other = |other: &Other| match other {
        Other::Body(nodes) | Other::Condition(nodes) => leaves(nodes),
    };
    body.iter().any(|node| match &node.kind {
        Kind::Simple(command) => {
            let name = command.items.first().and_then(command_name);
            // What `eval` runs is not looked into.
            name.is_some_and(|name| matches!(name.as_str(), "break" | "continue" | "eval"))
        }
        Kind::Brace(nodes) | Kind::Subshell(nodes) => leaves(nodes),
        Kind::Branches { first, others, .. } => leaves(first) || others.iter().any(of_other),
        Kind::Case(case) => case.clauses.iter().any(|clause| leaves(&clause.body)),
        Kind::Repeated { first, body, .. } => leaves(first) || leaves(body),
        Kind::Loop { body, .. } => leaves(body),
        Kind::Function { .. } => false,
    })
}

/// The variables that ways change.
fn changed_by(ways: &[Way]) -> BTreeSet<String> {
    ways.iter().flat_map(Way::names).cloned().collect()
}

/// The words of a condition that is one command.
fn only_command(condition: &[Node]) -> Option<&[Item]> {
    match condition {
        [node] if node.joined == Joined::No => only_items(node),
        _ => None,
    }
}

fn compared(a: &str, operator: &str, b: &str) -> Option<bool> {
    match operator {
        "=" | "==" => return Some(a == b),
        "!=" => return Some(a != b),
        _ => {}
    }
    let number = |text: &str| {
        let is_one = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        // `[[ 010 -eq 8 ]]` holds.
        let is_plain = is_one && (text == "0" || !text.starts_with('0'));
        is_plain.then(|| text.parse::<i64>().ok()).flatten()
    };
    let (a, b) = (number(a)?, number(b)?);
    match operator {
        "-eq" => Some(a == b),
        "-ne" => Some(a != b),
        "-gt" => Some(a > b),
        "-ge" => Some(a >= b),
        "-lt" => Some(a < b),
        "-le" => Some(a <= b),
        _ => None,
    }
}
