//! What becomes of each argument and variable.

use super::super::catalogue::{Effect, Feature, Variable, variable};
use super::super::{GivenArgument, GivenValue, GivenVariable};
use super::fields::cuda_graph;
use super::understood::{JudgedArgument, Verdict};
use super::values::{Reading, Setting, Value, Values};
use super::vocabulary;
use crate::diagnostic::{Diagnostic, Findings, Place, escaped, nearest};
use crate::recipe::nccl::{self, EnvironmentError};

/// Every argument of a phase with its verdict, in the order of the file.
pub(super) fn arguments(
    given: &[GivenArgument],
    values: &Values<'_>,
    resumes: bool,
) -> Vec<JudgedArgument> {
    assert_eq!(given.len(), values.readings.len(), "one reading each");
    let judged = |(given, reading): (&GivenArgument, &Reading)| {
        let (verdict, reason) = match reading {
            Reading::Refused(reason) => (Verdict::Invalid, reason.clone()),
            Reading::Absent => (
                Verdict::Unknown,
                "not known; at None or False, nothing asks for it".to_string(),
            ),
            Reading::Ranks => (Verdict::Used, "the number of ranks".to_string()),
            Reading::Sets(dest) => {
                let setting = values.setting(dest).expect("it was read");
                if std::ptr::eq(setting.given, given) {
                    verdict(dest, setting, values, resumes)
                } else {
                    let line = line_of(setting.given);
                    (
                        Verdict::NoBits,
                        format!("given again at line {line}: the last one counts (argparse)"),
                    )
                }
            }
        };
        JudgedArgument {
            flag: given.flag.clone(),
            value: shown(&given.value),
            verdict,
            reason,
            place: given.flag_place.clone(),
        }
    };
    given.iter().zip(&values.readings).map(judged).collect()
}

fn verdict(
    dest: &str,
    setting: &Setting<'_>,
    values: &Values<'_>,
    resumes: bool,
) -> (Verdict, String) {
    let effect = setting.argument.effect;
    if let Value::Variable(text) = &setting.value
        && matches!(effect, Effect::Used(_))
    {
        let text = escaped(text);
        let reason = format!("`{text}` is not known here: Megatron's default is taken");
        return (Verdict::Replaced, reason);
    }
    if let Some(what) = need_of(dest, values) {
        return (Verdict::Unsupported, format!("it needs {what}"));
    }
    if let (Effect::Used(_) | Effect::Replaced(_), Some(reason)) = (effect, unread(dest, values)) {
        return (Verdict::NoBits, reason.to_string());
    }
    if dest == "add_qkv_bias" && values.flag("add_bias_linear") {
        let reason = "every linear layer has biases here (validate_args sets it then)";
        return (Verdict::NoBits, reason.to_string());
    }
    let sums = "accumulate_allreduce_grads_in_fp32";
    if dest == sums && values.flag("bf16") && values.resolved(sums).is_some() {
        let reason = "the number format of gradient sums, as validate_args derived it";
        return (Verdict::Used, reason.to_string());
    }
    if dest == "perform_initialization" && loads_weights(values) {
        let reason = "every weight is loaded: a job without its checkpoint does not start here \
            (--exit-on-missing-checkpoint)";
        return (Verdict::Replaced, reason.to_string());
    }
    let schedules = [
        "override_opt_param_scheduler",
        "use_checkpoint_opt_param_scheduler",
    ];
    if schedules.contains(&dest) && loads_another(values) {
        let reason = "the schedule of the checkpoint that is loaded first, or the arguments': \
            bitproof's is the arguments'";
        return (Verdict::Replaced, reason.to_string());
    }
    if dest == "save_interval" && !resumes {
        let reason = "read where a test resumes (TEST_TYPE ckpt-resume): other jobs are resumed \
            where the scenario says";
        return (Verdict::Replaced, reason.to_string());
    }
    match effect {
        Effect::Used(what) => (Verdict::Used, what.to_string()),
        Effect::Replaced(by) => (Verdict::Replaced, by.to_string()),
        Effect::NoBits(reason) => (Verdict::NoBits, reason.to_string()),
        Effect::Needs(_) if values.is_default(dest) => (
            Verdict::NoBits,
            "at its default, which is simulated".to_string(),
        ),
        Effect::Needs(what) => (Verdict::Unsupported, format!("it needs {what}")),
        Effect::Part(feature) => part(feature, values),
        Effect::Only(feature) => only(feature, dest, values),
        Effect::Open(what) => (Verdict::Replaced, format!("not covered: {what}")),
    }
}

/// Whether a job starts from a checkpoint with every weight or not at all.
fn loads_weights(values: &Values<'_>) -> bool {
    // With others a weight that the checkpoint lacks is told at most (StrictHandling).
    const STRICT: [&str; 4] = [
        "assume_ok_unexpected",
        "log_unexpected",
        "raise_unexpected",
        "raise_all",
    ];
    let strictness = values.text("dist_ckpt_strictness");
    let is_strict = strictness.is_none_or(|word| STRICT.contains(&word));
    values.is_given("load") && values.flag("exit_on_missing_checkpoint") && is_strict
}

/// Whether what is loaded first may be another job's.
fn loads_another(values: &Values<'_>) -> bool {
    values.is_given("load") && values.text("load") != values.text("save")
}

/// Why nobody reads an argument that others leave without effect.
fn unread(dest: &str, values: &Values<'_>) -> Option<&'static str> {
    let on = |dest: &str| values.flag(dest);
    let granularity = match on("recompute_activations") {
        true => Some("selective"),
        false => values.text("recompute_granularity"),
    };
    let rotary = values.text("position_embedding_type") == Some("rope")
        || on("use_rotary_position_embeddings");
    let interleaved = values.is_given("num_layers_per_virtual_pipeline_stage")
        || values.is_given("num_virtual_stages_per_pipeline_rank")
        || values.is_given("virtual_pipeline_model_parallel_size");
    let (reason, is_read) = match dest {
        "recompute_granularity" => (
            "--recompute-activations sets it to selective (validate_args)",
            !on("recompute_activations"),
        ),
        "recompute_method" | "recompute_num_layers" => (
            "read only with --recompute-granularity full (transformer_block.py)",
            granularity == Some("full"),
        ),
        "recompute_modules" => (
            "read only with --recompute-granularity selective (TransformerConfig)",
            granularity == Some("selective"),
        ),
        "num_query_groups" => (
            "read only with --group-query-attention (core_transformer_config_from_args)",
            on("group_query_attention"),
        ),
        "vocab_extra_ids" => (
            "read only by the legacy BertWordPiece and SentencePiece tokenizers (build_tokenizer)",
            vocabulary::has_extra_ids(values),
        ),
        "encoder_num_layers" => (
            "--num-layers is given (validate_args)",
            !values.is_given("num_layers"),
        ),
        "encoder_seq_length" => (
            "--seq-length is given (validate_args)",
            !values.is_given("seq_length"),
        ),
        "use_flash_attn" => (
            "read only by local attention: Transformer Engine's follows --attention-backend",
            values.text("transformer_impl") == Some("local"),
        ),
        "rotary_base" | "rope_type" => ("read only with rotary position embeddings", rotary),
        "ddp_bucket_size" => (
            "buckets are infinite without --overlap-grad-reduce (DistributedDataParallel)",
            on("overlap_grad_reduce"),
        ),
        "microbatch_group_size_per_vp_stage" => (
            "read only by the interleaved schedule (schedules.py)",
            interleaved,
        ),
        "overlap_p2p_comm" => (
            "switched off without an interleaved pipeline (validate_args)",
            interleaved,
        ),
        "ddp_reduce_scatter_with_fp32_accumulation" => (
            "switched off where gradients are reduced in fp32 (validate_args)",
            values.reduces_in_bf16() || values.resolved(dest).is_some(),
        ),
        "grad_reduce_in_bf16" => ("read only with --bf16 (validate_args)", on("bf16")),
        _ => return unread_by_graphs(dest, values),
    };
    (!is_read).then_some(reason)
}

/// The same for arguments of CUDA graphs.
fn unread_by_graphs(dest: &str, values: &Values<'_>) -> Option<&'static str> {
    let (reason, is_read) = match dest {
        "cuda_graph_modules"
        | "cuda_graph_scope_deprecated"
        | "cuda_graph_dynamic_microbatches"
        | "thd_max_packed_sequences" => (
            "read only with CUDA graphs (TransformerConfig)",
            cuda_graph(values).is_some(),
        ),
        "cuda_graph_warmup_steps" => (
            "decides no bits without Transformer Engine's graphs: others run their layers so often \
             on copies (cuda_graphs.py)",
            cuda_graph(values).is_some_and(|graph| graph == "transformer_engine"),
        ),
        _ => return None,
    };
    (!is_read).then_some(reason)
}

/// What one value of an argument needs, where other values are simulated.
fn need_of_value(dest: &str, values: &Values<'_>) -> Option<String> {
    let need = match (dest, values.text(dest)?) {
        ("lr_decay_style", "WSD") => "the WSD schedule",
        ("lr_decay_style", "inverse-square-root") => "the inverse-square-root schedule",
        ("position_embedding_type", "yarn") | ("rope_type", "yarn") => Feature::Yarn.name(),
        ("position_embedding_type", "mrope") => Feature::Mrope.name(),
        ("position_embedding_type", "relative") => Feature::RelativePosition.name(),
        ("transformer_impl", "inference_optimized") => "layers made for inference",
        ("dataloader_type", "external") => "a data loader of the user's own, which no resume moves",
        ("cuda_graph_impl", "full_iteration") => WHOLE_ITERATION,
        // The word in `RerunMode` is another: it stops there, or runs each step again.
        ("rerun_mode", "report_stats") => "every step run twice",
        ("ckpt_format", "zarr") => "a checkpoint format that Megatron removed",
        _ => return None,
    };
    Some(need.to_string())
}

const WHOLE_ITERATION: &str = "a CUDA graph of a whole iteration";

/// As [`need_of_value`], for flags.
fn need_of_flag(dest: &str, values: &Values<'_>) -> Option<String> {
    let on = |dest: &str| values.flag(dest);
    let need = match dest {
        // Switched off only where gradients are wide, which an fp32 job does not say by itself.
        "ddp_reduce_scatter_with_fp32_accumulation"
            if on(dest) && !on("bf16") && !on("accumulate_allreduce_grads_in_fp32") =>
        {
            "an fp32 reduce-scatter by all-to-all"
        }
        // One expert a token is refused with a softmax after the choice, experts or none.
        "moe_router_topk" if values.integer(dest) == Some(1) && !values.is_given("num_experts") => {
            Feature::Moe.name()
        }
        "pad_vocab_size" if !on(dest) && !values.is_given("padded_vocab_size") => {
            "--padded-vocab-size: versions of Megatron pad or do not"
        }
        _ => return None,
    };
    Some(need.to_string())
}

/// Modules of selective recompute that bitproof can run again.
const RECOMPUTED: [&str; 3] = ["core_attn", "mlp", "layernorm"];

/// As [`need_of_value`], for lists.
fn need_of_list(dest: &str, values: &Values<'_>) -> Option<String> {
    if dest != "recompute_modules" {
        return None;
    }
    let modules = values.list(dest);
    let odd = modules
        .iter()
        .find(|module| !RECOMPUTED.contains(&module.as_str()))?;
    Some(format!("recompute of `{}`", escaped(odd)))
}

/// What a job's CUDA graphs need, where those of whole layers are simulated.
fn need_of_graph(dest: &str, values: &Values<'_>) -> Option<String> {
    let lists = ["cuda_graph_modules", "cuda_graph_scope_deprecated"];
    // This word was the implementation's before, and still sets it (cuda_graph_config.py).
    let is_whole = |word: &String| word == "full_iteration";
    if lists.contains(&dest) && values.list(dest).iter().any(is_whole) {
        return Some(WHOLE_ITERATION.to_string());
    }
    cuda_graph(values).filter(|_| !values.is_default(dest))?;
    match dest {
        "cuda_graph_modules" | "cuda_graph_scope_deprecated" => {
            let mut words = values.list(dest).iter();
            let part = words.find(|word| word.as_str() != "full")?;
            Some(format!("a CUDA graph of `{}` alone", escaped(part)))
        }
        "cuda_graph_dynamic_microbatches" => {
            Some("CUDA graphs for numbers of microbatches that vary".to_string())
        }
        "thd_max_packed_sequences" => Some("CUDA graphs of packed sequences".to_string()),
        _ => None,
    }
}

fn need_of(dest: &str, values: &Values<'_>) -> Option<String> {
    let need = need_of_value(dest, values).or_else(|| need_of_flag(dest, values));
    let need = need.or_else(|| need_of_list(dest, values));
    need.or_else(|| need_of_graph(dest, values))
}

/// What belongs to a part and is looked at without it, too.
fn only(feature: Feature, dest: &str, values: &Values<'_>) -> (Verdict, String) {
    let is_off = values.switched_on(feature.switches()).is_none();
    match (is_off, values.is_default(dest)) {
        (true, false) => (
            Verdict::Unsupported,
            format!(
                "it needs {}: every job looks at it, and without that part Megatron refuses it or \
                 does something else (TransformerConfig, validate_args)",
                feature.name()
            ),
        ),
        _ => part(feature, values),
    }
}

fn part(feature: Feature, values: &Values<'_>) -> (Verdict, String) {
    let name = feature.name();
    match values.switched_on(feature.switches()) {
        Some(switch) => {
            let switch = switch.split('=').next().unwrap_or(switch);
            let flag = values
                .setting(switch)
                .map(|setting| setting.given.flag.clone());
            let flag = flag.unwrap_or_else(|| switch.to_string());
            (
                Verdict::Unsupported,
                format!("it needs {name}, which `{flag}` switches on"),
            )
        }
        None => (
            Verdict::NoBits,
            format!("read only by {name}, which this job does not use"),
        ),
    }
}

/// What the job needs that bitproof cannot do: an error for each argument that asks for it, but
/// for those that merely belong to something already named.
pub(super) fn needs(
    judged: &[JudgedArgument],
    values: &Values<'_>,
    findings: &mut Findings,
) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    let mut push = |name: &str| {
        if !names.iter().any(|known| known == name) {
            names.push(name.to_string());
        }
    };
    for (argument, reading) in judged.iter().zip(&values.readings) {
        let Reading::Sets(dest) = reading else {
            continue;
        };
        if argument.verdict != Verdict::Unsupported {
            continue;
        }
        let setting = values.setting(dest).expect("it was read");
        let what = match setting.argument.effect {
            Effect::Needs(what) => what.to_string(),
            Effect::Only(feature) if values.switched_on(feature.switches()).is_none() => {
                feature.name().to_string()
            }
            _ => match need_of(dest, values) {
                Some(what) => what,
                // A part of something that another argument asks for, and that is named there.
                None => continue,
            },
        };
        push(&what);
        let flag = escaped(&argument.flag);
        findings.push(
            Diagnostic::error("not-simulated", format!("`{flag}` needs {what}"))
                .at(&setting.given.flag_place, "bitproof does not simulate it"),
        );
    }
    names
}

/// Every variable with its verdict; a warning for one that is not known: a site has its own.
pub(super) fn variables<'a>(
    given: impl IntoIterator<Item = &'a GivenVariable>,
    findings: &mut Findings,
) -> Vec<JudgedArgument> {
    let judged = given.into_iter().map(|given| {
        let wrong = nccl::judge::unreadable(&given.name, &given.value, &given.place);
        let (verdict, reason) = match (wrong, variable(&given.name)) {
            (Some(finding), _) => told(Verdict::Invalid, finding, findings),
            (None, Some(known)) => of_variable(known, &given.value),
            (None, None) => told(Verdict::Unknown, unknown(given), findings),
        };
        JudgedArgument {
            flag: given.name.clone(),
            value: Some(given.value.clone()),
            verdict,
            reason,
            place: given.place.clone(),
        }
    });
    judged.collect()
}

fn told(verdict: Verdict, finding: Diagnostic, findings: &mut Findings) -> (Verdict, String) {
    let reason = finding.message.clone();
    findings.push(finding);
    (verdict, reason)
}

/// Variables that the recipe cannot be simulated with.
pub(super) fn needs_of_variables(
    judged: &[JudgedArgument],
    findings: &mut Findings,
) -> Vec<String> {
    let unsupported = judged
        .iter()
        .filter(|variable| variable.verdict == Verdict::Unsupported);
    let named = unsupported.map(|variable| {
        let what = variable.reason.trim_start_matches("it needs ").to_string();
        let name = escaped(&variable.flag);
        findings.push(
            Diagnostic::error("not-simulated", format!("`{name}` needs {what}"))
                .at(&variable.place, "bitproof does not simulate it"),
        );
        what
    });
    named.collect()
}

/// That no plan can be made of a reduction of the job: an error at the variable that leaves it
/// open, with its verdict, and what the job needs where NCCL could do it.
pub(super) fn refused(
    error: &EnvironmentError,
    judged: &mut [JudgedArgument],
    place: &Place,
    findings: &mut Findings,
) -> Option<String> {
    let need = error.need();
    let variable = judged
        .iter_mut()
        .rfind(|variable| variable.flag == error.variable());
    let place = match variable {
        Some(variable) => {
            (variable.verdict, variable.reason) = match &need {
                Some(what) => (Verdict::Unsupported, format!("it needs {what}")),
                None => (Verdict::Invalid, error.to_string()),
            };
            &variable.place
        }
        None => place,
    };
    findings.push(nccl::judge::finding(error, place));
    need
}

fn of_variable(known: &Variable, value: &str) -> (Verdict, String) {
    match known.effect {
        Effect::Open(_) | Effect::Needs(_) if known.is_inert(value) => {
            let reason = "nothing follows from it at this value";
            (Verdict::NoBits, reason.to_string())
        }
        Effect::Open(what) => (Verdict::Replaced, format!("not covered: {what}")),
        Effect::Used(what) => (Verdict::Used, what.to_string()),
        Effect::Replaced(by) => (Verdict::Replaced, by.to_string()),
        Effect::NoBits(reason) => (Verdict::NoBits, reason.to_string()),
        Effect::Needs(what) => (Verdict::Unsupported, format!("it needs {what}")),
        Effect::Part(feature) | Effect::Only(feature) => {
            (Verdict::Unsupported, format!("it needs {}", feature.name()))
        }
    }
}

/// A job's environment is open: a variable that nobody here knows is a warning, not an error.
fn unknown(given: &GivenVariable) -> Diagnostic {
    let name = escaped(&given.name);
    let message = format!("`{name}` is not known: what bits follow from it is not covered");
    let finding =
        Diagnostic::warning("unknown-variable", message).at(&given.place, "not in the catalogue");
    match nearest(&given.name, super::super::catalogue::variable_names()) {
        Some(known) => finding.with_help(format!("did you mean `{known}`?")),
        None => finding,
    }
}

fn line_of(given: &GivenArgument) -> usize {
    let place = &given.flag_place;
    place.source.line_column(place.span.start).0
}

/// A value as it was written.
fn shown(value: &GivenValue) -> Option<String> {
    match value {
        GivenValue::On => None,
        GivenValue::Off => Some("false".to_string()),
        GivenValue::Nothing => Some("None".to_string()),
        GivenValue::Text(text) => Some(text.clone()),
        GivenValue::List(words) => Some(words.join(" ")),
    }
}
