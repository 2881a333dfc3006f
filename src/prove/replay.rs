//! Reproduces what a token names: the same node, the same deviation, the same bits.

use crate::prove::certificate;
use crate::prove::check::{CheckOptions, Findings, Straight, reference_run, restarts_of};
use crate::prove::deviation::Course;
use crate::prove::effect;
use crate::prove::grade::Verdicts;
use crate::prove::joint::{self, Answered};
use crate::prove::oracle::reshard::Resume;
use crate::prove::oracle::snapshot;
use crate::prove::oracle::topo::Varied;
use crate::prove::outcome::Outcome;
use crate::prove::queries::Queries;
use crate::prove::reversal::{Known, Reversals};
use crate::prove::session::{CheckError, Session};
use crate::prove::sweep::{Reach, Sweep, Variable};
use crate::prove::token::{
    ANSWERS, HAZARD, QUERY, RESHARD, RESTART, TOPO, Token, TokenError, value_of,
};
use crate::prove::{Progress, Silent, grade, queries, reversal, witness};
use crate::scenario::Scenario;
use crate::world::{NodeId, Owner, RunOptions, RunRecord, Schedule};

/// What a replay found, and its verdicts.
type Replayed = (Findings, Verdicts);

/// Runs up to the token's node, tests it on its actual inputs, and carries the deviation on.
///
/// # Errors
/// A token of another scenario or build, or one whose node or deviation does not exist here.
pub fn replay(
    scenario: Scenario,
    token: &Token,
    options: CheckOptions,
    progress: &dyn Progress,
) -> Result<Outcome, CheckError> {
    let found = replay_any(scenario, std::slice::from_ref(token), options, progress)?;
    Ok(found.1)
}

/// Replays the first of `tokens` that was made from this scenario by these kernels on this engine,
/// and says which.
///
/// # Errors
/// That of the last token where none fits; else as `replay`.
pub fn replay_any(
    scenario: Scenario,
    tokens: &[Token],
    options: CheckOptions,
    progress: &dyn Progress,
) -> Result<(Token, Outcome), CheckError> {
    let mut session = Session::new(scenario, &options)?;
    let token = fitting(
        tokens,
        &session.scenario.content_hash(),
        &session.build_hash(),
    )?;
    progress.begin("replay", u64::from(session.scenario.steps));
    let (findings, verdicts) = match token.variable {
        RESTART => replay_restart(&mut session, token, progress)?,
        RESHARD => replay_resharding(&mut session, token)?,
        HAZARD => replay_hazard(&mut session, token)?,
        QUERY => replay_query(&mut session, token)?,
        ANSWERS => replay_answers(&mut session, token, progress)?,
        TOPO => replay_topo(&mut session, token)?,
        _ => replay_fold(&mut session, token)?,
    };
    let outcome = certificate::outcome(&session, options, findings, verdicts, Vec::new());
    progress.end();
    Ok((*token, outcome))
}

/// The first token that can be replayed here.
fn fitting<'a>(
    tokens: &'a [Token],
    scenario: &[u8; 32],
    build: &[u8; 32],
) -> Result<&'a Token, TokenError> {
    let mut last = TokenError::Damaged("there is none");
    for token in tokens {
        match token.check_fresh(scenario, build) {
            Ok(()) => return Ok(token),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// A token of this scenario and build always reproduces: one that does not was never printed.
fn not_a_difference() -> CheckError {
    let message =
        "what the token names does not part here: it was not printed by a check of this scenario";
    CheckError::Input(message.to_string())
}

/// The reference run that most of them are compared with.
fn reference_of(session: &mut Session) -> Result<(RunRecord, Sweep), CheckError> {
    let mut sweep = Sweep::new(session.sweep_options());
    let reference = reference_run(session, &mut sweep)?;
    Ok((reference, sweep))
}

fn replay_fold(session: &mut Session, token: &Token) -> Result<Replayed, CheckError> {
    check_node(session, token.node)?;
    let last = session.scenario.steps;
    let recorded = RunOptions {
        checkpoint_after: [last].into(),
        ..RunOptions::default()
    };
    let mut sweep = Sweep::at(session.sweep_options(), token.node);
    let steps = session.steps();
    let reference = session.run(&recorded, steps, None, &mut sweep)?;
    if sweep.points() == 0 {
        let message = format!("this scenario has no {}: the token is damaged", token.node);
        return Err(CheckError::Input(message));
    }
    let reach = reproduced(session, &sweep, token)?;
    let effect = effect::measure(session, &sweep)?;
    let verdicts = grade::of_replayed_fold(reach, effect.as_ref());
    let findings = Findings {
        effect,
        ..Findings::of_replay(reference, sweep)
    };
    Ok((findings, verdicts))
}

/// The reach of the sweep's finding, if it is the one that the token names.
fn reproduced(session: &Session, sweep: &Sweep, token: &Token) -> Result<Reach, CheckError> {
    let Some(finding) = sweep.first.values().next() else {
        return Err(not_a_difference());
    };
    let reach = match &finding.variable {
        Variable::Placement { .. } => Reach::Across,
        Variable::Arrival { .. } | Variable::Configuration { .. } => Reach::Within,
    };
    let named = witness::variable_place(session, finding) == token.variable
        && value_of(&finding.variable) == token.value
        && finding.element == token.element;
    if !named {
        let message = "the node parts, but in another variable, value or element than the token's: \
                       it was made with other options (--seed, --steps, --set)";
        return Err(CheckError::Input(message.to_string()));
    }
    Ok(reach)
}

fn check_node(session: &Session, node: NodeId) -> Result<(), CheckError> {
    let exists = match node.owner {
        Owner::Rank(rank) => rank < session.ranks(),
        Owner::Group(group) => (group as usize) < session.group_count(),
    };
    match exists && session.steps().contains(&node.step) {
        true => Ok(()),
        false => Err(CheckError::Input(format!("this scenario has no {node}"))),
    }
}

fn replay_restart(
    session: &mut Session,
    token: &Token,
    progress: &dyn Progress,
) -> Result<Replayed, CheckError> {
    let lists = &session.scenario.checkpoint.restarts;
    let list = lists
        .get(token.value as usize)
        .filter(|list| list.contains(&token.node.step));
    let Some(list) = list.cloned() else {
        let message = "this scenario has no such restart: the token is damaged";
        return Err(CheckError::Input(message.to_string()));
    };
    let (reference, sweep) = reference_of(session)?;
    let snapshots = snapshot::compare(session, &reference)?;
    let straight = Straight {
        reference: &reference,
        snapshots: snapshots.as_ref(),
    };
    let found = restarts_of(session, &straight, &[list], progress)?;
    if found.iter().all(|(_, resumption)| resumption.is_equal()) {
        return Err(not_a_difference());
    }
    let verdicts = grade::of_replayed_restart(&found);
    let findings = Findings {
        resumptions: Some(found),
        snapshots,
        ..Findings::of_replay(reference, sweep)
    };
    Ok((findings, verdicts))
}

/// Turns the one pair round that the token names.
fn replay_hazard(session: &mut Session, token: &Token) -> Result<Replayed, CheckError> {
    let (mut reference, _) = reference_of(session)?;
    let late = joint::late_hazards(session, &reference)?;
    reference.hazards.extend(late);
    let place = token.value as usize;
    if place >= reference.hazards.len() {
        return Err(not_a_difference());
    }
    let mut hazards = vec![reference.hazards.swap_remove(place)];
    let canonical = (Course::Straight, &Schedule::default());
    let reversals = reversal::turn_round(session, canonical, &mut hazards, &Silent)?;
    let Some(consequence) = reversals.consequences.first() else {
        return Err(not_a_difference());
    };
    let verdicts = Verdicts {
        within: Some(grade::of_replayed_hazard(consequence)),
        across: None,
    };
    (reference.hazards, reference.hazards_beyond) = (hazards, 0);
    let findings = Findings {
        reversals: Reversals {
            places: vec![token.value],
            ..reversals
        },
        ..Findings::of_replay(reference, Sweep::new(session.sweep_options()))
    };
    Ok((findings, verdicts))
}

/// Gives the one query that the token names its other answer.
fn replay_query(session: &mut Session, token: &Token) -> Result<Replayed, CheckError> {
    let (reference, _) = reference_of(session)?;
    let query = reference.queries.get(token.value as usize);
    let Some(query) = query.filter(|query| query.open) else {
        return Err(not_a_difference());
    };
    let found = queries::deny_one(session, query)?;
    if found.worst().is_none() {
        return Err(not_a_difference());
    }
    Ok(of_answers(session, reference, found))
}

/// Runs joint answers up to those that the token names.
fn replay_answers(
    session: &mut Session,
    token: &Token,
    progress: &dyn Progress,
) -> Result<Replayed, CheckError> {
    let (reference, _) = reference_of(session)?;
    let all = (&Known::default(), Some(token.value));
    let mut found = joint::explore(session, Course::Straight, all, progress)?;
    found.singles.clear();
    let is_named = |together: &Answered| together.number == token.value;
    if !found.together.as_ref().is_some_and(is_named) {
        return Err(not_a_difference());
    }
    Ok(of_answers(session, reference, found))
}

/// What other answers to queries do, as a replay tells it.
fn of_answers(session: &Session, reference: RunRecord, found: Queries) -> Replayed {
    let verdicts = Verdicts {
        within: Some(found.grade()),
        across: None,
    };
    let findings = Findings {
        queries: found,
        ..Findings::of_replay(reference, Sweep::new(session.sweep_options()))
    };
    (findings, verdicts)
}

/// Resumes on the one layout, after the one step, that the token names.
fn replay_resharding(session: &mut Session, token: &Token) -> Result<Replayed, CheckError> {
    let plan = &session.scenario.checkpoint;
    let (layout, cut) = (plan.reshard.get(token.value as usize), token.node.step);
    let exists = plan.cuts().contains(&cut) && cut < session.scenario.steps;
    let Some(layout) = layout.copied().filter(|_| exists) else {
        let message = "this scenario has no such resume on another layout: the token is damaged";
        return Err(CheckError::Input(message.to_string()));
    };
    let (reference, sweep) = reference_of(session)?;
    let mut resharded = session.resharded(layout)?;
    let resume = Resume {
        straight: session,
        reference: &reference,
        sums: &sweep.sums,
        cut,
    };
    let found = resume.on(&mut resharded)?;
    if !found.run.fails() {
        return Err(not_a_difference());
    }
    let verdicts = grade::of_replayed_resharding(&found.run);
    let findings = Findings {
        reshardings: vec![found],
        ..Findings::of_replay(reference, sweep)
    };
    Ok((findings, verdicts))
}

/// Runs the one variation that the token names beside the scenario's own run.
fn replay_topo(session: &mut Session, token: &Token) -> Result<Replayed, CheckError> {
    let variation = session.scenario.topo.get(token.value as usize).cloned();
    let Some(variation) = variation else {
        let message = "this scenario has no such size or place: the token is damaged";
        return Err(CheckError::Input(message.to_string()));
    };
    let (reference, sweep) = reference_of(session)?;
    let varied = Varied {
        straight: session,
        reference: &reference,
        sums: &sweep.sums,
    };
    let found = varied.as_in(&variation)?;
    if !found.fails() {
        return Err(not_a_difference());
    }
    let verdicts = grade::of_replayed_topo(&found);
    let findings = Findings {
        topo: vec![found],
        ..Findings::of_replay(reference, sweep)
    };
    Ok((findings, verdicts))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tokens of other engines and of earlier builds lie beside the one that fits.
    #[test]
    fn a_token_that_fits_is_not_hidden_by_one_that_does_not() {
        let node = NodeId {
            step: 1,
            owner: Owner::Rank(0),
            ordinal: 0,
        };
        let of = |scenario: u8, build: u8| Token {
            scenario: [scenario; 5],
            build: [build; 4],
            variable: 0,
            value: 0,
            node,
            element: 0,
        };
        let (stale, other, fits) = (of(1, 1), of(3, 2), of(1, 2));
        let found = |tokens: &[Token]| fitting(tokens, &[1; 32], &[2; 32]).copied();
        assert_eq!(found(&[stale, other, fits]), Ok(fits));
        let refused = found(&[other, stale]);
        assert!(matches!(refused, Err(TokenError::OtherBuild { .. })));
        assert!(matches!(
            found(&[other]),
            Err(TokenError::OtherScenario { .. })
        ));
        assert!(found(&[]).is_err());
    }
}
