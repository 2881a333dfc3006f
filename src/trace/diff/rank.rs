//! One rank's two op streams, read side by side in their own order.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::artefact::{Apart, Artefact, Judged};
use super::compare::Contrast;
use super::divergence::{Collective, Difference, Divergence, Role, Side, kernel_of};
use crate::trace::certify::{Coverage, RankStream};
use crate::trace::damage::Damage;
use crate::trace::op::{Operand, Record};
use crate::trace::point::Point;
use crate::trace::strength::Strength;

/// Equal lines of one rank that are parsed before headers must do: a trace up to this size is
/// certified whole.
pub const PARSED_LINES: u64 = 1 << 16;

/// What came of one rank.
#[derive(Clone, Debug)]
pub struct RankResult {
    pub coverage: [Coverage; 2],
    /// Records that were held against their counterpart.
    pub compared: u64,
    pub first: Option<Divergence>,
    pub artefacts: Vec<Artefact>,
    /// Records that stand alone, as the other side was killed before.
    pub uncompared: u64,
    /// Weakest evidence of the values that were compared; nothing where none was.
    pub weakest: Option<Strength>,
}

/// How a rank's streams are looked at.
#[derive(Clone, Copy, Debug)]
pub struct Looking {
    /// The rank that each must be of, if that is known.
    pub own: [Option<u32>; 2],
    /// Whether lines that are equal are parsed nevertheless.
    pub is_all_parsed: bool,
    /// Whether each may end without its last record.
    pub may_be_cut: [bool; 2],
}

/// A rank's comparison, on its way.
struct Walk {
    streams: [RankStream; 2],
    looking: Looking,
    compared: u64,
    apart: Apart,
    /// Whether every line so far was equal: then one side's certificate is both sides'.
    is_equal_so_far: bool,
    weakest: Option<Strength>,
}

/// What to look for in the rest of each stream after names no longer agree.
struct Parted {
    a: Option<Point>,
    b: Option<Point>,
}

/// Compares and certifies the streams of one rank. Memory does not grow with their length.
///
/// # Errors
/// What cannot be trusted in either.
pub fn compare_rank([a, b]: [&[PathBuf]; 2], looking: Looking) -> Result<RankResult, Damage> {
    let own = looking.own;
    let mut walk = Walk {
        streams: [RankStream::open(a, own[0])?, RankStream::open(b, own[1])?],
        looking,
        compared: 0,
        apart: Apart::default(),
        is_equal_so_far: true,
        weakest: None,
    };
    let first = walk.until_parted()?;
    walk.finish(first)
}

impl Walk {
    /// Goes on while records agree; returns the first difference, or what parted.
    fn until_parted(&mut self) -> Result<Option<Result<Divergence, Parted>>, Damage> {
        loop {
            let [a, b] = &mut self.streams;
            let (is_a, is_b) = (a.ready()?, b.ready()?);
            if !is_a && !is_b {
                return Ok(None);
            }
            if is_a && is_b && b.lines().is_next(a.line()) {
                self.equal_line()?;
                continue;
            }
            self.part_certificates();
            if self.is_killed([is_a, is_b]) {
                return Ok(None);
            }
            if !(is_a && is_b) {
                let mut points =
                    self.streams
                        .iter_mut()
                        .zip([is_a, is_b])
                        .map(|(one, is_there)| {
                            is_there
                                .then(|| one.record().map(|record| Point::of(&record)))
                                .transpose()
                        });
                let (a, b) = (points.next(), points.next());
                let (a, b) = (a.transpose()?.flatten(), b.transpose()?.flatten());
                return Ok(Some(Err(Parted { a, b })));
            }
            if let Some(parted) = self.other_line()? {
                return Ok(Some(parted));
            }
        }
    }

    /// Whether the side that has no record left was killed, and may have been.
    fn is_killed(&self, goes_on: [bool; 2]) -> bool {
        (0..2).any(|side| {
            let is_over = !goes_on[side] && !self.streams[side].is_ended();
            is_over && self.looking.may_be_cut[side]
        })
    }

    /// Both lines are the same bytes.
    fn equal_line(&mut self) -> Result<(), Damage> {
        let [a, b] = &mut self.streams;
        let is_parsed =
            self.looking.is_all_parsed || self.compared < PARSED_LINES || self.apart.is_unsettled();
        match is_parsed {
            true => {
                let (apart, weakest) = (&mut self.apart, &mut self.weakest);
                a.certified(|record| {
                    apart.agrees(record);
                    let operands = record.inputs.iter().chain(&record.outputs);
                    held(weakest, operands.filter_map(Operand::strength));
                })?;
            }
            false => a.certified_header()?,
        }
        if !self.is_equal_so_far {
            match is_parsed {
                true => b.certified(|_| ())?,
                false => b.certified_header()?,
            }
        }
        self.compared += 1;
        a.advance();
        b.advance();
        Ok(())
    }

    /// From here on each side has a certificate of its own.
    fn part_certificates(&mut self) {
        if self.is_equal_so_far {
            self.is_equal_so_far = false;
            let [a, b] = &mut self.streams;
            // Two ranks of one run differ in their first line, and each keeps its own rank.
            if self.compared > 0 {
                b.certify_as(a);
            }
        }
    }

    /// Two lines that are not the same bytes.
    fn other_line(&mut self) -> Result<Option<Result<Divergence, Parted>>, Damage> {
        let [a, b] = &mut self.streams;
        let ((lines, certifier_a), (others, certifier_b)) = (a.parts(), b.parts());
        let (here_a, here_b) = (lines.whereabouts(), others.whereabouts());
        let (x, y) = (Record::read(&here_a)?, Record::read(&here_b)?);
        let is_one = (x.iteration, &*x.kind, &*x.id) == (y.iteration, &*y.kind, &*y.id);
        if !is_one {
            let (a, b) = (Some(Point::of(&x)), Some(Point::of(&y)));
            return Ok(Some(Err(Parted { a, b })));
        }
        let contrast = Contrast::of(&x, &y);
        held(&mut self.weakest, both_known(&x, &y));
        if contrast.is_same() {
            self.apart.agrees(&x);
        } else {
            let compared = self.compared;
            let make = || {
                let matched = (compared, matched_by_kind(certifier_a.kinds()));
                divergence(&x, &contrast, matched)
            };
            match self.apart.judge((&x, &y), &contrast, make) {
                Judged::Apart => {}
                Judged::Real { root: Some(root) } => return Ok(Some(Ok(*root))),
                Judged::Real { root: None } => return Ok(Some(Ok(make()))),
            }
        }
        self.compared += 1;
        certifier_a.take(&x, &here_a)?;
        certifier_b.take(&y, &here_b)?;
        a.advance();
        b.advance();
        Ok(None)
    }

    /// Certifies the rest, and settles what parted.
    fn finish(mut self, found: Option<Result<Divergence, Parted>>) -> Result<RankResult, Damage> {
        let matched = (self.compared, matched_by_kind(self.streams[0].kinds()));
        if self.is_equal_so_far {
            self.part_certificates();
        }
        let [a, b] = self.streams;
        let parted = match &found {
            Some(Err(parted)) => (parted.b.clone(), parted.a.clone()),
            _ => (None, None),
        };
        let (coverage_a, b_in_a) = a.finish_looking_for(parted.0.as_ref())?;
        let (coverage_b, a_in_b) = b.finish_looking_for(parted.1.as_ref())?;
        let (artefacts, unsettled) = self.apart.finish();
        let longest = coverage_a.records.max(coverage_b.records);
        let uncompared = match found {
            None => longest - self.compared,
            Some(_) => 0,
        };
        let first = match found {
            Some(Ok(first)) => Some(first),
            Some(Err(parted)) => Some(settle(parted, a_in_b, b_in_a, matched)),
            None => unsettled,
        };
        Ok(RankResult {
            coverage: [coverage_a, coverage_b],
            compared: self.compared,
            first,
            artefacts,
            uncompared,
            weakest: self.weakest,
        })
    }
}

/// Takes in how much the agreement of some values shows.
fn held(weakest: &mut Option<Strength>, values: impl Iterator<Item = Strength>) {
    *weakest = weakest.iter().copied().chain(values).min();
}

/// How much the pairs of values show that both records know.
pub(super) fn both_known<'a>(
    a: &'a Record<'_>,
    b: &'a Record<'_>,
) -> impl Iterator<Item = Strength> + 'a {
    let inputs = a.inputs.iter().zip(&b.inputs);
    let pairs = inputs.chain(a.outputs.iter().zip(&b.outputs));
    pairs.filter_map(|(x, y)| Some(x.strength()?.min(y.strength()?)))
}

fn matched_by_kind(kinds: &[(String, u64)]) -> BTreeMap<String, u64> {
    kinds.iter().cloned().collect()
}

fn divergence(
    record: &Record<'_>,
    contrast: &Contrast,
    (matched_before, matched_by_kind): (u64, BTreeMap<String, u64>),
) -> Divergence {
    let own_inputs_match = contrast.own_inputs_match();
    let role = match own_inputs_match {
        Some(false) => Role::Receiver,
        // What differs in metadata alone made no other bytes.
        Some(true) if contrast.unknown_inputs == 0 && !contrast.outputs.is_empty() => Role::Origin,
        _ => Role::Undecided,
    };
    Divergence {
        point: Point::of(record),
        difference: contrast.difference(),
        own_inputs_match,
        group_inputs_match: None,
        unknown_inputs: contrast.unknown_inputs,
        matched_before,
        matched_by_kind,
        role,
        kernel: kernel_of(record),
        collective: Collective::of(record),
        may_be_artefact: false,
    }
}

/// Which of the two records that should be one is missing on the other side, or out of order.
fn settle(
    parted: Parted,
    a_in_b: bool,
    b_in_a: bool,
    (matched_before, matched_by_kind): (u64, BTreeMap<String, u64>),
) -> Divergence {
    let (point, difference) = match (parted.a, parted.b) {
        (Some(a), Some(b)) if a_in_b && b_in_a => (a, Difference::Order { in_b: b.id }),
        (Some(a), None) => (a, Difference::Missing { from: Side::B }),
        (Some(a), Some(_)) if !a_in_b => (a, Difference::Missing { from: Side::B }),
        (_, Some(b)) => (b, Difference::Missing { from: Side::A }),
        (None, None) => unreachable!("one of two lines is there"),
    };
    Divergence {
        point,
        difference,
        own_inputs_match: None,
        group_inputs_match: None,
        unknown_inputs: 0,
        matched_before,
        matched_by_kind,
        role: Role::Undecided,
        kernel: None,
        collective: None,
        may_be_artefact: false,
    }
}
