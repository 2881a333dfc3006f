//! Whether there is the memory that a check needs, asked before any of it is taken.

mod control_group;

use crate::diagnostic::{Diagnostic, escaped};
use crate::engine::{Engine, EngineChoice};
use crate::prove::CheckOptions;
use crate::prove::memory::{self, GIB, Memory};
use crate::prove::session::CheckError;
use crate::scenario::Scenario;
use crate::world::STACK_BYTES;

/// The limit where the system does not tell what it has.
const LIMIT_UNKNOWN: u64 = 64 * GIB;

const MIB: u64 = 1 << 20;
/// What an adapter's driver and its compiler take beside the arenas, and of addresses with a heap
/// that is begun. Measured with lavapipe of Mesa 22.3.6.
const ADAPTER_BYTES: u64 = 160 * MIB;
const ADAPTER_ADDRESSES: u64 = 512 * MIB;
/// Addresses that glibc reserves for the allocations of a thread, and how many of these it makes
/// for each core until threads share them (malloc/arena.c, `HEAP_MAX_SIZE` and `narenas_limit`).
const MALLOC_ADDRESSES: u64 = 64 * MIB;
const MALLOC_ARENAS_A_CORE: u64 = 8;

/// What the system lets this process have; `None` where it does not say, or sets no limit.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Room {
    memory: Option<Limit>,
    addresses: Option<u64>,
}

/// The least limit of memory, in bytes, and who sets it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Limit {
    bytes: u64,
    set_by: SetBy,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum SetBy {
    /// What the machine has left.
    Machine,
    /// A control group, as of a container or a job; the file with its limit.
    ControlGroup(String),
}

impl Room {
    fn of_this_process() -> Room {
        let read = |path: &str| std::fs::read_to_string(path).ok();
        let text = |path: &str| read(path).unwrap_or_default();
        Room {
            memory: least(
                available(&text("/proc/meminfo")),
                control_group::memory_max(&text("/proc/self/cgroup"), read),
            ),
            addresses: address_space(&text("/proc/self/limits")),
        }
    }
}

fn least(machine: Option<u64>, group: Option<(u64, String)>) -> Option<Limit> {
    let machine = machine.map(|bytes| Limit {
        bytes,
        set_by: SetBy::Machine,
    });
    let group = group.map(|(bytes, file)| Limit {
        bytes,
        set_by: SetBy::ControlGroup(file),
    });
    let both = [machine, group].into_iter().flatten();
    both.min_by_key(|limit| limit.bytes)
}

impl Limit {
    fn sentence(&self) -> String {
        let bytes = gib(self.bytes);
        match &self.set_by {
            SetBy::Machine => {
                format!("this machine has {bytes} available (`MemAvailable` of /proc/meminfo)")
            }
            SetBy::ControlGroup(file) => {
                let file = escaped(file);
                format!("this process's control group may have {bytes} ({file})")
            }
        }
    }
}

/// Why the scenario is refused, if it needs more than this process can have.
pub fn refusal(scenario: &Scenario, options: &CheckOptions) -> Option<Diagnostic> {
    // Options that do not go together have no size; the check itself says what is wrong.
    let memory = Memory::of(scenario).ok()?;
    let room = Room::of_this_process();
    let refused = too_large(&memory, &options.engine, room.memory.as_ref());
    refused.or_else(|| {
        let needed = addresses(&memory, options, malloc_arenas());
        too_many_addresses(&memory, &options.engine, needed, room.addresses?)
    })
}

/// Refuses a scenario of which a rank surely needs a larger arena than the engine has, before the
/// engine has taken what it can.
///
/// # Errors
/// `CheckError::TooLarge`.
pub fn of_arenas(scenario: &Scenario, engine: &dyn Engine) -> Result<(), CheckError> {
    let words = memory::largest_arena(scenario)?;
    match arena_too_large(words, engine.arena_words_max(), &engine.identity().adapter) {
        Some(finding) => Err(CheckError::TooLarge(Box::new(finding))),
        None => Ok(()),
    }
}

/// The estimate is up to a quarter above what a rank takes.
fn arena_too_large(words: u64, most: u32, adapter: &str) -> Option<Diagnostic> {
    if words / 5 * 4 <= u64::from(most) {
        return None;
    }
    let mib = |words: u64| format!("{} MiB", words.div_ceil(1 << 18));
    let message = format!("a rank needs about {} of the adapter's memory", mib(words));
    Some(
        Diagnostic::error("too-large-for-adapter", message)
            .with_note(format!(
                "{} binds {} at once, and a rank's memory is one binding",
                escaped(adapter),
                mib(u64::from(most))
            ))
            .with_help("check it with --engine cpu, whose memory is the machine's")
            .with_help("more tensor- or pipeline-parallel ranks have less memory each"),
    )
}

fn too_large(
    memory: &Memory,
    engine: &EngineChoice,
    available: Option<&Limit>,
) -> Option<Diagnostic> {
    let needed = match engine {
        EngineChoice::Cpu => memory.total(),
        EngineChoice::Wgpu { .. } => memory.total().saturating_add(ADAPTER_BYTES),
    };
    let limit = available.map_or(LIMIT_UNKNOWN, |limit| limit.bytes);
    if needed <= limit {
        return None;
    }
    let why = match available {
        Some(limit) => limit.sentence(),
        None => format!(
            "the limit is {}: this system does not tell what it has",
            gib(limit)
        ),
    };
    let message = format!("this scenario needs about {}", gib(needed));
    Some(
        Diagnostic::error("too-large", message)
            .with_note(format!("about {memory}"))
            .with_note(why)
            .with_help(
                "keep the layout and scale `hidden_size`, `ffn_hidden_size`, `seq_length` and \
             `num_layers` down: which orders are possible follows from the layout",
            )
            .with_help("check fewer ranks: `--grow-dp 1`, or `--world N`")
            .with_help("fewer `checkpoint.restarts` keep fewer copies of the ranks' memory"),
    )
}

/// Addresses that a check takes, memory behind them or not.
fn addresses(memory: &Memory, options: &CheckOptions, malloc_arenas: u64) -> u64 {
    let threads = u64::from(memory.ranks) + options.workers as u64 + 1;
    let parts = [
        memory.total(),
        u64::from(memory.ranks) * STACK_BYTES as u64,
        threads.min(malloc_arenas) * MALLOC_ADDRESSES,
        // Races need an adapter, whatever runs the check.
        match (&options.engine, options.native_races) {
            (EngineChoice::Cpu, None) => 0,
            _ => ADAPTER_ADDRESSES,
        },
    ];
    parts.into_iter().fold(0, u64::saturating_add)
}

/// Arenas of this process's allocator, at most. Only glibc reserves addresses for them.
fn malloc_arenas() -> u64 {
    if !cfg!(target_env = "gnu") {
        return 0;
    }
    let asked = std::env::var("MALLOC_ARENA_MAX").ok();
    let asked = asked
        .and_then(|text| text.parse().ok())
        .filter(|count| *count > 0);
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
    asked.unwrap_or(MALLOC_ARENAS_A_CORE * cores)
}

fn too_many_addresses(
    memory: &Memory,
    engine: &EngineChoice,
    needed: u64,
    limit: u64,
) -> Option<Diagnostic> {
    if needed <= limit {
        return None;
    }
    let message = format!("this check needs about {} of addresses", gib(needed));
    let fewer = match engine {
        EngineChoice::Cpu => "check fewer ranks: `--grow-dp 1`, or `--world N`",
        EngineChoice::Wgpu { .. } => {
            "check with `--engine cpu`, which has no driver, or fewer ranks: `--grow-dp 1`, or \
             `--world N`"
        }
    };
    Some(
        Diagnostic::error("too-large", message)
            .with_note(format!("about {memory}"))
            .with_note(format!(
                "this process may have {} (`Max address space` of /proc/self/limits)",
                gib(limit)
            ))
            .with_help("`ulimit -v unlimited` in the same shell, or a larger limit of the job")
            .with_help("with `MALLOC_ARENA_MAX=1` glibc reserves less for each thread")
            .with_help(fewer),
    )
}

fn gib(bytes: u64) -> String {
    format!("{:.1} GiB", bytes as f64 / GIB as f64)
}

/// `MemAvailable` of `/proc/meminfo` in bytes: an estimate of what can be had without swapping
/// (Linux, Documentation/filesystems/proc.rst).
fn available(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

/// The soft limit `Max address space` of `/proc/self/limits` in bytes; `None` for `unlimited`
/// (Linux, Documentation/filesystems/proc.rst).
fn address_space(limits: &str) -> Option<u64> {
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max address space"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn available_memory_is_read_as_linux_writes_it() {
        let text = "MemTotal:       24659892 kB\nMemAvailable:   22054164 kB\n";
        assert_eq!(available(text), Some(22_054_164 * 1024));
        for text in [
            "",
            "MemAvailable: many kB",
            "MemAvailable: 5 MB",
            "MemFree: 5 kB",
        ] {
            assert_eq!(available(text), None, "{text}");
        }
    }

    #[test]
    fn a_rank_that_no_adapter_binds_is_refused_with_a_way_out() {
        let most = 1 << 25;
        let sure = u64::from(most) / 4 * 5;
        assert!(arena_too_large(sure, most, "a").is_none(), "it may fit");
        let refused = arena_too_large(sure + 5, most, "an\u{1b} adapter").expect("it cannot fit");
        assert!(refused.help[0].contains("--engine cpu"), "{refused:?}");
        assert!(
            refused.notes[0].contains("an\\u{1b} adapter binds 128 MiB"),
            "{refused:?}"
        );
        assert!(arena_too_large(u64::MAX, u32::MAX, "cpu").is_some());
    }

    #[test]
    fn more_than_there_is_is_refused_with_a_hint() {
        let memory = Memory {
            ranks: 4,
            arenas: 3 * GIB,
            snapshots: 2 * GIB,
            states: GIB,
            host: 0,
        };
        let cpu = EngineChoice::Cpu;
        let too_large = |memory: &Memory, engine: &EngineChoice, bytes: Option<u64>| {
            super::too_large(memory, engine, least(bytes, None).as_ref())
        };
        assert!(too_large(&memory, &cpu, Some(6 * GIB)).is_none());
        let refused = too_large(&memory, &cpu, Some(6 * GIB - 1)).unwrap();
        assert!(refused.message.contains("6.0 GiB"), "{}", refused.message);
        assert_eq!((refused.notes.len(), refused.help.len()), (2, 3));
        assert!(too_large(&memory, &cpu, None).is_none());
        let wgpu = EngineChoice::Wgpu { adapter: None };
        assert!(too_large(&memory, &wgpu, Some(6 * GIB)).is_some());
        assert!(too_large(&memory, &wgpu, Some(6 * GIB + ADAPTER_BYTES)).is_none());
        let large = Memory {
            arenas: LIMIT_UNKNOWN,
            ..memory
        };
        assert!(too_large(&large, &cpu, None).is_some());
    }

    #[test]
    fn the_lesser_of_machine_and_container_counts_and_is_named() {
        let file = "/sys/fs/cgroup/memory.max";
        let group = |bytes: u64| Some((bytes, file.to_owned()));
        let said = |limit: Option<Limit>| limit.expect("a limit").sentence();
        let container = said(least(Some(8 * GIB), group(2 * GIB)));
        assert!(
            container.contains("control group may have 2.0 GiB (/sys/fs/cgroup/memory.max)"),
            "{container}"
        );
        let machine = said(least(Some(GIB), group(2 * GIB)));
        assert!(machine.contains("machine has 1.0 GiB"), "{machine}");
        assert!(said(least(None, group(GIB))).contains("control group"));
        assert_eq!(least(None, None), None);
        let memory = Memory {
            ranks: 4,
            arenas: 3 * GIB,
            snapshots: 0,
            states: 0,
            host: 0,
        };
        let refused = |group| {
            let limit = least(Some(64 * GIB), group);
            too_large(&memory, &EngineChoice::Cpu, limit.as_ref())
        };
        let finding = refused(group(2 * GIB)).expect("too large for the container");
        assert_eq!(finding.notes[1], container);
        assert!(refused(None).is_none() && refused(group(3 * GIB)).is_none());
    }

    #[test]
    fn the_limit_of_addresses_is_read_as_linux_writes_it() {
        let row = |limit: &str| {
            format!(
                "Limit                     Soft Limit           Hard Limit           Units\n\
                 Max resident set          unlimited            unlimited            bytes\n\
                 Max address space         {limit:21}unlimited            bytes\n"
            )
        };
        assert_eq!(address_space(&row("524288000")), Some(524_288_000));
        assert_eq!(address_space(&row("unlimited")), None);
        assert_eq!(address_space(""), None);
    }

    #[test]
    fn too_few_addresses_are_refused_with_a_hint() {
        let memory = Memory {
            ranks: 16,
            arenas: 0,
            snapshots: 0,
            states: 0,
            host: 64 * MIB,
        };
        let options = CheckOptions::default();
        let fixed = 64 * MIB + 16 * STACK_BYTES as u64;
        let needed = addresses(&memory, &options, 4);
        assert_eq!(needed, fixed + 4 * MALLOC_ADDRESSES);
        // Threads share arenas only where there are more of them.
        let many = addresses(&memory, &options, 1000);
        assert_eq!(many, fixed + (16 + 2 + 1) * MALLOC_ADDRESSES);
        let races = CheckOptions {
            native_races: Some(4),
            ..options.clone()
        };
        assert_eq!(addresses(&memory, &races, 4), needed + ADAPTER_ADDRESSES);
        let wgpu = CheckOptions {
            engine: EngineChoice::Wgpu { adapter: None },
            ..options
        };
        assert_eq!(addresses(&memory, &wgpu, 4), needed + ADAPTER_ADDRESSES);
        let refused = |engine, limit| too_many_addresses(&memory, engine, needed, limit);
        assert!(refused(&wgpu.engine, needed).is_none());
        let on_cpu = refused(&EngineChoice::Cpu, needed - 1).expect("too few");
        assert!(!on_cpu.help.iter().any(|help| help.contains("--engine cpu")));
        let refused = refused(&wgpu.engine, needed - 1).expect("too few");
        assert!(refused.help.iter().any(|help| help.contains("ulimit -v")));
        assert!(
            refused
                .help
                .iter()
                .any(|help| help.contains("--engine cpu"))
        );
    }
}
