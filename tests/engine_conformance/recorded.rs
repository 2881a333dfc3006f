//! Every shader, on what training really gives it: launches of small runs are recorded with their
//! operands, and run again on another engine, as they were and with floats of every kind in them.

use std::collections::{BTreeMap, BTreeSet};

use bitproof::engine::cpu::CpuEngine;
use bitproof::engine::self_test::SelfTest;
use bitproof::engine::{
    ArenaId, CopyWords, Engine, EngineError, EngineIdentity, Launch, ProgramId, Span,
};
use bitproof::kernel::{Kernel, Registry};
use bitproof::numerics::{Digest, Dtype};
use bitproof::recipe::LrDecayStyle;
use bitproof::train::{Dynamic, LossScale, Run, Saves, TrainOptions, program};
use bitproof::world::{RunOptions, Unobserved};
use naga::{AddressSpace, ScalarKind, TypeInner};

use crate::harness::{as_gpt3, small_corpus, small_options, with_biases, with_layout, world};
use crate::kernels::words;
use crate::promises_bits;

/// Launches that are kept of one kernel.
const SAMPLES_MAX: usize = 4;

/// One launch, its operands' words before it, and which operands were the same place.
struct Sample {
    launch: Launch,
    operands: Vec<Vec<u32>>,
}

/// The cpu engine, keeping the first launches of each kernel that differ in grid or params.
struct Recorder {
    inner: CpuEngine,
    kernels: Vec<String>,
    samples: BTreeMap<String, Vec<Sample>>,
}

impl Engine for Recorder {
    fn identity(&self) -> EngineIdentity {
        self.inner.identity()
    }

    fn load(&mut self, kernel: &Kernel) -> Result<ProgramId, EngineError> {
        let program = self.inner.load(kernel)?;
        if program.0 as usize == self.kernels.len() {
            self.kernels.push(kernel.name.clone());
        }
        Ok(program)
    }

    fn alloc_on(&mut self, shard: u32, words: u32, poison: u32) -> Result<ArenaId, EngineError> {
        self.inner.alloc_on(shard, words, poison)
    }

    fn grow(&mut self, arena: ArenaId, words: u32, poison: u32) -> Result<(), EngineError> {
        self.inner.grow(arena, words, poison)
    }

    fn release(&mut self, arena: ArenaId) -> Result<(), EngineError> {
        self.inner.release(arena)
    }

    fn run(&mut self, launches: &[Launch]) -> Result<(), EngineError> {
        for launch in launches {
            let kernel = self.kernels[launch.program.0 as usize].clone();
            let kept = self.samples.entry(kernel).or_default();
            let shape = |launch: &Launch| (launch.grid, launch.params.clone());
            let known = kept.iter().any(|s| shape(&s.launch) == shape(launch));
            if kept.len() < SAMPLES_MAX && !known && !launch.grid.contains(&0) {
                let spans = launch.operands.iter();
                let operands = spans.map(|span| self.inner.read(*span));
                kept.push(Sample {
                    operands: operands.collect::<Result<_, _>>()?,
                    launch: launch.clone(),
                });
            }
        }
        self.inner.run(launches)
    }

    fn runs(&self) -> u64 {
        self.inner.runs()
    }

    fn copy(&mut self, copies: &[CopyWords]) -> Result<(), EngineError> {
        self.inner.copy(copies)
    }

    fn read(&mut self, span: Span) -> Result<Vec<u32>, EngineError> {
        self.inner.read(span)
    }

    fn write(&mut self, span: Span, words: &[u32]) -> Result<(), EngineError> {
        self.inner.write(span, words)
    }

    fn note(&mut self, spans: &[Span]) -> Result<(), EngineError> {
        self.inner.note(spans)
    }

    fn noted(&mut self) -> Result<Vec<Digest>, EngineError> {
        self.inner.noted()
    }
}

/// Recipes that between them launch every shader.
fn recipes() -> Vec<TrainOptions> {
    let llama = with_layout(small_options(), 2, 1, 2);
    let mut bf16 = with_layout(small_options(), 2, 1, 2);
    bf16.model.params_dtype = Dtype::Bf16;
    bf16.model.sequence_parallel = true;
    bf16.model.num_query_groups = 2;
    bf16.use_distributed_optimizer = true;
    bf16.lr_decay_style = LrDecayStyle::Cosine;
    bf16.lr_warmup_iters = 1;
    let mut gpt3 = with_layout(small_options(), 2, 2, 1);
    as_gpt3(&mut gpt3);
    gpt3.model.params_dtype = Dtype::F16;
    gpt3.loss_scale = Some(LossScale::Dynamic(Dynamic {
        initial: 64.0,
        min: 1.0,
        window: 1,
        hysteresis: 1,
    }));
    vec![llama, bf16, gpt3]
}

fn recorded() -> BTreeMap<String, Vec<Sample>> {
    let mut recorder = Recorder {
        inner: CpuEngine::new(1).expect("an engine"),
        kernels: Vec::new(),
        samples: BTreeMap::new(),
    };
    for options in recipes() {
        options.check().expect("options fit");
        let run = Run {
            steps: 0..2,
            checkpoint: None,
            saves_after: Default::default(),
            variables: Vec::new().into(),
            saves: Saves::default(),
        };
        let corpus = small_corpus(&options);
        let initial = with_biases(&options);
        let program = program(options.clone().into(), corpus, initial, run);
        let run = RunOptions::default();
        let record = world(&options).run(&mut recorder, &run, &program, &mut Unobserved);
        record.unwrap_or_else(|error| panic!("{error}"));
    }
    let registry = Registry::new().expect("shaders link");
    SelfTest::run(&mut recorder, &registry).expect("the cpu engine is tested");
    recorder.samples
}

pub fn every_shader_gives_the_same_bits(engine: &mut dyn Engine) {
    let registry = Registry::new().expect("shaders link");
    let samples = recorded();
    let launched: BTreeSet<&str> = samples.keys().map(String::as_str).collect();
    let missing: Vec<&str> = registry
        .names()
        .filter(|name| !launched.contains(name))
        .collect();
    assert!(missing.is_empty(), "no recipe here launches {missing:?}");
    let mut compared = 0;
    // The first difference of each kernel.
    let mut apart: BTreeMap<&String, String> = BTreeMap::new();
    for (name, samples) in &samples {
        let kernel = registry.get(name).expect("valid");
        for sample in samples {
            for kind in [Inputs::AsTheyWere, Inputs::Random, Inputs::EveryKind] {
                let inputs = kind.of(kernel, sample);
                let mut reference = CpuEngine::new(1).expect("an engine");
                let want = outputs(&mut reference, kernel, sample, &inputs);
                let got = outputs(engine, kernel, sample, &inputs);
                let (want, got) = match (want, got) {
                    (Ok(want), Ok(got)) => (want, got),
                    // An index may be made of a float.
                    (Err(want), Err(got)) if kind != Inputs::AsTheyWere => {
                        assert_eq!(fault(&want), fault(&got), "{name} on {kind:?}");
                        continue;
                    }
                    (want, got) => panic!("{name}: {:?} but {:?}", want.err(), got.err()),
                };
                compared += 1;
                assert_eq!(want.len(), got.len(), "{name} on {kind:?}");
                let differing = (0..want.len()).find(|place| want[*place] != got[*place]);
                if let Some(place) = differing {
                    let (want, got) = (want[place], got[place]);
                    let told = format!("on {kind:?}: word {place}: {want:#010x} {got:#010x}");
                    apart.entry(name).or_insert(told);
                }
            }
        }
    }
    assert!(compared > 2 * registry.names().count(), "{compared}");
    for (name, told) in &apart {
        eprintln!("{name} {told}");
    }
    assert!(apart.is_empty() || !promises_bits(engine), "{apart:?}");
}

/// What two engines must say alike of one launch that goes wrong.
fn fault(error: &EngineError) -> (&str, &str, u32) {
    match error {
        EngineError::OutOfExtent {
            kernel,
            operand,
            extent,
            ..
        } => (kernel, operand, *extent),
        other => panic!("no launch was outside its operands: {other}"),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Inputs {
    AsTheyWere,
    /// Floats between -1 and 1.
    Random,
    /// Subnormals, infinities, NaNs, all binades.
    EveryKind,
}

impl Inputs {
    /// Words of the operands; those that are not floats stay.
    fn of(self, kernel: &Kernel, sample: &Sample) -> Vec<Vec<u32>> {
        let float = floats(kernel);
        let operands = sample.operands.iter().enumerate();
        operands
            .map(|(place, before)| match self {
                Inputs::AsTheyWere => before.clone(),
                _ if !float[place] => before.clone(),
                _ => {
                    let wild = self == Inputs::EveryKind;
                    words(before.len(), 31 * place as u32 + 17, wild)
                }
            })
            .collect()
    }
}

/// Which operands hold floats.
fn floats(kernel: &Kernel) -> Vec<bool> {
    let mut of: BTreeMap<u32, bool> = BTreeMap::new();
    for (_, variable) in kernel.module.global_variables.iter() {
        let (AddressSpace::Storage { .. }, Some(at)) = (variable.space, variable.binding) else {
            continue;
        };
        let TypeInner::Array { base, .. } = kernel.module.types[variable.ty].inner else {
            panic!("an operand is an array");
        };
        let scalar = kernel.module.types[base].inner.scalar_kind();
        of.insert(at.binding, scalar == Some(ScalarKind::Float));
    }
    of.into_values().collect()
}

/// What all operands hold after the launch, each in an arena of its own; operands that were one
/// place stay one. The arenas are given back, whatever happens.
fn outputs(
    engine: &mut dyn Engine,
    kernel: &Kernel,
    sample: &Sample,
    inputs: &[Vec<u32>],
) -> Result<Vec<u32>, EngineError> {
    let mut arenas = BTreeMap::new();
    let after = outputs_in(&mut arenas, engine, kernel, sample, inputs);
    for arena in arenas.values() {
        engine.release(*arena).expect("an arena");
    }
    after
}

fn outputs_in(
    arenas: &mut BTreeMap<ArenaId, ArenaId>,
    engine: &mut dyn Engine,
    kernel: &Kernel,
    sample: &Sample,
    inputs: &[Vec<u32>],
) -> Result<Vec<u32>, EngineError> {
    let program = engine.load(kernel)?;
    // The second shard too, where there is one.
    let shard = engine.shards() - 1;
    let (first, last) = extent(&sample.launch.operands);
    let mut operands = Vec::new();
    for (span, words) in sample.launch.operands.iter().zip(inputs) {
        let start = first[&span.arena];
        let arena = match arenas.get(&span.arena) {
            Some(arena) => *arena,
            None => {
                let size = last[&span.arena] - start;
                let arena = engine.alloc_on(shard, size, 0x7f80_0001)?;
                arenas.insert(span.arena, arena);
                arena
            }
        };
        let offset_words = span.offset_words - start;
        let here = Span {
            arena,
            offset_words,
            ..*span
        };
        engine.write(here, words)?;
        operands.push(here);
    }
    let launch = Launch {
        program,
        operands: operands.clone(),
        ..sample.launch.clone()
    };
    engine.run(&[launch])?;
    let mut after = Vec::new();
    for (old, arena) in arenas.iter() {
        let words = last[old] - first[old];
        let whole = Span {
            arena: *arena,
            offset_words: 0,
            words,
        };
        after.extend(engine.read(whole)?);
    }
    Ok(after)
}

/// First and last word that is used of each arena; the first a multiple of 64, so that operands
/// stay where elements begin.
fn extent(spans: &[Span]) -> (BTreeMap<ArenaId, u32>, BTreeMap<ArenaId, u32>) {
    let (mut first, mut last) = (BTreeMap::new(), BTreeMap::new());
    for span in spans {
        let start = span.offset_words / 64 * 64;
        let least = first.entry(span.arena).or_insert(start);
        *least = start.min(*least);
        let end = span.offset_words + span.words;
        let most = last.entry(span.arena).or_insert(end);
        *most = end.max(*most);
    }
    (first, last)
}
