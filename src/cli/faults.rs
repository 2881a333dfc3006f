//! `bitproof check PATH --list-faults`: every place of a scenario that a fault can strike.

use serde_json::{Value, json};

use crate::diagnostic::escaped;
use crate::fault::FaultKind;
use crate::prove::faults::FaultPlace;
use crate::report::{SCHEMA_VERSION, counted};

/// A block a kind, each with the places that it can strike.
pub(super) fn to_human(name: &str, places: &[FaultPlace]) -> String {
    let mut text = format!("{}: places of faults\n", escaped(name));
    for facts in &FaultKind::FACTS {
        let (key, about, source) = (facts.key, facts.about, facts.source);
        text.push_str(&format!("\nfault.{key}: {about} ({source})\n"));
        let of_kind = places.iter().filter(|place| place.kind == facts.kind);
        let of_kind: Vec<&FaultPlace> = of_kind.collect();
        if of_kind.is_empty() {
            text.push_str("  none here\n");
        }
        let widest = of_kind.iter().map(|place| place.at.chars().count()).max();
        for place in of_kind {
            let ranks = counted(u64::from(place.ranks), "rank");
            let times = match place.times_in_step {
                1 => String::new(),
                times => format!(", {times} times in a step"),
            };
            let at = escaped(&place.at);
            let width = widest.unwrap_or(0);
            text.push_str(&format!("  {at:width$}  {ranks}{times}\n"));
        }
    }
    text
}

/// Keys: `schema_version`, `path`, and `faults`, each with `kind`, `at`, `ranks`, `times_in_step`,
/// `about`, `source`.
pub(super) fn to_json(name: &str, places: &[FaultPlace]) -> Value {
    let listed = places.iter().map(|place| {
        let facts = place.kind.facts();
        json!({
            "kind": facts.key,
            "at": place.at,
            "ranks": place.ranks,
            "times_in_step": place.times_in_step,
            "about": facts.about,
            "source": facts.source,
        })
    });
    let listed: Vec<Value> = listed.collect();
    json!({
        "schema_version": SCHEMA_VERSION,
        "path": name,
        "faults": listed,
    })
}
