//! Reports as one HTML file that loads nothing and runs no script: what parted, where, what to do.
//!
//! It is written from the JSON of `check` and of `trace diff`, which is kept, sent and read by
//! other programs as well, so a page can be made of any run long after it.

mod check;
mod curve;
mod map;
mod spread;
mod text;
mod traces;

use serde_json::Value;

use text::{Limits, escaped};

/// The frame of a page: its style, and where title and body go.
const PAGE: &str = include_str!("page.html");
/// A page is smaller; what is left out is said in it.
const BYTES_MAX: usize = 1_900_000;
/// A report that has less room is not tried.
const ROOM_MIN: usize = 20_000;

/// A JSON object that no page can be made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotAReport {
    /// Which object of the input, from 1.
    pub number: usize,
    pub why: String,
}

/// Writes reports (objects of `check --format json` or `trace diff --format json`) as a page.
/// `names` stand where a report has no name of its own, as two folders of traces have none.
///
/// # Errors
/// An object that is neither.
pub fn page(reports: &[Value], names: Option<&str>) -> Result<String, NotAReport> {
    for (i, report) in reports.iter().enumerate() {
        kind(report).map_err(|why| NotAReport { number: i + 1, why })?;
    }
    let titled = reports
        .first()
        .and_then(|report| check::name(report).or(names));
    let title = format!("bitproof: {}", titled.unwrap_or("comparison of traces"));
    let (mut body, mut left_out) = (String::new(), 0);
    for report in reports {
        let room = BYTES_MAX.saturating_sub(body.len());
        let fitting = (room >= ROOM_MIN).then(|| fitting(report, names, room));
        match fitting.flatten() {
            Some(section) => body.push_str(&section),
            None => left_out += 1,
        }
    }
    if left_out > 0 {
        body.push_str(&format!(
            "<section><p>Thinned: {left_out} of {} reports have no room here; the JSON has \
             them.</p></section>\n",
            reports.len()
        ));
    }
    let title = Limits {
        chars: 200,
        ..Limits::USUAL
    }
    .text(&title);
    Ok(framed(&title, &body))
}

#[derive(Clone, Copy)]
enum Kind {
    Check,
    Traces,
    /// What `check A --against B` says beside the two checks.
    Change,
    /// A check or a comparison that was refused.
    Refused,
}

fn kind(report: &Value) -> Result<Kind, String> {
    let has = |key: &str| report.get(key).is_some();
    if has("schema_version") && report["schema_version"] != super::SCHEMA_VERSION {
        let found = report["schema_version"].to_string();
        let expected = super::SCHEMA_VERSION;
        return Err(format!(
            "it has schema version {found}, expected {expected}"
        ));
    }
    match report {
        _ if has("verdicts") && has("oracles") => Ok(Kind::Check),
        _ if has("identical_training") && has("ladder") => Ok(Kind::Traces),
        _ if has("change") => Ok(Kind::Change),
        _ if has("diagnostics") && has("exit_code") => Ok(Kind::Refused),
        _ if has("trusted") && has("reasons") => Ok(Kind::Refused),
        _ => Err("it is no report of `check` or of `trace diff`".to_string()),
    }
}

/// One report, with ever shorter lists until it has room.
fn fitting(report: &Value, names: Option<&str>, room: usize) -> Option<String> {
    let mut limits = Limits::USUAL;
    loop {
        let section = section(report, names, limits);
        if section.len() <= room {
            return Some(section);
        }
        limits = limits.halved()?;
    }
}

fn section(report: &Value, names: Option<&str>, limits: Limits) -> String {
    let inner = match kind(report) {
        Ok(Kind::Check) => check::section(report, limits),
        Ok(Kind::Traces) => traces::section(report, names, limits),
        Ok(Kind::Change) => check::change(&report["change"], limits),
        Ok(Kind::Refused) => check::refusal(report, limits),
        Err(why) => format!("<p>{}</p>", escaped(&why)),
    };
    let thinned = match limits.items < Limits::USUAL.items {
        true => "<p>Thinned: lists are cut short to keep this page small.</p>\n",
        false => "",
    };
    format!("<section>\n{inner}{thinned}</section>\n")
}

/// Puts title and body into the frame by cutting it: what they hold is never looked at again.
fn framed(title: &str, body: &str) -> String {
    let (start, rest) = PAGE.split_once("{{title}}").expect("the frame has a title");
    let (middle, end) = rest.split_once("{{body}}").expect("the frame has a body");
    [start, title, middle, body, end].concat()
}
