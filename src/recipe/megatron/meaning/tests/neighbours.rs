//! Arguments that were once taken for ones that change no bits, and what decides that they do.

use super::*;

#[test]
fn what_changes_bits_is_refused_wherever_it_stands() {
    for flag in [
        "--loss-scale 3.0",
        "--inference-rng-tracker",
        "--log-max-attention-logit",
        "--no-initialization",
        "--init-model-with-meta-device",
        "--overlap-param-gather-with-optimizer-step",
    ] {
        let read = line("", flag);
        let name = flag.split(' ').next().unwrap();
        assert_eq!(verdict(&read, name).0, Verdict::Unsupported, "{flag}");
        assert!(read.understood.recipe.is_none(), "{flag}");
    }
    let clamped = line("", "--swiglu --activation-func-clamp-value 1.0");
    assert!(clamped.understood.recipe.is_none());
}

#[test]
fn weights_that_are_loaded_need_no_start() {
    let flag = "--no-initialization";
    for (more, verdict_of) in [
        ("--load /a --exit-on-missing-checkpoint", Verdict::Replaced),
        ("--load /a", Verdict::Unsupported),
        ("--exit-on-missing-checkpoint", Verdict::Unsupported),
    ] {
        let read = line("", &format!("{flag} {more}"));
        assert_eq!(verdict(&read, flag).0, verdict_of, "{more}");
    }
}

#[test]
fn extra_words_are_those_of_the_tokenizers_that_take_them() {
    let size = |args: &str| recipe("", args).padded_vocab_size;
    let extra = "--vocab-extra-ids 1000";
    let null = "--tokenizer-type NullTokenizer --vocab-size 1023";
    assert_eq!(size(&format!("{null} {extra}")), 1024);
    let bert = "--tokenizer-type BertWordPieceLowerCase";
    assert_eq!(size(&format!("{bert} {extra} --legacy-tokenizer")), 31_616);
    assert_eq!(size(&format!("{bert} {extra}")), 30_592);
    assert_eq!(size(bert), 30_592);
    let read = line("", &format!("{null} {extra}"));
    assert_eq!(verdict(&read, "--vocab-extra-ids").0, Verdict::NoBits);
}

#[test]
fn a_granularity_that_is_set_again_is_not_used() {
    let both = "--recompute-activations --recompute-granularity full";
    let read = line("", both);
    let of = verdict(&read, "--recompute-granularity").0;
    assert_eq!(of, Verdict::NoBits);
    let alone = line("", "--recompute-granularity selective");
    assert_eq!(verdict(&alone, "--recompute-granularity").0, Verdict::Used);
}

#[test]
fn an_environment_that_is_not_shown_is_said_to_be_open() {
    let is_open = |read: &Read| {
        let mut open = read.understood.open.iter();
        open.any(|said| said.starts_with("the job's environment"))
    };
    assert!(is_open(&dumped(&[])));
    let list = |text: &str| understood("run.args", text, UnderstandOptions::default());
    assert!(is_open(&list(MODEL)));
    assert!(!is_open(&line("", "")));
}

#[test]
fn a_program_without_a_launcher_has_the_world_that_it_reads() {
    let of = |text: &str| {
        let text = format!("{text} pretrain_gpt.py {MODEL} --global-batch-size 16\n");
        let world = understood("run.sh", &text, UnderstandOptions::default())
            .understood
            .world;
        (world.size, world.basis)
    };
    use WorldBasis::{Assumed, Launcher};
    for (text, size, basis) in [
        (
            "export WORLD_SIZE=16\nexport GPUS_PER_NODE=8\npython",
            16,
            Launcher,
        ),
        ("WORLD_SIZE=16 GPUS_PER_NODE=8 python", 16, Launcher),
        (
            "export GPUS_PER_NODE=4 NNODES=4\nexport WORLD_SIZE=8\npython",
            8,
            Launcher,
        ),
        ("export GPUS_PER_NODE=4\npython3 -u", 4, Assumed),
        ("python", 8, Assumed),
        // A launcher sets it itself.
        (
            "export WORLD_SIZE=16\ntorchrun --nproc-per-node 4",
            4,
            Launcher,
        ),
        (
            "export WORLD_SIZE=16 GPUS_PER_NODE=8\nmpirun -np 4 python",
            4,
            Launcher,
        ),
    ] {
        assert_eq!(of(text), (size, basis), "{text}");
    }
}

#[test]
fn a_script_of_another_shell_is_not_read_as_plain() {
    let followed = |name: &str| {
        let text = format!("torchrun --nproc-per-node 8 pretrain_gpt.py {MODEL}\n");
        let source = Source::new(name, text);
        let mut findings = Findings::default();
        let job = GivenJob::read(&source, Path::new(name), &mut findings);
        job.expect("a launch").phases[0].followed.is_some()
    };
    assert!(followed("run.zsh") && followed("run.fish"));
    assert!(!followed("run.sh"));
}

/// What every job looks at is no argument of a part alone.
#[test]
fn parts_that_every_job_looks_at_are_refused_without_their_part() {
    for flag in [
        "--moe-layer-recompute",
        "--moe-latent-size 8",
        "--moe-router-topk 1",
        "--moe-router-enable-expert-bias",
        "--mla-down-proj-fusion",
        "--use-fused-mhc",
        "--fsdp-manual-registration",
        "--gated-attention-proj-granularity headwise",
        "--expert-tensor-parallel-num-weight-shards 2",
        "--tensor-parallel-num-weight-shards 2",
        "--cuda-graph-modules full_iteration",
        "--cuda-graph-scope full_iteration",
        "--overlap-p2p-communication-warmup-flush",
        "--use-ring-exchange-p2p",
        "--prompts a",
        "--rerun-mode report_stats",
        "--no-pad-vocab-size",
        "--no-delay-grad-reduce",
    ] {
        let name = flag.split(' ').next().unwrap();
        let read = line("", flag);
        assert_eq!(verdict(&read, name).0, Verdict::Unsupported, "{flag}");
        assert!(read.understood.recipe.is_none(), "{flag}");
        let codes: Vec<_> = errors(&read).iter().map(|found| found.code).collect();
        assert!(codes.contains(&"not-simulated"), "{flag}: {codes:?}");
    }
    // At its default, or where it does not shard further, nothing follows.
    for flag in [
        "--moe-router-topk 2",
        "--tensor-parallel-num-weight-shards 1",
        "--no-pad-vocab-size --padded-vocab-size 1024",
        "--moe-grouped-gemm",
    ] {
        assert!(line("", flag).understood.recipe.is_some(), "{flag}");
    }
    let shards = "--tensor-model-parallel-size 2 --tensor-parallel-num-weight-shards 2 \
        --expert-tensor-parallel-num-weight-shards 2";
    assert!(line("", shards).understood.recipe.is_some());
}

/// In fp32 nothing switches the all-to-all reduce-scatter off but its own condition.
#[test]
fn an_fp32_reduce_scatter_by_all_to_all_is_not_a_rings() {
    let flag = "--ddp-reduce-scatter-with-fp32-accumulation";
    let model = MODEL.replace("--bf16", "--use-distributed-optimizer");
    let of = |more: &str| {
        let text = format!("torchrun --nproc-per-node 8 pretrain_gpt.py {model} {flag} {more}\n");
        let read = understood("run.sh", &text, UnderstandOptions::default());
        verdict(&read, flag).0
    };
    assert_eq!(of(""), Verdict::Unsupported);
    assert_eq!(of("--accumulate-allreduce-grads-in-fp32"), Verdict::NoBits);
}
