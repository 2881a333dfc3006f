//! A job at its full size and where it may run: what plans are made of. Nothing is trained, so no
//! size is refused that a recipe can have.

use std::path::Path;

use super::load::{document, site, unreadable};
use super::{Overrides, Scenario, allocation, imported, read};
use crate::diagnostic::document::{Reader, Table, Value};
use crate::diagnostic::{Diagnostic, Findings, Place, Source};
use crate::recipe::megatron::{GivenJob, is_megatron, open};
use crate::recipe::{Recipe, is_recipe};
use crate::topology::machines::{PREFIX, Preset};
use crate::topology::{Allocation, MAX_RANKS, Topology};

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
        let megatron = is_megatron(&source);
        if !megatron && let Some(job) = Job::of_recipe(&source, path, overrides) {
            return job;
        }
        let loaded = Scenario::from_source(&source, path, overrides)?;
        let mut scenario = loaded.scenario;
        // What a check has made small is the job's own again.
        let whole = Place::new(&source, 0..source.text.len());
        let full = match (&scenario.full_size, megatron) {
            (None, _) => None,
            (Some(_), true) => full_recipe(&source, path, overrides),
            (Some(full), false) => full.recipe(&scenario.recipe),
        };
        match (full, &scenario.full_size) {
            (Some(recipe), _) => scenario.recipe = recipe,
            (None, None) => {}
            (None, Some(_)) => {
                let message = "`[full_size]` does not say how large the job's model is";
                let finding = Diagnostic::error("no-model", message).at(&whole, "of this scenario");
                let help = "name num_layers, hidden_size, padded_vocab_size, ...: docs/scenario.md";
                return Err(vec![finding.with_help(help)]);
            }
        }
        Ok(Job {
            recipe: scenario.recipe,
            warnings: loaded.warnings,
        })
    }

    /// The job of a bare recipe of which nothing else is asked; `None` for anything else.
    fn of_recipe(
        source: &Source,
        path: &Path,
        overrides: &Overrides,
    ) -> Option<Result<Job, Vec<Diagnostic>>> {
        let mut findings = Findings::default();
        is_recipe(&Table::parse(source, &mut findings)?).then_some(())?;
        let document = document(source, overrides, &mut findings)?;
        let mut keys = document.entries.keys();
        keys.all(|key| key == "recipe" || key == "override")
            .then_some(())?;
        let mut reader = Reader::new(&document, "", &mut findings);
        let recipe = read::recipe(&mut reader, &site(path), Recipe::full_size_from_table)
            .and_then(|recipe| read::grown(recipe, overrides, reader.findings));
        let finished = findings.finish(recipe);
        Some(finished.map(|(recipe, warnings)| Job { recipe, warnings }))
    }
}

/// The recipe of a job of Megatron-LM as it is, which a check accepts.
fn full_recipe(source: &Source, path: &Path, overrides: &Overrides) -> Option<Recipe> {
    let mut findings = Findings::default();
    let given = GivenJob::read(source, path, &mut findings)?;
    let understood = imported::understood(&given, overrides, &mut findings)?;
    read::grown(understood.recipe?, overrides, &mut findings)
}

/// Ranks on machines by name, which are filled node by node.
fn on_preset(name: &str, world: u32) -> Result<Allocation, Box<Diagnostic>> {
    let text = format!("{PREFIX}{name}");
    let asked = Source::new("--topology", text.as_str());
    let place = Place::new(&asked, 0..text.len());
    let (preset, units) = Preset::named(name).map_err(|error| {
        let finding = Diagnostic::error("no-such-preset", error.to_string());
        let help = "docs/topology.md lists them; a file may be given as well";
        Box::new(finding.at(&place, "asked for here").with_help(help))
    })?;
    preset.allocation(units, world).ok_or_else(|| {
        let room = units.map_or(MAX_RANKS, |units| preset.gpus(units));
        let message = format!("the job has {world} ranks, the topology {room} GPUs");
        Box::new(Diagnostic::error("too-few-gpus", message).at(&place, "of this topology"))
    })
}

/// Where `recipe`'s ranks run: an allocation file, or a topology that is filled host by host.
///
/// # Errors
/// What is wrong with the file, or that it has not as many ranks as the job.
pub fn placed(path: &Path, recipe: &Recipe) -> Result<Allocation, Vec<Diagnostic>> {
    allocated(path, recipe.world_size, true)
}

/// Where at least so many ranks run: an allocation may have more.
///
/// # Errors
/// What is wrong with the file, or that it has fewer.
pub fn placed_any(path: &Path, ranks: u32) -> Result<Allocation, Vec<Diagnostic>> {
    allocated(path, ranks, false)
}

fn allocated(path: &Path, world: u32, exactly: bool) -> Result<Allocation, Vec<Diagnostic>> {
    if let Some(name) = path.to_str().and_then(|text| text.strip_prefix(PREFIX)) {
        return on_preset(name, world).map_err(|finding| vec![*finding]);
    }
    let source = Source::read(path).map_err(|error| vec![unreadable(&error, path)])?;
    let mut findings = Findings::default();
    let hosts = Table::parse(&source, &mut findings)
        .and_then(|file| Some(file.entries.get("hosts")?.item.value.clone()));
    let whole = Place::new(&source, 0..source.text.len());
    if findings.has_errors() {
        return Err(findings.into_vec());
    }
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
    if ranks < world || (exactly && ranks != world) {
        let message = format!("the job has {world} ranks, the allocation places {ranks}");
        return Err(vec![
            Diagnostic::error("world-mismatch", message).at(&whole, "these ranks"),
        ]);
    }
    Ok(file.allocation)
}
