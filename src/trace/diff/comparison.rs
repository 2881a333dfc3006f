//! Two folders, compared rank by rank.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use rayon::prelude::*;

use super::artefact::Artefact;
use super::boundary::{BoundaryResult, Metric, MetricResult, compare_boundary};
use super::discriminator::{Discriminator, discriminator};
use super::divergence::{Divergence, Role};
use super::group;
use super::pattern::{Hint, Pattern, hints, pattern};
use super::rank::{Looking, RankResult, compare_rank};
use crate::trace::boundary::Mode;
use crate::trace::certify::{Certificate, Coverage, runs_of};
use crate::trace::damage::Damage;
use crate::trace::folder::Folder;
use crate::trace::native;
use crate::trace::strength::Strength;

/// How two runs compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Same,
    /// All that differs is the recorder's.
    OnlyArtefacts,
    Different,
    /// A side cannot be trusted.
    Untrusted,
    /// There was nothing to compare.
    NothingCompared,
}

/// What `trace diff` finds.
#[derive(Clone, Debug)]
pub struct Comparison {
    pub verdict: Verdict,
    pub strength: Strength,
    /// Whether any values were compared, not shapes and names alone.
    is_by_value: bool,
    pub pattern: Pattern,
    pub hints: Vec<Hint>,
    /// Where each rank parts first; a rank that does not is not here.
    pub firsts: BTreeMap<u32, Divergence>,
    /// Of the op that parted first, where that is an origin.
    pub discriminator: Option<Discriminator>,
    pub artefacts: BTreeMap<u32, Vec<Artefact>>,
    pub ranks: BTreeSet<u32>,
    pub records: u64,
    pub boundary_records: u64,
    pub metrics: BTreeMap<Metric, MetricResult>,
    /// Why a side cannot be trusted.
    pub reasons: Vec<Damage>,
    pub not_covered: Vec<String>,
}

/// What a rank's two kinds of streams gave.
struct Looked {
    ops: BTreeMap<u32, Result<RankResult, Damage>>,
    boundary: BTreeMap<u32, Result<BoundaryResult, Damage>>,
}

/// Compares two folders. `is_all_parsed` parses every line of records that are equal on both
/// sides; else only a rank's first [`super::PARSED_LINES`].
pub fn compare(a: &Folder, b: &Folder, is_all_parsed: bool) -> Comparison {
    let b = &b.beside(a);
    let looked = look([a, b], is_all_parsed);
    let mut comparison = Comparison::certified([a, b], &looked);
    if comparison.reasons.is_empty() {
        comparison.gather([a, b], looked);
    }
    comparison.decide();
    comparison
}

type Pair<'a> = (u32, [&'a [PathBuf]; 2]);

fn look([a, b]: [&Folder; 2], is_all_parsed: bool) -> Looked {
    let both = |x: &'_ BTreeMap<u32, Vec<PathBuf>>, y: &'_ BTreeMap<u32, Vec<PathBuf>>| {
        let ranks = x.keys().filter(|rank| y.contains_key(rank));
        ranks.copied().collect::<Vec<u32>>()
    };
    let ops = both(&a.ops, &b.ops).into_par_iter().map(|rank| {
        let (rank, files): Pair<'_> = (rank, [&a.ops[&rank], &b.ops[&rank]]);
        let looking = Looking {
            own: [a.own(rank), b.own(rank)],
            is_all_parsed,
            may_be_cut: [a.may_be_cut(), b.may_be_cut()],
        };
        (rank, compare_rank(files, looking))
    });
    let ops = ops.collect();
    let boundary = both(&a.boundary, &b.boundary).into_par_iter().map(|rank| {
        let (rank, files): Pair<'_> = (rank, [&a.boundary[&rank], &b.boundary[&rank]]);
        (rank, compare_boundary(files, [a.own(rank), b.own(rank)]))
    });
    Looked {
        ops,
        boundary: boundary.collect(),
    }
}

impl Comparison {
    /// Both sides' certificates, from what was read while comparing.
    fn certified(folders: [&Folder; 2], looked: &Looked) -> Comparison {
        let mut comparison = Comparison {
            verdict: Verdict::NothingCompared,
            is_by_value: false,
            strength: Strength::None,
            pattern: Pattern::Identical,
            hints: Vec::new(),
            firsts: BTreeMap::new(),
            discriminator: None,
            artefacts: BTreeMap::new(),
            ranks: BTreeSet::new(),
            records: 0,
            boundary_records: 0,
            metrics: BTreeMap::new(),
            reasons: Vec::new(),
            not_covered: Vec::new(),
        };
        let ops = looked.ops.values().filter_map(|one| one.as_ref().err());
        let boundary = looked
            .boundary
            .values()
            .filter_map(|one| one.as_ref().err());
        comparison.reasons.extend(ops.chain(boundary).cloned());
        if folders.iter().any(|folder| folder.is_empty()) || !comparison.reasons.is_empty() {
            return comparison;
        }
        comparison.unpaired_ranks(folders);
        for (side, folder) in folders.into_iter().enumerate() {
            let mut certificate = Certificate::default();
            for (rank, result) in &looked.ops {
                let coverage: &Coverage = &result.as_ref().expect("none failed").coverage[side];
                certificate.ranks.insert(*rank, coverage.clone());
            }
            for (rank, result) in &looked.boundary {
                let coverage = &result.as_ref().expect("none failed").coverage[side];
                certificate.boundary.insert(*rank, coverage.clone());
            }
            certificate.judge(folder);
            // A run that ended early on every rank differs; it is not damaged.
            comparison.reasons.extend(certificate.reasons);
            for sentence in certificate.not_covered {
                if !comparison.not_covered.contains(&sentence) {
                    comparison.not_covered.push(sentence);
                }
            }
        }
        comparison.runs_alike(folders);
        comparison.reasons.extend(native::unlike(folders));
        comparison
    }

    /// A rank that only one side has cannot be compared, and is no silence.
    fn unpaired_ranks(&mut self, [a, b]: [&Folder; 2]) {
        for (streams, one, other) in [
            ("op", &a.ops, &b.ops),
            ("boundary", &a.boundary, &b.boundary),
        ] {
            for (folder, one, other) in [(a, one, other), (b, other, one)] {
                let alone = one.keys().filter(|rank| !other.contains_key(rank));
                let alone: Vec<u64> = alone.map(|rank| u64::from(*rank)).collect();
                if alone.is_empty() {
                    continue;
                }
                let which = runs_of(alone);
                let name: Arc<str> = folder.path.display().to_string().into();
                let message = format!("{streams} streams of ranks {which} are on this side only");
                if streams == "boundary" && other.is_empty() {
                    self.not_covered.push(format!("{name}: {message}"));
                    continue;
                }
                let damage = Damage::of_file("rank-on-one-side", &name, message);
                self.reasons
                    .push(damage.expecting("the same ranks on both sides"));
            }
        }
    }

    /// Two runs of other sizes, or digested in other ways, are not the same run twice.
    fn runs_alike(&mut self, [a, b]: [&Folder; 2]) {
        let (Some(x), Some(y)) = (&a.run, &b.run) else {
            return;
        };
        let name: Arc<str> = b.path.display().to_string().into();
        let mut other = |code, message| self.reasons.push(Damage::of_file(code, &name, message));
        if let (Some(x), Some(y)) = (&x.digest, &y.digest)
            && x != y
        {
            other(
                "other-digest",
                format!("digests are `{y}` here and `{x}` on the other side"),
            );
        }
        if let (Some(x), Some(y)) = (x.world_size, y.world_size)
            && x != y
        {
            other(
                "other-world",
                format!("{y} ranks ran here and {x} on the other side"),
            );
        }
    }

    fn gather(&mut self, folders: [&Folder; 2], looked: Looked) {
        let mut strengths = Vec::new();
        let mut headers_only = 0;
        let mut cut = Vec::new();
        for (rank, result) in looked.ops {
            let result = result.expect("none failed");
            self.ranks.insert(rank);
            self.records += result.compared;
            strengths.extend(strength_of(&result));
            headers_only += result.coverage[0].headers_only;
            cut.extend((result.uncompared > 0).then_some((u64::from(rank), result.uncompared)));
            if let Some(first) = result.first {
                self.firsts.insert(rank, first);
            }
            if !result.artefacts.is_empty() {
                self.artefacts.insert(rank, result.artefacts);
            }
        }
        if headers_only > 0 {
            self.not_covered.push(format!(
                "{headers_only} lines that are the same bytes on both sides were certified by \
                 their header alone, and are taken to have digests like those before them: \
                 --parse-all reads them whole"
            ));
        }
        if !cut.is_empty() {
            let records: u64 = cut.iter().map(|(_, records)| records).sum();
            let which = runs_of(cut.iter().map(|(rank, _)| *rank));
            self.not_covered.push(format!(
                "{records} records of ranks {which} come after the other side was killed"
            ));
        }
        if let Err(damage) = group::join(folders, &mut self.firsts) {
            self.reasons.push(damage);
        }
        let first = self.earliest().cloned();
        match first.map(|first| discriminator(folders, &first)) {
            Some(Ok(found)) => self.discriminator = found,
            Some(Err(damage)) => self.reasons.push(damage),
            None => {}
        }
        for (rank, result) in looked.boundary {
            let result = result.expect("none failed");
            self.ranks.insert(rank);
            self.boundary_records += result.compared;
            strengths.extend(boundary_strength(&result));
            self.add_metrics(&result.metrics);
            if let Some(first) = result.first {
                // What the op stream shows is nearer to the cause.
                self.firsts.entry(rank).or_insert(first);
            }
        }
        self.is_by_value = strengths.iter().any(|one| *one > Strength::Metadata);
        self.strength = strengths.into_iter().min().unwrap_or(Strength::None);
        self.name_groups();
    }

    fn add_metrics(&mut self, metrics: &BTreeMap<Metric, MetricResult>) {
        for (metric, result) in metrics {
            let sum = self.metrics.entry(*metric).or_default();
            sum.compared += result.compared;
            sum.differing += result.differing;
            let firsts = [sum.first_difference, result.first_difference];
            sum.first_difference = firsts.into_iter().flatten().min();
        }
    }

    /// Groups without their ranks are known by a name that several groups may have.
    fn name_groups(&mut self) {
        let collectives = self
            .firsts
            .values()
            .filter_map(|first| first.collective.as_ref());
        let by_name = collectives.filter(|one| one.ranks.is_none());
        let names: BTreeSet<String> = by_name.map(|one| one.group.clone()).collect();
        for name in names {
            self.not_covered.push(format!(
                "which ranks form group {name} is not recorded: those with the same call count \
                 as one"
            ));
        }
    }

    fn decide(&mut self) {
        let compared = self.records + self.boundary_records;
        self.pattern = pattern(&self.firsts, self.ranks.len());
        self.hints = hints(&self.firsts, self.pattern);
        self.verdict = match (self.reasons.is_empty(), self.firsts.is_empty()) {
            (false, _) => Verdict::Untrusted,
            (true, false) => Verdict::Different,
            (true, true) if compared == 0 || !self.is_by_value => Verdict::NothingCompared,
            (true, true) if self.artefacts.is_empty() => Verdict::Same,
            (true, true) => Verdict::OnlyArtefacts,
        };
    }

    /// The divergence of the earliest iteration: of an origin if there is one in it.
    pub fn earliest(&self) -> Option<&Divergence> {
        let key = |first: &&Divergence| {
            let is_no_origin = first.role != Role::Origin;
            (first.point.iteration, is_no_origin, first.point.seq)
        };
        self.firsts.values().min_by_key(key)
    }
}

/// How much the agreement of a rank's op stream shows; nothing where none was compared.
fn strength_of(result: &RankResult) -> Option<Strength> {
    (result.compared > 0).then(|| result.weakest.unwrap_or(Strength::Metadata))
}

fn boundary_strength(result: &BoundaryResult) -> Option<Strength> {
    match result.weakest {
        Some(Mode::Metadata) => Some(Strength::Metadata),
        Some(Mode::Summary) => Some(Strength::Summary),
        Some(Mode::Sampled) => Some(Strength::Sampled),
        Some(Mode::Full) => Some(Strength::Full),
        None => (result.values > 0).then_some(Strength::Full),
    }
}
