//! The table of choice points: a row a family, a column a rung that proved something.

use super::{Page, style};
use crate::numerics::ladder::Rung;
use crate::prove::outcome::{InputPoint, Outcome, PointCount};
use crate::report::names::{counted, grouped, slug};

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
    let alike = alike(&outcome.input_points);
    for points in alike.iter().take(INPUT_POINTS_SHOWN) {
        page.sentence(2, &input_line(points));
    }
    let shown = alike
        .iter()
        .take(INPUT_POINTS_SHOWN)
        .map(|points| points.len() as u64);
    let rest = outcome.input_point_count - shown.sum::<u64>();
    if rest > 0 {
        page.line(style::dim(&format!("  and {} more", grouped(rest))));
    }
}

/// Runs of points with the same site and rung: those of several ranks.
fn alike(points: &[InputPoint]) -> Vec<&[InputPoint]> {
    points
        .chunk_by(|a, b| a.site == b.site && a.rung == b.rung)
        .collect()
}

/// One line for points that are alike: their addends here and at full size, from least to most.
fn input_line(points: &[InputPoint]) -> String {
    let range = |values: Vec<u64>| {
        let least = values.iter().copied().min().unwrap_or(0);
        let most = values.iter().copied().max().unwrap_or(0);
        if least == most {
            grouped(least)
        } else {
            format!("{}-{}", grouped(least), grouped(most))
        }
    };
    let here = range(points.iter().map(|point| point.addends.into()).collect());
    let full = range(
        points
            .iter()
            .map(|point| point.addends_at_full_size)
            .collect(),
    );
    let InputPoint { rung, site, .. } = &points[0];
    let count = counted(points.len() as u64, "point");
    format!("{rung} {site}: {here} addends, {full} at full size ({count})")
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
