//! Components that a checkpoint lacks: a resumed run must name each.

use super::{Fate, Nursery, unless_stopped};
use crate::fault::Component;
use crate::numerics::Dtype;
use crate::prove::memory;
use crate::prove::oracle::res::{self, Restart};
use crate::prove::session::{CheckError, Session};
use crate::prove::sweep::Sweep;
use crate::world::RunRecord;

/// A resumed run that lacks a component must name it. The first cuts may show nothing: steps that
/// are skipped, or a warm-up whose first learning rate is 0, leave what a fresh start has.
pub(super) fn lost_component(
    session: &mut Session,
    nursery: &Nursery<'_>,
    component: Component,
) -> Result<Fate, CheckError> {
    let straight = nursery.straight;
    let last = session.scenario.steps;
    let mut all = Fate::NotPlanted;
    for cut in straight.live_in.keys().copied().filter(|cut| *cut < last) {
        let is_read = res::unread(straight, cut, &[component]).is_empty();
        let Some(state) = straight.checkpoints.get(&cut).filter(|_| is_read) else {
            continue;
        };
        let restart = Restart {
            cut,
            state,
            omitted: &[component],
            until: cut + 1,
            keep: false,
        };
        match lost_at(session, straight, &restart, component)? {
            Fate::NotPlanted => continue,
            Fate::Coincides => all = Fate::Coincides,
            fate => return Ok(fate),
        }
    }
    // Main parameters of fp32 ones are always what is made anew of these.
    let is_fp32 = session.options.model.params_dtype == Dtype::F32;
    Ok(match is_fp32 && component == Component::MainParams {
        true => Fate::NotPlanted,
        false => all,
    })
}

fn lost_at(
    session: &mut Session,
    straight: &RunRecord,
    restart: &Restart<'_>,
    component: Component,
) -> Result<Fate, CheckError> {
    let mut sweep = Sweep::new(session.sweep_options());
    let Some(resumed) = unless_stopped(res::resume(session, restart, &mut sweep))? else {
        return Ok(Fate::NotPlanted);
    };
    let other_kind = memory::steps_of_other_kind(&session.scenario, restart.cut);
    let found = res::compare(restart.cut, straight, &resumed, 0, other_kind);
    if found.components.contains(&component) {
        return Ok(Fate::Caught);
    }
    if found.first_step.is_none() {
        // The component is what a fresh start has: every node of the resumed run agrees.
        return Ok(Fate::Coincides);
    }
    let whole = Restart {
        omitted: &[],
        keep: false,
        ..*restart
    };
    let mut sweep = Sweep::new(session.sweep_options());
    let whole = unless_stopped(res::resume(session, &whole, &mut sweep))?;
    if whole.is_some_and(|whole| whole.roots == resumed.roots) {
        // A resume of all there is differs as well: nothing comes of what is lost.
        return Ok(Fate::NotPlanted);
    }
    let named: Vec<String> = found.components.iter().map(ToString::to_string).collect();
    Ok(Fate::Missed {
        site: format!("the checkpoint after step {}", restart.cut),
        reason: match named.is_empty() {
            true => "no component was named".to_string(),
            false => format!("{} was named", named.join(", ")),
        },
    })
}
