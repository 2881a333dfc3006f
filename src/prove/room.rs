//! Whether the machine has the memory that a check needs, asked before any of it is taken.

use crate::diagnostic::{Diagnostic, escaped};
use crate::engine::EngineChoice;
use crate::prove::memory::{self, GIB, Memory};
use crate::scenario::Scenario;

/// The limit where the system does not tell what it has.
const LIMIT_UNKNOWN: u64 = 64 * GIB;

/// Why the scenario is refused, if it needs more than the machine has to give.
pub fn refusal(scenario: &Scenario) -> Option<Diagnostic> {
    // Options that do not go together have no size; the check itself says what is wrong.
    let memory = Memory::of(scenario).ok()?;
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    too_large(&memory, available(&meminfo))
}

/// Why the scenario is refused on an engine whose arenas are limited, if a rank surely needs more:
/// told before the engine has taken what it can.
pub fn arena_refusal(scenario: &Scenario, engine: &EngineChoice) -> Option<Diagnostic> {
    if *engine == EngineChoice::Cpu {
        return None;
    }
    let words = memory::largest_arena(scenario).ok()?;
    // What cannot be opened is told by the check itself.
    let opened = engine.open(1).ok()?;
    arena_too_large(words, opened.arena_words_max(), &opened.identity().adapter)
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

fn too_large(memory: &Memory, available: Option<u64>) -> Option<Diagnostic> {
    let limit = available.unwrap_or(LIMIT_UNKNOWN);
    if memory.total() <= limit {
        return None;
    }
    let limit = format!("{:.1} GiB", limit as f64 / GIB as f64);
    let why = match available {
        Some(_) => format!("this machine has {limit} available (`MemAvailable` of /proc/meminfo)"),
        None => format!("the limit is {limit}: this system does not tell what it has"),
    };
    let message = format!(
        "this scenario needs about {:.1} GiB",
        memory.total() as f64 / GIB as f64
    );
    Some(
        Diagnostic::error("too-large", message)
            .with_note(format!("about {memory}"))
            .with_note(why)
            .with_help(
                "keep the layout and scale `hidden_size`, `ffn_hidden_size`, `seq_length` and \
             `num_layers` down: which orders are possible follows from the layout",
            )
            .with_help("fewer `checkpoint.restarts` keep fewer copies of the ranks' memory"),
    )
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
            host: 0,
        };
        assert!(too_large(&memory, Some(6 * GIB)).is_none());
        let refused = too_large(&memory, Some(6 * GIB - 1)).unwrap();
        assert!(refused.message.contains("6.0 GiB"), "{}", refused.message);
        assert_eq!((refused.notes.len(), refused.help.len()), (2, 2));
        assert!(too_large(&memory, None).is_none());
        let large = Memory {
            arenas: LIMIT_UNKNOWN,
            ..memory
        };
        assert!(too_large(&large, None).is_some());
    }
}
