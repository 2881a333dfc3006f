//! Digests of words, as a run comes by them.

use std::collections::{BTreeMap, BTreeSet};

use crate::engine::{Engine, EngineError, Span};
use crate::numerics::Digest;
use crate::world::Drift;

use super::log::{Asked, Words};
use super::watch::{Sees, Shown};

/// What a run had where it was asked.
pub(super) struct Seen {
    drift: Drift,
    asked: Asked,
    /// Nodes shown so far.
    nodes: usize,
    /// The copies were compared: what comes later does not matter.
    is_over: bool,
    /// Outputs of nodes that may still have to run.
    awaited: Vec<(Words, Span)>,
    pub reads: BTreeMap<Words, Digest>,
    pub writes: BTreeMap<Words, Digest>,
}

impl Seen {
    /// What is asked for, up to where `drift` is found.
    pub fn until(drift: &Drift, asked: Asked) -> Seen {
        Seen {
            drift: drift.clone(),
            asked,
            nodes: 0,
            is_over: false,
            awaited: Vec::new(),
            reads: BTreeMap::new(),
            writes: BTreeMap::new(),
        }
    }
}

/// The words of `node` that are asked for.
fn of_node(asked: &BTreeSet<Words>, node: usize) -> Vec<Words> {
    let at = |node| Words {
        node,
        place: 0,
        from: 0,
        to: 0,
    };
    asked.range(at(node)..at(node + 1)).copied().collect()
}

/// Digests of the words at these spans.
fn digests(
    of: Vec<(Words, Span)>,
    engine: &mut dyn Engine,
) -> Result<impl Iterator<Item = (Words, Digest)>, EngineError> {
    let spans: Vec<Span> = of.iter().map(|(words, span)| words.of(*span)).collect();
    let digests = engine.digests(&spans)?;
    Ok(of.into_iter().map(|(words, _)| words).zip(digests))
}

impl Sees for Seen {
    fn node(&mut self, node: Shown, engine: &mut dyn Engine) -> Result<(), EngineError> {
        if self.is_over {
            return Ok(());
        }
        // A run that is not like the one that was asked for lacks words: they are not compared.
        let reads = of_node(&self.asked.reads, self.nodes).into_iter();
        let reads = reads.filter_map(|words| Some((words, node.reads.get(words.place)?.span)));
        self.reads.extend(digests(reads.collect(), engine)?);
        let writes = of_node(&self.asked.writes, self.nodes).into_iter();
        let writes = writes.filter_map(|words| Some((words, node.writes.get(words.place)?.span)));
        self.awaited.extend(writes);
        self.nodes += 1;
        Ok(())
    }

    fn ran(&mut self, engine: &mut dyn Engine) -> Result<(), EngineError> {
        if !self.awaited.is_empty() {
            let awaited = std::mem::take(&mut self.awaited);
            self.writes.extend(digests(awaited, engine)?);
        }
        Ok(())
    }

    fn drift(
        &mut self,
        drift: &Drift,
        (a, b): (Span, Span),
        engine: &mut dyn Engine,
    ) -> Result<(), EngineError> {
        if *drift == self.drift && !self.is_over {
            self.is_over = true;
            let copies = of_node(&self.asked.reads, self.nodes).into_iter();
            let copies = copies.map(|words| (words, if words.place == 0 { a } else { b }));
            self.reads.extend(digests(copies.collect(), engine)?);
        }
        Ok(())
    }
}
