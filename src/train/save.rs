//! Asynchronous checkpoints, as Megatron-LM's `--async-save` makes them: the state is copied to
//! staging buffers of the host, and a writer reads those while training goes on.
//!
//! Waits: the copies are over before the next optimizer step changes what they read (edge
//! `checkpoint.stage`), and before the writer reads what they wrote (`checkpoint.staged`); the
//! writer is done before anybody uses its file or overwrites the staging buffers
//! (`checkpoint.writer`; dist_checkpointing/strategies/async_utils.py,
//! `maybe_finalize_async_calls`). How long the writer takes is free: it runs at once, or as late as
//! that last wait lets it.

use std::collections::{BTreeMap, BTreeSet};

use crate::fault::FaultKind;
use crate::numerics::Dtype;
use crate::world::{
    CHECKPOINT_COPY_STREAM, CHECKPOINT_WRITER_STREAM, Component, EventId, GroupId, Handle, Phase,
    Rank, RankError, Tensor,
};

const READY: EventId = EventId(0x4000_0000);
const STAGE: EventId = EventId(0x4000_0001);
const STAGED: EventId = EventId(0x4000_0002);

/// The steps after which a run saves, and when its writers run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Saves {
    pub after: BTreeSet<u32>,
    /// Writers begin as late as the program lets them.
    pub late: bool,
    /// Before each step ranks ask whether the writer is done, and do not wait for it.
    pub polls: bool,
}

/// How ranks find out, without waiting, that every rank's writer is done: each asks for its own,
/// and all go by what all have found (`maybe_finalize_async_save(blocking=False)`, whose ranks sum
/// what these gather).
#[derive(Clone, Copy, Debug)]
struct Poll {
    group: GroupId,
    own: Tensor,
    all: Tensor,
}

impl Poll {
    fn all_done(&self, rank: &mut Rank, written: Handle) -> Result<bool, RankError> {
        rank.set_phase(Phase::Checkpoint);
        rank.set_microbatch(None);
        rank.module("checkpoint", |rank| {
            let done = rank.query("is_done", written)?;
            rank.upload("done", self.own, &[u32::from(done); DONE_WORDS as usize]);
            let handle = rank.all_gather("agree", self.group, self.own, self.all);
            rank.wait(handle);
            let all = rank.read("agreed", self.all)?;
            Ok(all.iter().all(|done| *done == 1))
        })
    }
}

/// Words in which a rank says that its writer is done.
const DONE_WORDS: u32 = 4;

/// A tensor of the state, and its place in the buffers.
#[derive(Clone, Debug)]
struct Item {
    component: Component,
    name: String,
    from: Tensor,
    start: u32,
}

/// A save whose file is not there yet.
#[derive(Clone, Copy, Debug)]
struct Open {
    /// The step that it was asked for after.
    after: u32,
    written: Option<Handle>,
}

/// The saves of one rank.
#[derive(Debug)]
pub struct Saver {
    items: Vec<Item>,
    /// Host memory: what the writer reads, and what it has written.
    staging: Tensor,
    file: Tensor,
    open: Option<Open>,
    /// Where ranks do not wait for a writer before each step.
    poll: Option<Poll>,
    /// The copies of the last save are still to be waited for.
    copies: bool,
    /// Components that the writer reads where they live.
    shared: BTreeSet<Component>,
    /// The last step that has ended.
    done: u32,
}

impl Saver {
    /// `state` are the persisted tensors.
    pub fn allocate(rank: &mut Rank, state: Vec<(Component, String, Tensor)>) -> Saver {
        let mut items = Vec::with_capacity(state.len());
        let mut words = 0;
        for (component, name, from) in state {
            items.push(Item {
                component,
                name,
                from,
                start: words,
            });
            words += from.len;
        }
        let components: BTreeSet<Component> = items.iter().map(|item| item.component).collect();
        let mut shared = components;
        shared.retain(|component| rank.has_fault(FaultKind::SharedStaging, component.name()));
        Saver {
            items,
            staging: rank.alloc_host("checkpoint_staging", Dtype::U32, words),
            file: rank.alloc_host("checkpoint_file", Dtype::U32, words),
            open: None,
            poll: None,
            copies: false,
            shared,
            done: 0,
        }
    }

    /// From now on ranks ask whether the writer is done; `world` is the group of all `ranks`.
    pub fn ask(&mut self, rank: &mut Rank, world: GroupId, ranks: u32) {
        self.poll = Some(Poll {
            group: world,
            own: rank.alloc("checkpoint_done", Dtype::U32, DONE_WORDS),
            all: rank.alloc("checkpoint_all_done", Dtype::U32, ranks * DONE_WORDS),
        });
    }

    /// Before a step: a writer that is done has its file taken over.
    pub fn poll(&mut self, rank: &mut Rank) -> Result<(), RankError> {
        let written = self.open.and_then(|open| open.written);
        let is_done = match (written, &self.poll) {
            (None, _) => false,
            (Some(_), None) => true,
            (Some(written), Some(poll)) => poll.all_done(rank, written)?,
        };
        match is_done {
            true => self.finish(rank),
            false => Ok(()),
        }
    }

    /// The current stream goes on once the copies of the last save are over.
    pub fn finish_copies(&mut self, rank: &mut Rank) {
        if std::mem::take(&mut self.copies) {
            rank.module("checkpoint", |rank| rank.wait_event(STAGE));
        }
    }

    /// A step has ended.
    pub fn after_step(&mut self, step: u32) {
        self.done = step;
    }

    /// Asks for a checkpoint of the state as it is after step `after`.
    pub fn save(&mut self, rank: &mut Rank, after: u32, late: bool) -> Result<(), RankError> {
        self.finish(rank)?;
        rank.set_phase(Phase::Checkpoint);
        rank.set_microbatch(None);
        rank.module("checkpoint", |rank| {
            self.stage(rank);
            let written = (!late).then(|| self.write(rank));
            self.open = Some(Open { after, written });
        });
        self.copies = true;
        Ok(())
    }

    /// Copies the state. Generators move in the next forward: they are copied before it begins, as
    /// `torch.cuda.get_rng_state` does; the rest is copied while it runs.
    fn stage(&self, rank: &mut Rank) {
        let copied = |item: &&Item| !self.shared.contains(&item.component);
        let copied: Vec<&Item> = self.items.iter().filter(copied).collect();
        let (first, later): (Vec<&Item>, Vec<&Item>) = copied
            .into_iter()
            .partition(|item| item.component == Component::Rng);
        let copy = |rank: &mut Rank, item: &Item| {
            rank.copy("stage", item.from, item.place(self.staging));
        };
        first.into_iter().for_each(|item| copy(rank, item));
        rank.edge("checkpoint.ready", |rank| rank.record(READY));
        rank.on_stream(CHECKPOINT_COPY_STREAM, |rank| {
            rank.wait_event(READY);
            later.into_iter().for_each(|item| copy(rank, item));
            rank.edge("checkpoint.stage", |rank| rank.record(STAGE));
            rank.edge("checkpoint.staged", |rank| rank.record(STAGED));
        });
    }

    /// The writer reads what was staged.
    fn write(&self, rank: &mut Rank) -> Handle {
        rank.on_stream(CHECKPOINT_WRITER_STREAM, |rank| {
            rank.wait_event(STAGED);
            for item in &self.items {
                let from = match self.shared.contains(&item.component) {
                    true => item.from,
                    false => item.place(self.staging),
                };
                rank.copy("write", from, item.place(self.file));
            }
            rank.edge("checkpoint.writer", Rank::mark_work)
        })
    }

    /// Waits for the writer, if one is open, and takes its file over.
    pub fn finish(&mut self, rank: &mut Rank) -> Result<(), RankError> {
        let Some(open) = self.open.take() else {
            return Ok(());
        };
        rank.set_phase(Phase::Checkpoint);
        rank.set_microbatch(None);
        rank.module("checkpoint", |rank| {
            let written = match open.written {
                Some(written) => written,
                None => self.write(rank),
            };
            rank.wait_host(written)?;
            let words = rank.host_read("finalize", self.file)?;
            let is_late = rank.has_fault(FaultKind::LateTracker, "iteration");
            let iteration = if is_late { self.done } else { open.after };
            let mut tensors = BTreeMap::new();
            for item in &self.items {
                let place = item.start as usize..(item.start + item.from.len) as usize;
                let key = (item.component, item.name.clone());
                tensors.insert(key, (item.from.dtype, words[place].to_vec()));
            }
            rank.saved(open.after, iteration, tensors);
            Ok(())
        })
    }
}

impl Item {
    fn place(&self, buffer: Tensor) -> Tensor {
        Tensor {
            dtype: self.from.dtype,
            ..buffer.slice(self.start, self.from.len)
        }
    }
}
