//! Whatever goes wrong in a rank, a kernel or between ranks ends the run at once, with a message
//! that names who and where.

use bitproof::numerics::Dtype;
use bitproof::plan::Combine;
use bitproof::world::{Family, GroupId, Rank, RankError, WorldError};

use crate::cluster::{ALL, Cluster, Seen, rough, scale_add, show, tensor};

const SUM: Combine = Combine::Sum;
const FAMILY: Family = Family::DpGradients;

/// All-reduces a tensor of `len` in group 0 and reads it.
fn reduce(rank: &mut Rank, seen: &Seen, op: &str, len: u32) -> Result<(), RankError> {
    let x = tensor(rank, "x", &rough(rank.id, 1, len));
    let handle = rank.all_reduce(op, FAMILY, ALL, x, SUM);
    rank.wait(handle);
    show(rank, seen, "x", x)
}

fn mismatch(error: &WorldError) -> (&str, &str) {
    match error {
        WorldError::CollectiveMismatch { group, detail, .. } => (group, detail),
        other => panic!("{other} is no mismatch"),
    }
}

#[test]
fn a_panic_in_one_rank_ends_the_run_with_its_message() {
    let outcome = Cluster::new(4).run(|rank, seen| {
        assert!(rank.id != 2, "rank two had enough");
        reduce(rank, seen, "sum", 8)
    });
    match outcome.error() {
        WorldError::RankPanicked { rank: 2, message } => {
            assert!(message.contains("rank two had enough"), "{message}");
        }
        other => panic!("{other}"),
    }
}

#[test]
fn an_error_in_one_rank_ends_the_run_with_its_message() {
    let outcome = Cluster::new(3).run(|rank, seen| match rank.id {
        1 => Err(RankError::Program("no data left".to_string())),
        _ => reduce(rank, seen, "sum", 8),
    });
    match outcome.error() {
        WorldError::RankFailed { rank: 1, message } => assert_eq!(message, "no data left"),
        other => panic!("{other}"),
    }
}

/// Which thread was faster must not show: of several failures the lowest rank's is reported.
#[test]
fn of_many_failures_the_lowest_ranks_is_reported() {
    for _ in 0..20 {
        let outcome = Cluster::new(6).run(|rank, seen| match rank.id {
            0 => reduce(rank, seen, "sum", 8),
            id => Err(RankError::Program(format!("failure {id}"))),
        });
        match outcome.error() {
            WorldError::RankFailed { rank: 1, message } => assert_eq!(message, "failure 1"),
            other => panic!("{other}"),
        }
    }
}

/// A rank's own misuse of its interface is its failure, and says what was wrong.
#[test]
fn misuse_is_the_ranks_failure() {
    type Misuse = fn(&mut Rank);
    let cases: [(&str, Misuse); 7] = [
        ("unequal length", |rank| {
            let (a, b) = (tensor(rank, "a", &[1.0]), tensor(rank, "b", &[1.0, 2.0]));
            rank.copy("copy", a, b);
        }),
        ("upload `load` of 3 words into 2", |rank| {
            let a = rank.alloc("a", Dtype::F32, 2);
            rank.upload("load", a, &[1, 2, 3]);
        }),
        ("does not fit", |rank| {
            let a = rank.alloc("huge", Dtype::F32, u32::MAX - 64);
            rank.free(a);
        }),
        ("freed twice", |rank| {
            let a = rank.alloc("a", Dtype::F32, 2);
            rank.free(a);
            rank.free(a);
        }),
        ("without being in it", |rank| {
            let a = tensor(rank, "a", &[1.0]);
            let handle = rank.all_reduce("foreign", FAMILY, GroupId(1), a, SUM);
            rank.wait(handle);
        }),
        ("reduce_scatter of 5", |rank| {
            let (a, b) = (tensor(rank, "a", &[1.0; 5]), tensor(rank, "b", &[1.0; 2]));
            let handle = rank.reduce_scatter("uneven", FAMILY, ALL, a, b);
            rank.wait(handle);
        }),
        ("addend words are not", |rank| {
            let (addends, out) = (tensor(rank, "a", &[1.0; 5]), tensor(rank, "b", &[1.0; 2]));
            let (slots, init) = (2, bitproof::plan::Init::First);
            let (family, order) = (FAMILY, bitproof::world::LocalOrder::Ordered);
            let fold = bitproof::world::SlotFold {
                family,
                addends,
                slots,
                out,
                init,
                order,
            };
            rank.fold("uneven", fold);
        }),
    ];
    for (expected, misuse) in cases {
        let outcome = Cluster::new(3).group(&[0, 1]).run(move |rank, seen| {
            if rank.id == 2 {
                misuse(rank);
            }
            reduce(rank, seen, "sum", 4)
        });
        match outcome.error() {
            WorldError::RankFailed { rank: 2, message } => {
                assert!(message.contains(expected), "{message}");
            }
            other => panic!("{expected}: {other}"),
        }
    }
}

#[test]
fn a_collective_that_some_rank_never_joins_names_all_of_them() {
    let outcome = Cluster::new(3).run(|rank, seen| {
        rank.module("layer0", |rank| match rank.id {
            1 => Ok(()),
            _ => reduce(rank, seen, "grads", 8),
        })
    });
    let (group, detail) = mismatch(outcome.error());
    assert_eq!(group, "group0");
    for part in [
        "ranks 0, 2 wait in all_reduce sum of 8 f32",
        "layer0, grads",
        "rank 1 has finished and never joins",
    ] {
        assert!(detail.contains(part), "{detail}");
    }
}

/// Each way in which one rank's call can differ from the others'.
#[test]
fn a_collective_that_is_called_differently_names_ranks_and_sites() {
    type Other = fn(&mut Rank) -> bitproof::world::Handle;
    let cases: [(&str, Other); 5] = [
        ("all_reduce sum of 6 f32", |rank| {
            let x = tensor(rank, "x", &[1.0; 6]);
            rank.all_reduce("other", FAMILY, ALL, x, SUM)
        }),
        ("all_reduce sum of 8 bf16", |rank| {
            let x = crate::cluster::typed(rank, "x", Dtype::Bf16, &[1.0; 8]);
            rank.all_reduce("other", FAMILY, ALL, x, SUM)
        }),
        ("all_reduce max of 8 f32", |rank| {
            let x = tensor(rank, "x", &[1.0; 8]);
            rank.all_reduce("other", FAMILY, ALL, x, Combine::Max)
        }),
        ("broadcast from place 2 of 8 f32", |rank| {
            let x = tensor(rank, "x", &[1.0; 8]);
            rank.broadcast("other", ALL, x, 2)
        }),
        ("all_gather of 8 f32 into 32", |rank| {
            let (x, y) = (tensor(rank, "x", &[1.0; 8]), tensor(rank, "y", &[0.0; 32]));
            rank.all_gather("other", ALL, x, y)
        }),
    ];
    for (signature, call) in cases {
        let outcome = Cluster::new(4).run(move |rank, seen| match rank.id {
            3 => {
                let handle = call(rank);
                rank.wait(handle);
                rank.end_setup()
            }
            _ => reduce(rank, seen, "grads", 8),
        });
        let (_, detail) = mismatch(outcome.error());
        let (theirs, others) = (
            format!("ranks [3] call {signature}"),
            "ranks [0, 1, 2] call",
        );
        assert!(detail.contains(&theirs), "{detail}");
        assert!(detail.contains(others), "{detail}");
        assert!(
            detail.contains("other") && detail.contains("grads"),
            "{detail}"
        );
    }
}

/// The same calls in another order.
#[test]
fn calls_in_another_order_are_a_mismatch() {
    let outcome = Cluster::new(2).run(|rank, seen| {
        let lens = if rank.id == 0 { [4, 8] } else { [8, 4] };
        lens.into_iter()
            .try_for_each(|len| reduce(rank, seen, &format!("sum {len}"), len))
    });
    let (_, detail) = mismatch(outcome.error());
    assert!(
        detail.contains("sum 4") && detail.contains("sum 8"),
        "{detail}"
    );
}

/// Two communicators, each joined first by another rank: a deadlock on a cluster.
#[test]
fn crossed_communicators_are_reported() {
    let outcome = Cluster::new(2).group(&[0, 1]).run(|rank, _| {
        let (x, y) = (tensor(rank, "x", &[1.0; 4]), tensor(rank, "y", &[1.0; 4]));
        let mut calls = [(GroupId(0), x), (GroupId(1), y)];
        if rank.id == 1 {
            calls.reverse();
        }
        for (group, tensor) in calls {
            let handle = rank.all_reduce(&format!("sum {}", group.0), FAMILY, group, tensor, SUM);
            rank.wait(handle);
        }
        rank.end_setup()
    });
    let (group, detail) = mismatch(outcome.error());
    assert_eq!(group, "group0");
    assert!(detail.contains("ranks 0 wait in"), "{detail}");
    assert!(
        detail.contains("rank 1 is in") && detail.contains("sum 1"),
        "{detail}"
    );
}

/// The same without a wait between the calls is legal: each communicator has its own stream.
#[test]
fn crossed_communicators_without_waits_between_go_through() {
    let outcome = Cluster::new(2).group(&[0, 1]).run(|rank, seen| {
        let x = tensor(rank, "x", &[1.0; 4]);
        let y = tensor(rank, "y", &[2.0; 4]);
        let mut calls = [(GroupId(0), x), (GroupId(1), y)];
        if rank.id == 1 {
            calls.reverse();
        }
        let handles =
            calls.map(|(group, tensor)| rank.all_reduce("sum", FAMILY, group, tensor, SUM));
        handles.into_iter().for_each(|handle| rank.wait(handle));
        show(rank, seen, "x", x)?;
        show(rank, seen, "y", y)
    });
    assert_eq!(outcome.values(1, "x"), [2.0; 4]);
    assert_eq!(outcome.values(0, "y"), [4.0; 4]);
}

#[test]
fn a_deadlock_of_messages_is_reported_exactly() {
    let outcome = Cluster::new(3).run(|rank, _| {
        let peer = (rank.id + 1) % 3;
        let (x, y) = (tensor(rank, "x", &[1.0; 4]), tensor(rank, "y", &[0.0; 4]));
        let handle = rank.recv("activation", peer, y);
        rank.wait(handle);
        rank.read("look", y)?;
        let handle = rank.send("activation", (rank.id + 2) % 3, x);
        rank.wait(handle);
        rank.end_setup()
    });
    let WorldError::Deadlock { detail, .. } = outcome.error() else {
        panic!("{}", outcome.error());
    };
    for rank in 0..3 {
        let peer = (rank + 1) % 3;
        let told = format!("a receive of 4 from rank {peer} at step 0, setup");
        assert!(detail.contains(&format!("rank {rank} is in")), "{detail}");
        assert!(detail.contains(&told), "{detail}");
    }
}

/// A rank that has returned is still asked for the work it left behind.
#[test]
fn a_send_that_nobody_receives_is_reported_though_all_have_finished() {
    let outcome = Cluster::new(2).run(|rank, _| {
        let x = tensor(rank, "x", &[1.0; 4]);
        if rank.id == 0 {
            let _unawaited = rank.send("lost", 1, x);
        }
        Ok(())
    });
    let WorldError::Deadlock { detail, .. } = outcome.error() else {
        panic!("{}", outcome.error());
    };
    assert!(detail.contains("a send of 4 to rank 1"), "{detail}");
    assert!(detail.contains("lost"), "{detail}");
}

/// NCCL pairs calls by their order alone: two of one shape that ranks issue in another order fit,
/// and mix.
#[test]
fn calls_of_one_shape_from_other_places_are_a_mismatch() {
    let program = |rank: &mut Rank, seen: &Seen, swapped: bool| {
        let x = tensor(rank, "x", &rough(rank.id, 1, 8));
        let y = tensor(rank, "y", &rough(rank.id, 2, 8));
        let mut buckets = [("bucket0", x), ("bucket1", y)];
        if swapped && rank.id == 2 {
            buckets.reverse();
        }
        for (module, bucket) in buckets {
            let handle = rank.module(module, |rank| {
                rank.all_reduce("sum", FAMILY, ALL, bucket, SUM)
            });
            rank.wait(handle);
        }
        show(rank, seen, "x", x)
    };
    let sound = Cluster::new(3).run(move |rank, seen| program(rank, seen, false));
    sound.record();
    let outcome = Cluster::new(3).run(move |rank, seen| program(rank, seen, true));
    let (group, detail) = mismatch(outcome.error());
    assert_eq!(group, "group0");
    for part in [
        "ranks [0, 1] call",
        "bucket0",
        "ranks [2] call",
        "bucket1",
        "mix silently",
    ] {
        assert!(detail.contains(part), "{detail}");
    }
    let WorldError::CollectiveMismatch { sides, .. } = outcome.error() else {
        unreachable!("it was one");
    };
    let ranks: Vec<&[u32]> = sides.iter().map(|side| &side.ranks[..]).collect();
    assert_eq!(ranks, [&[0, 1][..], &[2]]);
    assert!(sides.iter().all(|side| side.site.is_some()));
}

#[test]
fn a_message_of_another_length_is_a_mismatch() {
    let outcome = Cluster::new(2).run(|rank, _| {
        let x = tensor(rank, "x", &vec![1.0; 4 + rank.id as usize]);
        let handle = match rank.id {
            0 => rank.send("out", 1, x),
            _ => rank.recv("in", 0, x),
        };
        rank.wait(handle);
        rank.end_setup()
    });
    let (group, detail) = mismatch(outcome.error());
    assert_eq!(group, "messages 0 -> 1");
    assert!(detail.contains("rank 0 sends 4 f32"), "{detail}");
    assert!(detail.contains("rank 1 receives 5 f32"), "{detail}");
}

#[test]
fn an_index_outside_an_operand_names_kernel_and_rank() {
    for workers in [1, 2] {
        let mut cluster = Cluster::new(3);
        cluster.workers = workers;
        let outcome = cluster.run(|rank, _| {
            let (a, b) = (tensor(rank, "a", &[1.0; 8]), tensor(rank, "b", &[1.0; 8]));
            let short = if rank.id == 1 { b.slice(0, 7) } else { b };
            let out = rank.alloc("out", Dtype::F32, 8);
            scale_add(rank, "blend", [a, short, out], 2.0);
            rank.end_setup()
        });
        let text = outcome.error().to_string();
        for part in ["rank 1", "blend", "scale_add", "`b`", "7 elements"] {
            assert!(text.contains(part), "{text}");
        }
    }
}

#[test]
fn an_unknown_kernel_and_a_wrong_number_of_operands_are_reported() {
    let cases: [(&str, &str, usize); 2] = [
        ("no_such_kernel", "no_such_kernel", 3),
        ("takes 3 operands, 2 were given", "scale_add", 2),
    ];
    for (expected, kernel, operands) in cases {
        let outcome = Cluster::new(2).run(move |rank, _| {
            let x = tensor(rank, "x", &[1.0; 4]);
            rank.launch("go", kernel, [4, 1, 1], &vec![x; operands], &[4, 0]);
            rank.end_setup()
        });
        let text = outcome.error().to_string();
        assert!(text.contains(expected) && text.contains("rank 0"), "{text}");
    }
}

/// Rank 2 has gone. Rank 1 waits for it, rank 0 for rank 1: the report is about rank 2.
#[test]
fn a_chain_of_waiting_ranks_is_followed_to_its_end() {
    let cluster = Cluster::new(3).group(&[0, 1]).group(&[1, 2]);
    let outcome = cluster.run(|rank, _| {
        let x = tensor(rank, "x", &[1.0; 4]);
        let groups: &[GroupId] = match rank.id {
            0 => &[GroupId(1)],
            1 => &[GroupId(2), GroupId(1)],
            _ => &[],
        };
        for group in groups {
            let handle = rank.all_reduce("sum", FAMILY, *group, x, SUM);
            rank.wait(handle);
        }
        rank.read("look", x).map(|_| ())
    });
    let (group, detail) = mismatch(outcome.error());
    assert_eq!(group, "group2", "{detail}");
    assert!(
        detail.contains("rank 2 has finished and never joins"),
        "{detail}"
    );
}

/// A program that does not look at what a failed call gave back still fails.
#[test]
fn a_failure_that_is_ignored_is_reported_all_the_same() {
    let outcome = Cluster::new(2).run(|rank, _| {
        let a = rank.alloc("a", Dtype::F32, 2);
        rank.upload("load", a, &[1, 2, 3]);
        let _ignored = rank.read("look", a);
        let _ignored = rank.end_setup();
        Ok(())
    });
    match outcome.error() {
        WorldError::RankFailed { rank: 0, message } => {
            assert!(
                message.contains("upload `load` of 3 words into 2"),
                "{message}"
            );
        }
        other => panic!("{other}"),
    }
}

/// An order that is none is refused: a token may be stale.
#[test]
fn a_schedule_that_does_not_fit_is_refused() {
    use bitproof::world::{NodeId, Owner};
    let at = |ordinal| NodeId {
        step: 0,
        owner: Owner::Group(0),
        ordinal,
    };
    for order in [vec![0, 1], vec![0, 1, 1], vec![0, 1, 3], vec![0, 1, 2, 3]] {
        let cluster = Cluster::new(3).options(|options| {
            options
                .schedule
                .arrivals
                .insert(at(0), order.as_slice().into());
        });
        let outcome = cluster.run(|rank, seen| reduce(rank, seen, "sum", 8));
        let text = outcome.error().to_string();
        assert!(
            text.contains("no order of 3 addends") && text.contains("sum"),
            "{text}"
        );
    }
    let cluster = Cluster::new(3).options(|options| {
        options.schedule.arrivals.insert(at(0), [2, 0, 1].into());
        options.schedule.arrivals.insert(at(1), [2, 0, 1].into());
    });
    let outcome = cluster.run(|rank, seen| reduce(rank, seen, "sum", 8));
    assert_eq!(outcome.record().arrivals_met, 1);
}

/// Nothing to move or add is no special case.
#[test]
fn empty_tensors_go_everywhere() {
    let outcome = Cluster::new(3).watched().run(|rank, seen| {
        let x = tensor(rank, "x", &[1.0; 4]);
        let none = x.slice(2, 0);
        let handle = rank.all_reduce("sum", FAMILY, ALL, none, SUM);
        rank.wait(handle);
        let handle = rank.all_gather("gather", ALL, none, none);
        rank.wait(handle);
        rank.copy("copy", none, none);
        rank.upload("load", none, &[]);
        scale_add(rank, "blend", [none, none, none], 1.0);
        assert_eq!(rank.read("look", none)?, Vec::<u32>::new());
        show(rank, seen, "x", x)
    });
    assert_eq!(outcome.record().hazards, []);
    assert_eq!(outcome.values(0, "x"), [1.0; 4]);
}
