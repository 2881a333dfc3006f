//! The arguments that Megatron prints when a job starts.
//!
//! Source: `_print_args` in `megatron/training/arguments.py` of NVIDIA/Megatron-LM: rank 0 prints
//! a title between dashes, a line `  name ..... value` for each argument, the dots up to column 48,
//! and an end between dashes. Launchers put ranks and times before lines.

mod prefix;

use std::ops::Range;

use prefix::Prefix;

use super::spelling::Spellings;
use super::{GivenArgument, GivenJob, GivenKind, GivenPhase, python};
use crate::diagnostic::{Diagnostic, Findings, Place, Source, escaped};
use crate::recipe::limits::{ARGUMENTS_MAX, VALUE_BYTES_MAX};

const TITLE: &str = " arguments ";
const END: &str = " end of arguments ";
/// Letters of the name and dots.
const DOTS_END: usize = 48;

/// Whether a line is the title of a block.
pub(super) fn is_title(line: &[u8]) -> bool {
    between_dashes(line, TITLE)
}

pub(super) fn is_end(line: &[u8]) -> bool {
    between_dashes(line, END)
}

/// Whether `words` stand between dashes, and not in a comment: no launcher marks its lines so, and
/// a script or a configuration may keep a job's log, or have a heading of that name.
fn between_dashes(line: &[u8], words: &str) -> bool {
    let marked = marked(words).into_bytes();
    let at = line.windows(marked.len()).position(|part| part == marked);
    at.is_some_and(|at| {
        let dashes = line[..at].iter().rev().take_while(|byte| **byte == b'-');
        let before = line[..at - dashes.count()].trim_ascii();
        !before.starts_with(b"#") && !before.ends_with(b"#")
    })
}

fn marked(words: &str) -> String {
    format!("----{words}----")
}

/// Whether a text has a block.
pub(super) fn has_block(source: &Source) -> bool {
    source.text.lines().any(|line| is_title(line.as_bytes()))
}

/// Lines that are in no whole block.
pub(super) fn beside_blocks(source: &Source) -> Vec<Range<usize>> {
    let mut beside = Vec::new();
    let mut inside: Option<Vec<Range<usize>>> = None;
    let mut start = 0;
    for line in source.text.split_inclusive('\n') {
        let span = start..start + line.trim_end().len();
        start += line.len();
        if is_title(line.as_bytes()) {
            beside.extend(inside.replace(Vec::new()).into_iter().flatten());
        } else if is_end(line.as_bytes()) {
            inside = None;
        } else {
            inside.as_mut().unwrap_or(&mut beside).push(span);
        }
    }
    beside.extend(inside.into_iter().flatten());
    beside
}

pub(super) fn read(source: &Source, findings: &mut Findings) -> Option<GivenJob> {
    let errors_before = findings.error_count();
    let blocks = blocks(source);
    let Some((first, later)) = blocks.split_first() else {
        let whole = Place::new(source, 0..source.text.len());
        findings.push(
            Diagnostic::error("no-arguments", "there is no block of arguments")
                .at(&whole, "")
                .with_help("expected a line `---- arguments ----` as Megatron prints it"),
        );
        return None;
    };
    if let Some(finding) = json_lines(source, first) {
        findings.push(finding);
        return None;
    }
    if !first.is_ended {
        findings.push(
            Diagnostic::error("cut-off", "the block of arguments has no end")
                .at(&Place::new(source, first.title.clone()), "it begins here")
                .with_note("arguments may be missing")
                .with_help("give the log up to the line `end of arguments`"),
        );
    }
    let arguments = first.arguments(source, errors_before, findings);
    for block in later {
        first.compare(block, source, findings);
    }
    let job = GivenJob {
        kind: GivenKind::ArgumentDump,
        phases: vec![GivenPhase {
            name: "arguments".to_string(),
            place: Place::new(source, first.title.clone()),
            arguments,
            variables: Vec::new(),
            reads: None,
            followed: None,
            assumed: Vec::new(),
            is_alone: false,
            is_list: false,
        }],
        env: Vec::new(),
        test_type: None,
        mode: None,
        launcher: None,
        case: None,
        model: None,
    };
    (findings.error_count() == errors_before).then_some(job)
}

/// Docker keeps each line in an object of JSON.
fn json_lines(source: &Source, block: &Block) -> Option<Diagnostic> {
    let line = source.text[block.title.clone()].trim_start();
    let is_object = line.starts_with('{') && line.ends_with('}');
    is_object.then(|| {
        Diagnostic::error("json-lines", "the lines of this log are wrapped in JSON")
            .at(
                &Place::new(source, block.title.clone()),
                "expected lines as Megatron prints them",
            )
            .with_help("give what `docker logs CONTAINER`, or `jq -rj .log FILE`, prints")
    })
}

struct Block {
    title: Range<usize>,
    lines: Vec<Line>,
    is_ended: bool,
}

/// Where the parts of a line stand in the source.
enum Line {
    Entry {
        line: Range<usize>,
        name: Range<usize>,
        value: Range<usize>,
    },
    Other(Range<usize>),
}

impl Line {
    fn span(&self) -> &Range<usize> {
        match self {
            Line::Entry { line, .. } => line,
            Line::Other(line) => line,
        }
    }
}

fn blocks(source: &Source) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut start = 0;
    for line in source.text.split_inclusive('\n') {
        let text = line.trim_end();
        let span = start..start + text.len();
        start += line.len();
        if is_title(text.as_bytes()) {
            blocks.push(Block {
                title: span,
                lines: Vec::new(),
                is_ended: false,
            });
            continue;
        }
        let Some(block) = blocks.last_mut().filter(|block| !block.is_ended) else {
            continue;
        };
        match (is_end(text.as_bytes()), entry(text)) {
            (true, _) => block.is_ended = true,
            (false, Some((name, value))) => block.lines.push(Line::Entry {
                line: span.clone(),
                name: span.start + name.start..span.start + name.end,
                value: span.start + value.start..span.start + value.end,
            }),
            (false, None) if text.is_empty() => {}
            (false, None) => block.lines.push(Line::Other(span)),
        }
    }
    blocks
}

/// The name and the value of a line `  name ..... value`, whatever stands before.
fn entry(line: &str) -> Option<(Range<usize>, Range<usize>)> {
    let bytes = line.as_bytes();
    let is_name = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    let mut at = 0;
    while at < bytes.len() {
        if !is_name(bytes[at]) {
            at += 1;
            continue;
        }
        let length = bytes[at..].iter().take_while(|b| is_name(**b)).count();
        let (name, end) = (at..at + length, at + length);
        at = end;
        let before = bytes[..name.start].last();
        if bytes.get(end) != Some(&b' ') || before.is_some_and(|b| !matches!(b, b' ' | b':')) {
            continue;
        }
        let dots = bytes[end + 1..].iter().take_while(|b| **b == b'.').count();
        let value = end + 1 + dots;
        let is_filled = match dots {
            // A name as long as the dots reach has none, and two blanks.
            0 => length >= DOTS_END && bytes.get(value) == Some(&b' '),
            _ => length + dots == DOTS_END,
        };
        if is_filled && bytes.get(value).is_none_or(|b| *b == b' ') {
            return Some((name, (value + 1).min(bytes.len())..bytes.len()));
        }
    }
    None
}

impl Block {
    fn arguments(
        &self,
        source: &Source,
        errors_before: usize,
        findings: &mut Findings,
    ) -> Vec<GivenArgument> {
        if let Some(broken) = self.broken(source) {
            findings.push(broken);
            return Vec::new();
        }
        self.warn_of_others(source, findings);
        if let Some(finding) = self.unsorted(source) {
            findings.push(finding);
        }
        let mut spellings = Spellings::default();
        let mut arguments = Vec::new();
        for (name, value) in self.entries() {
            let (flag, text) = (&source.text[name.clone()], &source.text[value.clone()]);
            let flag_place = Place::new(source, name.clone());
            let value_place = Place::new(source, value.clone());
            if let Some(repeated) = spellings.put(flag, &flag_place) {
                findings.push(repeated.finding(flag, &flag_place));
                continue;
            }
            if text.len() > VALUE_BYTES_MAX {
                let message = format!(
                    "the value of `{flag}` is {} bytes long; the limit is {VALUE_BYTES_MAX}",
                    text.len()
                );
                findings.push(Diagnostic::error("value-too-long", message).at(&flag_place, ""));
                continue;
            }
            if arguments.len() == ARGUMENTS_MAX {
                let message = format!("there are more than {ARGUMENTS_MAX} arguments");
                findings
                    .push(Diagnostic::error("too-many", message).at(&flag_place, "one too many"));
                break;
            }
            arguments.push(GivenArgument {
                flag: flag.to_string(),
                value: python::value(text),
                flag_place,
                value_place,
            });
        }
        if arguments.is_empty() && findings.error_count() == errors_before {
            findings.push(
                Diagnostic::error("no-arguments", "the block of arguments is empty")
                    .at(&Place::new(source, self.title.clone()), "nothing follows"),
            );
        }
        arguments
    }

    fn entries(&self) -> impl Iterator<Item = (&Range<usize>, &Range<usize>)> {
        self.lines.iter().filter_map(|line| match line {
            Line::Entry { name, value, .. } => Some((name, value)),
            Line::Other(_) => None,
        })
    }

    /// Megatron sorts the lines by their names in small letters: in another order somebody put them
    /// together.
    fn unsorted(&self, source: &Source) -> Option<Diagnostic> {
        let name = |span: &Range<usize>| source.text[span.clone()].to_ascii_lowercase();
        let names: Vec<&Range<usize>> = self.entries().map(|(name, _)| name).collect();
        let pairs = names.windows(2);
        let mut odd = pairs.filter(|pair| name(pair[0]) > name(pair[1]));
        let span = odd.next()?[1].clone();
        Some(
            Diagnostic::error(
                "unsorted",
                "the arguments are not in the order of their names",
            )
            .at(&Place::new(source, span), "this one comes too late")
            .with_note("Megatron prints them sorted: this is no block of one job")
            .with_help("give the block as the job printed it"),
        )
    }

    /// Lines that are neither whole arguments nor whole lines of another rank.
    fn broken(&self, source: &Source) -> Option<Diagnostic> {
        let text = |span: &Range<usize>| &source.text[span.clone()];
        let prefix = Prefix::of_title(text(&self.title), &marked(TITLE));
        let is_foreign = |line: &&Line| match line {
            Line::Entry { .. } => false,
            Line::Other(span) => prefix.is_of_another_rank(text(span)),
        };
        let own: Vec<&Line> = self.lines.iter().filter(|line| !is_foreign(line)).collect();
        let is_control = |c: char| c.is_control() && c != '\t';
        let mut spans = std::iter::once(&self.title).chain(own.iter().map(|line| line.span()));
        if let Some(span) = spans.find(|span| text(span).contains(is_control)) {
            return Some(with_control_characters(source, span));
        }
        let is_broken = |line: &&&Line| match line {
            Line::Entry { line, name, .. } => !prefix.fits(&source.text[line.start..name.start]),
            Line::Other(span) => !prefix.fits(text(span)),
        };
        // What follows a block without an end is not its own.
        let mut broken = own.iter().filter(|_| self.is_ended).filter(is_broken);
        let first = broken.next()?;
        Some(broken_line(
            source,
            first.span(),
            1 + broken.count(),
            &prefix,
        ))
    }

    /// Other ranks may print between the lines of rank 0.
    fn warn_of_others(&self, source: &Source, findings: &mut Findings) {
        let prefix = Prefix::of_title(&source.text[self.title.clone()], &marked(TITLE));
        let mut others = self.lines.iter().filter_map(|line| match line {
            Line::Other(span) => Some(span),
            Line::Entry { .. } => None,
        });
        let is_foreign =
            |span: &&Range<usize>| prefix.is_of_another_rank(&source.text[(*span).clone()]);
        let Some(first) = others.find(is_foreign) else {
            return;
        };
        let message = match 1 + others.filter(is_foreign).count() {
            1 => "a line among the arguments is another rank's".to_string(),
            count => format!("{count} lines among the arguments are other ranks'"),
        };
        findings.push(
            Diagnostic::warning("not-an-argument", message)
                .at(&Place::new(source, first.clone()), "not used"),
        );
    }

    /// Says where a later block, of a restart perhaps, differs.
    fn compare(&self, later: &Block, source: &Source, findings: &mut Findings) {
        let texts = |block: &Block| -> Vec<(String, String, Range<usize>)> {
            let text = |span: &Range<usize>| source.text[span.clone()].to_string();
            let entries = block.entries();
            entries
                .map(|(name, value)| (text(name), text(value), name.clone()))
                .collect()
        };
        let (first, later_texts) = (texts(self), texts(later));
        let known: std::collections::BTreeMap<&str, &str> = first
            .iter()
            .map(|(name, value, _)| (&**name, &**value))
            .collect();
        let other: Vec<_> = later_texts
            .iter()
            .filter(|(name, value, _)| known.get(name.as_str()) != Some(&value.as_str()))
            .collect();
        // A block that is cut off is compared as far as it goes.
        let is_shorter = later.is_ended && later_texts.len() < first.len();
        let Some(span) = other
            .first()
            .map(|(_, _, span)| span.clone())
            .or_else(|| is_shorter.then(|| later.title.clone()))
        else {
            return;
        };
        let names: Vec<_> = other
            .iter()
            .take(5)
            .map(|(name, ..)| escaped(name))
            .collect();
        let mut finding =
            Diagnostic::warning("blocks-differ", "a later block of arguments differs")
                .at(&Place::new(source, span), "the first block is taken")
                .with_context(
                    Some(&Place::new(source, self.title.clone())),
                    "it begins here",
                );
        if !names.is_empty() {
            let more = if other.len() > names.len() {
                ", ..."
            } else {
                ""
            };
            finding = finding.with_note(format!("differing: {}{more}", names.join(", ")));
        }
        findings.push(finding);
    }
}

/// Terminals' colours, carriage returns of progress bars.
fn with_control_characters(source: &Source, line: &Range<usize>) -> Diagnostic {
    Diagnostic::error(
        "control-character",
        "there is a control character in the block of arguments",
    )
    .at(&Place::new(source, line.clone()), "in this line")
    .with_help("take colours out: `sed 's/\\x1b\\[[0-9;]*[A-Za-z]//g' FILE`")
}

fn broken_line(
    source: &Source,
    line: &Range<usize>,
    count: usize,
    prefix: &Prefix<'_>,
) -> Diagnostic {
    let message = match count {
        1 => "a line of the block is no argument".to_string(),
        count => format!("{count} lines of the block are no arguments"),
    };
    let finding = Diagnostic::error("broken-line", message)
        .at(
            &Place::new(source, line.clone()),
            match prefix.text() {
                "" => "expected `  name ..... value` alone".to_string(),
                before => format!("expected `{}  name ..... value` alone", escaped(before)),
            },
        )
        .with_note("where text of another rank stands in it, the argument that it was is lost");
    match prefix.text() {
        "" => finding.with_help(
            "give the output of one rank: `torchrun --redirects 3 --log-dir DIR` or `srun \
             --output=%t.log` keep ranks apart",
        ),
        before => finding.with_help(format!(
            "give the lines of one rank, as the title's `{}` marks them, each whole",
            escaped(before)
        )),
    }
}

#[cfg(test)]
mod tests;
