//! What a command starts: a program of Python, or a shell with a script of its own.

use std::ops::Range;
use std::rc::Rc;

use super::doubt::{in_doubt, may_set};
use super::item::{as_word, command_name, item_span};
use super::launcher::{Leads, leads};
use super::lexer::Item;
use super::parse::Simple;
use super::program::{
    Launch, base_name, inner_script, is_flag, other_script, program_at, reads_document,
    starts_none, unread_launch,
};
use super::script::{Ends, Halt, Script, ScriptError, not_followed};
use super::shell::{Remark, Value};
use super::text::{NO_CHAR, Text};
use super::word::{self, Word};
use super::wrapper::{Change, changed, changes, steers};
use crate::recipe::limits::LAUNCHES_MAX;

impl Script {
    /// Any other command: kept if it launches a program of Python.
    pub(super) fn program(
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
        if let (Some(handler), Some("kill")) =
            (&self.handler, fields.first().map(base_name).as_deref())
        {
            // The script may mean itself.
            return Err(not_followed(handler.clone()));
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
        let (frames, temporaries) = (
            std::mem::take(&mut self.frames),
            std::mem::take(&mut self.temporaries),
        );
        self.check_inner_shell(before)?;
        let left = (self.may_have_returned, self.may_have_broken);
        for assignment in assignments {
            self.assign(assignment)?;
            if let Item::Assignment { name, .. } = assignment {
                self.shell.export(&name.string(), name.span());
            }
        }
        self.shell.exports_all = false;
        if self.shell.is_exported("BASH_ENV") {
            // bash reads the file that it names.
            self.loses_to(script.span())?;
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
        (self.frames, self.temporaries) = (frames, temporaries);
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

    /// Options of a shell by which the same words are other commands: `bash -ac`.
    fn check_inner_shell(&self, before: &[Text]) -> Result<(), Halt> {
        let is_shell = |word: &Text| matches!(base_name(word).as_str(), "sh" | "bash");
        let options = before.iter().skip_while(|word| !is_shell(word)).skip(1);
        for word in options {
            let option = word.string();
            // A login shell's, and an interactive one's, are looked at with the wrappers.
            let letters = option.strip_prefix('-').unwrap_or("?");
            let is_long = matches!(option.as_str(), "--login" | "--rcfile" | "--init-file");
            if !is_long && letters.chars().any(|letter| !"ceuxslivh".contains(letter)) {
                return Err(not_followed(word.span()));
            }
        }
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
        let unknown = launched(&fields, program, arguments)?;
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
        let unknown = unknown.map(Change::Lose);
        for change in changes(&before).into_iter().chain(steered).chain(unknown) {
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

/// Whether the program is what the words before it start. Where one of these is not known, it may
/// be any option: where it stands.
fn launched(
    fields: &[Text],
    program: usize,
    arguments: usize,
) -> Result<Option<Range<usize>>, Halt> {
    let at = fields[program].span();
    let is_piped = |word: &Text| base_name(word) == "xargs";
    let is_mpi = |word: &Text| base_name(word).starts_with("mpi");
    let is_next = |word: &Text| word.string() == ":";
    let before = &fields[..program];
    let has_several = before.iter().any(is_mpi) && fields[arguments..].iter().any(is_next);
    // Its arguments come from a pipe; `mpirun -n 4 a.py : -n 4 b.py`.
    if before.iter().any(is_piped) || has_several {
        return Err(not_followed(at));
    }
    match leads(&fields[..=program]) {
        None => Ok(None),
        Some(Leads::To(index)) if index == program => Ok(None),
        Some(Leads::Open(index)) => Ok(Some(fields[index].span())),
        Some(Leads::To(index) | Leads::Astray(index)) => Err(not_followed(fields[index].span())),
        Some(Leads::Nowhere) => Err(not_followed(at)),
    }
}
