//! The second engine: any Vulkan, Metal or DX12 adapter, through wgpu. It is there to be compared
//! with the cpu engine.
//!
//! Arenas are storage buffers, bound whole. Launches of one kernel with one grid on the same arenas
//! become one dispatch, an instance along z for each (`kernel::lower`). On Vulkan the SPIR-V goes
//! to the driver as it is, with NoContraction and float controls; elsewhere through naga, and the
//! engine calls itself not strict. An index outside a *local* array is not reported here.

mod adapter;
mod batch;
mod buffers;
mod spirv;

pub use adapter::NoAdapter;

use super::launch::{self, Signature};
use super::{ArenaId, CopyWords, Engine, EngineError, EngineIdentity, Launch, ProgramId, Span};
use crate::kernel::{Kernel, Lowered, lower};
use adapter::Device;
use batch::Batch;

/// Runs kernels on a graphics adapter.
pub struct WgpuEngine {
    device: Device,
    programs: Vec<Program>,
    arenas: Vec<Arena>,
}

struct Program {
    signature: Signature,
    row_words: u32,
    pipeline: wgpu::ComputePipeline,
    layout: wgpu::BindGroupLayout,
}

struct Arena {
    buffer: wgpu::Buffer,
    words: u32,
}

impl WgpuEngine {
    /// # Errors
    /// No adapter, with the reason: the caller shows it and skips, or fails.
    pub fn new() -> Result<WgpuEngine, NoAdapter> {
        Ok(WgpuEngine {
            device: adapter::open()?,
            programs: Vec::new(),
            arenas: Vec::new(),
        })
    }

    fn check(&self, place: usize, launch: &Launch) -> Result<(), EngineError> {
        let program = self
            .programs
            .get(launch.program.0 as usize)
            .ok_or_else(|| {
                let reason = format!("no program {} in this engine", launch.program.0);
                EngineError::BadLaunch {
                    kernel: "(unknown)".to_owned(),
                    reason,
                    launch: place,
                }
            })?;
        let signature = &program.signature;
        let words = |arena: u32| {
            self.arenas
                .get(arena as usize)
                .map(|arena| arena.words as usize)
        };
        launch::check(signature, launch, place, words)?;
        let bad = |reason: String| EngineError::BadLaunch {
            kernel: signature.name.clone(),
            reason,
            launch: place,
        };
        for (span, operand) in launch.operands.iter().zip(&signature.operands) {
            if span.offset_words % operand.element_words != 0 {
                let (name, words) = (&operand.name, operand.element_words);
                return Err(bad(format!(
                    "operand `{name}` does not begin at {words} words"
                )));
            }
        }
        let most = self.device.limits.max_compute_workgroups_per_dimension;
        match launch.grid.iter().find(|size| **size > most) {
            Some(size) => Err(bad(format!(
                "{size} workgroups along an axis, {most} at most"
            ))),
            None => Ok(()),
        }
    }

    fn arena(&self, span: Span) -> Result<&Arena, EngineError> {
        let arena = self.arenas.get(span.arena.0 as usize);
        let inside = |arena: &&Arena| {
            u64::from(span.offset_words) + u64::from(span.words) <= u64::from(arena.words)
        };
        arena.filter(inside).ok_or(EngineError::BadSpan {
            arena: span.arena.0,
            offset_words: span.offset_words,
            words: span.words,
        })
    }

    fn shader(&self, lowered: Lowered) -> Result<wgpu::ShaderModule, String> {
        let device = &self.device.device;
        if !self.device.passthrough {
            let source = wgpu::ShaderSource::Naga(std::borrow::Cow::Owned(lowered.module));
            let description = wgpu::ShaderModuleDescriptor {
                label: None,
                source,
            };
            return Ok(device.create_shader_module(description));
        }
        let words = spirv::write(&lowered, true)?;
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
        // `spirv::strict` adds are decorations and execution modes, which a test checks for their
        // place. Every access to a buffer is inside the extent that `launch::check` has shown to
        // lie in the arena, by the calls that `kernel::lower` put before it.
        Ok(unsafe { device.create_shader_module_passthrough(description) })
    }

    fn program(&self, kernel: &Kernel) -> Result<Program, String> {
        let bindings = kernel.operands.len() as u32 + 2;
        let most = self.device.limits.max_storage_buffers_per_shader_stage;
        if bindings > most {
            return Err(format!(
                "{bindings} buffers, the adapter binds {most} at most"
            ));
        }
        let lowered = lower(kernel)?;
        let row_words = lowered.row_words;
        let module = self.shader(lowered)?;
        let device = &self.device.device;
        let entries: Vec<wgpu::BindGroupLayoutEntry> =
            (0..bindings).map(buffers::binding).collect();
        let layout = device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor {
            label: Some(&kernel.name),
            entries: &entries,
        });
        let pipeline_layout = device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
            label: Some(&kernel.name),
            bind_group_layouts: &[Some(&layout)],
            immediate_size: 0,
        });
        let scope = device.push_error_scope(wgpu::ErrorFilter::Validation);
        let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: Some(&kernel.name),
            layout: Some(&pipeline_layout),
            module: &module,
            entry_point: Some("bp_entry"),
            compilation_options: wgpu::PipelineCompilationOptions::default(),
            cache: None,
        });
        if let Some(error) = pollster::block_on(scope.pop()) {
            return Err(error.to_string());
        }
        Ok(Program {
            signature: Signature::of(kernel),
            row_words,
            pipeline,
            layout,
        })
    }
}

impl Engine for WgpuEngine {
    fn identity(&self) -> EngineIdentity {
        self.device.identity.clone()
    }

    fn load(&mut self, kernel: &Kernel) -> Result<ProgramId, EngineError> {
        if let Some(known) = self
            .programs
            .iter()
            .position(|known| known.signature.hash == kernel.hash)
        {
            return Ok(ProgramId(known as u32));
        }
        let program = self
            .program(kernel)
            .map_err(|reason| EngineError::Unsupported {
                kernel: kernel.name.clone(),
                reason,
            })?;
        self.programs.push(program);
        Ok(ProgramId(self.programs.len() as u32 - 1))
    }

    fn alloc(&mut self, words: u32, poison: u32) -> Result<ArenaId, EngineError> {
        let buffer = buffers::arena(&self.device, words)?;
        buffers::fill(&self.device, &buffer, 0..words, poison);
        self.arenas.push(Arena { buffer, words });
        Ok(ArenaId(self.arenas.len() as u32 - 1))
    }

    fn grow(&mut self, arena: ArenaId, words: u32, poison: u32) -> Result<(), EngineError> {
        let old = self.arena(Span {
            arena,
            offset_words: 0,
            words: 0,
        })?;
        if words <= old.words {
            return Ok(());
        }
        let buffer = buffers::arena(&self.device, words)?;
        buffers::copy(&self.device, &[(&old.buffer, 0, &buffer, 0, old.words)]);
        buffers::fill(&self.device, &buffer, old.words..words, poison);
        self.arenas[arena.0 as usize] = Arena { buffer, words };
        Ok(())
    }

    fn release(&mut self, arena: ArenaId) -> Result<(), EngineError> {
        self.arena(Span {
            arena,
            offset_words: 0,
            words: 0,
        })?;
        let buffer = buffers::storage(&self.device, 0);
        let old = std::mem::replace(
            &mut self.arenas[arena.0 as usize],
            Arena { buffer, words: 0 },
        );
        old.buffer.destroy();
        Ok(())
    }

    fn run(&mut self, launches: &[Launch]) -> Result<(), EngineError> {
        for (place, launch) in launches.iter().enumerate() {
            self.check(place, launch)?;
        }
        let most = self.device.limits.max_compute_workgroups_per_dimension;
        let batches = Batch::gather(launches, most);
        let flags = batch::dispatch(self, launches, &batches)?;
        let mut faults: Vec<(usize, u32)> = Vec::new();
        for (batch, flag) in batches.iter().zip(flags) {
            if flag != batch::NO_FAULT {
                faults.push((batch.launches[flag as usize / 16], flag % 16));
            }
        }
        let Some((place, operand)) = faults.into_iter().min() else {
            return Ok(());
        };
        let launch = &launches[place];
        let signature = &self.programs[launch.program.0 as usize].signature;
        let words = launch.operands[operand as usize].words;
        let operand = &signature.operands[operand as usize];
        Err(EngineError::OutOfExtent {
            kernel: signature.name.clone(),
            operand: operand.name.clone(),
            extent: words / operand.element_words,
            launch: place,
        })
    }

    fn copy(&mut self, copies: &[CopyWords]) -> Result<(), EngineError> {
        for copy in copies {
            let (from, to) = (self.arena(copy.from)?, self.arena(copy.to)?);
            if copy.from.words != copy.to.words {
                let Span {
                    arena,
                    offset_words,
                    words,
                } = copy.to;
                return Err(EngineError::BadSpan {
                    arena: arena.0,
                    offset_words,
                    words,
                });
            }
            let (source, target) = (copy.from.offset_words, copy.to.offset_words);
            let words = copy.from.words;
            if copy.from.arena == copy.to.arena {
                // WebGPU copies only between two buffers.
                let between = buffers::arena(&self.device, words)?;
                buffers::copy(&self.device, &[(&from.buffer, source, &between, 0, words)]);
                buffers::copy(&self.device, &[(&between, 0, &to.buffer, target, words)]);
            } else {
                buffers::copy(
                    &self.device,
                    &[(&from.buffer, source, &to.buffer, target, words)],
                );
            }
        }
        Ok(())
    }

    fn read(&self, span: Span) -> Result<Vec<u32>, EngineError> {
        let arena = self.arena(span)?;
        buffers::read(&self.device, &arena.buffer, span.offset_words, span.words)
    }

    fn write(&mut self, span: Span, words: &[u32]) -> Result<(), EngineError> {
        let arena = self.arena(span)?;
        if words.len() != span.words as usize {
            let Span {
                arena,
                offset_words,
                words,
            } = span;
            return Err(EngineError::BadSpan {
                arena: arena.0,
                offset_words,
                words,
            });
        }
        buffers::write(&self.device, &arena.buffer, span.offset_words, words);
        Ok(())
    }
}
