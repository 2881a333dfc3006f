//! What happens where all ranks stand still: at the end of set-up and of each step.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::engine::{EngineError, Span};
use crate::numerics::Digest;
use crate::world::error::WorldError;
use crate::world::memory::{AccessLog, LiveInTracker};
use crate::world::observer::ShownMetric;
use crate::world::rank::{Allocation, COMPUTE_STREAM, Component, Park, Tensor};
use crate::world::site::{Name, Phase, Site};

use super::coordinator::{Coordinator, at};
use super::{Drift, PlantedFault, State, StateTensor};

impl Coordinator<'_> {
    /// What happens when ranks reach the end of set-up or of a step, before they go on.
    pub fn boundaries(&mut self, ready: &[u32]) -> Result<(), WorldError> {
        let mut ended: Vec<(u32, Option<u32>, Vec<Allocation>)> = Vec::new();
        for rank in ready {
            match &mut self.ranks[*rank as usize].park {
                Some(Park::Setup { live }) => ended.push((*rank, None, std::mem::take(live))),
                Some(Park::Step { step, live }) => {
                    ended.push((*rank, Some(*step), std::mem::take(live)));
                }
                _ => {}
            }
        }
        let mut shown = Vec::new();
        for (rank, step, live) in &ended {
            let memory = &self.ranks[*rank as usize].memory;
            let hold = memory.canaries_hold(self.engine);
            if !hold.map_err(|error| self.at_boundary(*rank, *step, error))? {
                return Err(WorldError::Canary { rank: *rank });
            }
            self.end((*rank, *step), live, &mut shown)
                .map_err(|error| self.at_boundary(*rank, *step, error))?;
        }
        if let Some((_, step, _)) = ended.first() {
            let ranks: Vec<u32> = ended.iter().map(|(rank, ..)| *rank).collect();
            self.observer.on_boundary(*step, &ranks, &shown);
            self.wave = 0;
            let compared = self.compare_replicas(*step);
            compared.map_err(|source| at("all", "replicas", source))?;
        }
        Ok(())
    }

    fn at_boundary(&self, rank: u32, step: Option<u32>, source: EngineError) -> WorldError {
        let site = step.map_or("end of set-up".to_string(), |step| {
            format!("end of step {step}")
        });
        at(&rank.to_string(), &site, source)
    }

    fn end(
        &mut self,
        (rank, step): (u32, Option<u32>),
        live: &[Allocation],
        shown: &mut Vec<ShownMetric>,
    ) -> Result<(), EngineError> {
        if let Some(step) = step {
            self.read_metrics(rank, step, shown)?;
        }
        if let Some(accesses) = &mut self.ranks[rank as usize].accesses {
            match step {
                None => accesses.synchronise(),
                Some(_) => accesses.end_step(),
            }
        }
        match step {
            None => self.end_setup(rank, live),
            Some(step) => self.end_step(rank, step, live),
        }
    }

    fn end_setup(&mut self, rank: u32, live: &[Allocation]) -> Result<(), EngineError> {
        let state = &mut self.ranks[rank as usize];
        for allocation in live {
            let key = (rank, allocation.name.to_string(), allocation.occurrence);
            if self.options.keep_setup {
                let words = self.engine.read(state.memory.allocation(allocation))?;
                self.record.setup.insert(key.clone(), words);
            }
            let end = allocation.offset_words + allocation.words;
            let holds = |tensor: &Tensor| {
                tensor.start < end && allocation.offset_words < tensor.start + tensor.len
            };
            let persisted = state.persisted.iter().filter(|(_, tensor)| holds(tensor));
            let components: BTreeSet<Component> =
                persisted.map(|((component, _), _)| *component).collect();
            if !components.is_empty() {
                self.record.setup_components.insert(key, components);
            }
        }
        state.root = Digest::default();
        if self.options.keep_setup {
            let kept = self.persisted(rank)?;
            self.record.setup_state.extend(kept);
        }
        if self.options.checkpoint_after.contains(&0) {
            let kept = self.persisted(rank)?;
            self.record.checkpoints.entry(0).or_default().extend(kept);
        }
        Ok(())
    }

    /// The persisted tensors of one rank, as they are now.
    fn persisted(&mut self, rank: u32) -> Result<State, EngineError> {
        let state = &self.ranks[rank as usize];
        let engine = &mut *self.engine;
        let tensors = state.persisted.iter().map(|((component, name), tensor)| {
            let tensor = StateTensor {
                dtype: tensor.dtype,
                words: engine.read(state.memory.span(*tensor))?,
            };
            Ok(((rank, *component, name.clone()), tensor))
        });
        tensors.collect()
    }

    fn end_step(&mut self, rank: u32, step: u32, live: &[Allocation]) -> Result<(), EngineError> {
        let state = &mut self.ranks[rank as usize];
        state.steps_ended += 1;
        let unused = std::mem::take(&mut state.remembered);
        if state.steps_ended >= self.options.hazard_steps_max {
            self.stop_following(rank, step);
        }
        self.never_recomputed(rank, step, unused);
        self.plant_state_faults(rank, step)?;
        self.corrupt_memory(rank, step, live)?;
        if self.options.record_buffers {
            self.record_buffers(rank, step, live)?;
        }
        let state = &mut self.ranks[rank as usize];
        self.record
            .roots
            .insert((step, rank), std::mem::take(&mut state.root));
        if self.options.checkpoint_after.contains(&step) {
            let kept = self.persisted(rank)?;
            let checkpoint = self.record.checkpoints.entry(step).or_default();
            checkpoint.extend(kept);
        }
        let state = &mut self.ranks[rank as usize];
        if self.options.cuts.contains(&step) {
            let tracker = LiveInTracker::start(self.engine, &state.memory, live)?;
            state.live_in.push((step, tracker));
        }
        Ok(())
    }

    fn record_buffers(
        &mut self,
        rank: u32,
        step: u32,
        live: &[Allocation],
    ) -> Result<(), EngineError> {
        let memory = &self.ranks[rank as usize].memory;
        let spans: Vec<Span> = live.iter().map(|one| memory.allocation(one)).collect();
        let digests = self.engine.digests(&spans)?;
        for (allocation, digest) in live.iter().zip(digests) {
            let name = allocation.name.to_string();
            let key = (step, rank, name, allocation.occurrence);
            self.record.buffers.insert(key, digest);
        }
        Ok(())
    }

    /// Hazards are no longer looked for, unless the answers to the rank's questions depend on it.
    fn stop_following(&mut self, rank: u32, step: u32) {
        let accesses = &mut self.ranks[rank as usize].accesses;
        let is_needed = accesses.as_ref().is_some_and(AccessLog::has_queried);
        if is_needed {
            return;
        }
        if let Some(accesses) = accesses {
            accesses.judge_joins(Some(step));
        }
        self.mark_accesses(rank);
        let accesses = self.ranks[rank as usize].accesses.take();
        self.ended.extend(accesses.map(|log| (rank, log)));
    }

    /// What nobody has waited for, once the run is over.
    pub fn finish_joins(&mut self) {
        for rank in 0..self.world.ranks {
            if let Some(accesses) = &mut self.ranks[rank as usize].accesses {
                accesses.judge_joins(None);
            }
        }
        self.judge_accesses();
    }

    /// Scalars that the user sees are read when their step ends.
    fn read_metrics(
        &mut self,
        rank: u32,
        step: u32,
        shown: &mut Vec<ShownMetric>,
    ) -> Result<(), EngineError> {
        let metrics = std::mem::take(&mut self.ranks[rank as usize].metrics);
        for (name, tensor) in &metrics {
            let tensor = *tensor;
            let site = || Site {
                step,
                microbatch: None,
                phase: Phase::Checkpoint,
                module: Name::from(""),
                op: Name::from(format!("metric {name}")),
            };
            let state = &mut self.ranks[rank as usize];
            for (_, tracker) in &mut state.live_in {
                tracker.on_read(tensor);
            }
            if let Some(accesses) = &mut state.accesses {
                accesses.read_at_end(Arc::new(site()), COMPUTE_STREAM, tensor);
            }
            let words = self.engine.read(state.memory.span(tensor))?;
            let value = words.first().map_or(0.0, |word| f32::from_bits(*word));
            shown.push(ShownMetric {
                rank,
                name: name.clone(),
                value,
            });
            let key = (step, name.clone());
            self.record.metrics.entry(key).or_insert(value);
        }
        self.mark_accesses(rank);
        Ok(())
    }

    fn plant_state_faults(&mut self, rank: u32, step: u32) -> Result<(), EngineError> {
        for fault in &self.options.faults {
            let PlantedFault::State {
                after_step,
                rank: at,
                component,
                name,
            } = fault
            else {
                continue;
            };
            let state = &self.ranks[rank as usize];
            let tensor = state.persisted.get(&(*component, name.clone()));
            if let (true, Some(tensor)) = (*after_step == step && *at == rank, tensor) {
                let span = state.memory.span(*tensor);
                let mut words = self.engine.read(span)?;
                words[0] ^= 1 << 16;
                self.engine.write(span, &words)?;
                self.record.faults_planted += 1;
            }
        }
        Ok(())
    }

    /// Copies that must agree across ranks (XR).
    fn compare_replicas(&mut self, step: Option<u32>) -> Result<(), EngineError> {
        let span = |rank: u32, tensor: Tensor| self.ranks[rank as usize].memory.span(tensor);
        let copies = self.replicas.values().flatten();
        let spans: Vec<Span> = copies.map(|(rank, tensor)| span(*rank, *tensor)).collect();
        let mut digests = self.engine.digests(&spans)?.into_iter();
        for ((group, name), tensors) in &self.replicas {
            let copies: Vec<(u32, Digest)> = tensors.keys().copied().zip(&mut digests).collect();
            let differing = copies.iter().find(|(_, digest)| *digest != copies[0].1);
            if let Some((other, _)) = differing {
                let (rank, other) = (copies[0].0, *other);
                let drift = Drift {
                    step,
                    group: self.world.communicators[group.0 as usize].name.clone(),
                    name: name.clone(),
                    ranks: (rank, other),
                    microbatch: None,
                };
                let spans = (span(rank, tensors[&rank]), span(other, tensors[&other]));
                self.observer.on_drift(&drift, spans, self.engine)?;
                self.record.drifts.push(drift);
            }
            // One copy agrees with itself: that is no comparison.
            self.record.replicas_compared += u64::from(copies.len() > 1);
        }
        Ok(())
    }

    /// What each cut still needed, once the run is over.
    pub fn finish_live_in(&mut self) {
        for (rank, state) in self.ranks.iter_mut().enumerate() {
            for (cut, tracker) in std::mem::take(&mut state.live_in) {
                let into = self.record.live_in.entry(cut).or_default();
                tracker.finish(rank as u32, into);
            }
        }
    }
}
