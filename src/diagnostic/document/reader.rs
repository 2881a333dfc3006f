//! Reads the keys of one table: types, ranges, defaults, and what is left over.

use std::ops::RangeInclusive;

use super::{Entry, Item, Table, Value};
use crate::diagnostic::{Diagnostic, Findings, Place, nearest};

/// A value that was read, its default, or a stand-in after a finding.
#[derive(Clone, Debug)]
pub struct Read<T> {
    pub value: T,
    /// Where the value was written; `None` for a default.
    pub place: Option<Place>,
    /// False for a stand-in: what depends on it is not worth a second complaint.
    pub sound: bool,
}

impl<T> Read<T> {
    fn given(value: T, item: &Item) -> Self {
        Read {
            value,
            place: Some(item.place.clone()),
            sound: true,
        }
    }

    fn default(value: T) -> Self {
        Read {
            value,
            place: None,
            sound: true,
        }
    }

    fn broken(value: T) -> Self {
        Read {
            value,
            place: None,
            sound: false,
        }
    }

    pub fn is_given(&self) -> bool {
        self.place.is_some()
    }

    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Read<U> {
        Read {
            value: change(self.value),
            place: self.place,
            sound: self.sound,
        }
    }
}

/// Reads a table key by key and, at the end, complains about keys that nobody asked for.
pub struct Reader<'a> {
    table: &'a Table,
    /// Dotted path of the table, empty for the document.
    path: &'a str,
    asked: Vec<&'static str>,
    pub findings: &'a mut Findings,
}

impl<'a> Reader<'a> {
    pub fn new(table: &'a Table, path: &'a str, findings: &'a mut Findings) -> Self {
        Reader {
            table,
            path,
            asked: Vec::new(),
            findings,
        }
    }

    pub fn place(&self) -> &'a Place {
        &self.table.place
    }

    /// Notes that `key` is known, and returns what was written for it.
    pub fn entry(&mut self, key: &'static str) -> Option<&'a Entry> {
        self.asked.push(key);
        self.table.get(key)
    }

    /// An integer in `range`; without a default the key must be there.
    pub fn integer(
        &mut self,
        key: &'static str,
        range: RangeInclusive<i64>,
        default: Option<i64>,
    ) -> Read<i64> {
        let stand_in = default.unwrap_or(*range.start());
        let Some(entry) = self.entry(key) else {
            return self.absent(key, default, stand_in, "an integer");
        };
        match entry.item.value {
            Value::Integer(number) if range.contains(&number) => Read::given(number, &entry.item),
            Value::Integer(number) => {
                let limits = format!("expected {} to {}", range.start(), range.end());
                let message = format!("`{}` is {number}, out of range", self.full(key));
                self.complain("out-of-range", message, &entry.item, &limits);
                Read::broken(stand_in)
            }
            _ => self.wrong_type(key, &entry.item, "an integer", stand_in),
        }
    }

    /// [`Reader::integer`] for sizes and counts.
    pub fn count(
        &mut self,
        key: &'static str,
        range: RangeInclusive<u32>,
        default: Option<u32>,
    ) -> Read<u32> {
        let wide = i64::from(*range.start())..=i64::from(*range.end());
        self.integer(key, wide, default.map(i64::from))
            .map(|number| number as u32)
    }

    /// A finite number in `range`, rounded once to `f32`.
    pub fn real(
        &mut self,
        key: &'static str,
        range: RangeInclusive<f32>,
        default: Option<f32>,
    ) -> Read<f32> {
        let stand_in = default.unwrap_or(*range.start());
        let Some(entry) = self.entry(key) else {
            return self.absent(key, default, stand_in, "a number");
        };
        let number = match &entry.item.value {
            Value::Integer(number) => Some(*number as f32),
            Value::Float(text) => text.parse::<f32>().ok(),
            _ => return self.wrong_type(key, &entry.item, "a number", stand_in),
        };
        match number {
            Some(number) if range.contains(&number) => Read::given(number, &entry.item),
            _ => {
                let limits = format!("expected {:?} to {:?}", range.start(), range.end());
                let message = format!("`{}` is out of range", self.full(key));
                self.complain("out-of-range", message, &entry.item, &limits);
                Read::broken(stand_in)
            }
        }
    }

    pub fn boolean(&mut self, key: &'static str, default: bool) -> Read<bool> {
        let Some(entry) = self.entry(key) else {
            return Read::default(default);
        };
        match entry.item.value {
            Value::Boolean(boolean) => Read::given(boolean, &entry.item),
            _ => self.wrong_type(key, &entry.item, "true or false", default),
        }
    }

    pub fn text(&mut self, key: &'static str) -> Option<(&'a str, &'a Place)> {
        let item = &self.entry(key)?.item;
        match &item.value {
            Value::Text(text) => Some((text, &item.place)),
            _ => self.wrong_type(key, item, "a string", None).value,
        }
    }

    /// One of a fixed set of words.
    pub fn word<T: Clone>(
        &mut self,
        key: &'static str,
        words: &[(&str, T)],
        default: T,
    ) -> Read<T> {
        let Some(entry) = self.entry(key) else {
            return Read::default(default);
        };
        match self.word_of(key, &entry.item, words) {
            Some(value) => Read::given(value, &entry.item),
            None => Read::broken(default),
        }
    }

    /// A list of distinct words of a fixed set; absent means `None`.
    pub fn words<T: Clone>(&mut self, key: &'static str, words: &[(&str, T)]) -> Option<Vec<T>> {
        let items = self.array(key, "an array of strings")?;
        Some(
            items
                .iter()
                .filter_map(|item| self.word_of(key, item, words))
                .collect(),
        )
    }

    pub fn array(&mut self, key: &'static str, expected: &str) -> Option<&'a [Item]> {
        let item = &self.entry(key)?.item;
        match &item.value {
            Value::Array(items) => Some(items),
            _ => self.wrong_type(key, item, expected, None).value,
        }
    }

    pub fn table(&mut self, key: &'static str) -> Option<&'a Table> {
        let item = &self.entry(key)?.item;
        match &item.value {
            Value::Table(table) => Some(table),
            _ => self.wrong_type(key, item, "a table", None).value,
        }
    }

    fn word_of<T: Clone>(&mut self, key: &str, item: &Item, words: &[(&str, T)]) -> Option<T> {
        let Value::Text(text) = &item.value else {
            return self.wrong_type(key, item, "a string", None).value;
        };
        if let Some((_, value)) = words.iter().find(|(word, _)| word == text) {
            return Some(value.clone());
        }
        let known: Vec<String> = words.iter().map(|(word, _)| format!("{word:?}")).collect();
        let message = format!("`{text}` is no value of `{}`", self.full(key));
        let mut finding = Diagnostic::error("unknown-value", message)
            .at(&item.place, format!("expected {}", known.join(" or ")));
        if let Some(word) = nearest(text, words.iter().map(|(word, _)| *word)) {
            finding = finding.with_help(format!("did you mean \"{word}\"?"));
        }
        self.findings.push(finding);
        None
    }

    /// A finding about the value of a key of this table.
    pub fn complain(&mut self, code: &'static str, message: String, item: &Item, label: &str) {
        self.findings
            .push(Diagnostic::error(code, message).at(&item.place, label));
    }

    pub fn wrong_type<T>(
        &mut self,
        key: &str,
        item: &Item,
        expected: &str,
        stand_in: T,
    ) -> Read<T> {
        let message = format!("`{}` is {}", self.full(key), item.value.kind());
        self.complain("wrong-type", message, item, &format!("expected {expected}"));
        Read::broken(stand_in)
    }

    fn absent<T>(&mut self, key: &str, default: Option<T>, stand_in: T, kind: &str) -> Read<T> {
        if let Some(default) = default {
            return Read::default(default);
        }
        self.missing(key, kind);
        Read::broken(stand_in)
    }

    pub fn missing(&mut self, key: &str, kind: &str) {
        let message = format!("`{}` is missing", self.full(key));
        let label = format!("expected a key `{key}` with {kind}");
        let mut finding = Diagnostic::error("missing-key", message).at(self.place(), &label);
        let is_whole_file = self.table.place.span == (0..self.table.place.source.text.len());
        if is_whole_file {
            finding = finding.with_help(label);
        }
        self.findings.push(finding);
    }

    fn full(&self, key: &str) -> String {
        match self.path {
            "" => key.to_string(),
            path => format!("{path}.{key}"),
        }
    }

    /// Complains about every key that was never asked for.
    pub fn finish(self) {
        for (key, entry) in &self.table.entries {
            if self.asked.contains(&key.as_str()) {
                continue;
            }
            let within = match self.path {
                "" => "here".to_string(),
                path => format!("in `{path}`"),
            };
            let mut finding = Diagnostic::error("unknown-key", format!("unknown key `{key}`"))
                .at(&entry.key, format!("no such key {within}"));
            finding = match nearest(key, self.asked.iter().copied()) {
                Some(known) => finding.with_help(format!("did you mean `{known}`?")),
                None => finding.with_note(format!("known keys: {}", self.asked.join(", "))),
            };
            self.findings.push(finding);
        }
    }
}
