//! Text that came from outside, made safe to show.

use std::borrow::Cow;

/// `text` with its control characters (C0, DEL and C1) written out, `\u{1b}` for an escape: a name
/// in a file must not steer the terminal, or the log, that it is shown in.
pub fn escaped(text: &str) -> Cow<'_, str> {
    if !text.chars().any(char::is_control) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match c.is_control() {
            true => shown.extend(c.escape_default()),
            false => shown.push(c),
        }
    }
    Cow::Owned(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_written_out_and_nothing_else_is() {
        assert!(matches!(
            escaped("gr\u{f6}\u{df}e"),
            Cow::Borrowed("gr\u{f6}\u{df}e")
        ));
        let hostile = "a\u{1b}[2J\u{9b}2J\u{7f}\n\t\u{0}";
        let shown = escaped(hostile);
        assert_eq!(shown, "a\\u{1b}[2J\\u{9b}2J\\u{7f}\\n\\t\\u{0}");
        assert_eq!(escaped(&shown), shown, "escaped twice");
    }
}
