//! The live-in set of a cut holds exactly the words that are read after it and were written before.

use bitproof::numerics::Dtype;
use bitproof::plan::Combine;
use bitproof::world::memory::LiveIn;
use bitproof::world::{Component, Family, Rank, RankError};

use crate::cluster::{ALL, Cluster, Seen, ramp, scale_add, step_in_place, tensor};

/// A step that reads all of `weights`, half of `stale`, `flag` in step 2 only; scratch and `grads`
/// are always written first; nobody reads `unused`.
fn training(rank: &mut Rank, _: &Seen) -> Result<(), RankError> {
    let weights = tensor(rank, "weights", &[1.0; 8]);
    rank.persist(Component::Model, "weights", weights);
    let stale = tensor(rank, "stale", &[2.0; 8]);
    let flag = tensor(rank, "flag", &[3.0; 4]);
    let grads = rank.alloc("grads", Dtype::F32, 8);
    let _unused = tensor(rank, "unused", &[4.0; 8]);
    let loss = tensor(rank, "loss", &[9.0]);
    rank.end_setup()?;
    for step in 0..4 {
        rank.set_step(step);
        let scratch = rank.alloc("scratch", Dtype::F32, 8);
        ramp(rank, "contribute", scratch, 1.0, step as f32);
        ramp(rank, "half", stale.slice(0, 3), 1.0, 0.0);
        scale_add(rank, "blend", [scratch, stale, grads], 0.5);
        let handle = rank.all_reduce("reduce", Family::DpGradients, ALL, grads, Combine::Sum);
        rank.wait(handle);
        scale_add(rank, "update", [weights, grads, weights], 0.9);
        if step == 2 {
            step_in_place(rank, "toggle", flag.slice(1, 2), 1.0);
        }
        rank.free(scratch);
        if step == 3 {
            rank.metric("lm loss", loss);
        }
        rank.end_step()?;
    }
    Ok(())
}

/// Rank, buffer, and the ranges of its words that are read later.
type Needed<'a> = (u32, &'a str, Vec<(u32, u32)>);

fn names(live_in: &LiveIn) -> Vec<Needed<'_>> {
    let mut names = Vec::new();
    for ((rank, name, _), words) in live_in {
        names.push((*rank, name.as_str(), words.ranges.clone()));
    }
    names
}

#[test]
fn the_live_in_set_is_what_is_read_later() {
    let cluster = Cluster::new(2).options(|options| options.cuts = [0, 2, 3].into());
    let outcome = cluster.run(training);
    let live_in = &outcome.record().live_in;
    let expected = |with_flag: bool| {
        let mut all: Vec<Needed<'_>> = Vec::new();
        for rank in 0..2 {
            if with_flag {
                all.push((rank, "flag", vec![(1, 3)]));
            }
            all.push((rank, "loss", vec![(0, 1)]));
            all.push((rank, "stale", vec![(3, 8)]));
            all.push((rank, "weights", vec![(0, 8)]));
        }
        all
    };
    assert_eq!(names(&live_in[&0]), expected(true));
    assert_eq!(names(&live_in[&2]), expected(false));
    assert_eq!(names(&live_in[&3]), []);
    assert_eq!(live_in.len(), 3);
    assert_eq!(
        live_in[&0][&(1, "flag".to_string(), 0)].words[1],
        3.0f32.to_bits()
    );
}

/// The words are those of the cut: step 2's state is the checkpoint's.
#[test]
fn live_in_words_are_the_words_at_the_cut() {
    let cluster = Cluster::new(2).options(|options| {
        options.cuts = [1, 2].into();
        options.checkpoint_after = [1, 2].into();
    });
    let outcome = cluster.run(training);
    let record = outcome.record();
    for cut in [1, 2] {
        let live = &record.live_in[&cut][&(1, "weights".to_string(), 0)].words[..8];
        let saved = &record.checkpoints[&cut][&(1, Component::Model, "weights".to_string())];
        assert_eq!(live, saved.words);
    }
    assert_ne!(record.live_in[&1], record.live_in[&2]);
}

/// A hole in a write leaves the old word alive: only measuring finds that.
#[test]
fn measured_writes_make_the_set_exact() {
    let program = |rank: &mut Rank, _: &Seen| {
        let (x, y) = (tensor(rank, "x", &[7.0; 9]), tensor(rank, "y", &[0.0; 9]));
        rank.end_setup()?;
        for step in 0..2 {
            rank.set_step(step);
            rank.launch("fill", "gaps", [9, 1, 1], &[x], &[9]);
            scale_add(rank, "use", [x, y, y], 1.0);
            rank.end_step()?;
        }
        Ok(())
    };
    let ranges = |measure_writes| {
        let cluster = Cluster::new(1).options(|options| {
            options.cuts = [0].into();
            options.measure_writes = measure_writes;
        });
        let outcome = cluster.run(program);
        let live_in = &outcome.record().live_in[&0];
        live_in
            .get(&(0, "x".to_string(), 0))
            .map(|words| words.ranges.clone())
    };
    assert_eq!(ranges(false), None);
    assert_eq!(ranges(true), Some(vec![(2, 3), (5, 6), (8, 9)]));
}
