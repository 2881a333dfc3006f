//! JSON as strictly as traces are read: no key twice, no NaN, nothing after the record.
//!
//! serde_json reads; what it lets pass in parts that nobody asked for is looked at here.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::damage::{Damage, Whereabouts};

/// Text that is borrowed where it has no escapes.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Text<'a>(pub Cow<'a, str>);

impl Text<'_> {
    /// The same, no longer borrowed.
    pub fn into_owned(self) -> Text<'static> {
        Text(Cow::Owned(self.0.into_owned()))
    }
}

impl std::ops::Deref for Text<'_> {
    type Target = str;
    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;
        impl<'de> Visitor<'de> for TextVisitor {
            type Value = Text<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }
            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Borrowed(text)))
            }
            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Owned(text.to_string())))
            }
        }
        deserializer.deserialize_str(TextVisitor)
    }
}

/// A name: 1 to 512 characters, none of them a control character.
pub fn is_name(text: &str) -> bool {
    // Most names are plain ASCII.
    let is_plain = |byte: &u8| (b' '..=b'~').contains(byte);
    if text.as_bytes().iter().all(is_plain) {
        return (1..=NAME_CHARS_MAX).contains(&text.len());
    }
    text.chars().count() <= NAME_CHARS_MAX && !text.chars().any(char::is_control)
}

/// Longest name, in characters (Megatron-LM pull request 6610).
pub const NAME_CHARS_MAX: usize = 512;

/// Most fields that one object may have beside the format's own.
pub const FIELDS_MAX: usize = 1024;

/// Fields that a format does not name, in the order of the line.
#[derive(Clone, Debug, Default)]
pub struct Extra<'a>(pub(super) Vec<(Text<'a>, &'a RawValue)>);

impl<'a> Extra<'a> {
    /// The text of a field's value.
    pub fn get(&self, key: &str) -> Option<&'a str> {
        let found = self.0.iter().find(|(name, _)| &**name == key);
        found.map(|(_, value)| value.get())
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &'a str)> {
        self.0.iter().map(|(name, value)| (&**name, value.get()))
    }

    /// Takes one field in.
    ///
    /// # Errors
    /// A key that was there before, here or within the value.
    pub fn push<E: Error>(&mut self, key: Text<'a>, value: &'a RawValue) -> Result<(), E> {
        if self.get(&key).is_some() {
            return Err(duplicate(&key));
        }
        if self.0.len() >= FIELDS_MAX {
            let message = format!("more than {FIELDS_MAX} fields that the format does not name");
            return Err(Error::custom(message));
        }
        strict(value).map_err(Error::custom)?;
        self.0.push((key, value));
        Ok(())
    }
}

/// Looks for keys that come twice, at any depth.
///
/// # Errors
/// The first such key.
pub fn strict(value: &RawValue) -> Result<(), serde_json::Error> {
    // Scalars have no keys.
    match value.get().starts_with(['{', '[']) {
        true => Strict.deserialize(&mut serde_json::Deserializer::from_str(value.get())),
        false => Ok(()),
    }
}

/// What a duplicate key is refused with.
pub fn duplicate<E: Error>(key: &str) -> E {
    Error::custom(format!("{DUPLICATE} `{key}`"))
}

const DUPLICATE: &str = "duplicate key";

/// Sets a field that may be there once.
///
/// # Errors
/// The field was set before.
pub fn set<T, E: Error>(field: &mut Option<T>, key: &str, value: T) -> Result<(), E> {
    match field.replace(value) {
        None => Ok(()),
        Some(_) => Err(duplicate(key)),
    }
}

/// Any value, in which no object has a key twice.
struct Strict;

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = ();
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }
    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }
    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }
    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }
    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }
    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }
    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while items.next_element_seed(Strict)?.is_some() {}
        Ok(())
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut keys = std::collections::BTreeSet::new();
        while let Some(key) = map.next_key::<Text<'de>>()? {
            map.next_value_seed(Strict)?;
            if keys.contains(&key) {
                return Err(duplicate(&key));
            }
            keys.insert(key);
        }
        Ok(())
    }
}

/// Reads one line as a record.
///
/// # Errors
/// Where it is no UTF-8, no JSON, or not the record that was expected.
pub fn record<'a, T: Deserialize<'a>>(here: &Whereabouts<'a>) -> Result<T, Damage> {
    let text = std::str::from_utf8(here.bytes).map_err(|error| {
        here.damage(
            "not-utf8",
            error.valid_up_to(),
            "this byte starts no character",
        )
        .expecting("traces are UTF-8")
    })?;
    serde_json::from_str(text).map_err(|error| refusal(here, text, &error))
}

fn refusal(here: &Whereabouts<'_>, text: &str, error: &serde_json::Error) -> Damage {
    // serde_json counts columns in bytes, from 1; 0 stands before the first.
    let at = error.column().saturating_sub(1);
    let said = error.to_string();
    let said = said.split(" at line ").next().unwrap_or_default();
    if error.is_eof() {
        return here
            .damage(
                "cut-line",
                text.len(),
                "the line ends in the middle of a record",
            )
            .expecting("a writer was killed here, or the file was cut");
    }
    // What is refused is the last byte read or the one after it.
    let near = |word: &str| {
        let from = at.saturating_sub(word.len());
        let found = text.get(from..).and_then(|rest| rest.find(word));
        found
            .map(|found| from + found)
            .filter(|found| *found <= at + 1)
    };
    if let Some(found) = ["NaN", "-Infinity", "Infinity"].into_iter().find_map(near)
        && error.is_syntax()
    {
        return here
            .damage("nan-literal", found, "this number is no JSON")
            .expecting("a number, or null");
    }
    let is_twice = said.starts_with(DUPLICATE) || said.starts_with("duplicate field");
    let code = match (is_twice, error.is_syntax()) {
        (true, _) => "duplicate-key",
        (false, true) => "not-json",
        (false, false) => "wrong-field",
    };
    here.damage(code, at, said.to_string())
}
