//! From TOML text to a [`Table`].

use toml::de::{DeTable, DeValue};

use super::{Entry, Item, Table, Value};
use crate::diagnostic::{Diagnostic, Findings, Place, Source};

impl Table {
    /// Parses a document. Every syntax error becomes a finding; `None` when there was one.
    pub fn parse(source: &Source, findings: &mut Findings) -> Option<Table> {
        let (document, errors) = DeTable::parse_recoverable(&source.text);
        for error in &errors {
            let span = error.span().unwrap_or(0..0);
            findings.push(
                Diagnostic::error("toml-syntax", "this is not TOML")
                    .at(&Place::new(source, span), error.message())
                    .with_help("TOML is described at https://toml.io/en/v1.0.0"),
            );
        }
        let whole = Place::new(source, 0..source.text.len());
        let table = converted_table(document.get_ref(), whole, source, findings);
        errors.is_empty().then_some(table)
    }

    /// A document of one assignment, `a.b=value`, as `--set` takes it. A value that is not TOML
    /// is taken as a string, so that no shell quotes are needed.
    pub fn parse_assignment(flag: &str, text: &str, findings: &mut Findings) -> Option<Table> {
        let source = Source::new(flag, text);
        let Some((key, value)) = text.split_once('=') else {
            findings.push(
                Diagnostic::error("not-an-assignment", format!("`{flag}` takes KEY=VALUE"))
                    .at(&Place::new(&source, 0..0), "no `=` here")
                    .with_help("for example `--set recipe.hidden_size=64`"),
            );
            return None;
        };
        if DeTable::parse(text).is_ok() && !text.contains('\n') {
            return Table::parse(&source, findings);
        }
        let quoted = toml::Value::String(value.trim().to_string());
        let text_quoted = Source::new(flag, format!("{key}={quoted}"));
        if DeTable::parse(&text_quoted.text).is_err() {
            let message = format!("`{}` is no key", key.trim());
            findings.push(
                Diagnostic::error("not-an-assignment", message)
                    .at(&Place::new(&source, 0..key.len()), "expected a dotted key")
                    .with_help("for example `--set recipe.hidden_size=64`"),
            );
            return None;
        }
        let mut table = Table::parse(&text_quoted, findings)?;
        retype(&mut table, &source, key.len() + 1..text.len());
        Some(table)
    }
}

/// Points the places of an assignment whose value was quoted for the parser into the text as it was
/// typed. Keys stand where they stood.
fn retype(table: &mut Table, typed: &Source, value: std::ops::Range<usize>) {
    table.place = Place::new(typed, 0..typed.text.len());
    for entry in table.entries.values_mut() {
        entry.key = Place::new(typed, entry.key.span.clone());
        entry.item.place = Place::new(typed, value.clone());
        if let Value::Table(inner) = &mut entry.item.value {
            retype(inner, typed, value.clone());
        }
    }
}

fn converted_table(
    table: &DeTable<'_>,
    place: Place,
    source: &Source,
    findings: &mut Findings,
) -> Table {
    let mut entries = std::collections::BTreeMap::new();
    for (key, value) in table.iter() {
        let key_place = Place::new(source, key.span());
        if let Some(item) = converted_item(value, source, findings) {
            entries.insert(
                key.get_ref().to_string(),
                Entry {
                    key: key_place,
                    item,
                },
            );
        }
    }
    Table { place, entries }
}

/// `None` for a number that no field could hold; the finding says so.
fn converted_item(
    value: &toml::Spanned<DeValue<'_>>,
    source: &Source,
    findings: &mut Findings,
) -> Option<Item> {
    let place = Place::new(source, value.span());
    let converted = match value.get_ref() {
        DeValue::String(text) => Value::Text(text.to_string()),
        DeValue::Boolean(boolean) => Value::Boolean(*boolean),
        DeValue::Datetime(_) => Value::Datetime,
        DeValue::Float(float) => Value::Float(float.as_str().replace('_', "")),
        DeValue::Integer(integer) => {
            let digits = integer.as_str().replace('_', "");
            match i64::from_str_radix(&digits, integer.radix()) {
                Ok(number) => Value::Integer(number),
                Err(_) => {
                    findings.push(
                        Diagnostic::error("out-of-range", "this integer is absurdly large")
                            .at(&place, "expected at most 9223372036854775807"),
                    );
                    return None;
                }
            }
        }
        DeValue::Array(array) => Value::Array(
            array
                .iter()
                .filter_map(|item| converted_item(item, source, findings))
                .collect(),
        ),
        DeValue::Table(table) => {
            Value::Table(converted_table(table, place.clone(), source, findings))
        }
    };
    Some(Item {
        value: converted,
        place,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_know_where_they_stand() {
        let source = Source::new("a.toml", "[recipe]\nlr = 1_0.5\nsplits = 0x1_0\n");
        let mut findings = Findings::default();
        let table = Table::parse(&source, &mut findings).unwrap();
        let recipe = table.table("recipe").unwrap();
        let lr = recipe.get("lr").unwrap();
        assert_eq!(&source.text[lr.key.span.clone()], "lr");
        assert_eq!(&source.text[lr.item.place.span.clone()], "1_0.5");
        assert!(matches!(&lr.item.value, Value::Float(text) if text == "10.5"));
        assert!(matches!(
            recipe.get("splits").unwrap().item.value,
            Value::Integer(16)
        ));
    }

    #[test]
    fn several_syntax_errors_are_reported_at_once() {
        let source = Source::new("a.toml", "a = \nb = 1\nc = ?\n");
        let mut findings = Findings::default();
        assert!(Table::parse(&source, &mut findings).is_none());
        assert!(findings.into_vec().len() >= 2);
    }

    #[test]
    fn an_assignment_may_leave_out_quotes() {
        for (text, expected) in [
            ("env.NCCL_ALGO=Ring", "Ring"),
            ("env.NCCL_ALGO=\"Ring\"", "Ring"),
            ("env.NCCL_ALGO=a b\"c", "a b\"c"),
        ] {
            let mut findings = Findings::default();
            let table = Table::parse_assignment("--set", text, &mut findings).unwrap();
            let value = &table
                .table("env")
                .unwrap()
                .get("NCCL_ALGO")
                .unwrap()
                .item
                .value;
            assert!(
                matches!(value, Value::Text(text) if text == expected),
                "{text}"
            );
        }
    }

    #[test]
    fn what_is_wrong_with_an_assignment_is_shown_as_it_was_typed() {
        for text in ["no", "", "=1", " =x", "a b=x", "[a]=1", "a.=2", "a\n=b"] {
            let mut findings = Findings::default();
            let table = Table::parse_assignment("--set", text, &mut findings);
            assert!(table.is_none() && findings.has_errors(), "{text}");
            for finding in findings.into_vec() {
                let (place, _) = finding.place.expect("a place");
                assert_eq!(&*place.source.text, text);
            }
        }
        let mut findings = Findings::default();
        let table = Table::parse_assignment("--set", "a.b=x y", &mut findings).unwrap();
        let entry = table.table("a").unwrap().get("b").unwrap();
        let place = &entry.item.place;
        assert_eq!(&place.source.text[place.span.clone()], "x y");
        assert_eq!(&entry.key.source.text[entry.key.span.clone()], "b");
    }

    #[test]
    fn an_overlay_merges_tables_and_replaces_values() {
        let mut findings = Findings::default();
        let mut parse = |text: &str| Table::parse(&Source::new("t", text), &mut findings).unwrap();
        let mut below = parse("a = 1\n[t]\nx = 1\ny = 2\n");
        below.overlay(&parse("b = 3\n[t]\nx = \"new\"\n"));
        let table = below.table("t").unwrap();
        assert!(matches!(table.get("x").unwrap().item.value, Value::Text(_)));
        assert!(matches!(
            table.get("y").unwrap().item.value,
            Value::Integer(2)
        ));
        assert_eq!(below.entries.keys().collect::<Vec<_>>(), ["a", "b", "t"]);
    }
}
