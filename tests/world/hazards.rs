//! Every kind of hazard is found and named; the same programs with their edges are clean.

use bitproof::numerics::Dtype;
use bitproof::plan::{Combine, Init};
use bitproof::world::{
    Family, Hazard, HazardKind, LocalOrder, Phase, Rank, RankError, Segments, SlotFold, StreamId,
};

use crate::cluster::{ALL, Cluster, Seen, ramp, scale_add, show, step_in_place, tensor};

const FAMILY: Family = Family::DpGradients;

/// Runs `program` on two ranks after set-up, in one step.
fn hazards(program: fn(&mut Rank) -> Result<(), RankError>) -> Vec<Hazard> {
    let outcome = Cluster::new(2).watched().run(move |rank, _| {
        rank.end_setup()?;
        rank.set_phase(Phase::Forward);
        program(rank)?;
        rank.end_step()
    });
    outcome.record().hazards.clone()
}

/// The one hazard of a program that has one.
fn hazard(program: fn(&mut Rank) -> Result<(), RankError>) -> Hazard {
    let hazards = hazards(program);
    assert_eq!(hazards.len(), 1, "{hazards:#?}");
    hazards[0].clone()
}

fn ops(hazard: &Hazard) -> (&str, &str) {
    (&hazard.first.site.op, &hazard.second.site.op)
}

#[test]
fn a_buffer_that_is_sent_must_not_be_overwritten_before() {
    fn exchange(rank: &mut Rank, wait_first: bool) {
        let (x, y) = (tensor(rank, "x", &[1.0; 4]), tensor(rank, "y", &[0.0; 4]));
        let peer = 1 - rank.id;
        let sent = rank.send("send x", peer, x);
        let received = rank.recv("receive y", peer, y);
        if wait_first {
            rank.wait(sent);
        }
        step_in_place(rank, "overwrite x", x, 2.0);
        rank.wait(received);
        if !wait_first {
            rank.wait(sent);
        }
        step_in_place(rank, "use y", y, 2.0);
    }
    let found = hazard(|rank| {
        exchange(rank, false);
        Ok(())
    });
    assert_eq!(found.kind, HazardKind::WriteAfterRead);
    assert_eq!(ops(&found), ("send x", "overwrite x"));
    assert_eq!(found.first.stream, "the stream of sends to rank 1");
    let clean = hazards(|rank| {
        exchange(rank, true);
        Ok(())
    });
    assert_eq!(clean, []);
}

#[test]
fn two_unordered_writes_are_a_hazard() {
    let found = hazards(|rank| {
        let x = rank.alloc("x", Dtype::F32, 8);
        ramp(rank, "one", x.slice(0, 6), 1.0, 0.0);
        rank.on_stream(StreamId(1), |rank| {
            ramp(rank, "two", x.slice(4, 4), 1.0, 0.0)
        });
        Ok(())
    });
    let told: Vec<_> = found
        .iter()
        .map(|found| (found.kind, ops(found), found.words))
        .collect();
    // The second stream does not know of the allocation either.
    let (both, early) = (HazardKind::WriteAfterWrite, HazardKind::ReuseWhileInUse);
    assert_eq!(
        told,
        [
            (both, ("one", "two"), (4, 6)),
            (early, ("alloc x", "two"), (6, 8))
        ]
    );
    let found = hazards(|rank| {
        let x = tensor(rank, "x", &[0.0; 8]);
        rank.read("host knows x", x)?;
        ramp(rank, "one", x.slice(0, 6), 1.0, 0.0);
        rank.on_stream(StreamId(1), |rank| {
            ramp(rank, "two", x.slice(4, 4), 1.0, 0.0)
        });
        Ok(())
    });
    assert_eq!(found.len(), 1, "{found:#?}");
    assert_eq!(found[0].kind, HazardKind::WriteAfterWrite);
    assert_eq!(ops(&found[0]), ("one", "two"));
    assert_eq!(found[0].words, (4, 6));
}

/// `deepseek-ai/DeepEP#589`: memory is handed out on one stream and written on another.
#[test]
fn freeing_what_a_collective_still_reads_is_a_hazard() {
    fn reduce_and_free(rank: &mut Rank, wait_first: bool) {
        let (x, y) = (tensor(rank, "x", &[1.0; 4]), tensor(rank, "y", &[0.0; 8]));
        let handle = rank.all_gather("gather x", ALL, x, y);
        if wait_first {
            rank.wait(handle);
        }
        rank.free(x);
        // Takes x's block.
        let z = tensor(rank, "z", &[5.0; 4]);
        rank.wait(handle);
        scale_add(rank, "use y", [y.slice(0, 4), z, z], 1.0);
    }
    let found = hazards(|rank| {
        reduce_and_free(rank, false);
        Ok(())
    });
    assert!(!found.is_empty());
    for hazard in &found {
        assert_eq!(hazard.kind, HazardKind::ReuseWhileInUse, "{hazard}");
        assert_eq!(hazard.first.site.op, "gather x");
        assert_eq!(hazard.buffer.as_deref(), Some("x"));
        assert_eq!(hazard.second.stream, "the compute stream");
    }
    let clean = hazards(|rank| {
        reduce_and_free(rank, true);
        Ok(())
    });
    assert_eq!(clean, []);
}

#[test]
fn reading_what_nothing_has_written_names_the_allocation() {
    let found = hazard(|rank| {
        let (x, y) = (
            rank.alloc("grads", Dtype::F32, 8),
            tensor(rank, "y", &[0.0; 8]),
        );
        ramp(rank, "half", x.slice(0, 5), 1.0, 0.0);
        scale_add(rank, "use", [x, y, y], 1.0);
        Ok(())
    });
    assert_eq!(found.kind, HazardKind::UninitialisedRead);
    assert_eq!(ops(&found), ("alloc grads", "use"));
    assert_eq!(
        (found.words, found.buffer.as_deref()),
        ((5, 8), Some("grads"))
    );
    assert_eq!(
        found.missing_edge,
        "nothing writes these words between `alloc grads` and `use`"
    );
}

/// What set-up leaves unwritten is still unwritten in a later step, and the freed are unwritten.
#[test]
fn unwritten_memory_is_remembered_over_steps() {
    let outcome = Cluster::new(1).watched().run(|rank, _| {
        let x = rank.alloc("x", Dtype::F32, 4);
        let y = tensor(rank, "y", &[1.0; 4]);
        let out = rank.alloc("out", Dtype::F32, 4);
        rank.end_setup()?;
        rank.end_step()?;
        rank.set_step(1);
        scale_add(rank, "use x", [x, y, out], 1.0);
        rank.free(y);
        rank.end_step()?;
        rank.set_step(2);
        scale_add(rank, "use y", [out, y, out], 1.0);
        rank.end_step()
    });
    let found = &outcome.record().hazards;
    let told: Vec<_> = found
        .iter()
        .map(|hazard| (hazard.kind, ops(hazard)))
        .collect();
    let kind = HazardKind::UninitialisedRead;
    assert_eq!(
        told,
        [(kind, ("alloc x", "use x")), (kind, ("free y", "use y"))]
    );
}

/// Every way in which a command reads: each meets unwritten memory once.
#[test]
fn all_commands_have_their_footprints() {
    type Reader = fn(&mut Rank, bitproof::world::Tensor) -> Result<(), RankError>;
    let readers: [(&str, Reader); 8] = [
        ("copy", |rank, x| {
            let y = rank.alloc("y", Dtype::F32, x.len);
            rank.copy("copy", x, y);
            rank.read("look", y).map(|_| ())
        }),
        ("read", |rank, x| rank.read("read", x).map(|_| ())),
        ("fold", |rank, x| {
            let out = rank.alloc("out", Dtype::F32, x.len / 2);
            rank.fold("fold", slots(x, out, Init::First));
            rank.read("look", out).map(|_| ())
        }),
        ("accumulate", |rank, x| {
            let addends = tensor(rank, "addends", &vec![1.0; x.len as usize * 2]);
            rank.fold("accumulate", slots(addends, x, Init::Accumulator));
            rank.read("look", x).map(|_| ())
        }),
        ("segments", |rank, x| {
            let out = rank.alloc("out", Dtype::F32, 4);
            let segments = Segments {
                pointers: [0, 2].into(),
                indices: [0, 1].into(),
            };
            let order = LocalOrder::Ordered;
            rank.fold_segments("segments", FAMILY, x, 4, &segments, out, order);
            rank.read("look", out).map(|_| ())
        }),
        ("scatter", |rank, x| {
            let out = rank.alloc("out", Dtype::F32, x.len / 2);
            let handle = rank.reduce_scatter("scatter", FAMILY, ALL, x, out);
            rank.wait(handle);
            rank.read("look", out).map(|_| ())
        }),
        ("exchange", |rank, x| {
            let out = rank.alloc("out", Dtype::F32, x.len);
            let handle = rank.all_to_all("exchange", ALL, x, out);
            rank.wait(handle);
            rank.read("look", out).map(|_| ())
        }),
        ("message", |rank, x| {
            let (peer, y) = (1 - rank.id, rank.alloc("y", Dtype::F32, x.len));
            let sent = rank.send("message", peer, x);
            let received = rank.recv("receive", peer, y);
            rank.wait(sent);
            rank.wait(received);
            rank.read("look", y).map(|_| ())
        }),
    ];
    for (op, reader) in readers {
        for written in [false, true] {
            let outcome = Cluster::new(2).watched().run(move |rank, _| {
                let x = rank.alloc("x", Dtype::F32, 8);
                if written {
                    ramp(rank, "write", x, 1.0, 0.0);
                }
                rank.end_setup()?;
                reader(rank, x)?;
                rank.end_step()
            });
            let found = &outcome.record().hazards;
            let told: Vec<_> = found
                .iter()
                .map(|hazard| (hazard.kind, ops(hazard)))
                .collect();
            let missing = (HazardKind::UninitialisedRead, ("alloc x", op));
            let expected = if written { vec![] } else { vec![missing] };
            assert_eq!(told, expected, "{op}");
        }
    }
}

fn slots(addends: bitproof::world::Tensor, out: bitproof::world::Tensor, init: Init) -> SlotFold {
    SlotFold {
        family: FAMILY,
        addends,
        slots: addends.len / out.len,
        out,
        init,
        order: LocalOrder::Ordered,
    }
}

/// Only the root of a broadcast reads, only the others are written.
#[test]
fn a_broadcast_reads_its_root_and_writes_the_rest() {
    let outcome = Cluster::new(3).watched().run(|rank, seen| {
        let x = rank.alloc("x", Dtype::F32, 4);
        if rank.id == 1 {
            ramp(rank, "make", x, 1.0, 3.0);
        }
        let handle = rank.broadcast("spread", ALL, x, 1);
        rank.wait(handle);
        show(rank, seen, "x", x)
    });
    assert_eq!(outcome.record().hazards, []);
    assert_eq!(outcome.values(2, "x"), [3.0, 4.0, 5.0, 6.0]);
}

/// One mistake in every step, microbatch and rank is one hazard, counted.
#[test]
fn a_hazard_is_reported_once_and_counted() {
    let program = |rank: &mut Rank, _: &Seen| {
        let x = tensor(rank, "x", &[1.0; 4]);
        rank.end_setup()?;
        for step in 0..3 {
            rank.set_step(step);
            for microbatch in 0..2 {
                rank.set_microbatch(Some(microbatch));
                let handle = rank.all_reduce("reduce", FAMILY, ALL, x, Combine::Sum);
                rank.read("look", x)?;
                rank.wait(handle);
            }
            rank.end_step()?;
        }
        Ok(())
    };
    let all = Cluster::new(4).watched().run(program);
    assert_eq!(all.record().hazards.len(), 1);
    assert_eq!(all.record().hazards[0].occurrences, 4 * 3 * 2);
    assert_eq!(all.record().hazards_beyond, 0);
    // Only the first steps are looked at when asked so, and none by default.
    let two = Cluster::new(4).options(|options| options.hazard_steps_max = 2);
    assert_eq!(two.run(program).record().hazards[0].occurrences, 4 * 2 * 2);
    assert_eq!(Cluster::new(4).run(program).record().hazards, []);
}

/// What is looked for does not change what is computed.
#[test]
fn looking_for_hazards_changes_no_bits() {
    let program = |rank: &mut Rank, _: &Seen| {
        let x = tensor(rank, "x", &crate::cluster::rough(rank.id, 3, 40));
        rank.end_setup()?;
        let handle = rank.all_reduce("reduce", FAMILY, ALL, x, Combine::Sum);
        rank.wait(handle);
        step_in_place(rank, "step", x, 0.5);
        rank.end_step()
    };
    let (plain, watched) = (
        Cluster::new(3).run(program),
        Cluster::new(3).watched().run(program),
    );
    assert_eq!(plain.record().root(), watched.record().root());
    assert_eq!(plain.record().nodes, watched.record().nodes);
}
