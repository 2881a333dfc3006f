//! From a document to a [`Scenario`].

use std::collections::BTreeSet;
use std::path::Path;

use super::*;
use crate::diagnostic::document::{Reader, Table, Value};
use crate::diagnostic::{Diagnostic, Findings, Place, escaped, open_regular};
use crate::recipe::nccl::judge;

/// Where the document stands.
pub(super) struct Site<'a> {
    pub folder: &'a Path,
    /// The file's name without its ending, the default name of the scenario.
    pub stem: String,
}

pub(super) fn scenario(
    document: &Table,
    site: &Site<'_>,
    overrides: &Overrides,
    findings: &mut Findings,
) -> Option<Scenario> {
    let mut reader = Reader::new(document, "", findings);
    let name = reader.text("name").map_or(&*site.stem, |(name, _)| name);
    // The name is shown everywhere: made harmless once, here.
    let name = escaped(name).into_owned();
    let about = reader.text("about").map(|(about, _)| about.to_string());
    let recipe = recipe(&mut reader, site, Recipe::from_table)
        .and_then(|recipe| grown(recipe, overrides, reader.findings));
    let seed = reader.integer("seed", 0..=i64::MAX, Some(0)).value as u64;
    let free = words(&mut reader, "free", &[("placement", Free::Placement)]);
    let oracles = OracleKind::ALL.map(|oracle| (oracle.name(), oracle));
    let oracles = reader.words("oracles", &oracles);
    let asks_topo = oracles
        .as_ref()
        .map(|oracles| oracles.contains(&OracleKind::TOPO));
    let accept_input = !words(&mut reader, "accept", &[("input", ())]).is_empty();
    let allocations = allocation::read(&mut reader, site, &free);
    let expect = reader
        .table("expect")
        .map(|table| expectation(table, reader.findings));
    let data = data(&mut reader, site, overrides);
    let not_covered = not_covered(&mut reader);
    let environment_known = reader.boolean("environment_known", true).value;
    // What follows needs the recipe's sizes; without them its keys are only known, not judged.
    let Some(recipe) = recipe else {
        for key in ["steps", "checkpoint", "topo", "fault", "full_size"] {
            reader.entry(key);
        }
        reader.finish();
        return None;
    };
    allocation::fit(&allocations, &recipe, reader.findings);
    let steps = steps(&mut reader, overrides, &recipe);
    let full_size = reader.table("full_size");
    let full_size = full_size.map(|table| FullSize::read(table, &recipe, reader.findings));
    let (mut checkpoint, mut oracles) = checkpoint(&mut reader, oracles, steps, &recipe);
    let topo = topo::read(&mut reader, site, (&recipe, steps));
    topo::judge(&mut reader, &topo, &mut oracles, asks_topo);
    let ranks = recipe.world_size.max(1);
    let bounds = faults::Bounds { ranks, steps };
    let faults = faults::read(&mut reader, bounds, &mut checkpoint);
    reader.finish();
    let data = data?;
    data_is_long_enough(&data, &recipe, findings)?;
    Some(Scenario {
        name,
        about,
        steps,
        recipe,
        allocations: allocations.into_iter().map(|given| given.file).collect(),
        free,
        oracles,
        checkpoint,
        topo,
        faults,
        full_size,
        data,
        seed: overrides.seed.unwrap_or(seed),
        accept_input,
        expect: expect.flatten(),
        not_covered,
        environment_known,
        imported: None,
    })
}

fn words<T: Clone + Ord>(
    reader: &mut Reader<'_>,
    key: &'static str,
    words: &[(&str, T)],
) -> BTreeSet<T> {
    reader
        .words(key, words)
        .unwrap_or_default()
        .into_iter()
        .collect()
}

/// Sentences that a scenario may have of its own, and characters of each.
const NOT_COVERED_MAX: usize = 64;
const SENTENCE_CHARS_MAX: usize = 16_000;

/// Sentences for *not covered*.
fn not_covered(reader: &mut Reader<'_>) -> Vec<String> {
    let key = "not_covered";
    let items = reader
        .array(key, "an array of sentences")
        .unwrap_or_default();
    let mut sentences = Vec::new();
    for item in items {
        let Value::Text(text) = &item.value else {
            reader.wrong_type(key, item, "a sentence", ());
            continue;
        };
        if sentences.len() == NOT_COVERED_MAX || text.chars().count() > SENTENCE_CHARS_MAX {
            let message = "there is too much in `not_covered`".to_string();
            let label = format!(
                "expected at most {NOT_COVERED_MAX} sentences of {SENTENCE_CHARS_MAX} characters"
            );
            reader.complain("out-of-range", message, item, &label);
            break;
        }
        sentences.push(escaped(text).into_owned());
    }
    sentences
}

/// The recipe: a table, or a file with the table `override` on top. `of_table` says how large it
/// may be.
pub(super) fn recipe(
    reader: &mut Reader<'_>,
    site: &Site<'_>,
    of_table: fn(&Table, &str, &mut Findings) -> Option<Recipe>,
) -> Option<Recipe> {
    let over = reader.table("override");
    let Some(entry) = reader.entry("recipe") else {
        reader.missing("recipe", "a table, or the path of a recipe file");
        return None;
    };
    let (mut table, path) = match &entry.item.value {
        Value::Table(table) => (table.clone(), "recipe"),
        Value::Text(name) => {
            let source = file(name, &entry.item.place, site, reader.findings)?;
            (Table::parse(&source, reader.findings)?, "")
        }
        _ => {
            reader.wrong_type("recipe", &entry.item, "a table or a path", ());
            return None;
        }
    };
    if let Some(over) = over {
        table.overlay(over);
    }
    let recipe = of_table(&table, path, reader.findings);
    environment(&table, recipe.as_ref(), reader.findings);
    recipe
}

/// The recipe on as many data-parallel ranks as `--grow-dp` asks for.
pub(super) fn grown(
    recipe: Recipe,
    overrides: &Overrides,
    findings: &mut Findings,
) -> Option<Recipe> {
    let Some(ranks) = overrides.grow_dp else {
        return Some(recipe);
    };
    match recipe.grown(ranks) {
        Ok(recipe) => Some(recipe),
        Err(error) => {
            let source = Source::new("--grow-dp", ranks.to_string());
            let place = Place::new(&source, 0..source.text.len());
            findings.push(Diagnostic::error("grow-dp", error.to_string()).at(&place, ""));
            None
        }
    }
}

/// What NCCL would make of the environment: a value that it or we cannot follow is an error here,
/// with its place, and not in the middle of a check.
fn environment(table: &Table, recipe: Option<&Recipe>, findings: &mut Findings) {
    let Some(table) = table.table("env") else {
        return;
    };
    let errors_before = findings.error_count();
    for (name, entry) in &table.entries {
        let value = match &entry.item.value {
            Value::Text(text) => text.clone(),
            Value::Integer(number) => number.to_string(),
            // The recipe has complained already.
            _ => continue,
        };
        let finding = judge::unreadable(name, &value, &entry.item.place);
        finding.into_iter().for_each(|found| findings.push(found));
    }
    let Some(recipe) = recipe.filter(|_| findings.error_count() == errors_before) else {
        return;
    };
    if let Some(error) = recipe.nccl_refusal() {
        let entry = table.entries.get(error.variable());
        let place = entry.map_or(&table.place, |entry| &entry.item.place);
        findings.push(judge::finding(&error, place));
    }
}

/// A file named in the document, relative to it.
pub(super) fn file(
    name: &str,
    place: &Place,
    site: &Site<'_>,
    findings: &mut Findings,
) -> Option<Source> {
    match Source::read(&site.folder.join(name)) {
        Ok(source) => Some(source),
        Err(error) => {
            findings.push(
                Diagnostic::error("unreadable-file", error.to_string())
                    .at(place, "named here")
                    .with_note("paths in a scenario are relative to its file"),
            );
            None
        }
    }
}

fn expectation(table: &Table, findings: &mut Findings) -> Option<Expectation> {
    let mut reader = Reader::new(table, "expect", findings);
    let first = reader.text("first").map(|(op, _)| escaped(op).into_owned());
    let names = reader.entry("names").map(|entry| &entry.item);
    let names = names.and_then(|item| match &item.value {
        Value::Text(text) if !text.contains(char::is_alphanumeric) => {
            let message = "`names` has no word: any sentence has that".to_string();
            let label = "expected an edge, a module, a component";
            reader.complain("out-of-range", message, item, label);
            None
        }
        Value::Text(text) => Some(escaped(text).into_owned()),
        _ => reader.wrong_type("names", item, "a string", None).value,
    });
    let oracles = OracleKind::ALL.map(|oracle| (oracle.name(), Some(oracle)));
    let oracle = reader.word("oracle", &oracles, None).value;
    let classes = OriginClass::ALL.map(|class| (class.name(), Some(class)));
    let class = reader.word("class", &classes, None).value;
    let grade = reader.word("grade", &Grade::slugs(), Grade::Proved);
    if !grade.is_given() && grade.sound {
        reader.missing("grade", "a grade");
    }
    reader.finish();
    grade.is_given().then_some(Expectation {
        grade: grade.value,
        first,
        oracle,
        class,
        names,
    })
}

fn steps(reader: &mut Reader<'_>, overrides: &Overrides, recipe: &Recipe) -> u32 {
    let steps = steps_asked_for(reader, overrides, recipe);
    let place = reader.place().clone();
    never_replayed(recipe, steps, &place, reader.findings);
    steps
}

fn steps_asked_for(reader: &mut Reader<'_>, overrides: &Overrides, recipe: &Recipe) -> u32 {
    let most = recipe.train_iters;
    let steps = reader.count("steps", 1..=most, Some(most)).value;
    let Some(asked) = overrides.steps else {
        return steps;
    };
    if !(1..=most).contains(&asked) {
        let source = Source::new("--steps", asked.to_string());
        let place = Place::new(&source, 0..source.text.len());
        let message = format!("`--steps` is {asked}, out of range");
        let help =
            format!("the recipe trains `train_iters = {most}` steps: 1 to {most} can be checked");
        reader.findings.push(
            Diagnostic::error("out-of-range", message)
                .at(&place, "")
                .with_help(help),
        );
        return steps;
    }
    asked
}

/// A check of CUDA graphs that sees none would say nothing of them.
pub(super) fn never_replayed(recipe: &Recipe, steps: u32, place: &Place, findings: &mut Findings) {
    let Some(eager) = recipe.eager_steps().filter(|eager| *eager >= steps) else {
        return;
    };
    let message =
        format!("no CUDA graph is replayed in {steps} steps: the first {eager} are eager");
    let help = "check more steps, lower `cuda_graph_warmup_steps` (read with \
        \"transformer_engine\"), or leave `cuda_graph_impl` out";
    findings.push(
        Diagnostic::error("nothing-replayed", message)
            .at(place, format!("expected at least {} steps", eager + 1))
            .with_help(help),
    );
}

/// Restarts, and the oracles that are left: a run of one step cannot be resumed.
fn checkpoint(
    reader: &mut Reader<'_>,
    oracles: Option<Vec<OracleKind>>,
    steps: u32,
    recipe: &Recipe,
) -> (CheckpointPlan, BTreeSet<OracleKind>) {
    let place = reader.place();
    let asked = oracles.is_some();
    let mut oracles: BTreeSet<OracleKind> = oracles
        .unwrap_or(OracleKind::ALL.to_vec())
        .into_iter()
        .collect();
    if steps == 1 && oracles.remove(&OracleKind::RES) {
        let message = "a run of one step has no step to resume before";
        let finding = match asked {
            true => Diagnostic::error("nothing-to-resume", message),
            false => Diagnostic::warning("nothing-to-resume", message),
        };
        let help = "check at least two steps, or leave RES out of `oracles`";
        reader
            .findings
            .push(finding.at(place, "RES is not checked").with_help(help));
    }
    let empty = Table {
        place: place.clone(),
        entries: Default::default(),
    };
    let table = reader.table("checkpoint").unwrap_or(&empty);
    let mut reader = Reader::new(table, "checkpoint", reader.findings);
    let components = Component::ALL.map(|component| (component.name(), component));
    let omit = words(&mut reader, "omit", &components);
    let restarts = restarts::read(&mut reader, steps, recipe.overlap_param_gather);
    let reshard = reshard::read(&mut reader, recipe);
    if restarts.is_empty() || !oracles.contains(&OracleKind::RES) {
        let finding = reshard::nothing_to_resume(&reshard, reader.place());
        finding
            .into_iter()
            .for_each(|finding| reader.findings.push(finding));
    }
    let polls = reader.boolean("polls", false);
    if let Some(place) = polls.place.filter(|_| polls.value && !recipe.async_save) {
        let message = "`checkpoint.polls` asks for background writers, and there are none";
        let finding = Diagnostic::error("excluded", message);
        let expected = "expected false, or async_save = true in the recipe";
        reader.findings.push(finding.at(&place, expected));
    }
    reader.finish();
    let plan = CheckpointPlan {
        omit,
        restarts,
        reshard,
        polls: polls.value,
    };
    (plan, oracles)
}

fn data(reader: &mut Reader<'_>, site: &Site<'_>, overrides: &Overrides) -> Option<Data> {
    let expected = reader.text("data_blake3");
    let named = reader.text("data");
    if let Some(path) = &overrides.data {
        let place = Source::new("--data", path.display().to_string());
        let place = Place::new(&place, 0..place.text.len());
        return data_file(path.clone(), &place, reader.findings);
    }
    let (name, place) = match named {
        None | Some(("built-in", _)) => return Some(Data::BuiltIn),
        Some(named) => named,
    };
    let data = data_file(site.folder.join(name), place, reader.findings)?;
    let hash = data
        .blake3()
        .map(|hash| hash.to_string())
        .unwrap_or_default();
    if let Some((expected, place)) = expected.filter(|(expected, _)| *expected != hash) {
        reader.findings.push(
            Diagnostic::error("data-changed", format!("`{name}` is not the file it was"))
                .at(place, format!("expected BLAKE3 {expected}, found {hash}")),
        );
        return None;
    }
    Some(data)
}

fn data_file(path: PathBuf, place: &Place, findings: &mut Findings) -> Option<Data> {
    use std::io::Read;
    let mut bytes = Vec::new();
    let read =
        open_regular(&path).and_then(|file| file.take(DATA_BYTES_MAX + 1).read_to_end(&mut bytes));
    let problem = match read {
        Err(error) => format!("cannot read `{}`: {error}", path.display()),
        Ok(length) if length as u64 > DATA_BYTES_MAX => {
            format!("`{}` has more than {DATA_BYTES_MAX} bytes", path.display())
        }
        Ok(_) => {
            return Some(Data::File {
                path,
                bytes: bytes.into(),
            });
        }
    };
    findings.push(
        Diagnostic::error("unreadable-file", problem)
            .at(place, "named here")
            .with_help("any file does: the model reads bytes"),
    );
    None
}

fn data_is_long_enough(data: &Data, recipe: &Recipe, findings: &mut Findings) -> Option<()> {
    let Data::File { path, bytes } = data else {
        return Some(());
    };
    // A sample is a sequence and the byte that follows it.
    let least = recipe.seq_length as usize + 1;
    if bytes.len() >= least {
        return Some(());
    }
    let plural = if bytes.len() == 1 { "" } else { "s" };
    let message = format!("`{}` has {} byte{plural}", path.display(), bytes.len());
    let help = format!("one sample needs {least}: `seq_length` bytes and the next one");
    findings.push(Diagnostic::error("data-too-short", message).with_help(help));
    None
}
