//! Non-blocking queries: where both answers can be given, the one that the reference run did not
//! give is run, too.

use crate::prove::deviation::{Canonical, Course, Deviation};
use crate::prove::session::{CheckError, Session};
use crate::prove::{Grade, Progress};
use crate::world::{QueryPoint, RunRecord};

/// Answers that are tried.
const ANSWERS_MAX: usize = 16;

/// What the other answers do.
#[derive(Clone, Debug, Default)]
pub struct Queries {
    /// Queries that both answers can be given to, and those whose other answer was run.
    pub open: u64,
    pub tried: u64,
    /// Another answer made other nodes run: what further answers would do is not known.
    pub other_nodes: bool,
    /// The first query whose answer changes bytes.
    pub sensitive: Option<(QueryPoint, Deviation)>,
    /// The first query whose answer stops the run.
    pub stops: Option<(QueryPoint, String)>,
    /// The first query whose answer alone has the worst consequence, with the grade of that.
    pub worst: Option<(QueryPoint, Grade)>,
    visible: bool,
}

impl Queries {
    pub fn grade(&self) -> Grade {
        let sensitive = self.sensitive.is_some();
        match (self.visible || self.stops.is_some(), sensitive) {
            (true, _) => Grade::Divergent,
            (false, true) => Grade::Masked,
            (false, false) if self.other_nodes || self.tried < self.open => Grade::Bounded,
            (false, false) => Grade::Proved,
        }
    }

    /// What there is to say, a sentence each.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.open > 0 {
            let (open, tried) = (self.open, self.tried);
            notes.push(format!(
                "{open} queries can be answered both ways; of {tried} the other answer was run"
            ));
        }
        if let Some((query, deviation)) = &self.sensitive {
            let what = match &deviation.node {
                Some((rank, site)) => format!("bytes part first at {site} on rank {rank}"),
                None => "other nodes run".to_string(),
            };
            let (edge, site) = (&query.edge, &query.site);
            let rank = query.id.rank;
            notes.push(format!(
                "if rank {rank} finds `{edge}` not ready at {site}, {what}"
            ));
        }
        if let Some((query, error)) = &self.stops {
            let (edge, site, rank) = (&query.edge, &query.site, query.id.rank);
            notes.push(format!(
                "if rank {rank} finds `{edge}` not ready at {site}, the run stops: {error}"
            ));
        }
        notes
    }
}

/// Runs the other answers.
///
/// # Errors
/// A failure of the machine.
pub fn deny(
    session: &mut Session,
    reference: &RunRecord,
    progress: &dyn Progress,
) -> Result<Queries, CheckError> {
    let open = reference.queries.iter().filter(|query| query.open);
    deny_all(session, open.collect(), progress)
}

/// Runs the other answers to these queries, each in a run of its own.
///
/// # Errors
/// A failure of the machine.
pub(super) fn deny_all(
    session: &mut Session,
    open: Vec<&QueryPoint>,
    progress: &dyn Progress,
) -> Result<Queries, CheckError> {
    let mut found = Queries {
        open: open.len() as u64,
        ..Queries::default()
    };
    if open.is_empty() {
        return Ok(found);
    }
    progress.begin("queries denied", open.len().min(ANSWERS_MAX) as u64);
    let canonical = Canonical::of(session, Course::Straight)?;
    for query in open.into_iter().take(ANSWERS_MAX) {
        let ran = canonical.changed(session, |options| {
            options.schedule.not_ready.insert(query.id);
        })?;
        found.tried += 1;
        match ran {
            Ok((_, deviation)) => found.take(query, deviation),
            Err(error) => {
                found.stops.get_or_insert((query.clone(), error));
                found.weigh(query, Grade::Divergent);
            }
        }
        progress.advance(1);
    }
    progress.end();
    Ok(found)
}

impl Queries {
    fn take(&mut self, query: &QueryPoint, deviation: Deviation) {
        self.other_nodes |= deviation.other_nodes;
        self.visible |= deviation.metric.is_some();
        // Nodes that only one of two answers has say nothing about bytes.
        let is_sensitive =
            deviation.metric.is_some() || (deviation.node.is_some() && !deviation.other_nodes);
        if is_sensitive {
            self.weigh(
                query,
                match deviation.metric {
                    Some(_) => Grade::Divergent,
                    None => Grade::Masked,
                },
            );
        }
        if is_sensitive && self.sensitive.is_none() {
            self.sensitive = Some((query.clone(), deviation));
        }
    }

    fn weigh(&mut self, query: &QueryPoint, grade: Grade) {
        let known = self.worst.as_ref().map(|(_, known)| *known);
        if known.is_none_or(|known| known < grade) {
            self.worst = Some((query.clone(), grade));
        }
    }

    /// What the other answer does that decides, in one sentence.
    pub fn consequence(&self) -> Option<String> {
        self.worst.as_ref()?;
        self.notes().into_iter().next_back()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_tried_bounds_the_grade() {
        let grade = |open, tried, other_nodes| {
            let found = Queries {
                open,
                tried,
                other_nodes,
                ..Queries::default()
            };
            found.grade()
        };
        assert_eq!(grade(0, 0, false), Grade::Proved);
        assert_eq!(grade(3, 3, false), Grade::Proved);
        assert_eq!(grade(3, 2, false), Grade::Bounded);
        assert_eq!(grade(3, 3, true), Grade::Bounded);
        let visible = Queries {
            visible: true,
            ..Queries::default()
        };
        assert_eq!(visible.grade(), Grade::Divergent);
    }
}
