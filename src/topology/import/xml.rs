//! XML as NCCL writes it: elements and attributes with places, nothing else.
//!
//! Declared entities and document types are refused, so nothing grows when it is read; depth and
//! number of elements have limits.

use std::ops::Range;

use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};

use super::Refused;
use crate::diagnostic::{Diagnostic, Place, Source, escaped};

/// NCCL's own files are at most about 12 deep.
const DEPTH_MAX: usize = 64;
/// `MAX_NODES` of NCCL's parser is 4,096; a dump of a 72-GPU domain has some thousands.
const ELEMENTS_MAX: usize = 200_000;

/// An element, without the text between its children.
#[derive(Clone, Debug)]
pub(super) struct Element {
    pub name: String,
    /// Its start tag.
    pub span: Range<usize>,
    pub attributes: Vec<Attribute>,
    pub children: Vec<Element>,
}

#[derive(Clone, Debug)]
pub(super) struct Attribute {
    pub name: String,
    pub value: String,
    pub span: Range<usize>,
}

impl Element {
    pub fn get(&self, name: &str) -> Option<&Attribute> {
        self.attributes.iter().find(|one| one.name == name)
    }

    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Element> {
        self.children.iter().filter(move |child| child.name == name)
    }

    /// The attribute, which the element must have.
    pub fn required(&self, source: &Source, name: &str) -> Result<&Attribute, Refused> {
        self.get(name).ok_or_else(|| {
            let message = format!("`<{}>` has no `{name}`", escaped(&self.name));
            let place = Place::new(source, self.span.clone());
            let finding = Diagnostic::error("xml-attribute", message);
            Box::new(finding.at(&place, format!("expected {name}=\"...\"")))
        })
    }
}

impl Attribute {
    /// The value as a number from `least` to `most`.
    pub fn number(&self, source: &Source, least: u64, most: u64) -> Result<u64, Refused> {
        let value = self.value.trim().parse::<u64>().ok();
        match value.filter(|value| (least..=most).contains(value)) {
            Some(value) => Ok(value),
            None => Err(self.refused(source, &format!("expected a number from {least} to {most}"))),
        }
    }

    pub fn refused(&self, source: &Source, expected: &str) -> Refused {
        let (name, value) = (escaped(&self.name), escaped(&self.value));
        let message = format!("`{name}` is `{value}`");
        let place = Place::new(source, self.span.clone());
        Box::new(Diagnostic::error("xml-attribute", message).at(&place, expected))
    }
}

/// The one element that holds all others.
pub(super) fn parse(source: &Source) -> Result<Element, Refused> {
    let mut reader = Reader::from_str(&source.text);
    let mut open: Vec<Element> = Vec::new();
    let mut count = 0;
    let mut root = None;
    loop {
        let start = reader.buffer_position() as usize;
        let event = reader.read_event().map_err(|error| {
            let at = reader.error_position() as usize;
            refuse(
                source,
                at..at + 1,
                "xml",
                format!("this is no XML: {error}"),
            )
        })?;
        let span = start..reader.buffer_position() as usize;
        let is_empty = matches!(event, Event::Empty(_));
        match event {
            Event::Start(tag) | Event::Empty(tag) => {
                count += 1;
                if count > ELEMENTS_MAX {
                    let message = format!("there are more than {ELEMENTS_MAX} elements");
                    return Err(refuse(source, span, "xml-size", message));
                }
                if open.len() == DEPTH_MAX {
                    let message = format!("elements are nested more than {DEPTH_MAX} deep");
                    return Err(refuse(source, span, "xml-depth", message));
                }
                if root.is_some() {
                    let message = "there is a second element beside the first".to_string();
                    return Err(refuse(source, span, "xml", message));
                }
                let made = element(source, &tag, span)?;
                match is_empty {
                    true => close(made, &mut open, &mut root),
                    false => open.push(made),
                }
            }
            Event::End(_) => {
                // The reader has matched it with its start.
                if let Some(ended) = open.pop() {
                    close(ended, &mut open, &mut root);
                }
            }
            Event::DocType(_) => {
                let message = "document types are not read".to_string();
                return Err(refuse(source, span, "xml-doctype", message));
            }
            Event::Eof => break,
            _ => {}
        }
    }
    if let Some(left) = open.last() {
        let message = format!("`<{}>` has no end", escaped(&left.name));
        return Err(refuse(source, left.span.clone(), "xml", message));
    }
    root.ok_or_else(|| refuse(source, 0..0, "xml", "there is no element".to_string()))
}

fn close(ended: Element, open: &mut [Element], root: &mut Option<Element>) {
    match open.last_mut() {
        Some(parent) => parent.children.push(ended),
        None => *root = Some(ended),
    }
}

fn element(source: &Source, tag: &BytesStart<'_>, span: Range<usize>) -> Result<Element, Refused> {
    let name = String::from_utf8_lossy(tag.name().as_ref()).into_owned();
    let mut attributes: Vec<Attribute> = Vec::new();
    for attribute in tag.attributes() {
        let attribute = attribute.map_err(|error| {
            let message = format!("a bad attribute of `<{}>`: {error}", escaped(&name));
            refuse(source, span.clone(), "xml", message)
        })?;
        let raw = attribute.value.as_ref();
        // The raw value is a part of the text: its address says which.
        let offset = (raw.as_ptr() as usize).wrapping_sub(source.text.as_ptr() as usize);
        let is_inside = offset <= source.text.len() && raw.len() <= source.text.len() - offset;
        let place = match is_inside {
            true => offset..offset + raw.len(),
            false => span.clone(),
        };
        let text = String::from_utf8_lossy(raw).into_owned();
        let value = quick_xml::escape::unescape(&text).map_err(|error| {
            refuse(
                source,
                place.clone(),
                "xml",
                format!("a bad value: {error}"),
            )
        })?;
        attributes.push(Attribute {
            name: String::from_utf8_lossy(attribute.key.as_ref()).into_owned(),
            value: value.into_owned(),
            span: place,
        });
    }
    Ok(Element {
        name,
        span,
        attributes,
        children: Vec::new(),
    })
}

fn refuse(source: &Source, span: Range<usize>, code: &'static str, message: String) -> Refused {
    let place = Place::new(source, span);
    Box::new(Diagnostic::error(code, message).at(&place, "here"))
}
