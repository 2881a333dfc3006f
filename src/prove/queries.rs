//! Non-blocking queries: where both answers can be given, those that a run did not give are run,
//! too, each alone and several together. What they do is graded here, whichever run it is of.

use std::collections::BTreeSet;

use crate::prove::answers::Explored;
use crate::prove::deviation::Course;
use crate::prove::joint::{self, Answered, DEPTH, Sampled};
use crate::prove::reversal::{Known, Reversals};
use crate::prove::session::{CheckError, Session};
use crate::prove::{Grade, Progress};
use crate::world::{Hazard, QueryId, QueryPoint};

/// What the other answers do.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Queries {
    /// Queries of the canonical run that both answers can be given to.
    pub open: u64,
    pub explored: Explored,
    /// Another answer makes other nodes run, or other queries.
    pub is_dynamic: bool,
    pub sampled: Option<Sampled>,
    /// Runs with one answer changed, in their order.
    pub singles: Vec<Answered>,
    /// The first run whose several answers have the worst consequence, if they have any.
    pub together: Option<Answered>,
    /// Hazards of the canonical run in steps in which they were not looked for before.
    pub late: Vec<Hazard>,
    /// What these do.
    pub late_reversals: Reversals,
}

/// Runs the other answers to the queries of `course`, of which `asked` are known. `known` are
/// hazards that need not be told again.
///
/// # Errors
/// A failure of the machine.
pub(super) fn deny(
    session: &mut Session,
    course: Course<'_>,
    (asked, known): (&[QueryPoint], &Known<'_>),
    progress: &dyn Progress,
) -> Result<Queries, CheckError> {
    let open = asked.iter().filter(|query| query.open).count();
    if open == 0 {
        return Ok(Queries::default());
    }
    progress.begin("answers to queries", 1 << open.min(6));
    let found = joint::explore(session, course, (known, None), progress)?;
    progress.end();
    Ok(found)
}

/// Runs the other answer to this query of the straight run alone.
///
/// # Errors
/// A failure of the machine.
pub(super) fn deny_one(session: &mut Session, query: &QueryPoint) -> Result<Queries, CheckError> {
    Ok(Queries {
        open: 1,
        singles: vec![joint::one(session, query)?],
        ..Queries::default()
    })
}

/// The first of these with the worst consequence, if one has any.
fn worst<'a>(answered: impl Iterator<Item = &'a Answered>) -> Option<&'a Answered> {
    let mut worst: Option<&Answered> = None;
    for one in answered {
        if one.grade() > worst.map_or(Grade::Proved, Answered::grade) {
            worst = Some(one);
        }
    }
    worst
}

impl Queries {
    /// What came of one run with other answers.
    pub(super) fn take(&mut self, answered: Answered) {
        let deviation = answered.came.as_ref();
        self.is_dynamic |= deviation.is_ok_and(|deviation| deviation.other_nodes);
        // Of a run of random priorities that stopped, it is not known which they were.
        if answered.denied.len() == 1 {
            self.singles.push(answered);
            return;
        }
        let known = self
            .together
            .as_ref()
            .map_or(Grade::Proved, Answered::grade);
        if answered.grade() > known {
            self.together = Some(answered);
        }
    }

    /// Queries whose other answer was run alone.
    pub fn tried(&self) -> u64 {
        let tried: BTreeSet<QueryId> = self.singles.iter().map(|one| one.denied[0].id).collect();
        tried.len() as u64
    }

    /// The first answer that alone has the worst consequence, if one has any.
    pub fn alone(&self) -> Option<&Answered> {
        worst(self.singles.iter())
    }

    /// The first answers that have the worst consequence: one alone, if that is as bad.
    pub fn worst(&self) -> Option<&Answered> {
        worst(self.alone().into_iter().chain(&self.together))
    }

    pub fn grade(&self) -> Grade {
        let is_known = !self.is_dynamic && self.explored.is_complete;
        let known = match self.open == 0 || is_known {
            true => Grade::Proved,
            false => Grade::Bounded,
        };
        known.max(self.worst().map_or(Grade::Proved, Answered::grade))
    }

    /// What the other answers do that decides, in one sentence.
    pub fn consequence(&self) -> Option<String> {
        self.worst().map(Answered::sentence)
    }

    /// What there is to say, a sentence each.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.open > 0 {
            let (open, tried) = (self.open, self.tried());
            notes.push(format!(
                "{open} queries can be answered both ways; of {tried} the other answer was run"
            ));
        }
        for grade in [Grade::Masked, Grade::Hazard, Grade::Divergent] {
            let first = self.singles.iter().find(|one| one.grade() == grade);
            notes.extend(first.map(Answered::sentence));
        }
        notes.extend(self.reach());
        notes.extend(self.sampled.as_ref().map(Sampled::note));
        notes.extend(self.together.iter().map(Answered::sentence));
        notes
    }

    /// How many sets of answers were run, of which.
    fn reach(&self) -> Option<String> {
        let Explored {
            runs,
            is_complete,
            answers_max,
            independent,
        } = self.explored;
        let others = runs.checked_sub(1).filter(|others| *others > 0)?;
        let reach = match is_complete {
            true => "all that are reached".to_string(),
            false => format!("all of at most {answers_max} answers among them"),
        };
        let mut note = format!("{others} sets of answers were run, {reach}");
        if independent > 0 {
            note += &format!("; {independent} additions were left out as independent");
        }
        Some(note)
    }
}

impl Sampled {
    /// What they say, in a sentence.
    fn note(&self) -> String {
        let Sampled {
            runs,
            tasks,
            events,
        } = self;
        let power = DEPTH - 1;
        format!(
            "past that bound {runs} random priority schedules (PCT) of {tasks} tasks and {events} \
             events, as the runs before have: one meets a difference that {DEPTH} orderings make \
             with probability about 1/({tasks} x {events}^{power}) = {:.2e}, all with {:.2e}",
            self.of_one_run(),
            self.of_all_runs()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prove::deviation::Deviation;

    fn explored(is_complete: bool) -> Queries {
        Queries {
            open: 3,
            explored: Explored {
                is_complete,
                ..Explored::default()
            },
            ..Queries::default()
        }
    }

    #[test]
    fn what_was_not_run_bounds_the_grade() {
        assert_eq!(Queries::default().grade(), Grade::Proved);
        assert_eq!(explored(true).grade(), Grade::Proved);
        assert_eq!(explored(false).grade(), Grade::Bounded);
        let dynamic = Queries {
            is_dynamic: true,
            ..explored(true)
        };
        assert_eq!(dynamic.grade(), Grade::Bounded);
    }

    #[test]
    fn the_worst_answer_decides_and_is_said() {
        let answered = |number, came| Answered {
            number,
            denied: Vec::new(),
            came,
            hazard: None,
            file: None,
        };
        let visible = Deviation {
            metric: Some((1, "lm loss".to_string())),
            ..Deviation::default()
        };
        let mut found = explored(true);
        found.take(answered(1, Ok(Deviation::default())));
        assert_eq!((found.grade(), found.consequence()), (Grade::Proved, None));
        found.take(answered(2, Ok(visible.clone())));
        found.take(answered(3, Err("it hangs".to_string())));
        assert_eq!(found.grade(), Grade::Divergent);
        let said = found.consequence().expect("a sentence");
        assert!(said.contains("run 2") && said.contains("lm loss"), "{said}");
    }
}
