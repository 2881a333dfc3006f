//! Linking: `// use: math/exp` pulls in `shaders/math/exp.wgsl`, once, before the file that uses
//! it. A line map leads every message back to the file that the line was written in.

use std::collections::BTreeMap;

use super::error::{KernelError, Location};

/// Sources by name: `fold`, `math/exp`.
pub(super) type Sources = BTreeMap<String, String>;

const USE: &str = "// use:";

/// The text of one kernel with everything it uses.
#[derive(Clone, Debug)]
pub(super) struct Linked {
    pub text: String,
    /// (first byte in `text`, source name), ascending.
    parts: Vec<(usize, String)>,
}

/// Links the kernel `name`.
pub(super) fn link(name: &str, sources: &Sources) -> Result<Linked, KernelError> {
    if !sources.contains_key(name) {
        return Err(KernelError::Unknown {
            name: name.to_owned(),
        });
    }
    let mut linker = Linker {
        sources,
        linked: Linked {
            text: String::new(),
            parts: Vec::new(),
        },
        open: Vec::new(),
    };
    linker.add(name)?;
    Ok(linker.linked)
}

struct Linker<'a> {
    sources: &'a Sources,
    linked: Linked,
    /// The chain of files being linked now, outermost first.
    open: Vec<String>,
}

impl Linker<'_> {
    fn add(&mut self, name: &str) -> Result<(), KernelError> {
        let source = &self.sources[name];
        self.open.push(name.to_owned());
        for (number, line) in source.lines().enumerate() {
            if let Some(used) = line.trim_start().strip_prefix(USE) {
                self.add_used(name, number as u32 + 1, used.trim())?;
            }
        }
        self.open.pop();
        self.linked
            .parts
            .push((self.linked.text.len(), name.to_owned()));
        self.linked.text.push_str(source);
        if !source.ends_with('\n') {
            self.linked.text.push('\n');
        }
        Ok(())
    }

    fn add_used(&mut self, user: &str, line: u32, used: &str) -> Result<(), KernelError> {
        let location = Location {
            file: file_of(user),
            line,
            column: 1,
        };
        if self.open.iter().any(|open| open == used) {
            let chain = format!("{} -> {used}", self.open.join(" -> "));
            return Err(KernelError::Cycle { location, chain });
        }
        if self.linked.parts.iter().any(|(_, part)| part == used) {
            return Ok(());
        }
        if !self.sources.contains_key(used) {
            return Err(KernelError::UnknownUse {
                location,
                used: used.to_owned(),
            });
        }
        self.add(used)
    }
}

fn file_of(name: &str) -> String {
    format!("shaders/{name}.wgsl")
}

impl Linked {
    /// Where the byte `at` of the linked text was written.
    pub fn location(&self, at: usize) -> Location {
        let place = self.parts.partition_point(|(first, _)| *first <= at).max(1) - 1;
        let (first, name) = &self.parts[place];
        let before = &self.text[*first..at.clamp(*first, self.text.len())];
        let line = before.matches('\n').count() as u32 + 1;
        let column = before.len() - before.rfind('\n').map_or(0, |newline| newline + 1) + 1;
        Location {
            file: file_of(name),
            line,
            column: column as u32,
        }
    }

    /// Where `span` begins; the kernel's own first line when naga kept no span.
    pub fn location_of(&self, span: naga::Span) -> Location {
        let kernel_start = self.parts.last().map_or(0, |(first, _)| *first);
        self.location(span.to_range().map_or(kernel_start, |range| range.start))
    }

    pub fn parse_error(&self, error: &naga::front::wgsl::ParseError) -> KernelError {
        let span = error
            .labels()
            .next()
            .map_or(naga::Span::UNDEFINED, |(span, _)| span);
        let mut message = error.message().to_owned();
        for note in error.labels().map(|(_, label)| label).chain(error.notes()) {
            if !note.is_empty() {
                message = format!("{message}; {note}");
            }
        }
        KernelError::Parse {
            location: self.location_of(span),
            message,
        }
    }

    pub fn validation_error(
        &self,
        error: &naga::WithSpan<naga::valid::ValidationError>,
    ) -> KernelError {
        let span = error
            .spans()
            .next()
            .map_or(naga::Span::UNDEFINED, |(span, _)| *span);
        let mut message = error.as_inner().to_string();
        let mut cause = std::error::Error::source(error.as_inner());
        while let Some(next) = cause {
            message = format!("{message}: {next}");
            cause = next.source();
        }
        KernelError::Invalid {
            location: self.location_of(span),
            message,
        }
    }
}
