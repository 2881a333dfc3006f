//! The default engine: naga IR compiled by Cranelift, strict IEEE, nothing to install.
//!
//! Its bits depend on no machine, worker count or timing: every float operation is one IEEE 754
//! operation in the order of the source, NaNs are made canonical by the shared pass, and a launch
//! whose workgroups could see each other's writes, through an operand that is read and written or
//! through operands that overlap, is run by one thread. (Two workgroups that write one word of an
//! operand are the kernel's own race.)

mod jit;
mod native;
mod schedule;
mod spares;
#[cfg(test)]
mod tests;

use rayon::prelude::*;

use super::NAGA;
use super::launch::{self, Signature};
use super::threads;
use super::{
    ArenaId, CopyWords, Engine, EngineError, EngineIdentity, Launch, ProgramId, Ran, Span,
};
use crate::kernel::Kernel;
use crate::numerics::Digest;
use jit::{Fault, OperandSlot, Work};
use native::{Compiled, NativeCode, Refusal};
use schedule::{Cost, Slice};
use spares::Spares;

/// Runs kernels on the processor.
pub struct CpuEngine {
    // Declared before `code`: dropped before the memory that they point into.
    programs: Vec<Program>,
    code: NativeCode,
    arenas: Vec<Vec<u32>>,
    spares: Spares,
    workers: usize,
    /// Runs begun.
    runs: u64,
    /// Digests that were asked for and not fetched yet.
    noted: Vec<Digest>,
    /// `None` with one worker: everything runs on the calling thread.
    pool: Option<rayon::ThreadPool>,
}

/// Words below which digests are not worth waking another thread.
const DIGEST_WORDS_SHARED: usize = 1 << 15;

struct Program {
    signature: Signature,
    compiled: Compiled,
}

impl CpuEngine {
    /// An engine with `workers` threads (at least one). Results do not depend on the number.
    ///
    /// # Errors
    /// A machine that native code cannot be made for, or threads that cannot be had.
    pub fn new(workers: usize) -> Result<CpuEngine, EngineError> {
        let workers = workers.max(1);
        let pool = threads::pool(workers, "cpu")?;
        let code = NativeCode::new().map_err(|reason| EngineError::Machine { reason })?;
        Ok(CpuEngine {
            programs: Vec::new(),
            code,
            arenas: Vec::new(),
            spares: Spares::default(),
            workers,
            runs: 0,
            noted: Vec::new(),
            pool,
        })
    }

    fn words(&self, span: Span) -> Result<&[u32], EngineError> {
        let arena = self.arenas.get(span.arena.0 as usize);
        arena
            .and_then(|words| words.get(range(span)))
            .ok_or_else(|| span.outside())
    }

    fn words_mut(&mut self, span: Span) -> Result<&mut [u32], EngineError> {
        let arena = self.arenas.get_mut(span.arena.0 as usize);
        arena
            .and_then(|words| words.get_mut(range(span)))
            .ok_or_else(|| span.outside())
    }

    /// A launch of the current run.
    fn ran(&self, launch: usize) -> Ran {
        let run = self.runs - 1;
        Ran { run, launch }
    }

    fn error_of(&self, launches: &[Launch], place: usize, fault: &Fault) -> EngineError {
        let launch = &launches[place];
        let signature = &self.programs[launch.program.0 as usize].signature;
        let (kernel, at) = (signature.name.clone(), self.ran(place));
        match *fault {
            Fault::Operand(number) => {
                let operand = &signature.operands[number];
                EngineError::OutOfExtent {
                    kernel,
                    operand: operand.name.clone(),
                    extent: launch.operands[number].words / operand.element_words,
                    at,
                }
            }
            Fault::Local => EngineError::OutsideLocal { kernel, at },
        }
    }
}

/// Where the operands of all launches of a run lie, one launch after the other.
struct Operands {
    slots: Vec<OperandSlot>,
    /// The first slot of each launch, and the end of the last.
    starts: Vec<usize>,
}

impl Operands {
    /// `launch::check` has passed every launch.
    fn of(launches: &[Launch], programs: &[Program], arenas: &mut [Vec<u32>]) -> Operands {
        let mut slots = Vec::with_capacity(launches.iter().map(|l| l.operands.len()).sum());
        let mut starts = Vec::with_capacity(launches.len() + 1);
        for launch in launches {
            starts.push(slots.len());
            let operands = &programs[launch.program.0 as usize].signature.operands;
            for (span, operand) in launch.operands.iter().zip(operands) {
                // Makes no reference to the words, so earlier addresses of the arena stay good.
                let arena = arenas[span.arena.0 as usize].as_mut_ptr();
                let start = arena.expose_provenance();
                slots.push(OperandSlot {
                    first: start + span.offset_words as usize * size_of::<u32>(),
                    extent: span.words / operand.element_words,
                    reserved: 0,
                });
            }
        }
        starts.push(slots.len());
        Operands { slots, starts }
    }

    fn launch(&self, launch: usize) -> &[OperandSlot] {
        &self.slots[self.starts[launch]..self.starts[launch + 1]]
    }
}

/// Runs the slices of one piece in order, on this thread. `Err` holds the launch and its fault.
fn run_piece<'a>(
    programs: &'a [Program],
    launches: &[Launch],
    operands: &Operands,
    piece: &[Slice],
) -> Result<(), (usize, &'a Fault)> {
    assert!(
        arithmetic_is_strict(),
        "this thread's float control register was changed"
    );
    for slice in piece {
        let launch = &launches[slice.launch];
        let program = &programs[launch.program.0 as usize];
        let work = Work {
            begin: slice.begin,
            end: slice.end,
            grid: launch.grid,
        };
        let slots = operands.launch(slice.launch);
        // SAFETY: `launch::check` has shown one operand for each binding, every span inside its
        // arena and as many params as the kernel takes. `run` holds the engine and with it the
        // arenas mutably, `Operands::of` has exposed the provenance of each that is named, and no
        // reference to their words lives until `run` returns; `Vec<u32>` aligns them to 4.
        let fault = unsafe { program.compiled.call(slots, &launch.params, &work) };
        if let Some(fault) = fault {
            return Err((slice.launch, fault));
        }
    }
    Ok(())
}

/// Work of one workgroup in invocations. One that reads more than a vec4 counts as more: a fold of
/// thousands of addends has few invocations and much to do.
fn work_of_workgroup(signature: &Signature, launch: &Launch) -> u64 {
    let size = signature.workgroup.iter().map(|&size| u64::from(size));
    let words = launch.operands.iter().map(|span| u64::from(span.words));
    let vec4s = words.sum::<u64>() / 4 / launch::workgroups(launch).max(1);
    size.product::<u64>().max(vec4s)
}

/// Whether this thread rounds to nearest and keeps subnormals, as every thread begins: a library
/// that sets the control register (MXCSR, FPCR) would change bits.
fn arithmetic_is_strict() -> bool {
    use std::hint::black_box;
    let half_ulp = black_box(f32::EPSILON / 2.0);
    let kept = black_box(f32::MIN_POSITIVE) * black_box(0.5) > 0.0
        && black_box(f32::from_bits(1)) + black_box(0.0) > 0.0;
    let to_nearest = black_box(1.0f32) + half_ulp == 1.0
        && black_box(1.0f32) + 1.5 * half_ulp > 1.0
        && black_box(-1.0f32) - half_ulp == -1.0;
    kept && to_nearest
}

fn range(span: Span) -> std::ops::Range<usize> {
    span.offset_words as usize..span.offset_words as usize + span.words as usize
}

impl Engine for CpuEngine {
    fn identity(&self) -> EngineIdentity {
        EngineIdentity {
            name: "cpu".to_owned(),
            adapter: self.code.target(),
            versions: vec![
                (
                    "cranelift".to_owned(),
                    cranelift_codegen::VERSION.to_owned(),
                ),
                ("naga".to_owned(), NAGA.to_owned()),
            ],
            strict: true,
        }
    }

    fn load(&mut self, kernel: &Kernel) -> Result<ProgramId, EngineError> {
        let known = self
            .programs
            .iter()
            .position(|program| program.signature.hash == kernel.hash);
        if let Some(number) = known {
            return Ok(ProgramId(number as u32));
        }
        let compiled = self.code.compile(kernel).map_err(|refusal| {
            let kernel = kernel.name.clone();
            match refusal {
                Refusal::Memory(reason) => EngineError::CodeMemory { kernel, reason },
                Refusal::Code(reason) => EngineError::Compile { kernel, reason },
            }
        })?;
        let signature = Signature::of(kernel);
        self.programs.push(Program {
            signature,
            compiled,
        });
        Ok(ProgramId(self.programs.len() as u32 - 1))
    }

    fn alloc_on(&mut self, shard: u32, words: u32, poison: u32) -> Result<ArenaId, EngineError> {
        assert_eq!(shard, 0, "a machine's memory is one");
        self.arenas.push(Vec::new());
        let arena = ArenaId(self.arenas.len() as u32 - 1);
        self.grow(arena, words, poison)?;
        Ok(arena)
    }

    fn grow(&mut self, arena: ArenaId, words: u32, poison: u32) -> Result<(), EngineError> {
        let Some(arena) = self.arenas.get_mut(arena.0 as usize) else {
            return Err(arena.first(words).outside());
        };
        let words = words as usize;
        if words <= arena.len() {
            return Ok(());
        }
        if words > arena.capacity()
            && let Some(mut spare) = self.spares.take(words)
        {
            spare.extend_from_slice(arena);
            self.spares.give(std::mem::replace(arena, spare));
        }
        arena
            .try_reserve_exact(words - arena.len())
            .map_err(|error| EngineError::OutOfMemory {
                words: words as u64,
                reason: error.to_string(),
            })?;
        arena.resize(words, poison);
        Ok(())
    }

    fn release(&mut self, arena: ArenaId) -> Result<(), EngineError> {
        let words = self.arenas.get_mut(arena.0 as usize);
        let words = words.ok_or_else(|| arena.first(0).outside())?;
        self.spares.give(std::mem::take(words));
        Ok(())
    }

    fn runs(&self) -> u64 {
        self.runs
    }

    fn run(&mut self, launches: &[Launch]) -> Result<(), EngineError> {
        self.runs += 1;
        for (place, launch) in launches.iter().enumerate() {
            let program = self
                .programs
                .get(launch.program.0 as usize)
                .ok_or_else(|| launch::unknown_program(launch, self.ran(place)))?;
            let words = |arena: u32| self.arenas.get(arena as usize).map(Vec::len);
            launch::check(&program.signature, launch, self.ran(place), words)?;
        }
        let programs = &self.programs[..];
        let operands = Operands::of(launches, programs, &mut self.arenas);
        let pieces = schedule::cut(launches, self.workers, |launch| {
            let signature = &programs[launch.program.0 as usize].signature;
            let in_place = signature
                .operands
                .iter()
                .any(|operand| operand.reads && operand.writes);
            Cost {
                invocations: work_of_workgroup(signature, launch),
                whole: in_place || launch::overlaps(launch),
            }
        });
        let run = |piece: &Vec<Slice>| run_piece(programs, launches, &operands, piece);
        // Pieces are in launch order, so the first error is that of the least launch, whichever
        // thread met its own first.
        let outcome: Vec<Result<(), (usize, &Fault)>> = match &self.pool {
            Some(pool) if pieces.len() > 1 => pool.install(|| pieces.par_iter().map(run).collect()),
            _ => pieces.iter().map(run).collect(),
        };
        match outcome.into_iter().find_map(Result::err) {
            Some((place, fault)) => Err(self.error_of(launches, place, fault)),
            None => Ok(()),
        }
    }

    fn copy(&mut self, copies: &[CopyWords]) -> Result<(), EngineError> {
        for copy in copies {
            if copy.from.words != copy.to.words {
                return Err(copy.to.outside());
            }
            if copy.from.arena == copy.to.arena {
                let (from, to) = (range(copy.from), copy.to.offset_words as usize);
                self.words(copy.from)?;
                self.words(copy.to)?;
                self.arenas[copy.from.arena.0 as usize].copy_within(from, to);
            } else {
                // Two arenas: the source is lent out of the list while the target is written.
                self.words(copy.from)?;
                self.words(copy.to)?;
                let source = std::mem::take(&mut self.arenas[copy.from.arena.0 as usize]);
                self.words_mut(copy.to)?
                    .copy_from_slice(&source[range(copy.from)]);
                self.arenas[copy.from.arena.0 as usize] = source;
            }
        }
        Ok(())
    }

    fn read(&mut self, span: Span) -> Result<Vec<u32>, EngineError> {
        self.words(span).map(<[u32]>::to_vec)
    }

    fn write(&mut self, span: Span, words: &[u32]) -> Result<(), EngineError> {
        let target = self.words_mut(span)?;
        if target.len() != words.len() {
            return Err(span.outside());
        }
        target.copy_from_slice(words);
        Ok(())
    }

    fn note(&mut self, spans: &[Span]) -> Result<(), EngineError> {
        let digests = self.digests(spans)?;
        self.noted.extend(digests);
        Ok(())
    }

    fn noted(&mut self) -> Result<Vec<Digest>, EngineError> {
        Ok(std::mem::take(&mut self.noted))
    }

    fn digests(&mut self, spans: &[Span]) -> Result<Vec<Digest>, EngineError> {
        let words: Vec<&[u32]> = spans
            .iter()
            .map(|span| self.words(*span))
            .collect::<Result<_, _>>()?;
        let total: usize = words.iter().map(|words| words.len()).sum();
        Ok(match &self.pool {
            Some(pool) if total >= DIGEST_WORDS_SHARED => pool.install(|| {
                let shared = words.par_iter();
                shared.map(|words| Digest::of_words(words)).collect()
            }),
            _ => words.iter().map(|words| Digest::of_words(words)).collect(),
        })
    }
}
