//! A rank's whole program, as the world runs it.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use crate::fault::FaultKind;
use crate::train::checkpoint::{Checkpoint, RankState};
use crate::train::corpus::Corpus;
use crate::train::initial::Initial;
use crate::train::layout::Coordinates;
use crate::train::options::TrainOptions;
use crate::train::save::Saves;
use crate::train::trainer::Trainer;
use crate::world::{Component, Rank, RankError};

/// Which part of the training a run does, and where it starts from.
#[derive(Clone, Debug)]
pub struct Run {
    pub steps: Range<u32>,
    /// A fresh process restores what is in it; the rest starts as in a fresh start.
    pub checkpoint: Option<Arc<Checkpoint>>,
    /// Steps at whose end the parameters are saved or compared: they wait for what other steps
    /// leave to the next forward. Part of the program: runs that are compared have the same.
    pub saves_after: BTreeSet<u32>,
    /// Variables of the job's environment that are to be set before communicators are made.
    pub variables: Arc<[String]>,
    /// With `async_save`.
    pub saves: Saves,
}

/// The program of every rank. `options` and `corpus` have been checked; the world's communicators
/// are `options.layout.communicators()`, in that order.
pub fn program(
    options: Arc<TrainOptions>,
    corpus: Corpus,
    initial: Initial,
    run: Run,
) -> impl Fn(&mut Rank) -> Result<(), RankError> + Sync {
    let groups = options.layout.process_groups();
    move |rank: &mut Rank| {
        let groups = groups.of_rank(rank.id);
        for variable in run.variables.iter() {
            if rank.has_fault(FaultKind::StaleFlag, variable) && rank.id == 0 {
                rank.note(set_too_late(variable));
            }
        }
        let checkpoint = run.checkpoint.as_deref();
        let state = checkpoint.and_then(|checkpoint| restored(rank, &options, checkpoint));
        let state = state.as_deref();
        let corpus = corpus.clone();
        let mut trainer = Trainer::new(rank, &options, groups, corpus, &initial, state)?;
        if run.saves.polls {
            trainer.ask_for_saves(rank);
        }
        rank.end_setup()?;
        for step in run.steps.clone() {
            trainer.step(rank, step, run.saves_after.contains(&step))?;
            if run.saves.after.contains(&step) {
                trainer.save(rank, step, run.saves.late)?;
            }
            if step + 1 < run.steps.end && trainer.exits(rank)? {
                break;
            }
        }
        trainer.finish(rank)
    }
}

/// What a report says of a variable that was set when it had no effect any more.
pub fn set_too_late(variable: &str) -> String {
    format!(
        "{variable} was set too late: after the communicators were made, which are as without it"
    )
}

/// What `rank` finds of itself in a checkpoint. Where its RNG was saved as a copy of its group's,
/// that is the first rank's.
fn restored<'a>(
    rank: &mut Rank,
    options: &TrainOptions,
    checkpoint: &'a Checkpoint,
) -> Option<Cow<'a, RankState>> {
    let mut state = Cow::Borrowed(checkpoint.rank(rank.id)?);
    let (layout, place) = (&options.layout, options.layout.coordinates(rank.id));
    let (tensor, data) = (layout.tensor_model_parallel_size, layout.data_parallel_size);
    let groups = [
        ("tp", tensor, Coordinates { tensor: 0, ..place }),
        ("dp", data, Coordinates { data: 0, ..place }),
    ];
    for (group, ranks, first) in groups {
        if ranks == 1 || !rank.has_fault(FaultKind::ReplicaRng, group) {
            continue;
        }
        let first = checkpoint.rank(layout.rank(first))?;
        for (component, name, tensor) in first.tensors() {
            if component == Component::Rng {
                state.to_mut().insert(component, name, tensor.clone());
            }
        }
    }
    Some(state)
}
