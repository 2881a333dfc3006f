//! What a check found, as plain data: every output format is written from this, and nothing else.

mod other_runs;

use serde::Serialize;

use crate::engine::EngineIdentity;
use crate::fault::Component;
use crate::numerics::ladder::Rung;
use crate::prove::Origin;
use crate::prove::likeness::Likeness;
use crate::prove::native::NativeRaces;
use crate::prove::stop::Stop;
use crate::prove::sweep::Reach;
use crate::recipe::Recipe;
use crate::scenario::{ChoiceVariable, Grade, Imported, OracleKind};
use crate::world::{Family, NodeId, Site};

/// What a vacuous check of a scenario with faults says of them.
pub const NOTHING_CAME: &str = "nothing came of the scenario's faults: what they take away is \
    covered by something else, or is nothing that this check can see";

/// What a check says whose restarts hide what `overlap_param_gather` asks for.
pub const HIDDEN_GATHERS: &str = "no gather of parameters is left to a forward: after each \
    step its state is kept (for `checkpoint.restarts`, and where CUDA graphs of a resumed run are \
    eager again), or the step is skipped, and a wait that a gather lacks would not be seen";

/// Said where a resume could not have failed for a component that it reads.
pub const EARLY_RESTARTS: &str = "each restart comes before any step that changes what these \
    losses take away (its steps are skipped, or have a learning rate of 0), so that RES could not \
    have found them: restart later (`checkpoint.restarts`), or lower `initial_loss_scale` or \
    `lr_warmup_iters`:";

/// The whole outcome of one check of one scenario.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    pub scenario: ScenarioIdentity,
    /// The verdict on one allocation; `None` in a replay of what varies only across allocations.
    pub within: Option<Grade>,
    /// The verdict across allocations; `None` where placement is not free.
    pub across: Option<Grade>,
    /// The job that the scenario was made from, if it was.
    pub imported: Option<Imported>,
    pub recipe: Recipe,
    /// What is wrong on purpose, a sentence each.
    pub faults: Vec<String>,
    pub engine: EngineIdentity,
    pub steps: u32,
    pub ranks: u32,
    /// Nodes of the reference run.
    pub nodes: u64,
    /// The most that one rank held at once, in bytes of the job's own types, and the rank.
    pub peak_bytes: Option<(u64, u32)>,
    /// Choice points, by family and rung.
    pub points: Vec<PointCount>,
    /// The first points that hold for this run's inputs only.
    pub input_points: Vec<InputPoint>,
    /// How many of them there are.
    pub input_point_count: u64,
    /// What a sample of orders shows, with its bound; `None` where nothing was only sampled.
    pub sampling: Option<String>,
    pub hazards: Vec<Hazard>,
    /// Occurrences of further hazards, that are only counted.
    pub hazards_beyond: u64,
    /// What else the reference run has to say: waits for events that nobody recorded.
    pub notes: Vec<String>,
    /// What came first in cause; `None` where nothing is wrong.
    pub origin: Option<Origin>,
    /// Why there is nothing else: a run that could not go on.
    pub stop: Option<Stop>,
    pub oracles: Vec<OracleResult>,
    /// Resumes on other layouts, part of RES.
    pub reshardings: Vec<ReshardResult>,
    /// Other sizes and places of the job.
    pub topo: Vec<TopoResult>,
    /// Values against those of a serial model, part of REF; `None` where that was not asked for.
    pub serial: Option<SerialResult>,
    pub mutants: MutantScore,
    /// True atomics on an adapter; `None` where they were not asked for.
    pub native_races: Option<NativeRaces>,
    pub vacuity: Vec<VacuityFinding>,
    pub first_divergence: Option<FirstDivergence>,
    pub witness: Option<Witness>,
    pub visible_effect: Option<VisibleEffect>,
    /// Switches that were tried, those that removed the difference first.
    pub remedies: Vec<Remedy>,
    /// `lm loss` of the reference run, a value a step.
    pub losses: Vec<f32>,
    /// The token of `bitproof replay`.
    pub replay: Option<String>,
    /// The regression file that was written, as the user would name it.
    pub regression: Option<String>,
    /// What explains a real trace; `None` where none was given.
    pub like: Option<Likeness>,
    pub certificate: Certificate,
    /// What a pass of this check leaves open, a sentence each.
    pub not_covered: Vec<String>,
    /// One plain sentence: what the verdict does not say about the user's job.
    pub not_said: String,
}

impl Outcome {
    /// The worst of the verdicts that were reached.
    pub fn grade(&self) -> Grade {
        let verdicts = [self.within, self.across].into_iter().flatten();
        verdicts.max().expect("one of the verdicts was reached")
    }

    /// Whether anything was compared. Where nothing was, there is no grade to speak of.
    pub fn is_checked(&self) -> bool {
        let is_checked = |result: &OracleResult| result.verdict != OracleVerdict::NotChecked;
        self.oracles.iter().any(is_checked)
    }

    /// Choice points in all.
    pub fn point_count(&self) -> u64 {
        self.points.iter().map(|count| count.points).sum()
    }
}

#[derive(Clone, Debug, Serialize)]
pub struct ScenarioIdentity {
    pub name: String,
    /// Content hash in hexadecimal.
    pub hash: String,
    /// What the scenario itself says that a pass leaves open; told among the others.
    #[serde(skip)]
    pub not_covered: Vec<String>,
}

impl ScenarioIdentity {
    /// The first of them, for reports that are no place for all.
    pub fn left_open(&self) -> Option<String> {
        let first = self.not_covered.first()?;
        Some(match self.not_covered.len() {
            1 => first.clone(),
            count => format!("{first}; and {} more", count - 1),
        })
    }
}

/// Choice points of one family and one kind of choice, proved by one rung.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PointCount {
    pub family: Family,
    pub reach: Reach,
    /// `pinned`, `placement`, `arrival`.
    pub choice: String,
    /// `None` for points where the bits part.
    pub rung: Option<Rung>,
    pub points: u64,
    /// Addends of the smallest and of the largest sum among them, the accumulator counted.
    pub addends_min: u32,
    pub addends_max: u32,
    /// Addends of the same sum at full size.
    pub addends_at_full_size: Option<u64>,
}

/// A point proved by L1 to L4: it holds for this run's inputs only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InputPoint {
    pub site: String,
    pub family: Family,
    pub rung: Rung,
    pub addends: u32,
    pub addends_at_full_size: u64,
}

/// Accesses that nothing orders, or a read of memory that nothing wrote.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Hazard {
    pub kind: HazardKind,
    pub rank: u32,
    pub buffer: String,
    pub first: Access,
    pub second: Access,
    /// Elements from..to of the buffer.
    pub elements: (u32, u32),
    /// The name of the edge that is missing, where there is one.
    pub edge: Option<String>,
    /// The edge that is missing, and where to put it.
    pub missing_edge: String,
    /// What a run shows in which the two happen the other way round; `None` where none was tried.
    pub consequence: Option<String>,
    pub occurrences: u64,
}

impl From<crate::world::memory::Hazard> for Hazard {
    fn from(found: crate::world::memory::Hazard) -> Hazard {
        Hazard {
            kind: found.kind,
            rank: found.rank,
            buffer: found.buffer.unwrap_or_else(|| "memory".to_string()),
            first: found.first,
            second: found.second,
            elements: found.words,
            edge: found.edge,
            missing_edge: found.missing_edge,
            consequence: None,
            occurrences: found.occurrences,
        }
    }
}

pub use other_runs::{
    OtherRunResult, ReshardParting, ReshardResult, ReshardStep, SerialResult, SerialTensor,
    TopoResult,
};

pub use crate::world::Access;
pub use crate::world::memory::HazardKind;

/// What one oracle said.
#[derive(Clone, Debug, Serialize)]
pub struct OracleResult {
    pub oracle: OracleKind,
    pub verdict: OracleVerdict,
    /// Comparisons made: nodes for R2R, resumed steps for RES, replica groups for XR.
    pub comparisons: u64,
    /// What failed, or why it was not checked.
    pub detail: Option<String>,
    /// Components that a resumed run lacked.
    pub components: Vec<Component>,
}

impl OracleResult {
    /// Why an oracle that nobody wants was not checked.
    pub const NOT_ASKED: &str = "the scenario does not ask for it";

    /// Whether it was wanted and has nothing to say.
    pub fn is_idle(&self) -> bool {
        let asked = self.detail.as_deref() != Some(OracleResult::NOT_ASKED);
        self.verdict == OracleVerdict::NotChecked && asked
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum OracleVerdict {
    Equal,
    /// What is compared is equal, and something that later steps read is not compared: it is lost
    /// by design, as RNG states are on another layout.
    EqualInPart,
    Different,
    NotChecked,
}

/// Planted faults.
#[derive(Clone, Debug, Default, Serialize)]
pub struct MutantScore {
    pub caught: u32,
    pub total: u32,
    pub missed: Vec<PlantedMutant>,
    /// Kinds that the scenario cannot host, by name.
    pub not_planted: Vec<String>,
    /// Losses of a checkpoint that no restart of the scenario could show, by name.
    pub coinciding: Vec<String>,
}

#[derive(Clone, Debug, Serialize)]
pub struct PlantedMutant {
    /// The name of a `fault::MutantKind`.
    pub kind: String,
    pub site: String,
    /// Why it does not count as caught: nothing was found, or another node was named.
    pub reason: String,
}

/// A family of sums that could not have differed here, or is silent only by the luck of its data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct VacuityFinding {
    pub family: Family,
    pub reason: VacuityReason,
    /// The first such point.
    pub site: Option<String>,
    pub points: u64,
    pub addends_here: u32,
    pub addends_at_full_size: u64,
    /// What to change, as recipe keys.
    pub change: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum VacuityReason {
    /// Two addends here, three or more at full size: addition commutes.
    TooFewAddends,
    /// Amplified inputs part the bits: order-dependent, silent here.
    SilentHere,
    /// No such sum here, or one of a single addend; three addends or more at full size.
    Absent,
    /// The allocations' plans agree at these buffer sizes, and part at larger ones.
    BufferSize,
    /// Steps whose loss or norm is infinite or no number: bits of such steps agree whatever the
    /// order. The points are these steps, and no addends are counted.
    NotFinite,
    /// The gradients of every step overflowed, and the optimizer did nothing. The points are these
    /// steps.
    Skipped,
}

/// The first node where bits part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FirstDivergence {
    pub site: Site,
    /// Node of the reference run; `None` where the node is no fold.
    pub node: Option<NodeId>,
    pub family: Option<Family>,
    /// The communicator, by name; `None` for a local node.
    pub group: Option<String>,
    pub ranks: Vec<u32>,
    /// Equal inputs and different outputs (origin), or inputs already different (receiver).
    pub is_origin: bool,
    /// The variable that was varied.
    pub variable: ChoiceVariable,
    /// The value of the reference run, and the one that parts from it.
    pub value_a: String,
    pub value_b: String,
    /// Nodes before it that agree.
    pub nodes_equal_before: u64,
}

/// One element whose bits differ, and why.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Witness {
    pub site: Site,
    pub node: NodeId,
    /// The communicator, by name; `None` for a local node.
    pub group: Option<String>,
    pub ranks: Vec<u32>,
    /// The element shown, counted in the node's output.
    pub element: u64,
    /// Expressions with their rounding points.
    pub plan_a: String,
    pub plan_b: String,
    pub addends: Vec<Addend>,
    pub sum_a: Bits,
    pub sum_b: Bits,
    pub differing_elements: u64,
    pub total_elements: u64,
    /// Largest distance of a differing element, in units in the last place of the output type;
    /// `None` when a NaN is among them.
    pub max_ulp: Option<u64>,
    /// Its variable reaches further, and yet changing this node alone was seen to part the bits.
    pub counterfactual: bool,
    /// What changing this node alone does to what the user sees, for a variable that reaches
    /// further.
    pub alone: Option<VisibleEffect>,
    /// Swaps of neighbours between the two orders, where the variable is an order.
    pub adjacent_swaps: Option<u64>,
    /// Steps that a run needs to get to the node.
    pub steps: u32,
    /// The fewest addends for which the two orders still differ; `None` where that is all.
    pub shrunk: Option<ShrunkWitness>,
    /// Files that the two plans follow from, for a plan choice.
    pub causes: Vec<String>,
}

/// A witness with as few addends as suffice, in the orders that they induce.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ShrunkWitness {
    pub addends: Vec<Addend>,
    pub plan_a: String,
    pub plan_b: String,
    pub sum_a: Bits,
    pub sum_b: Bits,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Addend {
    /// Who contributes it: a rank, a slot, a token.
    pub source: String,
    #[serde(flatten)]
    pub value: Bits,
}

/// A number in its bits and in decimal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Bits {
    /// The 32-bit word, `0x3f800000`.
    pub hex: String,
    /// The shortest decimal that reads back as the same `f32`.
    pub decimal: String,
}

impl Bits {
    pub fn of(value: f32) -> Bits {
        Bits {
            hex: format!("0x{:08x}", value.to_bits()),
            decimal: format!("{value:?}"),
        }
    }
}

/// Whether and when a number that the user sees differs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct VisibleEffect {
    /// Steps that both runs were carried through: the recipe's `train_iters`.
    pub steps: u32,
    /// `lm loss`, `grad norm`.
    pub metric: String,
    /// First step whose printed value differs; `None` when none did in the steps run.
    pub first_step: Option<u32>,
    pub value_a: Option<Bits>,
    pub value_b: Option<Bits>,
    /// What is printed of each step, in the one run and in the other.
    pub losses: Vec<(f32, f32)>,
    /// From which step on ranks compute something else.
    pub spread: Vec<Spread>,
}

/// Ranks that a difference reaches in the same step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Spread {
    /// The first step in which some node of theirs differs; `None` where none does.
    pub first_step: Option<u32>,
    pub ranks: Vec<u32>,
}

/// A known switch, and what it did when it was tried on this scenario.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Remedy {
    /// As written in a recipe, such as `ddp_reduce_scatter_with_fp32_accumulation = true`.
    pub switch: String,
    /// It removes this divergence.
    pub removes: bool,
    /// Grade of the scenario with the switch, by the sweep and hazards alone.
    pub tried_grade: Grade,
    /// The first node that still parts with the switch.
    pub still_parts: Option<String>,
}

/// What the verdict rests on.
#[derive(Clone, Debug, Serialize)]
pub struct Certificate {
    pub recipe_hash: String,
    pub data_hash: String,
    /// Over all kernels' linked texts.
    pub kernels_hash: String,
    pub variables: Vec<ChoiceVariable>,
    /// Where the plans come from, such as a library's version and how it was read.
    pub plan_basis: String,
    /// Assumptions A1 to A5, and how each was checked.
    pub assumptions: Vec<String>,
    /// How the second run differed in what must not matter.
    pub second_run: String,
    /// Over every rank's digest of every step of the reference run: equal on two strict engines.
    pub root_hash: String,
    /// Expressions of the engine's self-test, and the names of those with other bits than IEEE 754.
    pub self_test: SelfTestResult,
}

/// The engine's self-test in short.
#[derive(Clone, Debug, Serialize)]
pub struct SelfTestResult {
    pub expressions: usize,
    pub differing: Vec<&'static str>,
}
