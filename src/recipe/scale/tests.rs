use super::*;
use crate::diagnostic::document::Table;
use crate::diagnostic::{Findings, Source};
use proptest::prelude::*;

/// A recipe of a job, whether or not it can be simulated.
fn job(text: &str) -> Recipe {
    let mut findings = Findings::default();
    let source = Source::new("job.toml", text);
    let recipe = Table::parse(&source, &mut findings)
        .and_then(|table| Recipe::full_size_from_table(&table, "", &mut findings));
    match findings.finish(recipe) {
        Ok((recipe, _)) => recipe,
        Err(findings) => panic!("{}", findings[0].to_human()),
    }
}

/// The size of Megatron's own functional tests, on a layout.
fn gpt(world: u32, tensor: u32, pipeline: u32, more: &str) -> Recipe {
    job(&format!(
        "world_size = {world}\ntensor_model_parallel_size = {tensor}\n\
         pipeline_model_parallel_size = {pipeline}\nnum_layers = 12\nhidden_size = 512\n\
         num_attention_heads = 8\nseq_length = 1024\nmax_position_embeddings = 1024\n\
         padded_vocab_size = 51200\nmicro_batch_size = 4\nglobal_batch_size = 32\n\
         train_iters = 100\nlr = 1.5e-4\nlr_decay_iters = 320000\nlr_warmup_iters = 3200\n\
         bf16 = true\n{more}"
    ))
}

fn assumed() -> ScaleOptions {
    ScaleOptions {
        world_is_assumed: true,
        ..ScaleOptions::default()
    }
}

fn change<'a>(scaled: &'a Scaled, key: &str) -> Option<(&'a str, &'a str)> {
    let change = scaled.changes.iter().find(|change| change.key == key)?;
    Some((&change.from, &change.to))
}

#[test]
fn a_job_keeps_its_layout_and_loses_its_size() {
    let full = gpt(8, 2, 2, "");
    let scaled = scaled(&full, &assumed()).unwrap();
    let here = &scaled.recipe;
    assert_eq!(here.tensor_model_parallel_size, 2);
    assert_eq!(here.pipeline_model_parallel_size, 2);
    // Two ranks were assumed, and two addends commute.
    assert_eq!(here.data_parallel_size(), 4);
    assert_eq!(scaled.full.data_parallel_size(), 4);
    assert_eq!(here.microbatch_count(), full.microbatch_count());
    assert_eq!((here.num_layers, here.hidden_size), (4, 32));
    assert_eq!((here.num_attention_heads, here.ffn_hidden_size), (2, 128));
    assert_eq!((here.seq_length, here.padded_vocab_size), (32, 256));
    assert_eq!((here.train_iters, here.lr_decay_iters), (4, 12_800));
    assert_eq!(here.lr_warmup_iters, 128);
    assert_eq!(change(&scaled, "data-parallel size"), Some(("2", "4")));
    assert_eq!(change(&scaled, "hidden_size"), Some(("512", "32")));
    assert_eq!(change(&scaled, "tensor_model_parallel_size"), None);
    let parameters: u64 = (0..2).map(|stage| here.parameter_count(stage)).sum();
    assert!((5_000..60_000).contains(&parameters), "{parameters}");
}

/// A learned position's gradient is a sum over the samples of a microbatch.
#[test]
fn learned_positions_keep_samples() {
    let learned = gpt(8, 2, 2, "position_embedding_type = \"learned_absolute\"\n");
    let here = scaled(&learned, &assumed()).unwrap().recipe;
    assert_eq!((here.seq_length, here.micro_batch_size), (16, 4));
    assert_eq!(here.max_position_embeddings, 16);
    assert_eq!(here.microbatch_count(), learned.microbatch_count());
}

#[test]
fn a_world_that_was_given_is_not_grown() {
    let full = gpt(8, 2, 2, "");
    let kept = scaled(&full, &ScaleOptions::default()).unwrap();
    assert_eq!(kept.recipe.world_size, 8);
    assert_eq!(change(&kept, "data-parallel size"), None);
    let options = ScaleOptions {
        grow_dp: Some(6),
        ..ScaleOptions::default()
    };
    let grown = scaled(&full, &options).unwrap();
    assert_eq!(grown.recipe.data_parallel_size(), 6);
    // The job is what it is.
    assert_eq!(grown.full.data_parallel_size(), 2);
    let smaller = ScaleOptions {
        grow_dp: Some(1),
        ..options
    };
    assert_eq!(
        scaled(&full, &smaller),
        Err(GrowError::Smaller { own: 2, wanted: 1 })
    );
}

#[test]
fn every_optimizer_instance_gets_enough_ranks() {
    let more = "use_distributed_optimizer = true\nnum_distributed_optimizer_instances = 2\n";
    let full = gpt(8, 2, 1, more);
    let grown = scaled(&full, &assumed()).unwrap();
    assert_eq!(grown.recipe.data_parallel_size(), 8);
    let odd = ScaleOptions {
        grow_dp: Some(5),
        ..assumed()
    };
    let error = scaled(&full, &odd).unwrap_err();
    assert!(matches!(error, GrowError::Instances { wanted: 5, .. }));
}

/// A free order has enough parts; a job that is resumed elsewhere divides there, too.
#[test]
fn a_small_model_can_part_and_divides_into_every_layout() {
    let racy = gpt(8, 2, 2, "[determinism]\nwgrad_split_k = \"arrival\"\n");
    let grown = scaled(&racy, &assumed()).unwrap();
    let splits = |recipe: &Recipe| recipe.determinism.wgrad_splits;
    assert_eq!((splits(&grown.recipe), splits(&grown.full)), (4, 4));
    assert_eq!(change(&grown, "determinism.wgrad_splits"), Some(("1", "4")));
    let options = ScaleOptions {
        resumed_on: vec![(4, 6), (8, 5)],
        ..assumed()
    };
    let here = scaled(&gpt(8, 2, 2, ""), &options).unwrap().recipe;
    // 12 layers do not divide into 5 stages: that layout is refused where it is asked for.
    assert_eq!((here.num_layers, here.num_attention_heads), (12, 8));
}

#[test]
fn buckets_cover_the_same_fraction_of_a_stage() {
    let more = "use_distributed_optimizer = true\noverlap_grad_reduce = true\n";
    let full = gpt(8, 1, 1, more);
    let here = scaled(&full, &assumed()).unwrap().recipe;
    let size = u64::from(
        here.ddp_bucket_size
            .expect("64 M parameters fill two buckets"),
    );
    let share = |size: u64, recipe: &Recipe| size as f64 / recipe.parameter_count(0) as f64;
    let (own, whole) = (share(size, &here), share(40_000_000, &full));
    assert!((own - whole).abs() < 1e-3, "{own} {whole}");
    // A stage that fits one bucket has one; without overlap there is one, too.
    let split = scaled(&gpt(8, 4, 1, more), &assumed()).unwrap().recipe;
    assert_eq!(split.ddp_bucket_size, None);
    let serial = scaled(&gpt(8, 1, 1, "ddp_bucket_size = 1000\n"), &assumed()).unwrap();
    assert_eq!(
        (serial.recipe.ddp_bucket_size, serial.full.ddp_bucket_size),
        (None, None)
    );
}

#[test]
fn a_small_recipe_stays_as_it_is() {
    let text = "world_size = 4\nnum_layers = 2\nhidden_size = 16\nnum_attention_heads = 2\n\
         seq_length = 16\nmicro_batch_size = 1\nglobal_batch_size = 12\ntrain_iters = 2\n\
         lr = 1e-2\n";
    let full = job(text);
    let scaled = scaled(&full, &assumed()).unwrap();
    assert_eq!(scaled.recipe, full);
    assert_eq!(scaled.changes, []);
}

/// As large a part leaves, and a layer that comes back ahead of its backward still does.
#[test]
fn offloaded_layers_keep_their_part() {
    for (layers, offloaded, expected) in [
        (24, 12, (4, 2)),
        (24, 1, (4, 1)),
        (24, 22, (4, 2)),
        (24, 23, (4, 3)),
        (3, 1, (3, 1)),
        (2, 1, (2, 1)),
        (24, 0, (2, 0)),
    ] {
        let full = Recipe {
            num_layers: layers,
            cpu_offloading_num_layers: offloaded,
            ..gpt(8, 1, 1, "")
        };
        let scaled = scaled(&full, &assumed()).unwrap();
        let here = &scaled.recipe;
        let found = (here.num_layers, here.cpu_offloading_num_layers);
        assert_eq!(found, expected, "{offloaded} of {layers}");
        assert_eq!(here.clone().validated().unwrap(), *here);
    }
}

fn any_job() -> impl Strategy<Value = Recipe> {
    let layout = (0u32..4, 0u32..3, 1u32..4, 1u32..4);
    let model = (1u32..4, 0u32..4, 0u32..3, 1u32..5, 1u32..9);
    let switches = (any::<bool>(), any::<bool>(), 0u32..5, 1u32..40);
    (layout, model, switches).prop_map(|(layout, model, switches)| {
        let (tensor, pipeline) = (1 << layout.0, 1 << layout.1);
        let chunks = if pipeline > 1 { layout.2 } else { 1 };
        let data = layout.3;
        let (groups, ratio) = (tensor * model.0, 1 << model.1);
        let heads = groups * ratio;
        let channels = 32 << model.2;
        let layers = pipeline * chunks * model.3;
        let hidden = (heads * channels).min(16_384);
        let hidden = hidden.next_multiple_of(4 * tensor);
        let micro = model.4;
        let (sequence, overlap, recompute, count) = switches;
        let count = if chunks > 1 { count * pipeline } else { count };
        job(&format!(
            "world_size = {}\ntensor_model_parallel_size = {tensor}\n\
             pipeline_model_parallel_size = {pipeline}\n\
             num_virtual_stages_per_pipeline_rank = {chunks}\nsequence_parallel = {}\n\
             num_layers = {layers}\nhidden_size = {hidden}\nffn_hidden_size = {}\n\
             num_attention_heads = {heads}\nnum_query_groups = {groups}\nkv_channels = {channels}\n\
             seq_length = 4096\npadded_vocab_size = {}\nmicro_batch_size = {micro}\n\
             global_batch_size = {}\ntrain_iters = 500\nlr = 1e-4\nlr_decay_iters = 400\n\
             lr_warmup_iters = 20\noverlap_grad_reduce = {overlap}\n\
             use_distributed_optimizer = {overlap}\n{}",
            tensor * pipeline * data,
            sequence && tensor > 1,
            (hidden * 3).next_multiple_of(4 * tensor),
            32_000u32.next_multiple_of(128 * tensor),
            micro * count * data,
            match recompute {
                0 => String::new(),
                layers => format!(
                    "recompute_granularity = \"full\"\nrecompute_method = \"uniform\"\n\
                     recompute_num_layers = {layers}\n"
                ),
            },
        ))
    })
}

proptest! {
    /// Whatever the job, the small recipe keeps every rule, is written and read back as itself,
    /// has the layout and the ratios, and is small.
    #[test]
    fn a_scaled_recipe_is_sound(full in any_job(), is_assumed in any::<bool>()) {
        let options = ScaleOptions { world_is_assumed: is_assumed, ..ScaleOptions::default() };
        let scaled = scaled(&full, &options).unwrap();
        let here = &scaled.recipe;
        let again = job(&toml::to_string(here).unwrap());
        prop_assert_eq!(&again, here);
        prop_assert_eq!(here.tensor_model_parallel_size, full.tensor_model_parallel_size);
        prop_assert_eq!(here.pipeline_model_parallel_size, full.pipeline_model_parallel_size);
        let grouped = |recipe: &Recipe| recipe.num_attention_heads > recipe.num_query_groups;
        prop_assert_eq!(grouped(here), grouped(&full));
        prop_assert!(here.num_layers <= full.num_layers);
        prop_assert!(here.microbatch_count() >= full.microbatch_count().min(8));
        prop_assert!(here.hidden_size <= 256 && here.seq_length <= 64);
        if !is_assumed {
            prop_assert_eq!(here.data_parallel_size(), full.data_parallel_size());
        }
        if let Some(size) = here.ddp_bucket_size {
            prop_assert!(full.overlap_grad_reduce);
            prop_assert!(u64::from(size) < here.parameter_count(0).max(here.parameter_count(
                here.pipeline_model_parallel_size - 1)));
        }
    }
}
