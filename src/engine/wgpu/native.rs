//! Races on an adapter: one workgroup a writer, additions by compare-and-exchange. The kernel goes
//! the way of all others to the driver, but no engine's programs contain it.

use super::adapter::{self, Device, WgpuOptions};
use super::heap::{self, WORD};
use super::program::Program;
use super::stream::{self, complaints, read_back};
use crate::engine::{EngineError, EngineIdentity, NativeAtomics, Race};
use crate::kernel::{ATOMIC_ADD, ATOMIC_ADD_OPERANDS, native};

const NAME: &str = "native/atomic_add";

/// Rounds of looks at the turn before a writer gives up: some milliseconds. It waits for one that
/// runs, but a busy machine may have stopped that one's thread. llvmpipe ends the loops of an
/// invocation after 65,535 rounds together (`LP_MAX_TGSI_LOOP_ITERATIONS` in Mesa's
/// `src/gallium/auxiliary/gallivm/lp_bld_limits.h`): these leave enough for the additions.
const ROUNDS: u32 = 1 << 15;
/// Attempts to exchange. Of writers that meet, one succeeds each time.
const ATTEMPTS: u32 = 1 << 20;

/// Repeats that are run together, and words of its accumulators or permutations.
const REPEATS_MAX: usize = 16;
const WORDS_MAX: usize = 1 << 22;

/// The kernel's fault where a turn has not come.
const LATE: u32 = 1;

/// The first repeat of a dispatch, its repeats, and the writers of each.
type Grid = [u32; 3];

/// One device of an adapter, with the kernel on it.
pub struct NativeAdapter {
    device: Device,
    identity: EngineIdentity,
    program: Program,
    repeats_apart: u64,
}

impl NativeAdapter {
    /// # Errors
    /// No such adapter, or one that cannot run the kernel.
    pub fn open(options: &WgpuOptions) -> Result<NativeAdapter, EngineError> {
        NativeAdapter::with_kernel(options, ATOMIC_ADD)
    }

    /// With another text in the kernel's place, for tests that tamper with it.
    pub(crate) fn with_kernel(
        options: &WgpuOptions,
        text: &str,
    ) -> Result<NativeAdapter, EngineError> {
        let (mut devices, identity) = adapter::open(&WgpuOptions {
            devices: adapter::Devices::Fixed(1),
            ..options.clone()
        })?;
        let device = devices.pop().expect("one was asked for");
        let lowered = native(text).map_err(|reason| EngineError::Unsupported {
            kernel: NAME.to_owned(),
            reason,
        })?;
        let program = Program::build(&device, NAME, ATOMIC_ADD_OPERANDS, lowered)?;
        Ok(NativeAdapter {
            device,
            identity,
            program,
            repeats_apart: 0,
        })
    }

    /// All accumulators of some repeats, one repeat after the other.
    fn results(&mut self, race: &Race<'_>, repeats: &[Vec<u32>]) -> Result<Vec<u32>, EngineError> {
        let (count, writers) = (repeats.len() as u32, race.writers());
        // Writers of one repeat meet only if they run at once, and a driver may give all repeats of
        // a writer to one thread: free repeats are a dispatch each.
        let grids = match race.is_ticketed {
            true => vec![[0, count, writers]],
            false => (0..count).map(|first| [first, 1, writers]).collect(),
        };
        let (mut words, mut fault) = self.dispatched(race, repeats, &grids)?;
        if fault == LATE {
            // A writer whose thread was stopped kept others waiting too long. In a dispatch of its
            // own each finds that its turn has come.
            self.repeats_apart += u64::from(count);
            let apart = vec![[0, count, 1]; writers as usize];
            (words, fault) = self.dispatched(race, repeats, &apart)?;
        }
        match fault {
            0 => Ok(words),
            fault => Err(gave_up(fault)),
        }
    }

    /// The accumulators after the given dispatches, one after the other, and the kernel's fault.
    fn dispatched(
        &self,
        race: &Race<'_>,
        repeats: &[Vec<u32>],
        grids: &[Grid],
    ) -> Result<(Vec<u32>, u32), EngineError> {
        let permutations: Vec<u32> = repeats.iter().flatten().copied().collect();
        let held = race.start.repeat(repeats.len());
        let state = vec![0; 1 + 2 * repeats.len()];
        let params = [
            race.writers(),
            race.width,
            race.start.len() as u32,
            u32::from(race.is_ticketed),
            ROUNDS,
            ATTEMPTS,
        ];
        let operands = [
            race.addends,
            race.targets,
            &permutations,
            &held,
            &state,
            &params,
        ];
        let buffers = operands.iter().map(|words| self.filled(words));
        let buffers = buffers.collect::<Result<Vec<_>, EngineError>>()?;
        let out = stream::readback(&self.device, held.len() as u64 + 1);
        let mut encoder = self
            .device
            .device
            .create_command_encoder(&Default::default());
        {
            let mut pass = encoder.begin_compute_pass(&Default::default());
            pass.set_pipeline(&self.program.pipeline);
            pass.set_bind_group(0, &self.group(&buffers), &[]);
            for [first, repeats, writers] in grids {
                pass.set_immediates(0, bytemuck::cast_slice(&[*first]));
                pass.dispatch_workgroups(*repeats, *writers, 1);
            }
        }
        let bytes = held.len() as u64 * WORD;
        encoder.copy_buffer_to_buffer(&buffers[3], 0, &out, 0, bytes);
        encoder.copy_buffer_to_buffer(&buffers[4], 0, &out, bytes, WORD);
        self.device.queue.submit([encoder.finish()]);
        let mut words = read_back(&self.device, &out, held.len() as u64 + 1)?;
        complaints(&self.device)?;
        let fault = words.pop().expect("the fault was read");
        Ok((words, fault))
    }

    fn filled(&self, words: &[u32]) -> Result<wgpu::Buffer, EngineError> {
        let buffer = heap::buffer(&self.device, words.len().max(1) as u64, false)?;
        let bytes = bytemuck::cast_slice(words);
        self.device.queue.write_buffer(&buffer, 0, bytes);
        Ok(buffer)
    }

    fn group(&self, buffers: &[wgpu::Buffer]) -> wgpu::BindGroup {
        let entries: Vec<wgpu::BindGroupEntry<'_>> = (0..)
            .zip(buffers)
            .map(|(binding, buffer)| wgpu::BindGroupEntry {
                binding,
                resource: buffer.as_entire_binding(),
            })
            .collect();
        self.device
            .device
            .create_bind_group(&wgpu::BindGroupDescriptor {
                label: Some(NAME),
                layout: &self.program.layout,
                entries: &entries,
            })
    }

    fn refuse_too_large(&self, race: &Race<'_>) -> Result<(), EngineError> {
        let limits = &self.device.limits;
        let groups = limits.max_compute_workgroups_per_dimension;
        let bound = limits.max_storage_buffer_binding_size / WORD;
        let longest = race.addends.len().max(race.start.len()) as u64;
        let reason = if race.writers() > groups {
            format!(
                "{} workgroups, the adapter runs {groups} at most",
                race.writers()
            )
        } else if longest > bound {
            format!("{longest} words, the adapter binds {bound} at most")
        } else {
            return Ok(());
        };
        Err(EngineError::Limits {
            kernel: NAME.to_owned(),
            reason,
        })
    }
}

/// What the kernel's fault means.
fn gave_up(fault: u32) -> EngineError {
    let what = match fault {
        LATE => "a writer's turn has not come",
        2 => "an addition has not succeeded",
        _ => "the driver has ended a loop before its time",
    };
    let reason = format!("in {NAME} {what}");
    EngineError::Device { reason }
}

impl NativeAtomics for NativeAdapter {
    fn identity(&self) -> EngineIdentity {
        self.identity.clone()
    }

    fn repeats_apart(&self) -> u64 {
        self.repeats_apart
    }

    fn race(&mut self, race: &Race<'_>) -> Result<Vec<Vec<u32>>, EngineError> {
        race.assert_sound();
        self.refuse_too_large(race)?;
        if race.start.is_empty() {
            return Ok(vec![Vec::new(); race.permutations.len()]);
        }
        let longest = race.start.len().max(race.targets.len());
        let batch = (WORDS_MAX / longest).clamp(1, REPEATS_MAX);
        let mut results = Vec::with_capacity(race.permutations.len());
        for repeats in race.permutations.chunks(batch) {
            let words = self.results(race, repeats)?;
            results.extend(words.chunks(race.start.len()).map(<[u32]>::to_vec));
        }
        Ok(results)
    }
}
