//! The data loader: which samples a step gets, and what of that lies in memory.
//!
//! A checkpoint holds the samples that were *consumed* (Megatron-LM,
//! `args.consumed_train_samples`). Workers are ahead of it: each has made [`PREFETCH_FACTOR`]
//! batches that nobody has asked for yet, and a resumed process makes them again. A sample is a
//! function of its number and its epoch alone, so which worker makes a batch changes nothing; the
//! batches ahead do, and are cells of the host's memory here.
//!
//! With `epoch_samples` the samples of an epoch are shuffled by (seed, epoch), as Megatron-LM's
//! `MegatronPretrainingRandomSampler` does with `torch.Generator.manual_seed(epoch)`.

use std::collections::BTreeMap;

use crate::fault::FaultKind;
use crate::numerics::Dtype;
use crate::numerics::philox::StatelessKey;
use crate::train::options::TrainOptions;
use crate::world::{Rank, RankError, Tensor};

/// Batches that each worker makes ahead: torch's `DataLoader(prefetch_factor=2)`.
pub const PREFETCH_FACTOR: u32 = 2;

/// The loader of one rank.
#[derive(Clone, Debug)]
pub struct Loader {
    /// `[1]` u32: samples consumed by the whole world; what a checkpoint holds.
    pub position: Tensor,
    /// What is added to `position` where that counts this process's samples alone.
    skipped: Option<Tensor>,
    /// `[workers * PREFETCH_FACTOR]` u32: first samples of the batches ahead, the next one first.
    prefetched: Option<Tensor>,
    /// `[1]` u32: the epoch of the next sample.
    epoch: Option<Tensor>,
}

/// Where a step's samples begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    pub position: u32,
    pub epoch: u32,
}

impl Loader {
    /// `reads`: this rank needs tokens. `resumes`: a checkpoint is loaded.
    pub fn allocate(rank: &mut Rank, options: &TrainOptions, reads: bool, resumes: bool) -> Loader {
        let counts_anew = resumes && rank.has_fault(FaultKind::LostPosition, "yielded");
        let mut cells = |name: &str, wanted: bool, len: u32| {
            (reads && wanted).then(|| rank.alloc_host(name, Dtype::U32, len))
        };
        let ahead = batches_ahead(options);
        let skipped = cells("data_skipped", counts_anew && ahead == 0, 1);
        let prefetched = cells("data_prefetched", ahead > 0, ahead);
        let epoch = cells("data_epoch", options.epoch_samples.is_some(), 1);
        Loader {
            position: rank.alloc("data_position", Dtype::U32, 1),
            skipped,
            prefetched,
            epoch,
        }
    }

    /// Makes the loader start at sample `position`, which a checkpoint may have held.
    pub fn fill(
        &self,
        rank: &mut Rank,
        options: &TrainOptions,
        position: u32,
        resumes: bool,
    ) -> Result<(), RankError> {
        let (batch, ahead) = (options.global_batch_size, batches_ahead(options));
        let mut counted = position;
        if resumes && rank.has_fault(FaultKind::LostPosition, "yielded") {
            counted = 0;
        }
        if ahead > 0 && rank.has_fault(FaultKind::LostPosition, "prefetched") {
            counted = counted.wrapping_add(ahead * batch);
        }
        rank.upload("samples", self.position, &[counted]);
        if let Some(skipped) = self.skipped {
            rank.host_write("skip", skipped, &[position])?;
        }
        if let Some(prefetched) = self.prefetched {
            let firsts = (0..ahead).map(|place| position.wrapping_add(place * batch));
            rank.host_write("prefetch", prefetched, &firsts.collect::<Vec<u32>>())?;
        }
        if let (Some(cell), Some(samples)) = (self.epoch, options.epoch_samples) {
            // A loader that skips to the middle of an epoch is a new one, whose epoch is its first.
            let is_lost = resumes
                && rank.has_fault(FaultKind::LostPosition, "epoch")
                && !position.is_multiple_of(samples);
            let epoch = if is_lost { 0 } else { position / samples };
            rank.host_write("set_epoch", cell, &[epoch])?;
        }
        Ok(())
    }

    /// Where this step's samples begin; the workers go on.
    pub fn next(&self, rank: &mut Rank, options: &TrainOptions) -> Result<Start, RankError> {
        let position = match self.prefetched {
            Some(prefetched) => self.take(rank, options, prefetched)?,
            None => rank.read("position", self.position)?[0],
        };
        let position = match self.skipped {
            Some(skipped) => position.wrapping_add(rank.host_read("skipped", skipped)?[0]),
            None => position,
        };
        let epoch = match (self.epoch, options.epoch_samples) {
            (Some(cell), Some(samples)) => {
                let epoch = rank.host_read("epoch", cell)?[0];
                let end = position.wrapping_add(options.global_batch_size);
                let passed = (end / samples).saturating_sub(position / samples);
                rank.host_write("set_epoch", cell, &[epoch.wrapping_add(passed)])?;
                epoch
            }
            _ => 0,
        };
        Ok(Start { position, epoch })
    }

    /// The oldest batch ahead; its worker makes the next one.
    fn take(
        &self,
        rank: &mut Rank,
        options: &TrainOptions,
        prefetched: Tensor,
    ) -> Result<u32, RankError> {
        let mut firsts = rank.host_read("get", prefetched)?;
        let last = *firsts.last().expect("a worker has batches ahead");
        let next = firsts.remove(0);
        firsts.push(last.wrapping_add(options.global_batch_size));
        rank.host_write("prefetch", prefetched, &firsts)?;
        Ok(next)
    }

    /// A step's samples have been consumed.
    pub fn advance(&self, rank: &mut Rank, options: &TrainOptions) {
        let samples = [options.global_batch_size];
        rank.launch("advance", "advance", [1, 1, 1], &[self.position], &samples);
    }
}

/// Batches that all workers together are ahead.
fn batches_ahead(options: &TrainOptions) -> u32 {
    options.num_workers * PREFETCH_FACTOR
}

/// The samples of a step in the order of the sampler.
#[derive(Clone, Debug)]
pub struct SampleOrder {
    seed: u32,
    /// Samples of an epoch.
    samples: Option<u32>,
    position: u32,
    epoch: u32,
    shuffles: BTreeMap<u32, Vec<u32>>,
}

impl SampleOrder {
    /// From sample `position` on, which is of `epoch`.
    pub fn new(options: &TrainOptions, position: u32, epoch: u32) -> SampleOrder {
        SampleOrder {
            seed: options.seed,
            samples: options.epoch_samples,
            position,
            epoch,
            shuffles: BTreeMap::new(),
        }
    }

    /// The number of the sample that is `index` behind the first one.
    pub fn sample(&mut self, index: u32) -> u64 {
        let number = u64::from(self.position) + u64::from(index);
        let Some(samples) = self.samples else {
            return number;
        };
        let first_epoch = u64::from(self.position / samples);
        let passed = number / u64::from(samples) - first_epoch;
        let epoch = self.epoch.wrapping_add(passed as u32);
        let seed = self.seed;
        let shuffle = self.shuffles.entry(epoch);
        let shuffle = shuffle.or_insert_with(|| shuffled(seed, epoch, samples));
        u64::from(shuffle[(number % u64::from(samples)) as usize])
    }
}

/// The samples of an epoch: Fisher and Yates's shuffle, whose draws are words of Philox.
fn shuffled(seed: u32, epoch: u32, samples: u32) -> Vec<u32> {
    let key = StatelessKey {
        seed: u64::from(seed) << 32 | u64::from(epoch),
        offset_blocks: 0,
    };
    let mut order: Vec<u32> = (0..samples).collect();
    for place in (1..samples).rev() {
        // The high half of a product: even enough, and one word a draw.
        let drawn = u64::from(key.word(u64::from(place))) * u64::from(place + 1);
        order.swap(place as usize, (drawn >> 32) as usize);
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::train::options::tests::options;

    #[test]
    fn every_epoch_has_every_sample_once_and_an_order_of_its_own() {
        let mut seen = Vec::new();
        for epoch in 0..3 {
            let order = shuffled(7, epoch, 50);
            let mut sorted = order.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, (0..50).collect::<Vec<u32>>());
            assert!(!seen.contains(&order));
            seen.push(order);
        }
        assert_ne!(shuffled(8, 0, 50), seen[0]);
        assert_eq!(shuffled(7, 0, 1), [0]);
    }

    #[test]
    fn a_batch_goes_over_the_end_of_an_epoch() {
        let mut options = options();
        options.epoch_samples = Some(10);
        let mut order = SampleOrder::new(&options, 8, 0);
        let (first, second) = (shuffled(1, 0, 10), shuffled(1, 1, 10));
        let want = [first[8], first[9], second[0], second[1]].map(u64::from);
        assert_eq!([0, 1, 2, 3].map(|index| order.sample(index)), want);
        let mut lost = SampleOrder::new(&options, 18, 0);
        assert_eq!(lost.sample(0), u64::from(first[8]));
        options.epoch_samples = None;
        assert_eq!(SampleOrder::new(&options, 8, 0).sample(5), 13);
    }
}
