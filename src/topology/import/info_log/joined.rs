//! What each rank said while it joined a communicator.

use std::collections::BTreeMap;
use std::ops::Range;

use super::line::{Branch, Event, Identity, Writer, read};
use crate::diagnostic::{Diagnostic, Place, Source};
use crate::topology::import::Refused;
use crate::topology::{MAX_CHANNELS, MAX_RANKS};

/// Joins that are kept; each is some kilobytes.
const JOINS_MAX: usize = 1 << 20;

/// A place in one of the logs.
#[derive(Clone, Debug)]
pub(super) struct At {
    pub file: usize,
    pub span: Range<usize>,
}

impl At {
    pub fn refused(&self, sources: &[Source], code: &'static str, message: String) -> Diagnostic {
        let place = Place::new(&sources[self.file], self.span.clone());
        Diagnostic::error(code, message).at(&place, "says this line")
    }
}

/// One rank of one communicator.
#[derive(Clone, Debug)]
pub(super) struct Join {
    pub writer: Writer,
    pub at: At,
    pub rank: Option<u32>,
    pub nranks: Option<u32>,
    pub comm: Option<String>,
    pub nvml_dev: Option<u32>,
    pub cuda_dev: Option<u32>,
    pub id: Option<String>,
    pub split: Option<(String, String, String)>,
    pub nodes: Option<u32>,
    /// Its number among the ranks of its node.
    pub local_rank: Option<u32>,
    /// Of each channel, the rank before and the rank after.
    pub rings: BTreeMap<u32, (u32, u32, At)>,
    pub branches: BTreeMap<u32, (Branch, At)>,
    /// Whole rings, as the first rank prints them.
    pub whole: BTreeMap<u32, Vec<u32>>,
    /// Channels, where a line says so.
    pub channels: Option<u32>,
    is_over: bool,
}

impl Join {
    fn new(writer: Writer, at: At) -> Join {
        Join {
            writer,
            at,
            rank: None,
            nranks: None,
            comm: None,
            nvml_dev: None,
            cuda_dev: None,
            id: None,
            split: None,
            nodes: None,
            local_rank: None,
            rings: BTreeMap::new(),
            branches: BTreeMap::new(),
            whole: BTreeMap::new(),
            channels: None,
            is_over: false,
        }
    }

    fn identify(&mut self, identity: &Identity<'_>) {
        self.rank.get_or_insert(identity.rank);
        self.nranks.get_or_insert(identity.nranks);
        self.comm.get_or_insert_with(|| identity.comm.to_string());
        self.nvml_dev = self.nvml_dev.or(identity.nvml_dev);
        self.cuda_dev = self.cuda_dev.or(identity.cuda_dev);
        if self.id.is_none() {
            self.id = identity.id.map(str::to_string);
        }
        if let (None, Some((parent, count, color))) = (&self.split, identity.split) {
            self.split = Some((parent.to_string(), count.to_string(), color.to_string()));
        }
    }
}

/// All joins of the logs, and the variables that NCCL said it found.
#[derive(Default)]
pub(super) struct Joins {
    pub list: Vec<Join>,
    pub variables: BTreeMap<String, String>,
    open: BTreeMap<Writer, usize>,
}

impl Joins {
    pub fn of(sources: &[Source]) -> Result<Joins, Refused> {
        let mut joins = Joins::default();
        for (file, source) in sources.iter().enumerate() {
            let mut start = 0;
            for line in source.text.split_inclusive('\n') {
                let at = At {
                    file,
                    span: start..start + line.trim_end().len(),
                };
                start += line.len();
                if let Some((writer, event)) = read(line) {
                    joins.take(writer, event, at, sources)?;
                }
            }
        }
        Ok(joins)
    }

    fn take(
        &mut self,
        writer: Writer,
        event: Event<'_>,
        at: At,
        sources: &[Source],
    ) -> Result<(), Refused> {
        match event {
            Event::Variable { name, value } => {
                self.variables.insert(name.to_string(), value.to_string());
                return Ok(());
            }
            Event::Odd(what) => {
                let message = format!("this `{what}` line is none that NCCL 2.8 or later writes");
                return Err(Box::new(at.refused(sources, "log-line", message)));
            }
            _ => {}
        }
        let place = self.place_of(&writer, &event, &at, sources)?;
        let join = &mut self.list[place];
        match event {
            Event::Identity(identity) => {
                join.identify(&identity);
                join.is_over |= identity.is_complete;
            }
            Event::Nodes {
                comm,
                rank,
                nranks,
                nodes,
                local_rank,
            } => {
                join.rank.get_or_insert(rank);
                join.nranks.get_or_insert(nranks);
                join.comm.get_or_insert_with(|| comm.to_string());
                (join.nodes, join.local_rank) = (Some(nodes), local_rank);
            }
            Event::Ring {
                channel,
                before,
                rank,
                after,
            } => {
                join.check(rank, channel, &at, sources)?;
                join.rings.insert(channel, (before, after, at));
            }
            Event::Trees { branches, is_cut } => {
                for branch in &branches {
                    join.branch(*branch, &at, sources)?;
                }
                if !is_cut {
                    join.channels = Some(branches.len() as u32);
                }
            }
            Event::Tree(branch) => join.branch(branch, &at, sources)?,
            Event::Channel { channel, of, ring } => {
                if channel >= of || of as usize > MAX_CHANNELS {
                    let message = format!("channel {channel} of {of}: at most {MAX_CHANNELS}");
                    return Err(Box::new(at.refused(sources, "log-line", message)));
                }
                join.channels.get_or_insert(of);
                if let Some(ring) = ring {
                    join.whole.insert(channel, ring);
                }
            }
            Event::Variable { .. } | Event::Odd(_) => {}
        }
        Ok(())
    }

    /// The join that a line is of: the writer's open one, or a new one.
    fn place_of(
        &mut self,
        writer: &Writer,
        event: &Event<'_>,
        at: &At,
        sources: &[Source],
    ) -> Result<usize, Refused> {
        let open = self.open.get(writer).copied();
        let open = open.filter(|place| {
            let join = &self.list[*place];
            let is_same = |comm: &str| join.comm.as_deref().is_none_or(|known| known == comm);
            match event {
                Event::Identity(one) if one.is_complete => is_same(one.comm),
                Event::Identity(_) => false,
                Event::Nodes { comm, .. } => !join.is_over && is_same(comm),
                _ => !join.is_over,
            }
        });
        if let Some(place) = open {
            return Ok(place);
        }
        if self.list.len() == JOINS_MAX {
            let message = format!("ranks join communicators more than {JOINS_MAX} times");
            return Err(Box::new(at.refused(sources, "log-size", message)));
        }
        self.list.push(Join::new(writer.clone(), at.clone()));
        self.open.insert(writer.clone(), self.list.len() - 1);
        Ok(self.list.len() - 1)
    }
}

impl Join {
    /// A line of this rank, of a channel that there can be.
    fn check(
        &mut self,
        rank: u32,
        channel: u32,
        at: &At,
        sources: &[Source],
    ) -> Result<(), Refused> {
        let own = *self.rank.get_or_insert(rank);
        let message = if own != rank {
            format!("rank {rank}, in the lines of rank {own}")
        } else if channel as usize >= MAX_CHANNELS {
            format!("channel {channel}: at most {MAX_CHANNELS} are known")
        } else if rank >= MAX_RANKS {
            format!("rank {rank}: at most {MAX_RANKS} are supported")
        } else {
            return Ok(());
        };
        Err(Box::new(at.refused(sources, "log-line", message)))
    }

    fn branch(&mut self, branch: Branch, at: &At, sources: &[Source]) -> Result<(), Refused> {
        self.check(branch.rank, branch.channel, at, sources)?;
        match self.branches.get(&branch.channel) {
            Some((known, _)) if *known != branch => {
                let message = format!(
                    "the tree of channel {} is another than an earlier line says",
                    branch.channel
                );
                Err(Box::new(at.refused(sources, "log-line", message)))
            }
            _ => {
                self.branches.insert(branch.channel, (branch, at.clone()));
                Ok(())
            }
        }
    }
}
