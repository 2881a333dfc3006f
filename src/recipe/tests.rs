use super::*;

fn sample() -> String {
    "world_size = 16\ntensor_model_parallel_size = 2\npipeline_model_parallel_size = 2\n\
     sequence_parallel = true\nnum_layers = 4\nhidden_size = 32\nffn_hidden_size = 64\n\
     num_attention_heads = 4\nseq_length = 32\nmicro_batch_size = 1\nglobal_batch_size = 16\n\
     train_iters = 4\nlr = 1e-3\nbf16 = true\nuse_distributed_optimizer = true\n\
     [determinism]\nwgrad_splits = 3\n[env]\nNCCL_ALGO = \"Ring\"\n"
        .to_string()
}

/// Texts of what is found, errors and warnings.
pub(super) fn messages(text: &str) -> Vec<String> {
    let findings = match read(text) {
        Ok((_, warnings)) => warnings,
        Err(findings) => findings,
    };
    findings.into_iter().map(|found| found.message).collect()
}

fn read(text: &str) -> Result<(Recipe, Vec<Diagnostic>), Vec<Diagnostic>> {
    Recipe::from_source(&Source::new("recipe.toml", text))
}

/// The codes of the findings after one replacement in the sample.
fn codes(from: &str, to: &str) -> Vec<&'static str> {
    let text = sample();
    assert!(text.contains(from), "the sample has no {from:?}");
    match read(&text.replacen(from, to, 1)) {
        Ok((_, warnings)) => warnings.iter().map(|finding| finding.code).collect(),
        Err(findings) => findings.iter().map(|finding| finding.code).collect(),
    }
}

#[test]
fn a_sound_recipe_gives_its_derived_sizes() {
    let (recipe, warnings) = read(&sample()).unwrap();
    assert!(warnings.is_empty());
    assert_eq!(recipe.data_parallel_size(), 4);
    assert_eq!(recipe.microbatch_count(), 4);
    assert_eq!(recipe.layers_per_stage(), 2);
    assert_eq!(recipe.vocab_per_rank(), 128);
    assert!(recipe.accumulate_allreduce_grads_in_fp32);
    // Two layers of (4 * 32 * 32 + 3 * 32 * 64) / 2 + 2 * 32, and half the embedding.
    assert_eq!(recipe.parameter_count(0), 2 * (5120 + 64) + 128 * 32);
    assert_eq!(recipe.parameter_count(1), recipe.parameter_count(0) + 32);
}

#[test]
fn every_broken_rule_is_named() {
    for (from, to, code) in [
        ("world_size = 16", "world_size = 18", "does-not-divide"),
        ("num_layers = 4", "num_layers = 5", "does-not-divide"),
        (
            "num_attention_heads = 4",
            "num_attention_heads = 5",
            "does-not-divide",
        ),
        (
            "num_attention_heads = 4",
            "num_attention_heads = 32",
            "does-not-divide",
        ),
        ("hidden_size = 32", "hidden_size = 36", "does-not-divide"),
        (
            "ffn_hidden_size = 64",
            "ffn_hidden_size = 60",
            "does-not-divide",
        ),
        (
            "global_batch_size = 16",
            "global_batch_size = 18",
            "does-not-divide",
        ),
        ("seq_length = 32", "seq_length = 34", "does-not-divide"),
        ("seq_length = 32", "seq_length = 33", "does-not-divide"),
        ("num_layers = 4", "num_layers = \"four\"", "wrong-type"),
        ("num_layers = 4", "num_layers = 4.0", "wrong-type"),
        ("\nhidden_size = 32", "\nhidden_size = 1024", "out-of-range"),
        ("bf16 = true", "bf16 = 1", "wrong-type"),
        ("lr = 1e-3", "lr = nan", "out-of-range"),
        ("lr = 1e-3", "lr = 1e99", "out-of-range"),
        ("num_layers = 4\n", "", "missing-key"),
        ("num_layers = 4", "num_layer = 4", "unknown-key"),
        (
            "num_layers = 4",
            "num_layers = 99999999999999999999",
            "out-of-range",
        ),
        ("num_layers = 4", "num_layers = -4", "out-of-range"),
        (
            "global_batch_size = 16",
            "global_batch_size = 16000",
            "out-of-range",
        ),
        ("wgrad_splits = 3", "wgrad_splits = 33", "out-of-range"),
        (
            "wgrad_splits = 3",
            "wgrad_split_k = \"arival\"",
            "unknown-value",
        ),
        ("wgrad_splits = 3", "autotune = \"often\"", "unknown-value"),
        (
            "wgrad_splits = 3",
            "autotune = \"timed\"\nnorm_weight_grad = \"arrival\"",
            "excluded",
        ),
        ("bf16 = true", "grad_reduce_in_bf16 = true", "excluded"),
        (
            "use_distributed_optimizer = true",
            "ddp_reduce_scatter_with_fp32_accumulation = true",
            "excluded",
        ),
        (
            "bf16 = true",
            "bf16 = true\nnum_query_groups = 3",
            "does-not-divide",
        ),
        (
            "bf16 = true",
            "bf16 = true\nnum_query_groups = 2\nkv_channels = 3",
            "does-not-divide",
        ),
        (
            "bf16 = true",
            "bf16 = true\nmax_position_embeddings = 1",
            "out-of-range",
        ),
        (
            "bf16 = true",
            "bf16 = true\ncontext_parallel_size = 2",
            "not-simulated",
        ),
        (
            "NCCL_ALGO = \"Ring\"",
            "NCCL_ALGOS = \"Ring\"",
            "env-without-effect",
        ),
        ("NCCL_ALGO = \"Ring\"", "NCCL_ALGO = [1]", "wrong-type"),
        (
            "NCCL_ALGO = \"Ring\"",
            "\"NCCL_\\u001b[2J\" = 1",
            "env-name",
        ),
        ("NCCL_ALGO = \"Ring\"", "\"A=B\" = 1", "env-name"),
        ("hidden_size = 32\n", "hidden_size = \n", "toml-syntax"),
    ] {
        assert!(
            codes(from, to).contains(&code),
            "{from} -> {to}: {:?}",
            codes(from, to)
        );
    }
}

#[test]
fn absurd_state_is_refused_before_it_is_allocated() {
    let text = sample()
        .replace("world_size = 16", "world_size = 65536")
        .replace("global_batch_size = 16", "global_batch_size = 16384")
        .replace("\nhidden_size = 32", "\nhidden_size = 16384")
        .replace("num_attention_heads = 4", "num_attention_heads = 128");
    let findings = read(&text).unwrap_err();
    assert_eq!(
        findings.iter().map(|f| f.code).collect::<Vec<_>>(),
        ["too-large"]
    );
}

/// 1024 sequences of 65,536 tokens: their logits alone are 2^34 words.
#[test]
fn a_buffer_that_no_rank_can_hold_is_refused_where_it_is_written() {
    let text = sample()
        .replace("seq_length = 32", "seq_length = 65536")
        .replace("micro_batch_size = 1", "micro_batch_size = 1024")
        .replace("global_batch_size = 16", "global_batch_size = 16384");
    let findings = read(&text).unwrap_err();
    assert_eq!(findings.len(), 1, "{findings:?}");
    assert_eq!(findings[0].code, "too-large");
    assert!(
        findings[0].message.starts_with("the logits"),
        "{findings:?}"
    );
}

#[test]
fn several_faults_are_reported_in_one_run() {
    let text = sample().replace("num_layers = 4", "num_layers = 5\ncolour = 1");
    let text = text.replace("lr = 1e-3", "lr = \"fast\"");
    let codes: Vec<_> = read(&text).unwrap_err().iter().map(|f| f.code).collect();
    assert_eq!(codes, ["wrong-type", "unknown-key", "does-not-divide"]);
}

#[test]
fn an_unsound_value_is_complained_about_once() {
    assert_eq!(
        codes("num_attention_heads = 4", "num_attention_heads = \"4\""),
        ["wrong-type"]
    );
    assert_eq!(codes("world_size = 16", "world_size = 0"), ["out-of-range"]);
}

#[test]
fn neutral_arguments_of_real_recipes_are_accepted() {
    let more = "bf16 = true\nswiglu = true\nnormalization = \"RMSNorm\"\nrotary_percent = 1.0\n\
                context_parallel_size = 1\nattention_dropout = 0.0";
    assert_eq!(codes("bf16 = true", more), [""; 0]);
}

#[test]
fn a_division_shows_both_sides_and_the_nearest_sound_values() {
    let findings = read(&sample().replace("world_size = 16", "world_size = 18")).unwrap_err();
    let expected = "\
error[does-not-divide]: `world_size` is 18, not a multiple of \
tensor_model_parallel_size (2) x pipeline_model_parallel_size (2)
 --> recipe.toml:1:14
  |
1 | world_size = 18
  |              ^^ expected a multiple of 4
2 | tensor_model_parallel_size = 2
  |                              - divides it
3 | pipeline_model_parallel_size = 2
  |                                - divides it
  |
  = help: the nearest are `world_size = 16` and `world_size = 20`";
    assert_eq!(findings[0].to_plain(), expected);
}

#[test]
fn a_recipe_survives_being_written_and_read() {
    let (recipe, _) = read(&sample()).unwrap();
    let written = toml::to_string(&recipe).unwrap();
    let (again, warnings) = read(&written).unwrap();
    assert_eq!(recipe, again);
    assert!(warnings.is_empty());
}
