//! Plans of a job at its full size: 2,432 GPUs as TP 8, PP 8, DP 38, half a trillion parameters and
//! a trillion, on two allocations, and on a thousand other placements.
//!
//! `cargo bench --bench plan`

use std::path::Path;

use bitproof::prove::job_plans::{JobPlans, differences};
use bitproof::prove::placements::{self, survey};
use bitproof::scenario::{Job, Overrides};
use bitproof::topology::Topology;
use bitproof::topology::machines::Preset;
use criterion::{Criterion, criterion_group, criterion_main};

/// The bench's own recipe, with as many layers as asked for.
fn job(layers: u32) -> Job {
    let overrides = Overrides {
        set: vec![format!("num_layers={layers}")],
        ..Overrides::default()
    };
    let path = Path::new("benches/plan/gpt-2432.toml");
    Job::load(path, &overrides).expect("the bench's recipe is valid")
}

fn diff(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("plan diff, 2432 GPUs (8x8x38), all buckets");
    group.sample_size(10);
    for (name, layers) in [("516 billion parameters", 120), ("1.03 trillion", 240)] {
        let recipe = job(layers).recipe;
        let plans = |hosts: u32, gpus: u32| {
            let topology = Topology::switched("hosts", hosts, gpus);
            let allocation = topology.block(recipe.world_size).expect("it fits");
            JobPlans::of(&recipe, allocation).expect("it has plans")
        };
        group.bench_function(name, |bencher| {
            bencher.iter(|| differences(&plans(304, 8), &plans(608, 4)));
        });
    }
    group.finish();
}

/// Racks of 72 have all classes: their domains can be split, and one of 34 is not whole.
fn all_placements(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("plan diff --all-placements, 2432 GPUs (8x8x38)");
    group.sample_size(10);
    for name in ["gb200-nvl72", "dgx-h100"] {
        let recipe = job(120).recipe;
        let (preset, units) = Preset::named(name).expect("a preset");
        let base = preset
            .allocation(units, recipe.world_size)
            .expect("it fits");
        let job = placements::Job::of(&recipe, None).expect("it has collectives");
        let tried = |most: usize| {
            let found = survey(&job, &base, most).expect("it has plans");
            found.classes.iter().map(|class| class.tried).sum::<usize>()
        };
        let most = 250;
        let count = tried(most);
        group.bench_function(format!("{name}, {count} placements"), |bencher| {
            bencher.iter(|| tried(most));
        });
    }
    group.finish();
}

criterion_group!(benches, diff, all_placements);
criterion_main!(benches);
