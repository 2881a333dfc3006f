//! Whether a folder of traces can be trusted, and what it covers.

mod course;
mod rank;

pub use course::{Course, Sequence, Step, identity};
pub use rank::{Certifier, Coverage, RankStream};

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rayon::prelude::*;

use super::boundary::{self, BoundaryCoverage};
use super::damage::Damage;
use super::folder::Folder;
use super::native;
use super::op::Unknown;

/// What came of looking at a folder.
#[derive(Clone, Debug, Default)]
pub struct Certificate {
    pub ranks: BTreeMap<u32, Coverage>,
    pub boundary: BTreeMap<u32, BoundaryCoverage>,
    /// Why the folder cannot be trusted; nothing if it can.
    pub reasons: Vec<Damage>,
    /// What the traces do not show, in sentences.
    pub not_covered: Vec<String>,
}

/// Certifies a folder of traces, ranks in parallel.
pub fn certify(folder: &Folder) -> Certificate {
    let ops: Vec<_> = folder.ops.iter().collect();
    let ops = ops.into_par_iter().map(|(rank, files)| {
        let stream = RankStream::open(files, folder.own(*rank));
        (*rank, stream.and_then(RankStream::finish))
    });
    let ops: Vec<_> = ops.collect();
    let boundaries: Vec<_> = folder.boundary.iter().collect();
    let boundaries = boundaries
        .into_par_iter()
        .map(|(rank, files)| (*rank, boundary::certify(files, folder.own(*rank))));
    let boundaries: Vec<_> = boundaries.collect();
    let mut certificate = Certificate::default();
    for (rank, done) in ops {
        match done {
            Ok(coverage) => {
                certificate.ranks.insert(rank, coverage);
            }
            Err(damage) => certificate.reasons.push(damage),
        }
    }
    for (rank, done) in boundaries {
        match done {
            Ok(coverage) => {
                certificate.boundary.insert(rank, coverage);
            }
            Err(damage) => certificate.reasons.push(damage),
        }
    }
    certificate.judge(folder);
    certificate
}

impl Certificate {
    /// Whether the folder can be compared with another.
    pub fn is_trusted(&self) -> bool {
        self.reasons.is_empty()
    }

    /// Adds what only the whole folder shows: ranks and iterations that lack, what has no digest.
    pub(super) fn judge(&mut self, folder: &Folder) {
        let name: Arc<str> = folder.path.display().to_string().into();
        if folder.is_empty() {
            let damage = Damage::of_file("no-trace", &name, "no file of any rank");
            let expected = "rank_<digits>.jsonl, .jsonl.gz or .jsonl.zst";
            self.reasons.push(damage.expecting(expected));
            return;
        }
        self.reasons
            .extend(native::complaints(folder, |stream, rank| match stream {
                native::Stream::Ops => self.ranks.get(&rank).map(|one| one.records),
                native::Stream::Boundary => self.boundary.get(&rank).map(|one| one.records),
            }));
        self.ranks_there(folder, &name);
        self.boundary_ranks_there(folder, &name);
        self.streams_whole(folder, &name);
        let ops = self.ranks.iter();
        let ops = iterations_alike(ops.map(|(rank, one)| (*rank, &one.iterations[..])), &name);
        let boundary = self.boundary.iter();
        let boundary = boundary.map(|(rank, one)| (*rank, &one.iterations[..]));
        let boundary = iterations_alike(boundary, &name);
        self.reasons.extend(ops.into_iter().chain(boundary));
        let records: u64 = self.ranks.values().map(|coverage| coverage.records).sum();
        let boundary: u64 = self.boundary.values().map(|one| one.records).sum();
        if self.reasons.is_empty() && records + boundary == 0 {
            self.reasons
                .push(Damage::of_file("no-record", &name, "no file has a record"));
        }
        self.say_not_covered(folder);
    }

    fn ranks_there(&mut self, folder: &Folder, name: &Arc<str>) {
        let given = match folder.ops.is_empty() {
            true => &folder.boundary,
            false => &folder.ops,
        };
        let run = folder.run.clone().unwrap_or_default();
        let wanted: BTreeSet<u32> = match (&run.ranks, run.world_size) {
            (Some(ranks), _) => ranks.iter().copied().collect(),
            (None, Some(world)) => (0..world).collect(),
            (None, None) => {
                let most = given.keys().next_back().map_or(0, |last| last + 1);
                let lacking = (0..most).filter(|rank| !given.contains_key(rank)).collect();
                let lacking: Vec<u32> = lacking;
                if !lacking.is_empty() {
                    let which = runs_of(lacking.iter().map(|rank| u64::from(*rank)));
                    self.not_covered
                        .push(format!("ranks {which} have no trace"));
                }
                let said = "`run.json` is not there: how many ranks ran is not known";
                self.not_covered.push(said.to_string());
                return;
            }
        };
        let lacking = wanted.iter().filter(|rank| !given.contains_key(rank));
        let lacking: Vec<u64> = lacking.map(|rank| u64::from(*rank)).collect();
        if !lacking.is_empty() {
            let which = runs_of(lacking);
            let message = format!("`run.json` says that ranks {which} were recorded: no file");
            self.reasons.push(Damage::of_file("no-rank", name, message));
        }
        let world = run.world_size.unwrap_or_default();
        let unrecorded = (0..world).filter(|rank| !wanted.contains(rank));
        let which = runs_of(unrecorded.map(u64::from));
        if !which.is_empty() {
            self.not_covered
                .push(format!("ranks {which} of {world} were not recorded"));
        }
    }

    /// A rank that was recorded has records, and where the recorder writes a last one, that.
    fn streams_whole(&mut self, folder: &Folder, name: &Arc<str>) {
        let ranks = |is_lacking: fn(&Coverage) -> bool| {
            let lacking = self.ranks.iter().filter(|(_, one)| is_lacking(one));
            runs_of(lacking.map(|(rank, _)| u64::from(*rank)))
        };
        let has_records = self.ranks.values().any(|one| one.records > 0);
        let empty = ranks(|one| one.records == 0);
        let run = folder.run.clone().unwrap_or_default();
        let ends = run.ends_with_record() || self.ranks.values().any(|one| one.is_ended);
        let cut = ranks(|one| one.records > 0 && !one.is_ended);
        if has_records && !empty.is_empty() {
            let message = format!("ranks {empty} have no record, and others have some");
            self.reasons
                .push(Damage::of_file("no-record", name, message));
        }
        if !ends || cut.is_empty() {
            return;
        }
        let message = format!("the streams of ranks {cut} do not end with `recorder` `end`");
        if folder.may_be_cut() {
            self.not_covered
                .push(format!("{message}: what came after is not known"));
        } else {
            let damage = Damage::of_file("cut-recording", name, message);
            self.reasons.push(damage.expecting(
                "the run was killed: --accept-cut looks at what was written until then",
            ));
        }
    }

    /// Where there are boundary streams beside op streams, each rank has one.
    fn boundary_ranks_there(&mut self, folder: &Folder, name: &Arc<str>) {
        if folder.boundary.is_empty() {
            return;
        }
        let ranks = folder.ops.keys();
        let lacking = ranks.filter(|rank| !folder.boundary.contains_key(rank));
        let which = runs_of(lacking.map(|rank| u64::from(*rank)));
        if !which.is_empty() {
            let message = format!("ranks {which} have no boundary stream, and others have one");
            self.reasons.push(Damage::of_file("no-rank", name, message));
        }
    }

    fn say_not_covered(&mut self, folder: &Folder) {
        let mut undigested: BTreeMap<Unknown, u64> = BTreeMap::new();
        let mut kinds: BTreeMap<&str, u64> = BTreeMap::new();
        let (mut digested, mut blind) = (0, 0);
        for coverage in self.ranks.values() {
            digested += coverage.digested;
            blind += coverage.order_blind;
            for (why, count) in &coverage.undigested {
                *undigested.entry(*why).or_default() += count;
            }
            for (kind, count) in &coverage.kinds {
                *kinds.entry(kind).or_default() += count;
            }
        }
        let mut said = Vec::new();
        for (why, count) in undigested {
            said.push(format!("{count} operands {} are not compared", why.words()));
        }
        if blind > 0 {
            said.push(format!(
                "{blind} of {digested} digests are an XOR alone: other orders of the same values, \
                 and many pairs of changes, look equal"
            ));
        }
        if !self.ranks.is_empty() {
            for kind in ["op", "collective", "grad", "param"] {
                if !kinds.contains_key(kind) {
                    said.push(format!("no record of kind `{kind}`"));
                }
            }
        }
        if folder.boundary.is_empty() {
            said.push("no boundary stream: losses and norms are not compared".to_string());
        }
        said.extend(
            folder
                .unnamed
                .iter()
                .map(|file| format!("{file}: no rank in its name")),
        );
        self.not_covered.append(&mut said);
    }
}

/// Every rank must cover the iterations that any covers.
fn iterations_alike<'a>(
    ranks: impl Iterator<Item = (u32, &'a [(u64, u64)])>,
    name: &Arc<str>,
) -> Option<Damage> {
    let mut by_iterations: BTreeMap<&[(u64, u64)], Vec<u64>> = BTreeMap::new();
    for (rank, iterations) in ranks {
        let ranks = by_iterations.entry(iterations).or_default();
        ranks.push(u64::from(rank));
    }
    if by_iterations.len() < 2 {
        return None;
    }
    let told = by_iterations.iter().map(|(iterations, ranks)| {
        let ranks = runs_of(ranks.iter().copied());
        format!("ranks {ranks} have iterations {}", runs(iterations))
    });
    let told: Vec<String> = told.take(4).collect();
    let damage = Damage::of_file("uneven-iterations", name, told.join("; "));
    Some(damage.expecting("the same iterations on every rank"))
}

/// Numbers as `0-3,8`.
pub fn runs_of(numbers: impl IntoIterator<Item = u64>) -> String {
    let mut found: Vec<(u64, u64)> = Vec::new();
    for number in numbers {
        match found.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => found.push((number, number)),
        }
    }
    runs(&found)
}

/// Runs as `0-3,8`.
pub fn runs(runs: &[(u64, u64)]) -> String {
    let texts = runs.iter().map(|(first, last)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    });
    texts.collect::<Vec<_>>().join(",")
}
