//! Other sizes and places of the same job: `[[topo]]`.
//!
//! What may change is what a cluster decides and no training recipe means: where ranks run, how
//! many nodes there are, how messages and buckets are cut, how ranks share the model. A changed
//! learning rate is another training, and refused.

use std::collections::BTreeSet;

use serde_json::Value as Json;

use super::read::{Site, never_replayed};
use super::{AllocationFile, OracleKind, Scenario, VARIATIONS_MAX, allocation};
use crate::diagnostic::document::{Item, Reader, Table, Value};
use crate::diagnostic::{Diagnostic, Findings, Place, escaped};
use crate::recipe::Recipe;

/// Keys of a recipe in which a variation may differ.
const MAY_VARY: [&str; 29] = [
    "world_size",
    "tensor_model_parallel_size",
    "pipeline_model_parallel_size",
    "num_virtual_stages_per_pipeline_rank",
    "microbatch_group_size_per_virtual_pipeline_stage",
    "sequence_parallel",
    "use_tp_pp_dp_mapping",
    "micro_batch_size",
    "use_distributed_optimizer",
    "num_distributed_optimizer_instances",
    "overlap_grad_reduce",
    "align_grad_reduce",
    "overlap_param_gather",
    "align_param_gather",
    "ddp_bucket_size",
    "bucket_cap_mb",
    "find_unused_parameters",
    "distributed_backend",
    "recompute_granularity",
    "recompute_method",
    "recompute_num_layers",
    "recompute_modules",
    "cpu_offloading_num_layers",
    "cpu_offloading_double_buffering",
    "cuda_graph_impl",
    "cuda_graph_warmup_steps",
    "async_save",
    "num_workers",
    "env",
];

/// The job with another size or in another place.
#[derive(Clone, Debug, PartialEq)]
pub struct Variation {
    pub name: String,
    /// What of the recipe is another, as `key = value`.
    pub changes: Vec<String>,
    pub recipe: Recipe,
    /// Where it runs; `None` as the scenario.
    pub allocation: Option<AllocationFile>,
    /// It need not be equal: what parts is reported, and decides nothing.
    pub may_differ: bool,
}

/// Reads all variations of a recipe that is checked for so many steps.
pub(super) fn read(
    reader: &mut Reader<'_>,
    site: &Site<'_>,
    (base, steps): (&Recipe, u32),
) -> Vec<Variation> {
    let Some(items) = reader.array("topo", "an array of tables, `[[topo]]`") else {
        return Vec::new();
    };
    if items.len() > VARIATIONS_MAX {
        let label = format!("expected at most {VARIATIONS_MAX} variations");
        let message = "`topo` is too long: each variation is run".to_string();
        reader.complain("too-many", message, &items[0], &label);
        return Vec::new();
    }
    let mut all: Vec<Variation> = Vec::new();
    for item in items {
        let Some(variation) = one(reader, item, site, base) else {
            continue;
        };
        never_replayed(&variation.recipe, steps, &item.place, reader.findings);
        if all.iter().any(|other| other.name == variation.name) {
            let message = format!("two variations are called `{}`", variation.name);
            reader.complain("same-name", message, item, "give it a `name` of its own");
            continue;
        }
        all.push(variation);
    }
    all
}

/// Puts TOPO where it belongs: by default it is compared where there is anything to compare. What
/// the scenario says of it is `asked`, `None` without `oracles`.
pub(super) fn judge(
    reader: &mut Reader<'_>,
    all: &[Variation],
    oracles: &mut BTreeSet<OracleKind>,
    asked: Option<bool>,
) {
    if asked.is_none() && all.is_empty() {
        oracles.remove(&OracleKind::TOPO);
    }
    let (message, label) = match (asked, all.is_empty()) {
        (Some(true), true) => (
            "TOPO has nothing to compare",
            "expected a `[[topo]]` table: another `allocation`, or other sizes in `recipe`",
        ),
        (Some(false), false) => (
            "`[[topo]]` needs the TOPO oracle",
            "expected TOPO in `oracles`",
        ),
        _ => return,
    };
    let place = reader.place();
    let finding = Diagnostic::error("nothing-to-compare", message).at(place, label);
    reader.findings.push(finding);
}

fn one(reader: &mut Reader<'_>, item: &Item, site: &Site<'_>, base: &Recipe) -> Option<Variation> {
    let Value::Table(table) = &item.value else {
        return reader.wrong_type("topo", item, "a table", None).value;
    };
    let mut inner = Reader::new(table, "topo", reader.findings);
    let name = inner.entry("name").map(|entry| &entry.item);
    let name = match name.map(|item| (item, &item.value)) {
        None => None,
        Some((item, Value::Text(text))) if text.trim().is_empty() => {
            let message = "`name` is empty: reports call the variation by it".to_string();
            inner.complain("out-of-range", message, item, "expected a word or two");
            return None;
        }
        Some((_, Value::Text(text))) => Some(escaped(text).into_owned()),
        Some((item, _)) => return inner.wrong_type("name", item, "a string", None).value,
    };
    let allocation = inner.entry("allocation");
    let allocation = match allocation {
        None => None,
        Some(entry) => Some(allocation::one(&mut inner, &entry.item, site)?),
    };
    inner.table("recipe");
    let may_differ = inner.boolean("may_differ", false).value;
    inner.finish();
    let recipe = match table.table("recipe") {
        None => base.clone(),
        Some(over) => changed(base, over, reader.findings)?,
    };
    let changes = changes(base, &recipe);
    if changes.is_empty() && allocation.is_none() {
        let message = "this variation changes nothing".to_string();
        let label = "expected another `allocation`, or other keys in `recipe`";
        reader.complain("nothing-to-compare", message, item, label);
        return None;
    }
    moved_generators(base, &recipe, &item.place, reader.findings)?;
    let allocation = allocation.map(|given| {
        allocation::fit(std::slice::from_ref(&given), &recipe, reader.findings);
        given.file
    });
    Some(Variation {
        name: name.unwrap_or_else(|| called(&changes, allocation.as_ref())),
        changes,
        recipe,
        allocation,
        may_differ,
    })
}

/// The recipe with `over` on top.
fn changed(base: &Recipe, over: &Table, findings: &mut Findings) -> Option<Recipe> {
    let text = toml::to_string(base).expect("plain data has a TOML form");
    let source = crate::diagnostic::Source::new("the scenario's recipe", text);
    let mut table = Table::parse(&source, findings)?;
    table.overlay(over);
    let recipe = Recipe::from_table(&table, "topo.recipe", findings)?;
    let (was, is) = (keys(base), keys(&recipe));
    let mut refused = false;
    for (key, value) in &is {
        if was.get(key) == Some(value) || MAY_VARY.contains(&key.as_str()) {
            continue;
        }
        refused = true;
        let place = over.get(key).map_or(&over.place, |entry| &entry.key);
        let message = format!("`{key}` decides what is trained, and not where or how large");
        findings.push(
            Diagnostic::error("another-training", message)
                .at(place, "cannot vary here")
                .with_help(format!("what can: {}", MAY_VARY.join(", "))),
        );
    }
    (!refused).then_some(recipe)
}

/// Data-parallel ranks with RNG states of their own have none on another layout.
fn moved_generators(
    base: &Recipe,
    recipe: &Recipe,
    place: &Place,
    findings: &mut Findings,
) -> Option<()> {
    let ranks = |recipe: &Recipe| (recipe.own_layout(), recipe.world_size);
    if !base.data_parallel_random_init || ranks(base) == ranks(recipe) {
        return Some(());
    }
    let message = "data-parallel ranks have parameters and RNG states of their own \
                   (data_parallel_random_init): there is no whole model to compare";
    findings.push(Diagnostic::error("nothing-to-compare", message).at(place, "another layout"));
    None
}

/// Through a text, in which an `f32` is the shortest decimal that reads back as it.
fn keys(recipe: &Recipe) -> serde_json::Map<String, Json> {
    let text = serde_json::to_string(recipe).expect("plain data has a JSON form");
    match serde_json::from_str(&text) {
        Ok(Json::Object(keys)) => keys,
        _ => unreachable!("a recipe is a table"),
    }
}

/// `key = value` of all that differs.
fn changes(base: &Recipe, recipe: &Recipe) -> Vec<String> {
    let (was, is) = (keys(base), keys(recipe));
    let mut all = Vec::new();
    let names: BTreeSet<&String> = was.keys().chain(is.keys()).collect();
    for name in names {
        match (was.get(name), is.get(name)) {
            (a, b) if a == b => {}
            (Some(Json::Object(a)), Some(Json::Object(b))) => {
                let inner: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
                let differing = inner.into_iter().filter(|key| a.get(*key) != b.get(*key));
                all.extend(differing.map(|key| told(&format!("{name}.{key}"), b.get(key))));
            }
            (_, b) => all.push(told(name, b)),
        }
    }
    all
}

fn told(name: &str, value: Option<&Json>) -> String {
    match value {
        None | Some(Json::Null) => format!("no {name}"),
        Some(value) => format!("{name} = {value}"),
    }
}

fn called(changes: &[String], allocation: Option<&AllocationFile>) -> String {
    let allocation = allocation.map(|file| file.name.clone());
    let parts: Vec<String> = allocation.into_iter().chain(changes.to_vec()).collect();
    escaped(&parts.join(", ")).into_owned()
}

impl Scenario {
    /// The scenario as `variation` has it, with nothing free and nothing further to vary.
    pub fn varied(&self, variation: &Variation) -> Scenario {
        let base = &self.recipe;
        let same_ranks = base.world_size == variation.recipe.world_size;
        let allocations = match &variation.allocation {
            Some(file) => vec![file.clone()],
            None if same_ranks => self.allocations.iter().take(1).cloned().collect(),
            None => Vec::new(),
        };
        let (from, to) = (base.own_layout(), variation.recipe.own_layout());
        let full_size = self.full_size.filter(|_| same_ranks);
        let mut varied = Scenario {
            recipe: variation.recipe.clone(),
            allocations,
            full_size: full_size.and_then(|full| full.resharded(from, to)),
            topo: Vec::new(),
            ..self.clone()
        };
        varied.free.clear();
        varied.checkpoint.reshard.clear();
        varied
    }
}
