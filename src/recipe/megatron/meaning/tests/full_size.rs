use super::*;
use crate::recipe::CudaGraphImpl;

#[test]
fn megatrons_defaults_are_resolved() {
    let recipe = recipe("", "");
    let shown = serde_json::to_value(&recipe).unwrap();
    for (key, value) in [
        ("normalization", "\"LayerNorm\""),
        ("swiglu", "false"),
        ("disable_bias_linear", "false"),
        ("position_embedding_type", "\"learned_absolute\""),
        ("untie_embeddings_and_output_weights", "false"),
        ("ffn_hidden_size", "256"),
        ("kv_channels", "16"),
        ("padded_vocab_size", "50304"),
        ("lr_decay_style", "\"linear\""),
        ("lr_decay_iters", "10"),
        ("lr_warmup_iters", "0"),
        ("min_lr", "0.0"),
        ("seed", "1234"),
        ("use_distributed_optimizer", "false"),
        ("accumulate_allreduce_grads_in_fp32", "true"),
        ("async_save", "false"),
        ("world_size", "8"),
    ] {
        assert_eq!(shown[key].to_string(), value, "{key}");
    }
    assert_eq!(
        (recipe.attention_dropout, recipe.hidden_dropout),
        (0.1, 0.1)
    );
    assert_eq!((recipe.adam_beta1, recipe.adam_beta2), (0.9, 0.999));
    assert_eq!(
        (recipe.weight_decay, recipe.clip_grad, recipe.adam_eps),
        (0.01, 1.0, 1e-8)
    );
    assert_eq!(recipe.ddp_bucket_size, None, "no overlap: one bucket");
}

#[test]
fn arguments_change_what_they_name() {
    let changed = recipe(
        "",
        "--tensor-model-parallel-size 2 --swiglu --disable-bias-linear --normalization RMSNorm \
         --use-rotary-position-embeddings --rotary-base 500 --norm-epsilon 1e-6 \
         --group-query-attention --num-query-groups 2 --grad-reduce-in-bf16 \
         --use-distributed-optimizer --overlap-grad-reduce --ddp-bucket-size 1000 \
         --attention-dropout 0 --hidden-dropout 0.0 --seed 7 --clip-grad 0",
    );
    assert!(changed.swiglu && changed.disable_bias_linear);
    assert_eq!(
        changed.ffn_hidden_size, 128,
        "int(4 * 64 * 2 / 3 / 64) * 64"
    );
    assert_eq!((changed.rotary_base, changed.norm_epsilon), (500.0, 1e-6));
    assert_eq!(changed.num_query_groups, 2);
    assert!(changed.grad_reduce_in_bf16 && !changed.accumulate_allreduce_grads_in_fp32);
    assert_eq!(changed.ddp_bucket_size, Some(1000));
    assert_eq!(changed.padded_vocab_size, 50_432, "a multiple of 256");
    assert_eq!(
        (changed.attention_dropout, changed.seed, changed.clip_grad),
        (0.0, 7, 0.0)
    );
    let spelled = format!("{:?}", changed.position_embedding_type);
    assert_eq!(spelled, "Rope");
}

#[test]
fn ranks_are_found_or_assumed_and_the_report_says_which() {
    let file = |tail: &str, args: &str| {
        let text = format!("MODEL_ARGS:\n  --num-layers: 4\n{args}{tail}");
        understood("a/b/model_config.yaml", &text, UnderstandOptions::default())
    };
    let world = file("", "").understood.world;
    assert_eq!((world.size, world.basis), (8, WorldBasis::Assumed));
    assert!(world.reason.contains("assumed"));
    let wide = "  --tensor-model-parallel-size: 4\n  --pipeline-model-parallel-size: 3\n";
    let world = file("", wide).understood.world;
    assert_eq!((world.size, world.basis), (12, WorldBasis::Assumed));
    let tail = "MODEL_ENV_VARS:\n  MODEL_ARGS:\n    GPUS_PER_NODE: 2\n";
    let world = file(tail, "").understood.world;
    assert_eq!((world.size, world.basis), (2, WorldBasis::GpusPerNode));
    let launch = line("", "").understood.world;
    assert_eq!((launch.size, launch.basis), (8, WorldBasis::Launcher));
    let asked = UnderstandOptions {
        world: Some(64),
        phase: 0,
    };
    let text =
        "MODEL_ARGS:\n  --num-layers: 4\nMODEL_ENV_VARS:\n  MODEL_ARGS:\n    GPUS_PER_NODE: 2\n";
    let world = understood("a/b/model_config.yaml", text, asked)
        .understood
        .world;
    assert_eq!((world.size, world.basis), (64, WorldBasis::Given));
}

#[test]
fn ranks_of_a_functional_test_are_those_that_its_script_starts() {
    let file = |variables: &str| {
        let text = format!("MODEL_ARGS:\n  --num-layers: 4\nENV_VARS: {{{variables}}}\n");
        understood("a/b/model_config.yaml", &text, UnderstandOptions::default())
    };
    for (variables, size, basis, said) in [
        (
            "NUM_NODES: 2",
            16,
            WorldBasis::GpusPerNode,
            "8 GPUs of a node x NUM_NODES 2",
        ),
        (
            "SLURM_NNODES: 3",
            24,
            WorldBasis::GpusPerNode,
            "x SLURM_NNODES 3",
        ),
        (
            "NUM_NODES: 2, SLURM_NNODES: 3",
            16,
            WorldBasis::GpusPerNode,
            "x NUM_NODES 2",
        ),
        (
            "NUM_NODES: '', SLURM_NNODES: 3",
            24,
            WorldBasis::GpusPerNode,
            "x SLURM_NNODES 3",
        ),
        (
            "GPUS_PER_NODE: 4, NUM_NODES: 2",
            8,
            WorldBasis::GpusPerNode,
            "GPUS_PER_NODE 4 x",
        ),
        (
            "GPUS_PER_NODE: 4, NUM_NODES: '${N}'",
            4,
            WorldBasis::Assumed,
            "one node assumed",
        ),
        (
            "GPUS_PER_NODE: '${N}', NUM_NODES: 2",
            16,
            WorldBasis::Assumed,
            "assumed, x 2 nodes",
        ),
        ("NUM_NODES: '${N}'", 8, WorldBasis::Assumed, "8 assumed"),
        // The script reads neither.
        ("NNODES: 2", 8, WorldBasis::Assumed, "8 assumed"),
        ("WORLD_SIZE: 2", 8, WorldBasis::Assumed, "8 assumed"),
    ] {
        let world = file(variables).understood.world;
        assert_eq!((world.size, world.basis), (size, basis), "{variables}");
        assert!(world.reason.contains(said), "{variables}: {}", world.reason);
    }
}

#[test]
fn schedules_are_counted_in_iterations() {
    let warm = recipe("", "--lr-decay-iters 320000 --lr-warmup-fraction .01");
    assert_eq!(
        (warm.lr_decay_iters, warm.lr_warmup_iters),
        (320_000, 3_200)
    );
    let samples = |args: &str| {
        let text = format!(
            "torchrun --nproc-per-node 8 pretrain_gpt.py {} {args}\n",
            MODEL.replace("--train-iters 10", "")
        );
        understood("run.sh", &text, UnderstandOptions::default())
    };
    let read = samples("--train-samples 87 --lr-decay-samples 64 --lr-warmup-samples 16");
    let by_samples = read
        .understood
        .recipe
        .unwrap_or_else(|| panic!("{:?}", read.findings));
    assert_eq!(
        by_samples.train_iters, 10,
        "the incomplete batch is left out"
    );
    assert_eq!(
        (by_samples.lr_decay_iters, by_samples.lr_warmup_iters),
        (8, 2)
    );
    let read = samples("--train-samples 80 --lr-warmup-samples 12");
    assert!(
        read.findings
            .iter()
            .any(|finding| finding.code == "not-whole")
    );
    assert!(read.understood.recipe.is_some());
    for args in [
        "--train-samples 80",
        "--lr-warmup-samples 8",
        "--lr-warmup-fraction .1 --lr-warmup-iters 3",
    ] {
        let read = line("", args);
        assert_eq!(errors(&read)[0].code, "excluded", "{args}");
    }
}

#[test]
fn orders_follow_from_mode_environment_and_backend() {
    let zero = "NVTE_ALLOW_NONDETERMINISTIC_ALGO=0";
    for (env, args, embedding, attention) in [
        ("", "", "Arrival", "Arrival"),
        ("", "--deterministic-mode", "Ordered", "Ordered"),
        (zero, "", "Arrival", "Ordered"),
        (
            "NVTE_ALLOW_NONDETERMINISTIC_ALGO=1",
            "",
            "Arrival",
            "Arrival",
        ),
        ("", "--attention-backend unfused", "Arrival", "Ordered"),
        ("", "--attention-backend flash", "Arrival", "Arrival"),
        ("", "--transformer-impl local", "Arrival", "Ordered"),
        (
            "",
            "--transformer-impl local --use-flash-attn",
            "Arrival",
            "Arrival",
        ),
        (
            "NVTE_FLASH_ATTN=0 NVTE_FUSED_ATTN=0",
            "",
            "Arrival",
            "Ordered",
        ),
    ] {
        let orders = recipe(env, args).determinism;
        let shown = |order| format!("{order:?}");
        assert_eq!(shown(orders.embedding_backward), embedding, "{env} {args}");
        assert_eq!(shown(orders.attention_backward), attention, "{env} {args}");
        assert_eq!(shown(orders.microbatch_accumulation), "Ordered");
    }
    let read = line("", "");
    for key in [
        "determinism.embedding_backward",
        "determinism.attention_backward",
        "env.NCCL_ALGO",
    ] {
        let derived = read
            .understood
            .derived
            .iter()
            .find(|derived| derived.key == key);
        assert!(
            derived.is_some_and(|derived| derived.reason.len() > 20),
            "{key}"
        );
    }
}

#[test]
fn pipelines_are_cut_as_megatron_cuts_them() {
    let chunks = |args: &str| line("", args).understood.fields.vpp;
    let pp2 = "--pipeline-model-parallel-size 2";
    assert_eq!(chunks(pp2), None);
    assert_eq!(
        chunks(&format!("{pp2} --num-virtual-stages-per-pipeline-rank 2")),
        Some(2)
    );
    assert_eq!(
        chunks(&format!("{pp2} --num-virtual-stages-per-pipeline-rank 1")),
        None
    );
    assert_eq!(
        chunks(&format!("{pp2} --num-layers-per-virtual-pipeline-stage 1")),
        Some(2)
    );
    let layout = "--pipeline-model-parallel-layout 'Et|(t|)*2tL'";
    assert_eq!(chunks(&format!("{pp2} {layout}")), Some(2));
    let pattern = "--hybrid-layer-pattern 'M-|M*|M-|M-/MM/MM'";
    assert_eq!(chunks(&format!("{pp2} {pattern}")), Some(2));
    for args in [
        "--num-layers-per-virtual-pipeline-stage 3",
        "--num-layers-per-virtual-pipeline-stage 0",
        "--pipeline-model-parallel-layout 'E|t|L'",
        "--pipeline-model-parallel-layout '(t|)*99999999'",
        "--hybrid-layer-pattern 'M|M|M'",
    ] {
        let read = line("", &format!("{pp2} {args}"));
        assert!(!errors(&read).is_empty(), "{args}");
    }
}

#[test]
fn rules_of_a_recipe_point_at_arguments() {
    let read = line("", "--tensor-model-parallel-size 8");
    let found = errors(&read);
    let divides = found
        .iter()
        .find(|finding| finding.code == "does-not-divide")
        .unwrap();
    assert!(
        divides.message.contains("num_attention_heads"),
        "{}",
        divides.message
    );
    let (place, _) = divides.place.as_ref().unwrap();
    assert_eq!(&place.source.text[place.span.clone()], "4");
    assert_eq!(&*place.source.name, "run.sh");
    // Sizes that would overflow end in an error, not in a panic.
    for args in [
        "--tensor-model-parallel-size 4294967295 --pipeline-model-parallel-size 4294967295",
        "--hidden-size 4294967295",
        "--make-vocab-size-divisible-by 9223372036854775807",
        "--tokenizer-type NullTokenizer --vocab-size 9223372036854775807",
        "--micro-batch-size 4294967295",
    ] {
        assert!(!errors(&line("", args)).is_empty(), "{args}");
    }
}

/// What is not offloaded layer by layer is still refused.
#[test]
fn offloaded_layers_are_read_and_refused_where_megatron_refuses_them() {
    let flag = "--cpu-offloading-num-layers";
    let read = line(
        "",
        &format!("{flag} 2 --cpu-offloading-retain-pinned-cpu-buffers"),
    );
    assert_eq!(verdict(&read, flag).0, Verdict::Used);
    let recipe = read.understood.recipe.expect("it is simulated");
    assert_eq!(recipe.cpu_offloading_num_layers, 2);
    for (more, said) in [
        ("4", "4 layers on the host, of 4 layers"),
        (
            "2 --pipeline-model-parallel-size 2",
            "and 2 pipeline stages",
        ),
        ("2 --recompute-activations", "and recomputation"),
        (
            "0 --fine-grained-activation-offloading",
            "of single modules",
        ),
    ] {
        let read = line("", &format!("{flag} {more}"));
        let said_so = |error: &Diagnostic| format!("{error:?}").contains(said);
        assert!(
            errors(&read).into_iter().any(said_so),
            "{more}: {:?}",
            read.findings
        );
    }
}

#[test]
fn what_stands_in_for_something_is_said() {
    let read = line("", "--no-bias-gelu-fusion");
    assert!(
        read.findings
            .iter()
            .any(|finding| finding.code == "replaced-activation")
    );
    let read = line("", "--tokenizer-type HuggingFaceTokenizer");
    assert!(
        read.findings
            .iter()
            .any(|finding| finding.code == "assumed-vocabulary")
    );
    let read = line("", "--async-save");
    assert!(!read.understood.recipe.as_ref().unwrap().async_save);
    assert!(
        read.understood
            .derived
            .iter()
            .any(|derived| derived.key == "async_save")
    );
    let text = format!("MODEL_ARGS:\n{}  --seed: ${{REPEAT}}\n", entries());
    let read = understood("a/b/model_config.yaml", &text, UnderstandOptions::default());
    assert_eq!(read.understood.recipe.as_ref().unwrap().seed, 1234);
    assert!(
        read.findings
            .iter()
            .any(|finding| finding.code == "unset-variable")
    );
    assert_eq!(verdict(&read, "--seed").0, Verdict::Replaced);
}

#[test]
fn a_vocabulary_is_not_padded_to_multiples_of_nothing() {
    for unit in ["0", "-128"] {
        let read = line("", &format!("--make-vocab-size-divisible-by {unit}"));
        let found = errors(&read);
        assert_eq!(found[0].code, "out-of-range", "{unit}");
        let (place, _) = found[0].place.as_ref().expect("a place");
        assert_eq!(&place.source.text[place.span.clone()], unit);
    }
    let words = "--make-vocab-size-divisible-by 1 --tokenizer-type TikTokenizer --vocab-size 1004";
    let read = line("", words);
    assert_eq!(read.understood.recipe.unwrap().padded_vocab_size, 1004);
}

#[test]
fn a_vocabulary_has_the_size_that_its_tokenizer_says() {
    for (args, size, is_assumed) in [
        (
            "--tokenizer-type NullTokenizer --vocab-size 1024",
            1_024,
            false,
        ),
        // An end of documents was one more word.
        (
            "--tokenizer-type NullTokenizer --vocab-size 1024 --legacy-tokenizer",
            1_152,
            false,
        ),
        (
            "--tokenizer-type NullTokenizer --vocab-size 131072 --tensor-model-parallel-size 2",
            131_072,
            false,
        ),
        (
            "--tokenizer-type TikTokenizer --vocab-size 1024",
            1_024,
            false,
        ),
        ("--tokenizer-type TikTokenizer", 131_072, false),
        // The others do not read it.
        ("--vocab-size 1000", 50_304, false),
        (
            "--tokenizer-type GPT2BPETokenizer --vocab-size 1000",
            50_304,
            false,
        ),
        (
            "--tokenizer-type Llama2Tokenizer --vocab-size 1000",
            32_000,
            false,
        ),
        (
            "--tokenizer-type HuggingFaceTokenizer --vocab-size 1000",
            50_304,
            true,
        ),
        ("--tokenizer-type NullTokenizer", 50_304, true),
        (
            "--tokenizer-type NullTokenizer --vocab-size 1024 --padded-vocab-size 1024",
            1_024,
            false,
        ),
    ] {
        let read = line("", args);
        let told = read
            .findings
            .iter()
            .any(|found| found.code == "assumed-vocabulary");
        assert_eq!(told, is_assumed, "{args}");
        let recipe = read.understood.recipe.unwrap_or_else(|| panic!("{args}"));
        assert_eq!(recipe.padded_vocab_size, size, "{args}");
    }
}

/// Graphs of whole layers are simulated, and refused where Megatron-LM refuses them.
#[test]
fn cuda_graphs_of_layers_are_read_and_others_refused() {
    let still = "--attention-dropout 0 --hidden-dropout 0";
    let graphs = |args: &str| {
        let read = line("", &format!("{args} {still}"));
        let recipe = read.understood.recipe.as_ref();
        let recipe = recipe.unwrap_or_else(|| panic!("{args}: {:?}", read.findings));
        (recipe.cuda_graph_impl, recipe.cuda_graph_warmup_steps)
    };
    let (local, engine) = (CudaGraphImpl::Local, CudaGraphImpl::TransformerEngine);
    assert_eq!(graphs("--enable-cuda-graph"), (local, 3));
    let warm = "--cuda-graph-impl local --cuda-graph-warmup-steps 2";
    assert_eq!(graphs(warm), (local, 3));
    let flag = "--cuda-graph-warmup-steps";
    assert_eq!(verdict(&line("", warm), flag).0, Verdict::NoBits);
    assert_eq!(graphs("--external-cuda-graph"), (engine, 3));
    let warm = "--cuda-graph-impl transformer_engine --cuda-graph-warmup-steps 2";
    assert_eq!(graphs(warm), (engine, 2));
    let whole = format!("{warm} --cuda-graph-scope full");
    assert_eq!(graphs(&whole), (engine, 2));
    let alone = line(
        "",
        "--cuda-graph-modules attn --cuda-graph-dynamic-microbatches",
    );
    assert!(alone.understood.recipe.is_some(), "{:?}", alone.findings);
    for (args, said) in [
        ("--cuda-graph-impl full_iteration", "of a whole iteration"),
        (
            "--cuda-graph-impl transformer_engine --cuda-graph-modules attn moe_router",
            "a CUDA graph of `attn` alone",
        ),
        (
            "--enable-cuda-graph --cpu-offloading-num-layers 1",
            "CUDA graphs not supported with CPU offloading",
        ),
        (
            "--enable-cuda-graph --recompute-granularity full --recompute-method uniform \
             --recompute-num-layers 1",
            "only supported with full iteration CUDA graph",
        ),
        (
            "--enable-cuda-graph --cuda-graph-dynamic-microbatches",
            "numbers of microbatches that vary",
        ),
        (
            "--enable-cuda-graph --hidden-dropout 0.1",
            "dropout are not simulated together",
        ),
        ("--optimizer-cuda-graph", "a CUDA graph of the optimizer"),
    ] {
        let read = line("", &format!("{still} {args}"));
        assert!(read.understood.recipe.is_none(), "{args}");
        let said_so = |error: &Diagnostic| format!("{error:?}").contains(said);
        let errors = errors(&read);
        assert!(
            errors.into_iter().any(said_so),
            "{args}: {:?}",
            read.findings
        );
    }
}
