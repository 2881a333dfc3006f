//! A diagnostic as text for people, as JSON, and as a GitHub annotation.

use std::borrow::Cow;

use annotate_snippets::{AnnotationKind, Group, Level, Origin, Renderer, Snippet};
use serde_json::{Value, json};

use super::{Diagnostic, Place, Severity, escaped};

impl Diagnostic {
    /// The finding as rustc would draw it, coloured; `anstream` strips the colour where the
    /// output is no terminal or `NO_COLOR` is set.
    pub fn to_human(&self) -> String {
        self.draw(&Renderer::styled())
    }

    /// The finding without colour.
    pub fn to_plain(&self) -> String {
        self.draw(&Renderer::plain())
    }

    fn draw(&self, renderer: &Renderer) -> String {
        let level = match self.severity {
            Severity::Error => Level::ERROR,
            Severity::Warning => Level::WARNING,
            Severity::Note => Level::NOTE,
        };
        let title = level.primary_title(shown(&self.message)).id(self.code);
        let mut group = Group::with_title(title);
        for source in self.sources() {
            group = self.draw_source(group, source);
        }
        for note in &self.notes {
            group = group.element(Level::NOTE.message(shown(note)));
        }
        for help in &self.help {
            group = group.element(Level::HELP.message(shown(help)));
        }
        renderer.render(&[group])
    }

    /// The sources that places point into, the primary one first, each once.
    fn sources(&self) -> Vec<&Place> {
        let mut sources: Vec<&Place> = Vec::new();
        for (place, _) in self.place.iter().chain(&self.context) {
            if sources.iter().all(|seen| seen.source != place.source) {
                sources.push(place);
            }
        }
        sources
    }

    fn draw_source<'a>(&'a self, group: Group<'a>, first: &'a Place) -> Group<'a> {
        let source = &first.source;
        // A place that covers a whole text says only which file: a caret would underline it all.
        if source.is_whole(&first.span) {
            return group.element(Origin::path(escaped(&source.name)));
        }
        let mut snippet = Snippet::source(tame(&source.text))
            .line_start(source.first_line())
            .path(escaped(&source.name));
        let primary = self
            .place
            .iter()
            .map(|marked| (AnnotationKind::Primary, marked));
        let context = self
            .context
            .iter()
            .map(|marked| (AnnotationKind::Context, marked));
        for (kind, (place, label)) in primary.chain(context) {
            if place.source == *source {
                let label = shown(label);
                snippet = snippet.annotation(kind.span(source.clamp(&place.span)).label(label));
            }
        }
        group.element(snippet)
    }

    /// The finding as a JSON object: `severity`, `code`, `message`, `file`, `line`, `column`,
    /// `end_line`, `end_column` (from 1, columns in characters), `label`, `notes`, `help`.
    pub fn to_json(&self) -> Value {
        let mut object = json!({
            "severity": self.severity,
            "code": self.code,
            "message": self.message,
            "notes": self.notes,
            "help": self.help,
        });
        if let Some((place, label)) = &self.place {
            let (line, column) = place.source.line_column(place.span.start);
            let (end_line, end_column) = place.source.line_column(place.span.end);
            object["file"] = json!(&*place.source.name);
            object["line"] = json!(line);
            object["column"] = json!(column);
            object["end_line"] = json!(end_line);
            object["end_column"] = json!(end_column);
            object["label"] = json!(label);
        }
        object
    }

    /// The message with what was expected, the notes and the help, a line each.
    pub(super) fn in_words(&self) -> String {
        let mut text = shown(&self.message);
        if let Some((_, label)) = self.place.as_ref().filter(|(_, label)| !label.is_empty()) {
            text = format!("{text}: {}", shown(label));
        }
        for note in &self.notes {
            text = format!("{text}\nnote: {}", shown(note));
        }
        for help in &self.help {
            text = format!("{text}\nhelp: {}", shown(help));
        }
        text
    }

    /// The finding as a workflow command of GitHub Actions.
    ///
    /// Source: "Workflow commands for GitHub Actions", setting an error message; the toolkit's
    /// `core/src/command.ts` for what is escaped.
    pub fn to_github(&self) -> String {
        let command = match self.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
            Severity::Note => "notice",
        };
        let mut properties = vec![format!("title={}", escaped_property(self.code))];
        if let Some((place, _)) = &self.place
            && place.source.is_file()
        {
            let (line, column) = place.source.line_column(place.span.start);
            properties.push(format!("file={}", escaped_property(&place.source.name)));
            properties.push(format!("line={line},col={column}"));
        }
        format!(
            "::{command} {}::{}",
            properties.join(","),
            escaped_data(&self.in_words())
        )
    }
}

/// Our own sentences may break lines; what they quote may not do more.
pub(super) fn shown(text: &str) -> String {
    let lines: Vec<Cow<'_, str>> = text.split('\n').map(escaped).collect();
    lines.join("\n")
}

/// A source with its C1 control characters replaced by as many bytes, so that spans still hold. The
/// renderer itself replaces those of C0.
fn tame(text: &str) -> Cow<'_, str> {
    let is_c1 = |c: char| ('\u{80}'..='\u{9f}').contains(&c);
    match text.contains(is_c1) {
        true => Cow::Owned(text.replace(is_c1, "\u{b7}")),
        false => Cow::Borrowed(text),
    }
}

fn escaped_data(text: &str) -> String {
    // A carriage return is a control character: written out like any other.
    shown(text).replace('%', "%25").replace('\n', "%0A")
}

fn escaped_property(text: &str) -> String {
    escaped_data(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use super::super::Source;
    use super::*;

    fn sample() -> Diagnostic {
        let source = Source::new("a,b.toml", "num_layers = 4\nhidden_size = \"big\"\n");
        Diagnostic::error("wrong-type", "`hidden_size` is a string")
            .at(&Place::new(&source, 29..34), "expected an integer")
            .with_context(Some(&Place::new(&source, 0..10)), "beside this one")
            .with_help("write `hidden_size = 64`")
    }

    #[test]
    fn people_see_file_line_caret_and_help() {
        let expected = "\
error[wrong-type]: `hidden_size` is a string
 --> a,b.toml:2:15
  |
1 | num_layers = 4
  | ---------- beside this one
2 | hidden_size = \"big\"
  |               ^^^^^ expected an integer
  |
  = help: write `hidden_size = 64`";
        assert_eq!(sample().to_plain(), expected);
    }

    #[test]
    fn machines_see_lines_and_columns_from_one() {
        let json = sample().to_json();
        assert_eq!((&json["line"], &json["column"]), (&json!(2), &json!(15)));
        assert_eq!(json["end_column"], json!(20));
        assert_eq!(json["file"], json!("a,b.toml"));
        assert_eq!(json["severity"], json!("error"));
    }

    #[test]
    fn github_properties_are_escaped() {
        let expected = "::error title=wrong-type,file=a%2Cb.toml,line=2,col=15::\
            `hidden_size` is a string: expected an integer%0Ahelp: write `hidden_size = 64`";
        assert_eq!(sample().to_github(), expected);
    }

    #[test]
    fn a_workflow_command_is_one_line_without_control_characters() {
        let flag = Source::new("--set", "a=\u{1b}");
        let drawn = Diagnostic::note("n", "50 %\r\n::error::\u{1b}[2J\u{9b}")
            .at(&Place::new(&flag, 0..1), "")
            .with_note("a note");
        let line = drawn.to_github();
        assert!(!line.chars().any(char::is_control), "{line:?}");
        let expected = "::notice title=n::50 %25\\r%0A::error::\\u{1b}[2J\\u{9b}%0Anote: a note";
        assert_eq!(line, expected);
    }

    #[test]
    fn hostile_spans_and_control_characters_do_not_panic() {
        let source = Source::new("x\u{9b}\u{1b}", "\u{1b}[31m\u{f6}\u{9b}");
        for (start, end) in [(0, 99), (99, 3), (6, 7), (7, 7), (0, 0)] {
            let drawn = Diagnostic::warning("w", "\u{1b}[0m\u{9b}")
                .at(&Place::new(&source, start..end), "l");
            let text = drawn.to_plain();
            assert!(
                text.chars().all(|c| c == '\n' || !c.is_control()),
                "{text:?}"
            );
            drawn.to_json();
            drawn.to_github();
        }
    }
}
