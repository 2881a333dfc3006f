//! Whether there is the memory that a check needs, asked before any of it is taken.

mod control_group;
mod driver;
mod limits;

use crate::diagnostic::{Diagnostic, escaped};
use crate::engine::{Engine, EngineChoice};
use crate::prove::CheckOptions;
use crate::prove::memory::{self, GIB, Memory};
use crate::prove::oracle::r2r;
use crate::prove::session::CheckError;
use crate::scenario::Scenario;
use crate::world::STACK_BYTES;
use driver::Driver;
use limits::{Bound, Limits, apart, gib};

/// The limit where the system does not tell what it has.
const LIMIT_UNKNOWN: u64 = 64 * GIB;

const MIB: u64 = 1 << 20;
/// Stack of an engine's worker thread (Rust's `std::thread`).
const WORKER_STACK_BYTES: u64 = 2 * MIB;
/// Addresses that glibc reserves for the allocations of a thread, and how many of these it makes
/// for each core until threads share them (malloc/arena.c, `HEAP_MAX_SIZE` and `narenas_limit`).
const MALLOC_ADDRESSES: u64 = 64 * MIB;
const MALLOC_ARENAS_A_CORE: u64 = 8;

/// What the system lets this process have; `None` where it does not say, or sets no limit.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Room {
    memory: Option<Limit>,
    limits: Limits,
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
            limits: Limits::of_this_process(),
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
    /// `bytes` is the limit with the digits that are worth telling.
    fn sentence(&self, bytes: &str) -> String {
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
    let need = Need::of(&memory, options, room.limits);
    let driver = need.driver.as_ref();
    if let Some(refused) = too_large(&memory, driver, room.memory.as_ref()) {
        return Some(with_less(refused, options, driver));
    }
    let beyond = |bound: Bound| {
        let needed = need.bytes(bound, malloc_arenas());
        beyond(bound, needed, bound.of(&room.limits)?, &memory)
    };
    let refused = Bound::ALL.into_iter().find_map(beyond)?;
    Some(with_less(refused, options, driver))
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
    driver: Option<&Driver>,
    available: Option<&Limit>,
) -> Option<Diagnostic> {
    let of_driver = driver.map_or(0, Driver::memory);
    let needed = memory.total().saturating_add(of_driver);
    let limit = available.map_or(LIMIT_UNKNOWN, |limit| limit.bytes);
    if needed <= limit {
        return None;
    }
    let (needed, limit) = apart(needed, limit);
    let why = match available {
        Some(available) => available.sentence(&limit),
        None => format!("the limit is {limit}: this system does not tell what it has"),
    };
    let message = format!("this scenario needs about {needed}");
    let refused = Diagnostic::error("too-large", message).with_note(format!("about {memory}"));
    let refused = match driver {
        Some(driver) => refused.with_note(format!(
            "an adapter's driver, {} of its devices open at once: about {} of it",
            driver.devices,
            gib(of_driver)
        )),
        None => refused,
    };
    Some(
        refused
            .with_note(why)
            .with_help(
                "keep the layout and scale `hidden_size`, `ffn_hidden_size`, `seq_length` and \
             `num_layers` down: which orders are possible follows from the layout",
            )
            .with_help("fewer `checkpoint.restarts` keep fewer copies of the ranks' memory"),
    )
}

/// What a check takes of what a limit of the process counts, memory behind it or not.
struct Need<'a> {
    memory: &'a Memory,
    /// Of the engine: of both runs' engines at once.
    workers: u64,
    driver: Option<Driver>,
    limits: Limits,
}

impl<'a> Need<'a> {
    fn of(memory: &'a Memory, options: &CheckOptions, limits: Limits) -> Need<'a> {
        let workers = options.workers.saturating_add(r2r::other(options.workers));
        Need {
            memory,
            workers: workers as u64,
            driver: Driver::of(options, memory.ranks),
            limits,
        }
    }

    fn bytes(&self, bound: Bound, malloc_arenas: u64) -> u64 {
        let ranks = u64::from(self.memory.ranks);
        let driver = self.driver.as_ref();
        let of_driver = driver.map_or(0, |driver| driver.threads);
        let threads = [ranks, self.workers, of_driver, 1].into_iter();
        let threads = threads.fold(0, u64::saturating_add);
        let reserved = match bound {
            Bound::Addresses => threads.min(malloc_arenas).saturating_mul(MALLOC_ADDRESSES),
            // What is reserved cannot be written until it is used.
            Bound::Data => 0,
        };
        let parts = [
            self.memory.total(),
            ranks * STACK_BYTES as u64,
            self.workers.saturating_mul(WORKER_STACK_BYTES),
            reserved,
            driver.map_or(0, |driver| driver.counted(bound, &self.limits)),
        ];
        parts.into_iter().fold(0, u64::saturating_add)
    }
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

/// What to raise where no driver was found and perhaps none fits: the loader says nothing of
/// libraries that it could not map.
pub fn too_tight_for_a_driver() -> Option<String> {
    too_tight(Limits::of_this_process())
}

fn too_tight(limits: Limits) -> Option<String> {
    let driver = Driver {
        devices: 1,
        threads: 2,
    };
    // A driver that is short by little ends the process: a quarter more than it was seen to take.
    let needed = |bound: Bound| driver.counted(bound, &limits) / 4 * 5;
    let tight = |bound: &Bound| {
        bound
            .of(&limits)
            .is_some_and(|limit| limit < needed(*bound))
    };
    let bound = Bound::ALL.into_iter().find(tight)?;
    let (needed, limit) = apart(needed(bound), bound.of(&limits)?);
    Some(format!(
        "`{}` first: a driver in software needs about {needed} of {}, and this process may have \
         {limit} (`{}` of /proc/self/limits)",
        bound.command(),
        bound.noun(),
        bound.row()
    ))
}

fn beyond(bound: Bound, needed: u64, limit: u64, memory: &Memory) -> Option<Diagnostic> {
    if needed <= limit {
        return None;
    }
    let (needed, limit) = apart(needed, limit);
    let message = format!("this check needs about {needed} of {}", bound.noun());
    let row = bound.row();
    let refused = Diagnostic::error("too-large", message)
        .with_note(format!("about {memory}"))
        .with_note(format!(
            "this process may have {limit} (`{row}` of /proc/self/limits)"
        ))
        .with_help(format!(
            "`{}` in the same shell, or a larger limit of the job",
            bound.command()
        ));
    Some(match bound {
        Bound::Addresses => {
            refused.with_help("with `MALLOC_ARENA_MAX=1` glibc reserves less for each thread")
        }
        Bound::Data => refused,
    })
}

/// What takes less, the least change first.
fn with_less(refused: Diagnostic, options: &CheckOptions, driver: Option<&Driver>) -> Diagnostic {
    let fewer = "check fewer ranks: `--grow-dp 1`, or `--world N`";
    let refused = match driver {
        Some(driver) if options.workers > 2 && driver.devices > 3 => {
            let open = driver.devices;
            refused.with_help(format!(
                "`--workers 1`: a driver in software is opened {open} times here, and each \
                 compiles every kernel"
            ))
        }
        _ => refused,
    };
    let refused = match (&options.engine, options.native_races) {
        (EngineChoice::Wgpu { .. }, _) => {
            refused.with_help("check with `--engine cpu`, which has no driver")
        }
        (EngineChoice::Cpu, Some(_)) => {
            refused.with_help("check without `--native-races`, which alone need a driver")
        }
        (EngineChoice::Cpu, None) => refused,
    };
    refused.with_help(fewer)
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
            serial: 0,
            host: 0,
        };
        let too_large = |memory: &Memory, driver: Option<&Driver>, bytes: Option<u64>| {
            super::too_large(memory, driver, least(bytes, None).as_ref())
        };
        assert!(too_large(&memory, None, Some(6 * GIB)).is_none());
        let refused = too_large(&memory, None, Some(5 * GIB)).unwrap();
        assert!(refused.message.contains("6.0 GiB"), "{}", refused.message);
        assert_eq!((refused.notes.len(), refused.help.len()), (2, 2));
        let close = too_large(&memory, None, Some(6 * GIB - 1)).unwrap();
        assert!(!close.notes[1].contains("6.0 GiB"), "{close:?}");
        assert!(too_large(&memory, None, None).is_none());
        let driver = Driver {
            devices: 9,
            threads: 10,
        };
        let enough = 6 * GIB + driver.memory();
        assert!(too_large(&memory, Some(&driver), Some(enough)).is_none());
        let refused = too_large(&memory, Some(&driver), Some(enough - 1)).unwrap();
        assert!(refused.notes[1].contains("9 of its devices"), "{refused:?}");
        let large = Memory {
            arenas: LIMIT_UNKNOWN,
            ..memory
        };
        assert!(too_large(&large, None, None).is_some());
    }

    #[test]
    fn the_lesser_of_machine_and_container_counts_and_is_named() {
        let file = "/sys/fs/cgroup/memory.max";
        let group = |bytes: u64| Some((bytes, file.to_owned()));
        let said = |limit: Option<Limit>| {
            let limit = limit.expect("a limit");
            limit.sentence(&gib(limit.bytes))
        };
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
            serial: 0,
            host: 0,
        };
        let refused = |group| {
            let limit = least(Some(64 * GIB), group);
            too_large(&memory, None, limit.as_ref())
        };
        let finding = refused(group(2 * GIB)).expect("too large for the container");
        assert_eq!(finding.notes[1], container);
        assert!(refused(None).is_none() && refused(group(3 * GIB)).is_none());
    }

    fn small(ranks: u32) -> Memory {
        Memory {
            ranks,
            arenas: 0,
            snapshots: 0,
            states: 0,
            serial: 0,
            host: 64 * MIB,
        }
    }

    fn wgpu(workers: usize) -> CheckOptions {
        CheckOptions {
            workers,
            engine: EngineChoice::Wgpu { adapter: None },
            native_races: None,
        }
    }

    #[test]
    fn threads_and_drivers_count_beside_the_memory() {
        let memory = small(16);
        let limits = Limits::default();
        let cpu = CheckOptions::default();
        let need = |options: &CheckOptions, bound, arenas| {
            Need::of(&memory, options, limits).bytes(bound, arenas)
        };
        // Two workers, and one of the second run.
        let fixed = 64 * MIB + 16 * STACK_BYTES as u64 + 3 * WORKER_STACK_BYTES;
        assert_eq!(
            need(&cpu, Bound::Addresses, 4),
            fixed + 4 * MALLOC_ADDRESSES
        );
        // Threads share arenas only where there are more of them.
        let many = need(&cpu, Bound::Addresses, 1000);
        assert_eq!(many, fixed + (16 + 3 + 1) * MALLOC_ADDRESSES);
        assert_eq!(need(&cpu, Bound::Data, 1000), fixed, "none is written");
        let endless = CheckOptions {
            workers: usize::MAX,
            ..cpu.clone()
        };
        assert_eq!(need(&endless, Bound::Addresses, u64::MAX), u64::MAX);
        let races = CheckOptions {
            native_races: Some(4),
            ..cpu.clone()
        };
        for options in [races, wgpu(2)] {
            let driver = Driver::of(&options, 16).expect("an adapter is opened");
            let more = |bound| need(&options, bound, 4) - need(&cpu, bound, 4);
            assert_eq!(
                more(Bound::Addresses),
                driver.counted(Bound::Addresses, &limits)
            );
            assert_eq!(more(Bound::Data), driver.counted(Bound::Data, &limits));
        }
    }

    #[test]
    fn each_limit_of_the_process_is_refused_with_its_command() {
        let memory = small(16);
        for (bound, command, other) in [
            (Bound::Addresses, "ulimit -v", "ulimit -d"),
            (Bound::Data, "ulimit -d", "ulimit -v"),
        ] {
            assert!(beyond(bound, GIB, GIB, &memory).is_none());
            let refused = beyond(bound, GIB + 1, GIB, &memory).expect("too few");
            let told = format!("{refused:?}");
            assert!(told.contains(command) && !told.contains(other), "{told}");
            assert!(told.contains(bound.row()), "{told}");
        }
    }

    #[test]
    fn a_limit_that_no_driver_fits_in_is_told() {
        assert_eq!(too_tight(Limits::default()), None);
        let limits = |addresses, data| Limits {
            addresses,
            data,
            stack: Some(8 * MIB),
        };
        assert_eq!(too_tight(limits(Some(4 * GIB), Some(GIB))), None);
        let told = too_tight(limits(Some(100 * MIB), None)).expect("too little");
        assert!(told.starts_with("`ulimit -v unlimited` first"), "{told}");
        let told = too_tight(limits(None, Some(100 * MIB))).expect("too little");
        assert!(
            told.contains("ulimit -d") && told.contains("Max data size"),
            "{told}"
        );
    }

    #[test]
    fn what_takes_less_fits_what_is_asked() {
        let told = |options: &CheckOptions, devices: u64| {
            let driver = Driver {
                devices,
                threads: devices + 1,
            };
            let driver = (devices > 0).then_some(driver);
            let refused = Diagnostic::error("too-large", "no");
            with_less(refused, options, driver.as_ref()).help.join("; ")
        };
        let cpu = CheckOptions::default();
        let alone = told(&cpu, 0);
        assert!(
            alone.contains("--world") && !alone.contains("--engine cpu"),
            "{alone}"
        );
        assert!(told(&wgpu(2), 3).contains("--engine cpu"));
        assert!(!told(&wgpu(2), 3).contains("--workers"));
        assert!(told(&wgpu(8), 9).contains("`--workers 1`"));
        assert!(
            !told(&wgpu(8), 2).contains("--workers"),
            "one rank has one device"
        );
        let races = CheckOptions {
            native_races: Some(4),
            ..cpu
        };
        assert!(told(&races, 1).contains("without `--native-races`"));
    }
}
