//! What a rank's own program sees: a thread that appends commands to its list, as a real training
//! process does, and parks only where a real host would.

mod allocator;
mod communication;
mod handle;
mod host;
mod issue;
mod link;
mod memory;
mod names;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::fault::{Fault, FaultKind};
use crate::numerics::Dtype;
use crate::plan::Init;
use crate::world::command::{Command, Issued, LocalFold, Recall, Ticket};
use crate::world::site::{Family, Name, Phase, Site};

pub use crate::fault::Component;
pub use crate::recipe::LocalOrder;
pub use allocator::Allocation;
use allocator::Allocator;
use handle::segments_problem;
pub use handle::{
    CHECKPOINT_COPY_STREAM, CHECKPOINT_WRITER_STREAM, COMPUTE_STREAM, Communicator, Declaration,
    EventId, GRAD_HOOK_STREAM, GroupId, Handle, Lane, MemoryOptions, OFFLOAD_STREAM, RankError,
    Segments, SlotFold, StreamId, Tensor,
};
pub(crate) use handle::{HOST, recv_stream};
pub(crate) use link::{Link, Park, Parked, Reply};
use names::Names;

/// A virtual rank's view of the world.
pub struct Rank {
    pub id: u32,
    communicators: Arc<[Communicator]>,
    allocator: Allocator,
    memory: MemoryOptions,
    stream: StreamId,
    issued: Vec<(StreamId, Issued)>,
    ordinal: u32,
    /// Tickets so far.
    tickets: u32,
    /// What edges are called: handles hold places in it.
    edges: Vec<Name>,
    edge_numbers: BTreeMap<Name, u32>,
    /// What the edges that `body` of [`Rank::edge`] makes are called.
    edge: Option<Name>,
    events: BTreeMap<EventId, Handle>,
    /// Streams that have got a command.
    streams: BTreeSet<StreamId>,
    /// Queries of this step so far.
    queries: u32,
    faults: Arc<[Fault]>,
    /// What [`Rank::has_fault`] was asked since the rank last parked.
    asked: Vec<(FaultKind, u32, Name)>,
    step: u32,
    microbatch: Option<u32>,
    phase: Phase,
    module: String,
    /// `module` as a name, once a command has borne it.
    module_name: Option<Name>,
    names: Names,
    /// The last command's site: the next one often shares it.
    site: Option<Arc<Site>>,
    declared: Vec<Declaration>,
    notes: Vec<String>,
    failure: Option<String>,
    link: Link,
}

impl Rank {
    pub(crate) fn new(
        id: u32,
        communicators: Arc<[Communicator]>,
        memory: MemoryOptions,
        faults: Arc<[Fault]>,
        link: Link,
    ) -> Self {
        Rank {
            id,
            communicators,
            allocator: Allocator::new(memory.base_words),
            memory,
            stream: COMPUTE_STREAM,
            issued: Vec::new(),
            ordinal: 0,
            tickets: 0,
            edges: Vec::new(),
            edge_numbers: BTreeMap::new(),
            edge: None,
            events: BTreeMap::new(),
            streams: BTreeSet::new(),
            queries: 0,
            faults,
            asked: Vec::new(),
            step: 0,
            microbatch: None,
            phase: Phase::Setup,
            module: String::new(),
            module_name: None,
            names: Names::default(),
            site: None,
            declared: Vec::new(),
            notes: Vec::new(),
            failure: None,
            link,
        }
    }

    /// The step that every following command belongs to.
    pub fn set_step(&mut self, step: u32) {
        self.step = step;
    }

    pub fn set_microbatch(&mut self, microbatch: Option<u32>) {
        self.microbatch = microbatch;
    }

    pub fn set_phase(&mut self, phase: Phase) {
        self.phase = phase;
    }

    /// Runs `body` inside `module`, a part of a dotted path.
    pub fn module<T>(&mut self, module: &str, body: impl FnOnce(&mut Rank) -> T) -> T {
        let outer = self.module.len();
        let outer_name = self.module_name.take();
        if outer > 0 {
            self.module.push('.');
        }
        self.module.push_str(module);
        let result = body(self);
        self.module.truncate(outer);
        self.module_name = outer_name;
        result
    }

    /// Runs `body`, in which the edge that orders a collective or a message after the current
    /// stream is called `NAME.start`, and the wait for it `NAME`. Elsewhere edges are called
    /// `module.op`.
    pub fn edge<T>(&mut self, name: &str, body: impl FnOnce(&mut Rank) -> T) -> T {
        let outer = self.edge.replace(self.names.of(name));
        let result = body(self);
        self.edge = outer;
        result
    }

    /// Whether a fault of `kind` strikes what this rank calls `name` now. Kinds that are not faults
    /// of a command, of a wait or of memory are asked for by the training program, at the place
    /// where each acts; asking makes the place known to `--list-faults`.
    pub fn has_fault(&mut self, kind: FaultKind, name: &str) -> bool {
        let name = self.names.of(name);
        let mut faults = self.faults.iter();
        let struck = faults.any(|fault| fault.strikes(kind, &name, self.id, self.step));
        self.asked.push((kind, self.step, name));
        struck
    }

    /// Something about this run that its report says, and that is no finding.
    pub fn note(&mut self, text: String) {
        self.notes.push(text);
    }

    /// Launches `kernel` over at least `invocations` (rounded up to whole workgroups) on the
    /// current stream. `op` names the node in reports; `params` are the words of its struct.
    pub fn launch(
        &mut self,
        op: &str,
        kernel: &str,
        invocations: [u32; 3],
        operands: &[Tensor],
        params: &[u32],
    ) {
        let (operands, params) = (operands.to_vec(), params.to_vec());
        let kernel = self.names.of(kernel).shared();
        self.issue(
            op,
            Command::Launch {
                kernel,
                invocations,
                operands,
                params,
            },
        );
    }

    /// Host data to device memory.
    pub fn upload(&mut self, op: &str, to: Tensor, words: &[u32]) {
        if to.len as usize != words.len() {
            self.fail(format!(
                "upload `{op}` of {} words into {}",
                words.len(),
                to.len
            ));
            return;
        }
        self.issue(
            op,
            Command::Upload {
                to,
                words: words.into(),
            },
        );
    }

    pub fn upload_f32(&mut self, op: &str, to: Tensor, values: &[f32]) {
        let words: Vec<u32> = values.iter().map(|value| value.to_bits()).collect();
        self.upload(op, to, &words);
    }

    /// Reads device memory: parks until everything before it on the current stream has run.
    pub fn read(&mut self, op: &str, from: Tensor) -> Result<Vec<u32>, RankError> {
        self.issue(op, Command::Read { from });
        match self.park(Park::Read)? {
            Reply::Words(words) => Ok(words),
            Reply::Go | Reply::Stop => Err(RankError::Stopped),
        }
    }

    /// A local fold over slots: `out[e]` is the fold over k of `addends[k * out.len + e]`.
    pub fn fold(&mut self, op: &str, fold: SlotFold) {
        let SlotFold {
            family,
            addends,
            slots,
            out,
            init,
            order,
        } = fold;
        if slots == 0 || u64::from(slots) * u64::from(out.len) != u64::from(addends.len) {
            let (have, want) = (addends.len, out.len);
            self.fail(format!(
                "fold `{op}`: {have} addend words are not {slots} x {want}"
            ));
            return;
        }
        if order == LocalOrder::Timed && init != Init::First {
            self.fail(format!(
                "fold `{op}`: a tuned sum begins with its first addend"
            ));
            return;
        }
        let fold = LocalFold::Slots {
            family,
            addends,
            slots,
            out,
            init,
            order,
        };
        self.issue(op, Command::Fold(fold));
    }

    /// `out[r * width + e]` is +0 and then the sum over the rows i of segment r of
    /// `addends[i * width + e]`, in f32. `width` is a multiple of 4.
    #[allow(clippy::too_many_arguments)] // The shape of a scatter-add; a struct would hide it.
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
        if order == LocalOrder::Timed {
            self.fail(format!("fold `{op}`: sums of rows are not tuned"));
            return;
        }
        if let Some(problem) = segments_problem(addends, width, segments, out) {
            self.fail(format!("fold `{op}`: {problem}"));
            return;
        }
        let segments = segments.clone();
        let fold = LocalFold::Segments {
            family,
            addends,
            width,
            segments,
            out,
            order,
        };
        self.issue(op, Command::Fold(fold));
    }

    /// Runs `body` with `stream` as the current stream.
    pub fn on_stream<T>(&mut self, stream: StreamId, body: impl FnOnce(&mut Rank) -> T) -> T {
        let outer = std::mem::replace(&mut self.stream, stream);
        let result = body(self);
        self.stream = outer;
        result
    }

    /// `tensor` is part of the training state; checkpoints hold it as `component`/`name`.
    pub fn persist(&mut self, component: Component, name: &str, tensor: Tensor) {
        self.declared.push(Declaration::Persisted {
            component,
            name: name.to_string(),
            tensor,
        });
    }

    /// `tensor` must hold the same bytes on every rank of `group`.
    pub fn replicate(&mut self, group: GroupId, name: &str, tensor: Tensor) {
        self.declared.push(Declaration::Replicated {
            group,
            name: name.to_string(),
            tensor,
        });
    }

    /// Keeps the digests of `tensors` as they are at this point of the current stream, under the
    /// microbatch and `unit` and each tensor's name: they will be computed again.
    pub fn remember(&mut self, unit: &str, tensors: &[(&str, Tensor)]) {
        self.recall("remember", unit, tensors, Recall::Remember);
    }

    /// `tensors` must hold what was remembered of them in this microbatch. A difference is a drift
    /// of the run's record.
    pub fn expect(&mut self, unit: &str, tensors: &[(&str, Tensor)]) {
        self.recall("expect", unit, tensors, Recall::Expect);
    }

    fn recall(&mut self, op: &str, unit: &str, tensors: &[(&str, Tensor)], recall: Recall) {
        let names = &mut self.names;
        let named = tensors.iter().map(|(name, tensor)| {
            let name = names.of(&format!("{unit}.{name}")).shared();
            (name, *tensor)
        });
        let tensors = named.collect();
        self.issue(op, Command::Recall { tensors, recall });
    }

    /// A scalar of this step that the user sees (`lm loss`, `grad norm`), read at the step's end:
    /// the tensor must live until then.
    pub fn metric(&mut self, name: &str, tensor: Tensor) {
        self.declared.push(Declaration::Metric {
            name: name.to_string(),
            tensor,
        });
    }

    /// A background writer has written this of the rank: the file of the checkpoint that was asked
    /// for after step `after`, and the iteration that its tracker names.
    pub fn saved(
        &mut self,
        after: u32,
        iteration: u32,
        tensors: BTreeMap<(Component, String), (Dtype, Vec<u32>)>,
    ) {
        self.declared.push(Declaration::Saved {
            after,
            iteration,
            tensors,
        });
    }

    /// Set-up, or a load, is done: parks until the device is idle.
    pub fn end_setup(&mut self) -> Result<(), RankError> {
        self.park(Park::Setup { live: self.live() }).map(|_| ())
    }

    /// A step has ended: the host has read what the compute stream holds, as `loss.item()` does.
    /// Other streams may go on, and handles of this step may be waited for in a later one.
    pub fn end_step(&mut self) -> Result<(), RankError> {
        self.park(Park::Step {
            step: self.step,
            live: self.live(),
        })?;
        // The reads at the step's end have a place in the host's order, too.
        self.ordinal += 1;
        self.queries = 0;
        Ok(())
    }

    fn live(&self) -> Vec<Allocation> {
        self.allocator.live().cloned().collect()
    }

    /// The first misuse is kept; the rank stops when it next parks.
    fn fail(&mut self, message: String) {
        let message = format!("step {}, {}: {message}", self.step, self.module);
        self.failure.get_or_insert(message);
    }

    /// A new ticket; those who wait for it follow `edge`.
    fn ticket(&mut self, edge: Name) -> Ticket {
        self.tickets += 1;
        Ticket {
            number: self.tickets - 1,
            edge,
        }
    }

    fn handle(&mut self, ticket: &Ticket) -> Handle {
        let next = self.edges.len() as u32;
        let edge = match self.edge_numbers.get(&*ticket.edge) {
            Some(edge) => *edge,
            None => {
                self.edges.push(ticket.edge.clone());
                self.edge_numbers.insert(ticket.edge.clone(), next);
                next
            }
        };
        Handle {
            ticket: ticket.number,
            edge,
        }
    }

    fn park(&mut self, park: Park) -> Result<Reply, RankError> {
        // Kept: a program that goes on regardless fails at every park, and at its end.
        if let Some(message) = self.failure.clone() {
            return Err(RankError::Program(message));
        }
        // A step issues as much as the one before.
        let next = Vec::with_capacity(self.issued.len());
        let parked = Parked {
            rank: self.id,
            issued: std::mem::replace(&mut self.issued, next),
            extent_words: self.allocator.extent_words(),
            peak_bytes: self.allocator.peak_bytes(),
            declared: std::mem::take(&mut self.declared),
            notes: std::mem::take(&mut self.notes),
            asked: std::mem::take(&mut self.asked),
            park,
        };
        match self.link.exchange(parked) {
            Some(Reply::Stop) | None => Err(RankError::Stopped),
            Some(reply) => Ok(reply),
        }
    }

    /// Tells the coordinator how the rank's program ended.
    pub(crate) fn finish(mut self, result: Result<(), RankError>) {
        let result = match self.failure.take() {
            Some(message) => Err(RankError::Program(message)),
            None => result,
        };
        self.link.send(Parked {
            rank: self.id,
            issued: std::mem::take(&mut self.issued),
            extent_words: self.allocator.extent_words(),
            peak_bytes: self.allocator.peak_bytes(),
            declared: std::mem::take(&mut self.declared),
            notes: std::mem::take(&mut self.notes),
            asked: std::mem::take(&mut self.asked),
            park: Park::Finished(result),
        });
    }
}
