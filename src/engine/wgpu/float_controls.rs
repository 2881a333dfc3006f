//! What a Vulkan driver can promise of f32 arithmetic (`VkPhysicalDeviceFloatControlsProperties`,
//! core since Vulkan 1.2). A mode may stand in a module only where the driver has it.

/// The execution modes of SPV_KHR_float_controls for f32 that a driver has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FloatControls {
    pub denorm_preserve: bool,
    pub signed_zero_inf_nan_preserve: bool,
    pub rounding_mode_rte: bool,
}

impl FloatControls {
    #[cfg(test)]
    pub const ALL: FloatControls = FloatControls {
        denorm_preserve: true,
        signed_zero_inf_nan_preserve: true,
        rounding_mode_rte: true,
    };

    /// Asks the driver; nothing where the adapter is not Vulkan's, or older than 1.2.
    #[cfg(not(target_vendor = "apple"))]
    pub fn of(adapter: &wgpu::Adapter) -> FloatControls {
        use ash::vk;
        // SAFETY: the guard is used only in this function, and nothing is destroyed through it.
        let Some(adapter) = (unsafe { adapter.as_hal::<wgpu::hal::api::Vulkan>() }) else {
            return FloatControls::default();
        };
        let instance = adapter.shared_instance();
        let device_version = adapter
            .physical_device_capabilities()
            .properties()
            .api_version;
        if device_version.min(instance.instance_api_version()) < vk::API_VERSION_1_2 {
            return FloatControls::default();
        }
        let mut controls = vk::PhysicalDeviceFloatControlsProperties::default();
        let mut properties = vk::PhysicalDeviceProperties2::default().push_next(&mut controls);
        // SAFETY: the physical device belongs to this instance, which the guard keeps alive; both
        // are of a version that has this function and this structure, and the chain is two local
        // structures of the right types.
        unsafe {
            instance
                .raw_instance()
                .get_physical_device_properties2(adapter.raw_physical_device(), &mut properties);
        }
        FloatControls {
            denorm_preserve: controls.shader_denorm_preserve_float32 == vk::TRUE,
            signed_zero_inf_nan_preserve: controls.shader_signed_zero_inf_nan_preserve_float32
                == vk::TRUE,
            rounding_mode_rte: controls.shader_rounding_mode_rte_float32 == vk::TRUE,
        }
    }

    #[cfg(target_vendor = "apple")]
    pub fn of(_: &wgpu::Adapter) -> FloatControls {
        FloatControls::default()
    }
}
