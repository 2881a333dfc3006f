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

/// The name of a program without its folder.
pub(super) fn base_name(program: &Text) -> String {
    let program = program.string();
    program.rsplit('/').next().unwrap_or_default().to_string()
}

/// Programs that start no other: their words may look like a launch and are none.
pub(super) fn starts_none(fields: &[Text]) -> bool {
    const STARTS_NONE: [&str; 54] = [
        ":",
        "[",
        "[[",
        "alias",
        "awk",
        "basename",
        "cat",
        "cd",
        "chmod",
        "cp",
        "curl",
        "cut",
        "diff",
        "dirname",
        "echo",
        "false",
        "find",
        "git",
        "grep",
        "head",
        "kill",
        "ln",
        "ls",
        "mkdir",
        "mv",
        "pip",
        "pip3",
        "pkill",
        "popd",
        "printf",
        "pushd",
        "rm",
        "rsync",
        "scp",
        "sed",
        "sleep",
        "tail",
        "tee",
        "test",
        "touch",
        "trap",
        "true",
        "wait",
        "wget",
        "sha256sum",
        "md5sum",
        "sha1sum",
        "stat",
        "wc",
        "tar",
        "zip",
        "file",
        "which",
        "type",
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
    /// `sh` and what stands before it; of `sbatch --wrap`, all but the script.
    pub before: Vec<Text>,
    /// `$1` and so on.
    pub positional: Vec<Text>,
}

pub(super) fn inner_script(fields: &[Text]) -> Option<Inner> {
    if let Some((before, script)) = wrapped(fields) {
        return Some(Inner {
            script,
            before,
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
        before: fields[..=option].to_vec(),
        // Behind the script stands the name that it goes by, `$0`.
        positional: fields.get(option + 3..).unwrap_or_default().to_vec(),
    })
}

fn wrapped(fields: &[Text]) -> Option<(Vec<Text>, Text)> {
    let batch = fields
        .iter()
        .position(|field| base_name(field) == "sbatch")?;
    let is_wrap = |field: &Text| field.starts_with("--wrap");
    let at = fields[batch..].iter().position(is_wrap)? + batch;
    let (script, end) = match fields[at].split_once('=') {
        Some((_, script)) => (script, at + 1),
        None => (fields.get(at + 1)?.clone(), at + 2),
    };
    let before = fields[..at].iter().chain(&fields[end..]);
    Some((before.cloned().collect(), script))
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
        let runs = |before: &Text| {
            let name = base_name(before);
            let starts = ["python", "torchrun", "accelerate", "deepspeed"];
            before.is_open() || starts.iter().any(|start| name.starts_with(start))
        };
        if word == "-m" && fields[..index].iter().any(runs) {
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
