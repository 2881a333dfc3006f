//! What a rank's own program sees: a thread that appends commands to its list, as a real training
//! process does, and parks only where a real host would.

use std::sync::Arc;

use crate::numerics::Dtype;
use crate::plan::Combine;
use crate::world::site::{Family, Phase};

/// A run of words in the rank's own memory, tagged with the type of its values. A plain handle:
/// copying it copies no data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tensor {
    /// The allocation it lies in.
    pub buffer: u32,
    /// First word, counted from the start of the allocation.
    pub start: u32,
    /// Elements, one word each.
    pub len: u32,
    pub dtype: Dtype,
}

impl Tensor {
    /// Elements `start..start + len` of this tensor.
    pub fn slice(self, start: u32, len: u32) -> Tensor {
        assert!(
            start + len <= self.len,
            "slice {start}+{len} of a tensor of {}",
            self.len
        );
        Tensor {
            start: self.start + start,
            len,
            ..self
        }
    }
}

/// A communicator, by its place in the list that the world was made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub u32);

/// An asynchronous collective that was issued. `Rank::wait` makes the current stream wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a collective that nobody waits for is a hazard"]
pub struct Handle(pub(crate) u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventId(pub u32);

/// Who chooses the order of a local fold.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum LocalOrder {
    /// Slots in ascending order: the deterministic twin.
    Ordered,
    /// The order in which writers arrive: any permutation, chosen at each call.
    Arrival,
}

/// A part of the training state, as checkpoints name them.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Component {
    /// Parameters as the model computes with them.
    Model,
    /// fp32 main parameters.
    MainParams,
    ExpAvg,
    ExpAvgSq,
    /// Optimizer step counter.
    OptimizerStep,
    /// Samples consumed: the data position.
    DataPosition,
    /// RNG seed and offset.
    Rng,
}

impl Component {
    pub const ALL: [Component; 7] = [
        Component::Model,
        Component::MainParams,
        Component::ExpAvg,
        Component::ExpAvgSq,
        Component::OptimizerStep,
        Component::DataPosition,
        Component::Rng,
    ];
}

/// Why a rank's program ended early. Returned through `?` by every method that can fail.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RankError {
    /// Another rank failed, or the world was stopped: this rank only has to return.
    #[error("the world was stopped")]
    Stopped,
    #[error("{0}")]
    Program(String),
}

/// A sum of rows chosen by index, one list of rows for each output row (CSR).
#[derive(Clone, Debug)]
pub struct Segments {
    /// `pointers[r]..pointers[r + 1]` are the places in `indices` of output row `r`.
    pub pointers: Arc<[u32]>,
    pub indices: Arc<[u32]>,
}

/// A local fold over slots: `out[e] = fold over k of addends[k * out.len + e]`.
#[derive(Clone, Copy, Debug)]
pub struct SlotFold {
    pub family: Family,
    pub addends: Tensor,
    pub slots: u32,
    pub out: Tensor,
    pub init: crate::plan::Init,
    pub order: LocalOrder,
}

/// A virtual rank's view of the world.
pub struct Rank {
    pub id: u32,
}

#[allow(unused_variables)]
impl Rank {
    /// New memory, filled with poison until written. Words are aligned to 64.
    pub fn alloc(&mut self, name: &str, dtype: Dtype, len: u32) -> Tensor {
        unimplemented!()
    }
    /// Gives memory back, in the order of the current stream.
    pub fn free(&mut self, tensor: Tensor) {
        unimplemented!()
    }

    // --- where we are: used for every command that follows ---
    pub fn set_step(&mut self, step: u32) {
        unimplemented!()
    }
    pub fn set_microbatch(&mut self, microbatch: Option<u32>) {
        unimplemented!()
    }
    pub fn set_phase(&mut self, phase: Phase) {
        unimplemented!()
    }
    /// Runs `body` with `module` (a dotted path) as the current module.
    pub fn module<T>(&mut self, module: &str, body: impl FnOnce(&mut Rank) -> T) -> T {
        unimplemented!()
    }

    // --- compute ---
    /// Launches `kernel` over at least `invocations` (rounded up to whole workgroups), on the
    /// current stream. `op` names the step in reports.
    pub fn launch(
        &mut self,
        op: &str,
        kernel: &str,
        invocations: [u32; 3],
        operands: &[Tensor],
        params: &[u32],
    ) {
        unimplemented!()
    }
    pub fn copy(&mut self, op: &str, from: Tensor, to: Tensor) {
        unimplemented!()
    }
    /// Host data to device memory.
    pub fn upload(&mut self, op: &str, to: Tensor, words: &[u32]) {
        unimplemented!()
    }
    pub fn upload_f32(&mut self, op: &str, to: Tensor, values: &[f32]) {
        unimplemented!()
    }
    /// Reads device memory: parks until the device has run everything before it.
    pub fn read(&mut self, op: &str, from: Tensor) -> Result<Vec<u32>, RankError> {
        unimplemented!()
    }

    // --- folds inside the rank ---
    pub fn fold(&mut self, op: &str, fold: SlotFold) {
        unimplemented!()
    }
    /// `out[r * width + e] = +0 + sum over rows i of segment r of addends[i * width + e]`, f32.
    pub fn fold_segments(
        &mut self,
        op: &str,
        family: Family,
        addends: Tensor,
        width: u32,
        segments: &Segments,
        out: Tensor,
        order: LocalOrder,
    ) {
        unimplemented!()
    }

    // --- collectives (NCCL-like: asynchronous, ordered within a communicator) ---
    pub fn group(&self, group: GroupId) -> &[u32] {
        unimplemented!()
    }
    pub fn all_reduce(
        &mut self,
        op: &str,
        family: Family,
        group: GroupId,
        tensor: Tensor,
        combine: Combine,
    ) -> Handle {
        unimplemented!()
    }
    /// `input` is `group size` blocks of `output.len`; rank at place p of the group gets block p.
    pub fn reduce_scatter(
        &mut self,
        op: &str,
        family: Family,
        group: GroupId,
        input: Tensor,
        output: Tensor,
    ) -> Handle {
        unimplemented!()
    }
    pub fn all_gather(
        &mut self,
        op: &str,
        group: GroupId,
        input: Tensor,
        output: Tensor,
    ) -> Handle {
        unimplemented!()
    }
    pub fn all_to_all(
        &mut self,
        op: &str,
        group: GroupId,
        input: Tensor,
        output: Tensor,
    ) -> Handle {
        unimplemented!()
    }
    pub fn broadcast(
        &mut self,
        op: &str,
        group: GroupId,
        tensor: Tensor,
        root_place: u32,
    ) -> Handle {
        unimplemented!()
    }
    /// Point to point, by global rank; matched in order per (from, to) pair.
    pub fn send(&mut self, op: &str, to: u32, tensor: Tensor) -> Handle {
        unimplemented!()
    }
    pub fn recv(&mut self, op: &str, from: u32, tensor: Tensor) -> Handle {
        unimplemented!()
    }
    /// The current stream waits for the collective (a stream edge, as with NCCL).
    pub fn wait(&mut self, handle: Handle) {
        unimplemented!()
    }

    // --- streams and events ---
    pub fn on_stream<T>(&mut self, stream: StreamId, body: impl FnOnce(&mut Rank) -> T) -> T {
        unimplemented!()
    }
    pub fn record(&mut self, event: EventId) {
        unimplemented!()
    }
    pub fn wait_event(&mut self, event: EventId) {
        unimplemented!()
    }

    // --- what checkpoints, replicas and reports are told ---
    /// `tensor` is part of the training state; checkpoints hold it under `component`/`name`.
    pub fn persist(&mut self, component: Component, name: &str, tensor: Tensor) {
        unimplemented!()
    }
    /// `tensor` must hold the same bytes on every rank of `group`.
    pub fn replicate(&mut self, group: GroupId, name: &str, tensor: Tensor) {
        unimplemented!()
    }
    /// Declares a scalar that the user sees each step (`lm loss`, `grad norm`): read back at the
    /// end of the step, kept by the world.
    pub fn metric(&mut self, name: &str, tensor: Tensor) {
        unimplemented!()
    }
    /// A step has ended: parks until the device is idle; roots, replica and checkpoint hooks run.
    pub fn end_step(&mut self) -> Result<(), RankError> {
        unimplemented!()
    }
}
