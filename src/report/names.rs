//! How numbers and groups of ranks are written.

use serde::Serialize;

/// The name that an enum has in JSON, so that people and programs read the same words.
pub(super) fn slug(value: impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(name)) => name,
        other => unreachable!("a plain enum serialises to a string, not {other:?}"),
    }
}

/// `1234567` as `1,234,567`.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A count with its noun: `1 element`, `2 elements`.
pub(crate) fn counted(number: u64, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", grouped(number))
}

/// Ranks that are listed before a group is cut short.
const RANKS_SHOWN: usize = 8;

/// `rank 3`, `ranks 0 2 4 6`, or the first ones of a large group.
pub(super) fn ranks(group: &[u32]) -> String {
    let shown: Vec<String> = group.iter().take(RANKS_SHOWN).map(u32::to_string).collect();
    let noun = if group.len() == 1 { "rank" } else { "ranks" };
    let rest = group.len().saturating_sub(RANKS_SHOWN);
    match rest {
        0 => format!("{noun} {}", shown.join(" ")),
        rest => format!(
            "{noun} {} and {} more",
            shown.join(" "),
            grouped(rest as u64)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::Family;

    #[test]
    fn numbers_and_groups_read_well() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1_234_567), "1,234,567");
        assert_eq!(counted(1, "element"), "1 element");
        assert_eq!(ranks(&[3]), "rank 3");
        assert_eq!(
            ranks(&(0..10).collect::<Vec<_>>()),
            "ranks 0 1 2 3 4 5 6 7 and 2 more"
        );
        assert_eq!(slug(Family::DpGradients), "dp-gradients");
    }
}
