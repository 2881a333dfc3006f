//! Words of a command as they are written, before anything is put in.

use std::ops::Range;

use super::lexer::Item;
use super::program::is_name;
use super::text::{Char, NO_CHAR, Text};
use super::word::{self, Piece, Word};

/// `NAME[index]=value`: one element, whose array is not known from then on.
pub(super) fn element_assigned(item: &Item) -> Option<(String, Range<usize>)> {
    let Item::Word(word) = item else { return None };
    let Some(Piece::Literal {
        text,
        is_quoted: false,
    }) = word.first()
    else {
        return None;
    };
    let (name, _) = text.split_once('[')?;
    is_name(&name).then(|| (name.string(), name.span()))
}

/// Where a character stands; nowhere for [`NO_CHAR`].
pub(super) fn range_of((c, at): Char) -> Range<usize> {
    let length = if c == NO_CHAR.0 { 0 } else { c.len_utf8() };
    at as usize..at as usize + length
}

/// An item behind a command's name is a word, whatever it looks like.
pub(super) fn as_word(item: &Item) -> Word {
    let literal = |chars: Vec<Char>| Piece::Literal {
        text: Text(chars),
        is_quoted: false,
    };
    let named = |name: &Text, appends: bool| {
        let mut chars = name.0.clone();
        let at = name.span().end as u32;
        chars.extend(appends.then_some(('+', at)));
        chars.push(('=', at + u32::from(appends)));
        literal(chars)
    };
    match item {
        Item::Word(word) => word.clone(),
        Item::Assignment {
            name,
            appends,
            value,
        } => {
            let mut word = vec![named(name, *appends)];
            word.extend(value.iter().cloned());
            word
        }
        Item::Array { name, appends, .. } => vec![named(name, *appends)],
        Item::Arithmetic(text) => vec![Piece::Literal {
            text: text.clone(),
            is_quoted: true,
        }],
    }
}

pub(super) fn item_span(item: &Item) -> Range<usize> {
    range_of(first_char(item))
}

/// The name of a command, where it is written out.
pub(super) fn command_name(item: &Item) -> Option<String> {
    match item {
        Item::Word(word) => word::literal_word(word),
        Item::Assignment { .. } | Item::Array { .. } | Item::Arithmetic(_) => None,
    }
}

/// Where an item begins.
pub(super) fn first_char(item: &Item) -> Char {
    let of_piece = |piece: &Piece| match piece {
        Piece::Literal { text, .. } | Piece::Arithmetic { text, .. } => text.0.first().copied(),
        Piece::Variable(variable) => variable.text.0.first().copied(),
    };
    let first = match item {
        Item::Word(word) => word.iter().find_map(of_piece),
        Item::Assignment { name, .. } | Item::Array { name, .. } | Item::Arithmetic(name) => {
            name.0.first().copied()
        }
    };
    first.unwrap_or(NO_CHAR)
}
