//! What a Megatron-LM job asks for: its layout, its full-size recipe, and what becomes of every
//! argument.

mod counts;
mod draft;
mod fields;
mod judge;
mod number;
mod orders;
mod parse;
mod rerun;
mod schedule;
mod second_run;
mod shown;
mod stages;
mod understood;
mod values;
mod vocabulary;
mod world;

pub use fields::CaseFields;
pub use understood::{
    Derivation, JudgedArgument, Rerun, UnderstandOptions, Understood, Verdict, World, WorldBasis,
    tally,
};
pub(crate) use values::{Value, Values};

use super::catalogue::variable;
use super::{Catalogue, GivenJob, GivenKind, GivenPhase, GivenVariable, SIMULATED};
use crate::diagnostic::{Diagnostic, Findings, Place, escaped};
use crate::recipe::Recipe;
use draft::Inputs;
use second_run::SecondRun;

/// Understands one phase of a job. Errors of single arguments and of their combination become
/// findings with their places; what was understood beside them is still returned.
pub fn understand(
    job: &GivenJob,
    options: &UnderstandOptions,
    findings: &mut Findings,
) -> Understood {
    assert!(!job.phases.is_empty(), "a job has a phase");
    let errors_before = findings.error_count();
    let catalogue = Catalogue::default();
    let index = phase_index(job, options.phase, findings);
    let phase = &job.phases[index];
    let values = Values::read(phase, &catalogue, findings);
    let mut open = open(job, index, &values, findings);
    let env = job.environment(index);
    let own = fields::case_fields(job, &values, &env, findings);
    let arguments = judge::arguments(&phase.arguments, &values, job.resumes());
    let mut needs = judge::needs(&arguments, &values, findings);
    needs.extend(needs_of_job(job, index, findings));
    let mut variables = variables(job, &env, findings);
    needs.extend(judge::needs_of_variables(&variables, findings));
    let multiple = least_common_multiple(own.model_parallel_size, own.expert_model_parallel_size);
    let world = world::world(job, index, &values, options.world, multiple, findings);
    world::check_replicas(&values, &world, own.model_parallel_size, findings);
    let mut derived = orders::orders(&values, &env, job.shows_environment(index));
    let inputs = Inputs {
        values: &values,
        fields: &own,
        world: &world,
        env: &env,
        orders: &derived,
    };
    let iters = draft::train_iters(&inputs);
    let mut rerun = rerun::rerun(job, phase, &values, iters, findings);
    open.extend(rerun::partial_load(job, &values, findings));
    let mut recipe = None;
    if findings.error_count() == errors_before {
        assert!(needs.is_empty(), "each need is an error");
        let (made, more) = full_size(&inputs, findings);
        recipe = made;
        derived.extend(more);
        if let Some(error) = recipe.as_ref().and_then(Recipe::nccl_refusal) {
            let place = values.phase_place();
            needs.extend(judge::refused(&error, &mut variables, place, findings));
        }
    }
    if let Some(recipe) = &recipe {
        match second_run::second_run(job, index, options, &values, recipe, findings) {
            SecondRun::Same => {}
            SecondRun::On(layout) => rerun.resharding = Some(layout),
            SecondRun::Other(need) => needs.push(need),
        }
    }
    rerun::resharding_bound(&rerun, (own.tp, own.pp), &values, findings);
    open.extend(rerun.resharding.and_then(|to| rerun.repadded(own.tp, to)));
    if findings.error_count() > errors_before {
        recipe = None;
    }
    Understood {
        fields: first_fields(job, index, &own, &catalogue),
        own,
        phase: index,
        world,
        rerun,
        arguments,
        variables,
        derived,
        open,
        needs,
        recipe,
    }
}

fn variables(
    job: &GivenJob,
    env: &[GivenVariable],
    findings: &mut Findings,
) -> Vec<JudgedArgument> {
    let mut judged = judge::variables(env, findings);
    world::unread_counts(job, &mut judged, findings);
    judged
}

/// The recipe at full size, and what was derived for it.
fn full_size(
    inputs: &Inputs<'_, '_>,
    findings: &mut Findings,
) -> (Option<Recipe>, Vec<Derivation>) {
    let (table, derived) = draft::table(inputs, findings);
    let mut own = Findings::default();
    let recipe = Recipe::full_size_from_table(&table, "", &mut own);
    // What variables mean was judged with the arguments.
    let told = own.into_vec().into_iter();
    told.filter(|finding| finding.code != "env-without-effect")
        .for_each(|finding| findings.push(finding));
    (recipe, derived)
}

/// PyTorch's default, without --disable-bf16-reduced-precision-matmul.
const REDUCED_PRECISION: &str = "bf16 matrix products: cuBLAS may reduce split products in bf16 \
    (allow_bf16_reduced_precision_reduction), and here they are reduced in fp32";

/// Sentences for *not covered*. What a log ought to show and does not is an error.
fn open(job: &GivenJob, index: usize, values: &Values<'_>, findings: &mut Findings) -> Vec<String> {
    let is_reduced = values.flag("bf16") && !values.flag("disable_bf16_reduced_precision_matmul");
    let products = is_reduced.then(|| REDUCED_PRECISION.to_string());
    let mut open: Vec<String> = products.into_iter().collect();
    open.extend(between_steps(values).map(str::to_string));
    open.extend(second_run::of_second_alone(job, index));
    open.extend(environment(job, index));
    open.extend(followed(&job.phases[index]));
    open.extend(unknown(job, index));
    open.extend(job.phases[index].assumed.iter().map(of_caller));
    if job.kind == GivenKind::ArgumentDump {
        open.extend(shown::lacking(
            &job.phases[index],
            values.catalogue,
            findings,
        ));
        shown::check_formats(values, findings);
        shown::check_same(values, findings);
    }
    open
}

/// What happens between steps that the simulated ones do not show.
fn between_steps(values: &Values<'_>) -> impl Iterator<Item = &'static str> {
    let evaluates = values.integer("eval_interval").is_some()
        && values.integer("eval_iters").is_none_or(|iters| iters > 0);
    let hashes = values.is_given("check_weight_hash_across_dp_replicas_interval");
    let gathers = values.flag("overlap_param_gather") && (evaluates || hashes);
    let starts = values.is_given("pretrained_checkpoint");
    [
        (
            gathers,
            "the steps before an evaluation or a comparison of weights, at whose end all \
             parameters are gathered at once (training.py): here their gathers overlap as in \
             every step",
        ),
        (
            starts,
            "--pretrained-checkpoint, from which a job starts anew wherever `--load` has no \
             checkpoint: bitproof starts from weights of its own",
        ),
    ]
    .into_iter()
    .filter_map(|(is_so, sentence)| is_so.then_some(sentence))
}

/// What of the job's environment is not known.
fn environment(job: &GivenJob, index: usize) -> Option<String> {
    const DECIDE: &str = "NCCL_ALGO, NCCL_PROTO and NVTE_ALLOW_NONDETERMINISTIC_ALGO";
    if let Some(place) = &job.phases[index].reads {
        return Some(format!(
            "the job's environment: {} of the script is not read here, and may set any variable \
             that the script does not set behind it, such as {DECIDE}",
            shown_at(place)
        ));
    }
    let form = match job.kind {
        GivenKind::ArgumentDump => "a log",
        _ => "a list of arguments",
    };
    (!job.shows_environment(index)).then(|| {
        format!(
            "the job's environment: {form} does not show it, and variables such as {DECIDE} decide \
             bits: what is not known is taken as not set"
        )
    })
}

/// Variables that nobody here knows, of a limited number.
fn unknown(job: &GivenJob, index: usize) -> Option<String> {
    let mut names: Vec<String> = Vec::new();
    for given in job.variables(index) {
        let name = escaped(&given.name).into_owned();
        if variable(&given.name).is_none() && !names.contains(&name) {
            names.push(name);
        }
    }
    let more = names.len().saturating_sub(UNKNOWN_MAX);
    names.truncate(UNKNOWN_MAX);
    let more = match more {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let all = names.join(", ");
    (!names.is_empty()).then(|| format!("variables that are not known here: {all}{more}"))
}

/// Unknown variables that are named.
const UNKNOWN_MAX: usize = 10;

/// The beginning of what stands at a place, and its line.
fn shown_at(place: &Place) -> String {
    let text = place.source.text.get(place.span.clone());
    let text = text.unwrap_or_default().chars();
    let shown: String = text.take(READ_CHARS_MAX).collect();
    let (line, _) = place.source.line_column(place.span.start);
    format!("`{}` in line {line}", escaped(&shown))
}

/// A variable that whoever starts the script may set.
fn of_caller((name, place): &(String, Place)) -> String {
    format!(
        "{name} as whoever starts the script may set it: {} is read as where nobody does",
        shown_at(place)
    )
}

/// A script that can be read in more than one way.
fn followed(phase: &GivenPhase) -> Option<String> {
    let place = phase.followed.as_ref()?;
    let (line, _) = place.source.line_column(place.span.start);
    Some(format!(
        "that a shell runs the script as it was followed here: it is more than assignments and a \
         launch from line {line} on. `bash -x` or the job's log shows what is launched"
    ))
}

/// Characters of a file's name that a sentence shows.
const READ_CHARS_MAX: usize = 80;

fn phase_index(job: &GivenJob, asked: usize, findings: &mut Findings) -> usize {
    if asked < job.phases.len() {
        return asked;
    }
    let count = job.phases.len();
    let message = format!("there is no phase {}: the file has {count}", asked + 1);
    let place = &job.phases[count - 1].place;
    findings.push(Diagnostic::error("no-such-phase", message).at(place, "the last phase"));
    count - 1
}

/// The fields of the first phase: `own` are those of the phase `index`. Findings of another phase
/// are those of another recipe.
fn first_fields(
    job: &GivenJob,
    index: usize,
    own: &CaseFields,
    catalogue: &Catalogue,
) -> CaseFields {
    if index == 0 {
        return own.clone();
    }
    let mut scratch = Findings::default();
    let values = Values::read(&job.phases[0], catalogue, &mut scratch);
    fields::case_fields(job, &values, &job.environment(0), &mut scratch)
}

/// What the file as a whole asks for that bitproof does not do.
fn needs_of_job(job: &GivenJob, index: usize, findings: &mut Findings) -> Vec<String> {
    let phase = &job.phases[index];
    let mut needs = Vec::new();
    let mut need = |what: String, place: &Place, label: &str| {
        let message = format!("this job needs {what}");
        findings.push(Diagnostic::error("not-simulated", message).at(place, label));
        needs.push(what);
    };
    if let Some(mode) = job.mode.as_deref().filter(|mode| *mode != "pretraining") {
        let what = format!("the mode `{}`", escaped(mode));
        need(what, &phase.place, "only pretraining is simulated");
    }
    if let Some((program, place)) = job.test_program(index) {
        let name = program.rsplit('/').next().unwrap_or_default();
        if name != SIMULATED {
            let what = format!("the program `{}`", escaped(program));
            need(
                what,
                place,
                "what is simulated is Megatron-LM's `pretrain_gpt.py`",
            );
        }
    }
    if let Some(dotted) = phase
        .arguments
        .iter()
        .find(|given| given.flag.contains('.'))
    {
        let what = "the NeMo recipe that these keys override, which is not in the file".to_string();
        need(what, &dotted.flag_place, "a key of Hydra's");
    }
    needs
}

fn least_common_multiple(a: u32, b: u32) -> u32 {
    let (a, b) = (a.max(1), b.max(1));
    let (mut x, mut y) = (a, b);
    while y > 0 {
        (x, y) = (y, x % y);
    }
    (a / x).saturating_mul(b)
}

#[cfg(test)]
mod tests;
