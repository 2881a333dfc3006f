//! The table of what tells the records that differ from those that agree.

use serde_json::{Value, json};

use crate::diagnostic::escaped;
use crate::trace::diff::{Cell, Discriminator};

/// Rows that people are shown; JSON has all.
const ROWS_MAX: usize = 20;
/// What a record's silence is called.
const UNTOLD: &str = "not told";

pub(super) fn to_human(table: &Discriminator) -> String {
    let name = escaped(&table.name);
    let mut text = format!("\ndiscriminator table of {name}:\n");
    let heads = table.axes.iter().map(|axis| axis.name().to_string());
    let counts = ["differ".to_string(), "agree".to_string()];
    let mut rows: Vec<Vec<String>> = vec![heads.chain(counts).collect()];
    rows.extend(table.cells.iter().take(ROWS_MAX).map(row));
    let columns = rows[0].len();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<usize> = (0..columns)
        .map(|column| width(column).unwrap_or(0))
        .collect();
    for row in &rows {
        let cells = row
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:<width$}"));
        let line = cells.collect::<Vec<_>>().join("  ");
        text.push_str(&format!("  {}\n", line.trim_end()));
    }
    if table.cells.len() > ROWS_MAX {
        let more = table.cells.len() - ROWS_MAX;
        text.push_str(&format!("  and {more} more: --format json has them\n"));
    }
    text.push_str(&format!("  {}\n", table.in_words()));
    if table.untested > 0 {
        let untested = table.untested;
        text.push_str(&format!(
            "  {untested} more were not tried on the same known inputs twice, and count neither \
             way\n"
        ));
    }
    text
}

fn row(cell: &Cell) -> Vec<String> {
    let values = cell.values.iter();
    let values = values.map(|value| escaped(value.as_deref().unwrap_or(UNTOLD)).into_owned());
    values
        .chain([cell.differ.to_string(), cell.agree.to_string()])
        .collect()
}

pub(super) fn to_json(table: &Discriminator) -> Value {
    let names = |axes: &Vec<_>| {
        let names = axes
            .iter()
            .map(|axis: &crate::trace::diff::Axis| axis.name());
        names.collect::<Vec<_>>()
    };
    let cells = table
        .cells
        .iter()
        .map(|cell| json!({ "values": cell.values, "differ": cell.differ, "agree": cell.agree }));
    let (differ, agree) = table.totals();
    json!({
        "kind": table.kind,
        "name": table.name,
        "axes": names(&table.axes),
        "cells": cells.collect::<Vec<_>>(),
        "differ": differ,
        "agree": agree,
        "separating": table.separating.iter().map(names).collect::<Vec<_>>(),
        "untested": table.untested,
        "evidence": table.evidence.slug(),
        "partial": table.partial,
        "says": table.in_words(),
    })
}
