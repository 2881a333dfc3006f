//! From the parser's events to a tree, within limits.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;

use saphyr_parser::{Event, Parser, ScalarStyle, Span, Tag};

use super::{Child, Document, Kind, Node, NodeId, Scalar};
use crate::diagnostic::{Diagnostic, Findings, Place, Source, escaped};
use crate::recipe::limits::{VALUE_BYTES_MAX, YAML_DEPTH_MAX, YAML_NODES_MAX};

/// Reads the one document of a source. The first error ends it, but for keys that are written
/// twice: those are all told.
pub(in super::super) fn compose(source: &Source, findings: &mut Findings) -> Option<Document> {
    let errors_before = findings.error_count();
    let mut composer = Composer::new(source);
    let composed = composer.document(findings);
    if let Err(error) = composed {
        findings.push(*error);
    }
    let nodes = composer.nodes;
    let is_sound = findings.error_count() == errors_before;
    is_sound.then(|| Document {
        source: source.clone(),
        nodes,
    })
}

type Composed<T> = Result<T, Box<Diagnostic>>;

struct Composer<'a> {
    source: &'a Source,
    offsets: Offsets,
    nodes: Vec<Node>,
    /// Collections that have begun and not ended.
    open: Vec<Open>,
    /// Nodes by the parser's numbers of their anchors.
    anchors: BTreeMap<usize, NodeId>,
}

struct Open {
    node: NodeId,
    span: Range<usize>,
    /// The key whose value comes next.
    key: Option<Child>,
    /// Keys so far, and where.
    seen: BTreeMap<String, Range<usize>>,
}

impl<'a> Composer<'a> {
    fn new(source: &'a Source) -> Self {
        Composer {
            source,
            offsets: Offsets::new(&source.text),
            nodes: Vec::new(),
            open: Vec::new(),
            anchors: BTreeMap::new(),
        }
    }

    fn document(&mut self, findings: &mut Findings) -> Composed<()> {
        let source = self.source;
        // The parser counts from behind the mark.
        let text = source.text.strip_prefix('\u{feff}').unwrap_or(&source.text);
        let mut parser = Parser::new_from_str(text);
        let mut document_count = 0;
        while let Some(event) = parser.next_event() {
            let (event, span) = event.map_err(|error| self.syntax(&error))?;
            let span = self.offsets.span(&span);
            if matches!(event, Event::DocumentStart(_)) {
                document_count += 1;
                if document_count > 1 {
                    let message = "there is a second YAML document";
                    return Err(self.error("yaml-documents", message, &span, "starts here"));
                }
            }
            self.event(event, span, findings)?;
        }
        assert!(self.open.is_empty(), "the parser closed what it opened");
        match self.nodes.is_empty() {
            false => Ok(()),
            true => {
                let whole = 0..source.text.len();
                Err(self.error(
                    "yaml-empty",
                    "there is nothing here",
                    &whole,
                    "no YAML node",
                ))
            }
        }
    }

    fn event(
        &mut self,
        event: Event<'_>,
        span: Range<usize>,
        findings: &mut Findings,
    ) -> Composed<()> {
        let child = match event {
            Event::Scalar(text, style, anchor, tag) => {
                self.tag(tag, &["str", "int", "float", "bool", "null"], &span)?;
                self.scalar(&text, style, anchor, span)?
            }
            Event::SequenceStart(anchor, tag) => {
                self.tag(tag, &["seq"], &span)?;
                return self.begin(Kind::Sequence(Vec::new()), anchor, span);
            }
            Event::MappingStart(anchor, tag) => {
                self.tag(tag, &["map"], &span)?;
                return self.begin(Kind::Mapping(Vec::new()), anchor, span);
            }
            Event::SequenceEnd | Event::MappingEnd => self.end(),
            Event::Alias(anchor) => self.alias(anchor, span)?,
            Event::Nothing
            | Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentStart(_)
            | Event::DocumentEnd => return Ok(()),
        };
        self.put(child, findings)
    }

    fn scalar(
        &mut self,
        text: &str,
        style: ScalarStyle,
        anchor: usize,
        span: Range<usize>,
    ) -> Composed<Child> {
        if text.len() > VALUE_BYTES_MAX {
            let message = format!(
                "a value is {} bytes long; the limit is {VALUE_BYTES_MAX}",
                text.len()
            );
            let start = span.start..span.start;
            return Err(self.error("value-too-long", message, &start, "starts here"));
        }
        let scalar = Scalar {
            text: text.to_string(),
            is_plain: style == ScalarStyle::Plain,
        };
        let node = self.node(Kind::Scalar(scalar), anchor, &span)?;
        self.nodes[node].end = node + 1;
        Ok(Child { node, span })
    }

    fn begin(&mut self, kind: Kind, anchor: usize, span: Range<usize>) -> Composed<()> {
        if self.open.len() == YAML_DEPTH_MAX {
            let message = format!("collections are nested deeper than {YAML_DEPTH_MAX}");
            return Err(self.error("yaml-depth", message, &span, "this one is too deep"));
        }
        let node = self.node(kind, anchor, &span)?;
        self.open.push(Open {
            node,
            span,
            key: None,
            seen: BTreeMap::new(),
        });
        Ok(())
    }

    fn end(&mut self) -> Child {
        let open = self.open.pop().expect("the parser ends what began");
        self.nodes[open.node].end = self.nodes.len();
        Child {
            node: open.node,
            span: open.span,
        }
    }

    fn alias(&mut self, anchor: usize, span: Range<usize>) -> Composed<Child> {
        let node = *self.anchors.get(&anchor).expect("anchors were numbered");
        if self.open.iter().any(|open| open.node == node) {
            let message = "an alias stands inside what it refers to";
            return Err(self.error("yaml-cycle", message, &span, "this would have no end"));
        }
        self.nodes[node].is_aliased = true;
        Ok(Child { node, span })
    }

    fn node(&mut self, kind: Kind, anchor: usize, span: &Range<usize>) -> Composed<NodeId> {
        let node = self.nodes.len();
        if node == YAML_NODES_MAX {
            let message = format!("there are more than {YAML_NODES_MAX} values");
            return Err(self.error("yaml-size", message, span, "this one is too many"));
        }
        self.nodes.push(Node {
            kind,
            end: node,
            is_aliased: false,
        });
        if anchor > 0 {
            self.anchors.insert(anchor, node);
        }
        Ok(node)
    }

    /// Puts a complete node into the collection that is open.
    fn put(&mut self, child: Child, findings: &mut Findings) -> Composed<()> {
        let Some(mut open) = self.open.pop() else {
            return Ok(());
        };
        match (&mut self.nodes[open.node].kind, open.key.take()) {
            (Kind::Scalar(_), _) => unreachable!("a scalar is never open"),
            (Kind::Sequence(items), _) => items.push(child),
            (Kind::Mapping(pairs), Some(key)) => pairs.push((key, child)),
            (Kind::Mapping(_), None) => {
                self.key(&child, &mut open, findings)?;
                open.key = Some(child);
            }
        }
        self.open.push(open);
        Ok(())
    }

    fn key(&self, key: &Child, open: &mut Open, findings: &mut Findings) -> Composed<()> {
        let Kind::Scalar(scalar) = &self.nodes[key.node].kind else {
            let message = "a key is no single word";
            return Err(self.error("wrong-type", message, &key.span, "expected a word"));
        };
        if let Some(first) = open.seen.get(&scalar.text) {
            let message = format!("`{}` is given twice", escaped(&scalar.text));
            let mut finding = Diagnostic::error("duplicate-key", message)
                .at(&self.place(&key.span), "a second time here")
                .with_context(Some(&self.place(first)), "first here");
            finding = match scalar.text.as_str() {
                "<<" => finding.with_help("merge several with `<<: [*A, *B]`"),
                _ => finding.with_help("leave one of the two out"),
            };
            findings.push(finding);
        } else {
            open.seen.insert(scalar.text.clone(), key.span.clone());
        }
        Ok(())
    }

    fn tag(&self, tag: Option<Cow<'_, Tag>>, known: &[&str], span: &Range<usize>) -> Composed<()> {
        let is_known = tag
            .as_ref()
            .is_none_or(|tag| tag.is_yaml_core_schema() && known.contains(&tag.suffix.as_str()));
        match (is_known, tag) {
            (false, Some(tag)) => {
                let message = format!("a value has the tag `{}`", escaped(&tag.to_string()));
                Err(self.error("yaml-tag", message, span, "tags have no meaning here"))
            }
            _ => Ok(()),
        }
    }

    fn syntax(&self, error: &saphyr_parser::ScanError) -> Box<Diagnostic> {
        let offset = self.offsets.byte(error.marker().index());
        let finding = Diagnostic::error("yaml-syntax", "this is not YAML")
            .at(&self.place(&(offset..offset)), error.info())
            .with_context(self.tab().as_ref(), "a tab: YAML indents with blanks")
            .with_help("YAML is described at https://yaml.org/spec/1.2.2/");
        Box::new(finding)
    }

    /// The first tab before the text of a line: what most often breaks a file.
    fn tab(&self) -> Option<Place> {
        let mut start = 0;
        for line in self.source.text.split_inclusive('\n') {
            let indent = line.len() - line.trim_start_matches([' ', '\t']).len();
            if let Some(tab) = line[..indent].find('\t') {
                return Some(self.place(&(start + tab..start + tab + 1)));
            }
            start += line.len();
        }
        None
    }

    fn error(
        &self,
        code: &'static str,
        message: impl Into<String>,
        span: &Range<usize>,
        label: &str,
    ) -> Box<Diagnostic> {
        Box::new(Diagnostic::error(code, message).at(&self.place(span), label))
    }

    fn place(&self, span: &Range<usize>) -> Place {
        Place::new(self.source, span.clone())
    }
}

/// The parser counts characters, a source bytes.
struct Offsets {
    /// Byte offset of each character, and of the end; `None` where both counts agree.
    bytes: Option<Vec<usize>>,
    length: usize,
}

impl Offsets {
    fn new(text: &str) -> Self {
        let mark = if text.starts_with('\u{feff}') { 3 } else { 0 };
        let starts = || {
            let characters = text[mark..].char_indices();
            let mut bytes: Vec<usize> = characters.map(|(offset, _)| offset + mark).collect();
            bytes.push(text.len());
            bytes
        };
        Offsets {
            bytes: (!text.is_ascii()).then(starts),
            length: text.len(),
        }
    }

    fn byte(&self, character: usize) -> usize {
        match &self.bytes {
            Some(bytes) => bytes.get(character).copied().unwrap_or(self.length),
            None => character.min(self.length),
        }
    }

    fn span(&self, span: &Span) -> Range<usize> {
        let start = self.byte(span.start.index());
        start..self.byte(span.end.index()).max(start)
    }
}
