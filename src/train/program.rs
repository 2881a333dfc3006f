//! A rank's whole program, as the world runs it.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use crate::train::checkpoint::Checkpoint;
use crate::train::corpus::Corpus;
use crate::train::initial::Initial;
use crate::train::options::TrainOptions;
use crate::train::trainer::Trainer;
use crate::world::{Rank, RankError};

/// Which part of the training a run does, and where it starts from.
#[derive(Clone, Debug)]
pub struct Run {
    pub steps: Range<u32>,
    /// A fresh process restores what is in it; the rest starts as in a fresh start.
    pub checkpoint: Option<Arc<Checkpoint>>,
    /// Steps at whose end the parameters are saved or compared: they wait for what other steps leave
    /// to the next forward. Part of the program: runs that are compared have the same.
    pub saves_after: BTreeSet<u32>,
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
        let state = run
            .checkpoint
            .as_deref()
            .and_then(|checkpoint| checkpoint.rank(rank.id));
        let corpus = corpus.clone();
        let mut trainer = Trainer::new(rank, &options, groups, corpus, &initial, state)?;
        rank.end_setup()?;
        for step in run.steps.clone() {
            trainer.step(rank, step, run.saves_after.contains(&step))?;
        }
        Ok(())
    }
}
