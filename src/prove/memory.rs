//! The memory that a check of a scenario takes, estimated before any of it is taken.

use std::collections::BTreeSet;
use std::ops::Range;

use crate::prove::oracle::reference::serial_recipe;
use crate::recipe::Recipe;
use crate::scenario::{OracleKind, Scenario};
use crate::train::{LossScale, OptionsError, TrainOptions};

/// Bytes of a GiB.
pub const GIB: u64 = 1 << 30;

/// Bytes that a virtual rank takes on the host beside its arena: the touched part of its thread's
/// stack, its commands in flight and the coordinator's records. Measured with 2,432 ranks.
const HOST_BYTES_A_RANK: u64 = 256 << 10;

/// Bytes of the process itself: compiled kernels, the sweep's records.
const PROCESS_BYTES: u64 = 64 << 20;

/// An estimate in bytes, over all virtual ranks:
///
/// `total = arenas + snapshots + states + host`, with, summed over ranks,
/// * `arenas = 4 (parameters + gradient slots + optimizer state + activations + scratch)`;
/// * `snapshots = (cuts + 1) * arenas`, or none without a cut: the live-in set of each cut is
///   measured on a copy, and a resumed run keeps one of what its set-up left;
/// * `states = (cuts + 2) * 4 (parameters + main parameters + two moments)`: the last step's and a
///   loaded one beside those of the cuts; where a run is resumed on other layouts or varied, two
///   steps after each cut, or the first two, are kept as well, and all of it twice, with four
///   states of whole tensors; REF keeps those before and after the steps that it follows;
/// * `host = 256 KiB` for a thread's stack and its commands, and 64 MiB for the process.
///
/// Peaks of runs with 16 and 2,432 ranks were between 0.67 and 1.01 of it.
///
/// A *cut* is a step after which a run is resumed, the first step included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    pub ranks: u32,
    pub arenas: u64,
    pub snapshots: u64,
    pub states: u64,
    /// The serial model of REF, and what is compared with it.
    pub serial: u64,
    pub host: u64,
}

/// Whole states of the serial model that a comparison holds: measured.
const SERIAL_STATES: u64 = 8;

impl Memory {
    /// # Errors
    /// A recipe that the training program cannot take has no size.
    pub fn of(scenario: &Scenario) -> Result<Memory, OptionsError> {
        let (mut arenas, mut states) = sizes(&scenario.recipe)?;
        for recipe in other_recipes(scenario) {
            let (other_arenas, other_states) = sizes(&recipe)?;
            arenas = arenas.max(other_arenas);
            states = states.max(other_states);
        }
        let cuts = cuts(scenario).len() as u64;
        let kept = states_kept(scenario).len() as u64;
        // On another layout: what it keeps, what it loads, and four states of whole tensors.
        let is_alone = other_recipes(scenario).next().is_none();
        let copies = if is_alone { kept + 1 } else { 2 * kept + 5 };
        let copies = copies + followed_states(scenario);
        Ok(Memory {
            ranks: ranks_most(scenario),
            arenas,
            snapshots: match cuts {
                0 => 0,
                _ => arenas.saturating_mul(cuts + 1),
            },
            states: states.saturating_mul(copies),
            serial: serial(scenario),
            host: PROCESS_BYTES + HOST_BYTES_A_RANK * u64::from(ranks_most(scenario)),
        })
    }

    /// All of it, in bytes.
    pub fn total(&self) -> u64 {
        let Memory {
            arenas,
            snapshots,
            states,
            serial,
            host,
            ..
        } = *self;
        let parts = [arenas, snapshots, states, serial, host];
        parts.into_iter().fold(0, u64::saturating_add)
    }
}

/// The recipe on other layouts, and of other sizes, that the scenario runs as well. A layout that
/// the recipe does not admit was refused when the scenario was read.
fn other_recipes(scenario: &Scenario) -> impl Iterator<Item = Recipe> {
    let layouts = scenario.checkpoint.reshard.iter();
    let layouts = layouts.filter_map(|layout| scenario.recipe.resharded(*layout).ok());
    let varied = scenario.topo.iter();
    layouts.chain(varied.map(|variation| variation.recipe.clone()))
}

/// The most ranks that run at once, on any of the scenario's layouts.
pub(super) fn ranks_most(scenario: &Scenario) -> u32 {
    let others = other_recipes(scenario).map(|recipe| recipe.world_size);
    others.fold(scenario.recipe.world_size, u32::max)
}

/// Words of the largest arena of one rank, on any of the scenario's layouts.
///
/// # Errors
/// As [`Memory::of`].
pub(super) fn largest_arena(scenario: &Scenario) -> Result<u64, OptionsError> {
    let mut largest = 0;
    for recipe in other_recipes(scenario).chain([scenario.recipe.clone()]) {
        let options = TrainOptions::from(&recipe);
        options.check()?;
        let stages = 0..options.layout.pipeline_model_parallel_size;
        let words = stages.map(|stage| options.rank_words(stage).total());
        largest = words.fold(largest, u64::max);
    }
    Ok(largest)
}

/// Bytes that comparing values with a serial model takes; none where one rank cannot take the step,
/// and nothing is compared.
fn serial(scenario: &Scenario) -> u64 {
    // No values of a scaled loss are compared.
    let is_scaled = LossScale::of(&scenario.recipe.loss_scaling).is_some();
    if !scenario.oracles.contains(&OracleKind::REF) || is_scaled {
        return 0;
    }
    let (arenas, states) = sizes(&serial_recipe(&scenario.recipe)).unwrap_or_default();
    arenas.saturating_add(states.saturating_mul(SERIAL_STATES))
}

/// Bytes of all ranks' arenas, and of all that they persist.
fn sizes(recipe: &Recipe) -> Result<(u64, u64), OptionsError> {
    let options = TrainOptions::from(recipe);
    options.check()?;
    let stages = options.layout.pipeline_model_parallel_size;
    let ranks_a_stage = u64::from(options.layout.world_size() / stages);
    let (mut arenas, mut states) = (0u64, 0u64);
    for stage in 0..stages {
        let words = options.rank_words(stage);
        arenas = arenas.saturating_add(words.total().saturating_mul(4 * ranks_a_stage));
        states = states.saturating_add(words.persisted.saturating_mul(4 * ranks_a_stage));
    }
    Ok((arenas, states))
}

/// The steps whose end is looked at: those that a run is resumed after, and the first.
pub(super) fn cuts(scenario: &Scenario) -> BTreeSet<u32> {
    let restarts = scenario.checkpoint.restarts.iter().flatten().copied();
    let last = scenario.steps;
    restarts.chain([1]).filter(|cut| *cut < last).collect()
}

/// The steps after which a background writer is asked for a checkpoint.
pub(super) fn background_saves(scenario: &Scenario) -> BTreeSet<u32> {
    match scenario.recipe.async_save {
        true => scenario.checkpoint.cuts(),
        false => BTreeSet::new(),
    }
}

/// How many steps of a run with late writers are watched for hazards: up to the second save, which
/// waits for the first one's writer, or to the end, which waits for the last; and so far behind the
/// last step that a fault of the scenario names.
pub(super) fn late_hazard_steps(scenario: &Scenario) -> u32 {
    let saves = background_saves(scenario);
    let steps = scenario.steps;
    let second = saves.iter().nth(1).copied().unwrap_or(steps);
    let after = |named: u32| saves.range(named.saturating_add(1)..).next().copied();
    let named = last_named_step(scenario).map(|named| after(named).unwrap_or(steps));
    second.max(named.unwrap_or(0)) + 1
}

/// Steps after a cut whose state is kept, where a run is resumed on another layout.
const STATES_AFTER_A_CUT: u32 = 2;

/// Steps in which one of two runs replays CUDA graphs while the other, resumed after `cut`, is
/// still eager, or the other way round.
pub(super) fn steps_of_other_kind(scenario: &Scenario, cut: u32) -> Range<u32> {
    match scenario.recipe.eager_steps() {
        None => 0..0,
        Some(eager) => {
            let last = cut.saturating_add(eager).min(scenario.steps);
            cut.max(eager) + 1..last + 1
        }
    }
}

/// The steps after which the reference run's state is kept: the last one, whose state is what the
/// run leaves behind, the cuts, those that a run on another layout is compared after, and those in
/// which a resumed run goes another way.
pub(super) fn states_kept(scenario: &Scenario) -> BTreeSet<u32> {
    let cuts = cuts(scenario);
    let mut kept: BTreeSet<u32> = cuts.iter().copied().chain([1, scenario.steps]).collect();
    let mut starts = BTreeSet::new();
    if !scenario.checkpoint.reshard.is_empty() {
        starts.extend(&cuts);
    }
    if !scenario.topo.is_empty() {
        starts.insert(0);
    }
    let after = starts
        .iter()
        .flat_map(|cut| cut + 1..=cut + STATES_AFTER_A_CUT);
    kept.extend(after.filter(|step| *step < scenario.steps));
    let others = cuts.iter().map(|cut| steps_of_other_kind(scenario, *cut));
    kept.extend(others.flatten());
    kept
}

/// Steps in which hazards are looked for: a program repeats itself after its first step.
const HAZARD_STEPS: u32 = 2;

/// Steps that a run skipped, as they overflowed.
pub(super) type Skipped = BTreeSet<u32>;

/// The first step whose forward gathers what the step before left to it. A step that is skipped
/// leaves nothing.
pub(super) fn first_overlapped_gather(scenario: &Scenario, skipped: &Skipped) -> Option<u32> {
    let kept = states_kept(scenario);
    let is_left = |step: u32| !kept.contains(&step) && !skipped.contains(&step);
    (2..=scenario.steps).find(|step| is_left(step - 1))
}

/// Whether gathers are to overlap, and none does.
pub(super) fn hides_gathers(scenario: &Scenario, skipped: &Skipped) -> bool {
    scenario.recipe.overlap_param_gather && first_overlapped_gather(scenario, skipped).is_none()
}

/// The same where the run is long enough, and states that are kept after too many of its steps, or
/// steps that are skipped, are why.
pub(super) fn run_hides_gathers(scenario: &Scenario, skipped: &Skipped) -> bool {
    // The state after the first step is kept in any run.
    scenario.steps > 2 && hides_gathers(scenario, skipped)
}

/// Whether the steps of a run are not all alike from the second one on: which of them overflow,
/// and are skipped, follows from their values.
fn may_skip(scenario: &Scenario) -> bool {
    LossScale::of(&scenario.recipe.loss_scaling).is_some()
}

/// How many steps are watched for hazards: as many as it takes to see an overlapped gather, the
/// step after each background save, a CUDA graph's first replays and those that write its buffers
/// again, and every step that a fault of the scenario names with the one after it, which may be the
/// first to read what the fault leaves unordered; all steps where any of them may be the first
/// that is not skipped.
pub(super) fn hazard_steps(scenario: &Scenario) -> u32 {
    if may_skip(scenario) {
        return scenario.steps;
    }
    let gather = first_overlapped_gather(scenario, &Skipped::new());
    let gather = gather.filter(|_| scenario.recipe.overlap_param_gather);
    let saved = background_saves(scenario).last().map(|after| after + 1);
    let replayed = replayed_hazard_steps(scenario);
    let named = last_named_step(scenario);
    let named = named.map(|step| step.saturating_add(1).min(scenario.steps));
    let last = [gather, saved, replayed, named];
    let last = last.into_iter().flatten().max();
    last.unwrap_or(HAZARD_STEPS).max(HAZARD_STEPS)
}

/// The same as the run is told: to its end where all its steps are watched, as what nobody waits
/// for shows there.
pub(super) fn hazard_steps_max(scenario: &Scenario) -> u32 {
    match hazard_steps(scenario) {
        steps if steps >= scenario.steps => u32::MAX,
        steps => steps,
    }
}

/// How many steps of a resumed process are watched: its first, CUDA graphs' first replays, and all
/// where any may be the first that is not skipped.
pub(super) fn resumed_hazard_steps(scenario: &Scenario) -> u32 {
    match may_skip(scenario) {
        true => u32::MAX,
        false => replayed_hazard_steps(scenario).unwrap_or(1),
    }
}

/// Steps of a process until CUDA graphs' buffers have been written in two steps.
fn replayed_hazard_steps(scenario: &Scenario) -> Option<u32> {
    let eager = scenario.recipe.eager_steps()?;
    Some(eager.saturating_add(2).min(scenario.steps))
}

/// The last step that a fault of the scenario is limited to.
pub(super) fn last_named_step(scenario: &Scenario) -> Option<u32> {
    let faults = scenario.faults.named.iter();
    faults.filter_map(|fault| fault.step).max()
}

/// Steps that REF follows at least: in the second one, what the first left behind would show.
const FOLLOWED_STEPS: u32 = 2;

/// How many steps REF follows: the first two, the first that replays CUDA graphs, and every step
/// that a fault of the scenario names.
pub(super) fn followed_steps(scenario: &Scenario) -> u32 {
    let named = last_named_step(scenario).unwrap_or(0);
    let replayed = scenario.recipe.eager_steps();
    let replayed = replayed.map_or(0, |eager| eager.saturating_add(1));
    FOLLOWED_STEPS.max(named).max(replayed).min(scenario.steps)
}

/// States that REF keeps: before its first step and after each, and one of a serial model.
fn followed_states(scenario: &Scenario) -> u64 {
    match scenario.oracles.contains(&OracleKind::REF) {
        true => u64::from(followed_steps(scenario)) + 2,
        false => 0,
    }
}

impl std::fmt::Display for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let gib = |bytes: u64| bytes as f64 / GIB as f64;
        write!(
            f,
            "{:.1} GiB of memory: {} ranks, {:.1} GiB; copies at cuts, {:.1} GiB; checkpoints, \
             {:.1} GiB; a serial model, {:.1} GiB; threads and process, {:.1} GiB",
            gib(self.total()),
            self.ranks,
            gib(self.arenas),
            gib(self.snapshots),
            gib(self.states),
            gib(self.serial),
            gib(self.host),
        )
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::prove::CheckOptions;
    use crate::prove::session::Session;
    use crate::scenario::Overrides;
    use crate::world::RunOptions;

    fn scenario(set: &[&str]) -> Scenario {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios/quickstart.toml");
        let overrides = Overrides {
            set: set.iter().map(|text| text.to_string()).collect(),
            ..Overrides::default()
        };
        let loaded = Scenario::load(&path, &overrides);
        loaded.expect("a sound scenario").scenario
    }

    /// The estimate of the arenas against the arenas of a run, for shapes in which another part is
    /// the greatest each time.
    #[test]
    fn arenas_have_the_words_that_were_estimated() {
        for set in [
            &[][..],
            &["recipe.seq_length=128"],
            &["recipe.hidden_size=128", "recipe.global_batch_size=4"],
            &["recipe.use_distributed_optimizer=false"],
            &["recipe.ddp_reduce_scatter_with_fp32_accumulation=true"],
            &[
                "recipe.padded_vocab_size=4096",
                "recipe.sequence_parallel=false",
            ],
            &[
                "recipe.seq_length=128",
                "recipe.attention_dropout=0.1",
                "recipe.swiglu=false",
                "recipe.disable_bias_linear=false",
            ],
            &[
                "recipe.num_layers=8",
                "recipe.seq_length=128",
                "recipe.pipeline_model_parallel_size=1",
                "recipe.cpu_offloading_num_layers=5",
            ],
        ] {
            let scenario = scenario(set);
            let estimate = Memory::of(&scenario).expect("sound options").arenas;
            let mut session =
                Session::new(scenario, &CheckOptions::default()).expect("it can be run");
            let run = session.plain_run(&RunOptions::default(), 1..2);
            let found = 4 * run.expect("it runs").memory_words;
            let ratio = estimate as f64 / found as f64;
            assert!(
                (0.85..1.25).contains(&ratio),
                "{set:?}: {estimate} for {found}"
            );
        }
    }

    /// The state after step 1 is always kept, and waits for all parameters.
    #[test]
    fn an_overlapped_gather_is_watched() {
        let switches = [
            "recipe.use_distributed_optimizer=true",
            "recipe.overlap_grad_reduce=true",
            "recipe.overlap_param_gather=true",
        ];
        let watched = |more: &[&'static str]| {
            let scenario = scenario(&[&switches[..], more].concat());
            let first = first_overlapped_gather(&scenario, &Skipped::new());
            (first, hazard_steps(&scenario))
        };
        assert_eq!(
            watched(&["steps=5", "checkpoint.restarts=[[3]]"]),
            (Some(3), 3)
        );
        let often = ["steps=5", "checkpoint.restarts=[[2], [3]]"];
        assert_eq!(watched(&often), (Some(5), 5));
        assert_eq!(
            watched(&["steps=2", "checkpoint.restarts=[[1]]"]),
            (None, 2)
        );
        let plain = scenario(&["steps=5", "checkpoint.restarts=[[3]]"]);
        assert_eq!(hazard_steps(&plain), 2);
        // Which steps of a scaled loss are skipped is not known before the run.
        let scaled = ["steps=5", "checkpoint.restarts=[[3]]", "recipe.fp16=true"];
        let scaled = [&scaled[..], &["recipe.bf16=false"], &switches[..]].concat();
        let scaled = scenario(&scaled);
        assert_eq!(hazard_steps(&scaled), 5);
        assert_eq!(resumed_hazard_steps(&scaled), u32::MAX);
        let first = |skipped: &[u32]| {
            let skipped = skipped.iter().copied().collect();
            first_overlapped_gather(&scaled, &skipped)
        };
        assert_eq!(
            [first(&[]), first(&[1, 2]), first(&[2, 4])],
            [Some(3), Some(5), None]
        );
    }

    #[test]
    fn each_cut_costs_a_copy() {
        let of = |restarts: &str, oracles: &str| {
            let set = [
                format!("checkpoint.restarts={restarts}"),
                format!("oracles={oracles}"),
            ];
            Memory::of(&scenario(&[&set[0], &set[1]])).unwrap()
        };
        let few = of("[[1]]", r#"["RES"]"#);
        let more = of("[[1], [2, 3]]", r#"["RES"]"#);
        let followed = of("[[1]]", r#"["RES", "REF"]"#);
        assert_eq!(3 * followed.states, 7 * few.states);
        assert!(few.serial == 0 && followed.serial > 0);
        assert_eq!(few.snapshots, 2 * few.arenas);
        assert_eq!(more.snapshots, 4 * few.arenas);
        assert_eq!(3 * more.states, 5 * few.states);
        assert!(more.to_string().contains("16 ranks"), "{more}");
        let one = ["steps=1", "oracles=[\"R2R\"]", "checkpoint.restarts=[]"];
        let one = Memory::of(&scenario(&one)).unwrap();
        assert_eq!(one.snapshots, 0);
    }
}
