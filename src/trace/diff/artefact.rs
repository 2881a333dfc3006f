//! Differences that the recorder made and the training did not (pull request 7262, "probe
//! artefacts"), held apart as long as nothing that was computed shows them.
//!
//! A view of memory that nobody traced has written, a buffer digested while a collective still
//! fills it, a copy caught before it is done: each is set aside with its pair of values. If a later
//! op reads such a pair and its own result differs, the difference was real all along, and the
//! record that was set aside is the first divergence. If the stream ends before a parameter agreed
//! again after a step, it counts as real, too.

use std::collections::BTreeMap;

use super::compare::Contrast;
use super::divergence::Divergence;
use super::ops;
use crate::trace::certify::identity;
use crate::trace::op::{Operand, Record, Value};
use crate::trace::point::Point;

/// Why a difference is not the training's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    WriteOnly,
    Uninitialised,
    UnwrittenView,
    InFlight,
    NonBlockingCopy,
    Absorbed,
}

impl Reason {
    pub fn slug(self) -> &'static str {
        match self {
            Reason::WriteOnly => "write-only-operand",
            Reason::Uninitialised => "uninitialised-memory",
            Reason::UnwrittenView => "view-of-unwritten-memory",
            Reason::InFlight => "collective-in-flight",
            Reason::NonBlockingCopy => "non-blocking-copy",
            Reason::Absorbed => "artefact-without-effect",
        }
    }

    pub fn words(self) -> &'static str {
        match self {
            Reason::WriteOnly => "the op only writes this operand: its old bytes do not matter",
            Reason::Uninitialised => "memory that nobody has written was digested",
            Reason::UnwrittenView => {
                "a view of memory that no traced op has written, and no traced op computes with"
            }
            Reason::InFlight => "digested at its launch, while the collective was in flight",
            Reason::NonBlockingCopy => "a non-blocking copy, digested before it was done",
            Reason::Absorbed => "reads such memory, and its result is the same",
        }
    }
}

/// Artefacts of one reason and one op on one rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Artefact {
    pub reason: Reason,
    pub first: Divergence,
    /// Whether outputs differ, not inputs alone.
    pub is_in_outputs: bool,
    pub count: u64,
}

/// What a difference is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Judged {
    /// Set apart.
    Apart,
    /// The training's; the record that was set apart before, if this one reads its value.
    Real { root: Option<Box<Divergence>> },
}

/// What was set apart so far on one rank.
#[derive(Debug, Default)]
pub struct Apart {
    artefacts: BTreeMap<(Reason, String), Artefact>,
    /// Pairs of values, hashed, with the record that each came from.
    pairs: BTreeMap<u64, usize>,
    roots: Vec<Divergence>,
    /// The first root since a parameter agreed.
    unsettled: Option<usize>,
}

/// More pairs or ops than this are no artefacts.
const PAIRS_MAX: usize = 1 << 20;

impl Apart {
    /// Judges a difference between records that have one name.
    pub fn judge(
        &mut self,
        (a, b): (&Record<'_>, &Record<'_>),
        contrast: &Contrast,
        divergence: impl Fn() -> Divergence,
    ) -> Judged {
        let read: Vec<u64> = contrast
            .inputs
            .iter()
            .map(|at| pair(&a.inputs[*at], &b.inputs[*at]))
            .collect();
        let root = read.iter().find_map(|pair| self.pairs.get(pair)).copied();
        let real = || Judged::Real {
            root: root.map(|root| Box::new(self.roots[root].clone())),
        };
        if !contrast.metadata.is_empty() || &*a.kind != "op" || self.pairs.len() > PAIRS_MAX {
            return real();
        }
        let is_known = |pair: &u64| self.pairs.contains_key(pair);
        if contrast.outputs.is_empty() {
            // Of a result without a digest nobody knows that it is the same.
            let is_known_same = is_digested(a) && is_digested(b);
            if !read.is_empty() && !is_known_same {
                return real();
            }
            let reason = match (read.is_empty(), read.iter().all(is_known)) {
                (true, _) => Reason::WriteOnly,
                (false, true) => Reason::Absorbed,
                (false, false) => return real(),
            };
            self.keep(reason, false, divergence());
            return Judged::Apart;
        }
        let Some(reason) = provisional(a, b, contrast) else {
            return real();
        };
        let first = divergence();
        let outputs = contrast.outputs.iter();
        let written = outputs.map(|at| pair(&a.outputs[*at], &b.outputs[*at]));
        let written: Vec<u64> = written.collect();
        // A pair that was met before has its root: a loop that makes it again adds none.
        let known = written
            .iter()
            .find_map(|pair| self.pairs.get(pair))
            .copied();
        let root = root.or(known).unwrap_or_else(|| {
            self.roots.push(first.clone());
            self.roots.len() - 1
        });
        self.unsettled.get_or_insert(root);
        for pair in read.into_iter().chain(written) {
            self.pairs.entry(pair).or_insert(root);
        }
        self.keep(reason, true, first);
        Judged::Apart
    }

    fn keep(&mut self, reason: Reason, is_in_outputs: bool, first: Divergence) {
        let key = (reason, first.point.name.clone());
        let kept = self.artefacts.entry(key);
        kept.and_modify(|artefact| artefact.count += 1)
            .or_insert(Artefact {
                reason,
                first,
                is_in_outputs,
                count: 1,
            });
    }

    /// Whether a record that agrees would settle something.
    pub fn is_unsettled(&self) -> bool {
        self.unsettled.is_some()
    }

    /// A record agrees. What came of an iteration's gradients stands in its parameters, after the
    /// step: one of them settles what was set apart, if its bytes are known. One that differs is a
    /// divergence of its own.
    pub fn agrees(&mut self, record: &Record<'_>) {
        if &*record.kind == "param" && is_digested(record) {
            self.unsettled = None;
        }
    }

    /// What was set apart, and the first record of it that nothing settled.
    pub fn finish(self) -> (Vec<Artefact>, Option<Divergence>) {
        let unsettled = self.unsettled.map(|root| Divergence {
            may_be_artefact: true,
            ..self.roots[root].clone()
        });
        let mut artefacts: Vec<Artefact> = self.artefacts.into_values().collect();
        artefacts.sort_by_key(|artefact| artefact.first.point.seq);
        (artefacts, unsettled)
    }
}

/// Whether the bytes of all that a record gives are known, and it gives something.
fn is_digested(record: &Record<'_>) -> bool {
    let mut outputs = record.outputs.iter();
    !record.outputs.is_empty() && outputs.all(|one| one.value.is_known())
}

/// Whether outputs may differ without the training's doing.
fn provisional(a: &Record<'_>, b: &Record<'_>, contrast: &Contrast) -> Option<Reason> {
    let name = &*a.name;
    if ops::is_uninitialised(name) {
        return Some(Reason::Uninitialised);
    }
    if name.contains("c10d") {
        return Some(Reason::InFlight);
    }
    if ops::is_view(name) && !contrast.inputs.is_empty() {
        return Some(Reason::UnwrittenView);
    }
    let is_copy = ["_to_copy", "copy_"].contains(&ops::base(name));
    let is_count = |one: &Operand<'_>| one.dtype.starts_with("int") && one.numel <= COUNTS_MAX;
    let is_zero = |one: &Operand<'_>| match &one.value {
        Value::Digest { digest, .. } => digest.bytes().all(|digit| digit == b'0'),
        Value::Unknown(_) => false,
    };
    let caught = contrast.outputs.iter().all(|at| {
        let (x, y) = (&a.outputs[*at], &b.outputs[*at]);
        is_count(x) && is_zero(x) != is_zero(y)
    });
    (is_copy && caught && contrast.inputs.is_empty()).then_some(Reason::NonBlockingCopy)
}

/// Tensors of counts that are copied to the host are small.
const COUNTS_MAX: u64 = 1 << 16;

fn pair(a: &Operand<'_>, b: &Operand<'_>) -> u64 {
    let text = |operand: &Operand<'_>| match &operand.value {
        Value::Digest { digest, bytes64 } => {
            format!("{digest} {}", bytes64.as_deref().unwrap_or_default())
        }
        Value::Unknown(why) => why.words().to_string(),
    };
    identity(&[&text(a), &text(b)])
}

impl Artefact {
    pub fn point(&self) -> &Point {
        &self.first.point
    }
}
