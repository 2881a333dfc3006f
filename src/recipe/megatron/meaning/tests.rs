mod counts;
mod every_argument;
mod full_size;
mod neighbours;
mod programs;
mod resolved;
mod restarts;
mod second_run;

use std::path::Path;

use super::*;
use crate::diagnostic::{Severity, Source};

const MODEL: &str = "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 64 \
    --max-position-embeddings 64 --micro-batch-size 1 --global-batch-size 8 --train-iters 10 \
    --lr 1e-3 --bf16";

struct Read {
    understood: Understood,
    findings: Vec<Diagnostic>,
}

fn understood(name: &str, text: &str, options: UnderstandOptions) -> Read {
    let source = Source::new(name, text);
    let mut findings = Findings::default();
    let job = GivenJob::read(&source, Path::new(name), &mut findings);
    let job = job.unwrap_or_else(|| panic!("{text}: {:?}", findings.into_vec()));
    let mut findings = Findings::default();
    let understood = understand(&job, &options, &mut findings);
    Read {
        understood,
        findings: findings.into_vec(),
    }
}

/// A launch line of a small dense model, with environment and more arguments.
fn line(env: &str, args: &str) -> Read {
    let text = format!("{env} torchrun --nproc-per-node 8 pretrain_gpt.py {MODEL} {args}\n");
    understood("run.sh", &text, UnderstandOptions::default())
}

/// The same model as entries of a functional test.
fn entries() -> String {
    let pairs = MODEL
        .split("--")
        .map(str::trim)
        .filter(|pair| !pair.is_empty());
    let entry = |pair: &str| match pair.split_once(' ') {
        Some((flag, value)) => format!("  --{flag}: {value}\n"),
        None => format!("  --{pair}: true\n"),
    };
    pairs.map(entry).collect()
}

fn recipe(env: &str, args: &str) -> Recipe {
    let read = line(env, args);
    let recipe = read.understood.recipe;
    recipe.unwrap_or_else(|| panic!("{args}: {:?}", read.findings))
}

/// A job log with the block of arguments, as whole as a log is: what is not among `attributes`
/// stands at its default.
fn dump(attributes: &[(&str, &str)]) -> Read {
    let catalogue = Catalogue::default();
    let dests: Vec<String> = attributes
        .iter()
        .filter_map(|(name, _)| Some(catalogue.find(name)?.0.dest()))
        .collect();
    let rest = shown::CORE
        .iter()
        .filter(|dest| !dests.iter().any(|given| given == *dest));
    let defaults = rest.map(|dest| {
        let argument = catalogue.attribute(dest).unwrap();
        // A bf16 job's log never shows its default, unless sums are in bf16 (validate_args).
        let is_sum = *dest == "accumulate_allreduce_grads_in_fp32";
        let sum = is_sum.then(|| "True".to_string());
        (
            *dest,
            sum.unwrap_or_else(|| every_argument::printed_default(argument)),
        )
    });
    let defaults: Vec<(&str, String)> = defaults.collect();
    let borrowed = defaults.iter().map(|(dest, value)| (*dest, value.as_str()));
    let all: Vec<(&str, &str)> = attributes.iter().copied().chain(borrowed).collect();
    block(&all)
}

/// A job log with a block of nothing but `attributes`.
fn block(attributes: &[(&str, &str)]) -> Read {
    let mut text = "------------------------ arguments ------------------------\n".to_string();
    // As Megatron sorts them.
    let mut attributes = attributes.to_vec();
    attributes.sort_by_key(|(name, _)| name.to_ascii_lowercase());
    for (name, value) in attributes {
        let dots = ".".repeat(48usize.saturating_sub(name.len()));
        text.push_str(&format!("  {name} {dots} {value}\n"));
    }
    text.push_str("-------------------- end of arguments ---------------------\n");
    understood("job.log", &text, UnderstandOptions::default())
}

const DUMPED: [(&str, &str); 12] = [
    ("bf16", "True"),
    ("global_batch_size", "8"),
    ("hidden_size", "64"),
    ("lr", "0.001"),
    ("max_position_embeddings", "64"),
    ("micro_batch_size", "1"),
    ("num_attention_heads", "4"),
    ("num_layers", "4"),
    ("seq_length", "64"),
    ("train_iters", "10"),
    ("world_size", "4"),
    ("num_experts", "None"),
];

fn dumped(more: &[(&str, &str)]) -> Read {
    let is_other = |(name, _): &&(&str, &str)| !more.iter().any(|(other, _)| other == name);
    let own: Vec<(&str, &str)> = DUMPED.iter().filter(is_other).copied().collect();
    dump(&[&own, more].concat())
}

fn errors(read: &Read) -> Vec<&Diagnostic> {
    let found = read.findings.iter();
    found
        .filter(|finding| finding.severity == Severity::Error)
        .collect()
}

fn verdict(read: &Read, flag: &str) -> (Verdict, String) {
    let mut judged = read.understood.arguments.iter();
    let found = judged.rfind(|argument| argument.flag == flag);
    let found = found.unwrap_or_else(|| panic!("{flag}"));
    (found.verdict, found.reason.clone())
}

#[test]
fn unknown_arguments_and_values_are_errors_with_places() {
    for (args, code, label) in [
        ("--num-layer 4", "unknown-argument", "no such argument"),
        (
            "--tensor-model-parallel 2",
            "unknown-argument",
            "no such argument",
        ),
        ("--lr fast", "wrong-value", "expected a number"),
        (
            "--num-workers 1.5",
            "wrong-value",
            "expected a whole number",
        ),
        (
            "--lr-decay-style slow",
            "wrong-value",
            "expected one of constant, linear",
        ),
        (
            "--sequence-parallel yes",
            "wrong-value",
            "expected no value",
        ),
        ("--lr nan", "wrong-value", "expected a number"),
        (
            "--num-layers 99999999999999999999",
            "wrong-value",
            "expected a whole number",
        ),
        (
            "--hierarchical-context-parallel-sizes 2 x",
            "wrong-value",
            "expected whole numbers",
        ),
    ] {
        let read = line("", args);
        let found = errors(&read);
        assert_eq!(found[0].code, code, "{args}: {:?}", read.findings);
        let (place, words) = found[0].place.as_ref().unwrap();
        assert!(words.starts_with(label), "{args}: {words}");
        let pointed = &place.source.text[place.span.clone()];
        assert!(args.contains(pointed), "{args}: points at `{pointed}`");
        assert!(read.understood.recipe.is_none(), "{args}");
    }
    let read = line("", "--num-layer 4");
    assert_eq!(errors(&read)[0].help, ["did you mean `--num-layers`?"]);
    assert_eq!(verdict(&read, "--num-layer").0, Verdict::Invalid);
    // A suggestion is for slips: what is merely short is not in the parser's vocabulary either.
    let read = line("", "--inference-dynamic-batching-max 4");
    assert_eq!(errors(&read)[0].code, "unknown-argument");
}

#[test]
fn the_last_of_several_counts() {
    // Two spellings of one argument; one spelling twice is told when the file is read.
    let read = line("", "--layernorm-epsilon 1e-6 --norm-epsilon 1e-4");
    let recipe = read.understood.recipe.as_ref();
    let recipe = recipe.unwrap_or_else(|| panic!("{:?}", read.findings));
    assert_eq!(recipe.norm_epsilon, 1e-4);
    assert_eq!(verdict(&read, "--norm-epsilon").0, Verdict::Used);
    let (first, reason) = verdict(&read, "--layernorm-epsilon");
    assert_eq!(first, Verdict::NoBits);
    assert!(reason.contains("the last one counts"), "{reason}");
}

#[test]
fn verdicts_say_why() {
    let read = line(
        "",
        "--log-interval 5 --data-path /a --moe-router-topk 4 --context-parallel-size 1 \
         --eval-iters 3",
    );
    assert!(read.understood.recipe.is_some(), "{:?}", read.findings);
    for (flag, expected, part) in [
        ("--num-layers", Verdict::Used, "shape"),
        ("--log-interval", Verdict::NoBits, "training_log"),
        ("--data-path", Verdict::Replaced, "text"),
        (
            "--moe-router-topk",
            Verdict::NoBits,
            "mixture of experts, which this job does not use",
        ),
        ("--context-parallel-size", Verdict::NoBits, "default"),
        ("--eval-iters", Verdict::NoBits, "without gradients"),
    ] {
        let (verdict, reason) = verdict(&read, flag);
        assert_eq!(verdict, expected, "{flag}: {reason}");
        assert!(reason.contains(part), "{flag}: {reason}");
    }
}

#[test]
fn what_is_not_simulated_is_refused_by_the_argument_that_asks_for_it() {
    let read = line(
        "",
        "--num-experts 8 --moe-router-topk 2 --moe-grouped-gemm --fp8-format hybrid",
    );
    let named: Vec<&str> = errors(&read).iter().map(|e| e.message.as_str()).collect();
    assert_eq!(
        named,
        [
            "`--num-experts` needs mixture of experts",
            "`--fp8-format` needs FP8"
        ]
    );
    assert_eq!(read.understood.needs, ["mixture of experts", "FP8"]);
    let (sub, reason) = verdict(&read, "--moe-grouped-gemm");
    assert_eq!(sub, Verdict::Unsupported);
    assert!(reason.contains("`--num-experts` switches on"), "{reason}");
    for (args, need) in [
        ("--context-parallel-size 2", "context parallelism"),
        ("--lr-decay-style WSD", "the WSD schedule"),
        ("--optimizer muon", "another optimizer than Adam"),
        ("--position-embedding-type yarn", "YaRN position embeddings"),
        (
            "--recompute-granularity selective --recompute-modules mlp moe_act",
            "recompute of `moe_act`",
        ),
        ("--use-megatron-fsdp", "Megatron-FSDP"),
        (
            "--disable-bias-linear --add-qkv-bias",
            "biases in the attention alone",
        ),
        (
            "--exp-avg-dtype bf16 --use-precision-aware-optimizer",
            "the precision-aware optimizer",
        ),
        ("--hybrid-layer-pattern M*", "hybrid Mamba models"),
        ("--ddp-num-buckets 4", "buckets by their number"),
    ] {
        let read = line("", args);
        assert_eq!(read.understood.needs, [need], "{args}: {:?}", read.findings);
        assert!(read.understood.recipe.is_none());
    }
    assert!(
        line("", "--add-qkv-bias").understood.recipe.is_some(),
        "all have biases"
    );
}

#[test]
fn a_dump_is_read_by_attributes() {
    let read = dumped(&[
        ("attention_backend", "AttnBackend.unfused"),
        ("main_grads_dtype", "torch.float32"),
        ("untie_embeddings_and_output_weights", "False"),
        ("bias_gelu_fusion", "True"),
        ("start_weight_decay", "0.01"),
        ("cp_comm_type", "['p2p']"),
        ("iterations_to_skip", "[]"),
        ("an_attribute_of_a_fork", "None"),
        ("fp8", "None"),
        ("add_qkv_bias", "True"),
        ("virtual_pipeline_model_parallel_size", "None"),
    ]);
    let recipe = read.understood.recipe.as_ref();
    let recipe = recipe.unwrap_or_else(|| panic!("{:?}", read.findings));
    assert_eq!(recipe.world_size, 4);
    assert_eq!(read.understood.world.basis, WorldBasis::Logged);
    let order = recipe.determinism.attention_backward;
    assert_eq!(format!("{order:?}"), "Ordered", "unfused");
    assert_eq!(verdict(&read, "an_attribute_of_a_fork").0, Verdict::Unknown);
    assert!(read.findings.iter().any(|f| f.code == "unknown-argument"));
    // At another value than None it is an error.
    let read = dumped(&[("an_attribute_of_a_fork", "3")]);
    assert_eq!(errors(&read)[0].code, "unknown-argument");
    let read = dumped(&[("main_grads_dtype", "torch.bfloat16")]);
    assert_eq!(read.understood.needs, ["main gradients of another format"]);
    let read = dumped(&[("add_bias_linear", "False")]);
    assert!(read.understood.recipe.unwrap().disable_bias_linear);
}

#[test]
fn attributes_of_earlier_versions_are_known_by_their_names() {
    let read = dumped(&[
        ("norm_epsilon", "1e-06"),
        ("apply_layernorm_1p", "False"),
        ("async_tensor_model_parallel_allreduce", "True"),
        ("scatter_gather_tensors_in_pipeline", "True"),
        ("enable_gloo_process_groups", "True"),
        ("cuda_graph_scope", "full"),
        ("bert_binary_head", "True"),
        ("dist_ckpt_format", "torch_dist"),
        ("use_dist_ckpt", "True"),
        ("use_custom_fsdp", "False"),
        ("lazy_mpu_init", "None"),
        ("config_logger_dir", ""),
        ("rotary_seq_len_interpolation_factor", "1"),
        ("data_parallel_sharding_strategy", "no_shard"),
        ("inference_max_batch_size", "8"),
        // Longer than the column: Megatron prints no dots after it.
        (
            "inference_dynamic_batching_buffer_guaranteed_fraction",
            "0.2",
        ),
    ]);
    let recipe = read.understood.recipe.as_ref();
    let recipe = recipe.unwrap_or_else(|| panic!("{:?}", read.findings));
    assert_eq!(recipe.norm_epsilon, 1e-6);
    let read = dumped(&[("apply_layernorm_1p", "True")]);
    assert_eq!(read.understood.needs, ["norm weights centred at zero"]);
}

#[test]
fn hydra_keys_are_understood_and_their_recipe_is_missed() {
    let text = "MODEL_ARGS:\n  trainer.num_nodes: 2\n  trainer.devices: 4\n  \
        trainer.strategy.tensor_model_parallel_size: 2\n  model.config.num_moe_experts: 8\n  \
        model.config.add_bias_linear: False\n  trainer.max_steps: 50\n";
    let read = understood("a/b/model_config.yaml", text, UnderstandOptions::default());
    let fields = &read.understood.fields;
    assert_eq!(
        (fields.tp, fields.num_experts, fields.moe_topk),
        (2, Some(8), Some(2))
    );
    assert_eq!(read.understood.world.size, 8);
    assert!(
        read.understood
            .needs
            .iter()
            .any(|need| need.contains("NeMo"))
    );
}

#[test]
fn a_phase_is_understood_and_the_fields_stay_the_firsts() {
    let model = entries();
    let text = format!(
        "MODEL_ARGS:\n{model}  --tensor-model-parallel-size: 1\n\
         MODEL_ARGS_2:\n{model}  --tensor-model-parallel-size: 2\n"
    );
    let second = UnderstandOptions {
        world: None,
        phase: 1,
    };
    let read = understood("a/b/model_config.yaml", &text, second);
    assert_eq!((read.understood.fields.tp, read.understood.phase), (1, 1));
    assert_eq!(
        read.understood.recipe.unwrap().tensor_model_parallel_size,
        2
    );
    let third = UnderstandOptions {
        world: None,
        phase: 2,
    };
    let read = understood("a/b/model_config.yaml", &text, third);
    assert_eq!(errors(&read)[0].code, "no-such-phase");
}

#[test]
fn variables_are_judged_and_unknown_ones_told() {
    let read = line("NCCL_ALGO=Ring NCCL_IB_SL=1 NCCL_PROTOO=Simple", "");
    let verdicts: Vec<Verdict> = read
        .understood
        .variables
        .iter()
        .map(|v| v.verdict)
        .collect();
    let known = [Verdict::Used, Verdict::NoBits, Verdict::Unknown];
    assert!(
        known.iter().all(|verdict| verdicts.contains(verdict)),
        "{verdicts:?}"
    );
    let told = read
        .findings
        .iter()
        .find(|finding| finding.code == "unknown-variable")
        .unwrap();
    assert_eq!(told.help, ["did you mean `NCCL_PROTO`?"]);
    let read = line("NCCL_MAX_CTAS=4", "");
    assert_eq!(errors(&read)[0].code, "not-simulated");
}
