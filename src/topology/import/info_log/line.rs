//! One line of an NCCL INFO log: who wrote it, and what of it plans can use.
//!
//! Formats read in NCCL 2.30.7 (`init.cc`, `graph/connect.cc`, `graph/rings.cc`) and in public logs
//! of 2.18 to 2.28: `host:pid:tid [dev] NCCL INFO ...`, with anything before it.

/// Length at which NCCL cuts the text of a `Trees` line (`char line[1024]`).
const TREES_CHARS: usize = 1022;

/// Who wrote a line.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Writer {
    pub host: String,
    pub pid: u64,
    pub tid: u64,
    /// CUDA device of the thread.
    pub dev: Option<u32>,
}

/// How a rank names the communicator that it joins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Identity<'a> {
    /// Address in the process.
    pub comm: &'a str,
    pub rank: u32,
    pub nranks: u32,
    pub nvml_dev: Option<u32>,
    pub cuda_dev: Option<u32>,
    pub id: Option<&'a str>,
    /// Address of the parent, how often it was split before, and the colour.
    pub split: Option<(&'a str, &'a str, &'a str)>,
    pub is_complete: bool,
}

/// Neighbours of a rank in one channel's tree; -1 is nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Branch {
    pub channel: u32,
    pub up: i64,
    pub rank: u32,
    pub down: [i64; 3],
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Event<'a> {
    Identity(Identity<'a>),
    /// `comm ... rank R nRanks N nNodes K ...`
    Nodes {
        comm: &'a str,
        rank: u32,
        nranks: u32,
        nodes: u32,
        local_rank: Option<u32>,
    },
    Ring {
        channel: u32,
        before: u32,
        rank: u32,
        after: u32,
    },
    /// The trees of all channels of one rank, as far as the line was not cut.
    Trees {
        branches: Vec<Branch>,
        is_cut: bool,
    },
    Tree(Branch),
    /// The whole ring of one channel; `None` where the line was cut.
    Channel {
        channel: u32,
        of: u32,
        ring: Option<Vec<u32>>,
    },
    /// A variable that NCCL found in the environment.
    Variable {
        name: &'a str,
        value: &'a str,
    },
    /// One of these lines, written as no known version writes it.
    Odd(&'static str),
}

/// The writer of a line, and what it wrote; `None` for lines of no use.
pub(super) fn read(line: &str) -> Option<(Writer, Event<'_>)> {
    let (before, text) = line.split_once(" NCCL INFO ")?;
    let text = text.trim_end();
    let event = event(text)?;
    Some((writer(before)?, event))
}

fn writer(before: &str) -> Option<Writer> {
    let before = before.trim_end();
    let (before, dev) = match before
        .strip_suffix(']')
        .and_then(|text| text.rsplit_once('['))
    {
        Some((rest, dev)) => (rest.trim_end(), dev.trim().parse().ok()),
        None => (before, None),
    };
    let token = before.split_whitespace().next_back()?;
    // Launchers put `[default0]:` before each line.
    let token = token.rsplit_once("]:").map_or(token, |(_, rest)| rest);
    let (rest, tid) = token.rsplit_once(':')?;
    let (host, pid) = rest.rsplit_once(':')?;
    Some(Writer {
        host: host.to_string(),
        pid: pid.parse().ok()?,
        tid: tid.parse().ok()?,
        dev,
    })
}

fn event(text: &str) -> Option<Event<'_>> {
    let first = text.split_whitespace().next()?;
    match first {
        "Ring" => Some(ring(text).unwrap_or(Event::Odd("Ring"))),
        "Tree" => Some(tree(text).map_or(Event::Odd("Tree"), Event::Tree)),
        "Trees" => Some(trees(text).unwrap_or(Event::Odd("Trees"))),
        "Channel" => channel(text),
        _ if text.contains("Init START") || text.contains("Init COMPLETE") => identity(text),
        "comm" => nodes(text),
        _ => variable(text),
    }
}

/// `Ring 00 : 7 -> 0 -> 1`
fn ring(text: &str) -> Option<Event<'_>> {
    let (channel, rest) = text.strip_prefix("Ring ")?.split_once(':')?;
    let mut ranks = rest.split("->").map(|rank| rank.trim().parse().ok());
    let ring = Event::Ring {
        channel: channel.trim().parse().ok()?,
        before: ranks.next()??,
        rank: ranks.next()??,
        after: ranks.next()??,
    };
    ranks.next().is_none().then_some(ring)
}

/// `Tree 0 : -1 -> 0 -> 1/-1/-1`
fn tree(text: &str) -> Option<Branch> {
    let (channel, rest) = text.strip_prefix("Tree ")?.split_once(':')?;
    let mut parts = rest.split("->").map(str::trim);
    let branch = Branch {
        channel: channel.trim().parse().ok()?,
        up: parts.next()?.parse().ok()?,
        rank: parts.next()?.parse().ok()?,
        down: down(parts.next()?)?,
    };
    parts.next().is_none().then_some(branch)
}

fn down(text: &str) -> Option<[i64; 3]> {
    let mut slots = text.split('/').map(|rank| rank.trim().parse().ok());
    let down = [slots.next()??, slots.next()??, slots.next()??];
    slots.next().is_none().then_some(down)
}

/// `Trees [0] 1/-1/-1->0->-1 [1] ...`
fn trees(text: &str) -> Option<Event<'_>> {
    let list = text.strip_prefix("Trees")?;
    let mut is_cut = list.len() >= TREES_CHARS;
    let mut words: Vec<&str> = list.split_whitespace().collect();
    if is_cut {
        // The last number may have lost digits: its channel is left out.
        let last = words.iter().rposition(|word| word.starts_with('['))?;
        words.truncate(last);
    }
    let mut branches = Vec::new();
    for pair in words.chunks(2) {
        match branch(pair) {
            Some(branch) => branches.push(branch),
            // Cut by whoever kept the log.
            None if branches.len() == words.len() / 2 => is_cut = true,
            None => return None,
        }
    }
    Some(Event::Trees { branches, is_cut })
}

fn branch(pair: &[&str]) -> Option<Branch> {
    let &[channel, links] = pair else { return None };
    let channel = channel.strip_prefix('[')?.strip_suffix(']')?;
    let mut parts = links.split("->");
    let branch = Branch {
        channel: channel.parse().ok()?,
        down: down(parts.next()?)?,
        rank: parts.next()?.parse().ok()?,
        up: parts.next()?.parse().ok()?,
    };
    parts.next().is_none().then_some(branch)
}

/// `Channel 00/02 : 0 1`; not `Channel 00/0 : 1[0] -> 2[0] [receive] via NET/IB/1`, nor
/// `Channel 00 : 0 1` of versions that say no count.
fn channel(text: &str) -> Option<Event<'_>> {
    let (head, list) = text.strip_prefix("Channel ")?.split_once(':')?;
    let (channel, of) = head.trim().split_once('/')?;
    if list.contains("->") || list.contains('[') {
        return None;
    }
    let ranks = list.split_whitespace().map(|rank| rank.parse().ok());
    Some(Event::Channel {
        channel: channel.parse().ok()?,
        of: of.trim().parse().ok()?,
        ring: ranks.collect(),
    })
}

fn identity(text: &str) -> Option<Event<'_>> {
    let after = |key: &str| {
        let mut words = text.split_whitespace();
        words.find(|word| *word == key)?;
        words.next()
    };
    let number = |key: &str| after(key)?.parse().ok();
    let split = || Some((after("parent")?, after("splitCount")?, after("color")?));
    let rank: u32 = number("rank")?;
    let nranks: u32 = number("nranks").or_else(|| number("nRanks"))?;
    Some(Event::Identity(Identity {
        comm: after("comm")?,
        rank,
        nranks,
        nvml_dev: number("nvmlDev"),
        cuda_dev: number("cudaDev"),
        id: after("commId").filter(|id| id.trim_start_matches("0x").bytes().any(|b| b != b'0')),
        split: split(),
        is_complete: text.contains("Init COMPLETE"),
    }))
}

/// `comm 0x7f rank 1 nRanks 2 nNodes 2 localRanks 1 localRank 0 MNNVL 0`
fn nodes(text: &str) -> Option<Event<'_>> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let head = words.get(..8)?;
    let &[
        "comm",
        comm,
        "rank",
        rank,
        "nRanks",
        nranks,
        "nNodes",
        nodes,
    ] = head
    else {
        return None;
    };
    let mut rest = words.iter().skip_while(|word| **word != "localRank");
    Some(Event::Nodes {
        comm,
        rank: rank.parse().ok()?,
        nranks: nranks.parse().ok()?,
        nodes: nodes.parse().ok()?,
        local_rank: rest.nth(1).and_then(|rank| rank.parse().ok()),
    })
}

/// `NCCL_ALGO set by environment to Ring.`
fn variable(text: &str) -> Option<Event<'_>> {
    let (name, value) = text.split_once(" set by environment to ")?;
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let value = value.strip_suffix('.').unwrap_or(value);
    (name.starts_with("NCCL_") && name.chars().all(is_name))
        .then_some(Event::Variable { name, value })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event_of(text: &str) -> Option<Event<'_>> {
        let (writer, event) = read(text)?;
        assert_eq!((&*writer.host, writer.pid, writer.tid), ("n0", 12, 34));
        Some(event)
    }

    #[test]
    fn lines_are_read_behind_whatever_a_launcher_puts_before_them() {
        let ring = Event::Ring {
            channel: 3,
            before: 7,
            rank: 0,
            after: 1,
        };
        for before in ["", "0: ", "[default0]:", "[2026-04-28 14:14:42] ", "x [1] "] {
            let line = format!("{before}n0:12:34 [0] NCCL INFO Ring 03 : 7 -> 0 -> 1\r");
            assert_eq!(event_of(&line), Some(ring.clone()), "{line}");
        }
        assert_eq!(read("NCCL INFO Ring 03 : 7 -> 0 -> 1"), None);
        assert_eq!(read("n0:12:x [0] NCCL INFO Ring 03 : 7 -> 0 -> 1"), None);
    }

    #[test]
    fn what_only_looks_like_a_ring_is_left() {
        let at = |text: &str| format!("n0:12:34 [0] NCCL INFO {text}");
        let link = at("Channel 00/0 : 1[0] -> 2[0] [receive] via NET/IB/1");
        assert_eq!(event_of(&link), None);
        let whole = at("Channel 00/02 :    0   1");
        let ring = Some(vec![0, 1]);
        let expected = Event::Channel {
            channel: 0,
            of: 2,
            ring,
        };
        assert_eq!(event_of(&whole), Some(expected));
        let cut = at("Channel 00/02 :    0   1 ...");
        let expected = Event::Channel {
            channel: 0,
            of: 2,
            ring: None,
        };
        assert_eq!(event_of(&cut), Some(expected));
        assert_eq!(event_of(&at("Ring 00 : 1 -> 2")), Some(Event::Odd("Ring")));
        let old = at("Trees [0] 3/-1/-1->0->-1|0->1/3/-1");
        assert_eq!(event_of(&old), Some(Event::Odd("Trees")));
    }

    #[test]
    fn a_long_line_of_trees_loses_its_last_channel() {
        let all: String = (0..64)
            .map(|c| format!(" [{c}] 1234/-1/-1->1233->1232"))
            .collect();
        let line = format!("n0:12:34 [0] NCCL INFO Trees{}", &all[..1022]);
        let Some(Event::Trees { branches, is_cut }) = event_of(&line) else {
            panic!("trees")
        };
        assert!(is_cut && branches.len() < 64 && branches.len() > 30);
        assert!(
            branches
                .iter()
                .all(|one| one.up == 1232 && one.down == [1234, -1, -1])
        );
    }
}
