//! Scripts that can be read only one way: assignments of words, and a launch.
//!
//! A shell's language is large, and what is followed here beyond this much may be followed wrongly.
//! So a report on a script that is not plain says under *not covered* that it was followed.

use std::ops::Range;

use super::super::launch::is_variable_name;

/// Commands that a plain script may begin a line with, beside assignments.
const PLAIN: [&str; 13] = [
    "torchrun",
    "python",
    "python3",
    "export",
    "echo",
    "mkdir",
    "cd",
    "ls",
    "date",
    "sleep",
    "pwd",
    "nvidia-smi",
    "hostname",
];

/// Words that `set` may have.
const SETTINGS: [&str; 11] = [
    "-e", "-u", "-x", "-o", "-eu", "-ex", "-ux", "-eux", "-euo", "-euxo", "pipefail",
];

/// The first place where a script is more than plain.
pub(super) fn first_beyond(text: &str) -> Option<Range<usize>> {
    let mut scan = Scan {
        text,
        at: 0,
        in_array: false,
    };
    scan.run().err()
}

struct Scan<'a> {
    text: &'a str,
    at: usize,
    in_array: bool,
}

impl Scan<'_> {
    fn run(&mut self) -> Result<(), Range<usize>> {
        while self.at < self.text.len() {
            self.blanks();
            match self.peek() {
                None => {}
                Some('#') => self.skip_line(),
                Some('\n') => self.at += 1,
                Some(_) => self.command()?,
            }
        }
        match self.in_array {
            true => Err(self.here()),
            false => Ok(()),
        }
    }

    /// One command, up to the end of its line.
    fn command(&mut self) -> Result<(), Range<usize>> {
        let start = self.at;
        let first = self.word()?;
        let name = &self.text[first.clone()];
        let assigns =
            name.contains('=') && is_variable_name(name.split(['=', '+']).next().unwrap_or(""));
        if !assigns && name != "set" && !PLAIN.contains(&name) {
            return Err(first);
        }
        while let Some(next) = self.next_on_line()? {
            let word = &self.text[next.clone()];
            let fits = match name {
                _ if assigns => false,
                "set" => SETTINGS.contains(&word),
                _ => true,
            };
            if !fits {
                return Err(start..next.end);
            }
        }
        Ok(())
    }

    /// The next word of the line; `None` at its end.
    fn next_on_line(&mut self) -> Result<Option<Range<usize>>, Range<usize>> {
        loop {
            self.blanks();
            match self.peek() {
                None => return Ok(None),
                Some('\n') => {
                    self.at += 1;
                    return Ok(None);
                }
                Some('#') => self.skip_line(),
                Some('>') => self.at += 1,
                // What the launch says goes elsewhere, too.
                Some('|') if self.text[self.at + 1..].trim_start().starts_with("tee ") => {
                    self.at += 1;
                }
                Some(_) => return self.word().map(Some),
            }
        }
    }

    /// A word: quoted and unquoted parts, without blanks outside of quotes and arrays.
    fn word(&mut self) -> Result<Range<usize>, Range<usize>> {
        let start = self.at;
        while let Some(c) = self.peek() {
            match c {
                ' ' | '\t' | '\n' if !self.in_array => break,
                '>' if self.text[start..self.at]
                    .chars()
                    .all(|c| c.is_ascii_digit()) =>
                {
                    self.at += 1;
                    if self.peek() == Some('&') {
                        self.at += 1;
                    }
                }
                '>' => break,
                '\\' => self.escaped(),
                '\'' => self.single()?,
                '"' => self.double()?,
                '$' => self.dollar()?,
                '(' if !self.in_array && self.text[start..self.at].ends_with('=') => {
                    self.in_array = true;
                    self.at += 1;
                }
                ')' if self.in_array => {
                    self.in_array = false;
                    self.at += 1;
                }
                '#' if self.in_array => self.skip_line(),
                '(' | ')' | '{' | '}' | '|' | '&' | ';' | '<' | '`' | '*' | '?' | '[' | ']'
                | '~' | '!' => return Err(self.here()),
                c => self.at += c.len_utf8(),
            }
        }
        match self.at > start {
            true => Ok(start..self.at),
            false => Err(self.here()),
        }
    }

    fn single(&mut self) -> Result<(), Range<usize>> {
        let rest = &self.text[self.at + 1..];
        let length = rest.find('\'').ok_or_else(|| self.here())?;
        self.at += length + 2;
        Ok(())
    }

    fn double(&mut self) -> Result<(), Range<usize>> {
        self.at += 1;
        loop {
            match self.peek() {
                None | Some('`') => return Err(self.here()),
                Some('"') => break,
                Some('\\') => self.escaped(),
                Some('$') => self.dollar()?,
                Some(c) => self.at += c.len_utf8(),
            }
        }
        self.at += 1;
        Ok(())
    }

    /// `$NAME`, `${NAME}`, `${NAME[@]}`, `${NAME:-word}` of a plain word; a lone `$`.
    fn dollar(&mut self) -> Result<(), Range<usize>> {
        let start = self.at;
        self.at += 1;
        let beyond = |end: usize| start..end;
        match self.peek() {
            Some('(' | '\'' | '"' | '[') => Err(beyond(self.at + 1)),
            Some('{') => {
                let rest = &self.text[self.at + 1..];
                let length = rest.find('}').ok_or_else(|| beyond(self.at + 1))?;
                let inside = &rest[..length];
                self.at += length + 2;
                match is_plain_expansion(inside) {
                    true => Ok(()),
                    false => Err(beyond(self.at)),
                }
            }
            _ => Ok(()),
        }
    }

    fn escaped(&mut self) {
        self.at += 1;
        if let Some(c) = self.peek() {
            self.at += c.len_utf8();
        }
    }

    /// Blanks and continued lines.
    fn blanks(&mut self) {
        loop {
            let rest = &self.text[self.at..];
            if rest.starts_with([' ', '\t']) {
                self.at += 1;
            } else if rest.starts_with("\\\n") {
                self.at += 2;
            } else {
                return;
            }
        }
    }

    fn skip_line(&mut self) {
        let rest = &self.text[self.at..];
        self.at += rest.find('\n').unwrap_or(rest.len());
    }

    fn peek(&self) -> Option<char> {
        self.text[self.at..].chars().next()
    }

    fn here(&self) -> Range<usize> {
        let end = self.peek().map_or(self.at, |c| self.at + c.len_utf8());
        self.at..end
    }
}

fn is_plain_expansion(inside: &str) -> bool {
    let base = inside.strip_suffix("[@]").unwrap_or(inside);
    let base = base.strip_suffix("[*]").unwrap_or(base);
    let is_number = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_digit());
    if is_variable_name(base) || is_number(base) {
        return true;
    }
    let Some((name, word)) = inside.split_once(":-").or_else(|| inside.split_once('-')) else {
        return false;
    };
    let special = [
        '$', '`', '\'', '"', '\\', '{', '*', '?', '[', '~', ' ', '\n',
    ];
    (is_variable_name(name) || is_number(name)) && !word.contains(special)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_scripts_are_assignments_and_a_launch() {
        for text in [
            "#!/bin/bash\nset -euo pipefail\nexport A=1\nARGS=(\n  --a 1 # one\n  --b \"$1\"\n)\n\
             torchrun --nproc-per-node 8 \\\n  pretrain_gpt.py ${ARGS[@]} 2>&1 | tee log.txt\n",
            "export CUDA_DEVICE_MAX_CONNECTIONS=1\nN=${N:-8}\n\
             python pretrain_gpt.py '--a' $N > log\n",
            "",
        ] {
            let beyond = first_beyond(text);
            assert_eq!(beyond.map(|span| &text[span]), None, "{text}");
        }
    }

    #[test]
    fn anything_else_is_beyond() {
        for (text, at) in [
            ("if true; then A=1; fi\n", "if"),
            ("A=1\nf() { A=2; }\nf\n", "("),
            ("A=$(cat x)\n", "$("),
            ("A=`cat x`\n", "`"),
            ("A=${B%x}\n", "${B%x}"),
            ("A=${B:=x}\n", "${B:=x}"),
            ("A=$((1+1))\n", "$("),
            ("nohup torchrun x\n", "nohup"),
            ("A=1 torchrun x\n", "A=1 torchrun"),
            ("torchrun x && torchrun y\n", "&"),
            ("torchrun x; A=1\n", ";"),
            ("cat <<EOF\nEOF\n", "cat"),
            ("echo a <<EOF\nEOF\n", "<"),
            ("set -k\n", "set -k"),
            ("A=*\n", "*"),
            ("A={a,b}\n", "{"),
            ("local A\n", "local"),
            ("eval x\n", "eval"),
            ("A=(1 2\n", ""),
            ("A='x\n", "'"),
            ("echo $'x'\n", "$'"),
        ] {
            let span = first_beyond(text);
            let span = span.unwrap_or_else(|| panic!("{text:?} is not plain"));
            assert_eq!(&text[span], at, "{text:?}");
        }
    }
}
