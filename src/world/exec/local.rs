//! Commands of one rank alone: at most one a rank and wave, from its lowest ready stream.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::engine::{CopyWords, EngineError, Launch};
use crate::plan::{Arithmetic, Init, Plan, local};
use crate::world::command::{Command, Issued, LocalFold};
use crate::world::error::WorldError;
use crate::world::fold::{FoldJob, FoldNode, FoldOrder, SegmentsJob, SlotsJob};
use crate::world::observer::{CopyNode, LaunchNode, UploadNode, Way};
use crate::world::order::{Choice, Owner};
use crate::world::rank::{LocalOrder, StreamId, Tensor};
use crate::world::site::Site;

use super::PlantedFault;
use super::coordinator::{Coordinator, Launched, ProgramError, Written, at};
use super::measure::{Marked, overlap};

impl Coordinator<'_> {
    /// Executes the ready local head of every rank that stirred; false when there was none.
    pub fn run_local(
        &mut self,
        stirred: &[u32],
        written: &mut Vec<Written>,
    ) -> Result<bool, WorldError> {
        let mut launches = Vec::new();
        let mut marked = Vec::new();
        let mut folds = Vec::new();
        let mut any = false;
        for rank in stirred.iter().copied() {
            let Some(issued) = self.take_local_head(rank) else {
                continue;
            };
            any = true;
            match &issued.command {
                Command::Launch { .. } => {
                    let launch = self.prepare_launch(rank, &issued, written, &mut marked)?;
                    launches.push((rank, issued.site, launch));
                }
                Command::Fold(fold) => folds.push(self.local_fold(rank, &issued, fold)),
                Command::Recall { tensors, recall } => {
                    self.recall(rank, &issued.site, tensors, *recall)?;
                }
                _ => self.run_simple(rank, &issued, written)?,
            }
        }
        self.run_launches(launches)?;
        self.unmark(marked)?;
        self.run_folds(folds, written)?;
        Ok(any)
    }

    fn take_local_head(&mut self, rank: u32) -> Option<Issued> {
        let state = &mut self.ranks[rank as usize];
        let is_ready =
            |issued: &&Issued| !state.hold.holds(issued.ordinal) && runs_alone(&issued.command);
        let heads = state.streams.iter();
        let mut ready = heads.filter(|(_, queue)| queue.front().filter(is_ready).is_some());
        let stream = match self.options.shuffle {
            None => *ready.next()?.0,
            Some(_) => {
                let ready: Vec<StreamId> = ready.map(|(stream, _)| *stream).collect();
                let picked = *ready.get(self.shuffle.pick(ready.len()))?;
                self.heads.stir(rank);
                if self.shuffle.delays() {
                    return None;
                }
                picked
            }
        };
        self.heads.stir(rank);
        state.take_head(rank, stream, &mut self.heads)
    }

    fn prepare_launch(
        &mut self,
        rank: u32,
        issued: &Issued,
        written: &mut Vec<Written>,
        marked: &mut Vec<Marked>,
    ) -> Result<Launch, WorldError> {
        let Command::Launch {
            kernel,
            invocations,
            operands,
            params,
        } = &issued.command
        else {
            unreachable!("only launches come here");
        };
        let (program, linked) = self.program(kernel).map_err(|error| match error {
            ProgramError::NoKernel(message) => bad(rank, issued, message),
            ProgramError::Refused(source) => {
                at(&rank.to_string(), &issued.site.to_string(), source)
            }
        })?;
        if linked.operands.len() != operands.len() {
            let (have, want) = (operands.len(), linked.operands.len());
            let message = format!("kernel {kernel} takes {want} operands, {have} were given");
            return Err(bad(rank, issued, message));
        }
        for (operand, tensor) in linked.operands.iter().zip(operands) {
            if operand.reads {
                self.on_read(rank, *tensor);
            }
        }
        let measures = self.measures(rank);
        for (place, (operand, tensor)) in linked.operands.iter().zip(operands).enumerate() {
            if !operand.writes {
                continue;
            }
            written.push(self.written(rank, issued, *tensor));
            let others = operands
                .iter()
                .enumerate()
                .filter(|(other, _)| *other != place);
            let alone = others.into_iter().all(|(_, other)| !overlap(tensor, other));
            if measures && alone && !operand.reads {
                marked.push(self.mark(rank, &issued.site, *tensor)?);
            } else {
                self.on_write(rank, *tensor);
            }
        }
        let memory = &self.ranks[rank as usize].memory;
        let workgroup = linked.workgroup;
        let launch = Launch {
            program,
            grid: std::array::from_fn(|axis| invocations[axis].div_ceil(workgroup[axis])),
            operands: operands.iter().map(|tensor| memory.span(*tensor)).collect(),
            params: params.clone(),
        };
        let node = LaunchNode {
            rank,
            site: &issued.site,
            stream: issued.stream,
            kernel: linked,
            operands: &launch.operands,
            tensors: operands,
            params: &launch.params,
        };
        let observed = self.observer.on_launch(&node, self.engine);
        observed.map_err(|source| at(&rank.to_string(), &issued.site.to_string(), source))?;
        Ok(launch)
    }

    pub(super) fn written(&self, rank: u32, issued: &Issued, tensor: Tensor) -> Written {
        let span = self.ranks[rank as usize].memory.span(tensor);
        Written {
            rank,
            site: issued.site.clone(),
            fold: None,
            dtype: tensor.dtype,
            span,
        }
    }

    fn run_launches(&mut self, prepared: Vec<(u32, Arc<Site>, Launch)>) -> Result<(), WorldError> {
        let batch = match self.options.batch_launches_max {
            0 => prepared.len().max(1),
            max => max,
        };
        let (names, launches): (Vec<_>, Vec<_>) = prepared
            .into_iter()
            .map(|(rank, site, launch)| ((rank, site), launch))
            .unzip();
        for (names, launches) in names.chunks(batch).zip(launches.chunks(batch)) {
            let names = Launched::ByRanks(names.to_vec());
            self.launched.insert(self.engine.runs(), names);
            let ran = self.engine.run(launches);
            ran.map_err(|source| at("?", "a wave of launches", source))?;
        }
        Ok(())
    }

    fn run_simple(
        &mut self,
        rank: u32,
        issued: &Issued,
        written: &mut Vec<Written>,
    ) -> Result<(), WorldError> {
        let memory = &self.ranks[rank as usize].memory;
        let (result, target) = match &issued.command {
            Command::Copy { from, to } => {
                let copy = CopyWords {
                    from: memory.span(*from),
                    to: memory.span(*to),
                };
                let node = CopyNode {
                    site: &issued.site,
                    stream: issued.stream,
                    from: rank,
                    to: rank,
                    copy,
                    dtype: to.dtype,
                    way: Way::Local,
                };
                let seen = self.observer.on_copies(&[node], self.engine);
                let result = seen.and_then(|()| self.engine.copy(&[copy]));
                self.on_read(rank, *from);
                (result, Some(*to))
            }
            Command::Upload { to, words } => (self.upload(rank, issued, *to, words), Some(*to)),
            Command::Read { from } => {
                let words = self.engine.read(memory.span(*from));
                let result = words.map(|words| self.ranks[rank as usize].read_words = Some(words));
                self.on_read(rank, *from);
                (result, None)
            }
            other => unreachable!("{other:?} is not a local command"),
        };
        result.map_err(|source| at(&rank.to_string(), &issued.site.to_string(), source))?;
        if let Some(tensor) = target {
            self.on_write(rank, tensor);
            written.push(self.written(rank, issued, tensor));
        }
        Ok(())
    }

    /// Writes words from the host.
    pub(super) fn upload(
        &mut self,
        rank: u32,
        issued: &Issued,
        to: Tensor,
        words: &[u32],
    ) -> Result<(), EngineError> {
        let span = self.ranks[rank as usize].memory.span(to);
        let node = UploadNode {
            rank,
            site: &issued.site,
            stream: issued.stream,
            span,
            dtype: to.dtype,
            words,
        };
        self.observer.on_upload(&node, self.engine)?;
        self.engine.write(span, words)
    }

    fn local_fold(&mut self, rank: u32, issued: &Issued, fold: &LocalFold) -> FoldNode {
        let id = self.next_fold(Owner::Rank(rank), issued.site.step);
        let (family, order) = match fold {
            LocalFold::Slots { family, order, .. } | LocalFold::Segments { family, order, .. } => {
                (*family, *order)
            }
        };
        self.note_fold_accesses(rank, fold);
        let memory = &self.ranks[rank as usize].memory;
        let job = match fold {
            LocalFold::Slots {
                addends,
                slots,
                out,
                init,
                ..
            } => {
                let part = |slot: u32| memory.span(addends.slice(slot * out.len, out.len));
                let span = memory.span(*out);
                FoldJob::Slots(SlotsJob {
                    addends: (0..*slots).map(part).collect(),
                    accumulator: (*init == Init::Accumulator).then_some(span),
                    plan: slots_plan(&mut self.slot_plans, *addends, *slots, *out, *init),
                    outs: vec![(0..u64::from(out.len), span)],
                })
            }
            LocalFold::Segments {
                addends,
                width,
                segments,
                out,
                ..
            } => FoldJob::Segments(SegmentsJob {
                rows: memory.span(*addends),
                width: *width,
                segments: segments.clone(),
                out: memory.span(*out),
                out_dtype: out.dtype,
            }),
        };
        let choice = match (order, &job) {
            (LocalOrder::Ordered, _) => Choice::Pinned,
            (LocalOrder::Arrival, _) => Choice::Arrival,
            (LocalOrder::Timed, FoldJob::Slots(job)) => tuned(&mut self.tuned_plans, &job.plan),
            (LocalOrder::Timed, FoldJob::Segments(_)) => unreachable!("the rank refuses it"),
        };
        let (wave, site) = (self.wave, issued.site.clone());
        FoldNode {
            id,
            wave,
            site,
            stream: issued.stream,
            family,
            group: None,
            ranks: Arc::new([rank]),
            choice,
            shape: None,
            job,
        }
    }

    fn note_fold_accesses(&mut self, rank: u32, fold: &LocalFold) {
        match fold {
            LocalFold::Slots {
                addends, out, init, ..
            } => {
                self.on_read(rank, *addends);
                if *init == Init::Accumulator {
                    self.on_read(rank, *out);
                }
                self.on_write(rank, *out);
            }
            LocalFold::Segments { addends, out, .. } => {
                self.on_read(rank, *addends);
                self.on_write(rank, *out);
            }
        }
    }

    /// Shows the folds to the observer, then executes them in the schedule's order.
    pub fn run_folds(
        &mut self,
        mut folds: Vec<FoldNode>,
        written: &mut Vec<Written>,
    ) -> Result<(), WorldError> {
        if folds.is_empty() {
            return Ok(());
        }
        self.record.folds += folds.len() as u64;
        let mut faults = Vec::new();
        let mut ordered = Vec::new();
        for mut node in folds.drain(..) {
            if self.options.arrival_at.contains(&node.id) {
                node.choice = Choice::Arrival;
            }
            let mut lab = crate::world::fold::FoldLab {
                engine: self.engine,
                programs: self.fold_programs.clone(),
            };
            let seen = self.observer.on_fold(&node, &mut lab);
            seen.map_err(|source| fold_failure(&node, source))?;
            let mut order = self.scheduled_order(&node)?;
            for fault in &self.options.faults {
                if let PlantedFault::Fold { at, fault } = fault
                    && *at == node.id
                    && fault.applies(&node)
                {
                    self.record.faults_planted += 1;
                    fault.before(&mut node, &mut order);
                    faults.push((ordered.len(), fault));
                }
            }
            ordered.push((node, order));
        }
        let nodes: Vec<(&FoldNode, FoldOrder)> = ordered
            .iter()
            .map(|(node, order)| (node, order.clone()))
            .collect();
        let first = self.engine.runs();
        let executed = self.lab().execute(&nodes);
        for run in first..self.engine.runs() {
            let (ranks, site) = (few_ranks(nodes[0].0), nodes[0].0.site.clone());
            self.launched.insert(run, Launched::Folds { ranks, site });
        }
        executed.map_err(|source| fold_failure(&ordered[0].0, source))?;
        for (index, fault) in faults {
            let node = &ordered[index].0;
            let planted = fault.after(node, self.engine);
            planted.map_err(|source| fold_failure(node, source))?;
        }
        for (node, _) in &ordered {
            deliver(node, written);
        }
        Ok(())
    }

    fn scheduled_order(&mut self, node: &FoldNode) -> Result<FoldOrder, WorldError> {
        let schedule = &self.options.schedule;
        let refused = |reason: String| WorldError::BadSchedule {
            site: node.site.to_string(),
            reason,
        };
        if let Some(permutation) = schedule.arrivals.get(&node.id) {
            self.record.arrivals_met += 1;
            let addends = node.permuted();
            return match is_permutation(permutation, addends) {
                true => Ok(FoldOrder::Permutation(permutation.clone())),
                false => Err(refused(format!("no order of {addends} addends"))),
            };
        }
        Ok(match (&node.choice, &node.job) {
            (Choice::Placement(plans), _) => {
                let value = schedule.placement_of(node.id);
                let plan = plans.get(value as usize);
                let count = plans.len();
                let missing = || refused(format!("placement {value} of {count}"));
                FoldOrder::Plan(plan.ok_or_else(missing)?.clone())
            }
            (Choice::Configuration(plans), _) => {
                let value = schedule.configuration_of(node.id, &node.tune_key());
                let plan = plans.get(value as usize);
                let count = plans.len();
                let missing = || refused(format!("configuration {value} of {count}"));
                FoldOrder::Plan(plan.ok_or_else(missing)?.clone())
            }
            (_, FoldJob::Slots(job)) => FoldOrder::Plan(job.plan.clone()),
            (_, FoldJob::Segments(_)) => FoldOrder::Permutation((0..node.permuted()).collect()),
        })
    }
}

/// Whether a command concerns its rank alone, and costs a wave.
fn runs_alone(command: &Command) -> bool {
    matches!(
        command,
        Command::Launch { .. }
            | Command::Fold(_)
            | Command::Copy { .. }
            | Command::Upload { .. }
            | Command::Read { .. }
            | Command::Recall { .. }
    )
}

/// Whether `order` names each of `0..count` once.
fn is_permutation(order: &[u32], count: u32) -> bool {
    let mut seen = vec![false; count as usize];
    order.len() == seen.len()
        && order.iter().all(|place| {
            let seen = seen.get_mut(*place as usize);
            seen.is_some_and(|seen| !std::mem::replace(seen, true))
        })
}

/// The outputs of a fold, each with the rank that it lies on.
fn deliver(node: &FoldNode, written: &mut Vec<Written>) {
    let (dtype, spans): (_, Vec<crate::engine::Span>) = match &node.job {
        FoldJob::Slots(job) => {
            let outs = job.outs.iter().map(|(_, span)| *span);
            (job.plan.arithmetic.out, outs.collect())
        }
        FoldJob::Segments(job) => (job.out_dtype, vec![job.out]),
    };
    for (place, span) in spans.into_iter().enumerate() {
        let rank = node.ranks[place.min(node.ranks.len() - 1)];
        written.push(Written {
            rank,
            site: node.site.clone(),
            fold: Some(node.id),
            dtype,
            span,
        });
    }
}

/// Plans of slot folds by their slots, elements and arithmetic.
pub(super) type SlotPlans = BTreeMap<(u32, u64, Arithmetic), Arc<Plan>>;

/// Slots in ascending order. Equal folds share one plan, and so its tables.
fn slots_plan(
    known: &mut SlotPlans,
    addends: Tensor,
    slots: u32,
    out: Tensor,
    init: Init,
) -> Arc<Plan> {
    let arithmetic = Arithmetic {
        init,
        ..Arithmetic::sum(addends.dtype, crate::numerics::Dtype::F32, out.dtype)
    };
    let elements = u64::from(out.len);
    let plan = known.entry((slots, elements, arithmetic));
    plan.or_insert_with(|| Arc::new(local::ascending(slots, elements, arithmetic)))
        .clone()
}

/// Plans of tuned folds, one for each configuration.
pub(super) type TunedPlans = BTreeMap<(u32, u64, Arithmetic), Arc<[Arc<Plan>]>>;

/// The configurations of a tuned fold whose first one is `plan`: none, where there is no other.
fn tuned(known: &mut TunedPlans, plan: &Arc<Plan>) -> Choice {
    let (addends, elements, arithmetic) = (plan.addend_count, plan.element_count, plan.arithmetic);
    let blocks = local::block_sizes(addends);
    if blocks.len() == 1 {
        return Choice::Pinned;
    }
    let of = |block: &u32| Arc::new(local::in_blocks(addends, *block, elements, arithmetic));
    let plans = known.entry((addends, elements, arithmetic));
    let plans = plans.or_insert_with(|| blocks.iter().map(of).collect());
    Choice::Configuration(plans.clone())
}

fn bad(rank: u32, issued: &Issued, message: String) -> WorldError {
    WorldError::BadCommand {
        rank,
        site: issued.site.to_string(),
        message,
    }
}

fn fold_failure(node: &FoldNode, source: crate::engine::EngineError) -> WorldError {
    at(&few_ranks(node), &node.site.to_string(), source)
}

fn few_ranks(node: &FoldNode) -> String {
    let ranks: Vec<String> = node.ranks.iter().take(8).map(u32::to_string).collect();
    ranks.join(",")
}
