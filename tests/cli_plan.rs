//! `bitproof plan`, run as a user runs it.

use plan_verb::{object, plan, text};
use serde_json::Value;

#[path = "support/plan_verb.rs"]
mod plan_verb;

const QUICKSTART: &str = "scenarios/quickstart.toml";
const BLOCK: &str = "topologies/block-2x8.toml";
const PLANE: &str = "topologies/plane2-2x8.toml";

/// Data-parallel ranks 0, 2, 4, 6 lie on one host in the one allocation, and in another order in
/// the other: their rings part. Tensor-parallel pairs have two addends, which have no order.
#[test]
fn another_placement_parts_where_three_ranks_add() {
    let arguments = ["diff", QUICKSTART, "--topology", BLOCK, "--topology", PLANE];
    let found = object(&arguments, 1);
    let names: Vec<&str> = found["differences"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|one| one["name"].as_str().expect("a name"))
        .collect();
    let expected = [
        "grad_reduce.stage0.bucket0",
        "grad_reduce.stage1.bucket0",
        "grad_norm",
    ];
    assert_eq!(names, expected);
    assert_ne!(found["hashes"][0], found["hashes"][1]);
    let human = text(&arguments, 1);
    assert!(
        human.contains("the ring of channel 0 is 0 2 4 6, against 0 4 2 6"),
        "{human}"
    );
    let equal = "equal bits for all finite inputs: embedding.stage0, layers.stage0";
    assert!(human.contains(equal), "{human}");
}

#[test]
fn one_placement_is_equal_to_itself_until_the_environment_changes() {
    let same = ["diff", QUICKSTART, "--topology", BLOCK, "--topology", BLOCK];
    assert_eq!(object(&same, 0)["identical"], true);
    let env = [
        "diff",
        QUICKSTART,
        "--topology",
        BLOCK,
        "--set",
        "recipe.use_distributed_optimizer=false",
        "--set",
        "recipe.overlap_param_gather=false",
        "--env",
        "NCCL_BUFFSIZE=8192",
    ];
    let found = object(&env, 1);
    let cause = found["differences"][0]["cause"].as_str().expect("a cause");
    assert!(
        cause.contains("2048 KiB, against Ring/Simple, 1 channel, 4 KiB"),
        "{cause}"
    );
}

/// The name of an allocation is nothing that a plan depends on.
#[test]
fn a_hash_is_the_same_for_the_same_plans() {
    let hash = |topology: &str| text(&["hash", QUICKSTART, "--topology", topology], 0);
    let folder = tempfile::tempdir().expect("a folder");
    let other = folder.path().join("other.toml");
    let renamed = std::fs::read_to_string(BLOCK).expect("it is shipped");
    let renamed = renamed.replace("name = \"block-2x8\"", "name = \"other\"");
    std::fs::write(&other, renamed).expect("it is written");
    assert_eq!(hash(BLOCK), hash(&other.display().to_string()));
    assert_ne!(hash(BLOCK), hash(PLANE));
    let shown = object(&["show", QUICKSTART, "--topology", BLOCK], 0);
    assert_eq!(hash(BLOCK).trim(), shown["hash"].as_str().expect("a hash"));
}

#[test]
fn an_element_is_shown_with_its_gpus() {
    let bucket = "grad_reduce.stage0.bucket0";
    let arguments = [
        "show",
        QUICKSTART,
        "--topology",
        BLOCK,
        "--collective",
        bucket,
        "--element",
        "5",
    ];
    let human = text(&arguments, 0);
    assert!(human.contains("dp0: (((r2 + r4) + r6) + r0)"), "{human}");
    assert!(human.contains("r6: host 0, GPU 6"), "{human}");
    let shown = object(&arguments, 0);
    assert_eq!(shown["collectives"].as_array().map(Vec::len), Some(1));
    assert_eq!(shown["element"]["expressions"][0]["gpus"][3][0], 6);
}

/// 512 billion parameters on 2,432 GPUs: nothing is trained, so no size is refused.
#[test]
fn a_job_of_2432_gpus_has_plans() {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("it is written");
        path.display().to_string()
    };
    let recipe = write(
        "gpt-500b.toml",
        "world_size = 2432\ntensor_model_parallel_size = 8\npipeline_model_parallel_size = 8\n\
         sequence_parallel = true\nnum_layers = 120\nhidden_size = 16384\nffn_hidden_size = 65536\n\
         num_attention_heads = 128\nseq_length = 4096\npadded_vocab_size = 131072\n\
         micro_batch_size = 1\nglobal_batch_size = 304\ntrain_iters = 800\nlr = 1e-4\nbf16 = true\n\
         use_distributed_optimizer = true\noverlap_grad_reduce = true\n\
         [env]\nNCCL_ALGO = \"Ring\"\n",
    );
    let by_8 = write(
        "by-8.toml",
        "name = \"304x8\"\nhosts = 304\ngpus_per_host = 8\n",
    );
    let by_4 = write(
        "by-4.toml",
        "name = \"608x4\"\nhosts = 608\ngpus_per_host = 4\n",
    );
    let shown = object(&["show", &recipe, "--topology", &by_8], 0);
    let buckets = shown["collectives"].as_array().expect("a list");
    let elements: u64 = buckets
        .iter()
        .filter(|one| one["family"] == "dp-gradients")
        .map(|one| one["elements"].as_u64().expect("a count") * 8)
        .sum();
    assert!(
        (500_000_000_000..530_000_000_000).contains(&elements),
        "{elements}"
    );
    // Tensor-parallel groups of 8 span two hosts of four.
    let arguments = ["diff", &recipe, "--topology", &by_8, "--topology", &by_4];
    let human = text(&arguments, 0);
    assert!(human.contains("2432 ranks"), "{human}");
    let few = write("few.toml", "name = \"few\"\nhosts = 2\ngpus_per_host = 8\n");
    let refused = text(&["hash", &recipe, "--topology", &few], 2);
    assert!(
        refused.contains("the job has 2432 ranks, the topology 16 GPUs"),
        "{refused}"
    );
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    let show = |more: &[&str]| {
        let arguments = [&["show", QUICKSTART, "--topology", BLOCK], more].concat();
        text(&arguments, 2)
    };
    assert!(show(&["--collective", "grad_norn"]).contains("did you mean `grad_norm`?"));
    let beyond = show(&["--collective", "grad_norm", "--element", "1"]);
    assert!(beyond.contains("expected 0 to 0"), "{beyond}");
    assert!(show(&["--element", "1"]).contains("--collective"));
    let missing = text(
        &["show", QUICKSTART, "--topology", "topologies/block.toml"],
        2,
    );
    assert!(
        missing.contains("did you mean `topologies/block-2x8.toml`?"),
        "{missing}"
    );
    let one = text(&["diff", QUICKSTART, "--topology", BLOCK], 2);
    assert!(one.contains("twice"), "{one}");
    let tree = [
        "diff",
        QUICKSTART,
        "--topology",
        BLOCK,
        "--env",
        "NCCL_ALGO=Tree",
    ];
    assert!(text(&tree, 2).contains("NCCL_ALGO"));
    let env = [
        "diff",
        QUICKSTART,
        "--topology",
        BLOCK,
        "--env",
        "NCCL_ALGO",
    ];
    assert!(text(&env, 2).contains("expected NAME=VALUE"));
    let typo = [
        "diff",
        QUICKSTART,
        "--topology",
        BLOCK,
        "--env",
        "NCCL_BUFSIZE=8192",
    ];
    assert!(text(&typo, 2).contains("did you mean `NCCL_BUFFSIZE`?"));
    assert!(object(&typo, 2)["findings"][0]["message"].is_string());
    let small = ["show", "scenarios/vacuous.toml", "--topology", BLOCK];
    assert!(text(&small, 2).contains("how large the job's model is"));
}

/// What a variable leaves open is assumed, and told.
#[test]
fn an_algorithm_of_another_function_pins_nothing() {
    let assumed = |algo: &str| {
        let set = format!("recipe.env.NCCL_ALGO={algo}");
        let shown = object(&["show", QUICKSTART, "--topology", BLOCK, "--set", &set], 0);
        shown["assumed"].to_string()
    };
    assert!(assumed("'allreduce:ring'").contains("NCCL_ALGO does not speak of ReduceScatter"));
    assert!(!assumed("'Ring'").contains("NCCL_ALGO"));
}

/// Without pins the plans rest on what NCCL would find out itself: that is said.
#[test]
fn what_nothing_pins_is_told() {
    let open = object(&["show", QUICKSTART, "--topology", BLOCK], 0);
    let said = open["assumed"].to_string();
    assert!(said.contains("rings within a node"), "{said}");
    let pinned = "topologies/dgx-h100-2.toml";
    let known = object(&["show", QUICKSTART, "--topology", pinned], 0);
    assert!(!known["assumed"].to_string().contains("rings within a node"));
}

/// A difference rests on what is assumed of either side; of one alone, its name is told.
#[test]
fn what_a_difference_rests_on_is_told() {
    let sides = |topology| {
        let sides = ["--topology", BLOCK, "--topology", topology];
        plan(&[&["diff", QUICKSTART], &sides[..]].concat())
    };
    let human = |topology| String::from_utf8(sides(topology).stdout).expect("text");
    let (one, both) = (human("topologies/dgx-h100-2.toml"), human(PLANE));
    assert!(
        one.contains("\n  - block-2x8: the rings within a node"),
        "{one}"
    );
    assert!(
        one.contains("\n  - the protocol NCCL would choose"),
        "{one}"
    );
    assert!(both.contains("\n  - the rings within a node"), "{both}");
    assert_eq!(both.matches("the rings within a node").count(), 1, "{both}");
}

/// Open MPI adds by rank: where the ranks run changes nothing, and NCCL's variables neither.
#[test]
fn open_mpi_adds_wherever_the_ranks_run() {
    let sides = ["diff", QUICKSTART, "--topology", BLOCK, "--topology", PLANE];
    let f32 = ["--set", "recipe.bf16=false", "--backend"];
    let by = |library, code| object(&[&sides[..], &f32, &[library]].concat(), code);
    assert_eq!(by("open-mpi", 0)["identical"], true);
    assert_eq!(by("gloo", 0)["identical"], true);
    assert_eq!(by("nccl", 1)["identical"], false);
    let show = ["show", QUICKSTART, "--topology", BLOCK];
    let bucket = [
        "--collective",
        "grad_reduce.stage0.bucket0",
        "--element",
        "5",
    ];
    let open_mpi = [&f32[..], &["open-mpi"]].concat();
    let said = text(&[&show[..], &bucket, &open_mpi].concat(), 0);
    // Blocks of 14,592 bytes for four ranks: a butterfly, neighbours first.
    assert!(said.contains("dp0: ((r0 + r2) + (r4 + r6))"), "{said}");
    assert!(said.contains("checked against 4.1.4"), "{said}");
    assert!(
        said.contains("coll/tuned carries collectives out"),
        "{said}"
    );
}

/// The two allocations have the same GPUs: with the same ranks on them, and one order within a
/// node, nothing is left open where each group has all of them.
#[test]
fn what_pins_a_job_is_found_by_trying() {
    let whole = [
        "tensor_model_parallel_size=1",
        "pipeline_model_parallel_size=1",
    ];
    let whole = whole.map(|key| format!("recipe.{key}"));
    let pin = [
        "pin",
        QUICKSTART,
        "--topology",
        BLOCK,
        "--set",
        &whole[0],
        "--set",
        &whole[1],
        "--set",
        "recipe.sequence_parallel=false",
        "--set",
        "recipe.global_batch_size=32",
    ];
    let both = [&pin[..], &["--topology", PLANE]].concat();
    let found = object(&both, 0);
    let settings = found["sets"][0]["settings"].to_string();
    assert!(settings.contains("NCCL_GRAPH_FILE"), "{settings}");
    assert!(settings.contains("SLURM_HOSTFILE"), "{settings}");
    assert!(found["sets"][0]["ways"].as_u64() > Some(1));
    let human = text(&both, 0);
    assert!(
        human.contains("one plan for each of") && human.contains(" collectives, with"),
        "{human}"
    );
    // Groups on a part of a node's GPUs are searched for anew, and a graph file is refused.
    let part = ["pin", QUICKSTART, "--topology", BLOCK, "--topology", PLANE];
    let part = object(&part, 1);
    assert!(!part.to_string().contains("NCCL_GRAPH_FILE"), "{part}");
    let help = text(&["pin", "--help"], 0);
    assert!(
        !help.contains("--collectives") && !help.contains("--both-env"),
        "{help}"
    );
    // Another library adds in rank order: there is nothing to pin.
    let gloo = object(&[&both[..], &["--backend", "gloo"]].concat(), 0);
    assert_eq!(
        gloo["sets"][0]["settings"].as_array().map(Vec::len),
        Some(0)
    );
}

/// Hosts of eight and of four GPUs: no setting makes their rings one.
#[test]
fn what_nothing_pins_is_said_with_two_ways() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("by-4.toml");
    let four = "name = \"by-4\"\nhosts = 4\ngpus_per_host = 4\n";
    std::fs::write(&path, four).expect("it is written");
    let path = path.display().to_string();
    let dgx = "topologies/dgx-h100-2.toml";
    let sides = ["pin", QUICKSTART, "--topology", dgx, "--topology", &path];
    let found = object(&sides, 1);
    assert_eq!(found["is_pinned"], false);
    let between = &found["left"]["collectives"][0]["between"];
    assert_ne!(between[0], between[1]);
    let human = text(&sides, 1);
    assert!(human.contains("nothing pins every plan"), "{human}");
}

/// Every key of the objects is in the documentation.
#[test]
fn documented_keys_are_all_keys() {
    fn keys(value: &Value, found: &mut std::collections::BTreeSet<String>) {
        match value {
            Value::Object(object) => {
                for (key, value) in object {
                    found.insert(key.clone());
                    keys(value, found);
                }
            }
            Value::Array(list) => list.iter().for_each(|value| keys(value, found)),
            _ => {}
        }
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/plan.md");
    let documentation = std::fs::read_to_string(path).expect("it is part of the tree");
    let norm = ["--collective", "grad_norm", "--element", "0"];
    let show = [&["show", QUICKSTART, "--topology", BLOCK][..], &norm].concat();
    let diff = ["diff", QUICKSTART, "--topology", BLOCK, "--topology", PLANE];
    let mut found = std::collections::BTreeSet::new();
    keys(&object(&show, 0), &mut found);
    keys(&object(&diff, 1), &mut found);
    keys(
        &object(&[&diff[..4], &["--all-placements"]].concat(), 1),
        &mut found,
    );
    let by_8 = ["--topology", "topologies/dgx-h100-2.toml"];
    let pin = [&["pin", QUICKSTART, "--topology", BLOCK][..], &by_8].concat();
    keys(&object(&pin, 1), &mut found);
    keys(
        &object(&[&pin[..], &["--backend", "gloo"]].concat(), 0),
        &mut found,
    );
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("probe").display().to_string();
    keys(
        &object(&["probe", "--ranks", "3", "--out", &out], 0),
        &mut found,
    );
    // Three ranks and one element: several plans are left, and others are excluded.
    for (rank, value) in [1e8f32, 1.0, -1e8].iter().enumerate() {
        let path = folder.path().join(format!("{rank}.bin"));
        std::fs::write(path, value.to_le_bytes()).expect("it is written");
    }
    let result = folder.path().join("result");
    std::fs::write(&result, 0f32.to_le_bytes()).expect("it is written");
    let (inputs, result) = (
        folder.path().display().to_string(),
        result.display().to_string(),
    );
    let identify = [
        "identify", "--inputs", &inputs, "--output", &result, "--dtype", "f32",
    ];
    keys(&object(&identify, 6), &mut found);
    keys(
        &object(&["hash", QUICKSTART, "--topology", BLOCK], 0),
        &mut found,
    );
    assert!(found.len() > 25, "{found:?}");
    let missing = found
        .iter()
        .filter(|key| !documentation.contains(&format!("`{key}`")));
    assert_eq!(missing.collect::<Vec<_>>(), Vec::<&String>::new());
}
