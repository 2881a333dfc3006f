//! Which engine runs a check, chosen by its user.

use super::{Engine, EngineError, NativeAtomics, POOL_VARIABLE, cpu};

/// An engine that is to be opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum EngineChoice {
    /// The processor: nothing to install, the same bits on every machine.
    #[default]
    Cpu,
    /// A graphics adapter: the first whose name, backend or driver contains `adapter`, in any
    /// case, or the best there is.
    Wgpu { adapter: Option<String> },
}

impl EngineChoice {
    /// A hardware adapter that can be asked for strict arithmetic if there is one, else the
    /// processor; and why. Whether its arithmetic is strict its self-test says, when it is used.
    pub fn best() -> (EngineChoice, String) {
        best()
    }

    /// An engine with so many threads, whatever runs on it.
    ///
    /// # Errors
    /// No such adapter, or a machine that the engine cannot run on. Never another engine instead.
    pub fn open(&self, workers: usize) -> Result<Box<dyn Engine>, EngineError> {
        self.open_for(workers, usize::MAX)
    }

    /// An engine for a world of at most so many ranks.
    ///
    /// # Errors
    /// As [`EngineChoice::open`].
    pub fn open_for(&self, workers: usize, ranks: usize) -> Result<Box<dyn Engine>, EngineError> {
        match self {
            EngineChoice::Cpu => Ok(Box::new(cpu::CpuEngine::new(workers)?)),
            EngineChoice::Wgpu { adapter } => {
                open_wgpu(adapter.as_deref(), workers, devices_at_most(workers, ranks))
            }
        }
    }

    /// The adapter that atomics race on: the engine's own, or the best where it has none.
    ///
    /// # Errors
    /// No such adapter, or one that cannot run them.
    pub fn open_native(&self) -> Result<Box<dyn NativeAtomics>, EngineError> {
        match self {
            EngineChoice::Cpu => open_native(None),
            EngineChoice::Wgpu { adapter } => open_native(adapter.as_deref()),
        }
    }
}

#[cfg(feature = "wgpu")]
fn open_native(adapter: Option<&str>) -> Result<Box<dyn NativeAtomics>, EngineError> {
    let options = super::wgpu::WgpuOptions {
        adapter: adapter.map(str::to_owned),
        ..super::wgpu::WgpuOptions::default()
    };
    Ok(Box::new(super::wgpu::NativeAdapter::open(&options)?))
}

/// Devices that a software adapter is opened as: one a worker, but none that has no rank, since
/// each takes memory and compiles every kernel for itself.
pub(crate) fn devices_at_most(workers: usize, ranks: usize) -> usize {
    workers.min(ranks).max(1)
}

/// The driver of a software adapter was told to start no threads of its own.
pub(crate) fn driver_is_threadless() -> bool {
    std::env::var(POOL_VARIABLE).is_ok_and(|count| count == "0")
}

#[cfg(feature = "wgpu")]
fn open_wgpu(
    adapter: Option<&str>,
    workers: usize,
    devices: usize,
) -> Result<Box<dyn Engine>, EngineError> {
    let options = super::wgpu::WgpuOptions {
        adapter: adapter.map(str::to_owned),
        workers,
        devices: super::wgpu::Devices::AtMost(devices),
        ..super::wgpu::WgpuOptions::default()
    };
    Ok(Box::new(super::wgpu::WgpuEngine::open(&options)?))
}

#[cfg(feature = "wgpu")]
fn best() -> (EngineChoice, String) {
    let adapters = super::wgpu::adapters();
    let is_good = |adapter: &&super::wgpu::AdapterInfo| {
        !adapter.is_software() && adapter.strict && adapter.refused.is_none()
    };
    if let Some(adapter) = adapters.iter().find(is_good) {
        let choice = EngineChoice::Wgpu {
            adapter: Some(adapter.label()),
        };
        return (choice, format!("wgpu on {}", adapter.label()));
    }
    let names: Vec<&str> = adapters.iter().map(|a| a.name.as_str()).collect();
    let why = match names[..] {
        [] => "there is no adapter".to_owned(),
        _ => format!(
            "no hardware adapter that can be asked for strict arithmetic, only {}",
            names.join(", ")
        ),
    };
    (EngineChoice::Cpu, format!("cpu ({why})"))
}

#[cfg(not(feature = "wgpu"))]
const LEFT_OUT: &str = "this bitproof was built without its feature `wgpu`";

#[cfg(not(feature = "wgpu"))]
fn open_wgpu(_: Option<&str>, _: usize, _: usize) -> Result<Box<dyn Engine>, EngineError> {
    let reason = LEFT_OUT.to_owned();
    Err(EngineError::NoAdapter { reason })
}

#[cfg(not(feature = "wgpu"))]
fn open_native(_: Option<&str>) -> Result<Box<dyn NativeAtomics>, EngineError> {
    let reason = LEFT_OUT.to_owned();
    Err(EngineError::NoAdapter { reason })
}

#[cfg(not(feature = "wgpu"))]
fn best() -> (EngineChoice, String) {
    (EngineChoice::Cpu, format!("cpu ({LEFT_OUT})"))
}
