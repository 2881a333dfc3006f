//! Which token a failed check prints: of all that it found, what alone has its grade and its
//! origin.

use crate::prove::check::Findings;
use crate::prove::origin::{self, Origin};
use crate::prove::session::Session;
use crate::prove::token::{self, Token};
use crate::prove::{Grade, grade};
use crate::scenario::{OracleKind, OriginClass};

/// The token of the first finding, in the order of causes, that alone has the grade of the check
/// and is of its origin's class: a replay that says less than the check did, or names another
/// mistake, would not reproduce it.
pub(super) fn token(
    session: &Session,
    findings: &Findings,
    grade: Grade,
    origin: Option<&Origin>,
) -> Option<String> {
    let mut candidates = candidates(session, findings).into_iter();
    let found = candidates.find(|one| {
        let is_of = |origin: &Origin| (one.oracle, one.class) == (origin.oracle, origin.class);
        one.grade == grade && origin.is_none_or(is_of)
    });
    found.map(|one| one.token.encode())
}

/// What a token can name.
struct Candidate {
    token: Token,
    /// Of its replay.
    grade: Grade,
    oracle: OracleKind,
    class: OriginClass,
}

impl Candidate {
    fn new(oracle: OracleKind, class: OriginClass, grade: Grade, token: Token) -> Candidate {
        Candidate {
            token,
            grade,
            oracle,
            class,
        }
    }
}

fn candidates(session: &Session, findings: &Findings) -> Vec<Candidate> {
    let mut all = of_straight_run(session, findings);
    all.extend(of_answers(session, findings));
    all.extend(of_resumed_runs(session, findings));
    let failing = (0..).zip(&findings.topo);
    for (place, found) in failing.filter(|(_, found)| found.fails()) {
        let class = origin::class_of_variant(found);
        let (grade, token) = (grade::of_topo(found, false), token::of_topo(session, place));
        all.push(Candidate::new(OracleKind::TOPO, class, grade, token));
    }
    all
}

/// Hazards and sums.
fn of_straight_run(session: &Session, findings: &Findings) -> Vec<Candidate> {
    let reversals = &findings.reversals;
    // The hazards that were kept, each with its place among all.
    let kept = findings.reference.hazards.iter().zip(&reversals.places);
    let kept = kept.zip(&reversals.consequences);
    let hazards = kept.map(|((hazard, place), consequence)| {
        let class = origin::class_of(hazard);
        let token = token::of_hazard(session, *place);
        let grade = grade::of_replayed_hazard(consequence);
        Candidate::new(OracleKind::R2R, class, grade, token)
    });
    let sums = findings.sweep.first.iter().map(|(reach, finding)| {
        let class = origin::class_of_sum(*reach, finding);
        let grade = grade::of_sensitive(*reach, findings.effect.as_ref());
        let token = token::of_finding(session, finding);
        Candidate::new(OracleKind::R2R, class, grade, token)
    });
    hazards.chain(sums).collect()
}

fn of_answers(session: &Session, findings: &Findings) -> Vec<Candidate> {
    let answered = |grade, token| {
        let class = OriginClass::QueryAnswer;
        Candidate::new(OracleKind::R2R, class, grade, token)
    };
    let alone = findings.queries.alone().and_then(|alone| {
        let mut known = findings.reference.queries.iter();
        let place = known.position(|one| *one == alone.denied[0])? as u32;
        Some(answered(alone.grade(), token::of_query(session, place)))
    });
    let together = findings.queries.together.as_ref().map(|together| {
        let token = token::of_answers(session, together.number);
        answered(together.grade(), token)
    });
    alone.into_iter().chain(together).collect()
}

fn of_resumed_runs(session: &Session, findings: &Findings) -> Vec<Candidate> {
    let checkpoint = &session.scenario.checkpoint;
    let parted = findings.resumptions.iter().flatten();
    let parted = parted.filter(|(_, found)| !found.is_equal());
    let restarts = parted.filter_map(|(list, found)| {
        let mut lists = checkpoint.restarts.iter();
        let place = lists.position(|known| known == list)? as u32;
        let class = origin::class_of_resumption(found);
        let token = token::of_restart(session, place, found.cut);
        let grade = grade::of_resumption(found, found.sensitive);
        Some(Candidate::new(OracleKind::RES, class, grade, token))
    });
    let moved = findings.reshardings.iter();
    let moved = moved.filter(|found| found.moved.is_none() && found.run.parts());
    let layouts = moved.filter_map(|found| {
        let mut layouts = checkpoint.reshard.iter();
        let place = layouts.position(|known| *known == found.to)? as u32;
        let token = token::of_resharding(session, place, found.cut);
        let class = OriginClass::LostState;
        Some(Candidate::new(
            OracleKind::RES,
            class,
            Grade::Divergent,
            token,
        ))
    });
    restarts.chain(layouts).collect()
}
