//! A resumed run of torch's DistributedDataParallel on gloo, as measured with torch 2.15: equal with
//! two ranks, another one from the first step after the restart with four and eight, and equal again
//! with `find_unused_parameters`.

use std::path::Path;

use bitproof::diagnostic::Source;
use bitproof::prove::outcome::{OracleVerdict, Outcome};
use bitproof::prove::{CheckOptions, Silent, check};
use bitproof::scenario::{OracleKind, Overrides, Scenario};

fn checked(ranks: u32, more: &str) -> Outcome {
    let text = format!(
        "name = 'torch-ddp'\noracles = ['R2R', 'RES', 'XR']\nsteps = 4\n\
         [checkpoint]\nrestarts = [[2]]\n\
         [recipe]\nworld_size = {ranks}\nnum_layers = 1\nhidden_size = 16\nffn_hidden_size = 16\n\
         num_attention_heads = 2\nseq_length = 8\nmicro_batch_size = 1\n\
         global_batch_size = {ranks}\ntrain_iters = 4\nlr = 5e-3\n\
         ddp = 'torch'\ndistributed_backend = 'gloo'\n{more}"
    );
    let source = Source::new("torch.toml", text);
    let loaded = Scenario::from_source(&source, Path::new("torch.toml"), &Overrides::default());
    let scenario = match loaded {
        Ok(loaded) => loaded.scenario,
        Err(findings) => panic!("{findings:?}"),
    };
    check(scenario, CheckOptions::default(), &Silent).expect("it can be checked")
}

/// The verdict of RES, and what is told.
fn resumption(outcome: &Outcome) -> (OracleVerdict, String) {
    let mut oracles = outcome.oracles.iter();
    let res = oracles.find(|result| result.oracle == OracleKind::RES);
    let res = res.expect("RES was asked for");
    (res.verdict, res.detail.clone().unwrap_or_default())
}

#[test]
fn two_ranks_resume_alike() {
    let (verdict, detail) = resumption(&checked(2, ""));
    assert_eq!(verdict, OracleVerdict::Equal, "{detail}");
}

#[test]
fn more_ranks_part_in_the_first_step_after_a_restart() {
    for ranks in [4, 8] {
        let outcome = checked(ranks, "");
        let (verdict, detail) = resumption(&outcome);
        assert_eq!(verdict, OracleVerdict::Different, "{ranks}: {detail}");
        assert!(detail.contains("bits part at step 3"), "{detail}");
        assert!(detail.contains("ddp.bucket0, all_reduce"), "{detail}");
        assert!(detail.contains("lays its buckets out anew"), "{detail}");
        let first = outcome.first_divergence.as_ref().expect("a first node");
        assert!(first.is_origin, "no state was lost");
    }
}

#[test]
fn buckets_that_are_kept_resume_alike() {
    let (verdict, detail) = resumption(&checked(4, "find_unused_parameters = true\n"));
    assert_eq!(verdict, OracleVerdict::Equal, "{detail}");
}

/// Small buckets part as well: their limits hold from the second step on only.
#[test]
fn small_buckets_part_too() {
    let (verdict, detail) = resumption(&checked(4, "bucket_cap_mb = 0.004\n"));
    assert_eq!(verdict, OracleVerdict::Different, "{detail}");
}
