//! Follows a script as a shell runs it: branches and loops once, functions where they are called,
//! up to its `exit`; and gathers what it launches.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::rc::Rc;

use super::arithmetic;
use super::builtin::literal_of;
use super::chain::Joined;
use super::frame::Frame;
use super::item::{element_assigned, item_span, range_of};
use super::lexer::{self, Item};
use super::parse::{Kind, Node, Parser, Simple};
use super::program::Launch;
use super::shell::{Exported, Remark, Saved, Shell, TooLong, Value};
use super::slurm;
use super::text::{Char, Text};
use super::word::{self, LexError, Word};
use crate::recipe::limits::{SCRIPT_DEPTH_MAX, SCRIPT_NESTING_MAX};

/// Everything that reading a script yields.
#[derive(Debug, Default)]
pub(super) struct Script {
    pub(super) shell: Shell,
    pub(super) functions: BTreeMap<String, Rc<Node>>,
    /// `export -f`
    pub(super) exported_functions: BTreeSet<String>,
    called: BTreeSet<String>,
    pub launches: Vec<Launch>,
    /// Words of lines that begin with a flag: a list of arguments without a launcher.
    pub bare: Vec<Text>,
    pub bare_remarks: Vec<Remark>,
    pub broken_continuations: Vec<Char>,
    /// Commands that the script runs in its own shell, and that are not read here.
    pub sourced: Vec<Range<usize>>,
    /// Scripts that it runs beside itself.
    pub ran: Vec<Range<usize>>,
    /// Launchers whose program was not found.
    pub unread: Vec<Range<usize>>,
    /// Where the outermost condition begins that decides whether what is read now runs.
    pub(super) undecided: Option<Range<usize>>,
    /// A `return` on some ways to here: whether the rest of the function runs is not known.
    pub(super) may_have_returned: bool,
    /// As [`Script::may_have_returned`], of a `break` or `continue` and the rest of the round.
    pub(super) may_have_broken: bool,
    /// Loops over the script's own arguments: there are none.
    pub without_arguments: Vec<Range<usize>>,
    /// Functions that run, the innermost last.
    pub(super) frames: Vec<Frame>,
    /// Names that stand before the calls of functions that run.
    pub(super) temporaries: Vec<String>,
    /// Functions that are defined on some ways to here only.
    maybe_functions: BTreeSet<String>,
    /// Where a signal's handler was set that may change variables.
    pub(super) handler: Option<Range<usize>>,
    /// Commands within commands that run.
    pub(super) depth: usize,
}

#[derive(Debug)]
pub(super) enum ScriptError {
    Lex(LexError),
    /// Variables grow beyond the limit here.
    TooLong(Range<usize>),
    /// `sh -c` within `sh -c`, or a function that calls itself.
    TooDeep(Range<usize>),
    /// More launches than anyone writes.
    TooMany(Range<usize>),
    /// What this does to the script is not followed, and anything may hang on it.
    NotFollowed(Range<usize>),
}

/// Where a script goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    Next,
    /// Behind the function that runs.
    Return,
    /// Behind the round of the loop that runs.
    Break,
    /// Nowhere: it ends.
    Exit,
}

/// Where a text of commands may end otherwise than by its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ends {
    /// A script: a `return` in it is none.
    Script,
    /// The words of `eval`, which are part of what runs.
    Evaluated,
}

pub(super) enum Halt {
    TooLong(TooLong),
    Script(ScriptError),
}

impl From<TooLong> for Halt {
    fn from(error: TooLong) -> Self {
        Halt::TooLong(error)
    }
}

impl From<LexError> for Halt {
    fn from(error: LexError) -> Self {
        Halt::Script(ScriptError::Lex(error))
    }
}

impl Script {
    /// `preset` are variables that Slurm sets: a name and a value each.
    pub fn read(text: &Text, preset: &[(Text, Text)]) -> Result<Script, ScriptError> {
        let mut script = Script::default();
        script.shell.is_batch = slurm::is_batch(text);
        for (name, value) in preset {
            let value = Value {
                words: vec![value.clone()],
                ..Value::default()
            };
            script.shell.assign(name, value, false);
        }
        if let Some(at) = slurm::environment(text) {
            script
                .loses_to(at)
                .map_err(|TooLong| ScriptError::TooLong(text.span()))?;
        }
        match script.commands(&text.0, Ends::Script) {
            Ok(_) => Ok(script),
            Err(Halt::Script(error)) => Err(error),
            Err(Halt::TooLong(TooLong)) => Err(ScriptError::TooLong(text.span())),
        }
    }

    /// Exported variables at the end of the script.
    pub fn environment(&mut self) -> Vec<Exported> {
        self.shell.environment().unwrap_or_default()
    }

    /// Functions that nothing calls.
    pub fn uncalled(&self) -> impl Iterator<Item = (&str, Range<usize>)> {
        let is_uncalled = |(name, _): &(&String, &Rc<Node>)| !self.called.contains(*name);
        let functions = self.functions.iter().filter(is_uncalled);
        functions.map(|(name, body)| (name.as_str(), range_of(body.at)))
    }

    /// Reads and follows a text, one whole command after the other.
    pub(super) fn commands(&mut self, text: &[Char], ends: Ends) -> Result<Flow, Halt> {
        let lexed = lexer::tokens(text);
        self.broken_continuations
            .extend(&lexed.broken_continuations);
        let mut parser = Parser::new(&lexed);
        loop {
            match parser.next() {
                Ok(Some(nodes)) => match self.nodes(&nodes)? {
                    Flow::Exit => return Ok(Flow::Exit),
                    flow @ (Flow::Return | Flow::Break) if ends == Ends::Evaluated => {
                        return Ok(flow);
                    }
                    Flow::Next | Flow::Return | Flow::Break => match ends {
                        Ends::Evaluated if self.may_have_left() => {
                            return Err(not_followed(range_of(nodes[0].at)));
                        }
                        Ends::Evaluated => {}
                        Ends::Script => {
                            (self.may_have_returned, self.may_have_broken) = (false, false);
                        }
                    },
                },
                Ok(None) => break,
                // What the lexer could not read is why something has no end.
                Err(error) => return Err(lexed.error.unwrap_or(error).into()),
            }
        }
        match lexed.error {
            Some(error) => Err(error.into()),
            None => Ok(Flow::Next),
        }
    }

    pub(super) fn node(&mut self, node: &Node) -> Result<Flow, Halt> {
        self.deeper(node.at)?;
        let flow = match node.joined {
            Joined::And | Joined::Or => {
                self.maybe(&range_of(node.at), |script| script.in_its_shell(node))?;
                Flow::Next
            }
            Joined::No | Joined::Soft => self.in_its_shell(node)?,
        };
        self.depth -= 1;
        Ok(flow)
    }

    pub(super) fn in_its_shell(&mut self, node: &Node) -> Result<Flow, Halt> {
        if node.is_own_shell {
            return self.in_own_shell(|script| script.kind_at(node));
        }
        self.kind_at(node)
    }

    /// What runs in a shell of its own leaves nothing behind.
    fn in_own_shell(
        &mut self,
        run: impl FnOnce(&mut Self) -> Result<Flow, Halt>,
    ) -> Result<Flow, Halt> {
        let mark = self.shell.enter();
        let functions = self.functions.clone();
        let maybe = self.maybe_functions.clone();
        let exported = self.exported_functions.clone();
        let left = (self.may_have_returned, self.may_have_broken);
        run(self)?;
        (self.may_have_returned, self.may_have_broken) = left;
        self.functions = functions;
        self.maybe_functions = maybe;
        self.exported_functions = exported;
        self.shell.leave(mark);
        Ok(Flow::Next)
    }

    fn kind_at(&mut self, node: &Node) -> Result<Flow, Halt> {
        let flow = self.kind(&node.kind, node.at).map_err(|halt| match halt {
            Halt::TooLong(TooLong) => Halt::Script(ScriptError::TooLong(range_of(node.at))),
            halt => halt,
        })?;
        Ok(flow)
    }

    pub(super) fn deeper(&mut self, at: Char) -> Result<(), Halt> {
        self.depth += 1;
        match self.depth > SCRIPT_DEPTH_MAX + SCRIPT_NESTING_MAX {
            true => Err(Halt::Script(ScriptError::TooDeep(range_of(at)))),
            false => Ok(()),
        }
    }

    pub(super) fn shallower(&mut self) {
        self.depth -= 1;
    }

    fn kind(&mut self, kind: &Kind, at: Char) -> Result<Flow, Halt> {
        // Each command counts as a word, however often its function is called.
        self.shell.count_words(1)?;
        match kind {
            Kind::Simple(command) => self.simple(command),
            Kind::Brace(nodes) => self.nodes(nodes),
            Kind::Subshell(nodes) => self.in_own_shell(|script| script.nodes(nodes)),
            Kind::Case(case) => self.case(case, &range_of(at)),
            Kind::Branches {
                first,
                others,
                is_exhaustive,
            } => self.branches(first, others, *is_exhaustive, &range_of(at)),
            Kind::Repeated {
                first,
                body,
                is_while,
            } => self.repeated(first, body, *is_while, &range_of(at)),
            Kind::Loop {
                variable,
                values,
                body,
            } => self.loop_over(variable.as_ref(), values, body, &range_of(at)),
            Kind::Function { name, body } => self.define(name, body, at),
        }
    }

    fn define(&mut self, name: &str, body: &Rc<Node>, at: Char) -> Result<Flow, Halt> {
        // Commands that are taken for the shell's own before anything is run.
        const TAKEN: [&str; 10] = [
            ":", "[", "cd", "declare", "echo", "export", "false", "set", "test", "true",
        ];
        let old = self.functions.insert(name.to_string(), body.clone());
        let is_other = old.as_ref().is_some_and(|old| !Rc::ptr_eq(old, body));
        if (self.undecided.is_some() && is_other) || (TAKEN.contains(&name) && name != "cd") {
            return Err(not_followed(range_of(at)));
        }
        match (self.undecided.is_some(), old.is_some()) {
            (true, false) => drop(self.maybe_functions.insert(name.to_string())),
            (true, true) => {}
            (false, _) => drop(self.maybe_functions.remove(name)),
        }
        if self.shell.exports_all {
            self.exported_functions.insert(name.to_string());
        }
        Ok(Flow::Next)
    }

    pub(super) fn simple(&mut self, command: &Simple) -> Result<Flow, Halt> {
        let is_assignment =
            |item: &&Item| matches!(item, Item::Assignment { .. } | Item::Array { .. });
        let assignment_count = command.items.iter().take_while(is_assignment).count();
        let (assignments, rest) = command.items.split_at(assignment_count);
        let Some(first) = rest.first() else {
            for assignment in assignments {
                self.assign(assignment)?;
            }
            return Ok(Flow::Next);
        };
        self.assigned_before(assignments)?;
        if let Some((name, at)) = element_assigned(first) {
            for assignment in command.items.iter().filter(is_assignment) {
                self.assign(assignment)?;
            }
            let others = rest.iter().filter_map(element_assigned);
            for (name, at) in others.chain([(name, at)]) {
                self.shell.forget(&name, at);
            }
            // `A[N++]=1`
            for item in rest {
                let text = literal_of(item);
                let index = text.split_once(']').unwrap_or_default().0;
                if arithmetic::assigns(&index.string()) {
                    self.loses_to(item_span(item))?;
                }
            }
            return Ok(Flow::Next);
        }
        if let Some(flow) = self.builtin(first, &rest[1..], assignments)? {
            return Ok(flow);
        }
        self.program(assignments, rest, command)?;
        Ok(Flow::Next)
    }

    /// `A=${B:=1} command`: `B` stays assigned, whatever the command is.
    fn assigned_before(&mut self, assignments: &[Item]) -> Result<(), Halt> {
        let before = self.temporary(assignments)?;
        self.restore(before);
        Ok(())
    }

    pub(super) fn is_function(&self, name: &str) -> bool {
        self.functions.contains_key(name)
    }

    /// Runs a function of the script, if `name` is one.
    pub(super) fn call(
        &mut self,
        name: &str,
        arguments: &[Word],
        assignments: &[Item],
    ) -> Result<Option<Flow>, Halt> {
        let Some(body) = self.functions.get(name).cloned() else {
            return Ok(None);
        };
        if self.maybe_functions.contains(name) {
            // Another command of this name, or none, on the other ways.
            return Err(not_followed(range_of(body.at)));
        }
        let mut remarks = Vec::new();
        let has_braces = arguments.iter().any(word::has_braces);
        let arguments = self.shell.fields(arguments, &mut remarks)?;
        let count = self.launches.len();
        self.called.insert(name.to_string());
        let temporary = self.temporary(assignments)?;
        let own = Some(Rc::new(arguments));
        let outer = std::mem::replace(&mut self.shell.positional, own);
        let was_lost = std::mem::replace(&mut self.shell.is_positional_lost, has_braces);
        let left = (self.may_have_returned, self.may_have_broken);
        (self.may_have_returned, self.may_have_broken) = (false, false);
        let outer_names = self.temporaries.len();
        self.temporaries
            .extend(temporary.iter().map(|(name, _)| name.clone()));
        self.enter_function();
        let flow = self.node(&body)?;
        (self.may_have_returned, self.may_have_broken) = left;
        self.shell.is_positional_lost = was_lost;
        self.leave_function();
        self.temporaries.truncate(outer_names);
        self.restore(temporary);
        self.shell.positional = outer;
        self.tell_from(count, &remarks);
        Ok(Some(match flow {
            Flow::Exit => Flow::Exit,
            Flow::Next | Flow::Return | Flow::Break => Flow::Next,
        }))
    }

    /// `A=1 f`: assigned and exported while the command runs; what the names were before.
    pub(super) fn temporary(&mut self, assignments: &[Item]) -> Result<Vec<(String, Saved)>, Halt> {
        let mut before = Vec::new();
        for assignment in assignments {
            if let Item::Assignment { name, .. } = assignment {
                before.push((name.string(), self.shell.saved(&name.string())));
                self.assign(assignment)?;
                self.shell.export(&name.string(), name.span());
            }
        }
        Ok(before)
    }

    /// Puts names back, the last first.
    pub(super) fn restore(&mut self, before: Vec<(String, Saved)>) {
        for (name, saved) in before.into_iter().rev() {
            self.shell.restore(&name, saved);
        }
    }

    /// What is known of a command's words holds for what it launches.
    pub(super) fn tell_from(&mut self, first: usize, remarks: &[Remark]) {
        for launch in &mut self.launches[first..] {
            launch.remarks.extend(remarks.iter().cloned());
        }
    }
}

pub(super) fn not_followed(at: Range<usize>) -> Halt {
    Halt::Script(ScriptError::NotFollowed(at))
}
