//! What Megatron-LM's jobs are understood to be, against the layouts that its functional tests ask
//! for.

use std::path::{Path, PathBuf};

use bitproof::diagnostic::{Diagnostic, Findings, Severity, Source};
use bitproof::recipe::lint::lint;
use bitproof::recipe::megatron::{GivenJob, UnderstandOptions, Understood, Verdict, understand};
use serde_json::Value;

/// The folder of Megatron-LM's own files, which are not in the repository.
fn recipes() -> Option<PathBuf> {
    let folder = match std::env::var_os("BITPROOF_MEGATRON_RECIPES") {
        Some(folder) => PathBuf::from(folder),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/megatron-recipes"),
    };
    if folder.join("expected.json").is_file() {
        return Some(folder);
    }
    eprintln!(
        "not compared with Megatron-LM's own files: there is no {}/expected.json",
        folder.display()
    );
    None
}

struct Read {
    job: GivenJob,
    understood: Understood,
    findings: Vec<Diagnostic>,
}

fn read(path: &Path) -> Read {
    let source = Source::read(path).unwrap();
    let mut findings = Findings::default();
    let job = GivenJob::read(&source, path, &mut findings);
    let job = job.unwrap_or_else(|| panic!("{}: {:?}", path.display(), findings.into_vec()));
    let mut findings = Findings::default();
    let understood = understand(&job, &UnderstandOptions::default(), &mut findings);
    Read {
        job,
        understood,
        findings: findings.into_vec(),
    }
}

fn fixture(name: &str) -> Read {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/megatron");
    read(&folder.join(name))
}

fn cases(folder: &Path) -> Vec<(String, Value)> {
    let text = std::fs::read_to_string(folder.join("expected.json")).unwrap();
    let expected: Value = serde_json::from_str(&text).unwrap();
    let cases = expected["cases"].as_object().unwrap();
    let count = expected["about"]["count"].as_u64().unwrap();
    assert_eq!(cases.len() as u64, count, "none is skipped");
    cases
        .iter()
        .map(|(name, fields)| (name.clone(), fields.clone()))
        .collect()
}

#[test]
fn fields_of_megatrons_own_files_are_as_expected() {
    let Some(folder) = recipes() else {
        return;
    };
    for (name, expected) in cases(&folder) {
        let understood = read(&folder.join(&name).join("model_config.yaml")).understood;
        let ours = serde_json::to_value(&understood).unwrap();
        for (field, value) in expected.as_object().unwrap() {
            assert_eq!(ours.get(field), Some(value), "{name}: {field}");
        }
    }
}

#[test]
fn every_argument_of_megatrons_own_files_is_judged() {
    let Some(folder) = recipes() else {
        return;
    };
    for (name, _) in cases(&folder) {
        let read = read(&folder.join(&name).join("model_config.yaml"));
        let judged = &read.understood.arguments;
        assert_eq!(judged.len(), read.job.phases[0].arguments.len(), "{name}");
        for argument in judged.iter().chain(&read.understood.variables) {
            let odd = matches!(argument.verdict, Verdict::Invalid | Verdict::Unknown);
            assert!(!odd, "{name}: {argument:?}");
            assert!(!argument.reason.is_empty(), "{name}: {argument:?}");
        }
        let unsupported = judged.iter().any(|a| a.verdict == Verdict::Unsupported);
        let refused = !read.understood.needs.is_empty();
        assert_eq!(
            refused,
            unsupported || name.starts_with("gpt-nemo"),
            "{name}"
        );
        assert_eq!(
            read.understood.recipe.is_none(),
            refused,
            "{name}: {:?}",
            read.findings
        );
    }
}

/// Dense GPT layouts that are simulated; all others need something, by argument.
const DENSE: [&str; 6] = [
    "gpt/gpt3_mcore_reruns_resume_check_grads",
    "gpt/gpt3_mcore_te_tp1_pp1_resume_torch_dist_uniform_full_recompute",
    concat!(
        "gpt/gpt3_mcore_te_tp1_pp4_vp1_resume_torch_dist_dist_optimizer",
        "_overlap_grad_reduce_param_gather"
    ),
    "gpt/gpt3_mcore_te_tp2_pp1_resume_torch_dist_multi_dist_optimizer_instances",
    "gpt/gpt3_mcore_te_tp2_pp2_resume_torch_dist",
    "gpt/gpt3_mcore_te_tp4_pp1_resume_torch_dist_dist_optimizer_overlap_grad_reduce_param_gather",
];

#[test]
fn dense_jobs_become_recipes_at_full_size() {
    let Some(folder) = recipes() else {
        return;
    };
    let mut with_recipe = Vec::new();
    for (name, _) in cases(&folder) {
        let understood = read(&folder.join(&name).join("model_config.yaml")).understood;
        let Some(recipe) = understood.recipe else {
            continue;
        };
        assert_eq!(recipe.world_size, understood.world.size, "{name}");
        assert_eq!(
            recipe.tensor_model_parallel_size, understood.fields.tp,
            "{name}"
        );
        assert_eq!(recipe.hidden_size % 512, 0, "{name}: full size");
        with_recipe.push(name);
    }
    for name in DENSE {
        assert!(with_recipe.iter().any(|known| known == name), "{name}");
    }
    let reshard = "gpt/gpt3_mcore_te_tp2_pp2_resume_torch_dist_reshard_1x4xNone";
    assert!(with_recipe.iter().any(|name| name == reshard));
    assert_eq!(with_recipe.len(), DENSE.len() + 1, "{with_recipe:?}");
    let understood = read(&folder.join(reshard).join("model_config.yaml")).understood;
    let layout = understood.rerun.resharding.unwrap();
    assert_eq!(layout.pipeline_model_parallel_size, 4);
    assert_eq!(understood.rerun.restarts, [50]);
}

#[test]
fn lint_refuses_what_megatron_refuses_and_nothing_else_of_its_own_files() {
    let Some(folder) = recipes() else {
        return;
    };
    for (name, expected) in cases(&folder) {
        let read = read(&folder.join(&name).join("model_config.yaml"));
        let found = lint(&read.job, &read.understood);
        let mut errors = found
            .iter()
            .filter(|f| f.severity == Severity::Error)
            .peekable();
        let refused = expected["rejected_at_launch"].as_bool().unwrap();
        assert_eq!(
            errors.peek().is_some(),
            refused,
            "{name}: {:?}",
            errors.next()
        );
        let pending = found
            .iter()
            .any(|f| f.code == "deterministic-mode" && f.severity == Severity::Warning);
        let is_pending = expected["rejected_by_pending_rules"].as_bool().unwrap();
        assert_eq!(pending, is_pending, "{name}");
    }
}

#[test]
fn a_job_of_ours_is_understood_field_by_field() {
    let read = fixture("dense_interleaved_resume.yaml");
    let understood = &read.understood;
    assert!(understood.needs.is_empty(), "{:?}", read.findings);
    let fields = &understood.fields;
    assert_eq!((fields.tp, fields.pp, fields.vpp), (2, 4, Some(2)));
    let source = fields.vpp_source.as_deref();
    assert_eq!(source, Some("num-layers-per-virtual-pipeline-stage"));
    assert!(fields.sequence_parallel && fields.deterministic_mode);
    assert_eq!(fields.recompute.as_deref(), Some("selective"));
    assert!(fields.violations_if_deterministic.is_empty());
    let recipe = understood.recipe.as_ref().unwrap();
    assert_eq!((recipe.world_size, understood.world.size), (16, 16));
    assert_eq!(recipe.ffn_hidden_size, 4096, "two thirds of 6144");
    assert_eq!(recipe.num_query_groups, 4);
    assert_eq!(
        recipe.padded_vocab_size, 32_000,
        "32,000 words, in multiples of 256"
    );
    assert_eq!(recipe.train_iters, 100);
    assert_eq!((recipe.lr_decay_iters, recipe.lr_warmup_iters), (1000, 100));
    assert_eq!(recipe.ddp_bucket_size, Some(40_000_000));
    assert_eq!(recipe.max_position_embeddings, 4096);
    assert_eq!(
        understood.rerun.restarts,
        [50],
        "half of the 100 steps that run_ci_test.sh takes without --train-iters"
    );
    let orders = recipe.determinism.orders();
    assert!(
        orders
            .iter()
            .all(|(_, order)| format!("{order:?}") == "Ordered")
    );
}
