//! Whether two native recordings can be held against each other.

use std::sync::Arc;

use super::description::RunDescription;
use super::whole::description;
use crate::trace::damage::Damage;
use crate::trace::folder::Folder;

/// Recordings of other levels, or of other iterations, lack each other's records: that is no
/// difference of the runs.
pub(in crate::trace) fn unlike([a, b]: [&Folder; 2]) -> Option<Damage> {
    let of = |folder: &Folder| description(&folder.path).ok().flatten();
    let (x, y) = (of(a)?, of(b)?);
    let name: Arc<str> = b.path.display().to_string().into();
    let refuse = |message: String| {
        Some(Damage::of_file("other-level", &name, message).expecting("recordings made alike"))
    };
    if x.level != y.level {
        let (x, y) = (x.level.slug(), y.level.slug());
        return refuse(format!("recorded at level {y}, and the other side at {x}"));
    }
    if x.iterations != y.iterations {
        let told = |run: &RunDescription| match run.iterations {
            Some((first, last)) => format!("iterations {first} to {last}"),
            None => "all iterations".to_string(),
        };
        return refuse(format!(
            "recorded {}, and the other side {}",
            told(&y),
            told(&x)
        ));
    }
    None
}
