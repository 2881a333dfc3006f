//! The allocations of a scenario: read, and fitted to the recipe.

use std::collections::BTreeSet;
use std::path::Path;

use super::read::{Site, file};
use super::{ALLOCATIONS_MAX, AllocationFile, Free};
use crate::diagnostic::document::{Item, Reader, Value};
use crate::diagnostic::{Diagnostic, Findings, Place, Source, escaped};
use crate::recipe::Recipe;
use crate::topology::Allocation;

/// An allocation, and where the scenario names it.
pub(super) struct Given {
    pub file: AllocationFile,
    place: Place,
}

pub(super) fn read(reader: &mut Reader<'_>, site: &Site<'_>, free: &BTreeSet<Free>) -> Vec<Given> {
    let is_free = free.contains(&Free::Placement);
    let Some(items) = reader.array("allocations", "an array of paths") else {
        if is_free {
            reader.missing("allocations", "at least two allocation files");
        }
        return Vec::new();
    };
    if items.len() > ALLOCATIONS_MAX {
        let label = format!("expected at most {ALLOCATIONS_MAX} allocations");
        let message = "`allocations` is absurdly long".to_string();
        reader.complain("too-many", message, &items[0], &label);
        return Vec::new();
    }
    let mut given: Vec<Given> = Vec::new();
    for item in items {
        given.extend(one(reader, item, site));
    }
    same_names(&given, reader.findings);
    if is_free && items.len() < 2 {
        let place = items.first().map_or(reader.place(), |item| &item.place);
        reader.findings.push(
            Diagnostic::error(
                "nothing-to-compare",
                "a free placement needs two allocations",
            )
            .at(place, "expected at least one more")
            .with_help("add a file of `topologies/`, or leave out `free = [\"placement\"]`"),
        );
    }
    if !is_free && items.len() > 1 {
        reader.findings.push(
            Diagnostic::warning("unused-allocation", "only the first allocation is used")
                .at(&items[1].place, "not used")
                .with_help("add `free = [\"placement\"]` to compare them"),
        );
    }
    given
}

/// A path, or a table with `name` and `text`.
pub(super) fn one(reader: &mut Reader<'_>, item: &Item, site: &Site<'_>) -> Option<Given> {
    let source = match &item.value {
        Value::Text(path) => file(path, &item.place, site, reader.findings)?,
        Value::Table(table) => {
            let mut inner = Reader::new(table, "allocations", reader.findings);
            let name = inner.text("name").map(|(name, _)| name);
            let text = inner.text("text").map(|(text, _)| text.to_string());
            if name.is_none() || text.is_none() {
                inner.missing(if name.is_none() { "name" } else { "text" }, "a string");
            }
            inner.finish();
            Source::new(format!("<allocation {}>", name?), text?)
        }
        _ => return reader.wrong_type("allocations", item, "a path", None).value,
    };
    match of_source(source) {
        Ok(file) => {
            let place = item.place.clone();
            Some(Given { file, place })
        }
        Err(finding) => {
            let finding = finding.with_context(Some(&item.place), "which is named here");
            reader.findings.push(finding);
            None
        }
    }
}

/// What a text says; the error is boxed, as it is large and rare.
pub(super) fn of_source(source: Source) -> Result<AllocationFile, Box<Diagnostic>> {
    match Allocation::from_toml(&source.text) {
        Ok(mut allocation) => {
            allocation.name = escaped(&allocation.name).into_owned();
            let name = allocation.name.clone();
            Ok(AllocationFile {
                name,
                source,
                allocation,
            })
        }
        Err(error) => {
            let span = error.span.clone().unwrap_or(0..source.text.len());
            let finding = Diagnostic::error("allocation", error.to_string())
                .at(&Place::new(&source, span), "in this allocation")
                .with_help(
                    "an allocation is `name = \"...\"` and `hosts = [[0, 1, ...], ...]`: the \
                     ranks on each host",
                );
            Err(Box::new(finding))
        }
    }
}

/// A verdict names allocations, so their names must tell them apart.
fn same_names(given: &[Given], findings: &mut Findings) {
    for (place, later) in given.iter().enumerate() {
        let earlier = given[..place]
            .iter()
            .find(|other| other.file.name == later.file.name);
        if let Some(earlier) = earlier {
            let message = format!("two allocations are called `{}`", later.file.name);
            findings.push(
                Diagnostic::error("same-name", message)
                    .at(&later.place, "expected another name")
                    .with_context(Some(&earlier.place), "the first one"),
            );
        }
    }
}

/// Every allocation places exactly the ranks of the recipe.
pub(super) fn fit(given: &[Given], recipe: &Recipe, findings: &mut Findings) {
    for Given { file, place } in given {
        let placed = file.allocation.placement.world();
        if placed != recipe.world_size {
            let path = Path::new(&*file.source.name).display();
            let message = format!(
                "`{path}` places {placed} ranks, and the recipe has `world_size = {}`",
                recipe.world_size
            );
            findings.push(
                Diagnostic::error("another-world", message)
                    .at(place, "expected an allocation of the same size"),
            );
        }
    }
}
