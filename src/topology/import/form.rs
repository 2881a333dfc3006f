//! Which tool wrote a file, by its content.

use super::Refused;
use crate::diagnostic::{Diagnostic, Place, Source};

/// A form of files that are imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Form {
    GraphXml,
    InfoLog,
}

impl Form {
    /// All forms, in the order in which they are looked for.
    pub const ALL: [Form; 2] = [Form::GraphXml, Form::InfoLog];

    pub const fn name(self) -> &'static str {
        match self {
            Form::GraphXml => "NCCL graph XML",
            Form::InfoLog => "NCCL INFO log",
        }
    }

    fn is_of(self, text: &str) -> bool {
        match self {
            Form::GraphXml => first_tag(text) == Some("graphs"),
            Form::InfoLog => text.contains(" NCCL INFO "),
        }
    }
}

/// The name of the first element, or of the document type before it, where the text is XML.
fn first_tag(text: &str) -> Option<&str> {
    let mut rest = text.trim_start_matches('\u{feff}').trim_start();
    while let Some((_, end)) = [("<?", "?>"), ("<!--", "-->")]
        .into_iter()
        .find(|(start, _)| rest.starts_with(start))
    {
        rest = rest.split_once(end)?.1.trim_start();
    }
    let tag = rest.strip_prefix("<!DOCTYPE").map(str::trim_start);
    let name = tag.or_else(|| rest.strip_prefix('<'))?;
    let is_end = |c: char| c.is_whitespace() || matches!(c, '>' | '/' | '[');
    Some(&name[..name.find(is_end)?])
}

/// The one form of all files.
pub(super) fn of_all(sources: &[Source]) -> Result<Form, Refused> {
    let of = |source: &Source| Form::ALL.into_iter().find(|form| form.is_of(&source.text));
    let mut found: Option<(Form, &Source)> = None;
    for source in sources {
        let place = Place::new(source, 0..source.text.lines().next().map_or(0, str::len));
        let Some(form) = of(source) else {
            let names: Vec<&str> = Form::ALL.iter().map(|form| form.name()).collect();
            let finding = Diagnostic::error("unknown-form", "this is no file that is imported");
            let finding = finding.at(&place, "begins like this");
            return Err(Box::new(
                finding.with_note(format!("known are: {}", names.join(", "))),
            ));
        };
        match found {
            Some((first, other)) if first != form => {
                let message = format!(
                    "files of two forms: {} (`{}`) and {}",
                    first.name(),
                    other.name,
                    form.name()
                );
                let finding = Diagnostic::error("two-forms", message);
                return Err(Box::new(finding.at(&place, "the second one")));
            }
            _ => found = Some((form, source)),
        }
    }
    match found {
        Some((form, _)) => Ok(form),
        None => Err(Box::new(Diagnostic::error("usage", "no file is given"))),
    }
}
