//! Exits by the clock, as Megatron-LM's `--exit-duration-in-mins` makes them: after a step each
//! rank looks at its own clock, all agree by a maximum, and the job ends after that step if the
//! time of any rank is over (training.py, `checkpoint_and_decide_exit`). Which step that is, is
//! free.

use crate::fault::FaultKind;
use crate::numerics::Dtype;
use crate::train::options::TrainOptions;
use crate::world::{GroupId, Phase, Rank, RankError, Tensor};

/// The clock's name in reports, in tokens and in `[fault]`.
const EXIT_DURATION: &str = "exit_duration";
/// Words in which a rank says that its time is over.
const OVER_WORDS: u32 = 4;

/// How a rank finds out whether to go on.
#[derive(Clone, Copy, Debug)]
pub struct Exit {
    world: GroupId,
    own: Tensor,
    all: Tensor,
}

impl Exit {
    /// `world` is the group of all ranks; none where no clock is asked.
    pub fn allocate(rank: &mut Rank, options: &TrainOptions, world: GroupId) -> Option<Exit> {
        let ranks = options.layout.world_size();
        options.exits_by_clock.then(|| Exit {
            world,
            own: rank.alloc("exit_own", Dtype::U32, OVER_WORDS),
            all: rank.alloc("exit_all", Dtype::U32, ranks * OVER_WORDS),
        })
    }

    /// After a step that is not the last one: whether the process ends here.
    ///
    /// What ranks agree on is whether anyone's time is over, whoever's it is: so that one rank's
    /// answer stands for all, and the others' are no choices of their own. Where each goes by its
    /// own, each is one.
    pub fn is_due(&self, rank: &mut Rank) -> Result<bool, RankError> {
        rank.set_phase(Phase::Checkpoint);
        rank.set_microbatch(None);
        rank.module("exit", |rank| {
            let is_alone = rank.has_fault(FaultKind::OwnClock, EXIT_DURATION);
            let stands_for_all = rank.id == 0;
            let is_over = !rank.clock("clock", EXIT_DURATION, is_alone || stands_for_all)?;
            if is_alone {
                return Ok(is_over);
            }
            rank.upload("over", self.own, &[u32::from(is_over); OVER_WORDS as usize]);
            // The maximum that Megatron-LM's ranks take of what these gather.
            let handle = rank.all_gather("agree", self.world, self.own, self.all);
            rank.wait(handle);
            let all = rank.read("agreed", self.all)?;
            Ok(all.contains(&1))
        })
    }
}
