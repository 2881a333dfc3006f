//! What a rank's memory holds before the first step: a checkpoint's tensors where it has them, a
//! fresh start's elsewhere, and constants.

use std::ops::Range;

use crate::fault::FaultKind;
use crate::model::{Generators, rope_tables};
use crate::train::checkpoint::RankState;
use crate::train::gradient::shards;
use crate::train::holding::owned;
use crate::train::initial::Initial;
use crate::train::loss_scaler::LossScaler;
use crate::train::trainer::Trainer;
use crate::world::{Component, Rank, RankError, Tensor};

impl Trainer {
    /// Writes every word that a step reads before it writes it.
    pub(super) fn fill(
        &self,
        rank: &mut Rank,
        initial: &Initial,
        state: Option<&RankState>,
        rng: Generators,
    ) -> Result<(), RankError> {
        let store = self.store();
        let fresh = self.fresh_parameters(rank, initial)?;
        let from = Source {
            rank: rank.id,
            state,
        };
        let owned = owned(&self.options, &self.layout, self.place);
        let (values, main) = self.parameter_words(rank, &fresh, &owned, &from)?;
        rank.upload("parameters", store.values, &values);
        let zeros = vec![0; main.len()];
        let optimizer = &self.optimizer;
        let one = 1f32.to_bits();
        let [seed, tracker] = self.rng_seeds().map(|seed| [seed, 0, 0, 0]);
        let cells: [(Component, &str, Tensor, &[u32]); 8] = [
            (
                Component::MainParams,
                "main_params",
                optimizer.main_params,
                &main,
            ),
            (Component::ExpAvg, "exp_avg", optimizer.exp_avg, &zeros),
            (
                Component::ExpAvgSq,
                "exp_avg_sq",
                optimizer.exp_avg_sq,
                &zeros,
            ),
            (Component::OptimizerStep, "step", optimizer.step, &[0]),
            (
                Component::OptimizerStep,
                "beta_powers",
                optimizer.powers,
                &[one, one],
            ),
            (Component::Scheduler, "num_steps", optimizer.num_steps, &[0]),
            (Component::Rng, "rng", rng.default, &seed),
            (
                Component::Rng,
                "model_parallel_rng",
                rng.model_parallel,
                &tracker,
            ),
        ];
        for (component, name, tensor, fresh) in cells {
            let words = from.words(component, name, fresh)?;
            rank.upload(name, tensor, words);
        }
        for (component, name, tensor, fresh) in self.loss_scaler.iter().flat_map(LossScaler::state)
        {
            let words = from.words(component, name, &fresh)?;
            rank.upload(name, tensor, words);
        }
        let position = from.words(Component::DataPosition, "samples", &[0])?[0];
        let resumes = state.is_some();
        self.loader.fill(rank, &self.options, position, resumes)?;
        self.draw_for_loader(rank, rng.default, resumes);
        optimizer.upload_flags(rank, store, &owned, self.place.tensor);
        optimizer.upload_coefficient(rank, &self.options);
        self.fill_constants(rank);
        Ok(())
    }

    fn fill_constants(&self, rank: &mut Rank) {
        let (stage, shape) = (&self.pipeline.chunks[0].gpt.stage, &self.options.model);
        let (cosines, sines) = rope_tables(shape.seq_length, shape.kv_channels, shape.rotary_base);
        rank.upload_f32("rope_cosines", stage.rope_cosines, &cosines);
        rank.upload_f32("rope_sines", stage.rope_sines, &sines);
        // Words between parameters are never written again, but are summed with the others.
        let slots = self.store().slots;
        let params = [slots.len, 0];
        rank.launch("clear_slots", "fill", [slots.len, 1, 1], &[slots], &params);
        self.optimizer.clear_padding(rank);
        if let (Some(factor), None) = (self.loss_factor, &self.loss_scaler) {
            rank.upload_f32("no_loss_scale", factor.loss_scale, &[1.0]);
        }
    }

    /// fp32 values of the whole flat buffer at a fresh start; words between parameters are 0.
    fn fresh_parameters(&self, rank: &mut Rank, initial: &Initial) -> Result<Vec<f32>, RankError> {
        let by_rank =
            self.options.layout.data_parallel_size > 1 && rank.has_fault(FaultKind::RankSeed, "dp");
        let own = match initial {
            Initial::Seeded(seed) if by_rank => Initial::Seeded(seed ^ self.place.data),
            given => given.clone(),
        };
        let (store, tp) = (self.store(), self.options.layout.tensor_model_parallel_size);
        let mut flat = vec![0.0; store.values.len as usize];
        for (parameter, offset) in store.parameters.iter().zip(&store.offsets) {
            let values = own.values(parameter, self.place.tensor, tp);
            let values = values.map_err(RankError::Program)?;
            let start = *offset as usize;
            flat[start..start + values.len()].copy_from_slice(&values);
        }
        Ok(flat)
    }

    /// Words of the model's parameters, and of the owned main parameters. A checkpoint without
    /// main parameters leaves them to be made of the model's (Megatron-LM, `load_checkpoint`:
    /// `optimizer.reload_model_params`).
    fn parameter_words(
        &self,
        rank: &mut Rank,
        fresh: &[f32],
        owned: &[Range<u32>],
        from: &Source<'_>,
    ) -> Result<(Vec<u32>, Vec<u32>), RankError> {
        let mut values = self.model_words(fresh, from)?;
        let has_main = from.has(Component::MainParams, "main_params");
        let of_owned = |words: &[u32]| -> Vec<u32> {
            let parts = owned.iter();
            let parts = parts.flat_map(|part| &words[part.start as usize..part.end as usize]);
            parts.copied().collect()
        };
        let main = match from.state.is_some() && !has_main {
            true => of_owned(&values),
            false => {
                let bits: Vec<u32> = fresh.iter().map(|value| value.to_bits()).collect();
                of_owned(&bits)
            }
        };
        let gathers = shards(&self.options) && from.state.is_some();
        if gathers && rank.has_fault(FaultKind::SkippedGather, "load") {
            let own = Source {
                state: None,
                ..*from
            };
            let loaded = std::mem::replace(&mut values, self.model_words(fresh, &own)?);
            for part in owned {
                let part = part.start as usize..part.end as usize;
                values[part.clone()].copy_from_slice(&loaded[part]);
            }
        }
        Ok((values, main))
    }

    /// Making an iterator over a torch `DataLoader` draws a base seed from the default generator.
    /// Here the loader has a generator of its own, unless a fault is planted.
    fn draw_for_loader(&self, rank: &mut Rank, rng: Tensor, resumes: bool) {
        let draws = |rank: &mut Rank, name| rank.has_fault(FaultKind::LoaderDraw, name);
        let after = resumes && draws(rank, "resume");
        let is_first = self.options.layout.tensor_model_parallel_size > 1 && self.place.tensor == 0;
        let alone = is_first && draws(rank, "first-tensor-rank");
        if after || alone {
            rank.module("data.loader", |rank| {
                let offset = rng.slice(2, 1);
                rank.launch("draw_base_seed", "advance", [1, 1, 1], &[offset], &[1]);
            });
        }
    }

    /// Words of the model's parameters: each from the state where it is there, else rounded fresh.
    fn model_words(&self, fresh: &[f32], from: &Source<'_>) -> Result<Vec<u32>, RankError> {
        let (store, dtype) = (self.store(), self.options.model.params_dtype);
        let mut words: Vec<u32> = fresh.iter().map(|v| dtype.round(*v).to_bits()).collect();
        for (parameter, offset) in store.parameters.iter().zip(&store.offsets) {
            let range = *offset as usize..(*offset + parameter.len()) as usize;
            let kept = from.words(Component::Model, &parameter.name, &words[range.clone()])?;
            let kept = kept.to_vec();
            words[range].copy_from_slice(&kept);
        }
        Ok(words)
    }

    /// Of the default generator and of the tracker's `model-parallel-rng`: Megatron-LM's
    /// `_set_random_seed` and `model_parallel_cuda_manual_seed`. Stages differ by 100; the tracker
    /// differs between tensor-parallel ranks too.
    fn rng_seeds(&self) -> [u32; 2] {
        let seed = self.options.seed.wrapping_add(100 * self.place.stage);
        let seed = match self.options.data_parallel_random_init {
            true => seed.wrapping_add(10 * self.place.data),
            false => seed,
        };
        [seed, seed.wrapping_add(2718 + self.place.tensor)]
    }
}

/// Where first words come from.
#[derive(Clone, Copy)]
struct Source<'a> {
    rank: u32,
    state: Option<&'a RankState>,
}

impl Source<'_> {
    fn has(&self, component: Component, name: &str) -> bool {
        let state = self.state;
        state.is_some_and(|state| state.get(component, name).is_some())
    }

    fn words<'w>(
        &'w self,
        component: Component,
        name: &str,
        fresh: &'w [u32],
    ) -> Result<&'w [u32], RankError> {
        let Some(kept) = self.state.and_then(|state| state.get(component, name)) else {
            return Ok(fresh);
        };
        if kept.len() != fresh.len() {
            let (rank, have, want) = (self.rank, kept.len(), fresh.len());
            return Err(RankError::Program(format!(
                "the checkpoint of rank {rank} has {have} words of {name}, this layout has {want}"
            )));
        }
        Ok(kept)
    }
}
