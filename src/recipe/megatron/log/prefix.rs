//! What launchers put before every line: times and ranks.

/// The text before a block's title. Other lines begin with the same, up to their numbers: times go
/// on, and the number of the rank says whose line it is.
pub(super) struct Prefix<'a> {
    text: &'a str,
    /// Which of its numbers is the rank's.
    rank: Option<usize>,
}

/// Dashes on either side of a title.
const DASHES: usize = 24;

impl<'a> Prefix<'a> {
    /// Of a title's line; `marked` are its words with some of the dashes around them.
    pub fn of_title(line: &'a str, marked: &str) -> Prefix<'a> {
        let first_word = marked.trim_start_matches('-');
        let dashes_end = line.find(marked).unwrap_or(0) + marked.len() - first_word.len();
        let bytes = line.as_bytes()[..dashes_end].iter().rev();
        let dashes = bytes.take(DASHES).take_while(|byte| **byte == b'-').count();
        let text = line[..dashes_end - dashes].trim();
        let rank = rank_in(text);
        Prefix { text, rank }
    }

    pub fn text(&self) -> &str {
        self.text
    }

    /// Whether all that stands before an argument is this, of the same rank.
    pub fn fits(&self, before: &str) -> bool {
        let before = before.trim();
        self.begins(before).is_some_and(|(numbers, rest)| {
            rest.is_empty() && self.number_of_rank(&numbers) == self.own_rank()
        })
    }

    /// Whether a whole line is another rank's: launchers mark whole lines.
    pub fn is_of_another_rank(&self, line: &str) -> bool {
        let found = self.begins(line.trim());
        let rank = found.and_then(|(numbers, _)| self.number_of_rank(&numbers));
        rank.is_some() && rank != self.own_rank()
    }

    fn own_rank(&self) -> Option<&'a str> {
        let (numbers, _) = matched(self.text, self.text).expect("a text begins with itself");
        numbers.get(self.rank?).copied()
    }

    fn number_of_rank<'l>(&self, numbers: &[&'l str]) -> Option<&'l str> {
        numbers.get(self.rank?).copied()
    }

    fn begins<'l>(&self, line: &'l str) -> Option<(Vec<&'l str>, &'l str)> {
        matched(self.text, line)
    }
}

/// Where the rank stands: `[default0]:` (torchrun), `[1,0]<stdout>:` (mpirun), or `0:` before
/// everything (srun). No time of a day is one.
fn rank_in(prefix: &str) -> Option<usize> {
    let numbers = |text: &str| matched(text, text).map_or(0, |(numbers, _)| numbers.len());
    let mut brackets = prefix.match_indices('[').filter_map(|(at, _)| {
        let inside = prefix[at + 1..].split_once(']')?.0;
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, ',' | '_');
        let is_rank = inside.ends_with(|c: char| c.is_ascii_digit()) && inside.chars().all(is_name);
        is_rank.then(|| numbers(&prefix[..at + 1 + inside.len()]) - 1)
    });
    brackets.next_back().or_else(|| {
        let digits = prefix.bytes().take_while(u8::is_ascii_digit).count();
        let rest = prefix[digits..].strip_prefix(':')?;
        (digits > 0 && (rest.is_empty() || rest.starts_with(' '))).then_some(0)
    })
}

/// The numbers of `line`'s beginning, which is `pattern` with numbers of its own, and what follows.
fn matched<'l>(pattern: &str, line: &'l str) -> Option<(Vec<&'l str>, &'l str)> {
    let (mut pattern, mut rest) = (pattern, line);
    let mut numbers = Vec::new();
    while let Some(wanted) = pattern.chars().next() {
        let length = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
        if wanted.is_ascii_digit() {
            let number = length(rest);
            numbers.push(&rest[..number]);
            if number == 0 {
                return None;
            }
            rest = &rest[number..];
            pattern = &pattern[length(pattern)..];
        } else {
            rest = rest.strip_prefix(wanted)?;
            pattern = &pattern[wanted.len_utf8()..];
        }
    }
    Some((numbers, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARKED: &str = "---- arguments ----";

    fn of(before: &'static str) -> Prefix<'static> {
        let title = format!("{before}{0} arguments {0}", "-".repeat(DASHES));
        Prefix::of_title(Box::leak(title.into_boxed_str()), MARKED)
    }

    #[test]
    fn ranks_are_told_apart_and_times_are_none() {
        for (before, same, other) in [
            (
                "[default0]:",
                "[default0]:  ",
                Some("[default5]: a warning"),
            ),
            ("0: ", "0:   ", Some("12: x")),
            (" 0: ", " 0:   ", Some("12:")),
            (
                "[1,0]<stdout>:",
                "[1,0]<stdout>:  ",
                Some("[1,3]<stdout>:x"),
            ),
            (
                "2026-01-01 10:00:00,123 [rank0]: ",
                "2026-01-01 10:00:01,9 [rank0]:   ",
                Some("2026-01-01 10:00:00,123 [rank1]: x"),
            ),
            ("[2026-01-01 10:00:00] ", "[2026-01-01 10:00:07]   ", None),
            ("10:00:00 ", "10:00:01   ", None),
            ("> ", ">   ", None),
            ("x-", "x-  ", None),
            ("", "  ", None),
        ] {
            let prefix = of(before);
            assert_eq!(prefix.text(), before.trim(), "{before}");
            assert!(prefix.fits(same), "{before}: {same}");
            let broken = format!("{same}num_e  ");
            assert!(!prefix.fits(&broken), "{before}: {broken}");
            assert!(!prefix.is_of_another_rank(&format!("{same}num_e")));
            let Some(other) = other else {
                assert!(!prefix.is_of_another_rank("[default3]: x"), "{before}");
                assert!(!prefix.is_of_another_rank("[2026-01-02 11:11:11] x"));
                continue;
            };
            assert!(prefix.is_of_another_rank(other), "{before}: {other}");
            assert!(!prefix.is_of_another_rank("warning"), "{before}");
            assert!(!prefix.fits(other), "{before}: {other}");
        }
        // Another rank's number before an argument is another rank's argument.
        assert!(!of("[default0]:").fits("[default1]:  "));
        // As few dashes as tell a title.
        assert_eq!(
            Prefix::of_title("a ---- arguments ----", MARKED).text(),
            "a"
        );
    }
}
