//! What must not change the bits does not: start order, batches, offsets, poison, workers, timing.
//! And what may, does: otherwise these tests could not fail.

use bitproof::numerics::Dtype;
use bitproof::plan::{Combine, Init};
use bitproof::world::{
    Component, Family, GroupId, LocalOrder, NodeId, Owner, Phase, Rank, RankError, RunOptions,
    Segments, SlotFold, StreamId,
};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use crate::cluster::{ALL, Cluster, Seen, Shape, rough, scale_add, step_in_place, tensor};

/// Pairs {0, 2}, {1, 3}: data parallel. Pairs {0, 1}, {2, 3}: tensor parallel.
fn cluster() -> Cluster {
    let pairs = [[0, 2], [1, 3], [0, 1], [2, 3]];
    pairs
        .iter()
        .fold(Cluster::new(4), |cluster, pair| cluster.group(pair))
        .watched()
}

/// Gives other threads a turn, or several, as the seed says.
struct Delays(Option<ChaCha8Rng>);

impl Delays {
    fn new(seed: Option<u64>, rank: u32) -> Self {
        let stream = |seed: u64| ChaCha8Rng::seed_from_u64(seed << 16 | u64::from(rank));
        Delays(seed.map(stream))
    }

    fn pass(&mut self) {
        if let Some(random) = &mut self.0 {
            for _ in 0..random.next_u32() % 400 {
                std::thread::yield_now();
            }
        }
    }
}

/// Three steps with every kind of command: launches on two streams, folds, collectives, messages,
/// memory that is freed and used again, host reads that decide nothing.
fn training(seed: Option<u64>) -> impl Fn(&mut Rank, &Seen) -> Result<(), RankError> {
    move |rank, _| {
        let mut delays = Delays::new(seed, rank.id);
        let weights = tensor(rank, "weights", &rough(7, 7, 24));
        rank.persist(Component::Model, "weights", weights);
        rank.replicate(ALL, "weights", weights);
        let grads = tensor(rank, "grads", &[0.0; 24]);
        let norm = rank.alloc("norm", Dtype::F32, 1);
        delays.pass();
        rank.end_setup()?;
        for step in 0..3 {
            rank.set_step(step);
            for microbatch in 0..2 {
                rank.set_microbatch(Some(microbatch));
                rank.set_phase(Phase::Forward);
                accumulate(rank, grads, step * 2 + microbatch)?;
                delays.pass();
            }
            rank.set_microbatch(None);
            reduce(rank, weights, grads, norm)?;
            delays.pass();
            rank.end_step()?;
            delays.pass();
        }
        Ok(())
    }
}

fn accumulate(rank: &mut Rank, grads: bitproof::world::Tensor, salt: u32) -> Result<(), RankError> {
    let batch = tensor(rank, "batch", &rough(rank.id, salt, 4 * 24));
    let peer = rank.id ^ 1;
    let passed = rank.alloc("passed", Dtype::F32, 24);
    let sent = rank.send("pass", peer, batch.slice(0, 24));
    let received = rank.recv("take", peer, passed);
    rank.wait(sent);
    rank.wait(received);
    scale_add(rank, "mix", [passed, batch.slice(24, 24), passed], 0.75);
    rank.copy("place", passed, batch.slice(0, 24));
    let order = LocalOrder::Arrival;
    let segments = Segments {
        pointers: [0, 3, 3, 6].into(),
        indices: [0, 5, 9, 2, 0, 11].into(),
    };
    let rows = rank.alloc("rows", Dtype::F32, 24);
    let family = Family::EmbeddingGrad;
    rank.fold_segments("scatter", family, batch, 8, &segments, rows, order);
    rank.copy("place rows", rows, batch.slice(72, 24));
    let fold = SlotFold {
        family: Family::MicrobatchAccumulation,
        addends: batch,
        slots: 4,
        out: grads,
        init: Init::Accumulator,
        order,
    };
    rank.fold("accumulate", fold);
    rank.read("look", grads.slice(0, 1))?;
    [batch, passed, rows]
        .into_iter()
        .for_each(|tensor| rank.free(tensor));
    Ok(())
}

fn reduce(
    rank: &mut Rank,
    weights: bitproof::world::Tensor,
    grads: bitproof::world::Tensor,
    norm: bitproof::world::Tensor,
) -> Result<(), RankError> {
    rank.set_phase(Phase::GradReduce);
    let pair = GroupId(1 + rank.id % 2);
    let tensor_parallel = GroupId(3 + rank.id / 2);
    let family = Family::DpGradients;
    let halves = [(pair, 0), (tensor_parallel, 12)];
    let handles = halves.map(|(group, start)| {
        rank.all_reduce(
            "reduce half",
            family,
            group,
            grads.slice(start, 12),
            Combine::Sum,
        )
    });
    handles.into_iter().for_each(|handle| rank.wait(handle));
    let handle = rank.all_reduce("reduce all", family, ALL, grads, Combine::Sum);
    rank.on_stream(StreamId(1), |rank| {
        rank.wait(handle);
        step_in_place(rank, "decay", grads, 0.5);
        rank.record(bitproof::world::EventId(0));
    });
    rank.wait_event(bitproof::world::EventId(0));
    rank.set_phase(Phase::Optimizer);
    scale_add(rank, "update", [grads, weights, weights], -0.01);
    rank.copy("norm", grads.slice(3, 1), norm);
    rank.metric("grad norm", norm);
    Ok(())
}

type Change = fn(&mut RunOptions);

#[test]
fn roots_do_not_depend_on_how_the_world_is_run() {
    let record_all: Change = |options| {
        options.record_nodes = true;
        options.checkpoint_after = [0, 2].into();
    };
    let plain = cluster().options(record_all).run(training(None));
    let plain = plain.record();
    assert_eq!(plain.hazards, []);
    assert_eq!((plain.roots.len(), plain.drifts.len()), (12, 0));
    assert!(plain.replicas_compared >= 4 && plain.folds > 30 && plain.nodes > 100);
    let changes: [Change; 7] = [
        |options| options.start_descending = true,
        |options| options.batch_launches_max = 1,
        |options| options.batch_launches_max = 3,
        |options| options.memory.base_words = 12_345,
        |options| options.memory.poison = Some(0x7fc0_0001),
        |options| options.memory.poison = Some(0),
        |options| {
            options.hazard_steps_max = 0;
            options.measure_writes = true;
            options.cuts = [0, 1].into();
        },
    ];
    for (number, change) in changes.into_iter().enumerate() {
        for workers in [1, 2] {
            let mut cluster = cluster().options(record_all).options(change);
            cluster.workers = workers;
            let outcome = cluster.run(training(None));
            let record = outcome.record();
            assert_eq!(
                record.roots, plain.roots,
                "change {number}, {workers} workers"
            );
            assert_eq!(
                record.records, plain.records,
                "change {number}, {workers} workers"
            );
            assert_eq!(record.metrics, plain.metrics);
            assert_eq!(record.checkpoints, plain.checkpoints);
            assert_eq!(record.hazards, plain.hazards);
        }
    }
}

#[test]
fn timing_changes_nothing() {
    let plain = cluster().run(training(None));
    for seed in 0..24 {
        let delayed = cluster().run(training(Some(seed)));
        assert_eq!(delayed.record().roots, plain.record().roots, "seed {seed}");
        assert_eq!(delayed.record().waves, plain.record().waves, "seed {seed}");
    }
}

/// The control: orders, plans, another seed of the data are seen in the roots.
#[test]
fn roots_do_depend_on_the_orders() {
    let plain = cluster().run(training(None));
    let plain = plain.record();
    let tree = cluster().shape(Shape::Tree).run(training(None));
    assert_ne!(tree.record().roots, plain.roots);
    let id = NodeId {
        step: 1,
        owner: Owner::Rank(2),
        ordinal: 1,
    };
    let late = cluster().options(|options| {
        options.schedule.arrivals.insert(id, [3, 1, 0, 2].into());
    });
    let late = late.run(training(None));
    let differing = plain
        .roots
        .iter()
        .filter(|(key, root)| late.record().roots[key] != **root);
    let differing: Vec<(u32, u32)> = differing.map(|(key, _)| *key).collect();
    // Rank 2 of step 1 first; all ranks after the world-wide reduction; never step 0.
    assert!(differing.contains(&(1, 2)), "{differing:?}");
    assert!(differing.iter().all(|(step, _)| *step > 0), "{differing:?}");
}

/// An arrival order that names ascending addends is the canonical schedule itself.
#[test]
fn the_canonical_arrival_order_is_ascending() {
    let plain = cluster().run(training(None));
    let id = NodeId {
        step: 1,
        owner: Owner::Rank(2),
        ordinal: 1,
    };
    let named = cluster().options(|options| {
        options.schedule.arrivals.insert(id, [0, 1, 2, 3].into());
    });
    let named = named.run(training(None));
    assert_eq!(named.record().roots, plain.record().roots);
}

#[test]
fn sixty_four_ranks_run() {
    let program = |rank: &mut Rank, _: &Seen| {
        let row = GroupId(1 + rank.id / 8);
        let x = tensor(rank, "x", &rough(rank.id, 1, 256));
        let shard = rank.alloc("shard", Dtype::F32, 32);
        rank.end_setup()?;
        for step in 0..3 {
            rank.set_step(step);
            let handle = rank.reduce_scatter("scatter", Family::DpGradients, row, x, shard);
            rank.wait(handle);
            step_in_place(rank, "step", shard, 0.25);
            let handle = rank.all_gather("gather", row, shard, x);
            rank.wait(handle);
            let handle = rank.all_reduce("all", Family::NormGlobal, ALL, x, Combine::Sum);
            rank.wait(handle);
            step_in_place(rank, "shrink", x, 1.0 / 64.0);
            rank.end_step()?;
        }
        Ok(())
    };
    let rows: Vec<Vec<u32>> = (0..8).map(|row| (row * 8..row * 8 + 8).collect()).collect();
    let cluster = |workers| {
        let mut cluster = rows
            .iter()
            .fold(Cluster::new(64), |cluster, row| cluster.group(row));
        cluster.workers = workers;
        cluster.watched()
    };
    let (one, two) = (cluster(1).run(program), cluster(2).run(program));
    assert_eq!(one.record().hazards, []);
    assert_eq!(one.record().roots.len(), 64 * 3);
    assert_eq!(one.record().roots, two.record().roots);
}
