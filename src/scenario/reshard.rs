//! The layouts that a scenario is resumed on: `checkpoint.reshard`.

use super::RESHARDS_MAX;
use crate::diagnostic::document::{Item, Reader, Value};
use crate::diagnostic::{Diagnostic, Place};
use crate::recipe::{Recipe, ReshardLayout};

/// Reads the layouts, each of which the recipe must admit.
pub(super) fn read(reader: &mut Reader<'_>, recipe: &Recipe) -> Vec<ReshardLayout> {
    let Some(items) = reader.array("reshard", "an array of layouts, TPxPPxVPP") else {
        return Vec::new();
    };
    if items.len() > RESHARDS_MAX {
        let label = format!("expected at most {RESHARDS_MAX} layouts");
        let message = "`checkpoint.reshard` is too long: each layout is run".to_string();
        reader.complain("too-many", message, &items[0], &label);
        return Vec::new();
    }
    let mut layouts = Vec::new();
    for item in items {
        let Some(layout) = one(reader, item) else {
            continue;
        };
        if layouts.contains(&layout) {
            let message = format!("`{layout}` is named twice");
            reader.complain("twice", message, item, "named before");
            continue;
        }
        match recipe.resharded(layout) {
            Ok(_) => layouts.push(layout),
            Err(findings) => refuse(reader, layout, item, findings),
        }
    }
    layouts
}

fn one(reader: &mut Reader<'_>, item: &Item) -> Option<ReshardLayout> {
    let Value::Text(text) = &item.value else {
        return reader
            .wrong_type("reshard", item, "a layout, TPxPPxVPP", None)
            .value;
    };
    match text.parse() {
        Ok(layout) => Some(layout),
        Err(error) => {
            let message = format!("`{text}` is no layout");
            reader.complain("unknown-layout", message, item, &format!("{error}"));
            None
        }
    }
}

/// What the recipe's rules say of the layout, at the place where it is named.
fn refuse(reader: &mut Reader<'_>, layout: ReshardLayout, item: &Item, findings: Vec<Diagnostic>) {
    for finding in findings {
        let message = format!("resumed on {layout}: {}", finding.message);
        let label = finding.place.map(|(_, label)| label).unwrap_or_default();
        let refused = Diagnostic::error(finding.code, message).at(&item.place, label);
        reader.findings.push(
            refused.with_note("the ranks stay, and data parallelism follows from their number"),
        );
    }
}

/// Layouts that nothing would be resumed on.
pub(super) fn nothing_to_resume(layouts: &[ReshardLayout], place: &Place) -> Option<Diagnostic> {
    let first = layouts.first()?;
    let message = format!("nothing is resumed on {first}");
    Some(
        Diagnostic::error("nothing-to-reshard", message)
            .at(place, "`reshard` needs the RES oracle and a restart")
            .with_help("name a restart, and RES in `oracles` where it is given"),
    )
}
