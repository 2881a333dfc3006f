//! Megatron-LM's files, read: our own fixtures, the real functional tests where they lie beside the
//! repository, and thousands of broken ones.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use bitproof::diagnostic::{Findings, Severity, Source};
use bitproof::recipe::megatron::{
    GivenArgument, GivenJob, GivenKind, GivenValue, UnderstandOptions, open, understand,
};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[track_caller]
fn read(path: &Path) -> (GivenJob, Vec<&'static str>) {
    let source = open(path).unwrap_or_else(|error| panic!("{error}"));
    let mut findings = Findings::default();
    let job = GivenJob::read(&source, path, &mut findings);
    let found = findings.into_vec();
    let job = job.unwrap_or_else(|| panic!("{}", found[0].to_plain()));
    (job, found.iter().map(|finding| finding.code).collect())
}

#[track_caller]
fn fixture(name: &str) -> (GivenJob, Vec<&'static str>) {
    read(&root().join("tests/fixtures/megatron").join(name))
}

fn shown(argument: &GivenArgument) -> String {
    match &argument.value {
        GivenValue::On => argument.flag.clone(),
        GivenValue::Off => format!("{} off", argument.flag),
        GivenValue::Nothing => format!("{} nothing", argument.flag),
        GivenValue::Text(text) => format!("{} {text}", argument.flag),
        GivenValue::List(words) => format!("{} {words:?}", argument.flag),
    }
}

#[test]
fn a_functional_test_is_read() {
    let (job, codes) = fixture("dense_tp2_pp2/model_config.yaml");
    assert!(codes.is_empty(), "{codes:?}");
    assert_eq!(job.kind, GivenKind::FunctionalTest);
    assert_eq!(job.case.as_deref(), Some("dense_tp2_pp2"));
    assert_eq!(job.test_type.as_deref(), Some("ckpt-resume"));
    assert_eq!(
        (job.mode, job.launcher.as_deref()),
        (None, Some("ft_launcher"))
    );
    assert_eq!(job.env[3].value, ":4096:8");
    let arguments: Vec<String> = job.phases[0].arguments.iter().map(shown).collect();
    assert_eq!(arguments.len(), 26);
    for expected in [
        "--min-lr .00001",
        "--split 90,9,1",
        "--bf16",
        "--weight-decay 1e-2",
    ] {
        assert!(
            arguments.iter().any(|argument| argument == expected),
            "{expected}"
        );
    }
    let path = "--data-path ${DATA_PATH}/text/own_text_document";
    assert!(arguments.iter().any(|argument| argument == path));
}

#[test]
fn phases_are_merged_and_ordered_by_number() {
    let (job, codes) = fixture("three_phases/model_config.yaml");
    assert!(codes.is_empty(), "{codes:?}");
    let names: Vec<&str> = job.phases.iter().map(|phase| phase.name.as_str()).collect();
    assert_eq!(names, ["MODEL_ARGS", "MODEL_ARGS_2", "MODEL_ARGS_10"]);
    let second: Vec<String> = job.phases[1].arguments.iter().map(shown).collect();
    let expected = [
        "--tensor-model-parallel-size 2",
        "--num-layers 2",
        "--hidden-size 64",
        "--num-attention-heads 2",
        "--seq-length 32",
        "--max-position-embeddings 32",
        "--train-iters 1",
        "--lr 1.0e-3",
        "--micro-batch-size 1",
        "--global-batch-size 4",
        "--recompute-modules [\"core_attn\", \"mlp\"]",
        "--moe-layer-freq ([0]*1+[1]*1)",
    ];
    assert_eq!(second, expected);
    // A merged argument stands where it was written.
    let place = &job.phases[1].arguments[1].flag_place;
    assert_eq!(place.source.line_column(place.span.start), (10, 3));
    assert_eq!(job.phases[1].variables[0].value, "4");
    assert!(job.phases[2].variables.is_empty());
}

#[test]
fn hydra_keys_keep_their_dots() {
    let (job, codes) = fixture("hydra/model_config.yaml");
    assert!(codes.is_empty(), "{codes:?}");
    let arguments: Vec<String> = job.phases[0].arguments.iter().map(shown).collect();
    assert_eq!(arguments[1], "trainer.devices 4");
    assert_eq!(arguments[3], "trainer.strategy.sequence_parallel");
    assert_eq!(arguments[6], "model.config.add_bias_linear off");
}

#[test]
fn the_first_block_of_a_log_is_read() {
    let (job, codes) = fixture("job.log");
    assert_eq!(codes, ["not-an-argument", "blocks-differ"]);
    assert_eq!(job.kind, GivenKind::ArgumentDump);
    let arguments: Vec<String> = job.phases[0].arguments.iter().map(shown).collect();
    for expected in [
        "a_name_of_forty_eight_characters_or_more_without_dots 3",
        "attention_backend AttnBackend.auto",
        "data_path [\"0.5\", \"a b\", \"0.5\", \"it's\"]",
        "fp16 off",
        "min_lr 1e-05",
        "sequence_parallel",
        "tensorboard_dir ",
        "train_iters 20",
        "virtual_pipeline_model_parallel_size nothing",
        "world_size 8",
    ] {
        assert!(
            arguments.iter().any(|argument| argument == expected),
            "{expected}"
        );
    }
}

#[test]
fn a_launch_script_is_read() {
    let (job, codes) = fixture("launch.sh");
    assert_eq!(codes, ["not-read", "unset-variable"]);
    assert_eq!(job.kind, GivenKind::CommandLine);
    assert_eq!(job.phases.len(), 1);
    let phase = &job.phases[0];
    let variables: Vec<String> = phase
        .variables
        .iter()
        .map(|variable| format!("{}={}", variable.name, variable.value))
        .collect();
    assert_eq!(variables, ["GPUS_PER_NODE=4", "NNODES=2"]);
    let arguments: Vec<String> = phase.arguments.iter().map(shown).collect();
    let expected = [
        "--num-layers 4",
        "--hidden-size 128",
        "--num-attention-heads 4",
        "--seq-length 64",
        "--max-position-embeddings 64",
        "--micro-batch-size 2",
        "--global-batch-size 32",
        "--train-iters 20",
        "--lr 2.5e-4",
        "--sequence-parallel",
        "--tensor-model-parallel-size 2",
        "--split 90,9,1",
        "--data-path [\"0.5\", \"$1\", \"0.5\", \"other text\"]",
        "--bf16",
        "--lr-warmup-fraction .01",
        "--adam-eps 1e-8",
    ];
    assert_eq!(arguments, expected);
    let names: Vec<&str> = job
        .env
        .iter()
        .map(|variable| variable.name.as_str())
        .collect();
    assert_eq!(
        names,
        [
            "CUDA_DEVICE_MAX_CONNECTIONS",
            "NCCL_ALGO",
            "NVTE_ALLOW_NONDETERMINISTIC_ALGO"
        ]
    );
}

/// Codes and labels of what is wrong with a text, its layout and ranks included.
fn faults(name: &str, text: &str) -> Vec<String> {
    let source = Source::new(name, text);
    let mut findings = Findings::default();
    if let Some(job) = GivenJob::read(&source, Path::new(name), &mut findings) {
        understand(&job, &UnderstandOptions::default(), &mut findings);
    }
    let all = findings.into_vec();
    let told = |severity: Severity| matches!(severity, Severity::Error | Severity::Warning);
    let told = all.iter().filter(|finding| told(finding.severity));
    told.map(|finding| finding.to_plain()).collect()
}

#[test]
fn a_number_of_ranks_that_is_none_is_an_error() {
    let log = |world: &str| {
        let mut text = "------------------------ arguments ------------------------\n".to_string();
        for (name, value) in [
            ("global_batch_size", "16"),
            ("hidden_size", "128"),
            ("lr", "0.001"),
            ("max_position_embeddings", "64"),
            ("micro_batch_size", "2"),
            ("num_attention_heads", "4"),
            ("num_layers", "4"),
            ("seq_length", "64"),
            ("train_iters", "20"),
            ("world_size", world),
        ] {
            let dots = ".".repeat(48 - name.len());
            if !value.is_empty() {
                text += &format!("  {name} {dots} {value}\n");
            }
        }
        text + "-------------------- end of arguments ---------------------\n"
    };
    let of = |world: &str| faults("job.log", &log(world));
    let told = |found: &[String], words: &str| found.iter().any(|plain| plain.contains(words));
    assert!(!told(&of("8"), "world_size"), "{:?}", of("8"));
    assert!(told(&of(""), "world_size"), "{:?}", of(""));
    for odd in ["eight", "None", "-8", "0", "99999999999"] {
        let found = of(odd);
        assert!(
            found.iter().any(|plain| plain.contains("job.log:11:")),
            "{odd}: {found:?}"
        );
        assert!(told(&found, "error"), "{odd}: {found:?}");
    }
    let yaml = |gpus: &str| {
        let arguments = "  --num-layers: 4\n  --hidden-size: 128\n  --num-attention-heads: 4\n  \
            --seq-length: 64\n  --max-position-embeddings: 64\n  --micro-batch-size: 1\n  \
            --global-batch-size: 8\n  --train-iters: 9\n  --lr: 1e-3\n";
        format!("ENV_VARS:\n  GPUS_PER_NODE: {gpus}\nMODEL_ARGS:\n{arguments}")
    };
    let of = |gpus: &str| faults("model_config.yaml", &yaml(gpus));
    assert!(!told(&of("4"), "GPUS_PER_NODE"), "{:?}", of("4"));
    let nodes = yaml("4\n  NNODES: 2");
    let found = faults("model_config.yaml", &nodes);
    assert!(told(&found, "ranks-not-read"), "{found:?}");
    let found = faults("model_config.yaml", &nodes.replace("NNODES", "NUM_NODES"));
    assert!(!told(&found, "NODES"), "{found:?}");
    for odd in ["eight", "-1", "0", "1.5"] {
        let found = of(odd);
        let place = found
            .iter()
            .find(|plain| plain.contains("model_config.yaml:2:3"));
        let place = place.unwrap_or_else(|| panic!("{odd}: {found:?}"));
        assert!(place.contains("GPUS_PER_NODE"), "{place}");
    }
}

const DENSE: &str = "--num-layers 4 --hidden-size 128 --num-attention-heads 4 --seq-length 64 \
    --max-position-embeddings 64 --micro-batch-size 1 --global-batch-size 16 --train-iters 10 \
    --lr 1e-4 --bf16";

#[test]
fn what_megatrons_parser_refuses_is_refused() {
    let of = |more: &str| {
        faults(
            "launch.sh",
            &format!("torchrun pretrain_gpt.py {DENSE} {more}"),
        )
    };
    assert_eq!(of("--use-distributed-optimizer"), [""; 0]);
    for switch in [
        "--use-distributed-optimizer=true",
        "--use-distributed-optimizer true",
    ] {
        assert!(of(switch)[0].contains("it is a switch"), "{:?}", of(switch));
    }
    assert!(
        of("--num-layers -4")[0].contains("-4"),
        "{:?}",
        of("--num-layers -4")
    );
    // Values that Python's parser, `int` and `float` take for none.
    for (refused, words) in [
        ("--init-method-std -1e-3", "takes it for a flag"),
        ("--init-method-std -1_0", "takes it for a flag"),
        ("--tensorboard-dir -1x", "takes it for a flag"),
        ("--seed 1__0", "a whole number"),
        ("--seed _5", "a whole number"),
        ("--seed 5_", "a whole number"),
        ("--min-lr _1e-5_", "a number"),
        ("--data-cache-path /a b", "one value"),
        (
            "--recompute-granularity selective --recompute-modules 'core_attn mlp'",
            "core_attn mlp",
        ),
        (
            "--recompute-granularity selective --recompute-modules core_attn,mlp",
            "core_attn,mlp",
        ),
        (
            "--recompute-granularity selective --recompute-modules '[mlp]'",
            "[mlp]",
        ),
        (
            "--hierarchical-context-parallel-sizes '2 2'",
            "whole numbers",
        ),
    ] {
        let found = of(refused);
        assert_eq!(found.len(), 1, "{refused}: {found:?}");
        assert!(found[0].contains(words), "{refused}: {found:?}");
    }
    for taken in [
        "--init-method-std=1e-3",
        "--seed 1_0",
        "--min-lr 1_0e-6",
        "--data-cache-path /a",
        "--data-cache-path -",
        "--data-path 0.5 /a 0.5 /b",
        "--recompute-granularity selective --recompute-modules core_attn mlp",
        "--hierarchical-context-parallel-sizes 2 2",
    ] {
        assert_eq!(of(taken), [""; 0], "{taken}");
    }
    let warmup = "--lr-warmup-fraction -.01";
    assert!(of(warmup)[0].contains("is negative"), "{:?}", of(warmup));
    // More steps than any machine runs here: only four are.
    assert_eq!(of("--lr-decay-iters 320000000"), [""; 0]);
}

#[test]
fn what_the_script_of_functional_tests_passes_is_judged_as_argparse_does() {
    let of = |entry: &str| {
        let pairs = DENSE
            .split("--")
            .map(str::trim)
            .filter(|pair| !pair.is_empty());
        let entries = pairs.map(|pair| match pair.split_once(' ') {
            Some((flag, value)) => format!("  --{flag}: {value}\n"),
            None => format!("  --{pair}: true\n"),
        });
        let text = format!("MODEL_ARGS:\n{}  {entry}\n", entries.collect::<String>());
        faults("model_config.yaml", &text)
    };
    let is_error = |found: &[String], words: &str| {
        found
            .iter()
            .any(|plain| plain.contains("error") && plain.contains(words))
    };
    for (entry, words) in [
        ("--deterministic-mode: null", "it is a switch"),
        ("--deterministic-mode: ~", "it is a switch"),
        ("--deterministic-mode:", "has no value"),
        ("--seed: ~", "a whole number"),
        ("--tensor-model-parallel-size: null", "a whole number"),
        ("--tensorboard-dir: [a b]", "one value"),
        (
            "--recompute-granularity: selective\n  --recompute-modules: core_attn mlp",
            "core_attn mlp",
        ),
    ] {
        let found = of(entry);
        assert!(is_error(&found, words), "{entry}: {found:?}");
    }
    for entry in [
        "--deterministic-mode: true",
        "--seed: 1_0",
        "--tensorboard-dir: a b",
        "--recompute-granularity: selective\n  --recompute-modules: \"[core_attn mlp]\"",
        "--hierarchical-context-parallel-sizes: 2 2",
    ] {
        assert_eq!(of(entry), [""; 0], "{entry}");
    }
    let found = of("--seed: 1\nENV_VARS:\n  NCCL_ALGO: ${ALGO}");
    assert!(is_error(&found, "not known here"), "{found:?}");
}

/// The folder of real functional tests, if it lies beside the repository.
fn real_recipes() -> Option<PathBuf> {
    let named = std::env::var_os("BITPROOF_MEGATRON_RECIPES").map(PathBuf::from);
    let folder = named.unwrap_or_else(|| root().join("../shared/megatron-recipes"));
    let is_there = folder.join("expected.json").is_file();
    if !is_there {
        eprintln!(
            "{} has no expected.json: only our own fixtures",
            folder.display()
        );
    }
    is_there.then_some(folder)
}

/// Entries by top key, read line by line: enough for files without flow collections.
fn naive(text: &str) -> BTreeMap<String, Vec<(String, String)>> {
    let mut sections: BTreeMap<String, Vec<(String, String)>> = BTreeMap::new();
    let mut key = String::new();
    for line in text.lines() {
        let line = line.split(" #").next().unwrap().trim_end();
        let trimmed = line.trim_start();
        if trimmed.is_empty() || trimmed.starts_with(['#', '-']) && !trimmed.starts_with("--") {
            continue;
        }
        let (name, value) = trimmed.split_once(':').expect("an entry");
        let value = value.trim().trim_matches('"').to_string();
        if trimmed.len() == line.len() {
            key = name.to_string();
            sections.insert(key.clone(), Vec::new());
        } else if name == "<<" {
            let merged = sections[value.trim_start_matches('*')].clone();
            sections.get_mut(&key).unwrap().extend(merged);
        } else {
            sections
                .get_mut(&key)
                .unwrap()
                .push((name.to_string(), value));
        }
    }
    sections
}

fn naive_value(flag: &str, value: &str) -> GivenValue {
    let is_list = value.starts_with('[') && value.ends_with(']');
    match value {
        "true" => GivenValue::On,
        "True" if !flag.starts_with('-') => GivenValue::On,
        "False" if !flag.starts_with('-') => GivenValue::Off,
        _ if is_list => {
            let inside = value[1..value.len() - 1].split(' ');
            GivenValue::List(inside.map(str::to_string).collect())
        }
        _ => GivenValue::Text(value.to_string()),
    }
}

#[test]
fn real_functional_tests_say_what_their_lines_say() {
    let Some(folder) = real_recipes() else {
        return;
    };
    let expected = std::fs::read_to_string(folder.join("expected.json")).unwrap();
    let expected: serde_json::Value = serde_json::from_str(&expected).unwrap();
    let cases = expected["cases"].as_object().unwrap();
    assert_eq!(cases.len(), 24);
    let text = |value: &serde_json::Value| value.as_str().map(str::to_string);
    for (name, case) in cases {
        let path = folder.join(name).join("model_config.yaml");
        let (job, codes) = read(&path);
        let spare = |code: &&&str| **code != "no-such-phase";
        assert_eq!(codes.iter().filter(spare).count(), 0, "{name}: {codes:?}");
        let sections = naive(&std::fs::read_to_string(&path).unwrap());
        assert_eq!(
            case["phases"].as_u64(),
            Some(job.phases.len() as u64),
            "{name}"
        );
        assert_eq!(job.test_type, text(&case["test_type"]), "{name}");
        assert_eq!(job.launcher, text(&case["launcher"]), "{name}");
        let mode = job.mode.clone().unwrap_or_else(|| "pretraining".into());
        assert_eq!(Some(mode), text(&case["mode"]), "{name}");
        for phase in &job.phases {
            let naive = &sections[&phase.name];
            let values = naive.iter().map(|(flag, value)| naive_value(flag, value));
            let flags: Vec<&str> = naive.iter().map(|(flag, _)| flag.as_str()).collect();
            let given = phase.arguments.iter();
            let given_flags: Vec<&str> = given.clone().map(|a| a.flag.as_str()).collect();
            assert_eq!(given_flags, flags, "{name}");
            for (argument, value) in given.zip(values) {
                assert_eq!(argument.value, value, "{name}: {}", argument.flag);
            }
        }
        let env: Vec<(String, String)> = job
            .env
            .iter()
            .map(|v| (v.name.clone(), v.value.clone()))
            .collect();
        assert_eq!(env, sections["ENV_VARS"], "{name}");
    }
}

/// Reads a text, broken or not, and holds what is said of it to our promises.
fn try_reading(name: &str, bytes: Vec<u8>) -> bool {
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let source = Source::new(name, text);
    let mut findings = Findings::default();
    let job = GivenJob::read(&source, Path::new(name), &mut findings);
    let found = findings.into_vec();
    let errors = found
        .iter()
        .filter(|finding| finding.severity == Severity::Error);
    assert_eq!(job.is_none(), errors.clone().count() > 0);
    for finding in &found {
        let (place, _) = finding.place.as_ref().expect("every finding has a place");
        assert!(place.span.end <= source.text.len());
        assert!(
            source.text.get(place.span.clone()).is_some(),
            "{:?}",
            place.span
        );
        finding.to_plain();
    }
    for argument in job
        .iter()
        .flat_map(|job| &job.phases)
        .flat_map(|phase| &phase.arguments)
    {
        assert!(source.text.get(argument.flag_place.span.clone()).is_some());
        assert!(source.text.get(argument.value_place.span.clone()).is_some());
    }
    job.is_some()
}

/// Bytes that mean something in one of the formats.
const SPICE: &[u8] = b"\n\n  \t\r:-#'\"\\$(){}[]<>&|*!,=.;`%?@~\0\xff\xc3\xb6AZaz09_";

fn mutated(seed: &[u8], random: &mut ChaCha8Rng) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..1 + random.next_u32() % 6 {
        let mut below = |n: usize| random.next_u32() as usize % n.max(1);
        let at = below(bytes.len());
        let spice = SPICE[below(SPICE.len())];
        let length = below(40).min(bytes.len() - at.min(bytes.len()));
        match below(5) {
            0 => bytes.insert(at, spice),
            1 if !bytes.is_empty() => bytes[at] = spice,
            2 => drop(bytes.drain(at..at + length)),
            3 => {
                let piece = bytes[at..at + length].to_vec();
                let to = below(bytes.len());
                bytes.splice(to..to, piece);
            }
            _ => bytes.truncate(bytes.len() - below(bytes.len() / 8)),
        }
    }
    bytes
}

#[test]
fn thousands_of_broken_files_are_refused_or_read() {
    let mut random = ChaCha8Rng::seed_from_u64(3);
    for (target, name) in [
        ("megatron_yaml", "case/model_config.yaml"),
        ("megatron_log", "job.log"),
        ("command_line", "launch.sh"),
    ] {
        let folder = root().join("fuzz/corpus").join(target);
        let mut paths: Vec<PathBuf> = std::fs::read_dir(&folder)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        paths.sort();
        let seeds: Vec<Vec<u8>> = paths
            .iter()
            .map(|path| std::fs::read(path).unwrap())
            .collect();
        assert!(seeds.len() >= 3, "{target}");
        let (mut read_count, mut refused_count) = (0, 0);
        for case in 0..2_000 {
            let bytes = mutated(&seeds[case % seeds.len()], &mut random);
            match try_reading(name, bytes) {
                true => read_count += 1,
                false => refused_count += 1,
            }
        }
        // Both outcomes are common, or the mutations try nothing.
        assert!(
            read_count > 100 && refused_count > 100,
            "{target}: {read_count} {refused_count}"
        );
    }
}
