//! A pair of commands that nothing orders, turned round: the one that ran first is held back until
//! the other has run. If nothing else can run meanwhile, something orders them after all.

use crate::world::error::WorldError;
use crate::world::rank::{COMPUTE_STREAM, HOST, Park};

use super::coordinator::Coordinator;
use super::rank_state::RankState;

/// Two commands of one rank, by their places in the order in which its host issued them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reversal {
    pub rank: u32,
    /// Is held back. A collective waits for all its members, so it is held back for all.
    pub held: u32,
    /// Until this one has run.
    pub until: u32,
}

/// How a reversal went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turned {
    /// The two ran the other way round.
    Round,
    /// The second one cannot run before the first: other ranks order them.
    Ordered,
    /// One of the two was never issued.
    NotMet,
}

/// What one rank holds back.
#[derive(Debug, Default)]
pub(super) struct Hold {
    pub held: Option<u32>,
    pub until: Option<u32>,
    /// `until` has begun.
    pub until_ran: bool,
    held_met: bool,
    forced: bool,
}

impl Hold {
    pub fn of(rank: u32, reversal: Option<Reversal>) -> Hold {
        let own = reversal.filter(|reversal| reversal.rank == rank);
        Hold {
            held: own.map(|own| own.held),
            until: own.map(|own| own.until),
            ..Hold::default()
        }
    }

    /// A command of this place is at a head.
    pub fn holds(&self, ordinal: u32) -> bool {
        self.held == Some(ordinal)
    }

    /// A command of this place begins.
    pub fn begins(&mut self, ordinal: u32) {
        self.until_ran |= self.until == Some(ordinal);
    }
}

impl Coordinator<'_> {
    /// After each wave: what was held back goes on once the other has run.
    pub(super) fn release_turned(&mut self) {
        if let Some(Reversal { rank, .. }) = self.options.reverse
            && self.ranks[rank as usize].hold.until_ran
        {
            self.release_held(rank);
        }
    }

    /// Nothing can go on. What is held back may be why: then the step ends without it, where the
    /// compute stream is done, or it is let go. False when nothing is held back.
    pub(super) fn is_released(&mut self) -> Result<bool, WorldError> {
        let Some(Reversal { rank, .. }) = self.options.reverse else {
            return Ok(false);
        };
        if self.ranks[rank as usize].hold.held.is_none() {
            return Ok(false);
        }
        if self.is_between_steps() {
            let all: Vec<u32> = (0..self.world.ranks).collect();
            self.answer_all(&all)?;
            return Ok(true);
        }
        self.ranks[rank as usize].hold.forced = true;
        Ok(self.release_held(rank))
    }

    /// Every host waits for its compute stream alone, at a step's end, and that is done.
    fn is_between_steps(&self) -> bool {
        let is_over = |state: &RankState| {
            let done = |stream| state.head(stream).is_none();
            matches!(state.park, Some(Park::Step { .. })) && done(COMPUTE_STREAM) && done(HOST)
        };
        self.ranks.iter().all(is_over)
    }

    fn release_held(&mut self, rank: u32) -> bool {
        let state = &mut self.ranks[rank as usize];
        let Some(held) = state.hold.held.take() else {
            return false;
        };
        let heads = state.streams.iter();
        let heads = heads.filter_map(|(stream, queue)| Some((*stream, queue.front()?)));
        for (stream, head) in heads.filter(|(_, head)| head.ordinal == held) {
            state.hold.held_met = true;
            self.heads.appeared(rank, stream, &head.command);
        }
        self.heads.stir(rank);
        true
    }

    /// How the reversal that was asked for went.
    pub(super) fn turned(&self) -> Option<Turned> {
        let Reversal { rank, .. } = self.options.reverse?;
        let hold = &self.ranks[rank as usize].hold;
        Some(match (hold.held_met && hold.until_ran, hold.forced) {
            (true, false) => Turned::Round,
            (true, true) => Turned::Ordered,
            (false, _) => Turned::NotMet,
        })
    }
}
