//! What a hazard does: the pair that nothing orders is run the other way round, and what follows is
//! compared. A pair that cannot be turned round is ordered by other ranks, and is no hazard.

use crate::prove::deviation::{self, Canonical, Course, Deviation};
use crate::prove::occurrences::{self, Judged, Ran};
use crate::prove::session::{CheckError, Session};
use crate::prove::{Progress, Silent, oracle::r2r::NodeDifference};
use crate::world::{Hazard, Reversal, RunRecord, Schedule, Site};

/// Pairs that are turned round.
const PAIRS_MAX: usize = 8;

/// What came of turning a hazard's pair round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Consequence {
    /// Every node and every declared number is as before.
    Agrees,
    Differs(Deviation),
    /// The run could not go on.
    Stops(String),
    /// So many occurrences are ordered by way of other ranks. Of so many others that is not known.
    TriedInPart {
        ordered: u64,
        left: u64,
    },
    /// One of the two is no command, or was never met again, or enough were tried.
    NotTried,
}

impl Consequence {
    /// Whether a number that the user sees is another one.
    pub fn is_visible(&self) -> bool {
        match self {
            Consequence::Differs(deviation) => deviation.metric.is_some(),
            Consequence::Stops(_) => true,
            Consequence::Agrees | Consequence::NotTried => false,
            Consequence::TriedInPart { .. } => false,
        }
    }
}

impl std::fmt::Display for Consequence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Consequence::Agrees => f.write_str("the other way round, the bytes agree in this run"),
            Consequence::NotTried => f.write_str("not run the other way round"),
            Consequence::TriedInPart { ordered, left } => write!(
                f,
                "{ordered} more occurrences were held back and are ordered by way of other ranks; \
                 not all were tried: these {left} were not run the other way round"
            ),
            Consequence::Stops(error) => write!(f, "the other way round, the run stops: {error}"),
            Consequence::Differs(deviation) => {
                write!(f, "the other way round, {}", deviation.sentence())
            }
        }
    }
}

/// The hazards of a run with what each does, and those that were none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reversals {
    /// In the order of the run's hazards, less those that are none.
    pub consequences: Vec<Consequence>,
    /// The place of each among the hazards as the run had them.
    pub places: Vec<u32>,
    /// Pairs that other ranks order.
    pub ordered: Vec<Hazard>,
}

impl Reversals {
    /// Takes those of `late` behind its own: they are numbered from `first` on.
    pub(super) fn append(&mut self, first: u32, late: Reversals) {
        self.consequences.extend(late.consequences);
        let places = late.places.into_iter().map(|place| first + place);
        self.places.extend(places);
        self.ordered.extend(late.ordered);
    }

    /// Whether one of them changes what the user sees.
    pub fn is_visible(&self) -> bool {
        self.consequences.iter().any(Consequence::is_visible)
    }

    pub fn notes(&self) -> impl Iterator<Item = String> {
        self.ordered.iter().map(|hazard| {
            let (first, second) = (&hazard.first.site, &hazard.second.site);
            format!(
                "on rank {}, {} comes before {} by way of other ranks alone: it was held back, \
                 and nothing could go on (pairs like this one, each held back: {})",
                hazard.rank, first, second, hazard.occurrences
            )
        })
    }
}

/// Hazards of one run, as another one is looked at.
#[derive(Default)]
pub(super) struct Known<'a> {
    pub told: Vec<&'a Hazard>,
    /// Pairs that other ranks order.
    pub ordered: Vec<&'a Hazard>,
}

/// Whether two hazards are one mistake: of the same kind, between the same two places.
pub fn is_same(a: &Hazard, b: &Hazard) -> bool {
    a.kind == b.kind
        && is_same_place(&a.first.site, &b.first.site)
        && is_same_place(&a.second.site, &b.second.site)
}

fn is_same_place(a: &Site, b: &Site) -> bool {
    (a.phase, &a.module, &a.op) == (b.phase, &b.module, &b.op)
}

/// The hazard that explains why two runs of one schedule differ at a node: one of its accesses is
/// there, and so what it reads or leaves is anybody's guess; else one that comes by until then, as
/// what a send reads shows first where it is received.
pub fn explains<'a>(hazards: &'a [Hazard], difference: &NodeDifference) -> Option<&'a Hazard> {
    let site = &difference.a.site;
    let is_there = |hazard: &&Hazard| {
        is_same_place(&hazard.second.site, site) || is_same_place(&hazard.first.site, site)
    };
    let comes_by =
        |hazard: &&Hazard| hazard.first.site.step.max(hazard.second.site.step) <= site.step;
    let mut earlier = hazards.iter();
    let there = hazards.iter().find(is_there);
    there.or_else(|| earlier.find(comes_by))
}

/// Turns the pairs of `hazards` round, each in runs of its own of the course with that schedule;
/// those of which every occurrence turns out to be ordered are taken out.
///
/// # Errors
/// A failure of the machine.
pub(super) fn turn_round(
    session: &mut Session,
    (course, schedule): (Course<'_>, &Schedule),
    hazards: &mut Vec<Hazard>,
    progress: &dyn Progress,
) -> Result<Reversals, CheckError> {
    if hazards.is_empty() {
        return Ok(Reversals::default());
    }
    let pairs = hazards.iter().filter(|hazard| has_ran(hazard));
    progress.begin("hazards turned round", pairs.take(PAIRS_MAX).count() as u64);
    let canonical = Canonical::of(session, course, schedule)?;
    let reversals = judge_all(hazards, progress, |pairs| {
        canonical.changed(session, |options| options.reverse = pairs.to_vec())
    })?;
    progress.end();
    Ok(reversals)
}

/// Takes those of another run's hazards out of which every occurrence is ordered there. `run` runs
/// that run again; what else comes of it is not asked.
///
/// # Errors
/// A failure of the machine.
pub(super) fn take_ordered_out(
    hazards: &mut Vec<Hazard>,
    mut run: impl FnMut(&[Reversal]) -> Result<RunRecord, CheckError>,
) -> Result<(), CheckError> {
    judge_all(hazards, &Silent, |pairs| match run(pairs) {
        Ok(record) => Ok(Ok((record, Deviation::default()))),
        Err(error) => Ok(Err(deviation::how_it_stopped(error)?)),
    })?;
    Ok(())
}

fn has_ran(hazard: &Hazard) -> bool {
    hazard.each().any(|one| one.ran.is_some())
}

/// Judges hazards, the first ones of which both commands ran; those that are none are taken out.
fn judge_all(
    hazards: &mut Vec<Hazard>,
    progress: &dyn Progress,
    mut run: impl FnMut(&[Reversal]) -> Result<Ran, CheckError>,
) -> Result<Reversals, CheckError> {
    let mut reversals = Reversals::default();
    let mut kept = Vec::new();
    let mut tried = 0;
    for (place, hazard) in (0..).zip(hazards.drain(..)) {
        let is_tried = tried < PAIRS_MAX && has_ran(&hazard);
        tried += usize::from(is_tried);
        let judged = match is_tried {
            true => occurrences::judge(hazard, &mut run)?,
            false => Judged::Open(hazard, Consequence::NotTried),
        };
        progress.advance(u64::from(is_tried));
        match judged {
            Judged::Ordered(hazard) => reversals.ordered.push(hazard),
            Judged::Open(hazard, consequence) => {
                reversals.consequences.push(consequence);
                reversals.places.push(place);
                kept.push(hazard);
            }
        }
    }
    *hazards = kept;
    Ok(reversals)
}
