//! Whether the machine has the memory that a check needs, asked before any of it is taken.

use crate::diagnostic::Diagnostic;
use crate::prove::memory::{GIB, Memory};
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
