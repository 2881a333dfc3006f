//! The second run of a `ckpt-resume` test, where the file gives it arguments of its own.
//!
//! Source: `tests/functional_tests/shell_test_utils/_run_training.sh` of NVIDIA/Megatron-LM: the
//! run that resumes (`RUN_NUMBER` 2) takes `MODEL_ARGS_2` where there is one, else `MODEL_ARGS`.

use super::super::catalogue::{Catalogue, Effect};
use super::super::given::{FIRST, SECOND};
use super::super::{GivenJob, GivenPhase};
use super::values::Values;
use super::{UnderstandOptions, rerun, understand};
use crate::diagnostic::{Diagnostic, Findings, Severity, escaped};
use crate::recipe::{Recipe, ReshardLayout};

/// Attributes that say how the same training lies on its ranks.
const LAYOUT: [&str; 7] = [
    "microbatch_group_size_per_vp_stage",
    "num_layers_per_virtual_pipeline_stage",
    "num_virtual_stages_per_pipeline_rank",
    "pipeline_model_parallel_size",
    "sequence_parallel",
    "tensor_model_parallel_size",
    "virtual_pipeline_model_parallel_size",
];

/// What the resumed run is beside the first.
pub(super) enum SecondRun {
    /// The same job.
    Same,
    /// The same training on another layout of its ranks.
    On(ReshardLayout),
    /// Another job: what resuming it needs.
    Other(String),
}

/// Compares the run that the test of `first` resumes with `recipe`, that of `first`. An error says
/// where it is another job: its resume must not be taken for one of the same.
pub(super) fn second_run(
    job: &GivenJob,
    first_index: usize,
    options: &UnderstandOptions,
    first: &Values<'_>,
    recipe: &Recipe,
    findings: &mut Findings,
) -> SecondRun {
    let Some(index) = job.resumed_phase(first_index) else {
        return SecondRun::Same;
    };
    let phase = &job.phases[index];
    let mut scratch = Findings::default();
    let values = Values::read(phase, first.catalogue, &mut scratch);
    rerun::partial_load(job, &values, findings);
    let differing = differing(first, &values);
    let options = UnderstandOptions {
        phase: index,
        ..*options
    };
    let mut own = Findings::default();
    let second = understand(job, &options, &mut own).recipe;
    let is_refused = tell_errors(own, findings);
    let is_layout = differing.iter().all(|dest| LAYOUT.contains(dest));
    match second.and_then(|second| layout_of(recipe, &second)) {
        Some(layout) if is_layout && layout == recipe.own_layout() => SecondRun::Same,
        Some(layout) if is_layout => SecondRun::On(layout),
        // What is wrong with it was told.
        _ if is_refused => SecondRun::Other(format!("a resume with the arguments of {SECOND}")),
        _ => {
            findings.push(of_another(phase, &differing));
            SecondRun::Other(format!("a resume with the arguments of {SECOND}"))
        }
    }
}

/// Hands errors of the second run on, but for what it needs: that is told as what differs. Whether
/// there is one.
fn tell_errors(own: Findings, findings: &mut Findings) -> bool {
    let errors_before = findings.error_count();
    let is_told = |finding: &Diagnostic| {
        finding.severity == Severity::Error && finding.code != "not-simulated"
    };
    own.into_vec()
        .into_iter()
        .filter(is_told)
        .for_each(|finding| findings.push(finding));
    findings.error_count() > errors_before
}

/// What a check of the second run's arguments says nothing about.
pub(super) fn of_second_alone(job: &GivenJob, index: usize) -> Option<String> {
    let is_second = job.resumes() && job.phases[index].name == SECOND;
    is_second.then(|| {
        format!(
            "the resume of this test, which starts from a checkpoint of {FIRST}: a run of {SECOND} \
             is resumed with itself here"
        )
    })
}

/// Attributes that differ and from which bits may follow.
fn differing<'v>(first: &'v Values<'_>, second: &'v Values<'_>) -> Vec<&'v str> {
    let catalogue: &Catalogue = first.catalogue;
    // What a run can load depends on the format that it asks for (`load_checkpoint`).
    const FORMATS: [&str; 2] = ["ckpt_format", "auto_detect_ckpt_format"];
    let decides = |dest: &&str| {
        let effect = catalogue.attribute(dest).map(|argument| argument.effect);
        FORMATS.contains(dest)
            || !matches!(
                effect,
                Some(Effect::NoBits(_) | Effect::Part(_) | Effect::Only(_))
            )
    };
    first.differing(second).filter(decides).collect()
}

/// The layout on which `first` is `second`, the padding of the vocabulary apart, which follows from
/// the layout.
fn layout_of(first: &Recipe, second: &Recipe) -> Option<ReshardLayout> {
    let layout = second.own_layout();
    let moved = Recipe {
        padded_vocab_size: second.padded_vocab_size,
        ..first.moved(layout)
    };
    (moved == *second).then_some(layout)
}

fn of_another(phase: &GivenPhase, differing: &[&str]) -> Diagnostic {
    let flags: Vec<String> = differing
        .iter()
        .map(|dest| escaped(&dest.replace('_', "-")).into_owned())
        .collect();
    let finding = Diagnostic::error(
        "not-simulated",
        format!("this test resumes {FIRST} with {SECOND}, another job"),
    )
    .at(&phase.place, "the resumed run takes these arguments")
    .with_note("a resume is compared on the same arguments, or on another layout of them alone")
    .with_help(format!(
        "to check the runs one by one: leave `TEST_TYPE: ckpt-resume` out, and `--phase {SECOND}`"
    ));
    match flags.is_empty() {
        true => finding,
        false => finding.with_note(format!("differing: {}", flags.join(", "))),
    }
}
