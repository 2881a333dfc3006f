//! Drifts of a small job, asked about by themselves.

use std::path::Path;

use super::*;
use crate::diagnostic::Source;
use crate::prove::CheckOptions;
use crate::scenario::{Overrides, Scenario};

/// Two data-parallel ranks, of which one leaves an update out.
fn drifting() -> (Session, Vec<Drift>) {
    let text = "steps = 2\n[recipe]\nworld_size = 2\nnum_layers = 1\nhidden_size = 16\n\
                ffn_hidden_size = 16\nnum_attention_heads = 4\nseq_length = 8\n\
                micro_batch_size = 1\nglobal_batch_size = 2\ntrain_iters = 2\nlr = 5e-3\n\
                [fault]\nskip_launch = { at = 'optimizer.adamw', rank = 1, step = 2 }\n";
    let source = Source::new("scenario.toml", text);
    let loaded = Scenario::from_source(&source, Path::new("x.toml"), &Overrides::default());
    let scenario = loaded.expect("a sound scenario").scenario;
    let mut session = Session::new(scenario, &CheckOptions::default()).expect("it can be run");
    let steps = session.steps();
    let record = session.plain_run(&RunOptions::default(), steps);
    let drifts = record.expect("it runs").drifts;
    (session, drifts)
}

#[test]
fn a_drift_is_let_in_by_the_update_that_one_rank_leaves_out() {
    let (mut session, drifts) = drifting();
    let had = RunOptions::default();
    let found = let_in(&mut session, Course::Straight, &had, &drifts).expect("it runs");
    let found = found.expect("it is found");
    assert_eq!((found.drift.step, &found.drift), (Some(2), &drifts[0]));
    assert_eq!(found.cause.beginning, Beginning::Strangers);
    let (a, b) = &found.at.sites;
    let node = |site: &Option<std::sync::Arc<crate::world::Site>>| {
        let site = site.as_ref().expect("both have run one");
        (site.step, site.node())
    };
    assert_eq!(node(a), (2, "optimizer.adamw".to_string()));
    assert_eq!(node(b), (1, "optimizer.adamw".to_string()));
    // The control: no drift, nothing to find.
    let none = let_in(&mut session, Course::Straight, &had, &[]).expect("nothing to run");
    assert_eq!(none, None);
}

/// What is too long to be kept is not half known.
#[test]
fn a_run_of_too_many_nodes_is_not_followed() {
    let (mut session, drifts) = drifting();
    let had = RunOptions::default();
    let mut log = Log::until(&drifts[0]);
    log.nodes_max = 100;
    let of_drift = (&had, &drifts[0]);
    follow(&mut session, Course::Straight, of_drift, &mut log).expect("it runs");
    assert!(log.copies().is_none() && log.nodes.is_empty());
}
