use std::path::Path;

use super::super::{Import, Scenario, import};
use super::*;
use crate::diagnostic::Severity;

const MODEL: &str = "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 64 \
    --max-position-embeddings 64 --micro-batch-size 1 --global-batch-size 8 --train-iters 10 \
    --lr 1e-3 --bf16 --vocab-size 50000";

/// A launch script: variables a line, and arguments.
fn script(env: &str, args: &str) -> Source {
    let exports: String = env.lines().map(|line| format!("export {line}\n")).collect();
    let text = format!("{exports}torchrun --nproc-per-node 8 pretrain_gpt.py {MODEL} {args}\n");
    Source::new("run.sh", text)
}

/// An error as all verbs tell it: code, message, and the line that it points to.
type Told = (&'static str, String, usize);

fn errors(findings: &[Diagnostic]) -> Vec<Told> {
    let is_error = |finding: &&Diagnostic| finding.severity == Severity::Error;
    let told = |finding: &Diagnostic| {
        let place = finding.place.as_ref().expect("every error has a place");
        let line = place.0.source.line_column(place.0.span.start).0;
        (finding.code, finding.message.clone(), line)
    };
    findings.iter().filter(is_error).map(told).collect()
}

fn imported(source: &Source, overrides: &Overrides) -> (Option<Import>, Vec<Told>) {
    let mut findings = Findings::default();
    let import = import(source, Path::new("run.sh"), overrides, &mut findings);
    (import, errors(&findings.into_vec()))
}

fn loaded(source: &Source, overrides: &Overrides) -> Result<Scenario, Vec<Told>> {
    let loaded = Scenario::from_source(source, Path::new("run.sh"), overrides);
    loaded
        .map(|loaded| loaded.scenario)
        .map_err(|found| errors(&found))
}

const DISTRIBUTED: &str = "--tensor-model-parallel-size 2 --use-distributed-optimizer";

#[test]
fn import_lint_and_check_judge_variables_alike() {
    let overrides = Overrides::default();
    for (env, args, said) in [
        ("NCCL_ALGO=foo", "", "unknown value `foo`"),
        ("NCCL_ALGO=Ring,^Tree", "", "unknown value `^Tree`"),
        ("NCCL_ALGO='Ring;Tree'", "", "names no function"),
        ("NCCL_ALGO='allreduc:ring'", "", "unknown function"),
        ("NCCL_ALGO=^NVLS", "", "NVLSTree open for AllReduce"),
        ("NCCL_ALGO=Ring,Tree", "", "Tree, Ring open for AllReduce"),
        ("NCCL_ALGO=nvls", "", "takes NVLS for AllReduce"),
        (
            "NCCL_ALGO=Tree",
            DISTRIBUTED,
            "no algorithm for ReduceScatter",
        ),
        ("NCCL_PROTO=Simpel", "", "unknown value `Simpel`"),
        ("NCCL_PROTO=^LL,LL128,Simple", "", "no protocol for"),
        ("NCCL_MIN_NCHANNELS=abc", "", "from 1 to 64"),
        ("NCCL_MAX_NCHANNELS=0", "", "from 1 to 64"),
        ("NCCL_BUFFSIZE=-1", "", "from 4096"),
        ("NCCL_BUFFSIZE=4M", "", "from 4096"),
        ("NCCL_ALGO=Ring\nNCCL_ALGO=Rign", "", "unknown value `Rign`"),
    ] {
        let source = script(env, args);
        let (import, found) = imported(&source, &overrides);
        let import = import.unwrap_or_else(|| panic!("{env}"));
        assert_eq!(found.len(), 1, "{env}: {found:?}");
        let (code, message, line) = &found[0];
        assert_eq!(
            (*code, *line),
            ("environment", env.lines().count()),
            "{env}"
        );
        assert!(message.contains(said), "{env}: {message}");
        let name = env.lines().last().unwrap().split('=').next().unwrap();
        let mut judged = import.understood.variables.iter();
        let judged = judged.rfind(|variable| variable.flag == name).unwrap();
        let verdict = judged.verdict.words();
        assert!(
            ["invalid", "unsupported"].contains(&verdict),
            "{env}: {verdict}"
        );
        assert_eq!(import.scenario, None, "{env}");
        let linted = linted(&source, Path::new("run.sh"), &overrides);
        assert_eq!(errors(&linted), found, "{env}");
        assert_eq!(loaded(&source, &overrides).unwrap_err(), found, "{env}");
    }
    for (env, args) in [
        ("NCCL_ALGO=ring", ""),
        ("NCCL_ALGO=Tree", ""),
        ("NCCL_ALGO='Ring;AllReduce:Tree'", DISTRIBUTED),
        ("NCCL_ALGO=^NVLS\nNCCL_ALGO=Ring", ""),
        ("NCCL_ALGO=", ""),
        ("NCCL_PROTO=ll128,SIMPLE\nNCCL_BUFFSIZE=0x400000", ""),
    ] {
        let source = script(env, args);
        let (import, found) = imported(&source, &overrides);
        assert!(
            import.unwrap().scenario.is_some() && found.is_empty(),
            "{env}: {found:?}"
        );
        assert_eq!(
            errors(&linted(&source, Path::new("run.sh"), &overrides)),
            []
        );
        loaded(&source, &overrides).unwrap();
    }
}

#[test]
fn a_lint_looks_at_what_the_command_line_asks_for() {
    let source = script("NCCL_ALGO=Ring", "--tensor-model-parallel-size 2");
    let asked = |set: &str, steps: Option<u32>| Overrides {
        set: vec![set.to_string()],
        steps,
        ..Overrides::default()
    };
    for (overrides, word) in [
        (
            asked("checkpoint.reshard=['3x1xNone']", None),
            "resumed on 3x1xNone",
        ),
        (
            asked("checkpoint.reshard=['1x64xNone']", None),
            "resumed on 1x64xNone",
        ),
        (asked("recipe.nonsense=1", None), "nonsense"),
        (asked("seed=1", Some(99)), "--steps"),
    ] {
        let found = errors(&linted(&source, Path::new("run.sh"), &overrides));
        assert!(
            found.iter().any(|(_, message, _)| message.contains(word)),
            "{word}: {found:?}"
        );
        assert_eq!(loaded(&source, &overrides).unwrap_err(), found, "{word}");
    }
    let sound = asked("checkpoint.reshard=['1x2xNone']", None);
    assert_eq!(errors(&linted(&source, Path::new("run.sh"), &sound)), []);
    loaded(&source, &sound).unwrap();
}

#[test]
fn what_is_not_simulated_of_the_environment_is_carried_to_the_certificate() {
    let named = |env: &str, args: &str| -> Vec<String> {
        let scenario = loaded(&script(env, args), &Overrides::default()).unwrap();
        let recipe = &scenario.recipe;
        recipe
            .variables_not_covered()
            .map(|(name, _)| name.to_string())
            .collect()
    };
    let open = "NCCL_ALGO=Ring\nNCCL_OF_OURS=1\nNVTE_NORM_FWD_USE_CUDNN=1\nNCCL_IB_TIMEOUT=19\n\
        NCCL_NVLS_ENABLE=0\nNCCL_P2P_DISABLE=1\nOUR_OWN=1";
    assert_eq!(
        named(open, ""),
        [
            "CUBLAS_WORKSPACE_CONFIG",
            "NCCL_OF_OURS",
            "NCCL_P2P_DISABLE",
            "NVTE_NORM_FWD_USE_CUDNN"
        ]
    );
    assert_eq!(named("CUBLAS_WORKSPACE_CONFIG=:16:8", ""), [""; 0]);
    assert_eq!(
        named("CUBLAS_WORKSPACE_CONFIG=:0:0", ""),
        ["CUBLAS_WORKSPACE_CONFIG"]
    );
    assert_eq!(
        named("NVTE_NORM_BWD_USE_CUDNN=0", "--deterministic-mode"),
        [""; 0]
    );
    // The last of a name counts.
    let last = "NVTE_NORM_BWD_USE_CUDNN=1\nNVTE_NORM_BWD_USE_CUDNN=0";
    assert_eq!(named(last, "--deterministic-mode"), [""; 0]);
}

/// The text that an import writes is the same scenario: a report of it says the same.
#[test]
fn what_a_pass_leaves_open_is_in_the_imported_text() {
    for (before, count, is_known) in [("", 1, true), ("source env.sh\n", 3, false)] {
        let text = format!("{before}torchrun --nproc-per-node 8 pretrain_gpt.py {MODEL}\n");
        let source = Source::new("run.sh", text);
        let overrides = Overrides::default();
        let import = imported(&source, &overrides).0.unwrap();
        let written = import.scenario.expect("a scenario");
        // What is more than plain is not checked as it is: its recipe is what its owner has read.
        let own = loaded(&source, &overrides);
        assert_eq!(own.is_ok(), is_known);
        let own = own.unwrap_or_else(|_| Scenario::from_toml(&written).unwrap());
        assert_eq!(own.not_covered.len(), count, "{:?}", own.not_covered);
        assert_eq!(own.environment_known, is_known);
        for text in [written, own.to_toml(Path::new("."))] {
            let again = Scenario::from_toml(&text).unwrap();
            assert_eq!(again.content_hash(), own.content_hash());
            assert_eq!(again.not_covered, own.not_covered);
            assert_eq!(again.environment_known, is_known);
        }
    }
    let long = format!("not_covered = ['{}']", "x".repeat(2_000));
    for wrong in ["not_covered = [1]", "not_covered = 'x'", &long] {
        let text = format!("{wrong}\n[recipe]\nworld_size = 1\n");
        assert!(Scenario::from_toml(&text).is_err(), "{wrong}");
    }
}

/// A layout is the job's to admit: what is run of it is made for it.
#[test]
fn a_job_is_resharded_to_what_the_job_divides_into() {
    let asked = |layout: &str| Overrides {
        set: vec![format!("checkpoint.reshard=[\"{layout}\"]")],
        ..Overrides::default()
    };
    let wide = MODEL
        .replace("--num-layers 4", "--num-layers 8")
        .replace("heads 4", "heads 8");
    let text = format!(
        "export NCCL_ALGO=Ring\ntorchrun --nproc-per-node 8 pretrain_gpt.py {wide} \
         --tensor-model-parallel-size 2\n"
    );
    let source = Source::new("run.sh", text);
    for layout in ["1x4xNone", "1x4x2", "4x1xNone", "2x2xNone"] {
        let scenario = loaded(&source, &asked(layout)).unwrap();
        let named: Vec<String> = scenario
            .checkpoint
            .reshard
            .iter()
            .map(|to| to.to_string())
            .collect();
        assert_eq!(named, [layout]);
    }
    // Without a batch of its own the job has another one where data parallelism is another.
    let unsized_batch = source.text.replace("--global-batch-size 8", "");
    assert_ne!(unsized_batch, &*source.text);
    let other = Source::new("run.sh", unsized_batch);
    let found = loaded(&other, &asked("4x1xNone")).unwrap_err();
    assert!(
        found
            .iter()
            .any(|(_, message, _)| message == "not resumed on 4x1xNone"),
        "{found:?}"
    );
    assert!(loaded(&other, &asked("1x2xNone")).is_ok());
    for (layout, word) in [("1x8x2", "num_layers"), ("16x1xNone", "world_size")] {
        let found = loaded(&source, &asked(layout)).unwrap_err();
        let is_said = |(_, message, _): &Told| {
            message.contains(word) && message.contains(&format!("resumed on {layout}"))
        };
        assert!(found.iter().any(is_said), "{layout}: {found:?}");
    }
}

#[test]
fn what_a_job_leaves_open_is_not_taken_out_of_its_verdict() {
    let source = script("NCCL_ALGO=Ring", "");
    for assignment in ["not_covered=[]", "environment_known=true"] {
        let overrides = Overrides {
            set: vec![assignment.to_string()],
            ..Overrides::default()
        };
        let found = loaded(&source, &overrides).unwrap_err();
        assert_eq!(found[0].0, "said-by-the-file", "{assignment}");
    }
}

#[test]
fn an_environment_that_a_file_does_not_show_is_said_with_the_verdict() {
    let list = Source::new("run.args", MODEL);
    let overrides = Overrides::default();
    let loaded = Scenario::from_source(&list, Path::new("run.args"), &overrides);
    let scenario = loaded.unwrap_or_else(|found| panic!("{found:?}")).scenario;
    assert!(!scenario.environment_known);
    let said = &scenario.not_covered;
    assert!(
        said.iter()
            .any(|said| said.contains("a list of arguments does not show it"))
    );
}
