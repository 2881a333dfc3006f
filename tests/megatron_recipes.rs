//! Megatron-LM's own functional tests, where they are at hand: each is scaled into a scenario, or
//! refused for what it needs.
//!
//! They are read in `BITPROOF_MEGATRON_RECIPES`, else in `../shared/megatron-recipes`.

use std::path::{Path, PathBuf};

use bitproof::diagnostic::{Findings, Source};
use bitproof::recipe::Recipe;
use bitproof::scenario::{Overrides, Scenario, import};
use serde_json::Value;

fn folder() -> Option<PathBuf> {
    let folder = match std::env::var_os("BITPROOF_MEGATRON_RECIPES") {
        Some(folder) => PathBuf::from(folder),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/megatron-recipes"),
    };
    if !folder.join("expected.json").is_file() {
        eprintln!(
            "not tested: no expected.json in {} (BITPROOF_MEGATRON_RECIPES names the folder)",
            folder.display()
        );
        return None;
    }
    Some(folder)
}

/// Cases by name, with what each file asks for.
fn cases(folder: &Path) -> Vec<(PathBuf, String, Value)> {
    let text = std::fs::read_to_string(folder.join("expected.json")).expect("readable");
    let expected: Value = serde_json::from_str(&text).expect("JSON");
    let cases = expected["cases"].as_object().expect("an object of cases");
    let case = |(name, case): (&String, &Value)| {
        let path = folder.join(name).join("model_config.yaml");
        (path, name.clone(), case.clone())
    };
    cases.iter().map(case).collect()
}

/// What stands in the way of a case, of what this version cannot do.
fn needs(case: &Value) -> Vec<&'static str> {
    let more_than_one = |key: &str| case[key].as_u64().is_some_and(|size| size > 1);
    let wants = [
        ("experts", !case["num_experts"].is_null()),
        ("context parallelism", more_than_one("cp")),
        ("fp8", !case["fp8_format"].is_null()),
        (
            "fsdp",
            case["megatron_fsdp"] == true || case["torch_fsdp2"] == true,
        ),
        ("mamba", case["mode"] == "hybrid"),
    ];
    let wanted = wants.into_iter().filter(|(_, wanted)| *wanted);
    wanted.map(|(name, _)| name).collect()
}

/// Every dense case is scaled, with the layout that its file asks for; no other is.
#[test]
fn every_case_is_scaled_or_refused() {
    let Some(folder) = folder() else { return };
    let mut scaled = 0;
    for (path, name, case) in cases(&folder) {
        let loaded = Scenario::load(&path, &Overrides::default());
        // A name of its family of models is all that tells a hybrid one in `expected.json`.
        let is_dense = needs(&case).is_empty() && !name.starts_with("hybrid/");
        match loaded {
            Ok(loaded) => {
                assert!(is_dense, "{name} needs {:?}", needs(&case));
                is_as_expected(&name, &case, &loaded.scenario);
                is_whole(&name, &path, &loaded.scenario);
                scaled += 1;
            }
            Err(findings) => {
                let told: Vec<String> = findings.iter().map(|found| found.to_human()).collect();
                assert!(!is_dense, "{name}: {}", told.join("\n"));
                assert!(findings.iter().any(|found| found.place.is_some()), "{name}");
            }
        }
    }
    assert!(scaled >= 7, "{scaled} dense cases");
}

fn is_as_expected(name: &str, case: &Value, scenario: &Scenario) {
    let recipe: &Recipe = &scenario.recipe;
    let number = |key: &str| case[key].as_u64().unwrap_or(1) as u32;
    assert_eq!(recipe.tensor_model_parallel_size, number("tp"), "{name}");
    assert_eq!(recipe.pipeline_model_parallel_size, number("pp"), "{name}");
    assert_eq!(
        recipe.num_virtual_stages_per_pipeline_rank,
        number("vpp"),
        "{name}"
    );
    assert_eq!(
        recipe.sequence_parallel,
        case["sequence_parallel"] == true,
        "{name}"
    );
    assert_eq!(
        recipe.use_distributed_optimizer,
        case["distributed_optimizer"] == true,
        "{name}"
    );
    assert_eq!(
        recipe.overlap_grad_reduce,
        case["overlap_grad_reduce"] == true,
        "{name}"
    );
    assert_eq!(recipe.async_save, case["async_save"] == true, "{name}");
    let instances = number("num_distributed_optimizer_instances");
    assert_eq!(
        recipe.num_distributed_optimizer_instances, instances,
        "{name}"
    );
    // Nobody says how many ranks there are: every sum over them can differ.
    assert!(recipe.data_parallel_size() / instances >= 4, "{name}");
    let full = scenario.full_size.expect("the job's sizes");
    let model = full.model.expect("the job's model");
    assert!(model.hidden_size > recipe.hidden_size, "{name}");
    assert_eq!(full.microbatch_count, recipe.microbatch_count(), "{name}");
    let job = scenario.imported.as_ref().expect("a job");
    assert!(job.world_is_assumed() && !job.changes.is_empty(), "{name}");
}

fn is_whole(name: &str, path: &Path, scenario: &Scenario) {
    // The text of the scenario is whole: it says what the job's file said, and so does the one
    // that an import writes. A report follows from what is compared here.
    let is_bf16 = scenario.recipe.bf16;
    assert_eq!(scenario.not_covered.is_empty(), !is_bf16, "{name}");
    for text in [scenario.to_toml(Path::new(".")), written(path)] {
        let again = Scenario::from_toml(&text).expect("its own text");
        assert_eq!(again.content_hash(), scenario.content_hash(), "{name}");
        assert_eq!(again.not_covered, scenario.not_covered, "{name}");
        assert_eq!(again.name, scenario.name, "{name}");
        assert_eq!(
            again.environment_known, scenario.environment_known,
            "{name}"
        );
        assert_eq!(again.accept_input, scenario.accept_input, "{name}");
    }
}

/// What `bitproof import recipe FILE -o OUT` writes.
fn written(path: &Path) -> String {
    let source = Source::read(path).expect("readable");
    let mut findings = Findings::default();
    let import = import(&source, path, &Overrides::default(), &mut findings);
    import
        .and_then(|import| import.scenario)
        .expect("a scenario")
}
