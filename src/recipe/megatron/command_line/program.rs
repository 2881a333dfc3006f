//! One command's words: whether they start a program of Python, with which arguments, and what
//! stands before it changes in the environment.

use std::ops::Range;

use super::shell::{Exported, Remark};
use super::text::Text;

/// A command that starts a Python program, with its words.
#[derive(Debug)]
pub(super) struct Launch {
    /// The program's file, or the module behind `-m`; `None` for arguments without a program.
    pub program: Option<Text>,
    /// `torchrun` and its options.
    pub before: Vec<Text>,
    pub arguments: Vec<Text>,
    /// Variables assigned on the command's own line, and those exported before.
    pub environment: Vec<Exported>,
    pub remarks: Vec<Remark>,
    /// Where commands ran before it that are not read here: its environment may hold anything.
    pub reads: Option<Range<usize>>,
    /// Where the condition begins under which it runs.
    pub condition: Option<Range<usize>>,
}

impl Launch {
    /// Where it stands: at its program, or its first argument.
    pub fn at(&self) -> Range<usize> {
        let first = self.program.as_ref().or(self.arguments.first());
        first.map_or(0..0, Text::span)
    }
}

/// What the words before a program do to its environment.
pub(super) enum Change {
    /// `env -i`
    Clear,
    /// `env -u NAME`
    Remove(Text),
    /// `env NAME=value`, `mpirun -x NAME=value`, `srun --export=ALL,NAME=value`
    Put(Text, Text),
    /// `srun --export=NAME`: only these are passed on.
    Keep(Vec<String>),
}

/// The name of a program without its folder.
pub(super) fn base_name(program: &Text) -> String {
    let program = program.string();
    program.rsplit('/').next().unwrap_or_default().to_string()
}

/// Programs that start no other: their words may look like a launch and are none.
pub(super) fn starts_none(fields: &[Text]) -> bool {
    const STARTS_NONE: [&str; 44] = [
        ":", "[", "[[", "alias", "awk", "basename", "cat", "cd", "chmod", "cp", "curl", "cut",
        "diff", "dirname", "echo", "false", "find", "git", "grep", "head", "kill", "ln", "ls",
        "mkdir", "mv", "pip", "pip3", "pkill", "popd", "printf", "pushd", "rm", "rsync", "scp",
        "sed", "sleep", "tail", "tee", "test", "touch", "trap", "true", "wait", "wget",
    ];
    fields
        .first()
        .is_some_and(|first| STARTS_NONE.contains(&&*base_name(first)))
}

pub(super) fn is_flag(word: &Text) -> bool {
    let third = word.0.get(2).is_some_and(|(c, _)| c.is_ascii_alphabetic());
    word.starts_with("--") && third
}

pub(super) fn is_name(name: &Text) -> bool {
    super::super::launch::is_variable_name(&name.string())
}

/// The script of `sh -c SCRIPT` or `sbatch --wrap=SCRIPT`.
pub(super) struct Inner {
    pub script: Text,
    /// Where `sh` stands.
    pub shell: usize,
    /// `$1` and so on.
    pub positional: Vec<Text>,
}

pub(super) fn inner_script(fields: &[Text]) -> Option<Inner> {
    if let Some((shell, script)) = wrapped(fields) {
        return Some(Inner {
            script,
            shell,
            positional: Vec::new(),
        });
    }
    let shell = fields.iter().position(is_shell)?;
    let is_option = |word: &Text| {
        let word = word.string();
        word.starts_with('-') && !word.starts_with("--") && word.ends_with('c')
    };
    let option = fields[shell + 1..].iter().position(is_option)? + shell + 1;
    let script = fields.get(option + 1)?.clone();
    Some(Inner {
        script,
        shell,
        // Behind the script stands the name that it goes by, `$0`.
        positional: fields.get(option + 3..).unwrap_or_default().to_vec(),
    })
}

fn wrapped(fields: &[Text]) -> Option<(usize, Text)> {
    let batch = fields
        .iter()
        .position(|field| base_name(field) == "sbatch")?;
    let is_wrap = |field: &&Text| field.starts_with("--wrap");
    let wrap = fields[batch..].iter().find(is_wrap)?;
    match wrap.split_once('=') {
        Some((_, script)) => Some((batch, script)),
        None => {
            let at = fields.iter().position(|field| field == wrap)?;
            fields.get(at + 1).map(|script| (batch, script.clone()))
        }
    }
}

fn is_shell(word: &Text) -> bool {
    matches!(base_name(word).as_str(), "sh" | "bash")
}

/// Where a shell stands that reads its script from a here-document.
pub(super) fn reads_document(fields: &[Text]) -> Option<usize> {
    let shell = fields.iter().position(is_shell)?;
    let is_option = |field: &Text| field.starts_with("-");
    fields[shell + 1..].iter().all(is_option).then_some(shell)
}

/// Another script that a command runs.
pub(super) fn other_script(fields: &[Text]) -> Option<&Text> {
    let is_script = |field: &&Text| {
        let field = field.string();
        field.ends_with(".sh") && !field.contains(char::is_whitespace)
    };
    fields
        .iter()
        .find(is_script)
        .filter(|_| !starts_none(fields))
}

/// Where a program of Python is named, and where its arguments begin.
pub(super) fn program_at(fields: &[Text]) -> Option<(usize, usize)> {
    const LAUNCHERS: [&str; 3] = [
        "torch.distributed.run",
        "torch.distributed.launch",
        "accelerate.commands.launch",
    ];
    for (index, field) in fields.iter().enumerate() {
        let word = field.string();
        let is_one = !word.starts_with('-') && !has_blanks(&word);
        if word.ends_with(".py") && is_one {
            return Some((index, index + 1));
        }
        if word == "-m" {
            let module = fields.get(index + 1)?.string();
            let is_module = module.starts_with(|c: char| c.is_ascii_alphabetic());
            if is_module && !LAUNCHERS.contains(&module.as_str()) {
                return Some((index + 1, index + 2));
            }
        }
    }
    None
}

/// Whether a word is several, but for what a command in it would print: `$(cd ..; pwd)/a.py`.
fn has_blanks(word: &str) -> bool {
    let (mut depth, mut is_back_quoted, mut before) = (0usize, false, ' ');
    for c in word.chars() {
        match c {
            '(' if before == '$' || depth > 0 => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            '`' => is_back_quoted = !is_back_quoted,
            c if c.is_whitespace() && depth == 0 && !is_back_quoted => return true,
            _ => {}
        }
        before = c;
    }
    false
}

/// What looks like a launch whose program was not found.
pub(super) fn unread_launch(fields: &[Text]) -> Option<Range<usize>> {
    let is_launcher = |word: &&Text| {
        let word = word.string();
        let is_line = has_blanks(&word) && word.contains(".py");
        word.ends_with("torchrun") || word.starts_with("torch.distributed.") || is_line
    };
    fields.iter().find(is_launcher).map(Text::span)
}

/// What the words before a program change in its environment, in order.
pub(super) fn changes(before: &[Text]) -> Vec<Change> {
    let mut changes = Vec::new();
    let mut is_env = false;
    let mut words = before.iter();
    while let Some(word) = words.next() {
        let text = word.string();
        let assigned = word.split_once('=').filter(|(name, _)| is_name(name));
        match (text.as_str(), assigned) {
            (_, Some((name, value))) if is_env => changes.push(Change::Put(name, value)),
            ("-i" | "-" | "--ignore-environment", _) if is_env => changes.push(Change::Clear),
            ("-u" | "--unset", _) if is_env => {
                changes.extend(words.next().cloned().map(Change::Remove));
            }
            (option, _) if is_env && option.starts_with("--unset=") => {
                changes.extend(word.split_once('=').map(|(_, name)| Change::Remove(name)));
            }
            (option, _) if is_env && option.starts_with("-u") => {
                changes.push(Change::Remove(Text(word.0[2..].to_vec())));
            }
            ("-C" | "--chdir", _) if is_env => drop(words.next()),
            ("-x" | "-e" | "--env", _) => {
                let next = words.next().and_then(|next| next.split_once('='));
                let put = next.filter(|(name, _)| is_name(name));
                changes.extend(put.map(|(name, value)| Change::Put(name, value)));
            }
            ("-genv" | "-env" | "--genv" | "--env-name", _) => {
                let (name, value) = (words.next(), words.next());
                if let (Some(name), Some(value)) = (name, value) {
                    changes.push(Change::Put(name.clone(), value.clone()));
                }
            }
            (option, _) if option.starts_with("--env=") => {
                let put = word
                    .split_once('=')
                    .and_then(|(_, put)| put.split_once('='));
                changes.extend(put.map(|(name, value)| Change::Put(name, value)));
            }
            (option, _) if option.starts_with("--export=") => {
                changes.extend(exported(&word.split_once('=').unwrap_or_default().1));
            }
            (option, _) if is_env && option.starts_with('-') => {}
            _ => is_env = base_name(word) == "env",
        }
    }
    changes
}

/// `srun --export=ALL,NAME=value`, `--export=NONE`, `--export=NAME`.
fn exported(list: &Text) -> Vec<Change> {
    let parts = list.0.split(|(c, _)| *c == ',');
    let parts: Vec<Text> = parts.map(|part| Text(part.to_vec())).collect();
    let mut changes = Vec::new();
    if !parts.iter().any(|part| part.string() == "ALL") {
        changes.push(Change::Keep(parts.iter().map(Text::string).collect()));
    }
    let put = |part: &Text| part.split_once('=').map(|(name, v)| Change::Put(name, v));
    changes.extend(parts.iter().filter_map(put));
    changes
}

/// The environment behind a change.
pub(super) fn changed(environment: &mut Vec<Exported>, change: Change) {
    let keep = |environment: &mut Vec<Exported>, names: &[String], wanted: bool| {
        environment.retain(|variable| names.contains(&variable.name) == wanted);
    };
    match change {
        Change::Clear => environment.clear(),
        Change::Remove(name) => keep(environment, &[name.string()], false),
        Change::Keep(names) => keep(environment, &names, true),
        Change::Put(name, value) => {
            keep(environment, &[name.string()], false);
            environment.push(Exported {
                name: name.string(),
                value: value.string(),
                at: name.span(),
                conditional: None,
            });
        }
    }
}
