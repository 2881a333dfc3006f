//! The coordinator: waits until every rank is parked, runs waves of ready stream heads, wakes
//! whoever got what it waited for. Nothing ready while somebody waits is a deadlock or a mismatch,
//! and is reported at once, without timeouts.

use std::collections::BTreeMap;
use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender};

use crate::engine::{Engine, EngineError, ProgramId, Span};
use crate::kernel::Kernel;
use crate::numerics::Dtype;
use crate::world::command::Command;
use crate::world::error::WorldError;
use crate::world::fold::{FoldLab, FoldPrograms};
use crate::world::memory::{AccessLog, Conflict, HazardLog, Roles};
use crate::world::observer::Observer;
use crate::world::order::{NodeId, Owner};
use crate::world::rank::{GroupId, HOST, Park, Parked, RankError, Reply, Tensor};
use crate::world::site::{Phase, Site};

use super::heads::Heads;
use super::hosts::FaultLog;
use super::local::{SlotPlans, TunedPlans};
use super::planted::CommandFaults;
use super::priority::Race;
use super::rank_state::RankState;
use super::reversal::{Hold, Turns};
use super::shuffle::Shuffle;
use super::{NodeRecord, RunOptions, RunRecord, World, stall};

pub(super) struct Coordinator<'a> {
    pub world: &'a World,
    pub engine: &'a mut dyn Engine,
    pub options: &'a RunOptions,
    pub observer: &'a mut dyn Observer,
    inbox: Receiver<Parked>,
    outboxes: Vec<Sender<Reply>>,
    pub ranks: Vec<RankState>,
    pub programs: BTreeMap<Arc<str>, (ProgramId, &'a Kernel)>,
    pub fold_programs: FoldPrograms,
    /// Folds of this step so far, by communicator.
    pub group_ordinals: Vec<(u32, u32)>,
    pub replicas: BTreeMap<(GroupId, String), BTreeMap<u32, Tensor>>,
    pub record: RunRecord,
    /// Who launched what, by the engine's number of the run, while a fault may still be told.
    pub launched: BTreeMap<u64, Launched>,
    /// What was written and is being digested, with its wave.
    noted: Vec<(u32, Written)>,
    /// Waves of this step so far.
    pub wave: u32,
    hazards: HazardLog,
    roles: Roles,
    /// Accesses of ranks that are no longer followed, until they are judged.
    pub ended: Vec<(u32, AccessLog)>,
    /// How often conflicts were to be told of so far.
    moment: u64,
    /// Marks for as many words as were measured at once so far (`measure.rs`).
    pub marks: Vec<u32>,
    /// Conflicts found when a rank asked something, by moment and rank.
    untold: Vec<(u64, u32, Conflict)>,
    pub fault_log: FaultLog,
    pub command_faults: CommandFaults,
    pub shuffle: Shuffle,
    pub race: Option<Race>,
    pub heads: Heads,
    pub turns: Turns,
    pub slot_plans: SlotPlans,
    pub tuned_plans: TunedPlans,
}

/// Who is to be named where a launch of a run of the engine's goes wrong.
pub(super) enum Launched {
    /// The rank and site of each launch.
    ByRanks(Vec<(u32, Arc<Site>)>),
    /// The folds that were computed together.
    Folds { ranks: String, site: Arc<Site> },
}

/// Something a node wrote, on its way into a root.
pub(super) struct Written {
    pub rank: u32,
    pub site: Arc<Site>,
    pub fold: Option<NodeId>,
    pub dtype: Dtype,
    pub span: Span,
}

impl<'a> Coordinator<'a> {
    pub fn new(
        world: &'a World,
        engine: &'a mut dyn Engine,
        options: &'a RunOptions,
        observer: &'a mut dyn Observer,
        inbox: Receiver<Parked>,
        outboxes: Vec<Sender<Reply>>,
    ) -> Result<Self, WorldError> {
        let shards = u64::from(engine.shards());
        // Neighbours share a memory; which one depends on nothing but the rank.
        let shard_of = |rank: u32| (u64::from(rank) * shards / u64::from(world.ranks)) as u32;
        let mut ranks = (0..world.ranks)
            .map(|rank| {
                let follows = options.hazard_steps_max > 0;
                let hold = Hold::of(rank, &options.reverse);
                let state = RankState::new(engine, shard_of(rank), follows, hold);
                #[cfg(test)]
                let state = state.map(|state| state.mutated(options.mutation));
                state
            })
            .collect::<Result<Vec<_>, EngineError>>()
            .map_err(|source| at("all", "set-up", source))?;
        let fold_programs = fold_programs(world, engine)?;
        let roles = Roles::new(world.ranks);
        #[cfg(test)]
        let roles = roles.mutated(options.mutation);
        let turns = Turns::begin(&options.reverse, &mut ranks);
        Ok(Coordinator {
            world,
            engine,
            options,
            observer,
            inbox,
            outboxes,
            ranks,
            programs: BTreeMap::new(),
            fold_programs,
            group_ordinals: vec![(u32::MAX, 0); world.communicators.len()],
            replicas: BTreeMap::new(),
            record: RunRecord::default(),
            launched: BTreeMap::new(),
            noted: Vec::new(),
            wave: 0,
            hazards: HazardLog::default(),
            roles,
            ended: Vec::new(),
            moment: 0,
            marks: Vec::new(),
            untold: Vec::new(),
            fault_log: FaultLog::new(options.list_faults),
            command_faults: CommandFaults::new(&options.faults),
            shuffle: Shuffle::new(options.shuffle),
            race: options.schedule.priorities.as_ref().map(Race::new),
            heads: Heads::new(world.ranks, &world.communicators),
            turns,
            slot_plans: SlotPlans::new(),
            tuned_plans: TunedPlans::new(),
        })
    }

    /// Until every rank has finished, or the first failure.
    pub fn run(mut self) -> Result<RunRecord, WorldError> {
        let result = self.rounds();
        for outbox in &self.outboxes {
            // A rank that has finished no longer listens.
            let _ = outbox.try_send(Reply::Stop);
        }
        drop(std::mem::take(&mut self.outboxes));
        if result.is_err() {
            // What else the run that failed has asked for, or done wrong, is not the next one's.
            let _ = self.engine.noted();
            let _ = self.engine.settle();
        }
        let released = self.release();
        if let Err(error) = result {
            let error = self.blamed(error);
            return Err(self.with_hazards(error));
        }
        released?;
        self.finish_live_in();
        self.finish_joins();
        self.record.turned = self.turned();
        self.record.faults_met = self.fault_log.met;
        self.record.fault_hosts = self.fault_log.hosts;
        (self.record.hazards, self.record.hazards_beyond) = self.hazards.finish();
        self.record.memory_words = self.ranks.iter().map(|r| u64::from(r.memory.words())).sum();
        Ok(self.record)
    }

    /// Gives the run's arenas back to the engine.
    fn release(&mut self) -> Result<(), WorldError> {
        let ranks = self.ranks.iter().map(|rank| rank.memory.arena());
        for arena in ranks.chain(self.fold_programs.arenas()) {
            self.engine
                .release(arena)
                .map_err(|source| at("all", "release", source))?;
        }
        Ok(())
    }

    fn rounds(&mut self) -> Result<(), WorldError> {
        // A rank that has finished may have left work behind, which must run too.
        while self
            .ranks
            .iter()
            .any(|rank| !rank.finished || rank.park.is_some())
        {
            self.gather()?;
            while self.run_wave()? || self.run_host_wave()? {}
            self.take_digests()?;
            self.wake()?;
            self.judge_accesses();
        }
        Ok(())
    }

    /// Receives until every rank that has not finished is parked, then takes in what they sent,
    /// in the order of ranks: which thread was faster must not show anywhere.
    fn gather(&mut self) -> Result<(), WorldError> {
        let running = |rank: &&RankState| !rank.finished && rank.park.is_none();
        let awaited = self.ranks.iter().filter(running).count();
        let mut arrived: BTreeMap<u32, Parked> = BTreeMap::new();
        while arrived.len() < awaited {
            let parked = self
                .inbox
                .recv()
                .expect("a rank's thread always says how it ended");
            arrived.insert(parked.rank, parked);
        }
        for (rank, parked) in &arrived {
            if let Park::Finished(Err(error)) = &parked.park {
                return Err(failure(*rank, error));
            }
        }
        arrived
            .into_values()
            .try_for_each(|parked| self.absorb(parked))
    }

    /// One wave; false when nothing was ready.
    fn run_wave(&mut self) -> Result<bool, WorldError> {
        if self.shuffle.flips() {
            self.run_host_wave()?;
        }
        let stirred = self.heads.take_stirred();
        self.advance_tickets(&stirred)?;
        let mut written = Vec::new();
        let local = self.run_local(&stirred, &mut written)?;
        let joint = self.run_collectives(&mut written)?;
        let messages = self.run_messages(&mut written)?;
        self.release_turned();
        self.account(written)?;
        if self.options.hazard_steps_max > 0 {
            let mut touched = stirred;
            touched.extend_from_slice(self.heads.stirred());
            touched.sort_unstable();
            touched.dedup();
            touched
                .into_iter()
                .for_each(|rank| self.mark_accesses(rank));
        }
        let ran = local || joint || messages;
        self.wave += u32::from(ran);
        self.record.waves += u64::from(ran);
        Ok(ran || self.shuffle.take_delayed())
    }

    /// What hosts do themselves, after everything that could run before; false when there is
    /// nothing.
    fn run_host_wave(&mut self) -> Result<bool, WorldError> {
        let mut written = Vec::new();
        let ran = self.run_hosts(&mut written)?;
        self.release_turned();
        self.account(written)?;
        self.wave += u32::from(ran);
        self.record.waves += u64::from(ran);
        Ok(ran)
    }

    /// Records, waits and the bounds of allocations cost no wave: they run until a stream is
    /// blocked or has work at its head.
    fn advance_tickets(&mut self, stirred: &[u32]) -> Result<(), WorldError> {
        for rank in stirred {
            while self.advance_rank(*rank)? {}
        }
        Ok(())
    }

    /// One pass over a rank's streams; false when none of them moved.
    fn advance_rank(&mut self, rank: u32) -> Result<bool, WorldError> {
        let state = &mut self.ranks[rank as usize];
        let mut moved = false;
        let mut place = None;
        // The host's own come first: it had done them when it issued what follows.
        let mut next = Some(HOST);
        while let Some(stream) = next {
            if stream != HOST {
                place = Some(stream);
            }
            next = state.stream_after(place).filter(|stream| *stream != HOST);
            while state.has_free_head(stream) {
                moved = true;
                let issued = state.take_head(rank, stream, &mut self.heads);
                let issued = issued.expect("a head was seen");
                match issued.command {
                    Command::Record { ticket } => state.complete(ticket.number),
                    Command::Alloc {
                        tensor,
                        poison: Some(word),
                        ..
                    } => {
                        let words = vec![word; tensor.len as usize];
                        let written = self.engine.write(state.memory.span(tensor), &words);
                        let site = issued.site.to_string();
                        written.map_err(|source| at(&rank.to_string(), &site, source))?;
                    }
                    _ => {}
                }
            }
        }
        Ok(moved)
    }

    /// What the rank has met so far is told of before what anybody meets from now on.
    pub fn mark_accesses(&mut self, rank: u32) {
        self.moment += 1;
        if let Some(accesses) = &mut self.ranks[rank as usize].accesses {
            accesses.mark(self.moment);
        }
    }

    /// Looks for hazards in what ranks have done.
    pub fn judge_accesses(&mut self) {
        (0..self.world.ranks).for_each(|rank| self.mark_accesses(rank));
        let ended = self.ended.iter_mut().map(|(rank, log)| (*rank, log));
        let ranks = (0..).zip(&mut self.ranks);
        let kept = ranks.filter_map(|(rank, state)| Some((rank, state.accesses.as_mut()?)));
        let (ranks, mut logs): (Vec<u32>, Vec<&mut AccessLog>) = ended.chain(kept).unzip();
        let found = self.roles.judge(&mut logs).into_iter();
        let found = found.map(|(moment, place, conflict)| (moment, ranks[place], conflict));
        self.untold.extend(found);
        self.untold.sort_by_key(|(moment, ..)| *moment);
        for (_, rank, conflict) in std::mem::take(&mut self.untold) {
            self.hazards.add(rank, &conflict, &self.world.communicators);
        }
        for (_, log) in std::mem::take(&mut self.ended) {
            self.roles.release(&log);
        }
    }

    /// Whether accesses are followed and show that the rank's host knows that `ticket` is over.
    pub fn host_has(&mut self, rank: u32, ticket: u32) -> bool {
        self.mark_accesses(rank);
        let Some(log) = &mut self.ranks[rank as usize].accesses else {
            return false;
        };
        // Other ranks may have met something earlier that nobody has looked at yet.
        let found = self.roles.judge(&mut [log]).into_iter();
        let found = found.map(|(moment, _, conflict)| (moment, rank, conflict));
        self.untold.extend(found);
        self.roles.host_has(log, ticket)
    }

    /// Has what the wave wrote digested, as it is now.
    ///
    /// What is done for a checkpoint is no part of a root: a file is compared by itself.
    fn account(&mut self, mut written: Vec<Written>) -> Result<(), WorldError> {
        self.corrupt_nodes(&written)?;
        let seen = self.observer.on_ran(self.engine);
        seen.map_err(|source| at("all", "what has run", source))?;
        written.retain(|written| written.site.phase != Phase::Checkpoint);
        let spans: Vec<Span> = written.iter().map(|written| written.span).collect();
        let noted = self.engine.note(&spans);
        noted.map_err(|source| at("all", "digest", source))?;
        let wave = self.wave;
        self.noted
            .extend(written.into_iter().map(|written| (wave, written)));
        Ok(())
    }

    /// Takes the digests of all waves since the last time into the ranks' roots.
    fn take_digests(&mut self) -> Result<(), WorldError> {
        let digests = self.engine.noted();
        let digests = digests.map_err(|source| at("all", "digest", source))?;
        self.settle()?;
        assert_eq!(digests.len(), self.noted.len(), "each note is answered");
        for ((wave, written), digest) in std::mem::take(&mut self.noted).into_iter().zip(digests) {
            let state = &mut self.ranks[written.rank as usize];
            state.root = state.root.then(digest);
            self.record.nodes += 1;
            if self.options.record_nodes {
                self.record.records.push(NodeRecord {
                    rank: written.rank,
                    wave,
                    site: written.site.clone(),
                    fold: written.fold,
                    digest,
                });
            }
        }
        Ok(())
    }

    /// Waits for the engine: from here on no fault of an earlier launch can come.
    fn settle(&mut self) -> Result<(), WorldError> {
        let settled = self.engine.settle();
        settled.map_err(|source| at("all", "a wave of launches", source))?;
        self.launched.clear();
        Ok(())
    }

    /// The error with the rank and site of the launch that it is about: the engine may have told
    /// of it in a later call.
    fn blamed(&self, error: WorldError) -> WorldError {
        let WorldError::Engine { source, .. } = &error else {
            return error;
        };
        let Some(place) = source.launch() else {
            return error;
        };
        let (rank, site) = match self.launched.get(&place.run) {
            Some(Launched::ByRanks(names)) => match names.get(place.launch) {
                Some((rank, site)) => (rank.to_string(), site.to_string()),
                None => return error,
            },
            Some(Launched::Folds { ranks, site }) => (ranks.clone(), site.to_string()),
            // Of what was asked between: the caller has named that.
            None => return error,
        };
        match error {
            WorldError::Engine { source, .. } => at(&rank, &site, source),
            error => error,
        }
    }

    /// A stop of the ranks' own making, with the hazards that were met before it: one of them may
    /// be why hosts went different ways.
    fn with_hazards(mut self, mut error: WorldError) -> WorldError {
        if let WorldError::CollectiveMismatch { hazards, .. }
        | WorldError::Deadlock { hazards, .. } = &mut error
        {
            self.judge_accesses();
            *hazards = self.hazards.finish().0;
        }
        error
    }

    /// Answers every rank whose wait is over. If there is none, the world is stuck.
    fn wake(&mut self) -> Result<(), WorldError> {
        // Steps end together, so that copies are compared at one moment of all ranks.
        let together = self.ranks.iter().all(|rank| match &rank.park {
            Some(Park::Setup { .. } | Park::Step { .. }) => rank.idle(),
            _ => rank.finished,
        });
        let ready: Vec<u32> = (0..self.world.ranks)
            .filter(|rank| self.is_served(*rank, together))
            .collect();
        let stuck = self
            .ranks
            .iter()
            .any(|rank| rank.park.is_some() || !rank.idle());
        if ready.is_empty() && stuck {
            if self.deny_queries() {
                return self.wake();
            }
            return match self.is_released()? {
                true => Ok(()),
                false => Err(stall::report(self)),
            };
        }
        self.answer_all(&ready)
    }

    /// Lets hosts go on.
    pub fn answer_all(&mut self, ready: &[u32]) -> Result<(), WorldError> {
        self.boundaries(ready)?;
        for rank in ready {
            let state = &mut self.ranks[*rank as usize];
            let reply = match state.park.take() {
                Some(Park::Finished(_)) | None => continue,
                Some(Park::Read | Park::Host) => {
                    Reply::Words(state.read_words.take().unwrap_or_default())
                }
                Some(Park::Setup { .. } | Park::Step { .. }) => {
                    if state.idle() {
                        state.forget_tickets();
                    }
                    Reply::Go
                }
            };
            if self.outboxes[*rank as usize].send(reply).is_err() {
                return Err(WorldError::RankFailed {
                    rank: *rank,
                    message: "its thread ended without saying why".to_string(),
                });
            }
        }
        Ok(())
    }

    fn is_served(&self, rank: u32, together: bool) -> bool {
        let state = &self.ranks[rank as usize];
        match &state.park {
            Some(Park::Read) => state.read_words.is_some(),
            Some(Park::Host) => state.head(HOST).is_none(),
            Some(Park::Setup { .. } | Park::Step { .. }) => together,
            Some(Park::Finished(_)) => state.idle(),
            None => false,
        }
    }

    /// The command that `rank` has begun reads `tensor`.
    pub fn on_read(&mut self, rank: u32, tensor: Tensor) {
        self.ranks[rank as usize].on_read(tensor);
    }

    /// The command that `rank` has begun writes all of `tensor`.
    pub fn on_write(&mut self, rank: u32, tensor: Tensor) {
        self.ranks[rank as usize].on_write(tensor);
    }

    /// The id of the next fold of `owner` in `step`.
    pub fn next_fold(&mut self, owner: Owner, step: u32) -> NodeId {
        let counter = match owner {
            Owner::Group(group) => &mut self.group_ordinals[group as usize],
            Owner::Rank(rank) => {
                let state = &mut self.ranks[rank as usize];
                if state.step != step {
                    (state.step, state.fold_ordinal) = (step, 0);
                }
                state.fold_ordinal += 1;
                return NodeId {
                    step,
                    owner,
                    ordinal: state.fold_ordinal - 1,
                };
            }
        };
        if counter.0 != step {
            *counter = (step, 0);
        }
        counter.1 += 1;
        NodeId {
            step,
            owner,
            ordinal: counter.1 - 1,
        }
    }

    pub fn lab(&mut self) -> FoldLab<'_> {
        FoldLab {
            engine: self.engine,
            programs: self.fold_programs.clone(),
        }
    }

    /// The program of a kernel; loaded at first use.
    pub fn program(&mut self, kernel: &Arc<str>) -> Result<(ProgramId, &'a Kernel), ProgramError> {
        if let Some(program) = self.programs.get(kernel) {
            return Ok(*program);
        }
        let world = self.world;
        let linked = world
            .registry
            .get(kernel)
            .map_err(|error| ProgramError::NoKernel(error.to_string()))?;
        let program = self.engine.load(linked).map_err(ProgramError::Refused)?;
        self.programs.insert(kernel.clone(), (program, linked));
        Ok((program, linked))
    }
}

/// Why a kernel cannot be launched.
pub(super) enum ProgramError {
    NoKernel(String),
    /// The engine has no room for it, or its compiler refuses it.
    Refused(EngineError),
}

fn fold_programs(world: &World, engine: &mut dyn Engine) -> Result<FoldPrograms, WorldError> {
    let kernel = |name: &str| {
        let kernel = world.registry.get(name);
        kernel.map_err(|error| WorldError::BadKernel {
            kernel: name.to_string(),
            message: error.to_string(),
        })
    };
    FoldPrograms::new(engine, kernel("fold")?, kernel("fold_segments")?)
        .map_err(|source| at("all", "folds", source))
}

pub(super) fn at(rank: &str, site: &str, source: EngineError) -> WorldError {
    WorldError::Engine {
        rank: rank.to_string(),
        site: site.to_string(),
        source,
    }
}

fn failure(rank: u32, error: &RankError) -> WorldError {
    match error {
        RankError::Panicked(message) => WorldError::RankPanicked {
            rank,
            message: message.clone(),
        },
        other => WorldError::RankFailed {
            rank,
            message: other.to_string(),
        },
    }
}
