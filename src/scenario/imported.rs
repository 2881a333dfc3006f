//! A scenario around a job of Megatron-LM: what was understood of it, and the small recipe that
//! stands for it.

use std::path::Path;

use serde::Serialize;

use super::load::{assigned, site};
use super::{FullSize, Loaded, Overrides, read};
use crate::diagnostic::document::Table;
use crate::diagnostic::{Diagnostic, Findings, Place, Severity, Source, escaped};
use crate::recipe::lint::lint;
use crate::recipe::megatron::{
    Derivation, GivenJob, GivenKind, JudgedArgument, UnderstandOptions, Understood, World,
    WorldBasis, understand,
};
use crate::recipe::{Change, Recipe, ReshardLayout, ScaleOptions, Scaled, scaled};

/// What a scenario that was made from a job tells of it. Nothing here decides bits: those follow
/// from the scenario's recipe and full size.
#[derive(Clone, Debug, Serialize)]
pub struct Imported {
    pub file: String,
    pub form: &'static str,
    /// The phase that is checked, and all of them.
    pub phase: String,
    pub phases: Vec<String>,
    /// Parallel sizes and switches of the job, a line.
    pub layout: String,
    pub world: World,
    /// What is smaller here than in the job, or larger.
    pub changes: Vec<Change>,
    /// Values that no argument states.
    pub derived: Vec<Derivation>,
    pub arguments: Vec<JudgedArgument>,
    pub variables: Vec<JudgedArgument>,
}

/// The scenario as text, for the reader of all scenarios.
#[derive(Serialize)]
struct Generated<'a> {
    name: &'a str,
    steps: u32,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    not_covered: &'a [String],
    #[serde(skip_serializing_if = "super::content::is_true")]
    environment_known: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    checkpoint: Option<Checkpoint>,
    full_size: FullSize,
    recipe: &'a Recipe,
}

#[derive(Serialize)]
struct Checkpoint {
    restarts: Vec<Vec<u32>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    reshard: Vec<String>,
}

/// What is said about a job without running it: every finding, errors included, up to those of the
/// scaled scenario and of the command line.
pub(super) fn linted(source: &Source, path: &Path, overrides: &Overrides) -> Vec<Diagnostic> {
    match scenario(source, path, overrides) {
        Ok(loaded) => loaded.warnings,
        Err(findings) => findings,
    }
}

/// The job's scenario, scaled.
pub(super) fn scenario(
    source: &Source,
    path: &Path,
    overrides: &Overrides,
) -> Result<Loaded, Vec<Diagnostic>> {
    let mut findings = Findings::default();
    let Some(given) = GivenJob::read(source, path, &mut findings) else {
        return Err(findings.into_vec());
    };
    if let Some(refusal) = followed(&given) {
        return Err(vec![refusal]);
    }
    let Some(understood) = understood(&given, overrides, &mut findings) else {
        return Err(findings.into_vec());
    };
    let loaded = small(&understood, source, overrides, &mut findings).and_then(|scaled| {
        let text = generated(&given, &understood, &scaled, path, overrides);
        let mut loaded = read_back(source, &text, path, overrides, &mut findings)?;
        loaded.imported = Some(imported(source, &given, &understood, scaled));
        Some(loaded)
    });
    findings
        .finish(loaded)
        .map(|(scenario, warnings)| Loaded { scenario, warnings })
}

/// What is followed may be misread, and then another job than the user's would be proved. So a
/// script is checked as it is where it can be read one way only; of any other the user reads what
/// was made of it first.
fn followed(given: &GivenJob) -> Option<Diagnostic> {
    let place = given
        .phases
        .iter()
        .find_map(|phase| phase.followed.as_ref())?;
    let name = escaped(&place.source.name);
    Some(
        Diagnostic::error(
            "script-followed",
            "this script is more than assignments and a launch: it is not checked as it is",
        )
        .at(place, "from here on it was followed, and may be misread")
        .with_note("only the shell knows for sure what it launches")
        .with_help(format!(
            "`bitproof import recipe {name} -o recipe.toml`, read the arguments that it lists, \
             then `bitproof check recipe.toml`; or check the job's log"
        )),
    )
}

/// Understands the wanted phase, and says what is wrong with it.
pub(super) fn understood(
    given: &GivenJob,
    overrides: &Overrides,
    findings: &mut Findings,
) -> Option<Understood> {
    let phase = phase(given, overrides, findings)?;
    let options = UnderstandOptions {
        world: overrides.world,
        phase,
    };
    let mut understood = understand(given, &options, findings);
    let own = understood.own.tp;
    for layout in asked_layouts(overrides) {
        let more = understood.rerun.repadded(own, layout);
        understood.open.extend(more);
    }
    lint(given, &understood)
        .into_iter()
        .for_each(|finding| findings.push(finding));
    if !findings.has_errors() && understood.recipe.is_none() {
        let needs = understood.needs.join(", ");
        findings.push(
            Diagnostic::error("unsupported", format!("this job needs {needs}"))
                .at(&given.phases[phase].place, "asked for here"),
        );
    }
    Some(understood)
}

/// Which phase `--phase` means: a number from 1, or a name.
fn phase(given: &GivenJob, overrides: &Overrides, findings: &mut Findings) -> Option<usize> {
    let Some(wanted) = &overrides.phase else {
        return Some(0);
    };
    let number = wanted.parse::<usize>().ok();
    let numbered = number.and_then(|number| number.checked_sub(1));
    let named = given.phases.iter().position(|phase| phase.name == *wanted);
    let found = named.or(numbered.filter(|number| *number < given.phases.len()));
    if found.is_none() {
        let names: Vec<&str> = given.phases.iter().map(|phase| &*phase.name).collect();
        let asked = Source::new("--phase", wanted.as_str());
        let place = Place::new(&asked, 0..asked.text.len());
        findings.push(
            Diagnostic::error("no-such-phase", "the file has no such phase")
                .at(&place, format!("expected 1 to {}, or a name", names.len()))
                .with_note(format!("phases: {}", names.join(", "))),
        );
    }
    found
}

fn is_assumed(world: &World) -> bool {
    // A file that says how many GPUs a node has does not say how many nodes there are.
    matches!(world.basis, WorldBasis::Assumed | WorldBasis::GpusPerNode)
}

pub(super) fn small(
    understood: &Understood,
    source: &Source,
    overrides: &Overrides,
    findings: &mut Findings,
) -> Option<Scaled> {
    let full = understood
        .recipe
        .as_ref()
        .filter(|_| !findings.has_errors())?;
    let asked = asked_layouts(overrides);
    let is_sound = asked
        .iter()
        .all(|layout| is_unbound(understood, *layout, findings) && admits(full, *layout, findings));
    if !is_sound {
        return None;
    }
    let resumed_on = understood.rerun.resharding.iter().chain(&asked);
    let resumed_on = resumed_on.map(|to| {
        let chunks = to.num_virtual_stages_per_pipeline_rank;
        let stages = to.pipeline_model_parallel_size.saturating_mul(chunks);
        (to.tensor_model_parallel_size, stages)
    });
    let options = ScaleOptions {
        grow_dp: overrides.grow_dp,
        world_is_assumed: is_assumed(&understood.world),
        resumed_on: resumed_on.collect(),
    };
    match scaled(full, &options) {
        Ok(scaled) => Some(scaled),
        Err(error) => {
            let place = Place::new(source, 0..0);
            findings.push(Diagnostic::error("grow-dp", error.to_string()).at(&place, ""));
            None
        }
    }
}

/// Layouts that the command line asks for: the small model must divide into them as well. What is
/// no layout is refused where the scenario is read.
fn asked_layouts(overrides: &Overrides) -> Vec<ReshardLayout> {
    let texts = overrides.set.iter().filter_map(|assignment| {
        let (key, value) = assignment.split_once('=')?;
        let is_it = key.trim() == "checkpoint.reshard";
        let value = format!("layouts = {value}").parse::<toml::Table>().ok()?;
        is_it.then(|| value["layouts"].as_array().cloned())?
    });
    let layouts = texts.flatten();
    layouts
        .filter_map(|layout| layout.as_str()?.parse().ok())
        .collect()
}

/// Whether what the job saves, and the samples that it takes, go with a layout.
fn is_unbound(understood: &Understood, layout: ReshardLayout, findings: &mut Findings) -> bool {
    let own = (understood.own.tp, understood.own.pp);
    let Some(bound) = understood.rerun.bound_to_layout(own, layout) else {
        return true;
    };
    let text = layout.to_string();
    let asked = Source::new("--reshard", text.as_str());
    findings.push(bound.refusal(layout, &Place::new(&asked, 0..text.len())));
    false
}

/// Whether the job itself, not only what is run of it, divides into a layout.
fn admits(full: &Recipe, layout: ReshardLayout, findings: &mut Findings) -> bool {
    // How large the job is, is no matter: it is not run.
    let of_layout =
        |finding: &Diagnostic| finding.severity == Severity::Error && finding.code != "too-large";
    let Err(found) = full.resharded(layout) else {
        return true;
    };
    let text = layout.to_string();
    let asked = Source::new("--reshard", text.as_str());
    let place = Place::new(&asked, 0..text.len());
    let mut is_sound = true;
    for finding in found.into_iter().filter(of_layout) {
        is_sound = false;
        let message = format!("resumed on {layout}: {}", finding.message);
        let label = finding.place.map(|(_, label)| label).unwrap_or_default();
        findings.push(
            Diagnostic::error(finding.code, message)
                .at(&place, label)
                .with_note("the ranks stay, and data parallelism follows from their number"),
        );
    }
    is_sound
}

/// The scenario's text: what is not said has the default of every scenario.
pub(super) fn generated(
    given: &GivenJob,
    understood: &Understood,
    scaled: &Scaled,
    path: &Path,
    overrides: &Overrides,
) -> String {
    let stem = path.file_stem().map(|stem| stem.to_string_lossy());
    let name = match (&given.case, stem) {
        (Some(case), _) => case.clone(),
        (None, Some(stem)) => stem.into_owned(),
        (None, None) => "job".to_string(),
    };
    let steps = scaled.recipe.train_iters;
    let asked = overrides.steps.map_or(steps, |asked| asked.min(steps));
    let generated = Generated {
        name: &name,
        steps,
        not_covered: &understood.open,
        environment_known: given.shows_environment(understood.phase),
        checkpoint: checkpoint(understood, steps, asked),
        full_size: FullSize::of_job(&scaled.full),
        recipe: &scaled.recipe,
    };
    toml::to_string(&generated).expect("plain data has a TOML form")
}

/// A test that resumes does so at the same fraction of its steps; every other job is resumed as
/// any scenario is. `asked` steps are checked of `steps`.
fn checkpoint(understood: &Understood, steps: u32, asked: u32) -> Option<Checkpoint> {
    let rerun = &understood.rerun;
    let whole = understood
        .recipe
        .as_ref()
        .map_or(1, |full| full.train_iters.max(1));
    let reshard: Vec<String> = rerun.resharding.iter().map(ToString::to_string).collect();
    // A run of one step cannot be resumed: it is left to the reader of the scenario to say so.
    let last = asked.checked_sub(1).filter(|last| *last > 0)?;
    if rerun.restarts.is_empty() && reshard.is_empty() {
        return None;
    }
    let place = |step: &u32| {
        let nearest =
            (u64::from(*step) * u64::from(steps) + u64::from(whole) / 2) / u64::from(whole);
        (nearest as u32).clamp(1, last)
    };
    let mut restarts: Vec<u32> = rerun.restarts.iter().map(place).collect();
    if restarts.is_empty() {
        restarts.push((steps / 2).clamp(1, last));
    }
    restarts.sort_unstable();
    restarts.dedup();
    Some(Checkpoint {
        restarts: restarts.into_iter().map(|step| vec![step]).collect(),
        reshard,
    })
}

/// Reads the generated text as any scenario.
pub(super) fn read_back(
    source: &Source,
    text: &str,
    path: &Path,
    overrides: &Overrides,
    findings: &mut Findings,
) -> Option<super::Scenario> {
    let source = &Source::new(format!("{} (scaled)", source.name), text);
    // What the job is was said above; these change the small scenario only.
    let overrides = Overrides {
        world: None,
        grow_dp: None,
        phase: None,
        ..overrides.clone()
    };
    let mut own = Findings::default();
    let document = Table::parse(source, &mut own)
        .and_then(|document| assigned(document, true, &overrides, &mut own));
    let scenario =
        document.and_then(|document| read::scenario(&document, &site(path), &overrides, &mut own));
    // What variables mean was judged with the arguments.
    for finding in own.into_vec() {
        if finding.code != "env-without-effect" {
            findings.push(finding);
        }
    }
    scenario
}

fn imported(
    source: &Source,
    given: &GivenJob,
    understood: &Understood,
    scaled: Scaled,
) -> Imported {
    let full = understood.recipe.as_ref().expect("it was scaled");
    let name = |place: usize| escaped(&given.phases[place].name).into_owned();
    Imported {
        file: escaped(&source.name).into_owned(),
        form: match given.kind {
            GivenKind::FunctionalTest => "functional test",
            GivenKind::ArgumentDump => "job log",
            GivenKind::CommandLine => "launch line",
        },
        phase: name(understood.phase),
        phases: (0..given.phases.len()).map(name).collect(),
        layout: layout(full),
        world: understood.world.clone(),
        changes: scaled.changes,
        derived: understood.derived.clone(),
        arguments: understood.arguments.clone(),
        variables: understood.variables.clone(),
    }
}

/// The job's layout and switches, as a line.
fn layout(full: &Recipe) -> String {
    let mut parts = vec![
        format!("TP {}", full.tensor_model_parallel_size),
        format!("PP {}", full.pipeline_model_parallel_size),
    ];
    if full.num_virtual_stages_per_pipeline_rank > 1 {
        parts.push(format!("VPP {}", full.num_virtual_stages_per_pipeline_rank));
    }
    parts.push(format!("DP {}", full.data_parallel_size()));
    let switches = [
        (full.sequence_parallel, "sequence parallel"),
        (full.use_distributed_optimizer, "distributed optimizer"),
        (full.overlap_grad_reduce, "overlapped gradient reduction"),
        (full.overlap_param_gather, "overlapped parameter gather"),
        (full.async_save, "asynchronous saves"),
        (full.exit_duration_in_mins.is_some(), "exit by the clock"),
        (full.recompute_granularity.is_some(), "recomputation"),
        (
            full.cpu_offloading_num_layers > 0,
            "activations offloaded to the host",
        ),
        (full.eager_steps().is_some(), "CUDA graphs of layers"),
    ];
    let on = switches.iter().filter(|(on, _)| *on);
    parts.extend(on.map(|(_, name)| name.to_string()));
    if full.num_distributed_optimizer_instances > 1 {
        let instances = full.num_distributed_optimizer_instances;
        parts.push(format!("{instances} optimizer instances"));
    }
    parts.push(if full.bf16 { "bf16" } else { "fp32" }.to_string());
    parts.push(format!(
        "{} layers of {}, {} microbatches of {} x {} tokens",
        full.num_layers,
        full.hidden_size,
        full.microbatch_count(),
        full.micro_batch_size,
        full.seq_length
    ));
    parts.join(", ")
}

impl Imported {
    /// Whether nobody said how many ranks the job has.
    pub fn world_is_assumed(&self) -> bool {
        is_assumed(&self.world)
    }
}

#[cfg(test)]
mod tests;
