//! The four places where tensor-parallel ranks meet, with and without sequence parallelism:
//! entering a column-parallel linear and leaving a row-parallel one, forward and backward. A
//! backward of one is a forward of the other, so two functions serve all four
//! (Megatron-LM, tensor_parallel/mappings.py).

use crate::model::stage::Stage;
use crate::plan::Combine;
use crate::world::{Family, Rank, Tensor};

impl Stage {
    /// Where a partial result over tensor-parallel ranks is written, before `reduce` gives `out`.
    pub fn partial_for(&self, out: Tensor) -> Tensor {
        if self.shape.splits_sequence() {
            self.scratch.partial
        } else {
            out
        }
    }

    /// Sums `partial` over tensor-parallel ranks into `out`: reduce-scatter over the sequence, or
    /// all-reduce in place.
    pub fn reduce(&self, rank: &mut Rank, partial: Tensor, out: Tensor) {
        if !self.shape.splits_sequence() {
            assert_eq!(partial, out, "an all-reduce is in place");
            return self.reduce_whole(rank, out);
        }
        let (family, group) = (Family::TensorParallel, self.tensor_group);
        let handle = rank.reduce_scatter("reduce_scatter", family, group, partial, out);
        rank.wait(handle);
    }

    /// Sums `whole` over tensor-parallel ranks, in place, whether or not the sequence is split.
    pub fn reduce_whole(&self, rank: &mut Rank, whole: Tensor) {
        if self.shape.tensor_model_parallel_size == 1 {
            return;
        }
        let (family, group) = (Family::TensorParallel, self.tensor_group);
        let handle = rank.all_reduce("all_reduce", family, group, whole, Combine::Sum);
        rank.wait(handle);
    }

    /// Where a norm writes what a column-parallel linear reads from `full`.
    pub fn local_for(&self, full: Tensor) -> Tensor {
        if self.shape.splits_sequence() {
            self.scratch.normed
        } else {
            full
        }
    }

    /// All tokens of `local`: gathered into `full`, or `local` itself where the sequence is whole.
    pub fn gather(&self, rank: &mut Rank, local: Tensor, full: Tensor) -> Tensor {
        if !self.shape.splits_sequence() {
            return local;
        }
        let handle = rank.all_gather("all_gather", self.tensor_group, local, full);
        rank.wait(handle);
        full
    }
}
