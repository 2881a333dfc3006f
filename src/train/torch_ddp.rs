//! The buckets of torch's DistributedDataParallel, over the flat gradients.
//!
//! A process lays its buckets out from the list of parameters, reduces its first step's gradients
//! in them, and lays them out anew in the order in which those became ready (reducer.cpp,
//! `rebuild_buckets`; [`crate::job::ddp_buckets`]). No checkpoint holds that order: after a restart
//! the first step is reduced in the first layout again. Where an element lies in its bucket decides
//! in which order a ring adds it, so with three ranks or more a resumed run parts from the straight
//! one. With `find_unused_parameters` buckets are never laid out anew.
//!
//! Here gradients stay in the flat buffer, and one collective carries all buckets, each element with
//! the tree that it has at its place in its bucket: what differs between two layouts is what they
//! change in the sums, and nothing else. That DDP's reductions overlap with the backward is not
//! simulated.

use std::ops::Range;

use crate::job::{DdpParam, GradientType, ddp_buckets};
use crate::train::bucket::FlatLayout;
use crate::train::options::TrainOptions;

/// For each bucket the flat words that lie in it, in the order in which they lie.
type Arrangement = Vec<Vec<Range<u64>>>;

/// Both layouts of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TorchBuckets {
    first: Arrangement,
    later: Arrangement,
}

impl TorchBuckets {
    /// `None` where gradients are reduced by Megatron's DDP. For options that pass
    /// [`TrainOptions::check`]: one stage holds all parameters.
    pub fn of(options: &TrainOptions) -> Option<TorchBuckets> {
        let ddp = options.torch_ddp.as_ref()?;
        let layout = FlatLayout::of(options, 0);
        assert_eq!(layout.buckets.len(), 1, "one collective carries all");
        let params: Vec<DdpParam> = layout
            .parameters
            .iter()
            .map(|parameter| DdpParam {
                elements: u64::from(parameter.len()),
                dtype: GradientType::Float32,
            })
            .collect();
        // As they lie: in reverse order of their modules.
        let mut ready: Vec<usize> = (0..params.len()).collect();
        ready.sort_by_key(|place| layout.offsets[*place]);
        let words = |place: usize| {
            let start = u64::from(layout.offsets[place]);
            start..start + params[place].elements
        };
        let in_iteration = |iteration: u32| -> Arrangement {
            let buckets = ddp_buckets(&params, &ready, ddp, iteration);
            let buckets = buckets.expect("every parameter has a gradient").buckets;
            let lists = buckets.into_iter();
            lists
                .map(|list| list.into_iter().map(words).collect())
                .collect()
        };
        Some(TorchBuckets {
            first: in_iteration(1),
            later: in_iteration(2),
        })
    }

    /// The layout of a process's first step, or of a later one.
    pub fn in_step(&self, is_first: bool) -> &[Vec<Range<u64>>] {
        match is_first {
            true => &self.first,
            false => &self.later,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::DdpOptions;
    use crate::train::options::tests::options;

    fn buckets(find_unused_parameters: bool, cap: Option<u64>) -> (TorchBuckets, Vec<u32>) {
        let mut options = options();
        options.layout.pipeline_model_parallel_size = 1;
        options.model.pipeline_model_parallel_size = 1;
        options.layout.tensor_model_parallel_size = 1;
        options.model.tensor_model_parallel_size = 1;
        options.model.sequence_parallel = false;
        options.torch_ddp = Some(DdpOptions {
            bucket_cap: cap,
            find_unused_parameters,
            ..DdpOptions::default()
        });
        options.check().expect("sound options");
        let flat = FlatLayout::of(&options, 0);
        (TorchBuckets::of(&options).unwrap(), flat.offsets)
    }

    /// First one bucket in the order of the modules, then one in the order of the backward.
    #[test]
    fn buckets_are_laid_out_anew_after_the_first_step() {
        let (found, offsets) = buckets(false, None);
        let starts = |is_first| -> Vec<u32> {
            let lists = found.in_step(is_first).iter().flatten();
            lists.map(|range| range.start as u32).collect()
        };
        assert_eq!((found.first.len(), found.later.len()), (1, 1));
        assert_eq!(starts(true), offsets);
        let mut reversed = offsets.clone();
        reversed.sort_unstable();
        assert_eq!(starts(false), reversed);
        assert_ne!(offsets, reversed);
    }

    #[test]
    fn every_word_of_a_parameter_is_in_one_bucket() {
        for (unused, cap) in [(false, None), (false, Some(4096)), (true, Some(4096))] {
            let (found, offsets) = buckets(unused, cap);
            assert_eq!(found.first == found.later, unused, "{unused} {cap:?}");
            for arrangement in [&found.first, &found.later] {
                let mut starts: Vec<u32> = arrangement
                    .iter()
                    .flatten()
                    .map(|range| range.start as u32)
                    .collect();
                let mut all = offsets.clone();
                (starts.sort_unstable(), all.sort_unstable());
                assert_eq!(starts, all);
            }
        }
    }
}
