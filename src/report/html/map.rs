//! The map of ranks and steps: where each rank parted first. A mark and a word carry what a colour
//! carries.

use std::collections::BTreeMap;

use super::text::escaped;

/// Rows and columns that fit on a screen.
const ROWS_MAX: usize = 64;
const COLUMNS_MAX: usize = 48;
/// Characters of what parts in a cell; the parts below the map have it whole.
const WHAT_MAX: usize = 300;

/// Where a rank parts first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    /// The step; nothing for what lies before all steps.
    pub step: Option<u64>,
    /// What parts there.
    pub what: String,
    /// Whether it only comes of what parted first elsewhere.
    pub is_reached: bool,
}

/// Ranks with where they part first.
pub(super) struct Map {
    /// What a column is: a step, an iteration.
    pub unit: &'static str,
    /// The columns, ascending: the steps that are known.
    pub steps: Vec<Option<u64>>,
    pub ranks: BTreeMap<u64, Option<Mark>>,
    /// What the cells of a rank without a mark say from the first mark on.
    pub unmarked: Unmarked,
}

/// What is known of a rank that has no mark.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Unmarked {
    /// It was compared to its end.
    Same,
    /// Whether what parted reached it is not told.
    Untold,
}

impl Map {
    /// The map, with what was drawn together said.
    pub fn to_html(&self) -> String {
        let columns = self.columns();
        let rows = self.rows();
        let mut heads = String::new();
        for column in &columns {
            heads.push_str(&format!("<th scope=\"col\">{}</th>", label(column)));
        }
        let unit = self.unit;
        let mut text = format!(
            "<div class=\"scroll\" tabindex=\"0\" role=\"region\" \
             aria-label=\"Map of ranks and {unit}s\"><table class=\"map\">\n\
             <thead><tr><th scope=\"col\">rank \\ {unit}</th>{heads}</tr></thead>\n<tbody>\n"
        );
        for (name, mark) in rows.iter().take(ROWS_MAX) {
            let cells = columns
                .iter()
                .map(|column| self.cell(name, mark.as_ref(), column));
            let cells: String = cells.collect();
            text.push_str(&format!("<tr><th scope=\"row\">{name}</th>{cells}</tr>\n"));
        }
        text.push_str("</tbody></table></div>\n");
        text.push_str(
            "<p class=\"soft\">✖ parts here first · + reached by it · → after it · \
             = nothing parted · ? not told. Tab goes from one ✖ to the next.</p>\n",
        );
        text + &self.thinned(columns.len(), rows.len())
    }

    fn thinned(&self, columns: usize, rows: usize) -> String {
        let mut told = Vec::new();
        if columns < self.steps.len() {
            let (unit, count) = (self.unit, self.steps.len());
            told.push(format!("{count} {unit}s are drawn as {columns} columns"));
        }
        if rows < self.ranks.len() {
            let count = self.ranks.len();
            told.push(format!(
                "{count} ranks are drawn as {rows} rows of ranks that part alike"
            ));
        }
        if rows > ROWS_MAX {
            told.push(format!("{} rows are left out", rows - ROWS_MAX));
        }
        match told.is_empty() {
            true => String::new(),
            false => format!("<p>Thinned: {}; the JSON has all.</p>\n", told.join("; ")),
        }
    }

    /// Neighbouring steps share a column where there are too many.
    fn columns(&self) -> Vec<&[Option<u64>]> {
        let width = self.steps.len().div_ceil(COLUMNS_MAX).max(1);
        self.steps.chunks(width).collect()
    }

    /// A row a rank, or where there are too many a row for all that part alike; those that part
    /// stand before those that do not.
    fn rows(&self) -> Vec<(String, Option<Mark>)> {
        if self.ranks.len() <= ROWS_MAX {
            let ranks = self.ranks.iter();
            return ranks
                .map(|(rank, mark)| (rank.to_string(), mark.clone()))
                .collect();
        }
        let mut alike: Vec<(Option<Mark>, Vec<u64>)> = Vec::new();
        let mut at = BTreeMap::new();
        for (rank, mark) in &self.ranks {
            let key = mark
                .as_ref()
                .map(|mark| (mark.step, mark.is_reached, &mark.what));
            let row = *at.entry(key).or_insert_with(|| {
                alike.push((mark.clone(), Vec::new()));
                alike.len() - 1
            });
            alike[row].1.push(*rank);
        }
        alike.sort_by_key(|(mark, ranks)| (mark.is_none(), ranks[0]));
        let named = alike.into_iter().map(|(mark, ranks)| (runs(&ranks), mark));
        named.collect()
    }

    fn cell(&self, name: &str, mark: Option<&Mark>, column: &[Option<u64>]) -> String {
        let is_here = |step: Option<u64>| column.contains(&step);
        let (first, last) = (column[0], column[column.len() - 1]);
        match mark {
            Some(mark) if is_here(mark.step) && mark.is_reached => {
                let what: String = mark.what.chars().take(WHAT_MAX).collect();
                let says = format!("rank {name} is reached here: {}", escaped(&what));
                format!("<td class=\"after\" title=\"{says}\" aria-label=\"{says}\">+</td>")
            }
            Some(mark) if is_here(mark.step) => {
                let what: String = mark.what.chars().take(WHAT_MAX).collect();
                let what = escaped(&what);
                let says = format!("rank {name} parts first here: {what}");
                format!(
                    "<td class=\"first\" tabindex=\"0\" title=\"{says}\" aria-label=\"{says}\">\
                     ✖</td>"
                )
            }
            Some(mark) if first > mark.step => {
                "<td class=\"after\" aria-label=\"after it\">→</td>".to_string()
            }
            None if self.unmarked == Unmarked::Untold && last >= self.earliest() => {
                "<td class=\"untold\" aria-label=\"not told\">?</td>".to_string()
            }
            _ => "<td aria-label=\"nothing parted\">=</td>".to_string(),
        }
    }

    fn earliest(&self) -> Option<u64> {
        let marks = self.ranks.values().flatten();
        marks.map(|mark| mark.step).min().unwrap_or(Some(u64::MAX))
    }
}

fn label(column: &[Option<u64>]) -> String {
    let word = |step: Option<u64>| step.map_or("set-up".to_string(), |step| step.to_string());
    match column {
        [one] => word(*one),
        [first, .., last] => format!("{}–{}", word(*first), word(*last)),
        [] => String::new(),
    }
}

/// Ascending ranks as runs, such as `0-3 8`; the rest of a long list is counted.
pub(super) fn runs(ranks: &[u64]) -> String {
    let mut found: Vec<(u64, u64)> = Vec::new();
    for rank in ranks {
        match found.last_mut() {
            Some((_, end)) if end.checked_add(1) == Some(*rank) => *end = *rank,
            _ => found.push((*rank, *rank)),
        }
    }
    let word = |(a, b): &(u64, u64)| match a == b {
        true => a.to_string(),
        false => format!("{a}-{b}"),
    };
    let mut text: Vec<String> = found.iter().take(12).map(word).collect();
    if found.len() > 12 {
        text.push(format!("… ({} ranks)", ranks.len()));
    }
    text.join(" ")
}
