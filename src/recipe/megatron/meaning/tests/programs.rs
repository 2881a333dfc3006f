//! Which program runs, how often, and what a script leaves open.

use super::super::super::GivenJob;
use super::*;

/// A functional test of the small model in a folder of `model`, with an environment.
fn test_of(model: &str, env: &str) -> Read {
    let text = format!(
        "ENV_VARS:\n  SKIP_PYTEST: 1\n{env}MODEL_ARGS:\n{}",
        entries()
    );
    let name = format!("test_cases/{model}/case/model_config.yaml");
    understood(&name, &text, UnderstandOptions::default())
}

#[test]
fn another_program_of_a_functional_test_is_refused() {
    let program = |path: &str| format!("  TRAINING_SCRIPT_PATH: {path}\n");
    for (model, env, needed) in [
        ("gpt", program("pretrain_bert.py"), "pretrain_bert.py"),
        ("gpt", program("./pretrain_vlm.py"), "./pretrain_vlm.py"),
        ("gpt", program("train.py"), "train.py"),
        ("gpt", program("${SCRIPT}"), "${SCRIPT}"),
        ("bert", String::new(), "pretrain_bert.py"),
        ("t5", String::new(), "pretrain_t5.py"),
        ("multimodal-llava", String::new(), "pretrain_vlm.py"),
    ] {
        let read = test_of(model, &env);
        let found = errors(&read);
        assert!(read.understood.recipe.is_none(), "{model} {env}");
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].code == "not-simulated" && found[0].message.contains(needed));
        assert_eq!(
            read.understood.needs,
            [format!("the program `{needed}`")],
            "{model} {env}"
        );
    }
    for (model, env) in [
        ("gpt", String::new()),
        ("moe", String::new()),
        ("gpt", program("pretrain_gpt.py")),
        ("t5", program("/opt/megatron-lm/pretrain_gpt.py")),
    ] {
        let read = test_of(model, &env);
        assert!(read.understood.recipe.is_some(), "{:?}", read.findings);
    }
}

#[test]
fn a_seed_that_is_not_known_is_an_error() {
    for seed in ["$SEED", "${SEED}", "$((RANDOM))"] {
        let read = line("", &format!("--seed {seed}"));
        let found = errors(&read);
        assert_eq!(found[0].code, "unset-variable", "{seed}");
        assert!(read.understood.recipe.is_none());
    }
    assert_eq!(recipe("", "--seed 7").seed, 7);
}

#[test]
fn torchrun_alone_starts_one_process() {
    let of = |before: &str, args: &str| {
        let text = format!("{before} pretrain_gpt.py {MODEL} {args}\n");
        understood("run.sh", &text, UnderstandOptions::default())
    };
    let world = of("torchrun", "").understood.world;
    assert_eq!((world.size, world.basis), (1, WorldBasis::Launcher));
    assert!(!world.reason.contains("assumed"), "{}", world.reason);
    let world = of("torchrun --nnodes 2", "").understood.world;
    assert_eq!((world.size, world.basis), (2, WorldBasis::Launcher));
    let world = of("python", "").understood.world;
    assert_eq!((world.size, world.basis), (8, WorldBasis::Assumed));
    // It is too few for two ranks of a tensor.
    let read = of("torchrun", "--tensor-model-parallel-size 2");
    assert!(!errors(&read).is_empty());
}

/// What a script reads may set any variable: that is said, and no rule counts on what is not set.
#[test]
fn an_environment_that_is_not_known_is_not_covered() {
    let of = |before: &str| {
        let text = format!(
            "{before}\ntorchrun --nproc-per-node 8 pretrain_gpt.py {MODEL} --deterministic-mode\n"
        );
        let source = Source::new("run.sh", text.as_str());
        let job = GivenJob::read(&source, Path::new("run.sh"), &mut Findings::default());
        let job = job.expect("a job");
        let mut findings = Findings::default();
        let understood = understand(&job, &UnderstandOptions::default(), &mut findings);
        let codes: Vec<&str> = crate::recipe::lint::lint(&job, &understood)
            .iter()
            .map(|finding| finding.code)
            .collect();
        let is_named = |what: &&String| what.contains("environment") && what.contains("env.sh");
        let count = understood.open.iter().filter(is_named).count();
        (count, codes.contains(&"environment-unknown"), codes)
    };
    let (count, is_told, codes) = of("source conf/env.sh");
    assert!((count, is_told) == (1, true), "{codes:?}");
    let (count, is_told, codes) = of("(source conf/env.sh)");
    assert!((count, is_told) == (0, false), "{codes:?}");
}
