//! `export`, `declare`, `local`, `readonly`: variables with attributes.

use std::ops::Range;

use super::builtin::literal_of;
use super::item::{as_word, element_assigned, item_span};
use super::lexer::Item;
use super::program::is_name;
use super::script::{Halt, Script, not_followed};
use super::shell::{Remark, Value};
use super::text::Text;
use super::word::has_braces;

/// The fields of a word, and what is to be told of them.
type Expanded = (Vec<Text>, Vec<Remark>);

/// What a command gives to the names behind its options.
struct Attributes {
    word: String,
    exports: bool,
    takes_back: bool,
    /// What an assignment does to it is not followed.
    is_odd: bool,
    is_local: bool,
    /// In a function `-g` reaches past its own names.
    in_function: bool,
    /// `-f`: the names are functions'.
    is_of_functions: bool,
}

impl Script {
    /// `export NAME=value`, `export NAME`, `declare -x NAME=value`, `declare -a NAME=(...)`.
    pub(super) fn declare(&mut self, word: &str, items: &[Item]) -> Result<(), Halt> {
        let mut attributes = Attributes {
            word: word.to_string(),
            exports: word == "export",
            takes_back: false,
            is_odd: word == "readonly",
            is_local: matches!(word, "local" | "declare" | "typeset"),
            in_function: !self.frames.is_empty(),
            is_of_functions: false,
        };
        // All words are expanded before any of them is assigned: `export A=1 B=$A`.
        let mut expanded = Vec::new();
        for item in items {
            expanded.push(self.expanded(item)?);
        }
        for (item, words) in items.iter().zip(expanded) {
            match (item, words) {
                (_, Some((fields, remarks))) => {
                    for field in fields {
                        self.declared(&field, &remarks, &mut attributes, item)?;
                    }
                }
                (Item::Array { name, .. }, None) => {
                    self.own(name, &attributes)?;
                    self.assign(item)?;
                    self.attributed(name, true, &attributes);
                }
                (Item::Assignment { name, .. }, None) => {
                    self.own(name, &attributes)?;
                    self.shell.forget(&name.string(), name.span());
                    self.attributed(name, true, &attributes);
                }
                (Item::Word(_) | Item::Arithmetic(_), None) => match element_assigned(item) {
                    Some((array, at)) => self.shell.forget(&array, at),
                    None => self.loses_to(item_span(item))?,
                },
            }
        }
        Ok(())
    }

    /// The fields of one word; `None` of an array, an element of one, and of `{a,b}`.
    fn expanded(&mut self, item: &Item) -> Result<Option<Expanded>, Halt> {
        let mut remarks = Vec::new();
        let fields = match item {
            Item::Array { .. } => return Ok(None),
            _ if element_assigned(item).is_some() => return Ok(None),
            _ if has_braces(&as_word(item)) => return Ok(None),
            Item::Assignment { .. } => vec![self.shell.text(&as_word(item), &mut remarks)?],
            // `export "NAME=$VALUE"`, `export $NAMES`
            Item::Word(_) | Item::Arithmetic(_) => {
                self.shell.fields(&[as_word(item)], &mut remarks)?
            }
        };
        Ok(Some((fields, remarks)))
    }

    /// One word behind `declare`, expanded.
    fn declared(
        &mut self,
        field: &Text,
        remarks: &[Remark],
        attributes: &mut Attributes,
        item: &Item,
    ) -> Result<(), Halt> {
        let at = literal_of(item).span();
        if let Some(options) = field.string().strip_prefix(['-', '+']) {
            let takes = field.starts_with("+");
            if field.string() == "-" {
                // `local -`: options of the shell are the function's own.
                return Err(not_followed(item_span(item)));
            }
            return attributes.take(options, takes, item_span(item));
        }
        if attributes.is_of_functions {
            if self.undecided.is_some() && (attributes.exports || attributes.takes_back) {
                return Err(not_followed(item_span(item)));
            }
            match attributes.takes_back {
                true => self.exported_functions.remove(&field.string()),
                false if attributes.exports => self.exported_functions.insert(field.string()),
                false => false,
            };
            return Ok(());
        }
        let (name, value) = match field.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (field.clone(), None),
        };
        let appends = value.is_some() && name.0.last().is_some_and(|(c, _)| *c == '+');
        let length = name.0.len() - usize::from(appends);
        let name = Text(name.0[..length].to_vec());
        let array = name.split_once('[').map(|(array, _)| array);
        if let Some(array) = array.filter(is_name) {
            self.shell.forget(&array.string(), at);
            return Ok(());
        }
        if !is_name(&name) {
            // `export "$A"`: which names it sets is not known.
            return Ok(self.loses_to(at)?);
        }
        let is_hidden = self.own(&name, attributes)?;
        let sets = value.is_some();
        match value {
            Some(value) => {
                let value = Value {
                    words: vec![value],
                    remarks: remarks.to_vec(),
                    ..Value::default()
                };
                self.shell.assign(&name, value, appends);
            }
            // Where the caller's is exported, which one a program sees is bash's own matter.
            None if is_hidden && self.shell.is_exported(&name.string()) => {
                self.shell.forget(&name.string(), at);
            }
            None if is_hidden => self.shell.unset_value(&name.string()),
            None => {}
        }
        if appends && is_hidden {
            self.shell.forget(&name.string(), name.span());
        }
        self.attributed(&name, sets, attributes);
        Ok(())
    }

    /// What a function declares is its own, whatever its caller has. Whether it is so from here on.
    fn own(&mut self, name: &Text, attributes: &Attributes) -> Result<bool, Halt> {
        let (key, at) = (name.string(), name.span());
        let is_refused = match attributes.is_local {
            true => self.is_temporary(&key),
            false => self.is_scoped(&key),
        };
        match (is_refused, attributes.is_local) {
            (true, _) => Err(not_followed(at)),
            (false, true) => self.hide(&key, &at),
            (false, false) => Ok(false),
        }
    }

    /// Behind the assignment, if there is one.
    fn attributed(&mut self, name: &Text, sets: bool, attributes: &Attributes) {
        let (key, at) = (name.string(), name.span());
        let keeps = attributes.word == "readonly";
        if attributes.is_odd && sets && !keeps {
            self.shell.forget(&key, at.clone());
        }
        if attributes.is_odd {
            self.shell.mark_odd(&key);
        }
        match (attributes.takes_back, attributes.exports) {
            (true, _) => self.shell.unexport(&key),
            (false, true) => self.shell.export(&key, at),
            (false, false) => {}
        }
    }
}

impl Attributes {
    /// `-x`, `+x`, `-gi`
    fn take(&mut self, options: &str, takes: bool, at: Range<usize>) -> Result<(), Halt> {
        if takes {
            self.takes_back |= options.contains('x');
            return Ok(());
        }
        if self.word != "export" && options.contains('n') {
            // A name for another name.
            return Err(not_followed(at));
        }
        self.is_of_functions |= options.contains(['f', 'F']);
        self.is_odd |= options.contains(['i', 'l', 'u', 'c', 'r']);
        self.exports |= options.contains('x');
        // `export -n NAME` takes it back.
        self.takes_back |= self.word == "export" && options.contains('n');
        if options.contains('g') && self.in_function {
            return Err(not_followed(at));
        }
        self.is_local &= !options.contains('g');
        Ok(())
    }
}
