//! Text that came from outside, made safe to show.

use std::borrow::Cow;

/// `text` with its control characters (C0, DEL and C1) and those that turn or break lines of text
/// (UAX #9) written out, `\u{1b}` for an escape: a name in a file must not steer the terminal, or
/// the log, that it is shown in.
pub fn escaped(text: &str) -> Cow<'_, str> {
    if !text.chars().any(steers) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match steers(c) {
            true => shown.extend(c.escape_default()),
            false => shown.push(c),
        }
    }
    Cow::Owned(shown)
}

fn steers(c: char) -> bool {
    let turns = matches!(
        c,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    c.is_control() || turns
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
        assert_eq!(escaped("a\u{202e}b\u{2069}"), "a\\u{202e}b\\u{2069}");
        let hostile = "a\u{1b}[2J\u{9b}2J\u{7f}\n\t\u{0}";
        let shown = escaped(hostile);
        assert_eq!(shown, "a\\u{1b}[2J\\u{9b}2J\\u{7f}\\n\\t\\u{0}");
        assert_eq!(escaped(&shown), shown, "escaped twice");
    }
}
