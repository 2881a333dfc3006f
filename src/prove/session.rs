//! A scenario made ready to run: its world, its training program, and an engine.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::diagnostic::Diagnostic;
use crate::engine::self_test::SelfTest;
use crate::engine::{Engine, EngineError, EngineIdentity};
use crate::fault::{BitFlip, Fault, FaultKind};
use crate::kernel::{KernelError, Registry};
use crate::numerics::Digest;
use crate::plan::{Backend, Environment, EnvironmentError};
use crate::prove::check::CheckOptions;
use crate::prove::faults::Unmet;
use crate::prove::full_size::FullSizeCounts;
use crate::prove::plans::AllocationPlans;
use crate::prove::stop::Stop;
use crate::prove::sweep::SweepOptions;
use crate::prove::token::TokenError;
use crate::prove::twins::Twins;
use crate::prove::{memory, room};
use crate::recipe::{DistributedBackend, Recipe, ReshardLayout};
use crate::scenario::{AllocationFile, Data, Free, Scenario};
use crate::topology::{Allocation, Topology};
use crate::trace::native::RecordingError;
use crate::train::{
    BUILT_IN_TEXT, Checkpoint, CheckpointError, CommunicatorKind, Corpus, CorpusError,
    GivenGradients, Initial, OptionsError, Run, Saves, TorchBuckets, TrainOptions,
    optimizer_program, program,
};
use crate::world::{
    Communicator, GroupId, Observer, PlantedFault, RunOptions, RunRecord, Unobserved, World,
    WorldError,
};

/// Rounded additions that the ladder may spend on one element.
const ELEMENT_BUDGET: u64 = 1 << 12;

/// GPUs of a host that no allocation file describes: a DGX.
const GPUS_PER_HOST: u32 = 8;

/// Why a check could not be carried out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckError {
    #[error(transparent)]
    Environment(#[from] EnvironmentError),
    #[error(transparent)]
    Options(#[from] OptionsError),
    #[error(transparent)]
    Corpus(#[from] CorpusError),
    #[error(transparent)]
    Kernel(#[from] KernelError),
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error(transparent)]
    World(#[from] WorldError),
    /// A collective mismatch or a deadlock: a verdict, once it has come to the check itself.
    #[error("{}", .0.what)]
    Stopped(Box<Stop>),
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    #[error(transparent)]
    Token(#[from] TokenError),
    #[error("{}", told(.0))]
    UnmetFaults(Vec<Unmet>),
    /// The run cannot be recorded.
    #[error(transparent)]
    Recording(#[from] RecordingError),
    #[error("{0}")]
    Input(String),
    /// A rank that needs more memory than the engine gives one.
    #[error("{}", .0.message)]
    TooLarge(Box<Diagnostic>),
    #[error("internal: {0}")]
    Internal(String),
}

fn told(unmet: &[Unmet]) -> String {
    let told: Vec<String> = unmet.iter().map(ToString::to_string).collect();
    told.join("; ")
}

/// An engine that sessions of changed scenarios use, too, one run at a time: every run gives back
/// what it took.
#[derive(Clone)]
struct SharedEngine(Arc<Mutex<Box<dyn Engine>>>);

impl SharedEngine {
    fn open(how: &CheckOptions, scenario: &Scenario) -> Result<SharedEngine, EngineError> {
        let ranks = memory::ranks_most(scenario) as usize;
        let opened = how.engine.open_for(how.workers, ranks)?;
        Ok(SharedEngine(Arc::new(Mutex::new(opened))))
    }

    /// An engine that has room for the scenario, opened and tested where none is known yet.
    fn tested(
        scenario: &Scenario,
        how: &CheckOptions,
        known: Option<(SharedEngine, SelfTest)>,
        registry: &Registry,
    ) -> Result<(SharedEngine, SelfTest), CheckError> {
        if let Some((engine, self_test)) = known {
            room::of_arenas(scenario, engine.lock().as_ref())?;
            return Ok((engine, self_test));
        }
        let engine = SharedEngine::open(how, scenario)?;
        room::of_arenas(scenario, engine.lock().as_ref())?;
        let self_test = SelfTest::run(engine.lock().as_mut(), registry)?;
        Ok((engine, self_test))
    }

    /// Alone with the engine. A run that panicked has ended the check; nothing is asked after it.
    fn lock(&self) -> MutexGuard<'_, Box<dyn Engine>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Everything that runs of one scenario share.
pub struct Session {
    pub scenario: Scenario,
    pub options: Arc<TrainOptions>,
    /// What the communicators were made with.
    pub environment: Environment,
    /// Variables of the recipe that were set too late for them.
    pub late: BTreeSet<String>,
    pub allocations: Vec<Allocation>,
    pub registry: Arc<Registry>,
    pub data_hash: Digest,
    world: World,
    kinds: Vec<CommunicatorKind>,
    /// Plans are those of the real job's buffers, not of the small ones.
    pub plans_at_full_size: bool,
    corpus: Corpus,
    engine: SharedEngine,
    /// What the engine's arithmetic gave on expressions that compilers rewrite.
    pub self_test: SelfTest,
    how: CheckOptions,
    /// The scenario's faults that some run has met.
    pub(super) faults_met: BTreeSet<Fault>,
    pub(super) flips_met: BTreeSet<BitFlip>,
    pub(super) flips_unheld: BTreeSet<BitFlip>,
    /// Runs in the training program's place.
    #[cfg(test)]
    pub(super) stand_in: Option<StandIn>,
}

/// A rank's program, of a test.
#[cfg(test)]
pub(super) type StandIn = Box<crate::world::Program<'static>>;

impl Session {
    /// # Errors
    /// A scenario that cannot be run, or an engine that is not there.
    pub fn new(scenario: Scenario, how: &CheckOptions) -> Result<Session, CheckError> {
        Session::on(scenario, how, None)
    }

    /// Another scenario on the same engine, which is neither opened nor tested again.
    ///
    /// # Errors
    /// As [`Session::new`].
    pub fn changed(&self, scenario: Scenario) -> Result<Session, CheckError> {
        let known = (self.engine.clone(), self.self_test.clone());
        Session::on(scenario, &self.how, Some(known))
    }

    fn on(
        scenario: Scenario,
        how: &CheckOptions,
        known: Option<(SharedEngine, SelfTest)>,
    ) -> Result<Session, CheckError> {
        let options = TrainOptions::from(&scenario.recipe);
        options.check()?;
        let late = set_late(&scenario)?;
        let variables = scenario.recipe.env.iter();
        let variables = variables.filter(|(name, _)| !late.contains(*name));
        let environment =
            Environment::parse(variables.map(|(name, value)| (name.as_str(), value.as_str())))?;
        let allocations = allocations(&scenario);
        if scenario.free.contains(&Free::Placement) {
            refuse_equal(&allocations)?;
        }
        let kinds = options.layout.communicator_kinds();
        let communicators: Arc<[Communicator]> = options.layout.communicators().into();
        let varying = match scenario.free.contains(&Free::Placement) {
            true => &allocations[..],
            false => &allocations[..1],
        };
        let torch = TorchBuckets::of(&options);
        // Buckets of a full-size model are Megatron's: torch's stand for themselves.
        let twins = Twins::of(&scenario, &options).filter(|_| torch.is_none());
        let plans_at_full_size = twins.is_some();
        let plans = AllocationPlans::new(varying, &environment, communicators.clone(), twins);
        let backend = match scenario.recipe.distributed_backend {
            DistributedBackend::Nccl => Backend::Nccl,
            DistributedBackend::Gloo => Backend::Gloo,
        };
        let plans = plans.of_torch(backend, torch);
        let registry = Arc::new(Registry::new()?);
        let bytes: Arc<[u8]> = match &scenario.data {
            Data::BuiltIn => BUILT_IN_TEXT.as_bytes().into(),
            Data::File { bytes, .. } => bytes.clone(),
        };
        let corpus = Corpus::Bytes(bytes.clone());
        corpus.check(options.model.seq_length, options.model.padded_vocab_size)?;
        let (engine, self_test) = SharedEngine::tested(&scenario, how, known, &registry)?;
        Ok(Session {
            world: World {
                ranks: options.layout.world_size(),
                communicators,
                registry: registry.clone(),
                plans: Arc::new(plans),
            },
            data_hash: Digest::of_bytes(&bytes),
            corpus,
            options: Arc::new(options),
            engine,
            self_test,
            how: how.clone(),
            faults_met: BTreeSet::new(),
            flips_met: BTreeSet::new(),
            flips_unheld: BTreeSet::new(),
            #[cfg(test)]
            stand_in: None,
            scenario,
            environment,
            late,
            allocations,
            registry,
            kinds,
            plans_at_full_size,
        })
    }

    /// The same job on another layout of its ranks. It stands for the real job on that layout,
    /// where that divides.
    ///
    /// # Errors
    /// A layout that the recipe's rules or the training program refuse.
    pub fn resharded(&self, layout: ReshardLayout) -> Result<Session, CheckError> {
        let mut scenario = self.scenario.clone();
        if scenario.recipe.data_parallel_random_init {
            return Err(CheckError::Input(format!(
                "{layout}: data-parallel ranks have RNG states of their own \
                 (data_parallel_random_init), which are not carried to another layout"
            )));
        }
        let own = scenario.recipe.own_layout();
        scenario.recipe = scenario.recipe.resharded(layout).map_err(|findings| {
            let first = findings.first().map(|finding| finding.message.clone());
            CheckError::Input(format!("{layout}: {}", first.unwrap_or_default()))
        })?;
        let full = scenario.full_size;
        scenario.full_size = full.and_then(|full| full.resharded(own, layout));
        self.changed(scenario)
    }

    /// The same job on this allocation, and on no other.
    ///
    /// # Errors
    /// As [`Session::changed`].
    pub fn moved(&self, allocation: &AllocationFile) -> Result<Session, CheckError> {
        self.changed(Scenario {
            allocations: vec![allocation.clone()],
            free: BTreeSet::new(),
            ..self.scenario.clone()
        })
    }

    pub fn ranks(&self) -> u32 {
        self.world.ranks
    }

    /// Steps are numbered from 1, as Megatron numbers iterations.
    pub fn steps(&self) -> Range<u32> {
        1..self.scenario.steps + 1
    }

    /// BLAKE3 over what decides bits besides the scenario: kernels, engine, the built-in text.
    pub fn build_hash(&self) -> [u8; 32] {
        let identity = serde_json::to_vec(&self.engine_identity().versions);
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.registry.hash());
        hasher.update(&identity.expect("versions have a JSON form"));
        hasher.update(&self.data_hash.0);
        *hasher.finalize().as_bytes()
    }

    /// What runs the kernels: strict only if its self-test found nothing either.
    pub fn engine_identity(&self) -> EngineIdentity {
        let mut identity = self.engine.lock().identity();
        identity.strict &= self.self_test.strict();
        identity
    }

    pub fn group_count(&self) -> usize {
        self.world.communicators.len()
    }

    /// Global ranks of a communicator, in its order.
    pub fn group_ranks(&self, group: GroupId) -> &[u32] {
        &self.world.communicators[group.0 as usize].ranks
    }

    pub fn group_name(&self, group: u32) -> &str {
        &self.world.communicators[group as usize].name
    }

    /// Runs the given steps, with the scenario's faults; `checkpoint` is what a fresh process loads
    /// first.
    pub fn run(
        &mut self,
        options: &RunOptions,
        steps: Range<u32>,
        checkpoint: Option<Arc<Checkpoint>>,
        observer: &mut dyn Observer,
    ) -> Result<RunRecord, WorldError> {
        let initial = Initial::Seeded(self.options.seed);
        let run = Run {
            steps,
            checkpoint,
            saves_after: memory::states_kept(&self.scenario),
            saves: Saves {
                after: memory::background_saves(&self.scenario),
                late: options.late_writes,
                polls: self.scenario.checkpoint.polls,
            },
            variables: self.scenario.recipe.env.keys().cloned().collect(),
        };
        let program = program(self.options.clone(), self.corpus.clone(), initial, run);
        let named = self.scenario.faults.named.iter().cloned();
        let mut options = options.clone();
        options.faults.extend(named.map(PlantedFault::Named));
        let program: &crate::world::Program<'_> = &program;
        #[cfg(test)]
        let program = match &self.stand_in {
            Some(stand_in) => stand_in.as_ref(),
            None => program,
        };
        let record = {
            let mut engine = self.engine.lock();
            self.world
                .run(engine.as_mut(), &options, program, observer)?
        };
        self.faults_met.extend(record.faults_met.keys().cloned());
        self.flips_met.extend(record.flips_met.iter().cloned());
        self.flips_unheld
            .extend(record.flips_unheld.iter().cloned());
        Ok(record)
    }

    /// A serial session's optimizer on gradients that are given; `checkpoint` is loaded first.
    ///
    /// # Errors
    /// Whatever stops the run.
    pub(super) fn run_given(
        &mut self,
        options: &RunOptions,
        checkpoint: Checkpoint,
        given: GivenGradients,
    ) -> Result<RunRecord, WorldError> {
        let (train, corpus) = (self.options.clone(), self.corpus.clone());
        let program = optimizer_program(train, corpus, Arc::new(checkpoint), Arc::new(given));
        let mut engine = self.engine.lock();
        self.world
            .run(engine.as_mut(), options, &program, &mut Unobserved)
    }

    /// What a machine does to the reference run, and to no other.
    pub fn corruption(&self) -> Vec<PlantedFault> {
        let flips = self.scenario.faults.flips.iter().cloned();
        flips.map(PlantedFault::Flip).collect()
    }

    /// A run that nothing watches.
    pub fn plain_run(
        &mut self,
        options: &RunOptions,
        steps: Range<u32>,
    ) -> Result<RunRecord, WorldError> {
        self.run(options, steps, None, &mut Unobserved)
    }

    /// Another engine with this number of worker threads, for the second run.
    pub fn set_workers(&mut self, workers: usize) -> Result<(), CheckError> {
        self.how.workers = workers;
        self.engine = SharedEngine::open(&self.how, &self.scenario)?;
        Ok(())
    }

    /// Whether nothing that a run of `other` reads is another than here: variables that nothing
    /// reads, and hosts of other names, change none.
    pub fn runs_as(&self, other: &Session) -> bool {
        let but_variables = |recipe: &Recipe| Recipe {
            env: BTreeMap::new(),
            ..recipe.clone()
        };
        let recipes = [self, other].map(|session| but_variables(&session.scenario.recipe));
        let places = (self.allocations.first(), other.allocations.first());
        recipes[0] == recipes[1]
            && self.environment == other.environment
            && places.0.zip(places.1).is_some_and(|(a, b)| are_alike(a, b))
    }

    /// Runs of other layouts, sizes or places are laid beside this one's.
    fn is_compared_with_others(&self) -> bool {
        let scenario = &self.scenario;
        let others = !scenario.checkpoint.reshard.is_empty() || !scenario.topo.is_empty();
        others || scenario.resumes_elsewhere()
    }

    pub fn sweep_options(&self) -> SweepOptions {
        SweepOptions {
            seed: self.scenario.seed,
            element_budget: ELEMENT_BUDGET,
            groups: self
                .world
                .communicators
                .iter()
                .map(|c| c.name.clone())
                .collect(),
            full_size: Arc::new(FullSizeCounts::of(&self.scenario, self.kinds.clone())),
            // Small buffers that have the orders of large ones need not be asked about those.
            plans: match self.plans_at_full_size {
                true => None,
                false => Some(self.world.plans.clone()),
            },
            sums: match self.is_compared_with_others() {
                false => None,
                true => Some(memory::states_kept(&self.scenario)),
            },
        }
    }
}

/// Variables that a fault sets when the communicators have been made.
fn set_late(scenario: &Scenario) -> Result<BTreeSet<String>, CheckError> {
    let faults = scenario.faults.named.iter();
    let stale = faults.filter(|fault| fault.kind == FaultKind::StaleFlag);
    let stale = stale.filter(|fault| scenario.recipe.env.contains_key(&fault.at));
    let mut late = BTreeSet::new();
    for fault in stale {
        if fault.rank.is_some() || fault.step.is_some() {
            return Err(CheckError::Input(format!(
                "{fault}: communicators are made once, by all ranks: write the name alone"
            )));
        }
        late.insert(fault.at.clone());
    }
    Ok(late)
}

/// The allocations of a scenario; hosts of eight GPUs in rank order where it names none.
fn allocations(scenario: &Scenario) -> Vec<Allocation> {
    let world = scenario.recipe.world_size;
    if scenario.allocations.is_empty() {
        let hosts = world.div_ceil(GPUS_PER_HOST);
        let topology = Topology::switched("block", hosts, GPUS_PER_HOST);
        let block = topology.block(world);
        return vec![block.expect("the hosts were counted to hold every rank")];
    }
    scenario
        .allocations
        .iter()
        .map(|file| file.allocation.clone())
        .collect()
}

/// Allocations that place every rank alike have one plan for everything: nothing would vary.
fn refuse_equal(allocations: &[Allocation]) -> Result<(), CheckError> {
    for (place, a) in allocations.iter().enumerate() {
        if let Some(b) = allocations[..place].iter().find(|b| are_alike(a, b)) {
            return Err(CheckError::Input(format!(
                "allocations `{}` and `{}` place every rank alike: nothing varies between them",
                b.name, a.name
            )));
        }
    }
    Ok(())
}

/// Whether two allocations place every rank alike. Nodes are numbered by the least rank on them, as
/// NCCL does: host names do not matter.
fn are_alike(a: &Allocation, b: &Allocation) -> bool {
    let world = a.placement.world();
    let node = |of: &Allocation, rank: u32| of.node_and_gpu(rank);
    let joined = |of: &Allocation, rank: u32| {
        (0..=rank).find(|other| node(of, *other).0 == node(of, rank).0)
    };
    let alike =
        |rank: u32| joined(a, rank) == joined(b, rank) && node(a, rank).1 == node(b, rank).1;
    let is_one_search =
        a.topology.graph == b.topology.graph && a.topology.alone == b.topology.alone;
    is_one_search && (0..world).all(alike)
}
