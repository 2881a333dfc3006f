//! What a check found, as plain data: every output format is written from this, and nothing else.

use serde::Serialize;

use crate::engine::EngineIdentity;
use crate::fault::Component;
use crate::numerics::ladder::Rung;
use crate::prove::Origin;
use crate::prove::native::NativeRaces;
use crate::prove::oracle::parting::LaterStep;
use crate::prove::oracle::reference::Values;
use crate::prove::oracle::reshard::Resharding;
use crate::prove::oracle::topo::Topo;
use crate::prove::stop::Stop;
use crate::prove::sweep::Reach;
use crate::recipe::Recipe;
use crate::scenario::{ChoiceVariable, Grade, Imported, OracleKind};
use crate::world::{Family, NodeId, Site};

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

/// A resume on another layout: the state at the load, and how far later steps agree.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ReshardResult {
    /// Layouts as TPxPPxVPP.
    pub from: String,
    pub to: String,
    pub after_step: u32,
    /// `Different` where the state differs at the load, or later bits part though no plan differs
    /// that acts before them; `EqualInPart` where later steps read what is not carried over.
    pub verdict: OracleVerdict,
    /// Whole tensors and words that were compared at the load, and the tensors that differ there.
    pub tensors: u64,
    pub words: u64,
    pub differing: Vec<String>,
    /// Components that the other layout cannot take over.
    pub not_carried: Vec<Component>,
    /// Why later steps need not agree: sums that the layouts do not share.
    pub plans_differ: Vec<String>,
    pub steps: Vec<ReshardStep>,
    /// The first step after the load whose bits part from the straight run's.
    pub first_step: Option<u32>,
    /// The first place that parts although no plan differs that acts at or before it.
    pub unexcused: Option<String>,
    /// Choice points of the resumed run, those that are sensitive on one allocation, and those that
    /// part across allocations.
    pub points: u64,
    pub sensitive: u64,
    pub sensitive_across: u64,
    /// All of it in one sentence.
    pub summary: String,
}

/// One step after a resume on another layout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReshardStep {
    pub step: u32,
    /// Token losses compared, and those equal; `None` where they were not kept.
    pub token_losses: Option<u64>,
    pub equal_token_losses: Option<u64>,
    /// Numbers that both runs print, by whether their bits are equal.
    pub equal_metrics: Vec<String>,
    pub differing_metrics: Vec<String>,
    /// Whole tensors compared after the step, and those equal; `None` where no state was kept.
    pub tensors: Option<u64>,
    pub equal_tensors: Option<u64>,
    /// What parts in the step, each with what excuses it.
    pub partings: Vec<ReshardParting>,
}

/// A place where a step after a resume on another layout parts from the straight run's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReshardParting {
    pub what: String,
    /// The difference of the layouts that acts at or before it; `None` is a fault.
    pub because: Option<String>,
}

impl From<&Resharding> for ReshardResult {
    fn from(found: &Resharding) -> ReshardResult {
        let count = |reach: Reach| found.run.sensitive.get(&reach).copied().unwrap_or(0);
        ReshardResult {
            from: found.from.to_string(),
            to: found.to.to_string(),
            after_step: found.cut,
            verdict: match (found.run.is_broken(), found.is_in_part()) {
                (true, _) => OracleVerdict::Different,
                (false, true) => OracleVerdict::EqualInPart,
                (false, false) => OracleVerdict::Equal,
            },
            tensors: found.run.tensors,
            words: found.run.words,
            differing: found
                .run
                .differences
                .iter()
                .map(ToString::to_string)
                .collect(),
            not_carried: found.run.not_carried.iter().copied().collect(),
            plans_differ: found.run.plans.iter().map(ToString::to_string).collect(),
            steps: found.run.steps.iter().map(ReshardStep::from).collect(),
            first_step: found.run.parting().map(|parting| parting.step),
            unexcused: found.run.unexcused().map(ToString::to_string),
            points: found.run.points,
            sensitive: count(Reach::Within),
            sensitive_across: count(Reach::Across),
            summary: found.to_string(),
        }
    }
}

/// The job of another size or in another place.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TopoResult {
    pub name: String,
    /// What is another there.
    pub changes: Vec<String>,
    /// It need not be equal.
    pub may_differ: bool,
    /// `EqualInPart` where it differs, and may.
    pub verdict: OracleVerdict,
    /// Every sum has one plan on both sides: equal for all finite inputs.
    pub same_plans: bool,
    /// Whole tensors and words that were compared before the first step, and those that differ.
    pub tensors: u64,
    pub words: u64,
    pub differing: Vec<String>,
    pub not_carried: Vec<Component>,
    /// Sums that the two do not share.
    pub plans_differ: Vec<String>,
    pub steps: Vec<ReshardStep>,
    pub first_step: Option<u32>,
    /// The first place that parts although no plan differs that acts at or before it.
    pub unexcused: Option<String>,
    pub summary: String,
}

impl From<&Topo> for TopoResult {
    fn from(found: &Topo) -> TopoResult {
        let run = &found.run;
        let parting = run.parting();
        TopoResult {
            name: found.name.clone(),
            changes: found.changes.clone(),
            may_differ: found.may_differ,
            verdict: match (found.fails(), parting.is_some()) {
                (true, _) => OracleVerdict::Different,
                (false, true) => OracleVerdict::EqualInPart,
                (false, false) => OracleVerdict::Equal,
            },
            same_plans: run.plans.is_empty(),
            tensors: run.tensors,
            words: run.words,
            differing: run.differences.iter().map(ToString::to_string).collect(),
            not_carried: run.not_carried.iter().copied().collect(),
            plans_differ: run.plans.iter().map(ToString::to_string).collect(),
            steps: run.steps.iter().map(ReshardStep::from).collect(),
            first_step: parting.map(|parting| parting.step),
            unexcused: run.unexcused().map(ToString::to_string),
            summary: found.to_string(),
        }
    }
}

impl From<&LaterStep> for ReshardStep {
    fn from(compared: &LaterStep) -> ReshardStep {
        let named = |equal: bool| {
            let pairs = compared.metrics.iter();
            let pairs = pairs.filter(|pair| pair.is_equal() == equal);
            pairs.map(|pair| pair.name.clone()).collect()
        };
        ReshardStep {
            step: compared.step,
            token_losses: compared.token_losses.as_ref().map(|losses| losses.total),
            equal_token_losses: compared.token_losses.as_ref().map(|losses| losses.equal),
            equal_metrics: named(true),
            differing_metrics: named(false),
            tensors: compared.tensors.map(|(total, _)| total),
            equal_tensors: compared.tensors.map(|(_, equal)| equal),
            partings: compared
                .partings
                .iter()
                .map(|parting| ReshardParting {
                    what: parting.what.clone(),
                    because: parting.because.clone(),
                })
                .collect(),
        }
    }
}

/// What the ranks compute, against a serial model within a bound.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SerialResult {
    /// Steps that were compared, from the first.
    pub steps: u32,
    /// In the order in which a step computes them. Tensors of a component of the state that are all
    /// equal are one entry.
    pub tensors: Vec<SerialTensor>,
    /// The first tensor beyond its bound, in one sentence.
    pub finding: Option<String>,
}

/// One tensor of one step.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SerialTensor {
    pub step: u32,
    /// `token losses`, `gradient`, `grad norm`, `clip coefficient`, a component of the state,
    /// `lm loss`.
    pub quantity: String,
    pub tensor: String,
    pub elements: u64,
    /// The element that is nearest to its bound, or furthest beyond it.
    pub element: u64,
    pub difference: f64,
    /// 0 where every bit must agree.
    pub bound: f64,
    /// `None` where the bound is 0 and the element differs.
    pub ratio: Option<f64>,
    /// Elements beyond their bounds.
    pub exceeding: u64,
}

impl From<&Values> for SerialResult {
    fn from(values: &Values) -> SerialResult {
        let tensors = values.compared.iter().map(|compared| SerialTensor {
            step: compared.step,
            quantity: compared.quantity.to_string(),
            tensor: compared.name.clone(),
            elements: compared.elements,
            element: compared.element,
            difference: compared.difference,
            bound: compared.bound,
            ratio: Some(compared.ratio()).filter(|ratio| ratio.is_finite()),
            exceeding: compared.exceeding,
        });
        SerialResult {
            steps: values.steps,
            tensors: tensors.collect(),
            finding: values.finding(),
        }
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct VisibleEffect {
    /// Steps that both runs were carried through: the recipe's `train_iters`.
    pub steps: u32,
    /// `lm loss`, `grad norm`.
    pub metric: String,
    /// First step whose printed value differs; `None` when none did in the steps run.
    pub first_step: Option<u32>,
    pub value_a: Option<Bits>,
    pub value_b: Option<Bits>,
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
