//! A curve of one number a step, as an inline drawing with its numbers in a table below it.

use serde_json::Value;

use super::text::Limits;

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 200.0;
const EDGE: f64 = 55.0;
/// Points of a curve; a longer one is thinned.
const POINTS_MAX: usize = 400;

/// Draws values of steps 1, 2, ...; a value that is no number is a gap, which is told.
pub(super) fn curve(name: &str, values: &[Value], limits: Limits) -> String {
    let every = values.len().div_ceil(POINTS_MAX).max(1);
    let known = values
        .iter()
        .enumerate()
        .filter_map(|(i, value)| Some((i + 1, value.as_f64()?)));
    let known: Vec<(usize, f64)> = known.collect();
    if known.is_empty() {
        return String::new();
    }
    let low = known
        .iter()
        .map(|point| point.1)
        .fold(f64::INFINITY, f64::min);
    let high = known
        .iter()
        .map(|point| point.1)
        .fold(f64::NEG_INFINITY, f64::max);
    let span = if high > low { high - low } else { 1.0 };
    let steps = (values.len().max(2) - 1) as f64;
    let place = |step: usize, value: f64| {
        let x = EDGE + (WIDTH - EDGE - 20.0) * (step - 1) as f64 / steps;
        let y = 15.0 + (HEIGHT - 45.0) * (1.0 - (value - low) / span);
        format!("{x:.1},{y:.1}")
    };
    let (mut lines, mut run, mut dots) = (String::new(), Vec::new(), String::new());
    for (i, value) in values.iter().enumerate().step_by(every) {
        match value.as_f64() {
            Some(value) => {
                let at = place(i + 1, value);
                let (x, y) = at.split_once(',').expect("a place has two parts");
                dots.push_str(&format!(
                    "<circle class=\"point\" cx=\"{x}\" cy=\"{y}\" r=\"3\"/>"
                ));
                run.push(at);
            }
            None => lines.push_str(&line(&std::mem::take(&mut run))),
        }
    }
    lines.push_str(&line(&run));
    let (bottom, last) = (HEIGHT - 30.0, values.len());
    let mut text = format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{name} of steps 1 to \
         {last}: from {low} to {high}\">\
         <path class=\"axis\" d=\"M{EDGE} 10V{bottom}H{WIDTH}\" fill=\"none\"/>\
         <text x=\"0\" y=\"20\">{high:.4}</text><text x=\"0\" y=\"{bottom}\">{low:.4}</text>\
         <text x=\"{EDGE}\" y=\"{0}\">step 1</text>\
         <text x=\"{1}\" y=\"{0}\" text-anchor=\"end\">step {last}</text>{lines}{dots}</svg>\n",
        HEIGHT - 10.0,
        WIDTH - 10.0,
    );
    if every > 1 {
        text.push_str(&format!("<p>Thinned: one of {every} steps is drawn.</p>\n"));
    }
    if known.len() < values.len() {
        let gaps = values.len() - known.len();
        text.push_str(&format!(
            "<p>{gaps} steps have no finite value: gaps.</p>\n"
        ));
    }
    let numbered = values.iter().enumerate();
    let rows = numbered.map(|(i, value)| vec![(i + 1).to_string(), limits.value(value)]);
    let table = limits.table(&["step", name], &rows.collect::<Vec<_>>());
    text + &format!("<details><summary>The numbers</summary>\n{table}</details>\n")
}

fn line(run: &[String]) -> String {
    match run.len() {
        0 => String::new(),
        _ => format!("<polyline class=\"curve\" points=\"{}\"/>", run.join(" ")),
    }
}
