//! What a rank communicates before and after each slot of its schedule, beside what the slot itself
//! sends.
//!
//! Rules read in megatron-core 0.19.2 (`pipeline_parallel/schedules.py`). Forwards and backwards are
//! numbered apart: Megatron's `virtual_microbatch_id`. Rank r of the pipeline does in its forward k
//! what rank 0 does r forwards earlier; that is how stages are aligned.

use crate::job::{Slot, Work};
use crate::train::gradient::shards;
use crate::train::options::TrainOptions;

/// What stands around one slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Around {
    /// The chunk whose parameters are gathered before a forward (`param_sync_func`).
    pub gathers_before: Option<usize>,
    /// What is received next: an output of the stage before, or a gradient of the one behind, for
    /// which chunk.
    pub receives_after: Option<(Work, usize)>,
    /// The chunk whose gradients are reduced after a backward (`grad_sync_func`).
    pub reduces_after: Option<usize>,
}

/// Whether an interleaved pipeline gathers the parameters of whole chunks, stages aligned.
pub fn aligns_gathers(options: &TrainOptions) -> bool {
    let interleaves = options.layout.num_virtual_stages_per_pipeline_rank > 1;
    interleaves && shards(options) && options.overlap_param_gather && options.align_param_gather
}

/// What stands around each slot of the schedule of `stage`.
pub fn of(options: &TrainOptions, stage: u32, schedule: &[Slot]) -> Vec<Around> {
    let layout = &options.layout;
    let chunks = layout.num_virtual_stages_per_pipeline_rank as usize;
    let numbered = Numbered {
        forwards: of_kind(schedule, Work::Forward),
        backwards: of_kind(schedule, Work::Backward),
        stage: stage as usize,
        stages: layout.pipeline_model_parallel_size as usize,
        chunks,
    };
    let gathers = aligns_gathers(options);
    let reduces = chunks > 1 && options.overlap_grad_reduce && options.align_grad_reduce;
    let (mut forward, mut backward) = (0, 0);
    let mut list = Vec::with_capacity(schedule.len());
    for (place, slot) in schedule.iter().enumerate() {
        let number = match slot.work {
            Work::Forward => &mut forward,
            Work::Backward => &mut backward,
        };
        let is_forward = slot.work == Work::Forward;
        list.push(Around {
            gathers_before: numbered
                .gathers_before(*number)
                .filter(|_| gathers && is_forward),
            receives_after: match chunks {
                1 => numbered.batched(schedule.get(place + 1)),
                _ => numbered.aligned(slot.work, *number),
            },
            reduces_after: numbered
                .reduces_after(*number)
                .filter(|_| reduces && !is_forward),
        });
        *number += 1;
    }
    list
}

fn of_kind(schedule: &[Slot], work: Work) -> Vec<Slot> {
    let slots = schedule.iter().filter(|slot| slot.work == work);
    slots.copied().collect()
}

/// The slots of a stage by their numbers.
struct Numbered {
    forwards: Vec<Slot>,
    backwards: Vec<Slot>,
    stage: usize,
    stages: usize,
    chunks: usize,
}

impl Numbered {
    /// 1F1B: a send is batched with the receive that the next slot needs.
    fn batched(&self, next: Option<&Slot>) -> Option<(Work, usize)> {
        let next = next?;
        let neighbour = match next.work {
            Work::Forward => self.stage > 0,
            Work::Backward => self.stage + 1 < self.stages,
        };
        neighbour.then_some((next.work, next.chunk as usize))
    }

    /// Interleaved: what the neighbour sends after its slot at the same time
    /// (`recv_tensor_from_previous_stage`). The leading stage is `stages - 1` slots ahead of the
    /// one that it receives from, whose last chunk sends nothing.
    fn aligned(&self, work: Work, number: usize) -> Option<(Work, usize)> {
        let (slots, leading, last) = match work {
            Work::Forward => (&self.forwards, 0, self.chunks - 1),
            Work::Backward => (&self.backwards, self.stages - 1, 0),
        };
        let chunk = |slot: &Slot| slot.chunk as usize;
        if self.stage != leading {
            return slots.get(number + 1).map(|slot| (work, chunk(slot)));
        }
        let sender = number.checked_sub(self.stages - 1)?;
        let chunk = chunk(&slots[sender]);
        match work {
            _ if chunk == last => None,
            Work::Forward => Some((work, chunk + 1)),
            Work::Backward => Some((work, chunk - 1)),
        }
    }

    /// Before the first microbatch of the chunk before it, on the last stage of those aligned. The
    /// first two chunks are gathered when the step begins.
    fn gathers_before(&self, number: usize) -> Option<usize> {
        let slot = self.forwards.get(number + self.stage)?;
        let chunk = slot.chunk as usize + 1;
        (slot.microbatch == 0 && 1 < chunk && chunk < self.chunks).then_some(chunk)
    }

    /// After the last microbatch of a chunk; on later stages as many slots later as they are behind.
    fn reduces_after(&self, number: usize) -> Option<usize> {
        let slot = &self.backwards[number.checked_sub(self.stage)?];
        slot.grad_sync.then_some(slot.chunk as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::train::options::tests::options;

    fn interleaved(stage: u32) -> Vec<(Slot, Around)> {
        let mut options = options();
        options.layout.num_virtual_stages_per_pipeline_rank = 2;
        options.model.pipeline_model_parallel_size *= 2;
        options.microbatch_group_size_per_virtual_pipeline_stage = 2;
        options.use_distributed_optimizer = true;
        options.overlap_grad_reduce = true;
        options.overlap_param_gather = true;
        options.check().expect("sound options");
        let schedule = options.pipeline_schedule(stage).unwrap();
        let around = of(&options, stage, &schedule);
        schedule.into_iter().zip(around).collect()
    }

    /// Every output and gradient that one stage sends is received by the other, in the order in
    /// which it is sent, before its slot or in it.
    #[test]
    fn messages_are_received_in_the_order_in_which_they_are_sent() {
        for (receiver, work) in [0, 1]
            .into_iter()
            .flat_map(|stage| [(stage, Work::Forward), (stage, Work::Backward)])
        {
            let sender = 1 - receiver;
            let step = |chunk: u32| match work {
                Work::Forward => (sender == 1).then_some(chunk + 1).unwrap_or(chunk),
                Work::Backward => chunk.wrapping_sub(u32::from(sender == 0)),
            };
            let sent = interleaved(sender).into_iter();
            let sent: Vec<usize> = sent
                .filter(|(slot, _)| slot.work == work && step(slot.chunk) < 2)
                .map(|(slot, _)| step(slot.chunk) as usize)
                .collect();
            let mut posted: Vec<usize> = Vec::new();
            let mut waiting = [0i32; 2];
            for (slot, around) in interleaved(receiver) {
                let chunk = slot.chunk as usize;
                let leads = match work {
                    Work::Forward => receiver == 0 && chunk == 0,
                    Work::Backward => receiver == 1 && chunk == 1,
                };
                if slot.work == work && !leads {
                    if waiting[chunk] == 0 {
                        posted.push(chunk);
                        waiting[chunk] += 1;
                    }
                    waiting[chunk] -= 1;
                }
                if let Some((kind, chunk)) = around.receives_after
                    && kind == work
                {
                    posted.push(chunk);
                    waiting[chunk] += 1;
                }
            }
            assert_eq!(posted, sent, "{receiver} {work:?}");
            assert_eq!(waiting, [0, 0]);
        }
    }

    /// Each chunk once, the later stage later by its place.
    #[test]
    fn aligned_reductions_come_at_one_time() {
        for stage in [0, 1] {
            let slots = interleaved(stage);
            let backwards = slots.iter().filter(|(slot, _)| slot.work == Work::Backward);
            let found: Vec<(usize, usize)> = backwards
                .enumerate()
                .filter_map(|(number, (_, around))| Some((number, around.reduces_after?)))
                .collect();
            let last = found.iter().map(|(number, _)| number + 1).max();
            // The first chunk's last backward is the last slot of all: behind the first stage it is
            // left to the end.
            assert_eq!(found.len(), 2 - stage as usize, "{found:?}");
            assert!(last.is_some() && found[0].1 == 1);
        }
    }
}
