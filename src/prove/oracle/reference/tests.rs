//! Contributions against what they are made of: sound programs, and one negative control a fault.

use std::path::Path;

use super::contribution::{Source, Terms};
use super::{Fault, Provenances, follow};
use crate::prove::CheckOptions;
use crate::prove::session::Session;
use crate::scenario::{Overrides, Scenario};
use crate::world::{PlantedFault, RunOptions};
use proptest::prelude::*;

fn session(set: &[&str]) -> Session {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios/quickstart.toml");
    let overrides = Overrides {
        set: set.iter().map(|text| text.to_string()).collect(),
        ..Overrides::default()
    };
    let loaded = Scenario::load(&path, &overrides).expect("a sound scenario");
    Session::new(loaded.scenario, &CheckOptions::default()).expect("it can be run")
}

fn followed(set: &[&str], options: &RunOptions) -> Provenances {
    follow(&mut session(set), options).expect("it runs")
}

#[test]
fn sound_layouts_have_every_contribution_once() {
    for set in [
        &[][..],
        &["recipe.use_distributed_optimizer=false"],
        &["recipe.sequence_parallel=false"],
        &["recipe.ddp_reduce_scatter_with_fp32_accumulation=true"],
        &[
            "recipe.accumulate_allreduce_grads_in_fp32=false",
            "recipe.grad_reduce_in_bf16=true",
        ],
        &["recipe.untie_embeddings_and_output_weights=false"],
        &["recipe.micro_batch_size=2", "recipe.global_batch_size=8"],
        &["recipe.num_distributed_optimizer_instances=2"],
    ] {
        let found = followed(set, &RunOptions::default());
        assert!(found.is_followed(), "{set:?}: {:?}", found.unfollowed);
        assert!(found.words > 10_000, "{set:?}");
        let first = found.findings.first().map(ToString::to_string);
        assert_eq!(first, None, "{set:?}");
    }
}

/// A collective that never happens leaves contributions out.
#[test]
fn a_missing_reduction_is_named() {
    let mut session = session(&[]);
    let groups = 0..session.group_count() as u32;
    let data = groups
        .clone()
        .find(|group| session.group_name(*group).starts_with("dp"));
    let group = crate::world::GroupId(data.expect("there are data-parallel groups"));
    let members = session.group_ranks(group).to_vec();
    let faults = members.iter().map(|rank| PlantedFault::MissingCall {
        group,
        rank: *rank,
        step: 1,
        nth: 0,
    });
    let options = RunOptions {
        faults: faults.collect(),
        ..RunOptions::default()
    };
    let found = follow(&mut session, &options).expect("nobody waits for it");
    assert!(found.is_followed());
    let finding = found.findings.first().expect("a reduction is missing");
    assert!(
        members.contains(&finding.rank) && finding.step == 1,
        "{finding}"
    );
    let lacks = |fault: &Fault| matches!(fault, Fault::Missing { sources } if !sources.is_empty());
    assert!(finding.faults.iter().any(lacks), "{finding}");
}

fn source(rank: u32, step: u32) -> Source {
    Source {
        step,
        rank,
        microbatch: 0,
    }
}

#[test]
fn each_fault_has_its_name() {
    let want = Terms::each((0..3).map(|rank| source(rank, 2)), 0.5);
    let sum = |sources: &[(u32, u32)]| {
        let each = sources
            .iter()
            .map(|(rank, step)| Terms::of(source(*rank, *step)));
        each.fold(Terms::default(), |sum, term| sum.add(&term))
            .scaled(0.5)
    };
    let right = [(0, 2), (1, 2), (2, 2)];
    assert_eq!(sum(&right), want);
    assert_eq!(sum(&right).faults(&want, 2), []);
    let one = |sources: &[(u32, u32)]| {
        let mut faults = sum(sources).faults(&want, 2);
        assert_eq!(faults.len(), 1, "{faults:?}");
        faults.remove(0)
    };
    let sources = |list: &[(u32, u32)]| {
        list.iter()
            .map(|(rank, step)| source(*rank, *step))
            .collect()
    };
    assert_eq!(
        one(&right[..2]),
        Fault::Missing {
            sources: sources(&[(2, 2)])
        }
    );
    let twice = [(0, 2), (1, 2), (2, 2), (1, 2)];
    assert_eq!(
        one(&twice),
        Fault::Doubled {
            sources: sources(&[(1, 2)])
        }
    );
    let other = [(0, 2), (1, 2), (2, 2), (7, 2)];
    assert_eq!(
        one(&other),
        Fault::Foreign {
            sources: sources(&[(7, 2)])
        }
    );
    let old = [(0, 2), (1, 2), (2, 2), (1, 1)];
    assert_eq!(
        one(&old),
        Fault::Stale {
            sources: sources(&[(1, 1)])
        }
    );
    let unscaled = right
        .iter()
        .map(|(rank, step)| Terms::of(source(*rank, *step)));
    let unscaled = unscaled.fold(Terms::default(), |sum, term| sum.add(&term));
    let scaled = Fault::Scaled {
        sources: sources(&right),
        have: 1.0,
        want: 0.5,
    };
    assert_eq!(unscaled.faults(&want, 2), [scaled]);
}

proptest! {
    /// Against counting: a sum has a fault exactly where the multiset of its sources is another.
    #[test]
    fn sums_are_multisets(ranks in prop::collection::vec(0u32..4, 0..8)) {
        let want = Terms::each((0..4).map(|rank| source(rank, 1)), 1.0);
        let have = ranks
            .iter()
            .fold(Terms::default(), |sum, rank| sum.add(&Terms::of(source(*rank, 1))));
        let mut sorted = ranks.clone();
        sorted.sort_unstable();
        prop_assert_eq!(have == want, sorted == [0, 1, 2, 3]);
        prop_assert_eq!(have.faults(&want, 1).is_empty(), sorted == [0, 1, 2, 3]);
    }
}
