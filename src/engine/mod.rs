//! Engines run linked kernels on arenas of 32-bit words. An engine knows programs, arenas and
//! instances, never ranks.

mod choice;
pub mod cpu;
mod digests;
mod launch;
mod native;
pub mod self_test;
mod threads;
#[cfg(feature = "wgpu")]
pub mod wgpu;

pub use choice::EngineChoice;
pub(crate) use choice::{devices_at_most, driver_is_threadless};
pub use digests::DigestPrograms;
pub use native::{NativeAtomics, Race};

use crate::kernel::Kernel;
use crate::numerics::Digest;

/// The version of naga, and of wgpu, that kernels go through: part of what a token is bound to.
pub(crate) const NAGA: &str = "30.0.2";

/// Mesa's software driver runs workgroups on its queue's thread when this variable is `0`: then one
/// device a core is as fast as its thread pool, without the pool's wake-ups.
pub const POOL_VARIABLE: &str = "LP_NUM_THREADS";

/// A program loaded into an engine. Valid for the engine that returned it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProgramId(pub u32);

/// An arena of 32-bit words. Valid for the engine that returned it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ArenaId(pub u32);

/// A run of words in an arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    pub arena: ArenaId,
    pub offset_words: u32,
    pub words: u32,
}

impl ArenaId {
    /// Its first words.
    pub fn first(self, words: u32) -> Span {
        Span {
            arena: self,
            offset_words: 0,
            words,
        }
    }
}

impl Span {
    /// Whether the two share a word.
    pub fn meets(&self, other: &Span) -> bool {
        // In 64 bits: a span may be one that no arena has, and is refused later.
        let end = |span: &Span| u64::from(span.offset_words) + u64::from(span.words);
        self.arena == other.arena
            && u64::from(self.offset_words) < end(other)
            && u64::from(other.offset_words) < end(self)
    }

    /// The error of an engine that has no such words.
    fn outside(self) -> EngineError {
        EngineError::BadSpan {
            arena: self.arena.0,
            offset_words: self.offset_words,
            words: self.words,
        }
    }
}

/// One instance of a kernel: its operands in the order of the kernel's bindings.
#[derive(Clone, Debug)]
pub struct Launch {
    pub program: ProgramId,
    /// Workgroups in x, y, z.
    pub grid: [u32; 3],
    pub operands: Vec<Span>,
    /// The words of the kernel's `params` struct.
    pub params: Vec<u32>,
}

/// Words copied from one place to another of the same length. The two do not overlap.
#[derive(Clone, Copy, Debug)]
pub struct CopyWords {
    pub from: Span,
    pub to: Span,
}

/// What an engine is, for the certificate and for tokens.
#[derive(Clone, Debug, serde::Serialize)]
pub struct EngineIdentity {
    pub name: String,
    pub adapter: String,
    pub versions: Vec<(String, String)>,
    /// Strict IEEE arithmetic, nothing contracted or reassociated.
    pub strict: bool,
}

/// A launch: the number of its `run`, from 0 (`Engine::runs`), and its index in the slice given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ran {
    pub run: u64,
    pub launch: usize,
}

/// Why an engine could not do what was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    #[error("kernel {kernel} indexes operand `{operand}` outside its {extent} elements")]
    OutOfExtent {
        kernel: String,
        operand: String,
        extent: u32,
        at: Ran,
    },
    #[error("kernel {kernel} indexes a vector or a local array outside its elements")]
    OutsideLocal { kernel: String, at: Ran },
    #[error("kernel {kernel} loops as long as its driver may end loops before their time")]
    CutShort { kernel: String, at: Ran },
    #[error("kernel {kernel}: {reason}")]
    Unsupported { kernel: String, reason: String },
    #[error("kernel {kernel} cannot be compiled: {reason}")]
    Compile { kernel: String, reason: String },
    #[error("kernel {kernel}: no memory for its code: {reason}")]
    CodeMemory { kernel: String, reason: String },
    #[error("the cpu engine does not run on this machine: {reason}")]
    Machine { reason: String },
    #[error("kernel {kernel} needs {reason}")]
    Limits { kernel: String, reason: String },
    #[error("a launch of {kernel} is malformed: {reason}")]
    BadLaunch {
        kernel: String,
        reason: String,
        at: Ran,
    },
    #[error(
        "no {words} words at {offset_words} in arena {arena}, or not the same number on both sides"
    )]
    BadSpan {
        arena: u32,
        offset_words: u32,
        words: u32,
    },
    #[error("no usable adapter: {reason}")]
    NoAdapter { reason: String },
    #[error("the adapter is there, and its driver gets no memory: {reason}")]
    DriverMemory { reason: String },
    #[error("the device failed: {reason}")]
    Device { reason: String },
    #[error("the device has not answered for {seconds} s")]
    Timeout { seconds: u64 },
    #[error("arena of {words} words cannot be had: {reason}")]
    OutOfMemory { words: u64, reason: String },
    #[error("worker threads cannot be had: {reason}")]
    Threads { reason: String },
}

/// What to do where the system gives no more threads.
pub(crate) const MORE_THREADS: &str = "raise the limit of processes and threads (`ulimit -u`, \
     `pids.max` of a container), or check fewer ranks or with fewer `--workers`";

impl EngineError {
    /// What to do next, for a person at a command line who chose `engine`. An adapter's errors come
    /// from native races where the engine is the processor.
    pub fn help(&self, engine: &EngineChoice) -> &'static str {
        let on_cpu = matches!(engine, EngineChoice::Cpu);
        match self {
            EngineError::NoAdapter { .. } if on_cpu => {
                "`bitproof doctor` shows which adapters there are, and what installs one; a check \
                 without `--native-races` needs none"
            }
            EngineError::NoAdapter { .. } => {
                "`bitproof doctor` shows which adapters there are, and what installs one; the \
                 engine `cpu` needs none"
            }
            EngineError::Limits { .. } if on_cpu => {
                "another adapter may do: `bitproof doctor` shows their limits; a check without \
                 `--native-races` has none"
            }
            EngineError::Limits { .. } => {
                "another adapter may do: `bitproof doctor` shows their limits; `--engine cpu` has \
                 none"
            }
            EngineError::OutOfMemory { .. } if on_cpu => {
                "check fewer ranks (`--world`, `--grow-dp 1`) or a smaller model, or raise what \
                 limits memory (`ulimit -v`, a container's limit)"
            }
            EngineError::OutOfMemory { .. } => {
                "check fewer ranks (`--world`, `--grow-dp 1`) or a smaller model, or with \
                 `--engine cpu`, whose memory is the machine's"
            }
            EngineError::CodeMemory { .. } => {
                "raise what limits memory (`ulimit -v`, a container's limit), or check fewer ranks \
                 (`--world`, `--grow-dp 1`)"
            }
            EngineError::DriverMemory { .. } => {
                "raise what limits memory (`ulimit -v`, `ulimit -d`, a container's limit), or \
                 check with `--workers 2`: beyond that each worker opens the adapter once more"
            }
            EngineError::Threads { .. } => MORE_THREADS,
            EngineError::Device { .. } | EngineError::Timeout { .. } if on_cpu => {
                "`bitproof doctor` tells whether the device still works; a check without \
                 `--native-races` needs none"
            }
            EngineError::Device { .. } | EngineError::Timeout { .. } => {
                "`bitproof doctor` tells whether the device still works; `--engine cpu` needs none"
            }
            EngineError::CutShort { .. } => {
                "lavapipe may stop after 32,767 rounds: check a smaller model, or with \
                 `--engine cpu`, which has no such limit"
            }
            EngineError::Unsupported { .. } if on_cpu => {
                "`bitproof doctor` shows this machine's engines and adapters, to report it with \
                 this line"
            }
            EngineError::Unsupported { .. } => {
                "`bitproof doctor` names the driver, to report it with this line; `--engine cpu` \
                 compiles kernels itself"
            }
            EngineError::Machine { .. } => {
                "`--engine wgpu` needs an adapter instead: `bitproof doctor` shows which there are"
            }
            EngineError::Compile { .. }
            | EngineError::OutOfExtent { .. }
            | EngineError::OutsideLocal { .. }
            | EngineError::BadLaunch { .. }
            | EngineError::BadSpan { .. } => {
                "this is a fault of bitproof, not of your input: please report it"
            }
        }
    }

    /// Which launch was refused or went wrong, where one was or did.
    pub fn launch(&self) -> Option<Ran> {
        match self {
            EngineError::OutOfExtent { at, .. }
            | EngineError::OutsideLocal { at, .. }
            | EngineError::CutShort { at, .. }
            | EngineError::BadLaunch { at, .. } => Some(*at),
            _ => None,
        }
    }
}

/// Runs kernels. All launches of one `run` are independent of each other: an engine may run them in
/// any order, or at once, and the bits do not depend on it.
///
/// An engine may answer `run` and `copy` before the work is done; whatever reads sees its results
/// all the same, and a fault of a launch is told by a later call, with the number of its run.
pub trait Engine: Send {
    fn identity(&self) -> EngineIdentity;

    /// Memories that arenas can lie in. Operands of one launch lie in one of them; copies cross.
    fn shards(&self) -> u32 {
        1
    }

    /// The memory that an arena lies in.
    fn shard_of(&self, arena: ArenaId) -> u32 {
        let _ = arena;
        0
    }

    /// The most words of one arena.
    fn arena_words_max(&self) -> u32 {
        u32::MAX
    }

    /// Loading a kernel again gives the same program.
    fn load(&mut self, kernel: &Kernel) -> Result<ProgramId, EngineError>;

    /// A new arena in the given memory, every word of it `poison`.
    fn alloc_on(&mut self, shard: u32, words: u32, poison: u32) -> Result<ArenaId, EngineError>;

    /// A new arena in the first memory.
    fn alloc(&mut self, words: u32, poison: u32) -> Result<ArenaId, EngineError> {
        self.alloc_on(0, words, poison)
    }

    /// Makes an arena at least `words` long; old words keep their values, new ones are `poison`.
    fn grow(&mut self, arena: ArenaId, words: u32, poison: u32) -> Result<(), EngineError>;
    /// Gives an arena's memory back. The id is not used again.
    fn release(&mut self, arena: ArenaId) -> Result<(), EngineError>;
    fn run(&mut self, launches: &[Launch]) -> Result<(), EngineError>;
    /// Calls of `run` so far: the number of the next one.
    fn runs(&self) -> u64;
    fn copy(&mut self, copies: &[CopyWords]) -> Result<(), EngineError>;
    fn read(&mut self, span: Span) -> Result<Vec<u32>, EngineError>;
    fn write(&mut self, span: Span, words: &[u32]) -> Result<(), EngineError>;

    /// Waits for all work, and tells of what went wrong in it.
    fn settle(&mut self) -> Result<(), EngineError> {
        Ok(())
    }

    /// Asks for the digest of each span as it is now. They may be taken when `noted` asks for
    /// them, but of these words.
    fn note(&mut self, spans: &[Span]) -> Result<(), EngineError>;

    /// The digests asked for since the last call, in order.
    fn noted(&mut self) -> Result<Vec<Digest>, EngineError>;

    /// Digests of the words of each span.
    fn digests(&mut self, spans: &[Span]) -> Result<Vec<Digest>, EngineError> {
        spans
            .iter()
            .map(|span| Ok(Digest::of_words(&self.read(*span)?)))
            .collect()
    }
}
