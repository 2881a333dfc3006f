//! Follows a script as a shell runs it: branches and loops once, functions where they are called,
//! up to its `exit`; and gathers what it launches.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::rc::Rc;

use super::arithmetic;
use super::builtin::literal_of;
use super::chain::Joined;
use super::doubt::{in_doubt, may_set};
use super::item::{as_word, command_name, element_assigned, item_span, range_of};
use super::lexer::{self, Item};
use super::parse::{Kind, Node, Parser, Simple};
use super::program::{
    Launch, base_name, inner_script, is_flag, other_script, program_at, reads_document,
    starts_none, unread_launch,
};
use super::shell::{Exported, Remark, Saved, Shell, TooLong, Value};
use super::slurm;
use super::text::{Char, NO_CHAR, Text};
use super::word::{self, LexError, Word};
use super::wrapper::{Change, changed, changes, steers};
use crate::recipe::limits::{LAUNCHES_MAX, SCRIPT_DEPTH_MAX, SCRIPT_NESTING_MAX};

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
    /// What `local` hides, for each function that runs.
    pub(super) locals: Vec<Vec<(String, Saved)>>,
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
        let left = (self.may_have_returned, self.may_have_broken);
        run(self)?;
        (self.may_have_returned, self.may_have_broken) = left;
        self.functions = functions;
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
            Kind::Function { name, body } => {
                let old = self.functions.insert(name.clone(), body.clone());
                let is_other = old.is_some_and(|old| !Rc::ptr_eq(&old, body));
                if self.undecided.is_some() && is_other {
                    return Err(not_followed(range_of(at)));
                }
                Ok(Flow::Next)
            }
        }
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
        self.locals.push(Vec::new());
        let flow = self.node(&body)?;
        (self.may_have_returned, self.may_have_broken) = left;
        self.shell.is_positional_lost = was_lost;
        let locals = self.locals.pop().expect("pushed above");
        self.restore(locals);
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

    /// Any other command: kept if it launches a program of Python.
    fn program(
        &mut self,
        assignments: &[Item],
        rest: &[Item],
        command: &Simple,
    ) -> Result<(), Halt> {
        let mut remarks = Vec::new();
        let words: Vec<Word> = rest.iter().map(as_word).collect();
        let fields = self.shell.fields(&words, &mut remarks)?;
        if fields.first().is_some_and(is_flag) {
            self.bare.extend(fields);
            self.bare_remarks.extend(remarks);
            return Ok(());
        }
        let is_written = command_name(&rest[0]).is_some();
        if fields
            .first()
            .is_some_and(|first| may_set(first, is_written))
            && program_at(&fields).is_none()
        {
            return Ok(self.loses_to(item_span(&rest[0]))?);
        }
        if fields.is_empty() || starts_none(&fields) {
            return Ok(());
        }
        if words.iter().any(word::has_braces) && program_at(&fields).is_some() {
            return Err(not_followed(item_span(&rest[0])));
        }
        if let Some(inner) = inner_script(&fields) {
            return self.inner(
                &inner.script,
                inner.positional,
                &inner.before,
                assignments,
                remarks,
            );
        }
        if let (Some(document), Some(shell)) = (command.documents.first(), reads_document(&fields))
        {
            let script = match document.is_quoted {
                true => {
                    self.shell.count(document.text.0.len())?;
                    document.text.clone()
                }
                false => {
                    let word = word::document(&document.text.0)?;
                    self.shell.text(&word, &mut remarks)?
                }
            };
            return self.inner(&script, Vec::new(), &fields[..=shell], assignments, remarks);
        }
        self.launch(assignments, fields, remarks)
    }

    /// A script for a shell of its own, which sees what is exported.
    fn inner(
        &mut self,
        script: &Text,
        positional: Vec<Text>,
        before: &[Text],
        assignments: &[Item],
        remarks: Vec<Remark>,
    ) -> Result<(), Halt> {
        let at = script.0.first().copied().unwrap_or(NO_CHAR);
        self.deeper(at)?;
        let mark = self.shell.enter();
        // Another program's shell has those that are exported.
        let functions = self.functions.clone();
        let exported = &self.exported_functions;
        self.functions.retain(|name, _| exported.contains(name));
        let left = (self.may_have_returned, self.may_have_broken);
        for assignment in assignments {
            self.assign(assignment)?;
            if let Item::Assignment { name, .. } = assignment {
                self.shell.export(&name.string(), name.span());
            }
        }
        self.shell.forget_unexported()?;
        for change in changes(before) {
            self.change(change)?;
        }
        // A `$1` that the script left is its caller's, as far as none is given here.
        self.shell.positional = (!positional.is_empty()).then(|| Rc::new(positional));
        self.shell.is_positional_lost = false;
        let count = self.launches.len();
        self.commands(&script.0, Ends::Script)?;
        self.functions = functions;
        (self.may_have_returned, self.may_have_broken) = left;
        self.tell_from(count, &remarks);
        for launch in &mut self.launches[count..] {
            // `srun --nodes 2 bash -c "..."` says how many, too.
            launch.before.splice(0..0, before.iter().cloned());
        }
        self.shell.leave(mark);
        self.depth -= 1;
        Ok(())
    }

    /// A change of the environment, made to the shell that runs.
    fn change(&mut self, change: Change) -> Result<(), Halt> {
        let all = self.shell.environment()?;
        let mut kept = all.clone();
        if let Change::Put(name, value) = &change {
            let value = Value {
                words: vec![value.clone()],
                ..Value::default()
            };
            self.shell.assign(name, value, false);
            self.shell.export(&name.string(), name.span());
            return Ok(());
        }
        if let Change::Lose(at) | Change::Open(at) = &change {
            if matches!(change, Change::Lose(_)) {
                self.shell.forget_everything(at)?;
            }
            self.shell.lost.get_or_insert(at.clone());
            return Ok(());
        }
        changed(&mut kept, change);
        let is_kept = |name: &str| kept.iter().any(|variable| variable.name == name);
        for variable in all.iter().filter(|variable| !is_kept(&variable.name)) {
            self.shell.unset(&variable.name);
        }
        Ok(())
    }

    fn launch(
        &mut self,
        assignments: &[Item],
        fields: Vec<Text>,
        mut remarks: Vec<Remark>,
    ) -> Result<(), Halt> {
        let Some((program, arguments)) = program_at(&fields) else {
            self.unread.extend(unread_launch(&fields));
            self.ran.extend(other_script(&fields).map(Text::span));
            return Ok(());
        };
        let at = fields[program].span();
        if fields[..program]
            .iter()
            .any(|word| base_name(word) == "xargs")
        {
            // Its arguments come from a pipe.
            return Err(not_followed(at));
        }
        let is_mpi = |word: &Text| base_name(word).starts_with("mpi");
        let is_next = |word: &Text| word.string() == ":";
        if fields[..program].iter().any(is_mpi) && fields[arguments..].iter().any(is_next) {
            // `mpirun -n 4 a.py : -n 4 b.py`
            return Err(not_followed(at));
        }
        if self.launches.len() == LAUNCHES_MAX {
            return Err(Halt::Script(ScriptError::TooMany(at)));
        }
        // `A=1 B=$A python a.py`: each sees those before it.
        let before = self.temporary(assignments)?;
        let mut environment = self.shell.environment()?;
        self.restore(before);
        let before = fields[..program].to_vec();
        let mut lost = self.shell.lost.clone();
        let steered = environment.iter().any(steers) && program > 0;
        let steered = steered.then(|| Change::Lose(fields[0].span()));
        for change in changes(&before).into_iter().chain(steered) {
            if let Change::Lose(at) | Change::Open(at) = &change {
                lost.get_or_insert(at.clone());
            }
            changed(&mut environment, change);
        }
        remarks.extend(environment.iter().filter_map(|one| in_doubt(one, &at)));
        self.launches.push(Launch {
            reads: lost,
            program: Some(fields[program].clone()),
            before,
            arguments: fields[arguments..].to_vec(),
            environment,
            remarks,
            condition: self.undecided.clone().or(self.shell.may_have_ended.clone()),
        });
        Ok(())
    }
}

pub(super) fn not_followed(at: Range<usize>) -> Halt {
    Halt::Script(ScriptError::NotFollowed(at))
}
