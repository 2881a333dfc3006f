//! Non-blocking queries: where both answers can be given, those that the reference run did not give
//! are run, too, each alone and several together.

use std::collections::BTreeSet;

use crate::prove::deviation::Deviation;
use crate::prove::joint::{self, Answered, Joint};
use crate::prove::session::{CheckError, Session};
use crate::prove::{Grade, Progress};
use crate::world::{QueryId, QueryPoint, RunRecord};

/// What the other answers do.
#[derive(Clone, Debug, Default)]
pub struct Queries {
    /// Queries that both answers can be given to, and those whose other answer was run.
    pub open: u64,
    pub tried: u64,
    /// Another answer made other nodes run.
    pub other_nodes: bool,
    /// The first query whose answer changes bytes.
    pub sensitive: Option<(QueryPoint, Deviation)>,
    /// The first query whose answer stops the run, shows a hazard, or makes another file; with what
    /// that is.
    pub stops: Option<(QueryPoint, String)>,
    pub hazard: Option<(QueryPoint, String)>,
    pub file: Option<(QueryPoint, String)>,
    /// The first query whose answer alone has the worst consequence, with the grade of that.
    pub worst: Option<(QueryPoint, Grade)>,
    /// What several answers do together; `None` in a replay of one.
    pub joint: Option<Joint>,
    visible: bool,
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
    let mut found = Queries::default();
    let open = reference.queries.iter().filter(|query| query.open).count();
    if open == 0 {
        return Ok(found);
    }
    progress.begin("answers to queries", 1 << open.min(6));
    let joint = joint::explore(session, None, progress)?;
    found.open = joint.open;
    let mut tried: BTreeSet<QueryId> = BTreeSet::new();
    for answered in &joint.singles {
        tried.insert(answered.denied[0].id);
        found.take(answered);
    }
    found.tried = tried.len() as u64;
    found.joint = Some(joint);
    progress.end();
    Ok(found)
}

/// Runs the other answer to this query alone.
///
/// # Errors
/// A failure of the machine.
pub(super) fn deny_one(session: &mut Session, query: &QueryPoint) -> Result<Queries, CheckError> {
    let mut found = Queries {
        open: 1,
        tried: 1,
        ..Queries::default()
    };
    found.take(&joint::one(session, query)?);
    Ok(found)
}

impl Queries {
    /// What several answers do together, and no more.
    pub(super) fn together(joint: Joint) -> Queries {
        Queries {
            joint: Some(joint),
            ..Queries::default()
        }
    }

    pub fn grade(&self) -> Grade {
        let joint = self.joint.as_ref().map_or(Grade::Proved, Joint::grade);
        self.grade_of_each().max(joint)
    }

    /// Of each answer alone.
    fn grade_of_each(&self) -> Grade {
        if self.visible || self.stops.is_some() || self.file.is_some() {
            return Grade::Divergent;
        }
        if self.hazard.is_some() {
            return Grade::Hazard;
        }
        match (self.sensitive.is_some(), self.other_nodes) {
            (true, _) => Grade::Masked,
            (false, true) => Grade::Bounded,
            (false, false) if self.tried < self.open => Grade::Bounded,
            (false, false) => Grade::Proved,
        }
    }

    fn take(&mut self, answered: &Answered) {
        let query = &answered.denied[0];
        match &answered.came {
            Ok(deviation) => {
                self.other_nodes |= deviation.other_nodes;
                self.visible |= deviation.metric.is_some();
                if deviation.metric.is_some() || deviation.changes_bytes() {
                    let sensitive = || (query.clone(), deviation.clone());
                    self.sensitive.get_or_insert_with(sensitive);
                }
            }
            Err(_) => {
                let stop = || (query.clone(), answered.consequence());
                self.stops.get_or_insert_with(stop);
            }
        }
        if let Some(hazard) = &answered.hazard {
            let hazard = (query.clone(), format!("there is a hazard: {hazard}"));
            self.hazard.get_or_insert(hazard);
        }
        if answered.file.is_some() {
            let file = || (query.clone(), answered.consequence());
            self.file.get_or_insert_with(file);
        }
        let grade = answered.grade();
        let known = self
            .worst
            .as_ref()
            .map_or(Grade::Proved, |(_, known)| *known);
        if grade > known {
            self.worst = Some((query.clone(), grade));
        }
    }

    /// What there is to say, a sentence each.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = self.notes_of_each();
        notes.extend(self.joint.iter().flat_map(Joint::notes));
        notes
    }

    fn notes_of_each(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.open > 0 {
            let (open, tried) = (self.open, self.tried);
            notes.push(format!(
                "{open} queries can be answered both ways; of {tried} the other answer was run"
            ));
        }
        let sensitive = self.sensitive.iter();
        let sensitive = sensitive.map(|(query, deviation)| (query, deviation.sentence()));
        let told = [&self.hazard, &self.file, &self.stops]
            .into_iter()
            .flatten();
        let told = told.map(|(query, what)| (query, what.clone()));
        for (query, what) in sensitive.chain(told) {
            notes.push(format!("if {}, {what}", joint::not_ready(query)));
        }
        notes
    }

    /// What the other answers do that decides, in one sentence.
    pub fn consequence(&self) -> Option<String> {
        let together = self.joint.as_ref().and_then(|joint| joint.worst.as_ref());
        match (&self.worst, together) {
            (Some((_, alone)), Some(joint)) if joint.grade() > *alone => Some(joint.sentence()),
            (Some(_), _) => self.notes_of_each().into_iter().next_back(),
            (None, joint) => joint.map(Answered::sentence),
        }
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
