//! What `$((...))` comes to: whole numbers, `+ - * / %`, signs and brackets.
//!
//! Source: POSIX.1-2024, Shell Command Language, section 2.6.4. What a shell can do beyond that, or
//! a name without a known value, yields nothing: the expression then stays as it is written.

use crate::recipe::limits::SCRIPT_DEPTH_MAX;

/// The value of an expression in which variables with a `$` were put in. `named` is the value of
/// a name without one.
pub(super) fn value(text: &str, named: &mut dyn FnMut(&str) -> Option<i64>) -> Option<i64> {
    if assigns(text) {
        return None;
    }
    let mut reader = Reader {
        rest: text,
        named,
        depth: 0,
    };
    let sum = reader.sum()?;
    reader.skip_blanks();
    reader.rest.is_empty().then_some(sum)
}

/// Whether an expression may assign: `=`, `+=`, `<<=`, `++`, `--`; comparisons do not.
pub(super) fn assigns(text: &str) -> bool {
    let chars: Vec<char> = text.chars().collect();
    let at = |index: usize| chars.get(index).copied().unwrap_or(' ');
    let mut index = 0;
    while index < chars.len() {
        let c = at(index);
        let (next, third) = (at(index + 1), at(index + 2));
        match (c, next) {
            ('+', '+') | ('-', '-') => return true,
            ('<' | '>', '=') | ('=' | '!', '=') => index += 2,
            ('<', '<') | ('>', '>') if third == '=' => return true,
            ('=', _) => return true,
            _ => index += 1,
        }
    }
    false
}

/// Whether one comparison holds: `A > 1`. As [`value`] knows both sides.
pub(super) fn holds(text: &str, named: &mut dyn FnMut(&str) -> Option<i64>) -> Option<bool> {
    let rest = text.replace("!=", "");
    if assigns(text) || rest.contains(['&', '|', '?', '!', '(', ',', '^', '~']) {
        return None;
    }
    for operator in [">=", "<=", "==", "!=", ">", "<"] {
        let Some((a, b)) = text.split_once(operator) else {
            continue;
        };
        let (a, b) = (value(a, named)?, value(b, named)?);
        return Some(match operator {
            ">=" => a >= b,
            "<=" => a <= b,
            "==" => a == b,
            "!=" => a != b,
            ">" => a > b,
            _ => a < b,
        });
    }
    value(text, named).map(|number| number != 0)
}

struct Reader<'a> {
    rest: &'a str,
    named: &'a mut dyn FnMut(&str) -> Option<i64>,
    depth: usize,
}

impl Reader<'_> {
    fn skip_blanks(&mut self) {
        self.rest = self.rest.trim_start();
    }

    /// Goes past one of `marks`, if it stands here.
    fn mark(&mut self, marks: &[char]) -> Option<char> {
        self.skip_blanks();
        let mark = self.rest.chars().next().filter(|c| marks.contains(c))?;
        self.rest = &self.rest[mark.len_utf8()..];
        Some(mark)
    }

    fn sum(&mut self) -> Option<i64> {
        let mut sum = self.product()?;
        while let Some(mark) = self.mark(&['+', '-']) {
            let term = self.product()?;
            sum = match mark {
                '+' => sum.checked_add(term)?,
                _ => sum.checked_sub(term)?,
            };
        }
        Some(sum)
    }

    fn product(&mut self) -> Option<i64> {
        let mut product = self.factor()?;
        while let Some(mark) = self.mark(&['*', '/', '%']) {
            let factor = self.factor()?;
            product = match mark {
                '*' => product.checked_mul(factor)?,
                '/' => product.checked_div(factor)?,
                _ => product.checked_rem(factor)?,
            };
        }
        Some(product)
    }

    fn factor(&mut self) -> Option<i64> {
        self.depth += 1;
        if self.depth > SCRIPT_DEPTH_MAX {
            return None;
        }
        let factor = match self.mark(&['+', '-', '(']) {
            Some('+') => self.factor(),
            Some('-') => self.factor()?.checked_neg(),
            Some(_) => {
                let sum = self.sum()?;
                self.mark(&[')']).map(|_| sum)
            }
            None => self.number_or_name(),
        };
        self.depth -= 1;
        factor
    }

    fn number_or_name(&mut self) -> Option<i64> {
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let length = self.rest.chars().take_while(|c| is_word(*c)).count();
        let (word, rest) = self.rest.split_at(length);
        self.rest = rest;
        match word.chars().next()? {
            '0'..='9' => number(word),
            _ => (self.named)(word),
        }
    }
}

/// A decimal number. One that begins with 0 would be octal.
pub(super) fn number(text: &str) -> Option<i64> {
    let is_decimal = text.bytes().all(|b| b.is_ascii_digit());
    let is_octal = text.len() > 1 && text.starts_with('0');
    text.parse().ok().filter(|_| is_decimal && !is_octal)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Option<i64> {
        let mut named = |name: &str| (name == "N").then_some(6);
        value(text, &mut named)
    }

    #[test]
    fn whole_numbers_are_reckoned_as_a_shell_does() {
        for (text, expected) in [
            ("1+2", 3),
            (" 2 * (3 + 4) - 5 ", 9),
            ("7 / 2 * 2", 6),
            ("-7 / 2", -3),
            ("-7 % 4", -3),
            ("10 - 3 - 2", 5),
            ("N * N", 36),
            ("- -3", 3),
            ("9223372036854775807", i64::MAX),
        ] {
            assert_eq!(of(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn what_is_not_known_has_no_value() {
        for text in [
            "",
            "1 +",
            "1 2",
            "M",
            "010",
            "0x10",
            "1 / 0",
            "1 << 2",
            "2 ** 3",
            "1.5",
            "(1",
            "1)",
            "9223372036854775807 + 1",
            "N = 3",
            "N++",
            "--N",
            "1 + ++N",
            "5 --N",
            "N += 1",
            "a b",
            "1 > 0",
        ] {
            assert_eq!(of(text), None, "{text}");
        }
        assert_eq!(of(&"(".repeat(100_000)), None);
        assert_eq!(of(&"-".repeat(100_000)), None);
    }
}
