//! RES: a run that is killed and resumed, against the straight one, and each way in which it can
//! fail.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use bitproof::diagnostic::Source;
use bitproof::engine::cpu::CpuEngine;
use bitproof::kernel::Registry;
use bitproof::numerics::Dtype;
use bitproof::plan::Plan;
use bitproof::prove::oracle::res::{self, Restart, Resumption};
use bitproof::prove::outcome::{OracleVerdict, Outcome};
use bitproof::prove::session::Session;
use bitproof::prove::sweep::Sweep;
use bitproof::prove::{CheckOptions, Grade, Silent, check};
use bitproof::scenario::{OracleKind, Overrides, Scenario};
use bitproof::world::{
    CollectiveShape, Communicator, Component, GroupId, PlanSource, Rank, RankError, RunOptions,
    RunRecord, State, Tensor, Unobserved, World,
};

const STEPS: u32 = 4;

/// Two ranks that train a model with dropout for four steps.
const RECIPE: &str = "
name = 'restarts'
oracles = ['R2R', 'RES', 'XR']
steps = 4

[recipe]
world_size = 2
num_layers = 1
hidden_size = 16
ffn_hidden_size = 16
num_attention_heads = 2
seq_length = 8
micro_batch_size = 1
global_batch_size = 2
train_iters = 4
lr = 5e-3
bf16 = true
use_distributed_optimizer = true
hidden_dropout = 0.1

[recipe.env]
NCCL_ALGO = 'Ring'
";

fn scenario(more: &str) -> Scenario {
    let source = Source::new("restarts.toml", format!("{RECIPE}\n{more}"));
    let loaded = Scenario::from_source(&source, Path::new("restarts.toml"), &Overrides::default());
    match loaded {
        Ok(loaded) => loaded.scenario,
        Err(findings) => panic!("{findings:?}"),
    }
}

struct Straight {
    session: Session,
    record: RunRecord,
}

impl Straight {
    fn new(scenario: Scenario) -> Straight {
        let mut session =
            Session::new(scenario, &CheckOptions::default()).expect("the scenario can be run");
        let options = RunOptions {
            checkpoint_after: (1..=STEPS).collect(),
            cuts: (1..STEPS).collect(),
            ..RunOptions::default()
        };
        let steps = session.steps();
        let record = session.run(&options, steps, None, &mut Unobserved);
        let record = record.expect("the straight run ends");
        Straight { session, record }
    }

    /// Resumes after step `cut` of the straight run.
    fn resumed(&mut self, cut: u32, omitted: &[Component]) -> (RunRecord, Resumption) {
        let restart = Restart {
            cut,
            state: &self.record.checkpoints[&cut],
            omitted,
            until: STEPS,
            keep: true,
        };
        let mut sweep = Sweep::new(self.session.sweep_options());
        let resumed = res::resume(&mut self.session, &restart, &mut sweep);
        let resumed = resumed.expect("the resumed run ends");
        assert!(sweep.points() > 0 && sweep.first.is_empty());
        let found = res::compare(cut, &self.record, &resumed, 0, 0..0);
        (resumed, found)
    }
}

#[test]
fn a_whole_checkpoint_resumes_after_odd_and_even_steps() {
    let mut straight = Straight::new(scenario(""));
    for cut in 1..STEPS {
        let (resumed, found) = straight.resumed(cut, &[]);
        assert!(found.is_equal(), "after step {cut}: {found:?}");
        assert!(found.words_compared > 1_000);
        assert_eq!(found.steps_compared, u64::from(2 * (STEPS - cut)));
        assert_eq!(
            resumed.checkpoints[&STEPS],
            straight.record.checkpoints[&STEPS]
        );
    }
}

#[test]
fn a_component_that_is_left_out_is_named_or_is_not_read() {
    let mut straight = Straight::new(scenario(""));
    // The loss is not scaled here.
    let all = Component::ALL.into_iter();
    for component in all.filter(|of| *of != Component::LossScaler) {
        for cut in [1, 2] {
            let unread = res::unread(&straight.record, cut, &[component]);
            assert!(unread.is_empty(), "this model reads all of its state");
            let (_, found) = straight.resumed(cut, &[component]);
            assert_eq!(found.components, BTreeSet::from([component]), "{cut}");
            assert!(
                found.uncovered.is_empty() && found.first_step.is_some(),
                "{found:?}"
            );
        }
    }
}

#[test]
fn what_nothing_reads_may_be_left_out_and_is_said_so() {
    let mut without_dropout = scenario("");
    without_dropout.recipe.hidden_dropout = 0.0;
    let mut straight = Straight::new(without_dropout);
    let rng = [Component::Rng];
    assert_eq!(res::unread(&straight.record, 1, &rng), BTreeSet::from(rng));
    let (_, found) = straight.resumed(1, &rng);
    assert!(found.is_equal(), "{found:?}");
}

#[test]
fn a_second_restart_goes_on_from_the_first() {
    let outcome = check_restarts("[checkpoint]\nrestarts = [[1, 3], [2, 3]]");
    let res = &outcome.oracles[1];
    assert_eq!(
        (res.oracle, res.verdict),
        (OracleKind::RES, OracleVerdict::Equal)
    );
    assert_eq!(outcome.first_divergence, None);
}

fn check_restarts(more: &str) -> Outcome {
    let options = CheckOptions {
        workers: 1,
        ..CheckOptions::default()
    };
    check(scenario(more), options, &Silent).expect("the check ends")
}

#[test]
fn the_first_node_that_differs_is_named() {
    let outcome = check_restarts("[checkpoint]\nomit = ['rng']\nrestarts = [[2], [1, 3]]");
    assert_eq!(outcome.within, Some(Grade::Divergent));
    let first = outcome.first_divergence.expect("a first divergence");
    assert_eq!(first.variable.name, "checkpoint.restarts");
    assert_eq!(first.site.step, 3, "{first:?}");
    assert!(!first.is_origin, "the state differed before the node did");
    assert!(first.value_b.contains("[2]"), "{}", first.value_b);
    assert!(first.site.module.contains("rng"), "{}", first.site);
    assert_ne!(first.nodes_equal_before, 0);
    let token = outcome.replay.expect("a token");
    assert!(token.len() > 30);
}

/// A run over buffers of which one is in no checkpoint, unless `registered` says so.
struct Momentum {
    registered: bool,
}

struct NoPlans;

impl PlanSource for NoPlans {
    fn plans(&self, _: CollectiveShape) -> Result<Arc<[Arc<Plan>]>, String> {
        Err("nothing is reduced".to_string())
    }
}

impl Momentum {
    fn run(&self, options: &RunOptions, first: u32, state: Option<&State>) -> RunRecord {
        let world = World {
            ranks: 1,
            communicators: Arc::new([Communicator {
                name: "all".into(),
                ranks: Arc::new([0]),
            }]),
            registry: Arc::new(Registry::new().expect("the kernels link")),
            plans: Arc::new(NoPlans),
        };
        let mut engine = CpuEngine::new(1).expect("this machine has an engine");
        let program = |rank: &mut Rank| self.program(rank, first, state);
        let record = world.run(&mut engine, options, &program, &mut Unobserved);
        record.expect("the program runs")
    }

    fn program(&self, rank: &mut Rank, first: u32, state: Option<&State>) -> Result<(), RankError> {
        let weights = self.restored(rank, "weights", Component::Model, state);
        let momentum = match self.registered {
            true => self.restored(rank, "momentum", Component::ExpAvg, state),
            false => fresh(rank, "momentum"),
        };
        rank.replicate(GroupId(0), "weights", weights);
        rank.end_setup()?;
        for step in first..=STEPS {
            rank.set_step(step);
            let add = |rank: &mut Rank, op: &str, operands: [Tensor; 3]| {
                rank.launch(
                    op,
                    "residual_add",
                    [4, 1, 1],
                    &operands,
                    &[4, Dtype::F32.code()],
                );
            };
            add(rank, "accumulate", [momentum, weights, momentum]);
            add(rank, "update", [weights, momentum, weights]);
            rank.end_step()?;
        }
        Ok(())
    }

    fn restored(
        &self,
        rank: &mut Rank,
        name: &str,
        component: Component,
        state: Option<&State>,
    ) -> Tensor {
        let tensor = fresh(rank, name);
        if let Some(saved) = state.and_then(|state| state.get(&(0, component, name.to_string()))) {
            rank.upload("restore", tensor, &saved.words);
        }
        rank.persist(component, name, tensor);
        tensor
    }

    fn restart_after(&self, cut: u32) -> Resumption {
        let options = RunOptions {
            checkpoint_after: [cut].into(),
            cuts: [cut].into(),
            ..RunOptions::default()
        };
        let straight = self.run(&options, 1, None);
        let options = RunOptions {
            keep_setup: true,
            ..RunOptions::default()
        };
        let resumed = self.run(&options, cut + 1, Some(&straight.checkpoints[&cut]));
        res::compare(cut, &straight, &resumed, 0, 0..0)
    }
}

fn fresh(rank: &mut Rank, name: &str) -> Tensor {
    let tensor = rank.alloc(name, Dtype::F32, 4);
    rank.upload_f32("fresh", tensor, &[1.0, 2.0, 3.0, 4.0]);
    tensor
}

#[test]
fn state_that_no_checkpoint_holds_is_found_in_the_live_in_set() {
    for cut in [1, 2, 3] {
        let found = Momentum { registered: false }.restart_after(cut);
        assert_eq!(found.uncovered, [(0, "momentum".to_string())]);
        assert!(found.components.is_empty());
        assert_eq!(found.first_step, Some((cut + 1, 0)));
        let control = Momentum { registered: true }.restart_after(cut);
        assert!(
            control.is_equal() && control.words_compared == 8,
            "{control:?}"
        );
    }
}
