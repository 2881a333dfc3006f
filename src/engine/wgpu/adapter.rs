//! Adapters: which there are, which is taken, and opening devices on it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::float_controls::FloatControls;
use crate::engine::{EngineError, EngineIdentity, NAGA, driver_is_threadless};

/// Backends that are looked at. GL is left out: its drivers promise no arithmetic.
const BACKENDS: wgpu::Backends = wgpu::Backends::VULKAN
    .union(wgpu::Backends::METAL)
    .union(wgpu::Backends::DX12);

fn none(reason: impl ToString) -> EngineError {
    let reason = reason.to_string();
    EngineError::NoAdapter { reason }
}

/// What an adapter says of itself.
#[derive(Clone, Debug, serde::Serialize)]
pub struct AdapterInfo {
    pub name: String,
    /// Vulkan, Metal or DX12.
    pub backend: String,
    /// DiscreteGpu, IntegratedGpu, VirtualGpu, Cpu or Other.
    pub kind: String,
    pub driver: String,
    /// SPIR-V reaches the driver as bitproof writes it.
    pub passthrough: bool,
    /// And the driver can be forbidden to rewrite f32 arithmetic in it. How the device rounds, and
    /// whether it keeps subnormals, the self-test sees.
    pub strict: bool,
    /// What the driver says it can be asked for.
    #[serde(skip)]
    pub(super) controls: FloatControls,
    /// Buffers of kernels can be mapped by the host.
    pub mappable: bool,
    pub storage_binding_bytes_max: u64,
    pub storage_buffers_max: u32,
    pub workgroups_max: u32,
    pub invocations_max: u32,
    /// Why the engine cannot use it, if it cannot.
    pub refused: Option<String>,
}

/// The engine's needs of an adapter, whatever it runs.
const INVOCATIONS_MIN: u32 = 256;
const IMMEDIATE_BYTES: u32 = crate::kernel::IMMEDIATE_WORDS * 4;

impl AdapterInfo {
    fn of(adapter: &wgpu::Adapter) -> AdapterInfo {
        let info = adapter.get_info();
        let (limits, features) = (adapter.limits(), adapter.features());
        let has = |feature| features.contains(feature);
        let controls = FloatControls::of(adapter);
        let vulkan = info.backend == wgpu::Backend::Vulkan;
        let software = info.device_type == wgpu::DeviceType::Cpu;
        let refused =
            if !has(wgpu::Features::IMMEDIATES) || limits.max_immediate_size < IMMEDIATE_BYTES {
                Some(format!("it has no {IMMEDIATE_BYTES} bytes of immediates"))
            } else if limits.max_compute_invocations_per_workgroup < INVOCATIONS_MIN {
                let has = limits.max_compute_invocations_per_workgroup;
                Some(format!(
                    "it runs {has} invocations a workgroup, of {INVOCATIONS_MIN} needed"
                ))
            } else {
                None
            };
        AdapterInfo {
            name: info.name,
            backend: format!("{:?}", info.backend),
            kind: format!("{:?}", info.device_type),
            driver: format!("{} {}", info.driver, info.driver_info)
                .trim()
                .to_owned(),
            passthrough: vulkan && has(wgpu::Features::PASSTHROUGH_SHADERS),
            strict: vulkan
                && has(wgpu::Features::PASSTHROUGH_SHADERS)
                && controls.signed_zero_inf_nan_preserve,
            controls,
            mappable: software && has(wgpu::Features::MAPPABLE_PRIMARY_BUFFERS),
            storage_binding_bytes_max: limits.max_storage_buffer_binding_size,
            storage_buffers_max: limits.max_storage_buffers_per_shader_stage,
            workgroups_max: limits.max_compute_workgroups_per_dimension,
            invocations_max: limits.max_compute_invocations_per_workgroup,
            refused,
        }
    }

    /// What an engine on this adapter is called in its identity.
    pub fn label(&self) -> String {
        format!("{} ({})", self.name, self.backend)
    }

    /// llvmpipe stops after 65,535 rounds, counted over lanes that run together; half of that,
    /// since lanes may take turns in being the longest.
    fn rounds_max(&self) -> u32 {
        match self.driver.contains("llvmpipe") {
            true => 32_767,
            false => u32::MAX,
        }
    }

    /// A processor, not a graphics card.
    pub fn is_software(&self) -> bool {
        self.kind == "Cpu"
    }

    /// Better adapters first: hardware before software, strict before not.
    fn rank(&self) -> (u8, bool) {
        let kind = match self.kind.as_str() {
            "DiscreteGpu" => 0,
            "IntegratedGpu" => 1,
            "VirtualGpu" => 2,
            "Other" => 3,
            _ => 4,
        };
        (kind, !self.strict)
    }
}

fn instance() -> wgpu::Instance {
    let mut description = wgpu::InstanceDescriptor::new_without_display_handle();
    description.backends = BACKENDS;
    wgpu::Instance::new(description)
}

fn enumerate() -> Vec<(AdapterInfo, wgpu::Adapter)> {
    let adapters = pollster::block_on(instance().enumerate_adapters(BACKENDS));
    let described = adapters.into_iter();
    let mut described: Vec<_> = described
        .map(|adapter| (AdapterInfo::of(&adapter), adapter))
        .collect();
    described.sort_by_key(|(info, _)| info.rank());
    described
}

/// Every adapter that the environment (`VK_DRIVER_FILES` and the like) lets wgpu see, best first.
pub fn adapters() -> Vec<AdapterInfo> {
    enumerate().into_iter().map(|(info, _)| info).collect()
}

/// The adapter that is wanted: the first whose name, backend or driver contains `wanted` in any
/// case, or the best.
fn choose(wanted: Option<&str>) -> Result<(AdapterInfo, wgpu::Adapter), EngineError> {
    let found = enumerate();
    let names: Vec<String> = found.iter().map(|(info, _)| info.name.clone()).collect();
    if found.is_empty() {
        return Err(none("no Vulkan, Metal or DX12 driver offers any"));
    }
    let Some(wanted) = wanted else {
        let refusals: Vec<String> = found
            .iter()
            .filter_map(|(info, _)| Some(format!("{}: {}", info.name, info.refused.as_ref()?)))
            .collect();
        let usable = found.into_iter().find(|(info, _)| info.refused.is_none());
        return usable.ok_or_else(|| none(refusals.join("; ")));
    };
    let lower = wanted.to_lowercase();
    let matches = |info: &AdapterInfo| {
        let of = [&info.name, &info.backend, &info.driver];
        of.iter().any(|text| text.to_lowercase().contains(&lower))
    };
    // A whole label before a part of one: `A4000` must not find an `A4000 Laptop`.
    let exact = found
        .iter()
        .position(|(info, _)| info.label() == wanted || info.name == wanted);
    let place = exact.or_else(|| found.iter().position(|(info, _)| matches(info)));
    match place.and_then(|place| found.into_iter().nth(place)) {
        None => Err(none(format!(
            "none is called `{}`; there is {}",
            wanted.escape_debug(),
            names.join(", ")
        ))),
        Some((info, _)) if info.refused.is_some() => {
            let refused = info.refused.unwrap_or_default();
            Err(none(format!("{}: {refused}", info.name)))
        }
        Some(found) => Ok(found),
    }
}

/// A device with what the engine asks it.
pub(super) struct Device {
    pub device: wgpu::Device,
    pub queue: wgpu::Queue,
    pub limits: wgpu::Limits,
    /// SPIR-V goes to the driver as it is, and asks for these.
    pub passthrough: bool,
    pub controls: FloatControls,
    /// Arenas are mapped by the host instead of copied.
    pub mappable: bool,
    pub patience: Duration,
    /// Rounds of loops in one invocation at which the driver may end them.
    pub rounds_max: u32,
    /// What the driver complained of outside any error scope, and whether it was lost.
    complaint: Arc<Mutex<Option<String>>>,
}

impl Device {
    /// What went wrong first, if anything did; it stays wrong.
    pub fn complaint(&self) -> Option<String> {
        let held = self.complaint.lock();
        held.ok().and_then(|complaint| complaint.clone())
    }

    /// Notes that the device is of no use any more.
    pub fn complain(&self, reason: String) {
        note(&self.complaint, reason);
    }
}

/// How an adapter is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WgpuOptions {
    /// The first adapter whose name, backend or driver contains this, in any case; else the best.
    pub adapter: Option<String>,
    /// Threads that take digests.
    pub workers: usize,
    /// Devices that the arenas are spread over.
    pub devices: Devices,
    /// Arenas are mapped by the host, where the adapter is a processor and its driver can: else
    /// they are copied as with a graphics card.
    pub mapped: bool,
    /// A wait for the device that is longer than this is a fault.
    pub patience: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Devices {
    /// One; but this many where the adapter is a processor and its driver was told to start no
    /// threads of its own (`LP_NUM_THREADS=0`). Each compiles every kernel for itself, so there
    /// should be no more than there are ranks.
    AtMost(usize),
    /// This many, at least one.
    Fixed(usize),
}

impl Default for WgpuOptions {
    fn default() -> Self {
        WgpuOptions {
            adapter: None,
            workers: 1,
            devices: Devices::AtMost(1),
            mapped: true,
            patience: Duration::from_secs(300),
        }
    }
}

pub(super) fn open(options: &WgpuOptions) -> Result<(Vec<Device>, EngineIdentity), EngineError> {
    let (mut info, adapter) = choose(options.adapter.as_deref())?;
    info.mappable &= options.mapped;
    let count = match options.devices {
        Devices::Fixed(count) => count.max(1),
        Devices::AtMost(count) if info.is_software() && driver_is_threadless() => count.max(1),
        Devices::AtMost(_) => 1,
    };
    let devices = (0..count).map(|_| device(&info, &adapter, options.patience));
    let devices = devices.collect::<Result<Vec<_>, EngineError>>()?;
    Ok((devices, identity(info)))
}

/// Why an adapter that is there cannot be opened. wgpu keeps the kind of the error to itself and
/// gives its text only (`DeviceError` of wgpu-core).
fn unopened(info: &AdapterInfo, told: &str) -> EngineError {
    let reason = format!("{}: {told}", info.name);
    match told {
        "Not enough memory left." => EngineError::DriverMemory { reason },
        // VK_ERROR_INITIALIZATION_FAILED: lavapipe has nothing else to say where it gets no thread.
        "Parent device is lost" if info.is_software() => EngineError::Threads {
            reason: format!("{reason} (a driver in software that gets no thread says so)"),
        },
        "Parent device is lost" => EngineError::Device { reason },
        _ => none(reason),
    }
}

/// Keeps the first complaint.
fn note(held: &Mutex<Option<String>>, text: String) {
    if let Ok(mut held) = held.lock() {
        held.get_or_insert(text);
    }
}

fn device(
    info: &AdapterInfo,
    adapter: &wgpu::Adapter,
    patience: Duration,
) -> Result<Device, EngineError> {
    let mut features = wgpu::Features::IMMEDIATES;
    features.set(wgpu::Features::PASSTHROUGH_SHADERS, info.passthrough);
    features.set(wgpu::Features::MAPPABLE_PRIMARY_BUFFERS, info.mappable);
    let limits = adapter.limits();
    let request = wgpu::DeviceDescriptor {
        label: Some("bitproof"),
        required_features: features,
        required_limits: limits.clone(),
        ..wgpu::DeviceDescriptor::default()
    };
    let (device, queue) = pollster::block_on(adapter.request_device(&request))
        .map_err(|error| unopened(info, &error.to_string()))?;
    let complaint = Arc::new(Mutex::new(None));
    let lost = complaint.clone();
    device.set_device_lost_callback(move |reason, text| {
        let by_us = match reason {
            wgpu::DeviceLostReason::Destroyed => " as it was destroyed",
            wgpu::DeviceLostReason::Unknown => "",
        };
        note(&lost, format!("the device was lost{by_us}: {text}"));
    });
    let uncaptured = complaint.clone();
    device.on_uncaptured_error(Arc::new(move |error: wgpu::Error| {
        note(&uncaptured, error.to_string());
    }));
    Ok(Device {
        device,
        queue,
        limits,
        passthrough: info.passthrough,
        controls: info.controls,
        mappable: info.mappable,
        patience,
        rounds_max: info.rounds_max(),
        complaint,
    })
}

/// The adapter stands among the versions too: a token made on one is not replayed on another.
fn identity(info: AdapterInfo) -> EngineIdentity {
    let version = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let adapter = info.label();
    EngineIdentity {
        name: "wgpu".to_owned(),
        versions: vec![
            version("adapter", &adapter),
            version("driver", &info.driver),
            version("wgpu", NAGA),
            version("naga", NAGA),
        ],
        adapter,
        strict: info.strict,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::EngineChoice;

    fn info(kind: &str) -> AdapterInfo {
        AdapterInfo {
            name: "an adapter".to_owned(),
            backend: "Vulkan".to_owned(),
            kind: kind.to_owned(),
            driver: String::new(),
            passthrough: true,
            strict: true,
            controls: FloatControls::default(),
            mappable: true,
            storage_binding_bytes_max: 0,
            storage_buffers_max: 0,
            workgroups_max: 0,
            invocations_max: 0,
            refused: None,
        }
    }

    /// An adapter that is there and gets too little is no missing one: nothing is to install.
    #[test]
    fn a_shortage_is_told_as_one() {
        let told = |kind: &str, text: &str| {
            let error = unopened(&info(kind), text);
            let help = error.help(&EngineChoice::Wgpu { adapter: None });
            assert!(error.to_string().contains(text), "{error}");
            (error, help)
        };
        let (memory, help) = told("Cpu", "Not enough memory left.");
        assert!(matches!(memory, EngineError::DriverMemory { .. }));
        for limit in ["ulimit -v", "ulimit -d", "container", "--workers 2"] {
            assert!(help.contains(limit), "{help}");
        }
        let (threads, help) = told("Cpu", "Parent device is lost");
        assert!(matches!(threads, EngineError::Threads { .. }));
        assert!(help.contains("ulimit -u") && help.contains("pids.max"));
        let (lost, _) = told("DiscreteGpu", "Parent device is lost");
        assert!(matches!(lost, EngineError::Device { .. }));
        let (other, help) = told("Cpu", "Unsupported features were requested");
        assert!(matches!(other, EngineError::NoAdapter { .. }) && help.contains("doctor"));
    }
}
