//! The table of choice points: a row a family, a column a rung that proved something.

use super::{Page, style};
use crate::numerics::ladder::Rung;
use crate::prove::outcome::{Outcome, PointCount};
use crate::report::names::{grouped, slug};

/// One family's row, before it is laid out.
struct Row {
    family: String,
    by_rung: Vec<u64>,
    addends: String,
    at_full_size: String,
}

pub(super) fn table(page: &mut Page, outcome: &Outcome) {
    page.heading("choice points, by what proved them");
    if outcome.points.is_empty() {
        page.line("  none: nothing in this scenario may vary");
        return;
    }
    let is_used = |rung: &Option<Rung>| outcome.points.iter().any(|count| count.rung == *rung);
    let columns = Rung::ALL.into_iter().map(Some).chain([None]);
    let rungs: Vec<Option<Rung>> = columns.filter(is_used).collect();
    let rows = rows(&outcome.points, &rungs);
    let width = rows.iter().map(|row| row.family.len()).max().unwrap_or(0);
    let mut head = format!("  {:width$}", "");
    for rung in &rungs {
        let name = rung.map_or("sensitive", |rung| rung.name());
        head.push_str(&format!("  {name:>9}"));
    }
    page.line(style::dim(&format!(
        "{head}  {:>9}  {:>12}",
        "addends", "at full size"
    )));
    for row in rows {
        let mut line = format!("  {:width$}", row.family);
        for points in row.by_rung {
            let shown = if points == 0 {
                "-".to_string()
            } else {
                grouped(points)
            };
            line.push_str(&format!("  {shown:>9}"));
        }
        page.line(format!(
            "{line}  {:>9}  {:>12}",
            row.addends, row.at_full_size
        ));
    }
    input_points(page, outcome);
}

/// Points that are listed.
const INPUT_POINTS_SHOWN: usize = 12;

/// What holds only for the inputs of this run: each point with its addends here and at full size.
fn input_points(page: &mut Page, outcome: &Outcome) {
    if let Some(sampling) = &outcome.sampling {
        page.sentence(2, sampling);
    }
    if outcome.input_point_count == 0 {
        return;
    }
    page.heading("proved on this input only");
    for point in outcome.input_points.iter().take(INPUT_POINTS_SHOWN) {
        let full = grouped(point.addends_at_full_size);
        let addends = format!(
            "{} addends, {full} at full size",
            grouped(point.addends.into())
        );
        page.sentence(2, &format!("{} {}: {addends}", point.rung, point.site));
    }
    let shown = outcome.input_points.len().min(INPUT_POINTS_SHOWN) as u64;
    if outcome.input_point_count > shown {
        let rest = grouped(outcome.input_point_count - shown);
        page.line(style::dim(&format!("  and {rest} more")));
    }
}

fn rows(points: &[PointCount], rungs: &[Option<Rung>]) -> Vec<Row> {
    let mut families: Vec<_> = points.iter().map(|count| count.family).collect();
    families.sort();
    families.dedup();
    families
        .into_iter()
        .map(|family| {
            let own: Vec<&PointCount> = points
                .iter()
                .filter(|count| count.family == family)
                .collect();
            let of_rung = |rung: &Option<Rung>| {
                own.iter()
                    .filter(|count| count.rung == *rung)
                    .map(|count| count.points)
                    .sum()
            };
            let least = own.iter().map(|count| count.addends_min).min().unwrap_or(0);
            let most = own.iter().map(|count| count.addends_max).max().unwrap_or(0);
            let full = own
                .iter()
                .filter_map(|count| count.addends_at_full_size)
                .max();
            Row {
                family: slug(family),
                by_rung: rungs.iter().map(of_rung).collect(),
                addends: if least == most {
                    most.to_string()
                } else {
                    format!("{least}-{most}")
                },
                at_full_size: full.map_or("-".to_string(), grouped),
            }
        })
        .collect()
}
