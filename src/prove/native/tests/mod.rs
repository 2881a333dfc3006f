//! Races of small folds on the real world: with a host in the adapter's place, and on the adapter.

#[cfg(feature = "wgpu")]
mod adapter;
mod host;

use std::sync::Arc;

use super::*;
use crate::engine::cpu::CpuEngine;
use crate::kernel::Registry;
use crate::numerics::Dtype;
use crate::plan::{Init, Plan};
use crate::world::{
    CollectiveShape, Communicator, LocalOrder, PlanSource, Rank, RankError, RunOptions, Segments,
    SlotFold, World,
};

/// Elements of a row.
const LEN: u32 = 4;

/// Sums that depend on their order, by less than any of them.
const VALUES: [f32; 5] = [0.1, 1000.3, -999.7, 0.7, 3.3];

struct NoPlans;

impl PlanSource for NoPlans {
    fn plans(&self, _: CollectiveShape) -> Result<Arc<[Arc<Plan>]>, String> {
        Err("no collective here".to_owned())
    }
}

struct Watch<'a>(&'a mut Races);

impl Observer for Watch<'_> {
    fn on_fold(&mut self, node: &FoldNode, lab: &mut FoldLab<'_>) -> Result<(), EngineError> {
        self.0.race(node, lab)
    }
}

/// The folds of one rank's program, raced.
fn raced(
    adapter: Box<dyn NativeAtomics>,
    repeats: u32,
    program: impl Fn(&mut Rank) -> Result<(), RankError> + Sync,
) -> Result<NativeRaces, String> {
    let world = World {
        ranks: 1,
        communicators: Arc::new([Communicator {
            name: "all".into(),
            ranks: [0].into(),
        }]),
        registry: Arc::new(Registry::new().expect("the kernels link")),
        plans: Arc::new(NoPlans),
    };
    let mut engine = CpuEngine::new(1).expect("this machine has an engine");
    let mut races = Races::on(adapter, repeats, 7);
    let options = RunOptions::default();
    let run = world.run(&mut engine, &options, &program, &mut Watch(&mut races));
    run.map_err(|error| error.to_string())?;
    Ok(races.end())
}

/// A fold in arrival order; element e of addend k is `values[k]` times 2^e.
fn slots(rank: &mut Rank, values: &[f32], init: Init, out: Dtype, order: LocalOrder) {
    let addends = rank.alloc("addends", Dtype::F32, values.len() as u32 * LEN);
    let row = |x: &f32| {
        (0..LEN)
            .map(|e| x * (1u32 << e) as f32)
            .collect::<Vec<f32>>()
    };
    let all: Vec<f32> = values.iter().flat_map(row).collect();
    rank.upload_f32("load", addends, &all);
    let out = rank.alloc("out", out, LEN);
    rank.upload_f32("hold", out, &[2.0; LEN as usize]);
    rank.fold(
        "fold",
        SlotFold {
            family: Family::WgradSplitK,
            addends,
            slots: values.len() as u32,
            out,
            init,
            order,
        },
    );
}

fn plain(rank: &mut Rank, values: &[f32]) {
    slots(rank, values, Init::First, Dtype::F32, LocalOrder::Arrival);
}

/// Rows of `values` added into rows of the output.
fn rows(rank: &mut Rank, values: &[f32], pointers: &[u32], indices: &[u32]) {
    let addends = rank.alloc("rows", Dtype::F32, LEN * values.len() as u32);
    let all: Vec<f32> = values.iter().flat_map(|x| [*x; LEN as usize]).collect();
    rank.upload_f32("load", addends, &all);
    let out = rank.alloc("table", Dtype::F32, LEN * (pointers.len() as u32 - 1));
    let segments = Segments {
        pointers: pointers.into(),
        indices: indices.into(),
    };
    let (family, order) = (Family::EmbeddingGrad, LocalOrder::Arrival);
    rank.fold_segments("add", family, addends, LEN, &segments, out, order);
}

/// Every kind of fold that can be raced.
fn all_kinds(rank: &mut Rank) -> Result<(), RankError> {
    plain(rank, &VALUES);
    slots(
        rank,
        &VALUES,
        Init::Accumulator,
        Dtype::F32,
        LocalOrder::Arrival,
    );
    slots(rank, &VALUES, Init::Zero, Dtype::Bf16, LocalOrder::Arrival);
    plain(rank, &[-0.0, -0.0, -0.0]);
    // Row 4 lands nowhere, the last output row gets nothing.
    rows(rank, &VALUES, &[0, 3, 4, 4], &[3, 0, 1, 2]);
    rank.end_step()
}

/// Many addends of all scales.
fn many(count: u32) -> Vec<f32> {
    let value = |k: u32| (1.0 + k as f32 / 3.0) * [1.0, -1024.0, 1e-4][k as usize % 3];
    (0..count).map(value).collect()
}
