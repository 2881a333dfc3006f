//! The nodes of a run with the node that wrote each word that they read, and pairs of such words on
//! two ranks that should be copies.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::engine::{ArenaId, Engine, EngineError, Span};
use crate::world::memory::Intervals;
use crate::world::{Drift, Site};

use super::watch::{Operand, Output, Sees, Shown, Work};

/// Pairs of words that are followed back. Those behind them are not looked at, and a difference may
/// begin there.
const PAIRS_MAX: usize = 100_000;
/// Nodes that are kept: about 300 MB.
const NODES_MAX: usize = 300_000;

/// Words `from..to` of what a node reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Words {
    pub node: usize,
    /// Which of its operands, or of its outputs.
    pub place: usize,
    pub from: u32,
    pub to: u32,
}

impl Words {
    fn slice(self, from: u32, to: u32) -> Words {
        Words {
            from: self.from + from,
            to: self.from + to,
            ..self
        }
    }

    pub fn of(&self, span: Span) -> Span {
        Span {
            offset_words: span.offset_words + self.from,
            words: self.to - self.from,
            ..span
        }
    }
}

/// Words on two ranks.
pub(super) type Pair = (Words, Words);

/// Words that are read, and who wrote them on each of the two ranks; `None` before the first node.
pub(super) struct Written {
    pub read: Pair,
    pub by: (Option<Words>, Option<Words>),
}

/// An operand of two nodes that should have computed copies.
pub(super) struct Behind {
    /// The words that the outputs' words come from, if they come from the same places of it.
    pub narrow: Option<Pair>,
    /// All of it, where other words may matter as well.
    pub whole: Option<Pair>,
    pub is_old: bool,
}

/// What two nodes that wrote copies have to do with each other.
pub(super) enum Kinship {
    /// One sum, of which both have the same elements.
    One,
    /// One call, of which each has a part of its own.
    Parts,
    /// Other work, or work of another step or microbatch.
    Strangers,
    /// The host gave the words.
    Uploads,
    /// The same work on each side.
    Alike {
        behind: Vec<Behind>,
        /// Parameters and sizes of operands are the same, too.
        is_like: bool,
    },
}

struct Read {
    operand: Operand,
    /// (from, to, the output that has written them, from its own start).
    pieces: Vec<(u32, u32, Option<Words>)>,
}

pub(super) struct Node {
    pub site: Arc<Site>,
    work: Work,
    reads: Vec<Read>,
    writes: Vec<Output>,
}

/// Nodes in the order in which they were shown, up to the moment when copies were compared.
pub(super) struct Log {
    pub drift: Drift,
    pub nodes: Vec<Node>,
    /// The output that wrote each word last, with the first word of its span.
    writers: BTreeMap<ArenaId, Intervals<(usize, usize)>>,
    copies: Option<(Span, Span)>,
    top: Option<[Read; 2]>,
    pub nodes_max: usize,
    /// There are more nodes than are kept: nothing is known.
    is_full: bool,
}

impl Log {
    /// A log up to where `drift` is found.
    pub fn until(drift: &Drift) -> Log {
        Log {
            drift: drift.clone(),
            nodes: Vec::new(),
            writers: BTreeMap::new(),
            copies: None,
            top: None,
            nodes_max: NODES_MAX,
            is_full: false,
        }
    }

    fn pieces(&self, span: Span) -> Vec<(u32, u32, Option<Words>)> {
        let (start, end) = (span.offset_words, span.offset_words + span.words);
        let known = self.writers.get(&span.arena);
        let mut next = start;
        let mut pieces = Vec::new();
        for (from, to, (node, place)) in known.iter().flat_map(|known| known.within(start, end)) {
            if next < from {
                pieces.push((next - start, from - start, None));
            }
            let base = self.nodes[*node].writes[*place].span.offset_words;
            let words = Words {
                node: *node,
                place: *place,
                from: from - base,
                to: to - base,
            };
            pieces.push((from - start, to - start, Some(words)));
            next = to;
        }
        if next < end {
            pieces.push((next - start, end - start, None));
        }
        pieces
    }

    fn read(&self, operand: Operand) -> Read {
        let pieces = self.pieces(operand.span);
        Read { operand, pieces }
    }

    /// The copies themselves, as something that is read after the last node.
    pub fn copies(&self) -> Option<Pair> {
        let (a, _) = self.copies?;
        let words = |place| Words {
            node: self.nodes.len(),
            place,
            from: 0,
            to: a.words,
        };
        Some((words(0), words(1)))
    }

    fn operand(&self, node: usize, place: usize) -> &Read {
        match self.nodes.get(node) {
            Some(node) => &node.reads[place],
            None => &self.top.as_ref().expect("a drift was found")[place],
        }
    }

    /// An operand's name, as its kernel calls it.
    pub fn name(&self, read: Words) -> &str {
        &self.operand(read.node, read.place).operand.name
    }

    /// Whether the node of an output only moves words.
    pub fn moves(&self, written: Words) -> bool {
        self.nodes[written.node].work == Work::Copy
    }

    pub fn site(&self, written: Words) -> &Arc<Site> {
        &self.nodes[written.node].site
    }

    pub fn rank_of_output(&self, written: Words) -> u32 {
        self.nodes[written.node].writes[written.place].rank
    }

    pub fn rank_of_operand(&self, read: Words) -> u32 {
        self.operand(read.node, read.place).operand.rank
    }

    /// Whether two reads are of the same words at the same moment.
    pub fn is_same(&self, (a, b): Pair) -> bool {
        let words = |read: Words| read.of(self.operand(read.node, read.place).operand.span);
        words(a) == words(b) && self.written((a, b)).iter().all(|one| one.by.0 == one.by.1)
    }

    /// Who wrote the words of a pair, in pieces that one node of each rank has written.
    pub fn written(&self, (a, b): Pair) -> Vec<Written> {
        let [pieces_a, pieces_b] = [a, b].map(|read| self.clipped(read));
        let ends = pieces_a.iter().chain(&pieces_b).map(|(_, to, _)| *to);
        let ends: BTreeSet<u32> = ends.collect();
        let mut from = 0;
        let mut written = Vec::new();
        for to in ends {
            let by = |pieces: &[(u32, u32, Option<Words>)]| {
                let piece = pieces
                    .iter()
                    .find(|(start, end, _)| (*start..*end).contains(&from));
                let (start, _, words) = piece.expect("pieces cover all words");
                words.map(|words| words.slice(from - start, to - start))
            };
            written.push(Written {
                read: (a.slice(from, to), b.slice(from, to)),
                by: (by(&pieces_a), by(&pieces_b)),
            });
            from = to;
        }
        written
    }

    /// The pieces of some words of an operand, counted from the first of these words.
    fn clipped(&self, read: Words) -> Vec<(u32, u32, Option<Words>)> {
        let pieces = &self.operand(read.node, read.place).pieces;
        let inside = pieces.iter().filter_map(|(from, to, by)| {
            let (start, end) = ((*from).max(read.from), (*to).min(read.to));
            let by = by.map(|words| words.slice(start - from, end.max(start) - from));
            (start < end).then(|| (start - read.from, end - read.from, by))
        });
        inside.collect()
    }

    /// What the nodes that wrote these words have to do with each other.
    pub fn kinship(&self, (a, b): Pair) -> Kinship {
        let [of_a, of_b] = [a, b].map(|words| &self.nodes[words.node]);
        let [out_a, out_b] = [a, b].map(|words| &self.nodes[words.node].writes[words.place]);
        if a.node == b.node {
            return match out_a.first + a.from == out_b.first + b.from {
                true => Kinship::One,
                false => Kinship::Parts,
            };
        }
        let time = |site: &Site| (site.step, site.microbatch, site.phase);
        let same_time = time(&of_a.site) == time(&of_b.site);
        let same_reads = of_a.reads.len() == of_b.reads.len();
        let same_work = match (&of_a.work, &of_b.work) {
            (Work::Upload(_), Work::Upload(_)) => return Kinship::Uploads,
            (Work::Launch { kernel: a, .. }, Work::Launch { kernel: b, .. }) => a == b,
            (a, b) => std::mem::discriminant(a) == std::mem::discriminant(b),
        };
        if !(same_time && same_work && same_reads) || a.place != b.place {
            return Kinship::Strangers;
        }
        let sizes = |node: &Node| -> Vec<u32> {
            let reads = node.reads.iter().map(|read| read.operand.span.words);
            reads.collect()
        };
        let places = 0..of_a.reads.len();
        Kinship::Alike {
            behind: places.map(|place| self.behind((a, b), place)).collect(),
            is_like: of_a.work == of_b.work
                && sizes(of_a) == sizes(of_b)
                && out_a.span.words == out_b.span.words,
        }
    }

    /// Operand `place` of two nodes of the same work, as far as these outputs may depend on it.
    fn behind(&self, (a, b): Pair, place: usize) -> Behind {
        let (of_a, of_b) = (self.narrow(a, place), self.narrow(b, place));
        let size = |of: Words| self.nodes[of.node].reads[place].operand.span.words;
        let Node { work, reads, .. } = &self.nodes[a.node];
        let is_old = reads[place].operand.is_old;
        let has_whole = !matches!(work, Work::Sum | Work::Copy) && !is_old && size(a) == size(b);
        let whole = |of: Words| Words {
            node: of.node,
            place,
            from: 0,
            to: size(of),
        };
        Behind {
            narrow: of_a.zip(of_b),
            whole: has_whole.then(|| (whole(a), whole(b))),
            is_old,
        }
    }

    /// The words of operand `place` that lie as these words of an output do; `None` where the
    /// operand has another shape.
    fn narrow(&self, of: Words, place: usize) -> Option<Words> {
        let node = &self.nodes[of.node];
        let output = &node.writes[of.place];
        let Operand { span, is_old, .. } = node.reads[place].operand;
        let (first, has_shape) = match node.work {
            // A sum's elements, counted over all ranks.
            Work::Sum => (output.first, true),
            Work::Copy => (0, true),
            _ if is_old => (0, span == output.span),
            _ => (0, span.words == output.span.words),
        };
        has_shape.then_some(Words {
            node: of.node,
            place,
            from: first + of.from,
            to: first + of.to,
        })
    }

    /// All words that following the copies back may come by.
    pub fn reach(&self) -> Asked {
        let mut asked = Asked::default();
        let mut seen: BTreeSet<Pair> = BTreeSet::new();
        let mut ahead: VecDeque<Pair> = self.copies().into_iter().collect();
        while let Some(pair) = ahead.pop_front() {
            if seen.len() >= PAIRS_MAX {
                break;
            }
            if !seen.insert(pair) || self.is_same(pair) {
                continue;
            }
            asked.reads.extend([pair.0, pair.1]);
            for Written { read, by } in self.written(pair) {
                asked.reads.extend([read.0, read.1]);
                let (Some(a), Some(b)) = by else {
                    continue;
                };
                asked.writes.extend([a, b]);
                if let Kinship::Alike { behind, .. } = self.kinship((a, b)) {
                    let pairs = behind.into_iter();
                    ahead.extend(pairs.flat_map(|one| one.narrow.into_iter().chain(one.whole)));
                }
            }
        }
        asked
    }
}

/// Words whose digests are asked for.
#[derive(Debug, Default)]
pub(super) struct Asked {
    /// As their node is about to run.
    pub reads: BTreeSet<Words>,
    /// As their node has left them.
    pub writes: BTreeSet<Words>,
}

impl Sees for Log {
    fn node(&mut self, node: Shown, _: &mut dyn Engine) -> Result<(), EngineError> {
        if self.copies.is_some() || self.is_full {
            return Ok(());
        }
        if self.nodes.len() == self.nodes_max {
            self.is_full = true;
            (self.nodes, self.writers) = (Vec::new(), BTreeMap::new());
            return Ok(());
        }
        let reads = node.reads.into_iter().map(|operand| self.read(operand));
        let reads = reads.collect();
        for (place, output) in node.writes.iter().enumerate() {
            let Span {
                arena,
                offset_words,
                words,
            } = output.span;
            let written = self.writers.entry(arena).or_default();
            written.set(
                offset_words,
                offset_words + words,
                (self.nodes.len(), place),
            );
        }
        self.nodes.push(Node {
            site: node.site,
            work: node.work,
            reads,
            writes: node.writes,
        });
        Ok(())
    }

    fn drift(
        &mut self,
        drift: &Drift,
        (a, b): (Span, Span),
        _: &mut dyn Engine,
    ) -> Result<(), EngineError> {
        let is_other = *drift != self.drift || a.words != b.words;
        if is_other || self.is_full || self.copies.is_some() {
            return Ok(());
        }
        let top = [(drift.ranks.0, a), (drift.ranks.1, b)].map(|(rank, span)| {
            self.read(Operand {
                rank,
                span,
                name: drift.name.clone(),
                is_old: false,
            })
        });
        self.top = Some(top);
        self.copies = Some((a, b));
        Ok(())
    }
}
