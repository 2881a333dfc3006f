//! Limits of a process, as /proc/self/limits has them (Linux, getrlimit(2)).

use crate::prove::memory::GIB;

/// Soft limits in bytes; `None` is no limit, or a system that does not tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Limits {
    /// `Max address space`: whatever is mapped.
    pub addresses: Option<u64>,
    /// `Max data size`: since Linux 4.7 all private memory that can be written, stacks of threads
    /// among it, touched or not.
    pub data: Option<u64>,
    /// `Max stack size`: what a thread gets that asks for no size.
    pub stack: Option<u64>,
}

impl Limits {
    pub fn of_this_process() -> Limits {
        Limits::read(&std::fs::read_to_string("/proc/self/limits").unwrap_or_default())
    }

    pub fn read(text: &str) -> Limits {
        Limits {
            addresses: row(text, "Max address space"),
            data: row(text, "Max data size"),
            stack: row(text, "Max stack size"),
        }
    }
}

fn row(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// A limit that a check can be too large for, and who sets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bound {
    Addresses,
    Data,
}

impl Bound {
    pub const ALL: [Bound; 2] = [Bound::Addresses, Bound::Data];

    pub fn of(self, limits: &Limits) -> Option<u64> {
        match self {
            Bound::Addresses => limits.addresses,
            Bound::Data => limits.data,
        }
    }

    /// What there is too little of.
    pub fn noun(self) -> &'static str {
        match self {
            Bound::Addresses => "addresses",
            Bound::Data => "memory that can be written",
        }
    }

    /// The row of /proc/self/limits.
    pub fn row(self) -> &'static str {
        match self {
            Bound::Addresses => "Max address space",
            Bound::Data => "Max data size",
        }
    }

    pub fn command(self) -> &'static str {
        match self {
            Bound::Addresses => "ulimit -v unlimited",
            Bound::Data => "ulimit -d unlimited",
        }
    }
}

pub(super) fn gib(bytes: u64) -> String {
    format!("{:.1} GiB", bytes as f64 / GIB as f64)
}

/// A need and the limit below it, with as many digits as it takes to tell them apart.
pub(super) fn apart(needed: u64, limit: u64) -> (String, String) {
    assert!(needed > limit, "{needed} bytes fit in {limit}");
    let told = |bytes: u64, digits: usize| format!("{:.digits$} GiB", bytes as f64 / GIB as f64);
    let pairs = (1..9).map(|digits| (told(needed, digits), told(limit, digits)));
    let different = pairs.into_iter().find(|(needed, limit)| needed != limit);
    different.unwrap_or_else(|| (format!("{needed} bytes"), format!("{limit} bytes")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_as_linux_writes_them() {
        let text = "\
Limit                     Soft Limit           Hard Limit           Units
Max data size             262144000            unlimited            bytes
Max stack size            8388608              unlimited            bytes
Max resident set          unlimited            unlimited            bytes
Max address space         524288000            unlimited            bytes
";
        let limits = Limits {
            addresses: Some(524_288_000),
            data: Some(262_144_000),
            stack: Some(8 << 20),
        };
        assert_eq!(Limits::read(text), limits);
        let found = Bound::ALL.map(|bound| bound.of(&limits));
        assert_eq!(found, [limits.addresses, limits.data]);
        assert_eq!(
            Limits::read("Max data size  unlimited  unlimited  bytes"),
            Limits::default()
        );
        assert_eq!(Limits::read(""), Limits::default());
    }

    #[test]
    fn a_need_and_its_limit_never_read_alike() {
        let told = |needed, limit| {
            let (needed, limit) = apart(needed, limit);
            assert_ne!(needed, limit);
            needed
        };
        assert_eq!(told(2 * GIB, GIB), "2.0 GiB");
        assert_eq!(told(1_250_000_000, 1_208_320_000), "1.2 GiB");
        assert_eq!(told(1_212_153_856, 1_208_320_000), "1.129 GiB");
        told(GIB + 1, GIB);
        assert_eq!(told(u64::MAX, u64::MAX - 1), "18446744073709551615 bytes");
    }
}
