//! What the driver of an adapter takes beside the arenas, measured with lavapipe of Mesa 22.3.6
//! (LLVM 15). A graphics card's driver is counted alike: nothing is known of it beforehand.

use super::limits::{Bound, Limits};
use crate::engine::{EngineChoice, POOL_VARIABLE, devices_at_most, driver_is_threadless};
use crate::prove::CheckOptions;
use crate::prove::oracle::r2r;

const MIB: u64 = 1 << 20;
/// Memory of the libraries, and of a device with its compiled kernels.
const LIBRARY_BYTES: u64 = 64 * MIB;
const DEVICE_BYTES: u64 = 64 * MIB;
/// Addresses of the libraries and what they write.
const LIBRARY_ADDRESSES: u64 = 176 * MIB;
const LIBRARY_DATA: u64 = 64 * MIB;
/// Addresses of a device, all of which can be written, beside its threads' stacks.
const DEVICE_ADDRESSES: u64 = 120 * MIB;
/// Stack of a thread that asks for no size where the limit of stacks is none (glibc,
/// `ARCH_STACK_DEFAULT_SIZE`).
const STACK_UNLIMITED: u64 = 2 * MIB;
/// The most threads of its own that lavapipe has in a pool (`LP_MAX_THREADS` in Mesa's
/// `src/gallium/drivers/llvmpipe/lp_limits.h`), and its pools: for pictures, and for kernels.
const POOL_MAX: u64 = 32;
const POOLS: u64 = 2;

/// Devices that are open at once, and threads of their driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Driver {
    pub devices: u64,
    pub threads: u64,
}

impl Driver {
    /// `None` where the check opens no adapter.
    pub fn of(options: &CheckOptions, ranks: u32) -> Option<Driver> {
        let cores = || std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
        let asked = std::env::var(POOL_VARIABLE).ok();
        let asked = asked.and_then(|count| count.parse().ok());
        let pool = asked.unwrap_or_else(cores);
        Driver::with(options, ranks, driver_is_threadless(), pool)
    }

    /// `pool` is what the driver takes for the number of its threads.
    fn with(options: &CheckOptions, ranks: u32, threadless: bool, pool: u64) -> Option<Driver> {
        let opened = |workers: usize| match threadless {
            true => devices_at_most(workers, ranks as usize) as u64,
            false => 1,
        };
        // The engine of the second run is opened while the first one's is.
        let engine = match &options.engine {
            EngineChoice::Cpu => 0,
            EngineChoice::Wgpu { .. } => {
                opened(options.workers) + opened(r2r::other(options.workers))
            }
        };
        let devices = engine + u64::from(options.native_races.is_some());
        (devices > 0).then_some(Driver {
            devices,
            // A queue's for each, and one that keeps compiled shaders.
            threads: devices.saturating_mul(1 + POOLS * pool.min(POOL_MAX)) + 1,
        })
    }

    pub fn memory(&self) -> u64 {
        LIBRARY_BYTES + self.devices.saturating_mul(DEVICE_BYTES)
    }

    /// What of it a limit counts.
    pub fn counted(&self, bound: Bound, limits: &Limits) -> u64 {
        let library = match bound {
            Bound::Addresses => LIBRARY_ADDRESSES,
            Bound::Data => LIBRARY_DATA,
        };
        let stack = limits.stack.unwrap_or(STACK_UNLIMITED);
        let stacks = self.threads.saturating_mul(stack);
        let devices = self.devices.saturating_mul(DEVICE_ADDRESSES);
        library.saturating_add(stacks).saturating_add(devices)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_counted_by_workers_and_ranks() {
        let wgpu = |workers, native_races| CheckOptions {
            workers,
            engine: EngineChoice::Wgpu { adapter: None },
            native_races,
        };
        let devices = |options: &CheckOptions, ranks| {
            let driver = Driver::with(options, ranks, true, 0);
            driver.map_or(0, |driver| driver.devices)
        };
        // The second run has one worker, or two where the first has one.
        assert_eq!(
            devices(&wgpu(64, None), 1),
            1 + 1,
            "one rank needs no 64 devices"
        );
        assert_eq!(devices(&wgpu(64, None), 16), 16 + 1);
        assert_eq!(devices(&wgpu(2, None), 16), 2 + 1);
        assert_eq!(devices(&wgpu(1, None), 16), 1 + 2);
        assert_eq!(devices(&wgpu(8, Some(4)), 3), 3 + 1 + 1);
        let cpu = CheckOptions::default();
        assert_eq!(Driver::with(&cpu, 16, true, 0), None);
        let races = CheckOptions {
            native_races: Some(1),
            ..cpu
        };
        assert_eq!(devices(&races, 16), 1);
        // Where the driver has threads of its own, one device has them all.
        let pooled = Driver::with(&wgpu(64, None), 64, false, 64).expect("devices");
        assert_eq!((pooled.devices, pooled.threads), (2, 2 * (1 + 2 * 32) + 1));
    }

    #[test]
    fn each_device_and_each_stack_counts() {
        let driver = |devices| Driver {
            devices,
            threads: devices + 1,
        };
        assert_eq!(driver(9).memory() - driver(8).memory(), DEVICE_BYTES);
        let limits = |stack| Limits {
            stack,
            ..Limits::default()
        };
        for (stack, bytes) in [(None, 2 * MIB), (Some(8 * MIB), 8 * MIB)] {
            let limits = limits(stack);
            let more = DEVICE_ADDRESSES + bytes;
            let [many, few] = [driver(9), driver(8)];
            for bound in Bound::ALL {
                let counted = |driver: Driver| driver.counted(bound, &limits);
                assert_eq!(counted(many) - counted(few), more);
            }
        }
        let endless = driver(9).counted(Bound::Addresses, &limits(Some(u64::MAX)));
        assert_eq!(endless, u64::MAX);
    }
}
