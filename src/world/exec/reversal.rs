//! Pairs of commands that nothing orders, turned round: the one that ran first is held back until
//! the other has run. If nothing else can run meanwhile, something orders them after all.
//!
//! Of several pairs one is held back at a time. Where it turns out to be ordered it is let go, and
//! the next one is held back whose first command has not begun: so one run decides many.

use std::collections::BTreeMap;

use crate::world::error::WorldError;
use crate::world::rank::{COMPUTE_STREAM, HOST, Park};

use super::coordinator::Coordinator;
use super::rank_state::RankState;

/// Two commands of one rank, by their places in the order in which its host issued them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
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
    /// One of the two was never issued, or the first had begun while that of another pair was held
    /// back, or another pair was turned round before.
    Undecided,
}

/// What one rank holds back, and which commands of its pairs have begun.
#[derive(Debug, Default)]
pub(super) struct Hold {
    held: Option<u32>,
    begun: BTreeMap<u32, bool>,
    /// Commands that the host has issued.
    issued: u32,
}

impl Hold {
    pub fn of(rank: u32, pairs: &[Reversal]) -> Hold {
        let own = pairs.iter().filter(|pair| pair.rank == rank);
        Hold {
            begun: own
                .flat_map(|pair| [(pair.held, false), (pair.until, false)])
                .collect(),
            ..Hold::default()
        }
    }

    /// A command of this place is at a head.
    pub fn holds(&self, ordinal: u32) -> bool {
        self.held == Some(ordinal)
    }

    /// The host has issued a command of this place.
    pub fn issues(&mut self, ordinal: u32) {
        self.issued = self.issued.max(ordinal + 1);
    }

    /// A command of this place begins.
    pub fn begins(&mut self, ordinal: u32) {
        if let Some(begun) = self.begun.get_mut(&ordinal) {
            *begun = true;
        }
    }

    fn has_begun(&self, ordinal: u32) -> bool {
        self.begun.get(&ordinal) == Some(&true)
    }
}

/// The pairs that are turned round in a run, one after another.
#[derive(Debug, Default)]
pub(super) struct Turns {
    pairs: Vec<(Reversal, Option<Turned>)>,
    /// The rank and the command that is held back.
    current: Option<(u32, u32)>,
    /// Places of the pairs that wait for it.
    waiting: Vec<usize>,
}

impl Turns {
    /// Nothing has been issued yet.
    pub fn begin(pairs: &[Reversal], ranks: &mut [RankState]) -> Turns {
        let mut turns = Turns {
            pairs: pairs.iter().map(|pair| (*pair, None)).collect(),
            ..Turns::default()
        };
        turns.hold_next(ranks);
        turns
    }

    /// Holds the first command of the next pair back of which neither has begun.
    fn hold_next(&mut self, ranks: &mut [RankState]) -> Option<(u32, u32)> {
        let next = self.pairs.iter().find(|(pair, turned)| {
            let hold = ranks.get(pair.rank as usize).map(|state| &state.hold);
            turned.is_none() && hold.is_some_and(|hold| !hold.has_begun(pair.held))
        });
        let (Reversal { rank, held, .. }, _) = *next?;
        let places = (0..).zip(&self.pairs);
        let same = places.filter(|(_, (pair, turned))| {
            turned.is_none() && (pair.rank, pair.held) == (rank, held)
        });
        self.waiting = same.map(|(place, _)| place).collect();
        self.current = Some((rank, held));
        ranks[rank as usize].hold.held = Some(held);
        self.current
    }

    /// Whether the second command of the pair of that place has begun, and the first has not.
    fn is_round(&self, place: usize, ranks: &[RankState]) -> bool {
        let (pair, _) = self.pairs[place];
        let hold = ranks.get(pair.rank as usize).map(|state| &state.hold);
        hold.is_some_and(|hold| hold.has_begun(pair.until) && !hold.has_begun(pair.held))
    }
}

impl Coordinator<'_> {
    /// After each wave: what was held back goes on once the other has run.
    pub(super) fn release_turned(&mut self) {
        let Some((rank, held)) = self.turns.current else {
            return;
        };
        let mut waiting = self.turns.waiting.iter();
        let round = waiting.find(|place| self.turns.is_round(**place, &self.ranks));
        if let Some(place) = round.copied() {
            self.turns.pairs[place].1 = Some(Turned::Round);
            self.turns.current = None;
            self.release_held(rank, held);
        }
    }

    /// Nothing can go on. What is held back may be why: then the step ends without it, where the
    /// compute stream is done, or it is let go. False when nothing is held back.
    pub(super) fn is_released(&mut self) -> Result<bool, WorldError> {
        let Some((rank, held)) = self.turns.current else {
            return Ok(false);
        };
        if self.ranks.iter().all(is_between_steps) {
            let all: Vec<u32> = (0..self.world.ranks).collect();
            self.answer_all(&all)?;
            return Ok(true);
        }
        let state = &self.ranks[rank as usize];
        let is_blocking = state.streams.keys().any(|stream| {
            let head = state.head(*stream);
            head.is_some_and(|head| head.ordinal == held)
        });
        // Its host may go on where others wait: steps end together here, and need not elsewhere.
        let goes_on = is_between_steps(state) || matches!(state.park, Some(Park::Finished(_)));
        for place in std::mem::take(&mut self.turns.waiting) {
            let (pair, turned) = &mut self.turns.pairs[place];
            let is_issued = pair.until < state.hold.issued;
            *turned = Some(match is_blocking && (is_issued || !goes_on) {
                true => Turned::Ordered,
                false => Turned::Undecided,
            });
        }
        self.turns.current = None;
        self.release_held(rank, held);
        self.hold_next();
        Ok(true)
    }

    fn hold_next(&mut self) {
        // While one was held back, another may have been overtaken: that pair is turned round.
        let places = 0..self.turns.pairs.len();
        let mut open = places.filter(|place| self.turns.pairs[*place].1.is_none());
        if let Some(place) = open.find(|place| self.turns.is_round(*place, &self.ranks)) {
            self.turns.pairs[place].1 = Some(Turned::Round);
            return;
        }
        let Some((rank, held)) = self.turns.hold_next(&mut self.ranks) else {
            return;
        };
        let state = &self.ranks[rank as usize];
        let heads = state.streams.iter();
        let heads = heads.filter_map(|(stream, queue)| Some((*stream, queue.front()?)));
        for (stream, head) in heads.filter(|(_, head)| head.ordinal == held) {
            self.heads.withdrawn(rank, stream, &head.command);
        }
    }

    fn release_held(&mut self, rank: u32, held: u32) {
        let state = &mut self.ranks[rank as usize];
        state.hold.held = None;
        let heads = state.streams.iter();
        let heads = heads.filter_map(|(stream, queue)| Some((*stream, queue.front()?)));
        for (stream, head) in heads.filter(|(_, head)| head.ordinal == held) {
            self.heads.appeared(rank, stream, &head.command);
        }
        self.heads.stir(rank);
    }

    /// How each reversal that was asked for went.
    pub(super) fn turned(&self) -> Vec<Turned> {
        let pairs = self.turns.pairs.iter();
        let went = pairs.map(|(pair, turned)| {
            let both = match self.ranks.get(pair.rank as usize) {
                Some(state) => state.hold.has_begun(pair.held) && state.hold.has_begun(pair.until),
                None => false,
            };
            turned.filter(|_| both).unwrap_or(Turned::Undecided)
        });
        went.collect()
    }
}

/// The host waits for its compute stream alone, at a step's end, and that is done.
fn is_between_steps(state: &RankState) -> bool {
    let done = |stream| state.head(stream).is_none();
    matches!(state.park, Some(Park::Step { .. })) && done(COMPUTE_STREAM) && done(HOST)
}
