//! Which token a failed check prints: of all that it found, what alone has its grade.

use crate::prove::check::Findings;
use crate::prove::session::Session;
use crate::prove::token::{self, Token};
use crate::prove::{Grade, grade};

/// The token of the first finding, in the order of causes, that alone has the grade of the check: a
/// replay that says less than the check did would not reproduce it.
pub(super) fn token(session: &Session, findings: &Findings, grade: Grade) -> Option<String> {
    let mut candidates = candidates(session, findings).into_iter();
    let found = candidates.find(|(of, _)| *of == grade);
    found.map(|(_, token)| token.encode())
}

/// What a token can name, each with the grade of its replay.
fn candidates(session: &Session, findings: &Findings) -> Vec<(Grade, Token)> {
    let mut all = Vec::new();
    let reversals = &findings.reversals;
    for (place, consequence) in reversals.places.iter().zip(&reversals.consequences) {
        let token = token::of_hazard(session, *place);
        all.push((grade::of_replayed_hazard(consequence), token));
    }
    for (reach, finding) in &findings.sweep.first {
        let grade = grade::of_sensitive(*reach, findings.effect.as_ref());
        all.push((grade, token::of_finding(session, finding)));
    }
    if let Some(alone) = findings.queries.alone() {
        let mut known = findings.reference.queries.iter();
        let place = known.position(|one| *one == alone.denied[0]);
        all.extend(place.map(|place| (alone.grade(), token::of_query(session, place as u32))));
    }
    if let Some(together) = &findings.queries.together {
        let token = token::of_answers(session, together.number);
        all.push((together.grade(), token));
    }
    let lists = &session.scenario.checkpoint.restarts;
    for (list, found) in findings.resumptions.iter().flatten() {
        let place = lists.iter().position(|known| known == list);
        if let (false, Some(place)) = (found.is_equal(), place) {
            let token = token::of_restart(session, place as u32, found.cut);
            all.push((grade::of_resumption(found, found.sensitive), token));
        }
    }
    let layouts = &session.scenario.checkpoint.reshard;
    for found in findings
        .reshardings
        .iter()
        .filter(|found| found.run.parts())
    {
        let place = layouts.iter().position(|known| *known == found.to);
        let token = |place: usize| token::of_resharding(session, place as u32, found.cut);
        all.extend(place.map(|place| (Grade::Divergent, token(place))));
    }
    for (place, found) in (0..).zip(&findings.topo).filter(|(_, found)| found.fails()) {
        all.push((grade::of_topo(found, false), token::of_topo(session, place)));
    }
    all
}
