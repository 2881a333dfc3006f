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
        assert_eq!(read.understood.open.len(), count, "{value}");
    }
    assert!(
        dump(&[&DUMPED[1..], &[("bf16", "False")]].concat())
            .understood
            .open
            .is_empty(),
        "fp32 products"
    );
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
