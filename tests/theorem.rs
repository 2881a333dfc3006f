//! The theorem that a check rests on, against brute force.
//!
//! Random small programs with choice variables of every scope run on the real world. The sweep
//! looks at one reference run; brute force runs every schedule. They must agree on whether
//! anything can differ, and on where it first does.

#[path = "theorem/brute.rs"]
mod brute;
#[path = "theorem/plans.rs"]
mod plans;
#[path = "theorem/program.rs"]
mod program;
#[path = "theorem/values.rs"]
mod values;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use bitproof::engine::EngineError;
use bitproof::engine::cpu::CpuEngine;
use bitproof::plan::Init;
use bitproof::prove::sweep::{Finding, FullSizeAddends, Reach, Sweep, SweepOptions, Variable};
use bitproof::world::fold::{FoldJob, FoldLab, FoldNode};
use bitproof::world::{Choice, Family, GroupId, NodeId, Observer, Schedule, Unobserved};

use brute::{Digests, Node, deviation, differs_at, each_schedule, first_difference};
use program::{Case, Scope};

/// Programs of the test; their seeds are their numbers.
const PROGRAMS: u32 = 2_000;
const THREADS: u32 = 2;

/// As many addends at full size as here.
struct SameSize;

impl FullSizeAddends for SameSize {
    fn addends(&self, _: Family, _: Option<GroupId>, here: u32) -> u32 {
        here
    }
}

fn sweep() -> Sweep {
    let names = |what: &str| (0..3).map(|n| format!("{what} {n}")).collect();
    Sweep::new(SweepOptions {
        seed: 7,
        element_budget: 1 << 12,
        groups: names("group"),
        full_size: Arc::new(SameSize),
        plans: None,
        sums: None,
    })
}

/// What the sweep gets to see of a fold.
type Shown = fn(&FoldNode) -> Option<FoldNode>;

/// Lists the folds in the order in which they run, and shows them to the sweep.
struct Watch {
    sweep: Sweep,
    nodes: Vec<Node>,
    shown: Shown,
}

impl Watch {
    fn new(shown: Shown) -> Watch {
        let (sweep, nodes) = (sweep(), Vec::new());
        Watch {
            sweep,
            nodes,
            shown,
        }
    }
}

impl Observer for Watch {
    fn on_fold(&mut self, node: &FoldNode, lab: &mut FoldLab<'_>) -> Result<(), EngineError> {
        self.nodes.push(Node::of(node));
        match (self.shown)(node) {
            Some(node) => self.sweep.on_fold(&node, lab),
            None => Ok(()),
        }
    }
}

/// A case, its reference run, and what the sweep said of it.
struct Trial {
    case: Case,
    watch: Watch,
    reference: Digests,
}

impl Trial {
    fn new(seed: u32, engine: &mut CpuEngine, shown: Shown) -> Trial {
        let case = Case::random(seed);
        let mut watch = Watch::new(shown);
        let reference = case.run(engine, Schedule::default(), &mut watch);
        Trial {
            case,
            watch,
            reference,
        }
    }

    /// Claim (a): nothing is sensitive if and only if all schedules agree at every node.
    fn agrees_with_brute_force(&self, engine: &mut CpuEngine) -> Result<bool, String> {
        let sensitive = !self.watch.sweep.first.is_empty();
        let parting = each_schedule(&self.case, &self.watch.nodes, |schedule| {
            let got = self.case.run(engine, schedule, &mut Unobserved);
            first_difference(&self.reference, &got).is_some()
        });
        match (sensitive, &parting) {
            (false, Some(schedule)) => Err(format!("proved, and parts under {schedule:?}")),
            (true, None) => Err(format!(
                "sensitive, and no schedule parts: {:?}",
                self.named()
            )),
            _ => Ok(sensitive),
        }
    }

    fn named(&self) -> Vec<(Reach, NodeId)> {
        let first = self.watch.sweep.first.iter();
        first
            .map(|(reach, finding)| (*reach, finding.node))
            .collect()
    }

    /// Claims (b) and (c), for the first finding of a reach.
    fn check_finding(&self, finding: &Finding, engine: &mut CpuEngine) -> Result<(), String> {
        let nodes = &self.watch.nodes;
        let place = nodes.iter().position(|node| node.id == finding.node);
        let place = place.ok_or("a finding names a node that did not run")?;
        let schedule = deviation(&self.case, nodes, finding);
        let got = self.case.run(engine, schedule, &mut Unobserved);
        let first = first_difference(&self.reference, &got);
        let folds = first.iter().flatten().map(|record| record.fold);
        if !folds.clone().any(|fold| fold == Some(finding.node)) {
            let folds: Vec<_> = folds.collect();
            return Err(format!(
                "{:?} is not the first to part: {folds:?}",
                finding.node
            ));
        }
        self.check_results(finding, engine)?;
        self.check_earlier(finding, &nodes[..place], engine)
    }

    /// No node before the finding's differs under a deviation of the same reach: under any single
    /// call-scoped order, or under any value of the plan variable.
    fn check_earlier(
        &self,
        finding: &Finding,
        nodes: &[Node],
        engine: &mut CpuEngine,
    ) -> Result<(), String> {
        let deviations: Vec<(Schedule, &[Node])> = match finding.variable {
            Variable::Arrival { .. } | Variable::Configuration { .. } => {
                let of = |(at, node): (usize, &Node)| {
                    let single = node.call_deviations().into_iter();
                    single.map(move |schedule| (schedule, at))
                };
                let all = nodes.iter().enumerate().flat_map(of);
                all.map(|(schedule, at)| (schedule, &nodes[at..=at]))
                    .collect()
            }
            Variable::Placement { .. } => {
                let everywhere = |placement| Schedule {
                    placement,
                    ..Schedule::default()
                };
                let values = 1..self.case.plan_count;
                values.map(|value| (everywhere(value), nodes)).collect()
            }
        };
        for (schedule, earlier) in deviations {
            let got = self.case.run(engine, schedule, &mut Unobserved);
            let parts = |node: &&Node| differs_at(&self.reference, &got, node.id);
            if let Some(node) = earlier.iter().find(parts) {
                return Err(format!("{:?} parts before {:?}", node.id, finding.node));
            }
        }
        Ok(())
    }

    /// Both runs hold the finding's two results at its element.
    fn check_results(&self, finding: &Finding, engine: &mut CpuEngine) -> Result<(), String> {
        let schedules = [Schedule::default(), finding.schedule()];
        for (schedule, side) in schedules.into_iter().zip(&finding.sides) {
            let mut seen = self.case.outcome_of(engine, schedule, finding);
            seen.retain(|word| *word != side.result.to_bits());
            if !seen.is_empty() {
                return Err(format!("{seen:x?} instead of {:x}", side.result.to_bits()));
            }
        }
        Ok(())
    }
}

/// Runs `test` on every program, with one engine a thread; the failures, by seed.
fn on_all<T: Send>(
    test: impl Fn(u32, &mut CpuEngine) -> Result<T, String> + Sync,
) -> (Vec<T>, Vec<String>) {
    let next = AtomicU32::new(0);
    let work = || {
        let mut engine = CpuEngine::new(1).expect("this machine has an engine");
        let (mut done, mut failed) = (Vec::new(), Vec::new());
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= PROGRAMS {
                return (done, failed);
            }
            match test(seed, &mut engine) {
                Ok(result) => done.push(result),
                Err(message) => failed.push(format!("program {seed}: {message}")),
            }
        }
    };
    let (mut done, mut failed) = (Vec::new(), Vec::new());
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(work)).collect();
        for thread in threads {
            let (some, bad) = thread.join().expect("no program panics");
            done.extend(some);
            failed.extend(bad);
        }
    });
    (done, failed)
}

#[test]
fn the_sweep_and_brute_force_give_the_same_answer() {
    let (kinds, failed) = on_all(|seed, engine| {
        let trial = Trial::new(seed, engine, |node| Some(node.clone()));
        let sensitive = trial.agrees_with_brute_force(engine)?;
        for finding in trial.watch.sweep.first.values() {
            trial.check_finding(finding, engine)?;
        }
        let sweep = &trial.watch.sweep;
        let mut tuned = sweep.tallies.keys();
        let holds = tuned.any(|key| key.choice == Choice::CONFIGURATION && key.rung.is_some());
        let mut firsts = sweep.first.values();
        let parts = firsts.any(|first| matches!(first.variable, Variable::Configuration { .. }));
        Ok((
            trial.case.scope,
            sensitive,
            sweep.first.len(),
            (holds, parts),
        ))
    });
    assert!(
        failed.is_empty(),
        "{} programs: {}",
        failed.len(),
        failed[0]
    );
    let mut counts: BTreeMap<(Scope, bool), u32> = BTreeMap::new();
    for (scope, sensitive, ..) in &kinds {
        *counts.entry((*scope, *sensitive)).or_default() += 1;
    }
    for scope in Scope::ALL {
        for sensitive in [false, true] {
            let count = counts.get(&(scope, sensitive)).copied().unwrap_or(0);
            assert!(count >= PROGRAMS / 20, "{counts:?} says too little");
        }
    }
    assert!(kinds.iter().any(|(_, _, reaches, _)| *reaches == 2));
    let tuned = |of: fn(&(bool, bool)) -> bool| kinds.iter().filter(|kind| of(&kind.3)).count();
    let (hold, part) = (tuned(|kind| kind.0), tuned(|kind| kind.1));
    assert!(
        hold >= 20 && part >= 20,
        "configurations: {hold} hold, {part} part"
    );
}

/// Whether brute force finds a program that a sweep with such eyes gets wrong.
fn is_found_out(shown: Shown) -> bool {
    let found = AtomicBool::new(false);
    on_all(|seed, engine| {
        if !found.load(Ordering::Relaxed) {
            let trial = Trial::new(seed, engine, shown);
            let is_wrong = trial.agrees_with_brute_force(engine).is_err();
            found.fetch_or(is_wrong, Ordering::Relaxed);
        }
        Ok(())
    });
    found.into_inner()
}

fn unless(node: &FoldNode, skipped: bool) -> Option<FoldNode> {
    (!skipped).then(|| node.clone())
}

/// The same fold, starting from its first addend.
fn without_accumulator(node: &FoldNode) -> Option<FoldNode> {
    let mut node = node.clone();
    if let FoldJob::Slots(job) = &mut node.job
        && job.plan.arithmetic.init == Init::Accumulator
    {
        let mut plan = (*job.plan).clone();
        plan.arithmetic.init = Init::First;
        (job.plan, job.accumulator) = (Arc::new(plan), None);
    }
    Some(node)
}

#[test]
fn a_sweep_that_overlooks_something_is_found_out() {
    let overlook: [(&str, Shown); 4] = [
        ("arrival orders", |node| {
            unless(node, matches!(node.choice, Choice::Arrival))
        }),
        ("plans", |node| {
            unless(node, matches!(node.choice, Choice::Placement(_)))
        }),
        ("configurations", |node| {
            unless(node, matches!(node.choice, Choice::Configuration(_)))
        }),
        ("accumulators", without_accumulator),
    ];
    for (what, shown) in overlook {
        assert!(is_found_out(shown), "{what} can be overlooked");
    }
}
