//! A planted fault changes exactly what it says, and what should notice it names the place.

use std::sync::{Arc, Mutex};

use bitproof::engine::EngineError;
use bitproof::numerics::Dtype;
use bitproof::plan::{Arithmetic, Combine, Piece, Plan, Tree};
use bitproof::world::fold::{FoldFault, FoldLab, FoldNode};
use bitproof::world::order::CollectiveShape;
use bitproof::world::{
    Choice, Component, Family, HazardKind, NodeId, Observer, Owner, Phase, PlantedFault, Rank,
    RankError, Unobserved, WorldError, command::CollectiveKind,
};

use crate::cluster::{ALL, Cluster, Outcome, Seen, rough, scale_add, show, step_in_place, tensor};
use crate::reference::evaluate;

const FAMILY: Family = Family::DpGradients;
const LEN: u32 = 40;

/// The third of the group's folds in step 1.
const TARGET: NodeId = NodeId {
    step: 1,
    owner: Owner::Group(0),
    ordinal: 2,
};

/// Three all-reduces a step over three ranks; shows each result of step 1.
fn program(rank: &mut Rank, seen: &Seen) -> Result<(), RankError> {
    rank.set_phase(Phase::GradReduce);
    for step in 0..2 {
        rank.set_step(step);
        for number in 0..3 {
            let x = tensor(rank, "x", &rough(rank.id, number, LEN));
            let handle = rank.all_reduce(&format!("sum {number}"), FAMILY, ALL, x, Combine::Sum);
            rank.wait(handle);
            if step == 1 {
                show(rank, seen, &number.to_string(), x)?;
            }
        }
        rank.end_step()?;
    }
    Ok(())
}

fn with(fault: PlantedFault) -> Cluster {
    Cluster::new(3)
        .watched()
        .options(|options| options.faults.push(fault))
}

fn addends() -> Vec<Vec<f32>> {
    (0..3).map(|rank| rough(rank, 2, LEN)).collect()
}

fn canonical_plan() -> Plan {
    Cluster::new(3).plans().plan(CollectiveShape {
        group: ALL,
        kind: CollectiveKind::ReduceScatter { family: FAMILY },
        dtype: Dtype::F32,
        elements: LEN.into(),
    })
}

/// What the three ranks should hold after the fault.
fn struck(fault: &FoldFault) -> Vec<Vec<u32>> {
    let (plan, mut addends) = (canonical_plan(), addends());
    let right = evaluate(&plan, &addends, None);
    let mut all = vec![right.clone(); 3];
    match fault {
        FoldFault::Order(order) => {
            let (ring, start) = (order.clone(), 0);
            let pieces = vec![Piece {
                range: 0..LEN.into(),
                tree: Tree::Chain { ring, start },
            }];
            all = vec![evaluate(&Plan { pieces, ..plan }, &addends, None); 3];
        }
        FoldFault::DuplicateAddend { lost, twice } => {
            addends[*lost as usize] = addends[*twice as usize].clone();
            all = vec![evaluate(&plan, &addends, None); 3];
        }
        FoldFault::NarrowPartial(partial) => {
            let arithmetic = Arithmetic {
                partial: *partial,
                ..plan.arithmetic
            };
            all = vec![evaluate(&Plan { arithmetic, ..plan }, &addends, None); 3];
        }
        FoldFault::FlipLastBit { element } => {
            all.iter_mut()
                .for_each(|words| words[*element as usize] ^= 1);
        }
        FoldFault::StaleDestination { destination } => {
            let own = &addends[*destination as usize];
            all[*destination as usize] = own.iter().map(|value| value.to_bits()).collect();
        }
        FoldFault::DriftingDestination { destination } => all[*destination as usize][0] ^= 1,
        FoldFault::SkipLastElement => {
            for (words, own) in all.iter_mut().zip(&addends) {
                words[LEN as usize - 1] = own[LEN as usize - 1].to_bits();
            }
        }
        FoldFault::SwapElements { element } => {
            let at = *element as usize;
            assert_ne!(right[at], right[at + 1], "these are swapped, no later ones");
            all.iter_mut().for_each(|words| words.swap(at, at + 1));
        }
    }
    all
}

#[test]
fn a_fold_fault_changes_its_fold_and_nothing_else() {
    let faults = [
        FoldFault::Order([2, 0, 1].into()),
        FoldFault::DuplicateAddend { lost: 0, twice: 2 },
        FoldFault::NarrowPartial(Dtype::Bf16),
        FoldFault::FlipLastBit { element: 4 },
        FoldFault::StaleDestination { destination: 1 },
        FoldFault::DriftingDestination { destination: 2 },
        FoldFault::SkipLastElement,
        FoldFault::SwapElements { element: 3 },
    ];
    let clean = Cluster::new(3).run(program);
    let right = evaluate(&canonical_plan(), &addends(), None);
    for fault in faults {
        let at = TARGET;
        let planted = PlantedFault::Fold {
            at,
            fault: fault.clone(),
        };
        let outcome = with(planted).run(program);
        assert_eq!(outcome.record().faults_planted, 1, "{fault:?}");
        let expected = struck(&fault);
        assert!(
            expected.iter().any(|words| *words != right),
            "{fault:?} shows"
        );
        for rank in 0..3 {
            assert_eq!(
                outcome.words(rank, "2"),
                expected[rank as usize],
                "{fault:?}"
            );
            for other in ["0", "1"] {
                assert_eq!(outcome.words(rank, other), clean.words(rank, other));
            }
            let (roots, clean) = (&outcome.record().roots, &clean.record().roots);
            assert_eq!(roots[&(0, rank)], clean[&(0, rank)], "{fault:?}");
            let hit = expected[rank as usize] != right;
            assert_eq!(roots[&(1, rank)] != clean[&(1, rank)], hit, "{fault:?}");
        }
    }
}

/// A fault whose node never comes is not silently taken for caught.
#[test]
fn a_fault_without_a_place_is_not_planted() {
    let (step, owner) = (1, Owner::Group(0));
    let at = NodeId {
        step,
        owner,
        ordinal: 3,
    };
    let fault = FoldFault::FlipLastBit { element: 0 };
    let (rank, nth) = (2, 3);
    let nowhere = |fault| PlantedFault::Fold { at: TARGET, fault };
    let faults = [
        PlantedFault::Fold { at, fault },
        nowhere(FoldFault::Order([0, 1].into())),
        nowhere(FoldFault::DuplicateAddend { lost: 1, twice: 1 }),
        nowhere(FoldFault::DuplicateAddend { lost: 3, twice: 1 }),
        nowhere(FoldFault::NarrowPartial(Dtype::F32)),
        nowhere(FoldFault::FlipLastBit { element: 40 }),
        nowhere(FoldFault::SwapElements { element: 39 }),
        nowhere(FoldFault::StaleDestination { destination: 3 }),
        nowhere(FoldFault::DriftingDestination { destination: 3 }),
        PlantedFault::DropWait { rank, step, nth },
        PlantedFault::SkipLaunch { rank, step, nth },
    ];
    let clean = Cluster::new(3).run(program);
    for fault in faults {
        let outcome = with(fault.clone()).run(program);
        assert_eq!(outcome.record().faults_planted, 0, "{fault:?}");
        assert_eq!(outcome.record().root(), clean.record().root());
    }
}

#[test]
fn a_state_fault_drifts_one_copy() {
    let program = |rank: &mut Rank, _: &Seen| {
        let x = tensor(rank, "x", &[1.5; 4]);
        rank.persist(Component::MainParams, "x", x);
        rank.replicate(ALL, "x", x);
        rank.end_setup()?;
        for step in 0..3 {
            rank.set_step(step);
            step_in_place(rank, "step", x, 0.5);
            rank.end_step()?;
        }
        Ok(())
    };
    let fault = PlantedFault::State {
        after_step: 1,
        rank: 2,
        component: Component::MainParams,
        name: "x".to_string(),
    };
    let outcome = with(fault).run(program);
    let record = outcome.record();
    assert_eq!(record.faults_planted, 1);
    let steps: Vec<Option<u32>> = record.drifts.iter().map(|drift| drift.step).collect();
    assert_eq!(steps, [Some(1), Some(2)]);
    let drift = &record.drifts[0];
    assert_eq!(
        (&*drift.group, &*drift.name, drift.ranks),
        ("group0", "x", (0, 2))
    );
    assert_eq!(Cluster::new(3).run(program).record().drifts, []);
}

/// What is computed twice is compared, by microbatch and name, and a difference is named.
#[test]
fn what_is_computed_again_must_be_what_it_was() {
    let program = |skips: bool| {
        move |rank: &mut Rank, _: &Seen| {
            let (x, y) = (
                rank.alloc("x", Dtype::U32, 4),
                rank.alloc("y", Dtype::U32, 4),
            );
            rank.end_setup()?;
            rank.set_step(3);
            for microbatch in 0..2 {
                rank.set_microbatch(Some(microbatch));
                rank.upload("first", x, &[microbatch; 4]);
                rank.remember("unit", &[("x", x)]);
            }
            for microbatch in 0..2 {
                rank.set_microbatch(Some(microbatch));
                if !(skips && microbatch == 1 && rank.id == 1) {
                    rank.upload("again", y, &[microbatch; 4]);
                }
                rank.expect("unit", &[("x", y)]);
            }
            rank.end_step()
        }
    };
    let outcome = Cluster::new(2).run(program(false));
    assert_eq!(
        (outcome.record().recomputed, &*outcome.record().drifts),
        (4, &[][..])
    );
    let outcome = Cluster::new(2).run(program(true));
    let record = outcome.record();
    let said: Vec<String> = record.drifts.iter().map(ToString::to_string).collect();
    assert_eq!(
        said,
        [
            "in step 3, microbatch 1, `unit.x` differs on rank 1 between the forward and its \
             recomputation"
        ]
    );
}

/// Sees which choice a node has.
struct Choices(Arc<Mutex<Vec<(NodeId, &'static str)>>>);

impl Observer for Choices {
    fn on_fold(&mut self, node: &FoldNode, _: &mut FoldLab<'_>) -> Result<(), EngineError> {
        let mut seen = self.0.lock().expect("only here");
        seen.push((node.id, Choice::name(&node.choice)));
        Ok(())
    }
}

#[test]
fn a_planted_race_is_an_arrival_fold() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let cluster = Cluster::new(3).options(|options| {
        options.arrival_at.insert(TARGET);
    });
    let raced = cluster.run_observed(program, Choices(seen.clone()));
    let seen = seen.lock().expect("the run is over");
    let arrivals: Vec<_> = seen
        .iter()
        .filter(|(_, choice)| *choice == "arrival")
        .collect();
    assert_eq!(arrivals, [&(TARGET, "arrival")]);
    assert_eq!(seen.len(), 6);
    // The reference of an arrival fold is the node's own plan: nothing changes by itself.
    let clean = Cluster::new(3).run_observed(program, Unobserved);
    assert_eq!(raced.record().root(), clean.record().root());
}

/// Two steps of two collectives, each awaited, then a launch into fresh memory, then its use.
fn commands(rank: &mut Rank, seen: &Seen) -> Result<(), RankError> {
    let (x, y) = (tensor(rank, "x", &[1.0; 8]), tensor(rank, "y", &[2.0; 8]));
    rank.end_setup()?;
    for step in 0..2 {
        rank.set_step(step);
        rank.set_phase(Phase::Backward);
        for (name, tensor) in [("reduce x", x), ("reduce y", y)] {
            let handle = rank.all_reduce(name, FAMILY, ALL, tensor, Combine::Sum);
            rank.wait(handle);
            step_in_place(rank, &format!("after {name}"), tensor, 0.25);
        }
        let out = rank.alloc("out", Dtype::F32, 8);
        scale_add(rank, "blend", [x, y, out], 1.0);
        step_in_place(rank, "use", out, 1.0);
        show(rank, seen, "out", out)?;
        rank.free(out);
        rank.end_step()?;
    }
    Ok(())
}

fn hazards_of(outcome: &Outcome) -> Vec<(HazardKind, u32, u32, &str, &str)> {
    let hazards = &outcome.record().hazards;
    let told = hazards.iter().map(|hazard| {
        let (first, second) = (&hazard.first.site, &hazard.second.site);
        (
            hazard.kind,
            hazard.rank,
            second.step,
            &*first.op,
            &*second.op,
        )
    });
    told.collect()
}

#[test]
fn a_dropped_wait_is_a_hazard_at_its_place() {
    assert_eq!(Cluster::new(3).watched().run(commands).record().hazards, []);
    let (rank, step, nth) = (2, 1, 1);
    let outcome = with(PlantedFault::DropWait { rank, step, nth }).run(commands);
    assert_eq!(outcome.record().faults_planted, 1);
    let found = hazards_of(&outcome);
    let kinds: Vec<HazardKind> = found.iter().map(|hazard| hazard.0).collect();
    assert!(kinds.contains(&HazardKind::ReadBeforeComplete), "{found:?}");
    for (_, at, when, first, _) in &found {
        assert_eq!((*at, *when, *first), (2, 1, "reduce y"), "{found:?}");
    }
}

#[test]
fn a_skipped_launch_leaves_its_output_unwritten() {
    let (rank, step, nth) = (1, 1, 2);
    let outcome = with(PlantedFault::SkipLaunch { rank, step, nth }).run(commands);
    assert_eq!(outcome.record().faults_planted, 1);
    let kind = HazardKind::UninitialisedRead;
    assert_eq!(hazards_of(&outcome), [(kind, 1, 1, "alloc out", "use")]);
}

#[test]
fn a_wrong_count_and_a_missing_call_are_mismatches() {
    let (group, rank, step, nth) = (ALL, 1, 1, 1);
    let outcome = with(PlantedFault::MismatchCount {
        group,
        rank,
        step,
        nth,
    })
    .run(commands);
    let text = outcome.error().to_string();
    for part in [
        "ranks [1] call all_reduce sum of 7",
        "ranks [0, 2] call",
        "step 1, backward",
    ] {
        assert!(text.contains(part), "{text}");
    }
    let outcome = with(PlantedFault::MissingCall {
        group,
        rank,
        step,
        nth,
    })
    .run(commands);
    let WorldError::CollectiveMismatch { group, detail, .. } = outcome.error() else {
        panic!("{}", outcome.error());
    };
    assert_eq!(group, "group0");
    for part in [
        "ranks 0, 2 wait in all_reduce",
        "step 1, backward, , reduce y",
        "rank 1",
    ] {
        assert!(detail.contains(part), "{detail}");
    }
}

#[test]
fn a_short_extent_is_reported_by_the_engine() {
    let (rank, step, nth) = (2, 0, 2);
    let outcome = with(PlantedFault::WrongKernelExtent { rank, step, nth }).run(commands);
    let text = outcome.error().to_string();
    for part in [
        "rank 2",
        "step 0",
        "blend",
        "scale_add",
        "`out`",
        "7 elements",
    ] {
        assert!(text.contains(part), "{text}");
    }
}

/// Rank 0 leaves out a call of all ranks and goes on to a smaller group, whose other members never
/// get there: the call that was left out is named, not the one that it holds up.
#[test]
fn a_missing_call_is_named_though_others_wait_elsewhere() {
    let program = |rank: &mut Rank, _: &Seen| {
        let x = tensor(rank, "x", &[1.0; 8]);
        rank.end_setup()?;
        rank.set_phase(Phase::GradReduce);
        let pair = bitproof::world::GroupId(1 + rank.id % 2);
        let world = bitproof::world::GroupId(3);
        for (name, group) in [("first", pair), ("norm", world), ("second", pair)] {
            let handle = rank.all_reduce(name, FAMILY, group, x, Combine::Sum);
            rank.wait(handle);
        }
        rank.end_step()
    };
    let (rank, step, nth) = (0, 0, 0);
    let group = bitproof::world::GroupId(3);
    let fault = PlantedFault::MissingCall {
        group,
        rank,
        step,
        nth,
    };
    let cluster = Cluster::new(4)
        .group(&[0, 2])
        .group(&[1, 3])
        .group(&[0, 1, 2, 3]);
    let outcome = cluster
        .options(|options| options.faults.push(fault))
        .run(program);
    let WorldError::CollectiveMismatch { group, detail, .. } = outcome.error() else {
        panic!("{}", outcome.error());
    };
    assert_eq!(group, "group3", "{detail}");
    assert!(
        detail.contains("ranks 1, 2, 3 wait in") && detail.contains("norm"),
        "{detail}"
    );
    assert!(
        detail.contains("rank 0 is in") && detail.contains("second"),
        "{detail}"
    );
}
