//! TOPO: the same job of another size or in another place. Equal where plans are, refuted where
//! they differ and bits part, and never equal by chance of what was not looked at.

use std::path::Path;

use bitproof::diagnostic::Source;
use bitproof::prove::outcome::{OracleResult, OracleVerdict, Outcome, VacuityReason};
use bitproof::prove::{CheckOptions, Grade, Silent, Token, check, replay};
use bitproof::scenario::{OracleKind, OriginClass, Overrides, Scenario};

const SCENARIO: &str = "
name = 'topo'
steps = 3
oracles = ['R2R', 'XR', 'TOPO']

[recipe]
world_size = 8
num_layers = 2
hidden_size = 16
ffn_hidden_size = 32
num_attention_heads = 2
seq_length = 16
micro_batch_size = 1
global_batch_size = 16
train_iters = 20
lr = 5e-3
bf16 = true
grad_reduce_in_bf16 = true
accumulate_allreduce_grads_in_fp32 = false
use_distributed_optimizer = true
overlap_grad_reduce = true

[recipe.env]
NCCL_ALGO = 'Ring'
";

/// Two hosts of four; NCCL's rings begin elsewhere than on one host of eight.
const TWO_HOSTS: &str = "{ name = 'two hosts', text = '''
name = \"two hosts\"
hosts = [[0, 2, 4, 6], [1, 3, 5, 7]]
''' }";

fn load(change: (&str, &str), topo: &str) -> Result<Scenario, String> {
    let (from, to) = change;
    assert!(SCENARIO.contains(from), "{from}");
    let text = format!("{}\n{topo}", SCENARIO.replacen(from, to, 1));
    let source = Source::new("topo.toml", text);
    let loaded = Scenario::from_source(&source, Path::new("topo.toml"), &Overrides::default());
    match loaded {
        Ok(loaded) => Ok(loaded.scenario),
        Err(findings) => Err(findings[0].message.clone()),
    }
}

fn outcome(change: (&str, &str), topo: &str) -> Outcome {
    let scenario = load(change, topo).expect("a sound scenario");
    check(scenario, CheckOptions::default(), &Silent).expect("it can be checked")
}

fn topo_of(outcome: &Outcome) -> &OracleResult {
    let mut results = outcome.oracles.iter();
    let topo = results.find(|result| result.oracle == OracleKind::TOPO);
    topo.expect("every oracle has a result")
}

const AS_IT_IS: (&str, &str) = ("lr = ", "lr = ");
const SMALL_BUCKETS: &str = "[[topo]]\nname = 'small buckets'\nrecipe.ddp_bucket_size = 2048";
/// One rank adds all of an element, and gradients are not clipped by a norm, which Megatron-LM then
/// does not compute.
const FP32_SUMS: (&str, &str) = (
    "use_distributed_optimizer = true",
    "use_distributed_optimizer = true\nclip_grad = 0.0\n\
     ddp_reduce_scatter_with_fp32_accumulation = true",
);

/// ROCm/rocm-systems#11661: a ring begins where an element lies in its message.
#[test]
fn another_bucket_size_is_refuted_where_rings_round_and_proved_where_one_rank_adds() {
    let rings = outcome(AS_IT_IS, SMALL_BUCKETS);
    assert_eq!(rings.grade(), Grade::Divergent);
    let origin = rings.origin.as_ref().expect("an origin");
    assert_eq!(origin.oracle, OracleKind::TOPO);
    assert_eq!(origin.class, OriginClass::AlgorithmSelection);
    for word in ["small buckets", "dp-gradients", "buckets", "step 1"] {
        assert!(origin.what.contains(word), "{word}: {}", origin.what);
    }
    let found = &rings.topo[0];
    assert_eq!(found.verdict, OracleVerdict::Different);
    assert!(!found.same_plans && found.run.unexcused.is_none());
    assert_eq!(found.run.first_step, Some(1));
    let token = rings.replay.as_deref().expect("a token");
    let token = Token::decode(token).expect("a token that was printed");
    let scenario = load(AS_IT_IS, SMALL_BUCKETS).expect("sound");
    let again = replay(scenario, &token, CheckOptions::default(), &Silent).expect("it replays");
    assert_eq!(again.grade(), Grade::Divergent);
    assert_eq!(again.topo, rings.topo);

    let one = outcome(FP32_SUMS, SMALL_BUCKETS);
    assert_eq!(one.grade(), Grade::Proved, "{:?}", one.topo);
    assert!(one.topo[0].same_plans);
    assert!(topo_of(&one).comparisons > 100, "{:?}", topo_of(&one));
    let caught = one.mutants.missed.is_empty() && one.mutants.total > 2;
    assert!(caught, "{:?}", one.mutants);
    let planted = &one.mutants.not_planted;
    assert!(
        planted.iter().all(|kind| !kind.contains("topo")),
        "{planted:?}"
    );
}

#[test]
fn other_hosts_part_by_their_rings_and_are_told_where_they_may() {
    let hosts = format!("[[topo]]\nallocation = {TWO_HOSTS}");
    let found = outcome(AS_IT_IS, &hosts);
    assert_eq!(found.grade(), Grade::Divergent);
    assert_eq!(found.topo[0].name, "two hosts");
    let may = outcome(AS_IT_IS, &format!("{hosts}\nmay_differ = true"));
    assert_eq!(may.grade(), Grade::Proved, "{:?}", may.origin);
    assert_eq!(topo_of(&may).verdict, OracleVerdict::EqualInPart);
    assert!(may.topo[0].run.first_step.is_some() && may.topo[0].may_differ);
}

/// Equal bytes of other sums say something of these inputs only.
#[test]
fn other_orders_with_equal_bytes_hold_for_this_input() {
    // The gradients of a model that learns nothing are all of one power of two, or zero.
    let hosts = format!("[[topo]]\nallocation = {TWO_HOSTS}");
    let zeros = outcome(("steps = 3", "steps = 1\naccept = []"), &hosts);
    let found = &zeros.topo[0];
    let equal = found.verdict == OracleVerdict::Equal;
    assert!(!found.same_plans);
    match equal {
        true => assert_eq!(zeros.grade(), Grade::ProvedOnThisInput),
        false => assert_eq!(zeros.grade(), Grade::Divergent),
    }
}

/// More data-parallel ranks: other addends, so what parts is explained; the first parameters and
/// the forward of each sample are the same.
#[test]
fn fewer_ranks_start_equal_and_forward_equal() {
    let fewer = "[[topo]]\nname = 'half'\nmay_differ = true\nrecipe.world_size = 4";
    let found = outcome(AS_IT_IS, fewer);
    assert_eq!(found.grade(), Grade::Proved, "{:?}", found.origin);
    let half = &found.topo[0];
    assert!(
        half.run.differing.is_empty() && half.run.unexcused.is_none(),
        "{half:?}"
    );
    let first = &half.run.steps[0];
    assert_eq!(first.token_losses, first.equal_token_losses);
    assert!(first.token_losses.is_some_and(|losses| losses > 0));
}

/// allenai/OLMo-core#319: a seed that depends on the rank. With fewer ranks the model starts as
/// another one, whatever its sums.
#[test]
fn what_no_sum_explains_is_a_dependence_on_the_mesh() {
    let dropout = ("lr = ", "hidden_dropout = 0.1\nlr = ");
    let tp = "[[topo]]\nname = 'tp2'\nrecipe.tensor_model_parallel_size = 2";
    let found = outcome(dropout, tp);
    assert_eq!(found.grade(), Grade::Divergent);
    let told = &found.topo[0].summary;
    assert!(told.contains("dropout masks differ"), "{told}");
}

/// One microbatch a rank has one order; with a quarter of the ranks there are four, as they come.
#[test]
fn what_varies_in_the_other_run_alone_is_told_as_that_runs_own() {
    let arrival = (
        "[recipe.env]",
        "[recipe.determinism]\nmicrobatch_accumulation = 'arrival'\n[recipe.env]",
    );
    let one_each = ("global_batch_size = 16", "global_batch_size = 8");
    let quarter = "[[topo]]\nname = 'quarter'\nmay_differ = true\nrecipe.world_size = 2";
    let scenario = || {
        let text = SCENARIO.replacen(one_each.0, one_each.1, 1);
        let text = text.replacen(arrival.0, arrival.1, 1);
        let source = Source::new("topo.toml", format!("{text}\n{quarter}"));
        let loaded = Scenario::from_source(&source, Path::new("t.toml"), &Overrides::default());
        loaded.expect("a sound scenario").scenario
    };
    let found = check(scenario(), CheckOptions::default(), &Silent).expect("it can be checked");
    assert_eq!(found.grade(), Grade::Divergent, "{:?}", found.topo);
    let origin = found.origin.as_ref().expect("an origin");
    assert_eq!(origin.oracle, OracleKind::TOPO);
    assert_eq!(origin.class, OriginClass::AccumulationOrder);
    assert!(origin.what.contains("`quarter`"), "{}", origin.what);
    assert_eq!(topo_of(&found).verdict, OracleVerdict::Different);
    assert_eq!(found.topo[0].verdict, OracleVerdict::Different);
    let token = Token::decode(found.replay.as_deref().expect("a token")).expect("as printed");
    let again = replay(scenario(), &token, CheckOptions::default(), &Silent);
    assert_eq!(again.expect("it replays").topo, found.topo);
}

#[test]
fn recomputation_changes_nothing() {
    let full = "[[topo]]\nname = 'recompute'\nrecipe.recompute_granularity = 'full'\n\
                recipe.recompute_method = 'uniform'\nrecipe.recompute_num_layers = 1";
    let found = outcome(AS_IT_IS, full);
    assert_eq!(found.grade(), Grade::Proved, "{:?}", found.topo);
}

#[test]
fn two_ranks_that_stand_for_many_prove_nothing() {
    let two = "[full_size]\ntensor_model_parallel_size = 1\npipeline_model_parallel_size = 1\n\
               data_parallel_size = 64\nmicrobatch_count = 8\nmicro_batch_size = 1\n\
               seq_length = 4096\nwgrad_splits = 1\n";
    let hosts = "[[topo]]\nallocation = { name = 'apart', text = \"name = 'apart'\\nhosts = \
                 [[1], [0]]\" }";
    let found = outcome(
        ("world_size = 8", "world_size = 2"),
        &format!("{two}\n{hosts}"),
    );
    assert_eq!(found.grade(), Grade::Vacuous, "{:?}", found.topo);
    let reasons = found.vacuity.iter().map(|found| found.reason);
    assert!(
        reasons
            .into_iter()
            .any(|reason| reason == VacuityReason::TooFewAddends)
    );
}

/// Which rank adds the squares of an element follows from its bucket: the norm is another sum
/// though every gradient is the same.
#[test]
fn the_norm_is_another_sum_where_shards_are_cut_otherwise() {
    let two = ("world_size = 8", "world_size = 2");
    let found = outcome(two, SMALL_BUCKETS);
    let topo = &found.topo[0];
    assert!(!topo.same_plans && topo.run.unexcused.is_none(), "{topo:?}");
    assert!(
        topo.run
            .plans_differ
            .iter()
            .any(|plan| plan.contains("norm-local")),
        "{topo:?}"
    );
    assert_ne!(found.grade(), Grade::Proved);
}

/// Another mapping of ranks puts other ranks' parts into each place of the norm's sum.
#[test]
fn another_mapping_of_ranks_is_told_in_the_norm() {
    let stages = (
        "num_layers = 2",
        "pipeline_model_parallel_size = 2\ntensor_model_parallel_size = 2\nnum_layers = 2",
    );
    let mapped = "[[topo]]\nmay_differ = true\nrecipe.use_tp_pp_dp_mapping = true";
    let found = outcome(stages, mapped);
    let topo = &found.topo[0];
    assert!(topo.run.unexcused.is_none(), "{topo:?}");
    assert!(
        topo.run
            .plans_differ
            .iter()
            .any(|plan| plan.contains("norm-global")),
        "{topo:?}"
    );
}

/// Buckets of torch's DDP are cut by bytes; the first step has others.
#[test]
fn buckets_of_torch_are_compared_by_element() {
    let torch = (
        "bf16 = true\ngrad_reduce_in_bf16 = true\naccumulate_allreduce_grads_in_fp32 = false\n\
         use_distributed_optimizer = true\noverlap_grad_reduce = true",
        "bf16 = false\nuse_distributed_optimizer = false\nddp = 'torch'\n\
         distributed_backend = 'gloo'",
    );
    let found = outcome(torch, "[[topo]]\nrecipe.bucket_cap_mb = 0.005");
    let topo = &found.topo[0];
    assert!(
        topo.run.unexcused.is_none() && topo.run.differing.is_empty(),
        "{topo:?}"
    );
    assert!(!topo.same_plans, "{topo:?}");
}

#[test]
fn what_is_no_variation_is_refused() {
    for (change, topo, words) in [
        (AS_IT_IS, "[[topo]]", "changes nothing"),
        (
            AS_IT_IS,
            "[[topo]]\nrecipe.lr = 1e-3",
            "`lr` decides what is trained",
        ),
        (
            AS_IT_IS,
            "[[topo]]\nrecipe.world_size = 7",
            "global_batch_size",
        ),
        (
            AS_IT_IS,
            "[[topo]]\nrecipe.ddp_bucket_sise = 3",
            "ddp_bucket_sise",
        ),
        (AS_IT_IS, "", "nothing to compare"),
        (
            ("'XR', 'TOPO'", "'XR'"),
            SMALL_BUCKETS,
            "needs the TOPO oracle",
        ),
        (AS_IT_IS, "[[topo]]\nallocation = 3", "allocation"),
        (AS_IT_IS, "topo = 3", "topo"),
    ] {
        match load(change, topo) {
            Ok(_) => panic!("{topo} is taken"),
            Err(message) => assert!(message.contains(words), "{topo}: {message}"),
        }
    }
    let twice = format!("{SMALL_BUCKETS}\n{SMALL_BUCKETS}");
    let message = load(AS_IT_IS, &twice).expect_err("a name stands for one");
    assert!(message.contains("two variations"), "{message}");
}

/// A regression file is the whole scenario.
#[test]
fn a_written_scenario_reads_back_as_the_same() {
    let topo = format!("{SMALL_BUCKETS}\n[[topo]]\nmay_differ = true\nallocation = {TWO_HOSTS}");
    let scenario = load(AS_IT_IS, &topo).expect("sound");
    let text = scenario.to_toml(Path::new("."));
    let source = Source::new("again.toml", text);
    let again = Scenario::from_source(&source, Path::new("again.toml"), &Overrides::default());
    let again = again.expect("what was written is sound").scenario;
    assert_eq!(again.topo, scenario.topo);
    assert_eq!(again.content_hash(), scenario.content_hash());
    let without = load(("'XR', 'TOPO'", "'XR'"), "").expect("sound");
    assert_ne!(without.content_hash(), scenario.content_hash());
}
