//! The same kernel without the engine: its own text, one buffer an operand and rank, one dispatch a
//! rank, no checks of extents, all in one submission. The driver may contract and reorder, which
//! the engine forbids it: so this is what it could reach at best.

use bitproof::kernel::Registry;

pub struct Products {
    device: wgpu::Device,
    queue: wgpu::Queue,
    pipeline: wgpu::ComputePipeline,
    /// Operands and params of each rank.
    groups: Vec<[wgpu::BindGroup; 2]>,
    grid: [u32; 3],
}

impl Products {
    pub fn new(
        kernel: &str,
        (grid, params): ([u32; 3], Vec<u32>),
        size: u32,
        ranks: u32,
        adapter: &str,
    ) -> Products {
        let (device, queue) = device(adapter);
        let registry = Registry::new().expect("shaders link");
        let kernel = registry.get(kernel).expect("valid");
        let source = wgpu::ShaderSource::Wgsl(kernel.text.as_str().into());
        let description = wgpu::ShaderModuleDescriptor {
            label: None,
            source,
        };
        // SAFETY: every index of a product lies inside the buffers made below; that is what the
        // engine's own checks have shown for the same sizes.
        let module = unsafe {
            device.create_shader_module_trusted(description, wgpu::ShaderRuntimeChecks::unchecked())
        };
        let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: None,
            layout: None,
            module: &module,
            entry_point: Some("main"),
            compilation_options: wgpu::PipelineCompilationOptions::default(),
            cache: None,
        });
        let groups = (0..ranks).map(|_| groups(&device, &queue, &pipeline, size, &params));
        Products {
            groups: groups.collect(),
            device,
            queue,
            pipeline,
            grid,
        }
    }

    pub fn run(&self) {
        let mut encoder = self.device.create_command_encoder(&Default::default());
        let mut pass = encoder.begin_compute_pass(&Default::default());
        pass.set_pipeline(&self.pipeline);
        for [operands, params] in &self.groups {
            pass.set_bind_group(0, operands, &[]);
            pass.set_bind_group(1, params, &[]);
            let [x, y, z] = self.grid;
            pass.dispatch_workgroups(x, y, z);
        }
        drop(pass);
        self.queue.submit([encoder.finish()]);
        let wait = wgpu::PollType::wait_indefinitely();
        self.device.poll(wait).expect("a device");
    }
}

/// A device on the adapter that the engine calls so.
fn device(label: &str) -> (wgpu::Device, wgpu::Queue) {
    let mut description = wgpu::InstanceDescriptor::new_without_display_handle();
    description.backends = wgpu::Backends::VULKAN | wgpu::Backends::METAL | wgpu::Backends::DX12;
    let backends = description.backends;
    let instance = wgpu::Instance::new(description);
    let adapters = pollster::block_on(instance.enumerate_adapters(backends));
    let named = |adapter: &wgpu::Adapter| {
        let info = adapter.get_info();
        format!("{} ({:?})", info.name, info.backend) == label
    };
    let adapter = adapters.into_iter().find(named);
    let adapter = adapter.expect("the engine runs on it");
    let request = wgpu::DeviceDescriptor {
        required_limits: adapter.limits(),
        ..Default::default()
    };
    pollster::block_on(adapter.request_device(&request)).expect("a device")
}

fn groups(
    device: &wgpu::Device,
    queue: &wgpu::Queue,
    pipeline: &wgpu::ComputePipeline,
    size: u32,
    params: &[u32],
) -> [wgpu::BindGroup; 2] {
    let buffer = |words: usize, usage| {
        device.create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size: words as u64 * 4,
            usage: usage | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        })
    };
    let words = vec![0.5f32; (size * size) as usize];
    let operands: Vec<wgpu::Buffer> = (0..3)
        .map(|_| {
            let operand = buffer(words.len(), wgpu::BufferUsages::STORAGE);
            queue.write_buffer(&operand, 0, bytemuck::cast_slice(&words));
            operand
        })
        .collect();
    let mut padded = params.to_vec();
    padded.resize(params.len().next_multiple_of(4), 0);
    let uniform = buffer(padded.len(), wgpu::BufferUsages::UNIFORM);
    queue.write_buffer(&uniform, 0, bytemuck::cast_slice(&padded));
    [operands, vec![uniform]].map(|buffers| {
        let entries: Vec<wgpu::BindGroupEntry<'_>> = buffers
            .iter()
            .zip(0..)
            .map(|(buffer, binding)| wgpu::BindGroupEntry {
                binding,
                resource: buffer.as_entire_binding(),
            })
            .collect();
        let place = u32::from(buffers.len() == 1);
        device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: None,
            layout: &pipeline.get_bind_group_layout(place),
            entries: &entries,
        })
    })
}
