//! Finding an adapter and opening a device on it.

use crate::engine::EngineIdentity;

/// Why there is no wgpu engine on this machine.
#[derive(Debug, thiserror::Error)]
#[error("no usable adapter: {reason}")]
pub struct NoAdapter {
    pub reason: String,
}

pub(super) struct Device {
    pub device: wgpu::Device,
    pub queue: wgpu::Queue,
    pub limits: wgpu::Limits,
    /// SPIR-V goes to the driver as it is.
    pub passthrough: bool,
    pub identity: EngineIdentity,
}

/// The first adapter that the environment (`WGPU_*`, `VK_DRIVER_FILES`) lets wgpu see.
pub(super) fn open() -> Result<Device, NoAdapter> {
    let none = |reason: String| NoAdapter { reason };
    let mut description = wgpu::InstanceDescriptor::new_without_display_handle();
    description.backends = wgpu::Backends::VULKAN | wgpu::Backends::METAL | wgpu::Backends::DX12;
    let instance = wgpu::Instance::new(description);
    let options = wgpu::RequestAdapterOptions::default();
    let adapter = pollster::block_on(instance.request_adapter(&options))
        .map_err(|error| none(error.to_string()))?;
    let info = adapter.get_info();
    let vulkan = info.backend == wgpu::Backend::Vulkan;
    let passthrough = vulkan
        && adapter
            .features()
            .contains(wgpu::Features::PASSTHROUGH_SHADERS);
    let mut features = wgpu::Features::empty();
    features.set(wgpu::Features::PASSTHROUGH_SHADERS, passthrough);
    let limits = adapter.limits();
    let request = wgpu::DeviceDescriptor {
        label: Some("bitproof"),
        required_features: features,
        required_limits: limits.clone(),
        ..wgpu::DeviceDescriptor::default()
    };
    let (device, queue) = pollster::block_on(adapter.request_device(&request))
        .map_err(|error| none(format!("{}: {error}", info.name)))?;
    let identity = EngineIdentity {
        name: "wgpu".to_owned(),
        adapter: format!("{} ({:?})", info.name, info.backend),
        versions: vec![
            (
                "driver".to_owned(),
                format!("{} {}", info.driver, info.driver_info),
            ),
            ("wgpu".to_owned(), "30.0.2".to_owned()),
            ("naga".to_owned(), "30.0.2".to_owned()),
        ],
        strict: passthrough,
    };
    Ok(Device {
        device,
        queue,
        limits,
        passthrough,
        identity,
    })
}
