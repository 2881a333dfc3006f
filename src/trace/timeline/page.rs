//! The file: Trace Event JSON, written event by event.
//!
//! Fields as the Trace Event Format has them (`X` slices, `s`, `t`, `f` flows with `bp: e`, `M`
//! names), which Perfetto and chrome://tracing read.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::json;

use super::event::{Details, Event};

/// Units between two places, a slice's length, and where in a slice a flow begins, goes on, ends.
const STEP: u64 = 10;
const LENGTH: u64 = 8;
const FLOW: [u64; 3] = [2, 4, 6];

/// Where an event stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spot {
    pub rank: u32,
    pub track: u32,
    pub place: u64,
}

#[derive(Serialize)]
struct Slice<'a> {
    name: &'a str,
    cat: &'a str,
    ph: &'static str,
    ts: u64,
    dur: u64,
    pid: u32,
    tid: u32,
    args: &'a Details,
}

#[derive(Serialize)]
struct Flow<'a> {
    name: &'a str,
    cat: &'static str,
    ph: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    bp: Option<&'static str>,
    id: u64,
    ts: u64,
    pid: u32,
    tid: u32,
}

/// A file that is being written.
pub(super) struct Page<'a> {
    out: &'a mut dyn Write,
    is_first: bool,
}

impl<'a> Page<'a> {
    /// # Errors
    /// What the system says.
    pub fn begin(out: &'a mut dyn Write, about: &serde_json::Value) -> io::Result<Page<'a>> {
        out.write_all(b"{\"displayTimeUnit\":\"ms\",\"otherData\":")?;
        serde_json::to_writer(&mut *out, about)?;
        out.write_all(b",\"traceEvents\":[")?;
        let is_first = true;
        Ok(Page { out, is_first })
    }

    /// # Errors
    /// What the system says.
    pub fn end(self, summary: &serde_json::Value) -> io::Result<()> {
        self.out.write_all(b"\n],\"summary\":")?;
        serde_json::to_writer(&mut *self.out, summary)?;
        self.out.write_all(b"}\n")
    }

    fn line(&mut self, line: &impl Serialize) -> io::Result<()> {
        let before: &[u8] = match std::mem::take(&mut self.is_first) {
            true => b"\n",
            false => b",\n",
        };
        self.out.write_all(before)?;
        Ok(serde_json::to_writer(&mut *self.out, line)?)
    }

    /// # Errors
    /// What the system says.
    pub fn process(&mut self, rank: u32) -> io::Result<()> {
        let name = json!({ "name": format!("rank {rank}") });
        self.line(&json!({ "name": "process_name", "ph": "M", "pid": rank, "args": name }))?;
        let order = json!({ "sort_index": rank });
        self.line(&json!({ "name": "process_sort_index", "ph": "M", "pid": rank, "args": order }))
    }

    /// # Errors
    /// What the system says.
    pub fn thread(&mut self, rank: u32, track: u32, name: &str) -> io::Result<()> {
        let mut line = json!({ "name": "thread_name", "ph": "M", "pid": rank, "tid": track });
        line["args"] = json!({ "name": name });
        self.line(&line)?;
        let mut line = json!({ "name": "thread_sort_index", "ph": "M", "pid": rank, "tid": track });
        line["args"] = json!({ "sort_index": track });
        self.line(&line)
    }

    /// # Errors
    /// What the system says.
    pub fn event(&mut self, spot: Spot, event: &Event) -> io::Result<()> {
        self.line(&Slice {
            name: &event.name,
            cat: &event.kind,
            ph: "X",
            ts: spot.place * STEP,
            dur: LENGTH,
            pid: spot.rank,
            tid: spot.track,
            args: &event.details,
        })
    }

    /// Joins events of different ranks, from the first to the last.
    ///
    /// # Errors
    /// What the system says.
    pub fn flow(&mut self, id: u64, name: &str, spots: &[Spot]) -> io::Result<()> {
        let last = spots.len() - 1;
        for (number, spot) in spots.iter().enumerate() {
            let (ph, bp, within) = match number {
                0 => ("s", None, FLOW[0]),
                number if number < last => ("t", None, FLOW[1]),
                _ => ("f", Some("e"), FLOW[2]),
            };
            self.line(&Flow {
                name,
                cat: "flow",
                ph,
                bp,
                id,
                ts: spot.place * STEP + within,
                pid: spot.rank,
                tid: spot.track,
            })?;
        }
        Ok(())
    }
}
