//! From kernels to pipelines.

use super::adapter::Device;
use super::spirv;
use crate::engine::EngineError;
use crate::kernel::{IMMEDIATE_WORDS, Kernel, Lowered, lower};

/// A kernel as one device has it.
pub(super) struct Program {
    pub pipeline: wgpu::ComputePipeline,
    pub layout: wgpu::BindGroupLayout,
    /// Words of one row of the table.
    pub row_words: u32,
}

impl Program {
    /// # Errors
    /// A kernel that binds more than the adapter does, or that its compiler refuses.
    pub fn compile(device: &Device, kernel: &Kernel) -> Result<Program, EngineError> {
        let bindings = kernel.operands.len() as u32 + 2;
        let most = device.limits.max_storage_buffers_per_shader_stage;
        if bindings > most {
            return Err(EngineError::Limits {
                kernel: kernel.name.clone(),
                reason: format!("{bindings} buffers, the adapter binds {most} at most"),
            });
        }
        let refused = |reason: String| EngineError::Unsupported {
            kernel: kernel.name.clone(),
            reason,
        };
        Program::build(
            device,
            &kernel.name,
            bindings,
            lower(kernel).map_err(refused)?,
        )
    }

    /// A pipeline of what is ready for an adapter; it binds `bindings` buffers.
    ///
    /// # Errors
    /// What the adapter's compiler refuses.
    pub fn build(
        device: &Device,
        name: &str,
        bindings: u32,
        lowered: Lowered,
    ) -> Result<Program, EngineError> {
        let refused = |reason: String| EngineError::Unsupported {
            kernel: name.to_owned(),
            reason,
        };
        let row_words = lowered.row_words;
        let scope = device
            .device
            .push_error_scope(wgpu::ErrorFilter::Validation);
        let internal = device.device.push_error_scope(wgpu::ErrorFilter::Internal);
        let module = shader(device, lowered).map_err(refused)?;
        let (layout, pipeline) = pipeline(device, name, bindings, &module);
        for scope in [internal, scope] {
            if let Some(error) = pollster::block_on(scope.pop()) {
                return Err(refused(error.to_string()));
            }
        }
        Ok(Program {
            pipeline,
            layout,
            row_words,
        })
    }
}

fn pipeline(
    device: &Device,
    name: &str,
    bindings: u32,
    module: &wgpu::ShaderModule,
) -> (wgpu::BindGroupLayout, wgpu::ComputePipeline) {
    let device = &device.device;
    let entries: Vec<wgpu::BindGroupLayoutEntry> = (0..bindings).map(binding).collect();
    let layout = device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor {
        label: Some(name),
        entries: &entries,
    });
    let pipeline_layout = device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
        label: Some(name),
        bind_group_layouts: &[Some(&layout)],
        immediate_size: IMMEDIATE_WORDS * 4,
    });
    let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label: Some(name),
        layout: Some(&pipeline_layout),
        module,
        entry_point: Some("bp_entry"),
        compilation_options: wgpu::PipelineCompilationOptions::default(),
        cache: None,
    });
    (layout, pipeline)
}

/// A read-write storage buffer at place `binding`.
fn binding(binding: u32) -> wgpu::BindGroupLayoutEntry {
    wgpu::BindGroupLayoutEntry {
        binding,
        visibility: wgpu::ShaderStages::COMPUTE,
        ty: wgpu::BindingType::Buffer {
            ty: wgpu::BufferBindingType::Storage { read_only: false },
            has_dynamic_offset: false,
            min_binding_size: None,
        },
        count: None,
    }
}

fn shader(device: &Device, lowered: Lowered) -> Result<wgpu::ShaderModule, String> {
    if !device.passthrough {
        let source = wgpu::ShaderSource::Naga(std::borrow::Cow::Owned(lowered.module));
        let description = wgpu::ShaderModuleDescriptor {
            label: None,
            source,
        };
        return Ok(device.device.create_shader_module(description));
    }
    let words = spirv::write(&lowered, device.controls)?;
    let size = lowered.module.entry_points[0].workgroup_size;
    let entry = wgpu::PassthroughShaderEntryPoint {
        name: "bp_entry".into(),
        workgroup_size: (size[0], size[1], size[2]),
    };
    let description = wgpu::ShaderModuleDescriptorPassthrough {
        entry_points: vec![entry].into(),
        spirv: Some(words.into()),
        ..Default::default()
    };
    // SAFETY: naga wrote these words from a module that its validator accepted; what
    // `spirv::strict` adds are decorations and those execution modes that the driver says it has,
    // which a test checks for their place. `kernel::lower` has put a comparison before every access
    // to a buffer: a store is inside the extent that `launch::check` has shown to lie in the arena,
    // and a load there or at the operand's first element, which a heap has room for behind its last
    // arena. In a kernel that is not `bounded`, naga restricts every index to the length of the
    // buffer bound.
    Ok(unsafe { device.device.create_shader_module_passthrough(description) })
}
