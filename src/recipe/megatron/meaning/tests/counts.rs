//! Numbers that no count is.

use super::super::super::catalogue::{Argument, Effect, Kind};
use super::*;

/// Every argument whose number the recipe follows, with a flag of its own.
fn counted(catalogue: &Catalogue) -> Vec<&'static Argument> {
    let all = catalogue.attributes().map(|(_, argument)| argument);
    let is_used = |argument: &&'static Argument| {
        let has_flag = catalogue.find(&format!("--{}", argument.name)).is_some();
        argument.kind == Kind::Int && matches!(argument.effect, Effect::Used(_)) && has_flag
    };
    let mut all: Vec<&Argument> = all.filter(is_used).collect();
    all.dedup();
    all
}

/// Whether an error points at the value of `argument`.
fn is_refused(read: &Read, value: &str) -> bool {
    let is_there = |finding: &&Diagnostic| {
        let place = finding.place.as_ref();
        place.is_some_and(|(place, _)| place.source.text[place.span.clone()] == *value)
    };
    errors(read).iter().any(is_there) && read.understood.recipe.is_none()
}

/// What numbers of a warm-up mean, the schedule says; large ones of samples are ordinary, and what
/// is wrong with a seed of more than 32 bits is a rule's to say.
const LARGE: [&str; 4] = [
    "lr-decay-samples",
    "lr-warmup-samples",
    "train-samples",
    "seed",
];

#[test]
fn a_number_out_of_range_is_never_one_that_was_not_given() {
    let catalogue = Catalogue::default();
    let counted = counted(&catalogue);
    assert!(counted.len() > 25, "{}", counted.len());
    for argument in counted {
        let name = argument.name;
        // The small model's own value stands before it: the last one counts.
        for number in ["-1", "-16", "-9223372036854775808"] {
            let read = line("", &format!("--{name} {number}"));
            assert!(is_refused(&read, number), "{name}: {:?}", read.findings);
        }
        for number in ["4294967296", "5000000000", "9223372036854775807"] {
            let read = line("", &format!("--{name} {number}"));
            let is_large = LARGE.contains(&name);
            assert!(is_large || is_refused(&read, number), "{name} {number}");
        }
        let beyond = "99999999999999999999";
        let read = line("", &format!("--{name} {beyond}"));
        assert!(is_refused(&read, beyond), "{name}: {:?}", read.findings);
    }
}

#[test]
fn a_log_is_read_as_strictly() {
    for (name, number) in [
        ("ddp_bucket_size", "100000000000"),
        ("num_virtual_stages_per_pipeline_rank", "-2"),
        ("virtual_pipeline_model_parallel_size", "0"),
        ("context_parallel_size", "-1"),
        ("global_batch_size", "-16"),
    ] {
        let read = dumped(&[(name, number)]);
        assert!(is_refused(&read, number), "{name}: {:?}", read.findings);
        let reason = verdict(&read, name).0;
        assert_eq!(reason, Verdict::Invalid, "{name}");
    }
    let sound = dumped(&[("ddp_bucket_size", "4294967295")]);
    assert!(errors(&sound).is_empty(), "{:?}", sound.findings);
}

#[test]
fn each_occurrence_of_an_argument_is_read() {
    for (args, wrong) in [
        ("--bf16 true --bf16", "true"),
        ("--num-layers abc --num-layers 4", "abc"),
        ("--lr-decay-style Foo --lr-decay-style cosine", "Foo"),
        ("--num-layers --num-layers 4", "--num-layers"),
        ("--bf16 pretrain_gpt.py --bf16", "pretrain_gpt.py"),
        (
            "--tensor-model-parallel-size -2 --tensor-model-parallel-size 2",
            "-2",
        ),
    ] {
        assert!(is_refused(&line("", args), wrong), "{args}");
    }
    let twice = line("", "--seed 5 --seed 7");
    assert_eq!(twice.understood.recipe.as_ref().unwrap().seed, 7);
    let of_seed = |one: &&JudgedArgument| one.flag == "--seed";
    let seeds: Vec<&JudgedArgument> = twice.understood.arguments.iter().filter(of_seed).collect();
    assert_eq!(seeds.len(), 2);
    assert_eq!(seeds[0].verdict, Verdict::NoBits);
    assert_eq!(seeds[1].verdict, Verdict::Used);
    // What an earlier one would be decides nothing.
    let open = line("", "--seed $A --seed 7");
    assert!(open.understood.recipe.is_some(), "{:?}", open.findings);
}

#[test]
fn a_word_with_a_blank_is_a_value() {
    for args in [
        "--wandb-exp-name '-a b'",
        "--wandb-exp-name '--num-layers 8'",
        "--tokenizer-special-tokens a '-x y' b",
        "--wandb-exp-name='-a b'",
    ] {
        let read = line("", args);
        let layers = read
            .understood
            .recipe
            .as_ref()
            .map(|recipe| recipe.num_layers);
        assert_eq!(layers, Some(4), "{args}: {:?}", read.findings);
    }
    assert!(line("", "--wandb-exp-name -a").understood.recipe.is_none());
}
