//! Planted faults: each is put into the scenario under check, into its first two steps, at a site
//! with at least three addends, and counts as caught only when the check names that very site.

mod lost;

use std::collections::BTreeSet;
use std::ops::Range;

use crate::fault::{Component, MutantKind};
use crate::model::RESTORE_RNG;
use crate::numerics::Dtype;
use crate::prove::oracle::r2r::first_difference;
use crate::prove::oracle::{family_name, reshard, topo};
use crate::prove::outcome::{MutantScore, PlantedMutant};
use crate::prove::session::{CheckError, Session};
use crate::prove::sweep::{Catalogue, FoldSite, Reach, Sums, Sweep};
use crate::world::fold::FoldFault;
use crate::world::{
    Drift, Family, GroupId, Hazard, Owner, PlantedFault, RunOptions, RunRecord, State, Unobserved,
    WorldError,
};

/// Steps that mutants run.
const STEPS: u32 = 2;
/// Commands of a rank that are tried until one shows a fault.
const COMMANDS_MAX: u32 = 16;
/// Sites that are tried until one shows that the fault changes bits at all.
const SITES_MAX: usize = 4;

/// What mutants are planted into, and compared with.
pub struct Nursery<'a> {
    pub catalogue: &'a Catalogue,
    /// What resumes on other layouts are compared by.
    pub sums: &'a Sums,
    /// State after the first step of the reference run, and what it still needs.
    pub straight: &'a RunRecord,
    pub state: Option<&'a State>,
}

/// How one planted fault fared.
enum Fate {
    Caught,
    Missed {
        site: String,
        reason: String,
    },
    /// The scenario has no site for it, or it changes nothing there.
    NotPlanted,
    /// What is lost is read, and is what a fresh start has at each cut.
    Coincides,
}

/// Plants every kind.
///
/// # Errors
/// A failure of the machine; a fault that stops the run is a fate, not an error.
pub fn score(
    session: &mut Session,
    nursery: &Nursery<'_>,
    mut tell: impl FnMut(),
) -> Result<MutantScore, CheckError> {
    let mut score = MutantScore::default();
    let steps = steps(session);
    let recorded = RunOptions {
        record_nodes: true,
        hazard_steps_max: STEPS,
        ..RunOptions::default()
    };
    let reference = session.plain_run(&recorded, steps)?;
    for kind in kinds(session) {
        if kind == MutantKind::OtherOrder {
            // Blindness to one family's order is what a wrong proof is made of: each gets its own.
            for family in families(nursery.catalogue) {
                let sites = sites(nursery.catalogue, kind, Some(family));
                let (fate, at) = fold_fault(session, &sites, &reference, kind)?;
                score.take(format!("{} ({})", kind.name(), family_name(family)), fate);
                let race = match at {
                    Some(site) => race_at(session, site)?,
                    None => Fate::NotPlanted,
                };
                let kind = MutantKind::Race.name();
                score.take(format!("{kind} ({})", family_name(family)), race);
            }
        } else if kind == MutantKind::Race {
            continue; // Planted with the other order that shows that it matters.
        } else {
            let fate = plant(session, nursery, &reference, kind)?;
            score.take(kind.name(), fate);
        }
        tell();
    }
    reshard_faults(session, nursery, &mut score)?;
    topo_faults(session, nursery, &mut score)?;
    Ok(score)
}

/// Faults of other sizes and places, where the scenario has one: the first stands for all.
fn topo_faults(
    session: &Session,
    nursery: &Nursery<'_>,
    score: &mut MutantScore,
) -> Result<(), CheckError> {
    let Some(variation) = session.scenario.topo.first() else {
        return Ok(());
    };
    // What has no whole state was refused before.
    if !nursery.straight.drifts.is_empty() {
        return Ok(());
    }
    let varied = topo::Varied {
        straight: session,
        reference: nursery.straight,
        sums: nursery.sums,
    };
    for planted in topo::plant(&varied, variation)? {
        let fate = match (planted.is_hidden, planted.missed) {
            (true, _) => Fate::NotPlanted,
            (false, None) => Fate::Caught,
            (false, Some(reason)) => Fate::Missed {
                site: format!("`{}`", variation.name),
                reason,
            },
        };
        score.take(planted.kind.to_string(), fate);
    }
    Ok(())
}

/// Every kind; state that the job has not cannot be lost.
fn kinds(session: &Session) -> Vec<MutantKind> {
    let is_scaled = session.options.loss_scale.is_some();
    let scaler = MutantKind::LostComponent(Component::LossScaler);
    let all = MutantKind::all().into_iter();
    all.filter(|kind| is_scaled || *kind != scaler).collect()
}

/// Faults of a resume on another layout, where the scenario has one: the first stands for all.
fn reshard_faults(
    session: &Session,
    nursery: &Nursery<'_>,
    score: &mut MutantScore,
) -> Result<(), CheckError> {
    // Copies that differ have no whole state to damage: the drift is the finding.
    let layouts = session.scenario.checkpoint.reshard.first();
    let Some(layout) = layouts.filter(|_| nursery.straight.drifts.is_empty()) else {
        return Ok(());
    };
    let mut resharded = session.resharded(*layout)?;
    let resume = reshard::Resume {
        straight: session,
        reference: nursery.straight,
        sums: nursery.sums,
        cut: 1,
    };
    for planted in reshard::plant(&resume, &mut resharded)? {
        let fate = match (planted.target, planted.missed) {
            (None, _) => Fate::NotPlanted,
            (Some(_), None) => Fate::Caught,
            (Some((component, name)), Some(reason)) => Fate::Missed {
                site: match name {
                    Some(name) => format!("{component} `{name}` at the load on {layout}"),
                    None => format!("{component} at the load on {layout}"),
                },
                reason,
            },
        };
        score.take(planted.kind, fate);
    }
    Ok(())
}

impl MutantScore {
    fn take(&mut self, kind: String, fate: Fate) {
        match fate {
            Fate::Caught => self.caught += 1,
            Fate::Missed { site, reason } => {
                let planted = PlantedMutant { kind, site, reason };
                self.missed.push(planted);
            }
            Fate::NotPlanted => {
                self.not_planted.push(kind);
                return;
            }
            Fate::Coincides => {
                self.coinciding.push(kind);
                return;
            }
        }
        self.total += 1;
    }
}

/// Families with a fold that a fault can be planted in.
fn families(catalogue: &Catalogue) -> BTreeSet<Family> {
    let sites = catalogue.sites.values();
    let large = sites.filter(|site| site.addends >= 3 && site.is_slots);
    large.map(|site| site.family).collect()
}

fn steps(session: &Session) -> Range<u32> {
    1..session.scenario.steps.min(STEPS) + 1
}

fn plant(
    session: &mut Session,
    nursery: &Nursery<'_>,
    reference: &RunRecord,
    kind: MutantKind,
) -> Result<Fate, CheckError> {
    match kind {
        MutantKind::LostComponent(component) => lost::lost_component(session, nursery, component),
        MutantKind::StateFlip => state_flip(session, nursery),
        MutantKind::UnrestoredRng => unrestored_rng(session, reference),
        MutantKind::DroppedWait
        | MutantKind::SkippedLaunch
        | MutantKind::OffByOne
        | MutantKind::MismatchedCollective
        | MutantKind::MissingCollective => command_fault(session, nursery, reference, kind),
        _ => {
            let sites = sites(nursery.catalogue, kind, None);
            Ok(fold_fault(session, &sites, reference, kind)?.0)
        }
    }
}

/// A fault inside one fold: the first node that differs must be that fold. Also the site at which
/// bits changed.
fn fold_fault<'a>(
    session: &mut Session,
    sites: &[&'a FoldSite],
    reference: &RunRecord,
    kind: MutantKind,
) -> Result<(Fate, Option<&'a FoldSite>), CheckError> {
    for site in sites.iter().copied() {
        let Some(fault) = fault_at(site, kind) else {
            continue;
        };
        let options = RunOptions {
            faults: vec![PlantedFault::Fold {
                at: site.node,
                fault,
            }],
            record_nodes: true,
            ..RunOptions::default()
        };
        // Where ranks do not agree on what the fault did, as a lost wait lets them, the next site.
        let Some(mutant) = unless_stopped(session.plain_run(&options, steps(session)))? else {
            continue;
        };
        let Some(difference) = first_difference(&reference.records, &mutant.records) else {
            // Other bits nowhere: the fault is no fault on this site's data.
            continue;
        };
        let fate = match difference.a.fold == Some(site.node) {
            true => Fate::Caught,
            false => Fate::Missed {
                site: site.name.clone(),
                reason: format!("the first node that differed was {}", difference.a.site),
            },
        };
        return Ok((fate, Some(site)));
    }
    Ok((Fate::NotPlanted, None))
}

/// The run of a fault, if its ranks came to its end.
fn unless_stopped(
    ran: Result<RunRecord, impl Into<CheckError>>,
) -> Result<Option<RunRecord>, CheckError> {
    match ran.map_err(Into::into) {
        Ok(record) => Ok(Some(record)),
        Err(error) if error.is_stop() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Folds of at least three addends, of one family or of any: those over ranks first, large ones
/// before small ones.
fn sites(catalogue: &Catalogue, kind: MutantKind, family: Option<Family>) -> Vec<&FoldSite> {
    let of_ranks = |site: &&FoldSite| matches!(site.node.owner, Owner::Group(_));
    let collective_only = matches!(
        kind,
        MutantKind::StaleDestination | MutantKind::DriftingDestination
    );
    let mut sites: Vec<&FoldSite> = catalogue
        .sites
        .values()
        .filter(|site| site.addends >= 3 && site.is_slots)
        // A flag by which hosts branch: ranks that do not agree on it stop, and nothing is told.
        .filter(|site| site.family != Family::FoundInf)
        .filter(|site| family.is_none_or(|family| site.family == family))
        .filter(|site| !collective_only || of_ranks(site))
        .collect();
    sites.sort_by_key(|site| (!of_ranks(site), std::cmp::Reverse(site.elements), site.node));
    sites.truncate(SITES_MAX);
    sites
}

fn fault_at(site: &FoldSite, kind: MutantKind) -> Option<FoldFault> {
    let last = site.elements.checked_sub(1)?;
    Some(match kind {
        MutantKind::OtherOrder => {
            FoldFault::Order((0..site.addends).rev().collect::<Vec<u32>>().into())
        }
        MutantKind::DuplicateAddend => FoldFault::DuplicateAddend { lost: 1, twice: 0 },
        MutantKind::NarrowPartialSums => FoldFault::NarrowPartial(Dtype::Bf16),
        MutantKind::FlippedBit => FoldFault::FlipLastBit { element: last / 2 },
        MutantKind::StaleDestination => FoldFault::StaleDestination { destination: 1 },
        MutantKind::DriftingDestination => FoldFault::DriftingDestination { destination: 1 },
        MutantKind::SkippedElement => FoldFault::SkipLastElement,
        MutantKind::SwappedElements => FoldFault::SwapElements { element: last / 3 },
        _ => return None,
    })
}

/// The fold lands in arrival order: the sweep must name it, as another order is known to give it
/// other bits.
fn race_at(session: &mut Session, site: &FoldSite) -> Result<Fate, CheckError> {
    let options = RunOptions {
        arrival_at: BTreeSet::from([site.node]),
        ..RunOptions::default()
    };
    let mut sweep = Sweep::at(session.sweep_options(), site.node);
    let ran = session.run(&options, steps(session), None, &mut sweep);
    if unless_stopped(ran)?.is_none() {
        return Ok(Fate::NotPlanted);
    }
    let site = site.name.clone();
    Ok(match sweep.first.get(&Reach::Within) {
        Some(_) => Fate::Caught,
        None => Fate::Missed {
            site,
            reason: "the sweep found nothing, and another order has other bits".to_string(),
        },
    })
}

/// A bit of one copy flips: XR must name the tensor.
fn state_flip(session: &mut Session, nursery: &Nursery<'_>) -> Result<Fate, CheckError> {
    let rank = session.ranks() - 1;
    let is_copied = session.options.layout.data_parallel_size > 1;
    let parameter = nursery.state.and_then(|state| {
        let mut keys = state.keys();
        keys.find(|(at, component, _)| *at == rank && *component == Component::Model)
    });
    let (true, Some((_, component, name))) = (is_copied, parameter) else {
        return Ok(Fate::NotPlanted);
    };
    let (component, name) = (*component, name.clone());
    let fault = PlantedFault::State {
        after_step: 1,
        rank,
        component,
        name: name.clone(),
    };
    let options = RunOptions {
        faults: vec![fault],
        ..RunOptions::default()
    };
    let Some(mutant) = unless_stopped(session.plain_run(&options, 1..2))? else {
        return Ok(Fate::NotPlanted);
    };
    Ok(match mutant.drifts.first() {
        Some(drift) if drift.name == name => Fate::Caught,
        Some(drift) => Fate::Missed {
            site: name,
            reason: format!("{} was named", drift.name),
        },
        None => Fate::Missed {
            site: name,
            reason: "no copy was found to differ".to_string(),
        },
    })
}

/// Recomputations that are tried before a model counts as too small for this fault.
const RECOMPUTATIONS_MAX: u32 = 8;

/// A rank recomputes activations with the RNG words of another time: the comparison with the
/// forward must name a tensor on that rank, and the microbatch. The masks of a small tensor can be
/// the same at both times; then nothing is wrong in the run, and the next recomputation is taken.
fn unrestored_rng(session: &mut Session, reference: &RunRecord) -> Result<Fate, CheckError> {
    for nth in 0..RECOMPUTATIONS_MAX {
        match unrestored_once(session, reference, nth)? {
            Some(fate) => return Ok(fate),
            None => continue,
        }
    }
    Ok(Fate::NotPlanted)
}

/// The fate of the fault at one recomputation, `None` where it changes no bit of the run.
fn unrestored_once(
    session: &mut Session,
    reference: &RunRecord,
    nth: u32,
) -> Result<Option<Fate>, CheckError> {
    let rank = session.ranks() - 1;
    let fault = PlantedFault::SkipCopy {
        rank,
        step: 1,
        op: RESTORE_RNG.to_string(),
        nth,
    };
    let options = RunOptions {
        faults: vec![fault],
        ..RunOptions::default()
    };
    let Some(mutant) = unless_stopped(session.plain_run(&options, 1..2))? else {
        return Ok(None);
    };
    if mutant.faults_planted == 0 {
        return Ok(Some(Fate::NotPlanted));
    }
    let mut roots = mutant.roots.iter();
    let same = roots.all(|(place, root)| reference.roots.get(place) == Some(root));
    if mutant.drifts.is_empty() && same {
        return Ok(None);
    }
    // Other tensor-parallel ranks see what comes of it: this rank has to be among those named.
    let here = |drift: &&Drift| drift.ranks == (rank, rank) && drift.microbatch.is_some();
    let named = mutant.drifts.iter().find(here).or(mutant.drifts.first());
    Ok(Some(match named {
        Some(drift) if here(&drift) => Fate::Caught,
        Some(drift) => at_rank(rank, format!("what was reported is: {drift}")),
        None => at_rank(rank, "no recomputed tensor was found to differ".to_string()),
    }))
}

fn command_fault_at(kind: MutantKind, group: GroupId, rank: u32, nth: u32) -> PlantedFault {
    let step = 1;
    match kind {
        MutantKind::DroppedWait => PlantedFault::DropWait { rank, step, nth },
        MutantKind::SkippedLaunch => PlantedFault::SkipLaunch { rank, step, nth },
        MutantKind::OffByOne => PlantedFault::WrongKernelExtent { rank, step, nth },
        MutantKind::MismatchedCollective => PlantedFault::MismatchCount {
            group,
            rank,
            step,
            nth,
        },
        _ => PlantedFault::MissingCall {
            group,
            rank,
            step,
            nth,
        },
    }
}

/// A fault of one rank's commands: a hazard or a refusal that names the place.
fn command_fault(
    session: &mut Session,
    nursery: &Nursery<'_>,
    reference: &RunRecord,
    kind: MutantKind,
) -> Result<Fate, CheckError> {
    let Some(group) = nursery.catalogue.widest_group() else {
        return Ok(Fate::NotPlanted);
    };
    let rank = session.group_ranks(group)[0];
    let mut missed = Fate::NotPlanted;
    for nth in 0..COMMANDS_MAX {
        let options = RunOptions {
            faults: vec![command_fault_at(kind, group, rank, nth)],
            hazard_steps_max: STEPS,
            ..RunOptions::default()
        };
        let ran = session.run(&options, steps(session), None, &mut Unobserved);
        match ran {
            // The rank has no command of that number.
            Ok(mutant) if mutant.faults_planted == 0 => break,
            Ok(mutant) if has_new(reference, &mutant.hazards, rank) => return Ok(Fate::Caught),
            // A wait that ends behind a synchronisation, or a launch that writes what it wrote
            // before, orders nothing and leaves nothing unwritten: the next one may.
            Ok(_) => missed = at_rank(rank, "no hazard was reported on that rank".to_string()),
            Err(
                WorldError::CollectiveMismatch { hazards, .. }
                | WorldError::Deadlock { hazards, .. },
            ) if has_new(reference, &hazards, rank) => return Ok(Fate::Caught),
            Err(error) => {
                return Ok(match refusal_names(session, kind, group, rank, &error) {
                    true => Fate::Caught,
                    false => at_rank(rank, format!("what was reported is: {error}")),
                });
            }
        }
    }
    Ok(missed)
}

fn at_rank(rank: u32, reason: String) -> Fate {
    let site = format!("rank {rank}, step 1");
    Fate::Missed { site, reason }
}

/// A hazard on the rank that the run without the fault does not have.
fn has_new(reference: &RunRecord, hazards: &[Hazard], rank: u32) -> bool {
    let known = |hazard: &&Hazard| reference.hazards.contains(hazard);
    let mut new = hazards.iter().filter(|hazard| !known(hazard));
    new.any(|hazard| hazard.rank == rank)
}

/// Whether a run that was stopped says what was planted: the rank, or the communicator.
fn refusal_names(
    session: &Session,
    kind: MutantKind,
    group: GroupId,
    rank: u32,
    error: &WorldError,
) -> bool {
    match (kind, error) {
        (
            MutantKind::OffByOne,
            WorldError::Engine {
                rank: named,
                source,
                ..
            },
        ) => source.launch().is_some() && *named == rank.to_string(),
        (
            MutantKind::MismatchedCollective | MutantKind::MissingCollective,
            WorldError::CollectiveMismatch { group: named, .. },
        ) => *named == session.group_name(group.0),
        _ => false,
    }
}
