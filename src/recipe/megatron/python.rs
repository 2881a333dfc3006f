//! Values as Python's `print` writes them.

use super::GivenValue;

/// The value of `str(value)`: `None`, `True`, a list or tuple of plain values, or text.
pub(super) fn value(text: &str) -> GivenValue {
    match text {
        "None" => GivenValue::Nothing,
        "True" => GivenValue::On,
        "False" => GivenValue::Off,
        _ => match list(text) {
            Some(items) => GivenValue::List(items),
            // A text is printed without quotes: those that are there are its own.
            None => GivenValue::Text(text.to_string()),
        },
    }
}

/// `['a', 'b']`, `[1, 2]`, `(0.9, 0.95)`: the items as words. `None` for lists of lists.
fn list(text: &str) -> Option<Vec<String>> {
    let close = match text.chars().next()? {
        '[' => ']',
        '(' => ')',
        _ => return None,
    };
    let mut reader = Reader { rest: &text[1..] };
    let mut items = Vec::new();
    loop {
        reader.skip_blanks();
        if reader.take(close) {
            return reader.rest.is_empty().then_some(items);
        }
        items.push(reader.item(close)?);
        reader.skip_blanks();
        if !reader.take(',') && !reader.rest.starts_with(close) {
            return None;
        }
    }
}

struct Reader<'a> {
    rest: &'a str,
}

impl Reader<'_> {
    fn skip_blanks(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn take(&mut self, wanted: char) -> bool {
        let rest = self.rest.strip_prefix(wanted);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn item(&mut self, close: char) -> Option<String> {
        if self.rest.starts_with(['\'', '"']) {
            return self.quoted();
        }
        let end = self.rest.find([',', close])?;
        let item = self.rest[..end].trim();
        self.rest = &self.rest[end..];
        let is_plain = !item.is_empty() && !item.contains(['[', '(', '{', '\'', '"']);
        is_plain.then(|| item.to_string())
    }

    fn quoted(&mut self) -> Option<String> {
        let quote = self
            .rest
            .chars()
            .next()
            .filter(|c| matches!(c, '\'' | '"'))?;
        let mut text = String::new();
        let mut chars = self.rest[1..].char_indices();
        while let Some((at, c)) = chars.next() {
            match c {
                '\\' => match chars.next()?.1 {
                    escaped @ ('\\' | '\'' | '"') => text.push(escaped),
                    'n' => text.push('\n'),
                    't' => text.push('\t'),
                    other => text.extend(['\\', other]),
                },
                c if c == quote => {
                    self.rest = &self.rest[1 + at + 1..];
                    return Some(text);
                }
                c => text.push(c),
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> GivenValue {
        GivenValue::List(words.iter().map(|word| word.to_string()).collect())
    }

    #[test]
    fn values_are_read_as_python_writes_them() {
        assert_eq!(value("None"), GivenValue::Nothing);
        assert_eq!(value("True"), GivenValue::On);
        assert_eq!(value("False"), GivenValue::Off);
        assert_eq!(value("[]"), words(&[]));
        assert_eq!(value("[949, 50, 1]"), words(&["949", "50", "1"]));
        assert_eq!(value("(0.9, 0.95,)"), words(&["0.9", "0.95"]));
        assert_eq!(
            value("['a, b', \"it's\", 'q\\'']"),
            words(&["a, b", "it's", "q'"])
        );
        assert_eq!(
            value("[None, torch.float32]"),
            words(&["None", "torch.float32"])
        );
        for raw in [
            "1e-05",
            "torch.bfloat16",
            "AttnBackend.auto",
            "949,50,1",
            "M-M*|M",
            "[[1, 2], [3]]",
            "([0]*4+[1]*9)",
            "[a",
            "['a' 'b']",
            "['a'",
            "[,]",
            "'a' and 'b'",
            "",
        ] {
            assert_eq!(value(raw), GivenValue::Text(raw.to_string()), "{raw}");
        }
        assert_eq!(value("'a b'"), GivenValue::Text("'a b'".into()));
    }
}
