//! A TOML document whose every key and value knows where it was written.

mod parse;
mod reader;

pub use reader::{Read, Reader};

use std::collections::BTreeMap;

use super::Place;

/// A value and where it stands.
#[derive(Clone, Debug)]
pub struct Item {
    pub value: Value,
    pub place: Place,
}

#[derive(Clone, Debug)]
pub enum Value {
    Integer(i64),
    /// As written, underscores removed, so that it is rounded once, to the reader's type.
    Float(String),
    Boolean(bool),
    Text(String),
    Datetime,
    Array(Vec<Item>),
    Table(Table),
}

impl Value {
    pub fn kind(&self) -> &'static str {
        match self {
            Value::Integer(_) => "an integer",
            Value::Float(_) => "a number",
            Value::Boolean(_) => "a boolean",
            Value::Text(_) => "a string",
            Value::Datetime => "a date",
            Value::Array(_) => "an array",
            Value::Table(_) => "a table",
        }
    }
}

#[derive(Clone, Debug)]
pub struct Entry {
    pub key: Place,
    pub item: Item,
}

/// A table, or a whole document.
#[derive(Clone, Debug)]
pub struct Table {
    pub place: Place,
    pub entries: BTreeMap<String, Entry>,
}

impl Table {
    pub fn get(&self, key: &str) -> Option<&Entry> {
        self.entries.get(key)
    }

    pub fn table(&self, key: &str) -> Option<&Table> {
        match self.get(key).map(|entry| &entry.item.value) {
            Some(Value::Table(table)) => Some(table),
            _ => None,
        }
    }

    /// Puts `over` on top: its values replace ours, tables are merged key by key.
    pub fn overlay(&mut self, over: &Table) {
        for (key, entry) in &over.entries {
            let below = self.entries.get_mut(key).map(|entry| &mut entry.item.value);
            match (below, &entry.item.value) {
                (Some(Value::Table(below)), Value::Table(above)) => below.overlay(above),
                _ => {
                    self.entries.insert(key.clone(), entry.clone());
                }
            }
        }
    }
}
