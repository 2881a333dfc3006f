//! Reproduces what a token names: the same node, the same deviation, the same bits.

use crate::numerics::ladder::Rung;
use crate::prove::certificate;
use crate::prove::check::{CheckOptions, Findings, Verdicts, restarts_of};
use crate::prove::effect;
use crate::prove::outcome::{MutantScore, Outcome};
use crate::prove::session::{CheckError, Session};
use crate::prove::sweep::{Reach, Sweep, Variable};
use crate::prove::token::{AS_FOUND, RESTART, Token};
use crate::prove::{Grade, Progress, witness};
use crate::scenario::Scenario;
use crate::world::{NodeId, Owner, RunOptions};

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
    let mut session = Session::new(scenario, options.workers)?;
    let (scenario, build) = (session.scenario.content_hash(), session.build_hash());
    token
        .check_fresh(&scenario, &build)
        .map_err(|error| CheckError::Input(error.to_string()))?;
    progress.begin("replay", u64::from(session.scenario.steps));
    let outcome = match token.variable {
        RESTART => replay_restart(&mut session, token, options, progress)?,
        _ => replay_fold(&mut session, token, options)?,
    };
    progress.end();
    Ok(outcome)
}

fn replay_fold(
    session: &mut Session,
    token: &Token,
    options: CheckOptions,
) -> Result<Outcome, CheckError> {
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
    let found = sweep.first.values().next();
    let reproduced = found.is_some_and(|finding| {
        let value = match &finding.variable {
            Variable::Placement { value } => *value,
            Variable::Arrival { swap, .. } => swap.unwrap_or(AS_FOUND),
        };
        witness::variable_place(session, finding) == token.variable
            && value == token.value
            && finding.element == token.element
    });
    if found.is_some() && !reproduced {
        let message = "the node parts, but in another variable, value or element than the token's: \
                       it was made with other options (--seed, --steps, --set)";
        return Err(CheckError::Input(message.to_string()));
    }
    let effect = effect::measure(session, &sweep, &reference)?;
    let reach = found.map(|finding| match finding.variable {
        Variable::Placement { .. } => Reach::Across,
        Variable::Arrival { .. } => Reach::Within,
    });
    let graded = |of: Reach| match (reach == Some(of), &effect) {
        (true, Some(effect)) if !effect.reaches(of) => Grade::Masked,
        (true, _) => Grade::Divergent,
        (false, _) => not_parting(&sweep),
    };
    let verdicts = Verdicts {
        within: graded(Reach::Within),
        across: (reach == Some(Reach::Across)).then(|| graded(Reach::Across)),
    };
    let findings = Findings {
        reference,
        sweep,
        second: None,
        resumptions: None,
        mutants: MutantScore::default(),
        effect,
    };
    Ok(certificate::outcome(
        session,
        options,
        findings,
        verdicts,
        Vec::new(),
    ))
}

/// What may be said of a node that does not part: only what was looked at.
fn not_parting(sweep: &Sweep) -> Grade {
    match sweep.worst_rung(Reach::Across) {
        Some(Rung::Plan | Rung::L0) | None => Grade::Proved,
        Some(Rung::L5) => Grade::Bounded,
        Some(_) => Grade::ProvedOnThisInput,
    }
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
    options: CheckOptions,
    progress: &dyn Progress,
) -> Result<Outcome, CheckError> {
    let lists = &session.scenario.checkpoint.restarts;
    let Some(list) = lists.get(token.value as usize).cloned() else {
        let message = format!("this scenario has no restart list {}", token.value);
        return Err(CheckError::Input(message));
    };
    let mut sweep = Sweep::new(session.sweep_options());
    let reference = crate::prove::check::reference_run(session, &mut sweep)?;
    let found = restarts_of(session, &reference, &[list], progress)?;
    let within = match found.iter().all(|(_, resumption)| resumption.is_equal()) {
        true => Grade::Proved,
        false => Grade::Divergent,
    };
    let findings = Findings {
        reference,
        sweep,
        second: None,
        resumptions: Some(found),
        mutants: MutantScore::default(),
        effect: None,
    };
    let verdicts = Verdicts {
        within,
        across: None,
    };
    Ok(certificate::outcome(
        session,
        options,
        findings,
        verdicts,
        Vec::new(),
    ))
}
