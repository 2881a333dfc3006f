//! Pipeline schedules: which microbatch each stage works on, in order.
//!
//! Rules read in megatron-core 0.19.2 (`pipeline_parallel/schedules.py`).

/// Forward or backward.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Work {
    Forward,
    Backward,
}

/// One step of one pipeline stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot {
    pub work: Work,
    pub microbatch: u32,
    /// Model chunk of the interleaved schedule, else 0.
    pub chunk: u32,
    /// The last backward of its chunk: without `grad_sync_func`, gradients are reduced during it.
    pub grad_sync: bool,
}

/// Why a schedule is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ScheduleError {
    #[error("pipeline rank {rank} of {pp}")]
    NoSuchRank { rank: u32, pp: u32 },
    #[error("{what} must be at least 1")]
    Zero { what: &'static str },
    #[error("{microbatches} microbatches x {chunks} chunks are more than {MAX_SLOTS}")]
    TooLong { microbatches: u32, chunks: u32 },
    #[error(
        "microbatch_group_size_per_vp_stage = {group} must be at least pp {pp} and at most the \
         {microbatches} microbatches"
    )]
    GroupSize {
        group: u32,
        pp: u32,
        microbatches: u32,
    },
    #[error("overlapped point-to-point communication needs an interleaved schedule")]
    OverlapWithoutInterleaving,
    #[error("the last group has {last} of {microbatches} microbatches, fewer than pp {pp}")]
    ShortLastGroup {
        last: u32,
        microbatches: u32,
        pp: u32,
    },
}

/// What decides a pipeline's schedule, under Megatron's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PipelineOptions {
    pub pipeline_model_parallel_size: u32,
    /// Model chunks a stage; `None`: not interleaved.
    pub virtual_pipeline_model_parallel_size: Option<u32>,
    pub microbatches: u32,
    /// `None`: the pipeline's size.
    pub microbatch_group_size_per_vp_stage: Option<u32>,
    pub overlap_p2p_comm: bool,
}

/// The schedule of stage `rank` that `get_forward_backward_func` would pick.
pub fn pipeline_schedule(options: &PipelineOptions, rank: u32) -> Result<Vec<Slot>, ScheduleError> {
    let (pp, microbatches) = (options.pipeline_model_parallel_size, options.microbatches);
    match options.virtual_pipeline_model_parallel_size {
        None if options.overlap_p2p_comm => Err(ScheduleError::OverlapWithoutInterleaving),
        None => one_f_one_b(pp, rank, microbatches),
        Some(chunks) => {
            let group = options.microbatch_group_size_per_vp_stage.unwrap_or(pp);
            interleaved(pp, rank, chunks, microbatches, group)
        }
    }
}

/// Forward slots of the longest schedule that is made.
const MAX_SLOTS: u32 = 1 << 24;

fn check(pp: u32, rank: u32, microbatches: u32, chunks: u32) -> Result<(), ScheduleError> {
    let numbers = [
        ("pp", pp),
        ("microbatches", microbatches),
        ("model chunks", chunks),
    ];
    if let Some((what, _)) = numbers.into_iter().find(|(_, number)| *number == 0) {
        return Err(ScheduleError::Zero { what });
    }
    if rank >= pp {
        return Err(ScheduleError::NoSuchRank { rank, pp });
    }
    if microbatches
        .checked_mul(chunks)
        .is_none_or(|slots| slots > MAX_SLOTS)
    {
        return Err(ScheduleError::TooLong {
            microbatches,
            chunks,
        });
    }
    Ok(())
}

/// 1F1B: `pp - rank - 1` forwards to fill the pipeline, then one forward and one backward in turn,
/// then the backwards that are left.
pub fn one_f_one_b(pp: u32, rank: u32, microbatches: u32) -> Result<Vec<Slot>, ScheduleError> {
    check(pp, rank, microbatches, 1)?;
    let table: Vec<(u32, u32)> = (0..microbatches)
        .map(|microbatch| (microbatch, 0))
        .collect();
    Ok(slots(&table, 1, pp - rank - 1))
}

/// Interleaved 1F1B with `chunks` model chunks a stage; `group` is Megatron's
/// `microbatch_group_size_per_vp_stage` (pp by default).
pub fn interleaved(
    pp: u32,
    rank: u32,
    chunks: u32,
    microbatches: u32,
    group: u32,
) -> Result<Vec<Slot>, ScheduleError> {
    check(pp, rank, microbatches, chunks)?;
    if group < pp || group > microbatches {
        return Err(ScheduleError::GroupSize {
            group,
            pp,
            microbatches,
        });
    }
    let last = microbatches % group;
    if last != 0 && last < pp {
        return Err(ScheduleError::ShortLastGroup {
            last,
            microbatches,
            pp,
        });
    }
    let warmup = u64::from(pp - rank - 1) * 2 + u64::from(chunks - 1) * u64::from(group);
    let warmup = warmup.min(u64::from(MAX_SLOTS)) as u32;
    Ok(slots(
        &schedule_table(microbatches, chunks, group),
        chunks,
        warmup,
    ))
}

/// `get_schedule_table`: (microbatch, chunk) of each forward, group by group, in a group chunk by
/// chunk.
pub fn schedule_table(microbatches: u32, chunks: u32, group: u32) -> Vec<(u32, u32)> {
    let starts = (0..microbatches).step_by(group.max(1) as usize);
    let of_group = |start: u32| {
        let end = start.saturating_add(group).min(microbatches);
        (0..chunks).flat_map(move |chunk| (start..end).map(move |microbatch| (microbatch, chunk)))
    };
    starts.flat_map(of_group).collect()
}

/// Backwards follow the forward table with the chunks mirrored.
fn slots(table: &[(u32, u32)], chunks: u32, warmup: u32) -> Vec<Slot> {
    let warmup = table.len().min(warmup as usize);
    let last_microbatch = table.iter().map(|(microbatch, _)| *microbatch).max();
    let forward = |at: usize| {
        let (microbatch, chunk) = table[at];
        Slot {
            work: Work::Forward,
            microbatch,
            chunk,
            grad_sync: false,
        }
    };
    let backward = |at: usize| {
        let (microbatch, chunk) = table[at];
        let grad_sync = Some(microbatch) == last_microbatch;
        Slot {
            work: Work::Backward,
            microbatch,
            chunk: chunks - 1 - chunk,
            grad_sync,
        }
    };
    let mut slots: Vec<Slot> = (0..warmup).map(forward).collect();
    for at in warmup..table.len() {
        slots.push(forward(at));
        slots.push(backward(at - warmup));
    }
    slots.extend((table.len() - warmup..table.len()).map(backward));
    slots
}
