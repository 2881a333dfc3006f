use super::super::super::catalogue::{Argument, Effect, Kind};
use super::*;

/// How Python prints the default of an attribute.
pub(super) fn printed_default(argument: &Argument) -> String {
    let list = |default: &str| match default {
        "" => "[]".to_string(),
        default => format!("['{default}']"),
    };
    match argument.kind {
        Kind::On | Kind::Off | Kind::GeneratedOff | Kind::Toggle => if argument.flag_default() {
            "True"
        } else {
            "False"
        }
        .to_string(),
        Kind::Ints | Kind::Floats | Kind::Texts => list(argument.default),
        _ if argument.default.is_empty() => "None".to_string(),
        _ => argument.default.to_string(),
    }
}

/// A value that is not the default, as on a command line; `None` for a flag.
fn another_value(argument: &Argument) -> Option<String> {
    let value = match argument.kind {
        Kind::On | Kind::Off | Kind::GeneratedOff | Kind::Toggle => return None,
        Kind::Int | Kind::Ints => "3".to_string(),
        Kind::Float | Kind::Floats => "0.37".to_string(),
        Kind::Text | Kind::Texts => "another".to_string(),
        Kind::Word(words) => {
            let other = words.iter().find(|word| **word != argument.default);
            other.expect("a second word, or no default").to_string()
        }
    };
    Some(value)
}

/// The argument on a command line, at a value that is not its default.
fn at_another_value(argument: &Argument) -> String {
    let flag = match argument.kind {
        Kind::GeneratedOff if !argument.name.starts_with("no-") => format!("no-{}", argument.name),
        _ => argument.name.to_string(),
    };
    match another_value(argument) {
        Some(value) => format!("--{flag} {value}"),
        None => format!("--{flag}"),
    }
}

/// Every argument with a flag of its own, but those of the small model itself.
fn arguments(catalogue: &Catalogue) -> Vec<&'static Argument> {
    let attributes = catalogue.attributes().map(|(_, argument)| argument);
    let flagged = attributes.filter(|argument| {
        let words = at_another_value(argument);
        let flag = words.split(' ').next().unwrap();
        catalogue
            .find(flag)
            .is_some_and(|(found, _)| std::ptr::eq(found, *argument))
    });
    flagged.collect()
}

#[test]
fn a_dump_of_every_attribute_at_its_default_is_a_small_dense_model() {
    let catalogue = Catalogue::default();
    let defaults: Vec<(String, String)> = catalogue
        .attributes()
        .filter(|(dest, _)| DUMPED.iter().all(|(given, _)| given != dest))
        .map(|(dest, argument)| match dest {
            // A bf16 job's log never shows its default, unless sums are in bf16 (validate_args).
            "accumulate_allreduce_grads_in_fp32" => (dest.to_string(), "True".to_string()),
            _ => (dest.to_string(), printed_default(argument)),
        })
        .collect();
    let borrowed: Vec<(&str, &str)> = defaults
        .iter()
        .map(|(dest, value)| (dest.as_str(), value.as_str()))
        .collect();
    let read = dumped(&borrowed);
    assert!(read.understood.arguments.len() > 700);
    let recipe = read.understood.recipe.as_ref();
    let recipe = recipe.unwrap_or_else(|| panic!("{:?}", read.findings));
    let base = dumped(&[]).understood.recipe.unwrap();
    assert_eq!(*recipe, base);
    let odd = read.understood.arguments.iter().find(|argument| {
        let verdict = argument.verdict;
        !matches!(verdict, Verdict::Used | Verdict::Replaced | Verdict::NoBits)
    });
    assert!(odd.is_none(), "{odd:?}");
    let is_lacking = |read: &Read| {
        read.understood
            .open
            .iter()
            .any(|said| said.contains("the log"))
    };
    assert!(!is_lacking(&read) && is_lacking(&dumped(&[])));
}

#[test]
fn what_changes_no_bits_changes_no_recipe() {
    let catalogue = Catalogue::default();
    let base = recipe("", "");
    let mut without_effect = arguments(&catalogue);
    without_effect.retain(|argument| {
        let kept = matches!(
            argument.effect,
            Effect::NoBits(_) | Effect::Part(_) | Effect::Replaced(_)
        );
        // It gives the size of the vocabulary.
        kept && argument.name != "tokenizer-type"
    });
    assert!(without_effect.len() > 400);
    for several in without_effect.chunks(40) {
        let words: Vec<String> = several.iter().map(|one| at_another_value(one)).collect();
        let read = line("", &words.join(" "));
        assert_eq!(
            read.understood.recipe.as_ref(),
            Some(&base),
            "{words:?}: {:?}",
            read.findings
        );
    }
}

#[test]
fn what_needs_something_is_refused() {
    let catalogue = Catalogue::default();
    let mut refused = arguments(&catalogue);
    // Biases of the attention are there with all others.
    refused.retain(|one| matches!(one.effect, Effect::Needs(_)) && one.name != "add-qkv-bias");
    assert!(refused.len() > 80);
    for several in refused.chunks(8) {
        let words: Vec<String> = several.iter().map(|one| at_another_value(one)).collect();
        let read = line("", &words.join(" "));
        assert!(read.understood.recipe.is_none());
        for word in &words {
            let flag = word.split(' ').next().unwrap();
            assert_eq!(verdict(&read, flag).0, Verdict::Unsupported, "{word}");
            let quoted = format!("`{flag}`");
            let told = errors(&read)
                .iter()
                .any(|error| error.message.starts_with(&quoted));
            assert!(told, "{word}: {:?}", read.findings);
        }
    }
}

#[test]
fn an_argument_that_others_leave_without_effect_changes_no_bits() {
    for (alone, with) in [
        (
            "--recompute-num-layers 1",
            "--recompute-granularity full --recompute-method uniform",
        ),
        ("--recompute-modules mlp", "--recompute-activations"),
        ("--num-query-groups 2", "--group-query-attention"),
        ("--rotary-base 500", "--position-embedding-type rope"),
        ("--ddp-bucket-size 100", "--overlap-grad-reduce"),
        ("--grad-reduce-in-bf16", ""),
        (
            "--ddp-reduce-scatter-with-fp32-accumulation",
            "--grad-reduce-in-bf16 --use-distributed-optimizer",
        ),
    ] {
        let flag = alone.split(' ').next().unwrap();
        let read = line("", &format!("{alone} {with}"));
        assert_eq!(verdict(&read, flag).0, Verdict::Used, "{alone} {with}");
        if with.is_empty() {
            continue;
        }
        let read = line("", alone);
        assert_eq!(verdict(&read, flag).0, Verdict::NoBits, "{alone}");
        let recipe = read.understood.recipe;
        assert_eq!(recipe, line("", "").understood.recipe, "{alone}");
    }
}

/// Arguments beside which an argument is read that is not read alone: each is tried with each.
const BESIDE: [&str; 12] = [
    "",
    "--recompute-granularity full --recompute-method uniform --recompute-num-layers 2",
    "--recompute-granularity selective",
    "--position-embedding-type rope",
    "--group-query-attention",
    "--overlap-grad-reduce --use-distributed-optimizer",
    "--grad-reduce-in-bf16 --use-distributed-optimizer",
    "--tensor-model-parallel-size 2 --tokenizer-type TikTokenizer --vocab-size 50001",
    "--pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2",
    "--transformer-impl local",
    "--use-persistent-ckpt-worker",
    "--cuda-graph-impl transformer_engine --attention-dropout 0 --hidden-dropout 0",
];

/// What a job was understood to be, and what was said of it. Places, and the list of arguments
/// itself, differ between any two jobs: they are left out, and so is that a value is none.
fn outcome(read: &Read) -> String {
    let Understood {
        recipe,
        world,
        rerun,
        open,
        ..
    } = &read.understood;
    let said: Vec<(&str, &str)> = read
        .findings
        .iter()
        .filter(|finding| finding.code != "wrong-value")
        .map(|finding| (finding.code, finding.message.as_str()))
        .collect();
    format!("{recipe:?} {world:?} {rerun:?} {open:?} {said:?}")
}

/// Every value of an argument that is tried.
fn values(argument: &Argument) -> Vec<String> {
    match argument.kind {
        Kind::Word(words) => words.iter().map(|word| format!(" {word}")).collect(),
        Kind::Int | Kind::Ints => [" 1", " 2", " 8", " 64"].map(String::from).to_vec(),
        Kind::Float | Kind::Floats => [" 0.25", " 0.5"].map(String::from).to_vec(),
        Kind::Text | Kind::Texts => [" another", " core_attn", " mlp"]
            .map(String::from)
            .to_vec(),
        Kind::On | Kind::Off | Kind::GeneratedOff | Kind::Toggle => vec![String::new()],
    }
}

/// Whether two jobs that differ in this argument alone are understood alike, whatever else they
/// say.
fn leads_nowhere(argument: &Argument, outcomes: &[String]) -> bool {
    let flag = at_another_value(argument);
    let flag = flag.split(' ').next().unwrap();
    let differs = |(beside, base): (&&str, &String)| {
        values(argument).iter().any(|value| {
            let read = line("", &format!("{beside} {flag}{value}"));
            outcome(&read) != *base
        })
    };
    !BESIDE.iter().zip(outcomes).any(differs)
}

/// Two jobs that differ in one argument.
type Pair = fn() -> [Read; 2];

/// Arguments that the lines of [`leads_nowhere`] cannot vary, each with a job that says it and one
/// that does not.
const APART: [(&str, Pair); 5] = [
    // Few tokenizers read it.
    ("vocab-extra-ids", || {
        ["1", "1000"].map(|ids| {
            let bert = "--legacy-tokenizer --tokenizer-type BertWordPieceLowerCase";
            line("", &format!("{bert} --vocab-extra-ids {ids}"))
        })
    }),
    // The small model has it.
    ("bf16", || [line("", ""), without("--bf16", "")]),
    // They stand in the place of the small model's own.
    ("encoder-num-layers", || {
        ["--encoder-num-layers 2", "--encoder-num-layers 4"]
            .map(|layers| without("--num-layers 4", layers))
    }),
    ("encoder-seq-length", || {
        ["--encoder-seq-length 32", "--encoder-seq-length 64"]
            .map(|length| without("--seq-length 64", length))
    }),
    // Only a test that resumes reads it.
    ("save-interval", || ["2", "5"].map(resumed)),
];

/// The small model without some of its words, and with others.
fn without(words: &str, more: &str) -> Read {
    assert!(MODEL.contains(words), "{words}");
    let model = MODEL.replace(words, more);
    let text = format!("torchrun --nproc-per-node 8 pretrain_gpt.py {model}\n");
    understood("run.sh", &text, UnderstandOptions::default())
}

fn resumed(interval: &str) -> Read {
    let entries = entries();
    let saves = format!("  --save: /a\n  --load: /a\n  --save-interval: {interval}\n");
    let text = format!("MODEL_ARGS:\n{entries}{saves}TEST_TYPE: ckpt-resume\n");
    let name = "test_cases/gpt/a/model_config.yaml";
    understood(name, &text, UnderstandOptions::default())
}

#[test]
fn what_is_used_leads_somewhere() {
    let catalogue = Catalogue::default();
    let outcomes = BESIDE.map(|beside| outcome(&line("", beside)));
    let mut used = arguments(&catalogue);
    used.retain(|argument| matches!(argument.effect, Effect::Used(_)));
    assert!(used.len() > 60, "{}", used.len());
    let is_apart = |name: &str| APART.iter().any(|(apart, _)| *apart == name);
    let nowhere: Vec<&str> = used
        .into_iter()
        .filter(|argument| !is_apart(argument.name) && leads_nowhere(argument, &outcomes))
        .map(|argument| argument.name)
        .collect();
    assert_eq!(nowhere, Vec::<&str>::new());
    for (name, pair) in APART {
        let [one, other] = pair();
        assert_ne!(outcome(&one), outcome(&other), "{name}");
    }
}

#[test]
fn an_argument_that_nothing_reads_is_seen() {
    let catalogue = Catalogue::default();
    let outcomes = BESIDE.map(|beside| outcome(&line("", beside)));
    for unread in [
        "--attention-softmax-in-fp32",
        "--log-interval",
        "--no-rope-fusion",
    ] {
        let (argument, _) = catalogue.find(unread).unwrap();
        assert!(leads_nowhere(argument, &outcomes), "{unread}");
    }
}

/// A variable that is used, and two environments that differ in it alone.
const VARIABLES: [(&str, [&str; 2]); 15] = [
    ("NCCL_ALGO", ["NCCL_ALGO: Ring", "NCCL_ALGO: Tree"]),
    ("NCCL_PROTO", ["NCCL_PROTO: Simple", "NCCL_PROTO: LL"]),
    ("NCCL_BUFFSIZE", ["", "NCCL_BUFFSIZE: 1048576"]),
    ("NCCL_MIN_NCHANNELS", ["", "NCCL_MIN_NCHANNELS: 4"]),
    ("NCCL_MAX_NCHANNELS", ["", "NCCL_MAX_NCHANNELS: 4"]),
    (
        "NVTE_ALLOW_NONDETERMINISTIC_ALGO",
        ["", "NVTE_ALLOW_NONDETERMINISTIC_ALGO: 0"],
    ),
    (
        "NVTE_FLASH_ATTN",
        [
            "NVTE_FUSED_ATTN: 0\n  NVTE_FLASH_ATTN: 1",
            "NVTE_FUSED_ATTN: 0\n  NVTE_FLASH_ATTN: 0",
        ],
    ),
    (
        "NVTE_FUSED_ATTN",
        [
            "NVTE_FLASH_ATTN: 0\n  NVTE_FUSED_ATTN: 1",
            "NVTE_FLASH_ATTN: 0\n  NVTE_FUSED_ATTN: 0",
        ],
    ),
    (
        "CUBLAS_WORKSPACE_CONFIG",
        [
            "CUBLAS_WORKSPACE_CONFIG: :4096:8",
            "CUBLAS_WORKSPACE_CONFIG: :0:0",
        ],
    ),
    ("GPUS_PER_NODE", ["GPUS_PER_NODE: 4", "GPUS_PER_NODE: 2"]),
    (
        "NNODES",
        [
            "torchrun --nproc-per-node 4 --nnodes 1",
            "torchrun --nproc-per-node 4 --nnodes 2",
        ],
    ),
    (
        "NUM_NODES",
        [
            "GPUS_PER_NODE: 4\n  NUM_NODES: 1",
            "GPUS_PER_NODE: 4\n  NUM_NODES: 2",
        ],
    ),
    (
        "TRAINING_SCRIPT_PATH",
        [
            "TRAINING_SCRIPT_PATH: ./pretrain_gpt.py",
            "TRAINING_SCRIPT_PATH: ./pretrain_mamba.py",
        ],
    ),
    ("SLURM_NNODES", ["SLURM_NNODES: 1", "SLURM_NNODES: 2"]),
    ("WORLD_SIZE", ["mpirun -np 4 python", "mpirun -np 2 python"]),
];

#[test]
fn a_variable_that_is_used_leads_somewhere() {
    use super::super::super::catalogue::{variable, variable_names};
    let used = |name: &&str| matches!(variable(name).unwrap().effect, Effect::Used(_));
    let mut names: Vec<&str> = variable_names().filter(used).collect();
    let mut tried = VARIABLES.map(|(name, _)| name).to_vec();
    names.sort_unstable();
    tried.sort_unstable();
    assert_eq!(names, tried);
    let read = |env: &str| {
        // What launchers say stands in scripts only.
        if env.starts_with(char::is_lowercase) {
            let text = format!("{env} pretrain_gpt.py {MODEL}\n");
            return outcome(&understood("run.sh", &text, UnderstandOptions::default()));
        }
        let entries = entries();
        let text = format!("ENV_VARS:\n  SKIP_PYTEST: 1\n  {env}\nMODEL_ARGS:\n{entries}");
        let name = "test_cases/gpt/a/model_config.yaml";
        outcome(&understood(name, &text, UnderstandOptions::default()))
    };
    for (name, [one, other]) in VARIABLES {
        assert_ne!(read(one), read(other), "{name}");
    }
    // Beside the environment that a recipe keeps: what nothing reads leaves it as it is.
    assert_eq!(read(""), read("NCCL_DEBUG: INFO"));
}
