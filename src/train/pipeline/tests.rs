use std::collections::{BTreeMap, VecDeque};

use super::*;
use crate::job::{interleaved, one_f_one_b};

/// (stages, chunks, microbatches, group): 1F1B where there is one chunk.
const SHAPES: [(u32, u32, u32, u32); 16] = [
    (1, 1, 1, 1),
    (1, 1, 4, 1),
    (2, 1, 4, 1),
    (4, 1, 2, 1),
    (4, 1, 9, 1),
    (2, 2, 2, 2),
    (2, 2, 8, 2),
    (2, 3, 12, 4),
    (3, 2, 6, 3),
    (4, 2, 4, 4),
    (4, 3, 16, 8),
    (5, 4, 10, 5),
    // Last groups that are short, and still fill the pipeline.
    (2, 2, 7, 4),
    (2, 3, 5, 3),
    (3, 2, 11, 4),
    (4, 2, 13, 9),
];

fn schedule(stages: u32, stage: u32, chunks: u32, microbatches: u32, group: u32) -> Vec<Slot> {
    match chunks {
        1 => one_f_one_b(stages, stage, microbatches).unwrap(),
        _ => interleaved(stages, stage, chunks, microbatches, group).unwrap(),
    }
}

#[test]
fn every_microbatch_once_in_order_in_each_chunk() {
    for (stages, chunks, microbatches, group) in SHAPES {
        for stage in 0..stages {
            let schedule = schedule(stages, stage, chunks, microbatches, group);
            for (chunk, wanted) in
                (0..chunks).flat_map(|c| [(c, Work::Forward), (c, Work::Backward)])
            {
                let of_chunk = schedule
                    .iter()
                    .filter(|slot| slot.work == wanted && slot.chunk == chunk);
                assert!(of_chunk.map(|slot| slot.microbatch).eq(0..microbatches));
            }
        }
    }
}

#[test]
fn as_many_in_flight_as_1f1b_has() {
    for (stages, _, microbatches, _) in SHAPES.into_iter().filter(|shape| shape.1 == 1) {
        for stage in 0..stages {
            let schedule = schedule(stages, stage, 1, microbatches, 1);
            let expected = (stages - stage).min(microbatches);
            assert_eq!(in_flight(&schedule, 0), expected);
        }
    }
}

/// No microbatch's slot is taken again before its backward.
#[test]
fn slots_are_free_when_they_are_taken() {
    for (stages, chunks, microbatches, group) in SHAPES {
        for stage in 0..stages {
            let schedule = schedule(stages, stage, chunks, microbatches, group);
            let mut held: BTreeMap<(u32, u32), u32> = BTreeMap::new();
            for slot in &schedule {
                let place = slot.microbatch % in_flight(&schedule, slot.chunk);
                let before = match slot.work {
                    Work::Forward => held.insert((slot.chunk, place), slot.microbatch),
                    Work::Backward => held.remove(&(slot.chunk, place)),
                };
                let expected = (slot.work == Work::Backward).then_some(slot.microbatch);
                assert_eq!(
                    before, expected,
                    "{stages} {chunks} {microbatches} {slot:?}"
                );
            }
        }
    }
}

/// The last chunk of the last stage has one microbatch at a time, but for a short last group.
#[test]
fn a_short_last_group_fills_the_head_more_than_once() {
    for (stages, chunks, microbatches, group) in SHAPES {
        let schedule = schedule(stages, stages - 1, chunks, microbatches, group);
        let is_short = chunks > 1 && !microbatches.is_multiple_of(group);
        let most = in_flight(&schedule, chunks - 1);
        assert_eq!(
            most > 1,
            is_short,
            "{stages} {chunks} {microbatches} {group}"
        );
    }
}

#[test]
fn as_megatron_at_two_stages() {
    let steps = |stage| -> Vec<(Work, u32)> {
        let schedule = one_f_one_b(2, stage, 3).unwrap().into_iter();
        schedule.map(|slot| (slot.work, slot.microbatch)).collect()
    };
    let (f, b) = (Work::Forward, Work::Backward);
    assert_eq!(steps(0), [(f, 0), (f, 1), (b, 0), (f, 2), (b, 1), (b, 2)]);
    assert_eq!(steps(1), [(f, 0), (b, 0), (f, 1), (b, 1), (f, 2), (b, 2)]);
}

/// What a rank's host does with messages: sends end when they are received, and a slot's next use
/// waits for its last send. Returns how many slots all ranks have done.
fn simulate(stages: u32, chunks: u32, microbatches: u32, group: u32, lanes: bool) -> usize {
    let schedules: Vec<Vec<Slot>> = (0..stages)
        .map(|stage| schedule(stages, stage, chunks, microbatches, group))
        .collect();
    let total = stages * chunks;
    type Three = (u32, u32, u32);
    // Sent and not yet received, in order, by (from, to, lane): (virtual stage, microbatch, lane).
    let mut wires: BTreeMap<Three, VecDeque<Three>> = BTreeMap::new();
    let mut unreceived: Vec<Three> = Vec::new();
    let mut done = vec![0; stages as usize];
    loop {
        let mut moved = false;
        for stage in 0..stages {
            let Some(slot) = schedules[stage as usize].get(done[stage as usize]) else {
                continue;
            };
            let here = slot.chunk * stages + stage;
            let lane = u32::from(slot.work == Work::Backward);
            let depth = in_flight(&schedules[stage as usize], slot.chunk);
            let reused = slot.microbatch.checked_sub(depth);
            if reused.is_some_and(|before| unreceived.contains(&(here, before, lane))) {
                continue;
            }
            let (from, to) = match slot.work {
                Work::Forward => (here.checked_sub(1), here + 1),
                Work::Backward => (Some(here + 1).filter(|v| *v < total), here.wrapping_sub(1)),
            };
            let wire = |a: u32, b: u32| (a % stages, b % stages, if lanes { lane } else { 0 });
            if let Some(from) = from {
                let queue = wires.entry(wire(from, here)).or_default();
                if queue.front() != Some(&(from, slot.microbatch, lane)) {
                    continue;
                }
                let received = queue.pop_front();
                unreceived.retain(|sent| Some(*sent) != received);
            }
            if to < total {
                let sent = (here, slot.microbatch, lane);
                wires.entry(wire(here, to)).or_default().push_back(sent);
                unreceived.push(sent);
            }
            done[stage as usize] += 1;
            moved = true;
        }
        if !moved {
            return done.into_iter().sum();
        }
    }
}

#[test]
fn schedules_never_deadlock() {
    let slots = |s: u32, c: u32, m: u32| (2 * s * c * m) as usize;
    for (stages, chunks, microbatches, group) in SHAPES {
        let done = simulate(stages, chunks, microbatches, group, true);
        assert_eq!(done, slots(stages, chunks, microbatches));
    }
    for stages in 2..=6 {
        for chunks in 2..=4 {
            for groups in 1..=3 {
                for group in [stages, stages + 1, 2 * stages] {
                    let microbatches = groups * group;
                    let done = simulate(stages, chunks, microbatches, group, true);
                    assert_eq!(done, slots(stages, chunks, microbatches));
                }
            }
        }
    }
}

/// Outputs and gradients on one lane between two stages would be taken for each other.
#[test]
fn two_stages_need_a_lane_for_each_direction() {
    assert!(simulate(2, 2, 8, 4, false) < 2 * 2 * 2 * 8);
}
