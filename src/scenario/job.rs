//! A job at its full size and where it may run: what plans are made of. Nothing is trained, so no
//! size is refused that a recipe can have.

use std::path::Path;

use super::load::{document, unreadable};
use super::{Overrides, Scenario, allocation, read};
use crate::diagnostic::document::{Table, Value};
use crate::diagnostic::{Diagnostic, Findings, Place, Source};
use crate::recipe::megatron::{is_megatron, open};
use crate::recipe::{Recipe, is_recipe};
use crate::topology::{Allocation, Topology};

/// A job's own recipe, and the warnings about its file.
#[derive(Clone, Debug)]
pub struct Job {
    pub recipe: Recipe,
    pub warnings: Vec<Diagnostic>,
}

impl Job {
    /// The job of a recipe, of a configuration of Megatron-LM, or of a scenario: the one that it
    /// stands for, where its `[full_size]` says which.
    ///
    /// # Errors
    /// What is wrong with the file, with places.
    pub fn load(path: &Path, overrides: &Overrides) -> Result<Job, Vec<Diagnostic>> {
        let source = open(path).map_err(|error| vec![unreadable(&error, path)])?;
        if !is_megatron(&source) {
            let mut findings = Findings::default();
            let bare = Table::parse(&source, &mut findings).is_some_and(|file| is_recipe(&file));
            if bare {
                return Job::of_recipe(&source, overrides);
            }
        }
        let loaded = Scenario::from_source(&source, path, overrides)?;
        let scenario = loaded.scenario;
        let full = scenario.full_size.as_ref();
        let full = full.and_then(|full| full.recipe(&scenario.recipe));
        Ok(Job {
            recipe: full.unwrap_or(scenario.recipe),
            warnings: loaded.warnings,
        })
    }

    fn of_recipe(source: &Source, overrides: &Overrides) -> Result<Job, Vec<Diagnostic>> {
        let mut findings = Findings::default();
        let recipe = document(source, overrides, &mut findings)
            .and_then(|document| own_recipe(&document, &mut findings));
        let (recipe, warnings) = findings.finish(recipe)?;
        Ok(Job { recipe, warnings })
    }
}

/// The table `recipe` of a document, with what was set on top.
fn own_recipe(document: &Table, findings: &mut Findings) -> Option<Recipe> {
    let mut table = document.table("recipe")?.clone();
    if let Some(over) = document.table("override") {
        table.overlay(over);
    }
    let recipe = Recipe::full_size_from_table(&table, "recipe", findings);
    read::environment(&table, recipe.as_ref(), findings);
    recipe
}

/// Where `recipe`'s ranks run: an allocation file, or a topology that is filled host by host.
///
/// # Errors
/// What is wrong with the file, or that it has not as many ranks as the job.
pub fn placed(path: &Path, recipe: &Recipe) -> Result<Allocation, Vec<Diagnostic>> {
    let source = Source::read(path).map_err(|error| vec![unreadable(&error, path)])?;
    let mut findings = Findings::default();
    let hosts = Table::parse(&source, &mut findings)
        .and_then(|file| Some(file.entries.get("hosts")?.item.value.clone()));
    let whole = Place::new(&source, 0..source.text.len());
    if findings.has_errors() {
        return Err(findings.into_vec());
    }
    let world = recipe.world_size;
    if let Some(Value::Integer(_)) = hosts {
        let topology = Topology::from_toml(&source.text);
        let topology = topology.map_err(|error| {
            let span = error.span.clone().unwrap_or(whole.span.clone());
            let finding = Diagnostic::error("topology", error.to_string());
            vec![finding.at(&Place::new(&source, span), "in this topology")]
        })?;
        let room = u64::from(topology.hosts) * u64::from(topology.gpus_per_host);
        return topology.block(world).ok_or_else(|| {
            let message = format!("the job has {world} ranks, the topology {room} GPUs");
            vec![Diagnostic::error("too-few-gpus", message).at(&whole, "of this topology")]
        });
    }
    let file = allocation::of_source(source).map_err(|finding| vec![*finding])?;
    let ranks = file.allocation.placement.world();
    if ranks != world {
        let message = format!("the job has {world} ranks, the allocation places {ranks}");
        return Err(vec![
            Diagnostic::error("world-mismatch", message).at(&whole, "these ranks"),
        ]);
    }
    Ok(file.allocation)
}
