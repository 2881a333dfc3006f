//! Variables and arrays of a script, and the words that they become. Commands are never run: what
//! one would print stays in the words as it is written.

use std::collections::BTreeMap;
use std::ops::Range;

use super::text::{Char, Text};
use super::word::{Piece, Variable, Word};
use crate::recipe::limits::{SCRIPT_CHARS_MAX, SCRIPT_WORDS_MAX};

/// What a variable holds: one text, or the elements of an array.
#[derive(Clone, Debug, Default)]
pub(super) struct Value {
    pub words: Vec<Text>,
    pub is_array: bool,
    /// Assigned where a script decides whether to: the name as it stands there.
    pub conditional: Option<Range<usize>>,
    /// About the words that it was made of.
    pub remarks: Vec<Remark>,
}

#[derive(Debug, Default)]
pub(super) struct Shell {
    variables: BTreeMap<String, Value>,
    /// Variables that a launched process sees, in order of first mention.
    exported: Vec<(String, Range<usize>)>,
    /// `set -a`: every assignment exports.
    pub exports_all: bool,
    /// Characters and words that expansion has made so far.
    char_count: usize,
    word_count: usize,
}

/// Something about an expansion that a reader of its words should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Remark {
    /// `"$@"`, or `${NAME[@]}` of an array that is set nowhere: no words.
    Absent(Range<usize>),
    /// A variable that was assigned under a condition: where it is used, and where assigned.
    Conditional {
        name: String,
        used: Range<usize>,
        assigned: Range<usize>,
    },
}

/// Remarks that one variable keeps.
const REMARKS_MAX: usize = 16;

/// Variables that grow each other beyond all limits.
#[derive(Debug)]
pub(super) struct TooLong;

impl Shell {
    /// Assigns, or appends to what was assigned before.
    pub fn assign(&mut self, name: &Text, mut value: Value, appends: bool) {
        let key = name.string();
        if let (true, Some(old)) = (appends, self.variables.get(&key)) {
            let mut joined = old.words.clone();
            match (old.is_array || value.is_array, joined.first_mut()) {
                (false, Some(first)) => {
                    let more = value.words.first().map_or(&[][..], |text| &text.0);
                    first.push_all(more);
                }
                _ => joined.append(&mut value.words),
            }
            value.is_array |= old.is_array;
            value.conditional = value.conditional.or_else(|| old.conditional.clone());
            value.remarks.extend(old.remarks.iter().cloned());
            value.words = joined;
        }
        // The first of them say enough; more would grow with every assignment.
        value.remarks.truncate(REMARKS_MAX);
        self.variables.insert(key.clone(), value);
        if self.exports_all {
            self.export(&key, name.span());
        }
    }

    pub fn unset(&mut self, name: &str) {
        self.variables.remove(name);
        self.exported.retain(|(exported, _)| exported != name);
    }

    pub fn export(&mut self, name: &str, at: Range<usize>) {
        match self
            .exported
            .iter_mut()
            .find(|(exported, _)| exported == name)
        {
            Some(known) => known.1 = at,
            None => self.exported.push((name.to_string(), at)),
        }
    }

    /// Exported variables that have a value.
    pub fn environment(&self) -> impl Iterator<Item = (&str, String, &Range<usize>)> {
        self.exported.iter().filter_map(|(name, at)| {
            let value = self.variables.get(name)?;
            let text = value.words.first().map(Text::string).unwrap_or_default();
            Some((name.as_str(), text, at))
        })
    }

    /// The fields that words become: unquoted variables are split at blanks.
    pub fn fields(
        &mut self,
        words: &[Word],
        remarks: &mut Vec<Remark>,
    ) -> Result<Vec<Text>, TooLong> {
        let mut fields = Fields::default();
        for word in words {
            self.expand(word, true, &mut fields, remarks)?;
            fields.end();
        }
        self.word_count += fields.done.len();
        match self.word_count > SCRIPT_WORDS_MAX {
            true => Err(TooLong),
            false => Ok(fields.done),
        }
    }

    /// One word that is not split: the value of an assignment.
    pub fn text(&mut self, word: &Word, remarks: &mut Vec<Remark>) -> Result<Text, TooLong> {
        let mut fields = Fields::default();
        self.expand(word, false, &mut fields, remarks)?;
        fields.end();
        let mut joined = Text::default();
        for (index, field) in fields.done.into_iter().enumerate() {
            if index > 0 {
                joined.0.push((' ', field.span().start as u32));
            }
            joined.push_all(&field.0);
        }
        Ok(joined)
    }

    fn expand(
        &mut self,
        word: &[Piece],
        splits: bool,
        fields: &mut Fields,
        remarks: &mut Vec<Remark>,
    ) -> Result<(), TooLong> {
        for piece in word {
            match piece {
                Piece::Literal { text, is_quoted } => {
                    self.count(text.0.len())?;
                    fields.put(&text.0, *is_quoted);
                }
                Piece::Variable(variable) => self.variable(variable, splits, fields, remarks)?,
            }
        }
        Ok(())
    }

    fn count(&mut self, chars: usize) -> Result<(), TooLong> {
        self.char_count += chars;
        match self.char_count > SCRIPT_CHARS_MAX {
            true => Err(TooLong),
            false => Ok(()),
        }
    }

    fn variable(
        &mut self,
        variable: &Variable,
        splits: bool,
        fields: &mut Fields,
        remarks: &mut Vec<Remark>,
    ) -> Result<(), TooLong> {
        let known = self.variables.get(&variable.name);
        let is_empty = known.is_some_and(|value| value.words.iter().all(Text::is_empty));
        let wants_default = match (&variable.default, known) {
            (Some(_), None) => true,
            (Some((_, empty_counts)), Some(_)) => *empty_counts && is_empty,
            (None, _) => false,
        };
        if let (true, Some((default, _))) = (wants_default, &variable.default) {
            return match variable.is_quoted {
                false => self.expand(default, splits, fields, remarks),
                true => {
                    let text = self.text(default, remarks)?;
                    self.count(text.0.len())?;
                    fields.put(&text.0, true);
                    Ok(())
                }
            };
        }
        let Some(value) = known else {
            match variable.all {
                // `"$@"`, or all of an array that is set nowhere.
                Some(_) => remarks.push(Remark::Absent(variable.text.span())),
                None => fields.put(&variable.text.0, true),
            }
            return Ok(());
        };
        if let Some(assigned) = &value.conditional {
            remarks.push(Remark::Conditional {
                name: variable.name.clone(),
                used: variable.text.span(),
                assigned: assigned.clone(),
            });
        }
        remarks.extend(value.remarks.iter().cloned());
        let count = if variable.all.is_some() {
            usize::MAX
        } else {
            1
        };
        let words: Vec<Text> = value.words.iter().take(count).cloned().collect();
        self.count(words.iter().map(|word| word.0.len() + 1).sum())?;
        fields.put_value(&words, variable, splits);
        Ok(())
    }
}

/// Words as they grow.
#[derive(Default)]
struct Fields {
    done: Vec<Text>,
    /// The field that is not complete; `Some` though empty where quotes stood.
    open: Option<Text>,
}

impl Fields {
    fn put(&mut self, chars: &[Char], is_quoted: bool) {
        if is_quoted || !chars.is_empty() {
            self.open.get_or_insert_default().push_all(chars);
        }
    }

    fn end(&mut self) {
        self.done.extend(self.open.take());
    }

    fn put_value(&mut self, words: &[Text], variable: &Variable, splits: bool) {
        let joins = variable.all == Some(false) && variable.is_quoted;
        for (index, word) in words.iter().enumerate() {
            match (index, joins || !splits) {
                (0, _) => {}
                (_, true) => {
                    let at = word.span().start as u32;
                    self.put(&[(' ', at)], true);
                }
                (_, false) => self.end(),
            }
            match variable.is_quoted || !splits {
                true => self.put(&word.0, true),
                false => self.split(&word.0),
            }
        }
    }

    /// Adds an unquoted value: blanks end a field.
    fn split(&mut self, chars: &[Char]) {
        for run in chars.chunk_by(|a, b| is_blank(a) == is_blank(b)) {
            match is_blank(&run[0]) {
                true => self.end(),
                false => self.put(run, false),
            }
        }
    }
}

fn is_blank((c, _): &Char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\r')
}
