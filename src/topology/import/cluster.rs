//! Hosts by name, from files that know nothing of GPUs.

use std::ops::Range;

use super::{Given, Imported, Machine, Refused, name_of};
use crate::diagnostic::{Diagnostic, Place, Source, escaped};
use crate::topology::{ChannelGraph, MAX_RANKS, Topology};

/// Host names that a comment lists.
const NAMES_SHOWN: usize = 64;

/// Ranges of one name; Slurm has at most a few.
const RANGES_MAX: usize = 8;

/// Hosts in their order, and how many of them NVLink joins.
pub(super) struct Cluster {
    pub hosts: Vec<String>,
    pub hosts_per_nvlink_domain: u32,
    pub notes: Vec<String>,
}

impl Cluster {
    /// Equal hosts with as many GPUs as the user says.
    pub fn into_topology(self, sources: &[Source], given: &Given) -> Result<Imported, Refused> {
        let whole = Place::new(&sources[0], 0..sources[0].text.len());
        if self.hosts.is_empty() {
            let finding = Diagnostic::error("no-host", "the file names no host");
            return Err(Box::new(finding.at(&whole, "of this file")));
        }
        let Some(gpus_per_host) = given.gpus_per_host else {
            let message = "the file does not say how many GPUs a host has";
            let finding = Diagnostic::error("no-gpus", message).at(&whole, "of this file");
            return Err(Box::new(finding.with_help("say `--gpus-per-host N`")));
        };
        let mut notes = vec![
            "the file tells hosts, not GPUs: those, and what NCCL finds between them, are not in it"
                .to_string(),
        ];
        notes.extend(self.notes);
        notes.push(named(&self.hosts));
        let domain = self.hosts_per_nvlink_domain;
        Ok(Imported {
            machine: Machine::Topology(Topology {
                name: name_of(sources, given),
                hosts: self.hosts.len() as u32,
                gpus_per_host,
                hosts_per_nvlink_domain: domain,
                graph: ChannelGraph::ascending(gpus_per_host.saturating_mul(domain).min(MAX_RANKS)),
                alone: None,
            }),
            notes,
        })
    }
}

/// A comment with the names of hosts, in order.
pub(super) fn named(hosts: &[String]) -> String {
    let shown: Vec<String> = hosts
        .iter()
        .take(NAMES_SHOWN)
        .map(|host| escaped(host).into_owned())
        .collect();
    let rest = hosts.len().saturating_sub(NAMES_SHOWN);
    let more = match rest {
        0 => String::new(),
        rest => format!(" and {rest} more"),
    };
    format!("hosts in order: {}{more}", shown.join(" "))
}

/// Names of a host list of Slurm: `gpu[01-04,7],login1`.
pub(super) fn host_list(
    source: &Source,
    list: &str,
    span: &Range<usize>,
) -> Result<Vec<String>, Refused> {
    let refuse = |message: String| {
        let place = Place::new(source, span.clone());
        let finding = Diagnostic::error("host-list", message);
        Box::new(finding.at(&place, "expected names such as gpu[01-04,7]"))
    };
    let mut names = Vec::new();
    let mut depth = 0;
    let items = list.split(|c: char| {
        match c {
            '[' => depth += 1,
            ']' => depth -= 1,
            _ => {}
        }
        c == ',' && depth == 0
    });
    for item in items.filter(|item| !item.trim().is_empty()) {
        let room = MAX_RANKS as usize - names.len();
        match expanded(item.trim(), room) {
            Ok(found) => names.extend(found),
            Err(why) => return Err(refuse(format!("`{}`: {why}", escaped(item)))),
        }
    }
    Ok(names)
}

/// Digits of a number in a host's name, and bytes of what stands before one.
const DIGITS_MAX: usize = 20;
const NAME_BYTES_MAX: usize = 255;

/// The names of one item, at most `room`.
fn expanded(item: &str, room: usize) -> Result<Vec<String>, String> {
    if item.matches('[').count() > RANGES_MAX {
        return Err(format!("more than {RANGES_MAX} ranges in a name"));
    }
    let too_many = || format!("more than {MAX_RANKS} hosts");
    let Some((head, rest)) = item.split_once('[') else {
        return match item.contains(']') {
            true => Err("`]` without `[`".to_string()),
            false if room == 0 => Err(too_many()),
            false => Ok(vec![item.to_string()]),
        };
    };
    let (ranges, tail) = rest.split_once(']').ok_or("`[` without `]`")?;
    let tails = match tail {
        "" => vec![String::new()],
        tail => expanded(tail, room)?,
    };
    let mut names = Vec::new();
    for range in ranges.split(',') {
        let (from, to) = range.split_once('-').unwrap_or((range, range));
        let digits = |text: &str| {
            let is_number = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
            text.parse::<u64>().ok().filter(|_| is_number)
        };
        let (Some(first), Some(last)) = (digits(from), digits(to)) else {
            return Err(format!("`{}` is no range of numbers", escaped(range)));
        };
        if from.len() > DIGITS_MAX || head.len() > NAME_BYTES_MAX {
            return Err("a name that no host has: it is too long".to_string());
        }
        // A range that goes down has nothing in it.
        if last.saturating_sub(first) >= room as u64 {
            return Err(too_many());
        }
        for number in first..=last {
            for tail in &tails {
                if names.len() == room {
                    return Err(too_many());
                }
                names.push(format!("{head}{number:0width$}{tail}", width = from.len()));
            }
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &str) -> Result<Vec<String>, String> {
        let source = Source::new("topology.conf", list);
        host_list(&source, list, &(0..list.len())).map_err(|finding| finding.message.clone())
    }

    /// Ranges that no cluster has are refused at once.
    #[test]
    fn endless_ranges_are_refused() {
        let zeros = "0".repeat(70_000);
        for list in [
            "a[1-18446744073709551615]".to_string(),
            "a[1-18446744073709551615][5-4]".to_string(),
            format!("a[{zeros}1]"),
            format!("{}[1-2]", "a".repeat(300)),
        ] {
            assert!(names(&list).is_err(), "{}", &list[..list.len().min(40)]);
        }
        assert_eq!(names("a[08-10]").unwrap(), ["a08", "a09", "a10"]);
    }

    #[test]
    fn host_lists_are_expanded_as_slurm_does() {
        let list = names("gpu[08-10,2],login1,r[1-2]n[1-2]").unwrap();
        let expected = "gpu08 gpu09 gpu10 gpu2 login1 r1n1 r1n2 r2n1 r2n2";
        assert_eq!(list.join(" "), expected);
        assert!(names("gpu[1-").unwrap_err().contains("without `]`"));
        assert!(names("gpu]1").unwrap_err().contains("without `[`"));
        assert!(
            names("gpu[a-b]")
                .unwrap_err()
                .contains("no range of numbers")
        );
        assert!(
            names("gpu[1-99999999]")
                .unwrap_err()
                .contains("more than 65536 hosts")
        );
        assert!(
            names("a[1-999][1-999][1-999]")
                .unwrap_err()
                .contains("more than")
        );
        let many = "[1]".repeat(100_000);
        assert!(names(&many).unwrap_err().contains("more than 8 ranges"));
        assert_eq!(names("gpu[5-4]").unwrap(), Vec::<String>::new());
    }
}
