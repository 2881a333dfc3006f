//! What a pair of traces shows of its first divergence, for who looks for its cause elsewhere.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;

use super::certify::RankStream;
use super::damage::Damage;
use super::diff::{Collective, Comparison, Divergence, Role};
use super::folder::Folder;
use super::op::Record;

/// The record at which the earliest origin stands, as far as its trace tells.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Symptom {
    pub rank: u32,
    pub kind: String,
    pub name: String,
    pub id: String,
    pub scope: String,
    pub iteration: Option<u64>,
    pub microbatch: Option<u64>,
    pub phase: String,
    /// Of a collective: its group's name and, where they are recorded, its ranks.
    pub group: Option<String>,
    pub group_ranks: Option<Vec<u32>>,
    /// Of what it gave.
    pub dtype: Option<String>,
    /// Records before it, in the same iteration, microbatch and phase, of the same name and group;
    /// in a check's own trace, sums of the same place.
    pub occurrence: u64,
    /// Of a check's own trace: its id without the number at the end.
    pub place: Option<String>,
}

/// Two folders of traces in one: a run and its repeat, by name.
///
/// # Errors
/// A folder that cannot be read, or has not two.
pub fn pair_in(folder: &Path) -> Result<[PathBuf; 2], Damage> {
    let name: Arc<str> = folder.display().to_string().into();
    let unreadable = |error: std::io::Error| {
        Damage::of_file(
            "unreadable-folder",
            &name,
            format!("cannot read it: {error}"),
        )
    };
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        if path.is_dir() && Folder::open(&path).map_or(true, |inside| !inside.is_empty()) {
            found.push(path);
        }
    }
    found.sort();
    let count = found.len();
    <[PathBuf; 2]>::try_from(found).map_err(|_| {
        let message = format!(
            "{count} folders of traces in it, and two are expected: a run's and its repeat's"
        );
        Damage::of_file("not-two-runs", &name, message)
    })
}

/// The earliest origin of a comparison, read again from its first folder; nothing where no record
/// shows that it made the difference.
///
/// # Errors
/// A file that changed since it was compared.
pub fn symptom(folder: &Folder, comparison: &Comparison) -> Result<Option<Symptom>, Damage> {
    let origins = comparison.firsts.iter();
    let origins = origins.filter(|(_, first)| first.role == Role::Origin);
    let earliest = origins.min_by_key(|(rank, first)| {
        let point = &first.point;
        (point.iteration, point.seq, **rank)
    });
    let Some((rank, first)) = earliest else {
        return Ok(None);
    };
    let Some(files) = folder.ops.get(rank) else {
        return Ok(None);
    };
    let mut stream = RankStream::open(files, (!folder.path.is_file()).then_some(*rank))?;
    let mut occurrence = 0;
    while stream.ready()? {
        let record = stream.record()?;
        if record.seq == first.point.seq && record.iteration == first.point.iteration {
            return Ok(Some(of(*rank, first, &record, occurrence)));
        }
        occurrence += u64::from(is_alike(&record, first));
        stream.advance();
    }
    Ok(None)
}

/// The place that a check's own record of a sum names.
fn place_of(record: &Record<'_>) -> Option<String> {
    let is_sum = record
        .extra
        .get("note")
        .is_some_and(|note| note.starts_with("\"order: "));
    let place = record.id.rsplit_once(':').filter(|_| is_sum);
    place.map(|(place, _)| place.to_string())
}

fn is_alike(record: &Record<'_>, first: &Divergence) -> bool {
    let point = &first.point;
    if let Some(place) = place_of(record) {
        let same_place = point
            .id
            .rsplit_once(':')
            .is_some_and(|(own, _)| own == place);
        return same_place && record.iteration == point.iteration;
    }
    let group = |one: &Collective| one.group.clone();
    let is_one = (&*record.kind, &*record.name, &*record.phase)
        == (&*point.kind, &*point.name, &*point.phase);
    is_one
        && (record.iteration, record.microbatch) == (point.iteration, point.microbatch)
        && Collective::of(record).as_ref().map(group) == first.collective.as_ref().map(group)
}

fn of(rank: u32, first: &Divergence, record: &Record<'_>, occurrence: u64) -> Symptom {
    let point = &first.point;
    let collective = first.collective.as_ref();
    let group = collective.map(|one| one.group.trim_matches('"').to_string());
    let kind = record.extra.get("collective");
    Symptom {
        rank,
        kind: point.kind.clone(),
        // A check's own records name an op in its module, and the kind of collective beside it.
        name: kind.map_or(point.name.clone(), |kind| {
            kind.trim_matches('"').to_string()
        }),
        id: point.id.clone(),
        scope: point.scope.clone(),
        iteration: point.iteration,
        microbatch: point.microbatch,
        phase: point.phase.clone(),
        group: group.filter(|name| !name.is_empty()),
        group_ranks: collective.and_then(|one| one.ranks.clone()),
        dtype: record.outputs.first().map(|one| one.dtype.to_string()),
        occurrence,
        place: place_of(record),
    }
}
