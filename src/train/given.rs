//! The optimizer's part of a step on gradients that are given: what a serial run would make of
//! what another run's ranks have summed.

use std::sync::Arc;

use crate::train::checkpoint::Checkpoint;
use crate::train::corpus::Corpus;
use crate::train::initial::Initial;
use crate::train::options::TrainOptions;
use crate::train::trainer::Trainer;
use crate::world::{Rank, RankError};

/// Gradients of one step and what they are clipped by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GivenGradients {
    pub step: u32,
    /// Bits of the flat gradients of the one rank, as its optimizer reads them.
    pub flat: Vec<u32>,
    /// Bits of norm and coefficient, which take the place of those of `flat` in the update.
    pub clip: [u32; 2],
}

impl GivenGradients {
    /// Metrics of the run: what these gradients have.
    pub const NORM: &str = "grad norm";
    pub const COEFFICIENT: &str = "clip coefficient";
}

/// The program of the one rank of a serial run: it loads `checkpoint`, and runs what a step does
/// from the optimizer on.
pub fn optimizer_program(
    options: Arc<TrainOptions>,
    corpus: Corpus,
    checkpoint: Arc<Checkpoint>,
    given: Arc<GivenGradients>,
) -> impl Fn(&mut Rank) -> Result<(), RankError> + Sync {
    let groups = options.layout.process_groups();
    move |rank: &mut Rank| {
        let (groups, state) = (groups.of_rank(rank.id), checkpoint.rank(rank.id));
        let initial = Initial::Seeded(options.seed);
        let corpus = corpus.clone();
        let mut trainer = Trainer::new(rank, &options, groups, corpus, &initial, state)?;
        rank.end_setup()?;
        trainer.step_with(rank, &given)
    }
}
