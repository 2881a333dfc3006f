//! Values that a log shows as Megatron resolved them, and those that contradict each other.

use super::*;

#[test]
fn a_log_shows_the_format_of_gradient_sums_resolved() {
    let wide = "accumulate_allreduce_grads_in_fp32";
    let read = dumped(&[(wide, "False"), ("grad_reduce_in_bf16", "False")]);
    let recipe = read.understood.recipe.as_ref();
    let recipe = recipe.unwrap_or_else(|| panic!("{:?}", read.findings));
    assert!(recipe.grad_reduce_in_bf16 && !recipe.accumulate_allreduce_grads_in_fp32);
    assert_eq!(verdict(&read, wide).0, Verdict::Used);
    let recipe = dumped(&[(wide, "True")]).understood.recipe.unwrap();
    assert!(!recipe.grad_reduce_in_bf16 && recipe.accumulate_allreduce_grads_in_fp32);
    // A launch line's flag is not resolved: --grad-reduce-in-bf16 clears it.
    let read = line("", "--accumulate-allreduce-grads-in-fp32");
    assert_eq!(
        verdict(&read, &format!("--{}", wide.replace('_', "-"))).0,
        Verdict::NoBits
    );
    let recipe = read.understood.recipe.unwrap();
    assert!(recipe.accumulate_allreduce_grads_in_fp32);
}

#[test]
fn a_log_whose_ranks_do_not_multiply_is_refused() {
    for (replicas, tensor, is_sound) in [("4", "1", true), ("2", "2", true), ("3", "1", false)] {
        let read = dumped(&[
            ("data_parallel_size", replicas),
            ("tensor_model_parallel_size", tensor),
        ]);
        let codes: Vec<_> = errors(&read).iter().map(|found| found.code).collect();
        let expected: &[&str] = if is_sound { &[] } else { &["contradiction"] };
        assert_eq!(codes, expected, "{replicas} {tensor}");
    }
}

#[test]
fn a_log_shows_virtual_stages_resolved() {
    let resolved = "virtual_pipeline_model_parallel_size";
    let of = |chunks: &str, per_chunk: &str| {
        dumped(&[
            ("pipeline_model_parallel_size", "2"),
            ("num_layers_per_virtual_pipeline_stage", per_chunk),
            (resolved, chunks),
        ])
    };
    for (chunks, per_chunk, vpp) in [("2", "1", Some(2)), ("2", "2", Some(2)), ("1", "2", None)] {
        let read = of(chunks, per_chunk);
        assert_eq!(read.understood.fields.vpp, vpp, "{:?}", read.findings);
        let recipe = read.understood.recipe.expect("a recipe");
        assert_eq!(
            recipe.num_virtual_stages_per_pipeline_rank,
            vpp.unwrap_or(1)
        );
    }
    assert_eq!(errors(&of("None", "1"))[0].code, "contradiction");
    assert!(
        of("None", "2").understood.recipe.is_some(),
        "one chunk is none"
    );
}

#[test]
fn bf16_products_are_open_without_the_flag_that_closes_them() {
    let flag = "--disable-bf16-reduced-precision-matmul";
    let open = line("", "").understood.open;
    assert!(open.len() == 1 && open[0].contains("allow_bf16_reduced_precision_reduction"));
    let read = line("", flag);
    assert_eq!(read.understood.open, Vec::<String>::new());
    assert_eq!(verdict(&read, flag).0, Verdict::Used);
    for (value, count) in [("True", 0), ("False", 1)] {
        let read = dumped(&[("disable_bf16_reduced_precision_matmul", value)]);
        assert_eq!(reduced(&read), count, "{value}");
    }
    let read = dump(&[&DUMPED[1..], &[("bf16", "False")]].concat());
    assert_eq!(reduced(&read), 0, "fp32 products");
}

/// Sentences about cuBLAS's reductions in bf16.
fn reduced(read: &Read) -> usize {
    let open = read.understood.open.iter();
    open.filter(|said| said.contains("allow_bf16_reduced"))
        .count()
}

#[test]
fn a_log_without_a_line_that_every_version_prints_is_refused_and_names_it() {
    let whole = dumped(&[]);
    assert!(whole.understood.recipe.is_some(), "{:?}", whole.findings);
    let given = whole.understood.arguments.iter();
    let shown: Vec<(String, String)> = given
        .map(|one| (one.flag.clone(), one.value.clone().unwrap_or("True".into())))
        .map(|(name, value)| match value.as_str() {
            "false" => (name, "False".to_string()),
            _ => (name, value),
        })
        .collect();
    let borrowed: Vec<(&str, &str)> = shown
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    assert!(block(&borrowed).understood.recipe.is_some());
    for lost in super::shown::CORE {
        let less: Vec<_> = borrowed
            .iter()
            .copied()
            .filter(|(name, _)| *name != lost)
            .collect();
        assert_eq!(less.len() + 1, borrowed.len(), "{lost}");
        let read = block(&less);
        let found = errors(&read);
        assert_eq!(found[0].code, "missing-argument", "{lost}");
        assert!(
            found[0].message.contains(&format!("`{lost}`")),
            "{}",
            found[0].message
        );
        assert!(read.understood.recipe.is_none());
    }
    let read = block(&[("num_layers", "2")]);
    let missing = errors(&read)[0];
    assert_eq!(missing.code, "missing-argument");
    let note = &missing.notes[0];
    assert!(
        note.contains("num_experts, ") && !note.contains(" num_layers,"),
        "{note}"
    );
}

#[test]
fn earlier_names_are_as_good_and_younger_attributes_are_told() {
    let read = dumped(&[("norm_epsilon", "1e-06"), ("apply_layernorm_1p", "False")]);
    let recipe = read.understood.recipe.as_ref();
    assert_eq!(
        recipe
            .unwrap_or_else(|| panic!("{:?}", read.findings))
            .norm_epsilon,
        1e-6
    );
    let said = |read: &Read| read.understood.open.join("; ");
    let younger = "use_precision_aware_optimizer";
    assert!(said(&read).contains(younger), "{}", said(&read));
    assert!(!said(&read).contains("num_experts") && !said(&read).contains("recompute_activations"));
    let read = dumped(&[(younger, "False")]);
    assert!(!said(&read).contains(younger), "{}", said(&read));
}

#[test]
fn a_log_whose_number_formats_contradict_each_other_is_refused() {
    for (bf16, format, is_sound) in [
        ("True", "torch.bfloat16", true),
        ("True", "torch.float32", false),
        ("True", "torch.float16", false),
        ("False", "torch.float32", true),
        ("False", "torch.bfloat16", false),
    ] {
        let read = dump(&[&DUMPED[1..], &[("bf16", bf16), ("params_dtype", format)]].concat());
        let codes: Vec<_> = errors(&read).iter().map(|found| found.code).collect();
        let expected: &[&str] = if is_sound { &[] } else { &["contradiction"] };
        assert_eq!(codes, expected, "{bf16} {format}");
    }
}

#[test]
fn a_test_passes_the_word_false_on_and_a_switch_refuses_it() {
    let read = |entry: &str| {
        let text = format!("MODEL_ARGS:\n{}  {entry}\n", entries());
        understood("a/b/model_config.yaml", &text, UnderstandOptions::default())
    };
    for flag in ["--deterministic-mode", "--no-bias-gelu-fusion"] {
        let found = read(&format!("{flag}: false"));
        assert_eq!(errors(&found)[0].code, "wrong-value", "{flag}");
        assert_eq!(verdict(&found, flag).0, Verdict::Invalid);
        assert!(errors(&read(&format!("{flag}: true"))).is_empty(), "{flag}");
    }
    let found = read("--train-samples: false");
    assert!(
        errors(&found)[0].message.contains("`false`"),
        "{:?}",
        found.findings
    );
}

#[test]
fn a_word_of_a_log_that_would_be_followed_is_a_known_one() {
    for (name, word, is_sound) in [
        ("transformer_impl", "local", true),
        ("transformer_impl", "loca", false),
        ("attention_backend", "AttnBackend.flash", true),
        ("attention_backend", "AttnBackend.fl", false),
        ("recompute_granularity", "sel", false),
        ("ckpt_format", "of_tomorrow", true),
    ] {
        let read = dumped(&[(name, word)]);
        let codes: Vec<_> = errors(&read).iter().map(|found| found.code).collect();
        let expected: &[&str] = if is_sound { &[] } else { &["wrong-value"] };
        assert_eq!(codes, expected, "{name} {word}");
    }
}

#[test]
fn a_log_that_says_one_thing_twice_is_refused() {
    for (more, code) in [
        (
            &[("fp8", "hybrid"), ("fp8_format", "None")][..],
            "contradiction",
        ),
        (&[("encoder_num_layers", "7")], "contradiction"),
        (&[("encoder_seq_length", "32")], "contradiction"),
        (
            &[("transformer_pipeline_model_parallel_size", "4")],
            "contradiction",
        ),
        (&[("deterministic_mode", "'True'")], "wrong-value"),
        (&[("deterministic_mode", "true")], "wrong-value"),
        (&[("micro_batch_size", "[1]")], "wrong-value"),
        (&[("micro_batch_size", "'1'")], "wrong-value"),
        (&[("lr_decay_style", "'cosine'")], "wrong-value"),
    ] {
        let read = dumped(more);
        let found = errors(&read);
        let has = found.iter().any(|found| found.code == code);
        assert!(has, "{more:?}: {found:?}");
        assert!(read.understood.recipe.is_none(), "{more:?}");
    }
    for more in [
        &[("fp8", "None"), ("fp8_format", "None")][..],
        &[("encoder_num_layers", "4"), ("encoder_seq_length", "64")],
        &[("transformer_pipeline_model_parallel_size", "1")],
        &[("num_experts", "0")],
        &[("deterministic_mode", "False")],
    ] {
        let read = dumped(more);
        assert!(
            read.understood.recipe.is_some(),
            "{more:?}: {:?}",
            errors(&read)
        );
    }
}

#[test]
fn no_experts_are_none_and_torchs_ddp_is_another() {
    assert!(line("", "--num-experts 0").understood.recipe.is_some());
    assert!(line("", "--num-experts 2").understood.recipe.is_none());
    assert!(line("", "--DDP-impl local").understood.recipe.is_some());
    let read = line("", "--DDP-impl torch");
    assert_eq!(errors(&read)[0].code, "not-simulated");
    assert_eq!(verdict(&read, "--DDP-impl").0, Verdict::Unsupported);
}
