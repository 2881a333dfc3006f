//! Faults by name: each strikes what it names, on the ranks and in the steps it says, and the world
//! lists what could be named.

use bitproof::fault::{BitFlip, Fault, FaultKind, FlipTarget};
use bitproof::numerics::Dtype;
use bitproof::plan::Combine;
use bitproof::world::{Family, HazardKind, Phase, PlantedFault, Rank, RankError};

use crate::cluster::{ALL, Cluster, Outcome, Seen, show, step_in_place, tensor};

const FAMILY: Family = Family::DpGradients;

/// A constant that a send reads, and an activation that is sent on and freed: the wait that
/// protects the activation is listed, and nothing of the constant.
#[test]
fn only_what_is_written_or_freed_again_is_reused() {
    let program = |rank: &mut Rank, seen: &Seen| {
        let constant = tensor(rank, "constant", &[2.0; 8]);
        let kept = tensor(rank, "kept", &[0.0; 8]);
        rank.end_setup()?;
        let peer = 1 - rank.id;
        for step in 1..3 {
            rank.set_step(step);
            let arrived = rank.alloc("arrived", Dtype::F32, 8);
            let sent = rank.module("p2p", |rank| rank.send("constant", peer, constant));
            let received = rank.module("p2p", |rank| rank.recv("recv", peer, arrived));
            rank.wait(sent);
            rank.wait(received);
            rank.module("store", |rank| rank.copy("keep", arrived, kept));
            // The copy reads on the compute stream, and the next message is written on another.
            let again = rank.module("p2p", |rank| rank.recv("again", peer, arrived));
            let activation = tensor(rank, "activation", &[step as f32; 8]);
            let sent = rank.module("p2p", |rank| rank.send("activation", peer, activation));
            rank.wait(sent);
            rank.free(activation);
            rank.wait(again);
            rank.free(arrived);
            show(rank, seen, &format!("kept {step}"), kept)?;
            rank.end_step()?;
        }
        Ok(())
    };
    let with = |faults: Vec<PlantedFault>| {
        let cluster = Cluster::new(2).watched();
        cluster
            .options(|options| {
                options.faults = faults;
                options.list_faults = true;
            })
            .run(program)
    };
    let sound = with(Vec::new());
    assert_eq!(sound.record().hazards, []);
    let hosts = sound.record().fault_hosts.keys();
    let reused: Vec<&str> = hosts
        .filter(|(kind, _)| *kind == FaultKind::ReuseEarly)
        .map(|(_, name)| name.as_str())
        .collect();
    assert_eq!(reused, ["activation", "arrived"]);
    for name in reused {
        let outcome = with(vec![everywhere(FaultKind::ReuseEarly, name)]);
        let hazards = &outcome.record().hazards;
        assert!(!hazards.is_empty(), "{name}");
        for hazard in hazards {
            assert_eq!(hazard.buffer.as_deref(), Some(name), "{hazard}");
        }
    }
    let nothing = with(vec![everywhere(FaultKind::ReuseEarly, "constant")]);
    assert_eq!((met(&nothing), nothing.record().hazards.len()), (0, 0));
}

/// A read that runs before the write that it should have waited for, and a second one on the same
/// stream before that write comes: neither is a read of what nobody writes.
#[test]
fn what_is_only_early_is_no_uninitialised_read() {
    let program = |rank: &mut Rank, seen: &Seen| {
        let x = tensor(rank, "x", &[1.0; 8]);
        let (first, second) = (
            tensor(rank, "first", &[0.0; 8]),
            tensor(rank, "second", &[0.0; 8]),
        );
        let sum = rank.alloc("sum", Dtype::F32, 16);
        rank.end_setup()?;
        rank.set_step(1);
        let handle = rank.module("tp", |rank| rank.all_gather("all_gather", ALL, x, sum));
        rank.wait(handle);
        rank.copy("dropout", sum.slice(0, 8), first);
        rank.copy("residual", sum.slice(0, 8), second);
        show(rank, seen, "first", first)?;
        rank.end_step()
    };
    let with = |faults: Vec<PlantedFault>| {
        let cluster = Cluster::new(2).watched();
        cluster
            .options(|options| options.faults = faults)
            .run(program)
    };
    assert_eq!(with(Vec::new()).record().hazards, []);
    let outcome = with(vec![everywhere(FaultKind::DropWait, "tp.all_gather")]);
    let hazards = &outcome.record().hazards;
    assert!(!hazards.is_empty());
    for hazard in hazards {
        assert_ne!(hazard.kind, HazardKind::UninitialisedRead, "{hazard}");
        assert_eq!(hazard.edge.as_deref(), Some("tp.all_gather"), "{hazard}");
    }
    // The negative control: without the call nothing ever writes it.
    let skipped = with(vec![everywhere(FaultKind::SkipCollective, "tp.all_gather")]);
    let kinds = skipped.record().hazards.iter().map(|hazard| hazard.kind);
    assert!(
        kinds
            .into_iter()
            .all(|kind| kind == HazardKind::UninitialisedRead)
    );
    assert!(!skipped.record().hazards.is_empty());
}

/// Two steps: a bucket is reduced and updated, an activation is sent on and freed, another takes
/// its block.
fn program(rank: &mut Rank, seen: &Seen) -> Result<(), RankError> {
    let grad = tensor(rank, "grad", &[1.0; 8]);
    let kept = tensor(rank, "kept", &[0.0; 8]);
    rank.end_setup()?;
    for step in 1..3 {
        rank.set_step(step);
        rank.set_phase(Phase::GradReduce);
        let handle = rank.edge("grad_reduce.bucket0", |rank| {
            rank.module("ddp", |rank| {
                rank.all_reduce("all_reduce", FAMILY, ALL, grad, Combine::Sum)
            })
        });
        rank.wait(handle);
        rank.module("optimizer", |rank| step_in_place(rank, "adam", grad, 0.25));
        let peer = 1 - rank.id;
        let activation = tensor(rank, "activation", &[step as f32; 8]);
        let arrived = rank.alloc("arrived", Dtype::F32, 8);
        let sent = rank.module("p2p", |rank| rank.send("send", peer, activation));
        let received = rank.module("p2p", |rank| rank.recv("recv", peer, arrived));
        rank.wait(sent);
        rank.wait(received);
        rank.free(activation);
        let next = tensor(rank, "next", &[-1.0; 8]);
        rank.module("store", |rank| rank.copy("keep", arrived, kept));
        rank.free(next);
        rank.free(arrived);
        show(rank, seen, &format!("kept {step}"), kept)?;
        show(rank, seen, &format!("grad {step}"), grad)?;
        rank.end_step()?;
    }
    Ok(())
}

fn run(faults: &[PlantedFault]) -> Outcome {
    let faults = faults.to_vec();
    let cluster = Cluster::new(2).watched();
    cluster
        .options(|options| {
            options.faults = faults;
            options.list_faults = true;
            options.record_nodes = true;
        })
        .run(program)
}

fn everywhere(kind: FaultKind, at: &str) -> PlantedFault {
    PlantedFault::Named(Fault::everywhere(kind, at))
}

fn met(outcome: &Outcome) -> u64 {
    outcome.record().faults_met.values().sum()
}

#[test]
fn places_are_listed_with_their_ranks() {
    let outcome = run(&[]);
    assert_eq!(outcome.record().hazards, []);
    let hosts = &outcome.record().fault_hosts;
    for (kind, at) in [
        (FaultKind::DropWait, "grad_reduce.bucket0"),
        (FaultKind::DropWait, "grad_reduce.bucket0.start"),
        (FaultKind::DropWait, "p2p.send"),
        (FaultKind::SkipCollective, "ddp.all_reduce"),
        (FaultKind::SkipLaunch, "optimizer.adam"),
        (FaultKind::SkipCopy, "store.keep"),
        (FaultKind::ReuseEarly, "activation"),
    ] {
        let host = hosts.get(&(kind, at.to_string()));
        let host = host.unwrap_or_else(|| panic!("no {kind:?} of {at} in {hosts:#?}"));
        assert_eq!(
            (host.ranks.len(), host.times_in_step),
            (2, 1),
            "{kind:?} {at}"
        );
    }
    // Nobody reads what arrives on another stream: nothing protects it.
    assert!(!hosts.contains_key(&(FaultKind::ReuseEarly, "arrived".to_string())));
}

#[test]
fn a_dropped_wait_is_named_by_the_edge() {
    let outcome = run(&[everywhere(FaultKind::DropWait, "grad_reduce.bucket0")]);
    assert_eq!(met(&outcome), 4, "two ranks, two steps");
    let hazards = &outcome.record().hazards;
    assert!(!hazards.is_empty());
    for hazard in hazards {
        assert_eq!(
            hazard.edge.as_deref(),
            Some("grad_reduce.bucket0"),
            "{hazard}"
        );
        assert_eq!(hazard.buffer.as_deref(), Some("grad"));
    }
    let told = &hazards[0].missing_edge;
    let expected = "the compute stream must wait for `grad_reduce.bucket0` before `adam`";
    assert_eq!(told, expected);
    // The edge that puts the collective behind the gradients is another one.
    let outcome = run(&[everywhere(FaultKind::DropWait, "p2p.send.start")]);
    let hazards = &outcome.record().hazards;
    assert_eq!(hazards[0].edge.as_deref(), Some("p2p.send.start"));
    assert_eq!(hazards[0].buffer.as_deref(), Some("activation"));
}

#[test]
fn a_fault_strikes_only_the_rank_and_step_it_names() {
    let fault = Fault {
        rank: Some(1),
        step: Some(2),
        ..Fault::everywhere(FaultKind::DropWait, "grad_reduce.bucket0")
    };
    let outcome = run(&[PlantedFault::Named(fault.clone())]);
    assert_eq!(outcome.record().faults_met.get(&fault), Some(&1));
    for hazard in &outcome.record().hazards {
        assert_eq!((hazard.rank, hazard.second.site.step), (1, 2), "{hazard}");
    }
    let nowhere = run(&[everywhere(FaultKind::DropWait, "grad_reduce.bucket1")]);
    assert_eq!(met(&nowhere), 0);
    assert_eq!(nowhere.record().hazards, []);
    assert_eq!(nowhere.record().root(), run(&[]).record().root());
}

#[test]
fn what_is_skipped_leaves_the_old_words() {
    let sound = run(&[]);
    assert_eq!(sound.values(0, "grad 1"), [1.5; 8]);
    let unreduced = run(&[everywhere(FaultKind::SkipCollective, "ddp.all_reduce")]);
    assert_eq!(unreduced.values(0, "grad 1"), [1.25; 8]);
    let unmoved = run(&[everywhere(FaultKind::SkipLaunch, "optimizer.adam")]);
    assert_eq!(unmoved.values(0, "grad 1"), [2.0; 8]);
    let uncopied = run(&[everywhere(FaultKind::SkipCopy, "store.keep")]);
    assert_eq!(uncopied.values(0, "kept 1"), [0.0; 8]);
    assert_eq!(sound.values(0, "kept 1"), [1.0; 8]);
    for outcome in [&unreduced, &unmoved, &uncopied] {
        assert_eq!(met(outcome), 4);
    }
}

/// `NVIDIA/Megatron-LM#4047`: an activation is freed while its send still reads it.
#[test]
fn a_buffer_that_is_reused_early_is_named() {
    let outcome = run(&[everywhere(FaultKind::ReuseEarly, "activation")]);
    assert_eq!(met(&outcome), 4);
    let hazards = &outcome.record().hazards;
    assert!(!hazards.is_empty());
    for hazard in hazards {
        assert_eq!(hazard.kind, HazardKind::ReuseWhileInUse, "{hazard}");
        assert_eq!(hazard.buffer.as_deref(), Some("activation"));
        assert_eq!(hazard.edge.as_deref(), Some("p2p.send"));
    }
}

#[test]
fn a_bit_flips_once_and_where_it_is_told() {
    let flip = |at, step| {
        PlantedFault::Flip(BitFlip {
            at,
            rank: 1,
            step,
            bit: 33,
        })
    };
    let sound = run(&[]);
    let node = run(&[flip(FlipTarget::Node("optimizer.adam".into()), 2)]);
    assert_eq!(node.record().flips_met.len(), 1);
    let differing = |outcome: &Outcome| {
        let pairs = sound.record().records.iter().zip(&outcome.record().records);
        let first = pairs.into_iter().find(|(a, b)| a.digest != b.digest);
        first.map(|(a, _)| (a.rank, a.site.step, a.site.node()))
    };
    assert_eq!(differing(&node), Some((1, 2, "optimizer.adam".to_string())));
    let words = |outcome: &Outcome| outcome.words(1, "grad 2");
    assert_eq!(words(&node)[1], words(&sound)[1] ^ 2);
    let buffer = run(&[flip(FlipTarget::Buffer("grad".into()), 1)]);
    assert_eq!(
        differing(&buffer),
        Some((0, 2, "ddp.all_reduce".to_string()))
    );
    let nowhere = run(&[flip(FlipTarget::Buffer("grads".into()), 1)]);
    assert_eq!(nowhere.record().flips_met.len(), 0);
    assert_eq!(differing(&nowhere), None);
}

/// What is no fault of a command is asked for by the program, and listed all the same.
#[test]
fn the_program_may_ask_for_a_fault() {
    let asking = |rank: &mut Rank, seen: &Seen| {
        rank.set_step(1);
        let struck = rank.has_fault(FaultKind::OmitComponent, "flag");
        let x = tensor(rank, "x", &[f32::from(u8::from(struck))]);
        show(rank, seen, "struck", x)
    };
    let fault = Fault {
        rank: Some(1),
        ..Fault::everywhere(FaultKind::OmitComponent, "flag")
    };
    let planted = fault.clone();
    let cluster = Cluster::new(2).options(|options| {
        options.faults.push(PlantedFault::Named(planted));
        options.list_faults = true;
    });
    let outcome = cluster.run(asking);
    assert_eq!(outcome.values(0, "struck"), [0.0]);
    assert_eq!(outcome.values(1, "struck"), [1.0]);
    assert_eq!(outcome.record().faults_met.get(&fault), Some(&1));
    let key = (FaultKind::OmitComponent, "flag".to_string());
    assert_eq!(outcome.record().fault_hosts[&key].ranks.len(), 2);
}
