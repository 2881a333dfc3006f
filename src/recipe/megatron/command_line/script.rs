//! Follows a script as a shell runs it: branches and loops once, functions where they are called,
//! up to its `exit`; and gathers what it launches.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::rc::Rc;

use super::lexer::{self, Item};
use super::parse::{Kind, Node, Parser, Simple, first_char};
use super::program::{
    Change, Launch, base_name, changed, changes, inner_script, is_flag, is_name, other_script,
    program_at, reads_document, starts_none, unread_launch,
};
use super::shell::{Exported, Remark, Saved, Shell, TooLong, Value};
use super::text::{Char, NO_CHAR, Text};
use super::word::{self, LexError, Piece, Word};
use crate::recipe::limits::{LAUNCHES_MAX, SCRIPT_DEPTH_MAX, SCRIPT_NESTING_MAX};
use crate::recipe::megatron::catalogue::{Effect, variable};

/// Everything that reading a script yields.
#[derive(Debug, Default)]
pub(super) struct Script {
    pub(super) shell: Shell,
    pub(super) functions: BTreeMap<String, Rc<Node>>,
    called: BTreeSet<String>,
    pub launches: Vec<Launch>,
    /// Words of lines that begin with a flag: a list of arguments without a launcher.
    pub bare: Vec<Text>,
    pub bare_remarks: Vec<Remark>,
    pub broken_continuations: Vec<Char>,
    /// Files that the script reads commands from, and this does not.
    pub sourced: Vec<Range<usize>>,
    /// Launchers whose program was not found.
    pub unread: Vec<Range<usize>>,
    /// Where the outermost condition begins that decides whether what is read now runs.
    pub(super) undecided: Option<Range<usize>>,
    /// A `return` on some ways to here: whether the rest of the function runs is not known.
    pub(super) may_have_returned: bool,
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
    /// Nowhere: it ends.
    Exit,
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
        for (name, value) in preset {
            let value = Value {
                words: vec![value.clone()],
                ..Value::default()
            };
            script.shell.assign(name, value, false);
        }
        match script.commands(&text.0) {
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
    pub(super) fn commands(&mut self, text: &[Char]) -> Result<Flow, Halt> {
        let lexed = lexer::tokens(text);
        self.broken_continuations
            .extend(&lexed.broken_continuations);
        let mut parser = Parser::new(&lexed);
        loop {
            match parser.next() {
                Ok(Some(nodes)) => match self.nodes(&nodes)? {
                    Flow::Exit => return Ok(Flow::Exit),
                    Flow::Next | Flow::Return => {}
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

    pub(super) fn nodes(&mut self, nodes: &[Node]) -> Result<Flow, Halt> {
        for (index, node) in nodes.iter().enumerate() {
            match self.node(node)? {
                Flow::Next => {}
                flow => return Ok(flow),
            }
            if std::mem::take(&mut self.may_have_returned) {
                let at = range_of(node.at);
                self.maybe(&at, |script| script.nodes(&nodes[index + 1..]))?;
                self.may_have_returned = true;
                break;
            }
        }
        Ok(Flow::Next)
    }

    pub(super) fn node(&mut self, node: &Node) -> Result<Flow, Halt> {
        self.deeper(node.at)?;
        let flow = match node.is_joined {
            true => {
                self.maybe(&range_of(node.at), |script| script.in_its_shell(node))?;
                Flow::Next
            }
            false => self.in_its_shell(node)?,
        };
        self.depth -= 1;
        Ok(flow)
    }

    fn in_its_shell(&mut self, node: &Node) -> Result<Flow, Halt> {
        let mark = node.is_own_shell.then(|| self.shell.enter());
        let flow = self.kind(&node.kind, node.at).map_err(|halt| match halt {
            Halt::TooLong(TooLong) => Halt::Script(ScriptError::TooLong(range_of(node.at))),
            halt => halt,
        })?;
        match mark {
            Some(mark) => {
                self.shell.leave(mark);
                Ok(Flow::Next)
            }
            None => Ok(flow),
        }
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
        self.shell.count_word()?;
        match kind {
            Kind::Simple(command) => self.simple(command),
            Kind::Brace(nodes) => self.nodes(nodes),
            Kind::Subshell(nodes) => {
                let mark = self.shell.enter();
                self.nodes(nodes)?;
                self.shell.leave(mark);
                Ok(Flow::Next)
            }
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
                if self.undecided.is_some() && old.is_some() {
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
        let arguments = self.shell.fields(arguments, &mut remarks)?;
        let count = self.launches.len();
        self.called.insert(name.to_string());
        let mut temporary = Vec::new();
        for assignment in assignments {
            if let Item::Assignment { name, .. } = assignment {
                temporary.push((name.string(), self.shell.saved(&name.string())));
                self.assign(assignment)?;
                self.shell.export(&name.string(), name.span());
            }
        }
        let own = Some(Rc::new(arguments));
        let outer = std::mem::replace(&mut self.shell.positional, own);
        let was_lost = std::mem::replace(&mut self.shell.is_positional_lost, false);
        let had_returned = std::mem::replace(&mut self.may_have_returned, false);
        self.locals.push(Vec::new());
        let flow = self.node(&body)?;
        self.may_have_returned = had_returned;
        self.shell.is_positional_lost = was_lost;
        let locals = self.locals.pop().expect("pushed above");
        for (name, saved) in temporary.into_iter().chain(locals).rev() {
            self.shell.restore(&name, saved);
        }
        self.shell.positional = outer;
        self.tell_from(count, &remarks);
        Ok(Some(match flow {
            Flow::Exit => Flow::Exit,
            Flow::Next | Flow::Return => Flow::Next,
        }))
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
        if fields.is_empty() || starts_none(&fields) {
            return Ok(());
        }
        if let Some(inner) = inner_script(&fields) {
            let before = &fields[..inner.shell];
            return self.inner(
                &inner.script,
                inner.positional,
                before,
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
            return self.inner(&script, Vec::new(), &fields[..shell], assignments, remarks);
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
        self.commands(&script.0)?;
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
            self.sourced.extend(other_script(&fields).map(Text::span));
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
        if self.launches.len() == LAUNCHES_MAX {
            return Err(Halt::Script(ScriptError::TooMany(at)));
        }
        let mut environment = self.shell.environment()?;
        for assignment in assignments {
            if let Item::Assignment { name, value, .. } = assignment {
                let text = self.shell.text(value, &mut remarks)?;
                changed(&mut environment, Change::Put(name.clone(), text));
            }
        }
        let before = fields[..program].to_vec();
        for change in changes(&before) {
            changed(&mut environment, change);
        }
        remarks.extend(environment.iter().filter_map(|one| in_doubt(one, &at)));
        self.launches.push(Launch {
            program: Some(fields[program].clone()),
            before,
            arguments: fields[arguments..].to_vec(),
            environment,
            remarks,
            condition: self.undecided.clone(),
        });
        Ok(())
    }
}

pub(super) fn not_followed(at: Range<usize>) -> Halt {
    Halt::Script(ScriptError::NotFollowed(at))
}

/// A variable whose value a branch decides, and from which bits may follow.
fn in_doubt(exported: &Exported, used: &Range<usize>) -> Option<Remark> {
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

/// `NAME[index]=value`: one element, whose array is not known from then on.
pub(super) fn element_assigned(item: &Item) -> Option<(String, Range<usize>)> {
    let Item::Word(word) = item else { return None };
    let Some(Piece::Literal {
        text,
        is_quoted: false,
    }) = word.first()
    else {
        return None;
    };
    let (name, _) = text.split_once('[')?;
    is_name(&name).then(|| (name.string(), name.span()))
}

/// Where a character stands; nowhere for [`NO_CHAR`].
pub(super) fn range_of((c, at): Char) -> Range<usize> {
    let length = if c == NO_CHAR.0 { 0 } else { c.len_utf8() };
    at as usize..at as usize + length
}

/// An item behind a command's name is a word, whatever it looks like.
pub(super) fn as_word(item: &Item) -> Word {
    let literal = |chars: Vec<Char>| Piece::Literal {
        text: Text(chars),
        is_quoted: false,
    };
    let named = |name: &Text, appends: bool| {
        let mut chars = name.0.clone();
        let at = name.span().end as u32;
        chars.extend(appends.then_some(('+', at)));
        chars.push(('=', at + u32::from(appends)));
        literal(chars)
    };
    match item {
        Item::Word(word) => word.clone(),
        Item::Assignment {
            name,
            appends,
            value,
        } => {
            let mut word = vec![named(name, *appends)];
            word.extend(value.iter().cloned());
            word
        }
        Item::Array { name, appends, .. } => vec![named(name, *appends)],
        Item::Arithmetic(text) => vec![Piece::Literal {
            text: text.clone(),
            is_quoted: true,
        }],
    }
}

pub(super) fn item_span(item: &Item) -> Range<usize> {
    range_of(first_char(item))
}

/// The name of a command, where it is written out.
pub(super) fn command_name(item: &Item) -> Option<String> {
    match item {
        Item::Word(word) => word::literal_word(word),
        Item::Assignment { .. } | Item::Array { .. } | Item::Arithmetic(_) => None,
    }
}
