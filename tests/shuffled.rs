//! Scenarios that are proved, under twenty random schedules each: streams and ranks overtake each
//! other, collectives and messages are late, background writers begin when they like. Every node,
//! metric, copy of the state and file is the canonical run's.

use std::collections::BTreeMap;
use std::path::Path;

use bitproof::numerics::Digest;
use bitproof::prove::CheckOptions;
use bitproof::prove::session::Session;
use bitproof::scenario::{Overrides, Scenario};
use bitproof::world::{RunOptions, RunRecord, SavedFile, Site, State};

const SCHEDULES: u64 = 20;
/// Steps of each run: the third is the first that waits for gathers begun before it.
const STEPS: u32 = 3;

/// What must not depend on the schedule.
#[derive(PartialEq)]
struct Left {
    /// What each visit of a rank to a site wrote.
    nodes: BTreeMap<(u32, Site), Vec<Digest>>,
    metrics: BTreeMap<(u32, String), u32>,
    states: BTreeMap<u32, State>,
    files: BTreeMap<u32, SavedFile>,
    drifts: usize,
}

impl Left {
    fn by(record: RunRecord) -> Left {
        let mut nodes: BTreeMap<(u32, Site), Vec<Digest>> = BTreeMap::new();
        for node in record.records {
            let place = (node.rank, Site::clone(&node.site));
            nodes.entry(place).or_default().push(node.digest);
        }
        let metrics = record.metrics.into_iter();
        Left {
            nodes,
            metrics: metrics.map(|(key, v)| (key, v.to_bits())).collect(),
            states: record.checkpoints,
            files: record.files,
            drifts: record.drifts.len(),
        }
    }

    /// The first thing that is another one.
    fn parting(&self, other: &Left) -> Option<String> {
        if self == other {
            return None;
        }
        let mut nodes = self.nodes.iter();
        let node = nodes.find(|(place, digests)| other.nodes.get(place) != Some(digests));
        Some(match node {
            Some(((rank, site), _)) => format!("{site} on rank {rank}"),
            None => "metrics, states, files or further nodes".to_string(),
        })
    }
}

struct Shuffled {
    session: Session,
    canonical: Left,
    hazards: usize,
}

impl Shuffled {
    fn of(file: &str, overrides: &[&str]) -> Shuffled {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("scenarios")
            .join(file);
        let set = overrides.iter().map(|set| format!("recipe.{set}"));
        let overrides = Overrides {
            set: set.collect(),
            ..Overrides::default()
        };
        let loaded = Scenario::load(&path, &overrides);
        let mut scenario = loaded.unwrap_or_else(|found| panic!("{found:#?}")).scenario;
        scenario.steps = STEPS;
        scenario.checkpoint.restarts = vec![vec![1]];
        let options = CheckOptions::default();
        let mut session = Session::new(scenario, &options).expect("it can be run");
        let watched = RunOptions {
            hazard_steps_max: STEPS,
            ..recorded()
        };
        let steps = session.steps();
        let canonical = session.plain_run(&watched, steps).expect("it runs");
        let hazards = canonical.hazards.len();
        assert!(canonical.nodes > 0 && !canonical.metrics.is_empty());
        assert!(canonical.checkpoints.len() as u32 == STEPS, "{file}");
        Shuffled {
            session,
            canonical: Left::by(canonical),
            hazards,
        }
    }

    fn parting(&mut self, seed: u64) -> Option<String> {
        let options = RunOptions {
            shuffle: Some(seed),
            late_writes: seed % 2 == 1,
            ..recorded()
        };
        let steps = self.session.steps();
        match self.session.plain_run(&options, steps) {
            Ok(record) => self.canonical.parting(&Left::by(record)),
            Err(error) => Some(error.to_string()),
        }
    }
}

fn recorded() -> RunOptions {
    RunOptions {
        record_nodes: true,
        checkpoint_after: (1..=STEPS).collect(),
        ..RunOptions::default()
    }
}

fn holds(file: &str, overrides: &[&str]) {
    let mut shuffled = Shuffled::of(file, overrides);
    assert_eq!(shuffled.hazards, 0, "{file}");
    for seed in 0..SCHEDULES {
        assert_eq!(shuffled.parting(seed), None, "{file} under schedule {seed}");
    }
}

#[test]
fn sixteen_ranks_in_two_stages() {
    holds("quickstart.toml", &[]);
}

#[test]
fn sixteen_ranks_that_overlap_everything() {
    let overlap = [
        "overlap_grad_reduce=true",
        "overlap_param_gather=true",
        "ddp_bucket_size=4000",
        "num_virtual_stages_per_pipeline_rank=2",
        "async_save=true",
    ];
    holds("quickstart.toml", &overlap);
}

#[test]
fn eight_ranks_that_overlap() {
    for name in [
        "b08-param-gather-wait",
        "b13-bucket-reuse",
        "b44-container-order",
    ] {
        holds(&format!("zoo/{name}-fixed.toml"), &[]);
    }
}

#[test]
fn background_writers() {
    for name in [
        "b29-mixed-generations",
        "b30-shared-staging",
        "b31-late-tracker",
    ] {
        holds(&format!("zoo/{name}-fixed.toml"), &["async_save=true"]);
    }
}

#[test]
fn loaders_and_embeddings() {
    for name in ["b21-loader-draw", "b42-early-embedding-sum"] {
        holds(&format!("zoo/{name}-fixed.toml"), &[]);
    }
}

/// The control: what has a hazard parts under some of these schedules, or its hazard is there.
#[test]
fn faults_show_under_some_schedule() {
    let mut parted = 0;
    for name in [
        "b08-param-gather-wait",
        "b13-bucket-reuse",
        "b30-shared-staging",
    ] {
        let file = format!("zoo/{name}-broken.toml");
        let mut shuffled = Shuffled::of(&file, &[]);
        let parts = (0..SCHEDULES).any(|seed| shuffled.parting(seed).is_some());
        assert!(parts || shuffled.hazards > 0, "{file}");
        parted += u32::from(parts);
    }
    assert!(parted > 0, "no schedule shows any of these faults");
}
