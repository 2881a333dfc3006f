//! What a rank's memory holds before the first step: a checkpoint's tensors where it has them, a
//! fresh start's elsewhere, and constants.

use crate::model::{Generators, rope_tables};
use crate::train::checkpoint::RankState;
use crate::train::holding::owned;
use crate::train::initial::Initial;
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
        let fresh = self.fresh_parameters(initial)?;
        let from = Source {
            rank: rank.id,
            state,
        };
        let values = self.model_words(&fresh, &from)?;
        rank.upload("parameters", store.values, &values);
        let owned = owned(&self.options, &self.layout, self.place);
        let main: Vec<u32> = owned
            .iter()
            .flat_map(|part| &fresh[part.start as usize..part.end as usize])
            .map(|value| value.to_bits())
            .collect();
        let zeros = vec![0; main.len()];
        let optimizer = &self.optimizer;
        let one = 1f32.to_bits();
        let [seed, tracker] = self.rng_seeds().map(|seed| [seed, 0, 0, 0]);
        let cells: [(Component, &str, Tensor, &[u32]); 9] = [
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
            (Component::DataPosition, "samples", self.data_position, &[0]),
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
    }

    /// fp32 values of the whole flat buffer at a fresh start; words between parameters are 0.
    fn fresh_parameters(&self, initial: &Initial) -> Result<Vec<f32>, RankError> {
        let (store, tp) = (self.store(), self.options.layout.tensor_model_parallel_size);
        let mut flat = vec![0.0; store.values.len as usize];
        for (parameter, offset) in store.parameters.iter().zip(&store.offsets) {
            let values = initial.values(parameter, self.place.tensor, tp);
            let values = values.map_err(RankError::Program)?;
            let start = *offset as usize;
            flat[start..start + values.len()].copy_from_slice(&values);
        }
        Ok(flat)
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
        [seed, seed.wrapping_add(2718 + self.place.tensor)]
    }
}

/// Where first words come from.
struct Source<'a> {
    rank: u32,
    state: Option<&'a RankState>,
}

impl Source<'_> {
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
