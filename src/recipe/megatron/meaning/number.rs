//! Numbers as Python's `int` and `float` read them: argparse calls these on each word.

/// `int(text)`, where it fits 64 bits.
pub(super) fn integer(text: &str) -> Option<i64> {
    without_underscores(text.trim())?.parse().ok()
}

/// `float(text)`, where it is finite.
pub(super) fn real(text: &str) -> Option<f64> {
    let number: f64 = without_underscores(text.trim())?.parse().ok()?;
    number.is_finite().then_some(number)
}

/// The number without its underscores, each of which stands alone between two digits (PEP 515).
fn without_underscores(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let is_digit = |at: Option<usize>| {
        let byte = at.and_then(|at| bytes.get(at));
        byte.is_some_and(u8::is_ascii_digit)
    };
    let is_sound = |(at, byte): (usize, &u8)| {
        *byte != b'_' || (is_digit(at.checked_sub(1)) && is_digit(Some(at + 1)))
    };
    bytes
        .iter()
        .enumerate()
        .all(is_sound)
        .then(|| text.replace('_', ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_are_pythons() {
        for (text, number) in [
            ("10", 10),
            ("1_0", 10),
            ("1_000_000", 1_000_000),
            (" +5 ", 5),
            ("-4", -4),
            ("007", 7),
        ] {
            assert_eq!(integer(text), Some(number), "{text}");
        }
        for text in [
            "", "_", "_5", "5_", "1__0", "+_5", "-_5", "1.0", "1e3", "0x10", "1 0", "- 4", "--4",
        ] {
            assert_eq!(integer(text), None, "{text}");
        }
    }

    #[test]
    fn real_numbers_are_pythons() {
        for (text, number) in [
            ("1e-4", 1e-4),
            ("1_0e1_0", 1e11),
            (".5", 0.5),
            ("5.", 5.0),
            ("1_0.2_5", 10.25),
            ("\t-2.5E+1\n", -25.0),
        ] {
            assert_eq!(real(text), Some(number), "{text}");
        }
        for text in [
            "_1e-4_", "1__0.0", "1_.5", "1._5", "1_e5", "1e_5", "nan", "inf", "1e999", "1,5", "",
        ] {
            assert_eq!(real(text), None, "{text}");
        }
    }
}
