//! One rank's training: set up once, then step after step.

use crate::fault::FaultKind;
use crate::model::{
    Generators, Gpt, LossFactor, Parameter, ParameterStore, Partition, RNG_WORDS, Recompute,
    Scratch, Stage,
};
use crate::numerics::Dtype;
use crate::plan::{Combine, Init};
use crate::train::batch::{Batch, vocabulary_segments};
use crate::train::bucket::{ChunkRange, FlatLayout};
use crate::train::checkpoint::RankState;
use crate::train::corpus::Corpus;
use crate::train::data_parallel::DataParallel;
use crate::train::exit::Exit;
use crate::train::finalize::{PartialGradients, meet_embedding};
use crate::train::given::GivenGradients;
use crate::train::gradient::{Gradients, Reduction, shards};
use crate::train::initial::Initial;
use crate::train::layout::Coordinates;
use crate::train::loader::Loader;
use crate::train::loss_scaler::LossScaler;
use crate::train::optimizer::Optimizer;
use crate::train::options::TrainOptions;
use crate::train::pipeline::{Neighbours, Pipeline, StepData};
use crate::train::process_groups::GroupIds;
use crate::train::save::Saver;
use crate::world::{
    Component, Family, LocalOrder, Phase, Rank, RankError, Segments, SlotFold, Tensor,
};

/// Everything one rank holds.
#[derive(Debug)]
pub struct Trainer {
    pub(super) options: TrainOptions,
    groups: GroupIds,
    pub(super) place: Coordinates,
    corpus: Corpus,
    pub pipeline: Pipeline,
    /// All chunks' parameters. The slots of each chunk lie one chunk after another.
    store: ParameterStore,
    pub(super) layout: FlatLayout,
    pub gradients: Gradients,
    /// Under sequence parallelism.
    partial_gradients: Option<PartialGradients>,
    pub optimizer: Optimizer,
    pub(super) loss_scaler: Option<LossScaler>,
    /// On the last stage: what the tokens' losses are multiplied by.
    pub(super) loss_factor: Option<LossFactor>,
    pub(super) loader: Loader,
    /// `[1]` u32, where a stale flag is planted: whether the process is in its first microbatch,
    /// as it believes.
    first_microbatch: Option<Tensor>,
    /// With `async_save`.
    saver: Option<Saver>,
    /// With `exit_duration_in_mins`.
    exit: Option<Exit>,
    tokens: Option<Tensor>,
    targets: Option<Tensor>,
    losses: Option<Tensor>,
    loss: Option<Tensor>,
    /// Whether other ranks' shards of the parameters are those of the step before.
    stale: bool,
    /// Steps that this process has ended.
    steps_done: u32,
}

impl Trainer {
    /// The metric that the last stage reports, a value a step: Megatron-LM's name of the loss.
    pub const LM_LOSS: &str = "lm loss";
    /// Where the loss is scaled: the scale after the step, and 1 where the optimizer's step was
    /// left out because gradients overflowed, else 0. Megatron-LM logs both as well.
    pub const LOSS_SCALE: &str = "loss scale";
    pub const SKIPPED: &str = "skipped iterations";

    /// Allocates and fills this rank's memory: from `state` where it holds a tensor, fresh
    /// elsewhere.
    ///
    /// # Errors
    /// Given weights or state that do not fit this rank.
    pub fn new(
        rank: &mut Rank,
        options: &TrainOptions,
        groups: GroupIds,
        corpus: Corpus,
        initial: &Initial,
        state: Option<&RankState>,
    ) -> Result<Trainer, RankError> {
        rank.set_phase(Phase::Setup);
        let place = options.layout.coordinates(rank.id);
        let layout = FlatLayout::of(options, place.stage);
        let store = new_store(rank, options, &layout);
        let stages = new_stages(rank, options, groups, place, &store, &layout);
        let optimizer = Optimizer::allocate(rank, options, &store, &layout);
        let gradients = Gradients::allocate(rank, options, &store, &layout);
        let lists = (&store, &layout);
        let loss_scaler = LossScaler::allocate(rank, options, gradients.reduced);
        let partial_gradients = PartialGradients::allocate(rank, options, lists, place, &gradients);
        let rng = Generators {
            default: rank.alloc("rng", Dtype::U32, RNG_WORDS),
            model_parallel: rank.alloc("model_parallel_rng", Dtype::U32, RNG_WORDS),
        };
        let reads = place.stage == 0 || is_last(options, place);
        let mut trainer = Trainer {
            loader: Loader::allocate(rank, options, reads, state.is_some()),
            loss_factor: is_last(options, place)
                .then(|| loss_factor(rank, options, loss_scaler.as_ref())),
            loss_scaler,
            first_microbatch: first_microbatch(rank, options),
            saver: None,
            exit: Exit::allocate(rank, options, groups.world),
            tokens: (place.stage == 0)
                .then(|| new_step_tensor(rank, options, "tokens", Dtype::U32)),
            targets: is_last(options, place)
                .then(|| new_step_tensor(rank, options, "targets", Dtype::U32)),
            losses: is_last(options, place)
                .then(|| new_step_tensor(rank, options, "losses", Dtype::F32)),
            loss: is_last(options, place).then(|| rank.alloc("lm_loss", Dtype::F32, 1)),
            pipeline: {
                let chunks = stages.into_iter().map(|stage| {
                    let neighbours = neighbours(options, place, stage.stage);
                    (Gpt::new(rank, stage), neighbours)
                });
                let chunks = chunks.collect();
                Pipeline::new(rank, options, place.stage, chunks, rng)
            },
            store,
            options: options.clone(),
            groups,
            place,
            corpus,
            layout,
            gradients,
            partial_gradients,
            optimizer,
            // As Megatron, whose hooks are off in a process's first step.
            stale: false,
            steps_done: 0,
        };
        trainer.fill(rank, initial, state, rng)?;
        if let Some(flag) = trainer.first_microbatch {
            rank.host_write("first_microbatch", flag, &[1])?;
        }
        trainer.declare(rank, rng);
        if options.async_save {
            trainer.saver = Some(Saver::allocate(rank, trainer.state(rng)));
        }
        Ok(trainer)
    }

    pub fn store(&self) -> &ParameterStore {
        &self.store
    }

    /// One training step, up to and with the end of the step. `saves`: the parameters are looked at
    /// then, so that no gather may be left to the next forward (Megatron-LM, `force_param_sync`).
    pub fn step(&mut self, rank: &mut Rank, step: u32, saves: bool) -> Result<(), RankError> {
        rank.set_step(step);
        if let Some(saver) = &mut self.saver {
            saver.poll(rank)?;
        }
        let overwrites = self.overwrites(rank)?;
        let batch = self.load(rank)?;
        let segments = self.segments(&batch);
        let data = StepData {
            tokens: self.tokens,
            targets: self.targets,
            segments: &segments,
            losses: self.losses,
            loss_factor: self.loss_factor,
        };
        let reduction = Reduction {
            options: &self.options,
            layout: &self.layout,
            store: &self.store,
            groups: self.groups,
            is_first_step: self.steps_done == 0,
            overwrites,
        };
        let (gradients, optimizer) = (&self.gradients, &self.optimizer);
        let stage = self.place.stage;
        let mut data_parallel =
            DataParallel::new(rank, reduction, gradients, optimizer, stage, self.stale);
        if self.options.eager_steps() == Some(self.steps_done) {
            self.pipeline.capture(rank);
        }
        self.pipeline.run(rank, &data, &mut data_parallel);
        assert!(data_parallel.is_whole(), "a module has every parameter");
        data_parallel.finish_gradients(rank);
        if let Some(partial) = &self.partial_gradients {
            partial.meet(rank, self.groups.tensor);
        }
        meet_embedding(rank, &reduction, gradients);
        if let Some(saver) = &mut self.saver {
            saver.finish_copies(rank);
        }
        let is_skipped = self.update(rank, &reduction)?;
        self.stale = !is_skipped && self.options.defers_param_gather() && !saves;
        if shards(&self.options) && !self.stale && !is_skipped {
            optimizer.gather_all(rank, &reduction);
        }
        self.mean_loss(rank);
        self.steps_done += 1;
        rank.module("data", |rank| self.loader.advance(rank, &self.options));
        if let Some(loss) = self.loss {
            rank.metric(Self::LM_LOSS, loss);
        }
        if let Some(norm) = self.optimizer.norm(&self.options).filter(|_| !is_skipped) {
            rank.metric("grad norm", norm);
        }
        if let Some(scaler) = &self.loss_scaler {
            rank.metric(Self::LOSS_SCALE, scaler.scale);
            rank.metric(Self::SKIPPED, scaler.found_inf);
        }
        rank.end_step()?;
        if let Some(saver) = &mut self.saver {
            saver.after_step(step);
        }
        Ok(())
    }

    /// The optimizer's step, unless scaled gradients overflow. Whether it is left out.
    fn update(&self, rank: &mut Rank, reduction: &Reduction<'_>) -> Result<bool, RankError> {
        let reduced = self.gradients.reduced;
        let (grads, is_skipped) = match &self.loss_scaler {
            Some(scaler) => {
                let is_skipped = scaler.prepare(rank, reduction, reduced)?;
                (scaler.main_grads, is_skipped)
            }
            None => (reduced, false),
        };
        if !is_skipped {
            self.optimizer.step(rank, reduction, grads, None);
        }
        Ok(is_skipped)
    }

    /// What [`Trainer::step`] does from the optimizer on, with the gradients that are given.
    pub(super) fn step_with(
        &mut self,
        rank: &mut Rank,
        given: &GivenGradients,
    ) -> Result<(), RankError> {
        assert!(!shards(&self.options), "one rank has all of them");
        rank.set_step(given.step);
        rank.set_phase(Phase::GradReduce);
        rank.upload("given", self.gradients.reduced, &given.flat);
        let reduction = Reduction {
            options: &self.options,
            layout: &self.layout,
            store: &self.store,
            groups: self.groups,
            is_first_step: true,
            overwrites: false,
        };
        let clip = rank.alloc("given_clip", Dtype::F32, 2);
        rank.upload("given_clip", clip, &given.clip);
        let gradients = self.gradients.reduced;
        self.optimizer.step(rank, &reduction, gradients, Some(clip));
        rank.module("data", |rank| self.loader.advance(rank, &self.options));
        let own = self.optimizer.clip();
        rank.metric(GivenGradients::NORM, own.slice(0, 1));
        rank.metric(GivenGradients::COEFFICIENT, own.slice(1, 1));
        rank.end_step()
    }

    /// Asks for a checkpoint of the state as it is after step `after`, with `async_save`. `late`:
    /// its writer takes as long as it may.
    pub fn save(&mut self, rank: &mut Rank, after: u32, late: bool) -> Result<(), RankError> {
        match &mut self.saver {
            Some(saver) => saver.save(rank, after, late),
            None => Ok(()),
        }
    }

    /// From now on ranks ask, before each step, whether the writer is done, and do not wait for it.
    pub fn ask_for_saves(&mut self, rank: &mut Rank) {
        if let Some(saver) = &mut self.saver {
            saver.ask(rank, self.groups.world, self.options.layout.world_size());
        }
    }

    /// After a step that is not the last: whether the job's time is over.
    ///
    /// # Errors
    /// The run was stopped.
    pub fn exits(&self, rank: &mut Rank) -> Result<bool, RankError> {
        self.exit.map_or(Ok(false), |exit| exit.is_due(rank))
    }

    /// Training is over: what is still being written is waited for.
    pub fn finish(&mut self, rank: &mut Rank) -> Result<(), RankError> {
        match &mut self.saver {
            Some(saver) => saver.finish(rank),
            None => Ok(()),
        }
    }

    /// Reads the data position and uploads the step's tokens, where this stage needs them.
    fn load(&self, rank: &mut Rank) -> Result<Batch, RankError> {
        rank.set_phase(Phase::Data);
        rank.set_microbatch(None);
        if self.tokens.is_none() && self.targets.is_none() {
            return Ok(Batch {
                tokens: Vec::new(),
                targets: Vec::new(),
            });
        }
        rank.module("data", |rank| {
            let (corpus, options) = (&self.corpus, &self.options);
            let start = self.loader.next(rank, options)?;
            let (position, epoch) = (start.position, start.epoch);
            let batch = Batch::in_epoch(corpus, options, position, epoch, self.place.data);
            if let Some(tokens) = self.tokens {
                rank.upload("tokens", tokens, &batch.tokens);
            }
            if let Some(targets) = self.targets {
                rank.upload("targets", targets, &batch.targets);
            }
            Ok(batch)
        })
    }

    /// Whether the process takes this step's microbatches for first ones, whose gradients
    /// overwrite. It believes so in its first step, and no checkpoint knows.
    fn overwrites(&self, rank: &mut Rank) -> Result<bool, RankError> {
        let Some(flag) = self.first_microbatch else {
            return Ok(false);
        };
        rank.set_phase(Phase::Forward);
        rank.module("wgrad", |rank| {
            let is_first = rank.host_read("is_first_microbatch", flag)? == [1];
            rank.host_write("set_first_microbatch", flag, &[0])?;
            Ok(is_first)
        })
    }

    fn segments(&self, batch: &Batch) -> Vec<Segments> {
        if self.tokens.is_none() {
            return Vec::new();
        }
        let rows = self.options.model.local_vocab();
        let first = self.place.tensor * rows;
        let tokens = self.options.model.tokens() as usize;
        let microbatches = batch.tokens.chunks_exact(tokens);
        microbatches
            .map(|tokens| vocabulary_segments(tokens, first, rows))
            .collect()
    }

    /// The mean over the tokens of all data-parallel ranks, on the last stage: after the step of
    /// the optimizer (Megatron-LM, training.py, `train_step`).
    fn mean_loss(&self, rank: &mut Rank) {
        let (Some(losses), Some(loss)) = (self.losses, self.loss) else {
            return;
        };
        rank.set_phase(Phase::Loss);
        let fold = SlotFold {
            family: Family::LossLocal,
            addends: losses,
            slots: losses.len,
            out: loss,
            init: Init::First,
            order: LocalOrder::Ordered,
        };
        let ranks = self.options.layout.data_parallel_size;
        let tokens = losses.len as f32 * ranks as f32;
        rank.module("loss", |rank| {
            rank.fold("sum_tokens", fold);
            let params = [1, (1.0 / tokens).to_bits(), Dtype::F32.code()];
            rank.launch("mean", "scale", [1, 1, 1], &[loss], &params);
            if ranks > 1 {
                let family = Family::LossMean;
                let group = self.groups.data;
                let handle = rank.all_reduce("all_reduce", family, group, loss, Combine::Sum);
                rank.wait(handle);
            }
        });
    }

    /// What a checkpoint holds.
    fn state(&self, rng: Generators) -> Vec<(Component, String, Tensor)> {
        let (optimizer, store) = (&self.optimizer, self.store());
        let parameters = store.parameters.iter().zip(&store.offsets);
        let parameters = parameters.map(|(parameter, offset)| {
            let value = store.values.slice(*offset, parameter.len());
            (Component::Model, parameter.name.clone(), value)
        });
        let others = [
            (Component::MainParams, "main_params", optimizer.main_params),
            (Component::ExpAvg, "exp_avg", optimizer.exp_avg),
            (Component::ExpAvgSq, "exp_avg_sq", optimizer.exp_avg_sq),
            (Component::OptimizerStep, "step", optimizer.step),
            (Component::OptimizerStep, "beta_powers", optimizer.powers),
            (Component::Scheduler, "num_steps", optimizer.num_steps),
            (Component::DataPosition, "samples", self.loader.position),
            (Component::Rng, "rng", rng.default),
            (Component::Rng, "model_parallel_rng", rng.model_parallel),
        ];
        let others = others.map(|(component, name, tensor)| (component, name.to_string(), tensor));
        let scaler = self.loss_scaler.iter().flat_map(LossScaler::state);
        let scaler = scaler.map(|(component, name, tensor, _)| {
            let name = name.to_string();
            (component, name, tensor)
        });
        parameters.chain(others).chain(scaler).collect()
    }

    /// Tells the world what the state is, and which copies must agree.
    fn declare(&self, rank: &mut Rank, rng: Generators) {
        let (optimizer, store) = (&self.optimizer, self.store());
        for (place, parameter) in store.parameters.iter().enumerate() {
            let value = store.values.slice(store.offsets[place], parameter.len());
            rank.replicate(self.groups.data, &parameter.name, value);
            if parameter.partition == Partition::Replicated {
                rank.replicate(self.groups.tensor, &parameter.name, value);
            }
            if let (true, Some(group)) = (parameter.is_shared_embedding(), self.groups.embedding) {
                rank.replicate(group, parameter.whole_name(), value);
            }
        }
        for (component, name, tensor) in self.state(rng) {
            rank.persist(component, &name, tensor);
            let flat = [
                Component::MainParams,
                Component::ExpAvg,
                Component::ExpAvgSq,
            ];
            if !flat.contains(&component) {
                continue;
            }
            let copies = match shards(&self.options) {
                true => self.groups.inter_instance,
                false => Some(self.groups.data),
            };
            if let Some(group) = copies {
                rank.replicate(group, &name, tensor);
            }
        }
        if let Some(loss) = self.loss {
            rank.replicate(self.groups.data, Self::LM_LOSS, loss);
            rank.replicate(self.groups.tensor, Self::LM_LOSS, loss);
        }
        rank.replicate(self.groups.world, "optimizer_step", optimizer.step);
        rank.replicate(self.groups.world, "scheduler", optimizer.num_steps);
        for (_, name, tensor, _) in self.loss_scaler.iter().flat_map(LossScaler::state) {
            rank.replicate(self.groups.world, name, tensor);
        }
        rank.replicate(self.groups.world, "data_position", self.loader.position);
        // Whole activations have one dropout mask (Megatron-LM, tensor_parallel/random.py).
        rank.replicate(self.groups.tensor, "default_rng", rng.default);
    }
}

/// The flag of a process that overwrites gradients where it should add them. It is no part of any
/// checkpoint.
fn first_microbatch(rank: &mut Rank, options: &TrainOptions) -> Option<Tensor> {
    let is_stale =
        options.microbatches() > 1 && rank.has_fault(FaultKind::StaleFlag, "first-microbatch");
    is_stale.then(|| rank.alloc_host("is_first_microbatch", Dtype::U32, 1))
}

/// What the last stage multiplies losses by: without a scaler, by one over the tokens of a step.
fn loss_factor(rank: &mut Rank, options: &TrainOptions, scaler: Option<&LossScaler>) -> LossFactor {
    let tokens = options.model.tokens() * options.microbatches();
    LossFactor {
        each: 1.0 / tokens as f32,
        loss_scale: match scaler {
            Some(scaler) => scaler.scale,
            None => rank.alloc("no_loss_scale", Dtype::F32, 1),
        },
    }
}

fn is_last(options: &TrainOptions, place: Coordinates) -> bool {
    place.stage + 1 == options.layout.pipeline_model_parallel_size
}

/// The ranks that hold the virtual stages before and after `virtual_stage`.
fn neighbours(options: &TrainOptions, place: Coordinates, virtual_stage: u32) -> Neighbours {
    let layout = &options.layout;
    let at = |virtual_stage: u32| {
        let stage = virtual_stage % layout.pipeline_model_parallel_size;
        layout.rank(Coordinates { stage, ..place })
    };
    let is_last = virtual_stage + 1 == layout.virtual_stages();
    Neighbours {
        previous: (virtual_stage > 0).then(|| at(virtual_stage - 1)),
        next: (!is_last).then(|| at(virtual_stage + 1)),
    }
}

fn new_step_tensor(rank: &mut Rank, options: &TrainOptions, name: &str, dtype: Dtype) -> Tensor {
    rank.alloc(name, dtype, options.microbatches() * options.model.tokens())
}

fn new_store(rank: &mut Rank, options: &TrainOptions, layout: &FlatLayout) -> ParameterStore {
    let slots = options.microbatches() * layout.len();
    ParameterStore {
        parameters: layout.parameters.clone(),
        offsets: layout.offsets.clone(),
        buckets: {
            let bucket = |word: &u32| layout.buckets[layout.bucket_at(*word)].range.clone();
            layout.offsets.iter().map(bucket).collect()
        },
        values: rank.alloc("parameters", options.model.params_dtype, layout.len()),
        slots: rank.alloc("grad_slots", Dtype::F32, slots),
    }
}

/// A chunk's part of the rank's parameters.
fn chunk_store(store: &ParameterStore, chunk: &ChunkRange, microbatches: u32) -> ParameterStore {
    let (start, len) = (chunk.words.start, chunk.words.end - chunk.words.start);
    let offsets = &store.offsets[chunk.parameters.clone()];
    ParameterStore {
        parameters: store.parameters[chunk.parameters.clone()].to_vec(),
        offsets: offsets.iter().map(|offset| offset - start).collect(),
        buckets: store.buckets[chunk.parameters.clone()]
            .iter()
            .map(|bucket| bucket.start - start..bucket.end - start)
            .collect(),
        values: store.values.slice(start, len),
        slots: store.slots.slice(microbatches * start, microbatches * len),
    }
}

/// One stage a chunk; they share rotary tables and scratch.
fn new_stages(
    rank: &mut Rank,
    options: &TrainOptions,
    groups: GroupIds,
    place: Coordinates,
    store: &ParameterStore,
    layout: &FlatLayout,
) -> Vec<Stage> {
    let shape = &options.model;
    let rope = shape.seq_length * shape.kv_channels / 2;
    let greatest = layout.parameters.iter().map(Parameter::len).max();
    let rope_cosines = rank.alloc("rope_cosines", Dtype::F32, rope);
    let rope_sines = rank.alloc("rope_sines", Dtype::F32, rope);
    let scratch = Scratch::allocate(rank, shape, greatest.unwrap_or(0));
    let rng_again = (options.recompute != Recompute::Nothing)
        .then(|| rank.alloc("recompute_rng", Dtype::U32, 2 * RNG_WORDS));
    let stage = |chunk: &ChunkRange| Stage {
        shape: shape.clone(),
        stage: chunk.virtual_stage,
        tensor_rank: place.tensor,
        tensor_group: groups.tensor,
        store: chunk_store(store, chunk, options.microbatches()),
        rope_cosines,
        rope_sines,
        scratch,
        recompute: options.recompute,
        offloaded_layers: options.cpu_offloading_num_layers,
        double_buffering: options.cpu_offloading_double_buffering,
        cuda_graph_impl: options.cuda_graph_impl,
        rng_again,
    };
    layout.chunks.iter().map(stage).collect()
}
