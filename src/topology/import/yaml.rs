//! Plain YAML with places: mappings, lists and words. Anchors are refused, so nothing grows.

use std::ops::Range;

use saphyr_parser::{Event, Parser};

use super::Refused;
use crate::diagnostic::{Diagnostic, Place, Source, escaped};

const DEPTH_MAX: usize = 32;
const NODES_MAX: usize = 400_000;

#[derive(Clone, Debug)]
pub(super) struct Node {
    pub span: Range<usize>,
    pub kind: Kind,
}

#[derive(Clone, Debug)]
pub(super) enum Kind {
    Text(String),
    List(Vec<Node>),
    /// Keys in order, each once.
    Map(Vec<(String, Node)>),
}

impl Node {
    pub fn get(&self, key: &str) -> Option<&Node> {
        let Kind::Map(entries) = &self.kind else {
            return None;
        };
        entries
            .iter()
            .find(|(known, _)| known == key)
            .map(|(_, value)| value)
    }

    pub fn required(&self, source: &Source, key: &str) -> Result<&Node, Refused> {
        self.get(key)
            .ok_or_else(|| self.refused(source, &format!("expected a key `{key}`")))
    }

    pub fn list(&self, source: &Source) -> Result<&[Node], Refused> {
        match &self.kind {
            Kind::List(items) => Ok(items),
            _ => Err(self.refused(source, "expected a list")),
        }
    }

    pub fn text(&self, source: &Source) -> Result<&str, Refused> {
        match &self.kind {
            Kind::Text(text) => Ok(text),
            _ => Err(self.refused(source, "expected a word")),
        }
    }

    pub fn refused(&self, source: &Source, expected: &str) -> Refused {
        let what = match &self.kind {
            Kind::Text(text) => format!("`{}`", escaped(text)),
            Kind::List(items) => format!("a list of {}", items.len()),
            Kind::Map(entries) => format!("a mapping of {} keys", entries.len()),
        };
        let place = Place::new(source, self.span.clone());
        Box::new(Diagnostic::error("yaml", what).at(&place, expected))
    }
}

/// A collection that has begun and not ended, and the key whose value comes next.
struct Open {
    node: Node,
    key: Option<String>,
}

/// The one document of a source.
pub(super) fn parse(source: &Source) -> Result<Node, Refused> {
    let mark = if source.text.starts_with('\u{feff}') {
        3
    } else {
        0
    };
    let text = &source.text[mark..];
    // The parser counts characters.
    let starts: Option<Vec<usize>> = (!text.is_ascii()).then(|| {
        let starts = text.char_indices().map(|(offset, _)| offset + mark);
        starts.collect()
    });
    let byte = |character: usize| match &starts {
        Some(starts) => starts.get(character).copied().unwrap_or(source.text.len()),
        None => (character + mark).min(source.text.len()),
    };
    let refuse = |span: Range<usize>, message: &str, label: &str| -> Refused {
        let place = Place::new(source, span);
        Box::new(Diagnostic::error("yaml", message).at(&place, label))
    };
    let mut open: Vec<Open> = Vec::new();
    let mut root = None;
    let mut count = 0;
    let mut parser = Parser::new_from_str(text);
    while let Some(event) = parser.next_event() {
        let (event, span) = event.map_err(|error| {
            let at = byte(error.marker().index());
            refuse(at..at, "this is not YAML", error.info())
        })?;
        let span = byte(span.start.index())..byte(span.end.index());
        let (kind, anchor) = match event {
            Event::Scalar(text, _, anchor, _) => (Kind::Text(text.into_owned()), anchor),
            Event::SequenceStart(anchor, _) => (Kind::List(Vec::new()), anchor),
            Event::MappingStart(anchor, _) => (Kind::Map(Vec::new()), anchor),
            Event::SequenceEnd | Event::MappingEnd => {
                let ended = open.pop().expect("the parser ends what began");
                put(ended.node, &mut open, &mut root, source)?;
                continue;
            }
            Event::Alias(_) => return Err(refuse(span, "aliases are not read", "here")),
            Event::DocumentStart(_) if root.is_some() => {
                return Err(refuse(
                    span,
                    "there is a second YAML document",
                    "starts here",
                ));
            }
            _ => continue,
        };
        count += 1;
        if anchor != 0 {
            return Err(refuse(span, "anchors are not read", "here"));
        }
        if count > NODES_MAX || open.len() == DEPTH_MAX {
            let label = "at most 400,000 nodes, 32 deep";
            return Err(refuse(span, "the file is too large or too deep", label));
        }
        let is_text = matches!(kind, Kind::Text(_));
        let node = Node { span, kind };
        match is_text {
            true => put(node, &mut open, &mut root, source)?,
            false => open.push(Open { node, key: None }),
        }
    }
    root.ok_or_else(|| refuse(0..0, "there is nothing here", "no YAML node"))
}

/// Puts a finished node where it belongs: a key of a mapping is a word, and there once.
fn put(
    node: Node,
    open: &mut [Open],
    root: &mut Option<Node>,
    source: &Source,
) -> Result<(), Refused> {
    let Some(parent) = open.last_mut() else {
        *root = Some(node);
        return Ok(());
    };
    match (&mut parent.node.kind, parent.key.take()) {
        (Kind::List(items), _) => items.push(node),
        (Kind::Map(entries), Some(key)) => entries.push((key, node)),
        (Kind::Map(entries), None) => {
            let key = node.text(source)?;
            if entries.iter().any(|(known, _)| known == key) {
                return Err(node.refused(source, "this key is there already"));
            }
            parent.key = Some(key.to_string());
        }
        (Kind::Text(_), _) => unreachable!("a word has no children"),
    }
    Ok(())
}
