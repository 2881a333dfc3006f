//! Runs a program on virtual ranks: rank threads append commands, one coordinator executes them in
//! waves.

mod boundary;
mod collective;
mod coordinator;
mod corruption;
mod heads;
mod host;
mod hosts;
mod intake;
mod local;
mod measure;
mod planted;
mod priority;
mod protection;
mod rank_state;
mod recall;
mod reversal;
mod shuffle;
mod stall;
mod thread;

pub(crate) use thread::STACK_BYTES;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::engine::Engine;
use crate::fault::{BitFlip, Fault, FaultKind};
use crate::kernel::Registry;
use crate::numerics::{Digest, Dtype};
use crate::world::error::WorldError;
use crate::world::fold::FoldFault;
use crate::world::memory::{Hazard, LiveIn};
use crate::world::observer::Observer;
use crate::world::order::{NodeId, PlanSource, QueryId, Schedule};
use crate::world::rank::{Communicator, Component, GroupId, MemoryOptions, Rank, RankError};
use crate::world::site::{Name, Site};

pub use hosts::FaultHost;
pub use reversal::{Reversal, Turned};

/// The most ranks a world can have.
pub const RANKS_MAX: u32 = 65_536;

/// A rank's whole program. Every rank runs the same one and asks `Rank::id` who it is.
pub type Program<'a> = dyn Fn(&mut Rank) -> Result<(), RankError> + Sync + 'a;

/// A virtual cluster: what does not change from run to run.
pub struct World {
    pub ranks: u32,
    pub communicators: Arc<[Communicator]>,
    pub registry: Arc<Registry>,
    pub plans: Arc<dyn PlanSource>,
}

/// One run of the world.
#[derive(Clone, Debug, Default)]
pub struct RunOptions {
    pub schedule: Schedule,
    pub memory: MemoryOptions,
    /// Ranks start in descending order.
    pub start_descending: bool,
    /// The most launches that one engine call gets; 0 means a whole wave.
    pub batch_launches_max: usize,
    pub faults: Vec<PlantedFault>,
    /// Keeps a list of every place that a named fault could strike.
    pub list_faults: bool,
    /// Draws the order of what is ready, and what is late.
    pub shuffle: Option<u64>,
    /// Turns pairs of commands round, one after another, until one can be.
    pub reverse: Vec<Reversal>,
    /// Folds that become arrival-order folds: a planted race.
    pub arrival_at: BTreeSet<NodeId>,
    /// Keeps a record of every node, to name the first that differs.
    pub record_nodes: bool,
    /// Keeps a digest of every buffer as each step leaves it.
    pub record_buffers: bool,
    /// Steps at whose end the persisted state is kept; 0 is the end of set-up.
    pub checkpoint_after: BTreeSet<u32>,
    /// The steps after which the live-in set is measured.
    pub cuts: BTreeSet<u32>,
    /// Hazards are looked for in set-up and in the first that many steps; 0 means not at all.
    pub hazard_steps_max: u32,
    /// Measures what launches write while hazards or live-in sets are followed: a kernel that
    /// leaves words of a write-only operand alone is not believed to have written them. Without
    /// this, such an operand counts as written whole.
    pub measure_writes: bool,
    /// Background writers of checkpoints begin as late as the program lets them.
    pub late_writes: bool,
    /// Keeps every buffer's words, and the persisted state, as they are when set-up ends.
    pub keep_setup: bool,
    /// What is wrong with the world itself.
    #[cfg(test)]
    pub(crate) mutation: Option<crate::world::memory::Mutation>,
}

/// A fault to plant: of the scenario, by name, or for the mutation score.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlantedFault {
    /// Every command, wait or buffer of that name.
    Named(Fault),
    /// One bit, once.
    Flip(BitFlip),
    Fold {
        at: NodeId,
        fault: FoldFault,
    },
    /// One bit of a persisted tensor flips on one rank when a step has ended.
    State {
        after_step: u32,
        rank: u32,
        component: Component,
        name: String,
    },
    // Those below count the commands of the step that are not in `Phase::Setup`, from 0.
    /// The nth wait for a collective on the rank's compute stream is left out.
    DropWait {
        rank: u32,
        step: u32,
        nth: u32,
    },
    /// The nth launch never happens: what it would have written keeps its old words.
    SkipLaunch {
        rank: u32,
        step: u32,
        nth: u32,
    },
    /// The rank calls its nth collective of the group with one element fewer.
    MismatchCount {
        group: GroupId,
        rank: u32,
        step: u32,
        nth: u32,
    },
    /// The rank's nth collective of the group never happens; those who wait for it go on.
    MissingCall {
        group: GroupId,
        rank: u32,
        step: u32,
        nth: u32,
    },
    /// The nth copy of this name never happens.
    SkipCopy {
        rank: u32,
        step: u32,
        op: String,
        nth: u32,
    },
    /// The nth launch sees its last operand one element shorter.
    WrongKernelExtent {
        rank: u32,
        step: u32,
        nth: u32,
    },
}

/// A persisted tensor's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateTensor {
    pub dtype: Dtype,
    pub words: Vec<u32>,
}

/// The persisted state of all ranks, by (rank, component, name).
pub type State = BTreeMap<(u32, Component, String), StateTensor>;

/// What one node computed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRecord {
    pub rank: u32,
    pub wave: u32,
    pub site: Arc<Site>,
    /// `None` for nodes that are not folds.
    pub fold: Option<NodeId>,
    pub digest: Digest,
}

/// Copies that should agree and do not: of two ranks, or of one rank's forward and what it computed
/// again in the backward.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drift {
    /// `None` at the end of set-up.
    pub step: Option<u32>,
    pub group: String,
    pub name: String,
    /// Twice the same rank for a recomputation.
    pub ranks: (u32, u32),
    /// Of a recomputation.
    pub microbatch: Option<u32>,
}

impl std::fmt::Display for Drift {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ((a, b), name) = (self.ranks, &self.name);
        match (self.step, self.microbatch) {
            (Some(step), Some(microbatch)) => write!(
                f,
                "in step {step}, microbatch {microbatch}, `{name}` differs on rank {a} between the \
                 forward and its recomputation"
            ),
            (Some(step), None) => {
                let group = &self.group;
                write!(
                    f,
                    "after step {step}, `{name}` differs between ranks {a} and {b} of {group}"
                )
            }
            (None, _) => {
                let group = &self.group;
                write!(
                    f,
                    "at start, `{name}` differs between ranks {a} and {b} of {group}"
                )
            }
        }
    }
}

/// A non-blocking question that a host asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueryPoint {
    pub id: QueryId,
    pub site: Arc<Site>,
    /// The edge of what it asked about.
    pub edge: Name,
    pub ready: bool,
    /// The other answer could have been given, too.
    pub open: bool,
    /// The schedule says *not ready*, where *ready* may have been the answer.
    pub denied: bool,
    /// It asked its own clock whether time is left; *not ready* is that none is.
    pub is_clock: bool,
}

/// What background writers have written of the state after one step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SavedFile {
    /// The iteration that the tracker names, by the rank that said so.
    pub iterations: BTreeMap<u32, u32>,
    pub state: State,
}

/// What one run left behind.
#[derive(Clone, Debug, Default)]
pub struct RunRecord {
    /// One root for each (step, rank): a digest chain over everything the rank's nodes wrote.
    pub roots: BTreeMap<(u32, u32), Digest>,
    /// Declared scalars by (step, name), from the lowest rank that declared one.
    pub metrics: BTreeMap<(u32, String), f32>,
    pub nodes: u64,
    pub folds: u64,
    pub waves: u64,
    pub records: Vec<NodeRecord>,
    /// By step, rank, name and occurrence, where that was asked for.
    pub buffers: BTreeMap<(u32, u32, String, u32), Digest>,
    /// Replicated tensors compared, and those that differed.
    pub replicas_compared: u64,
    pub drifts: Vec<Drift>,
    /// Tensors that were computed again and compared with the first time.
    pub recomputed: u64,
    pub checkpoints: BTreeMap<u32, State>,
    /// Checkpoints of background writers, by the step that each was asked for after.
    pub files: BTreeMap<u32, SavedFile>,
    /// The live-in set of each cut.
    pub live_in: BTreeMap<u32, LiveIn>,
    /// Unordered accesses and reads of unwritten words, each pair of places once.
    pub hazards: Vec<Hazard>,
    /// Occurrences of further hazards that were not kept.
    pub hazards_beyond: u64,
    /// Faults of `RunOptions::faults` that found their node, command or state.
    pub faults_planted: u32,
    /// How often each named fault struck.
    pub faults_met: BTreeMap<Fault, u64>,
    /// Bits that have flipped.
    pub flips_met: BTreeSet<BitFlip>,
    /// Bits that the place's type has not.
    pub flips_unheld: BTreeSet<BitFlip>,
    /// Every place that a named fault could strike, where that was asked for.
    pub fault_hosts: BTreeMap<(FaultKind, String), FaultHost>,
    pub queries: Vec<QueryPoint>,
    /// Communicators that met in a collective, and ranks between which a message went.
    pub groups_met: BTreeSet<GroupId>,
    pub messages_met: BTreeSet<(u32, u32)>,
    /// How each of `RunOptions::reverse` went.
    pub turned: Vec<Turned>,
    /// Arrival orders of `RunOptions::schedule` that found their fold.
    pub arrivals_met: u32,
    /// Every buffer at the end of set-up, by (rank, name, occurrence).
    pub setup: BTreeMap<(u32, String, u32), Vec<u32>>,
    /// The persisted state at the end of set-up.
    pub setup_state: State,
    /// Components that buffers hold parts of, as declared when set-up ended.
    pub setup_components: BTreeMap<(u32, String, u32), BTreeSet<Component>>,
    pub notes: Vec<String>,
    pub notes_beyond: u64,
    /// Words of all ranks' memory at the end.
    pub memory_words: u64,
    /// The most that each rank held at once on its device, in bytes of the job's own types.
    pub peak_bytes: BTreeMap<u32, u64>,
}

impl RunRecord {
    /// The roots of all ranks and steps as one digest.
    pub fn root(&self) -> Digest {
        self.roots
            .values()
            .fold(Digest::default(), |all, root| all.then(*root))
    }
}

impl World {
    /// Runs `program` on every rank until all have returned.
    ///
    /// # Errors
    /// The first failure of a rank, of the engine, or of the world: a collective that does not
    /// match, a deadlock, a canary that changed. All rank threads have ended when this returns.
    pub fn run(
        &self,
        engine: &mut dyn Engine,
        options: &RunOptions,
        program: &Program<'_>,
        observer: &mut dyn Observer,
    ) -> Result<RunRecord, WorldError> {
        assert!(
            self.ranks > 0 && self.ranks <= RANKS_MAX,
            "{} ranks",
            self.ranks
        );
        thread::run(self, engine, options, program, observer)
    }
}
