//! A run that cannot go on because its ranks do not call the same: what a cluster shows as a hang,
//! or, where the calls fit, as sums of what does not belong together. It is a verdict, not a
//! failure of the check.

use serde::Serialize;

use crate::prove::session::CheckError;
use crate::scenario::{OracleKind, OriginClass};
use crate::world::memory::{Hazard, HazardKind};
use crate::world::{Side, Site, WorldError};

/// Why a run of the recipe stopped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Stop {
    pub class: OriginClass,
    /// RES where it is a resumed run that stopped.
    pub oracle: OracleKind,
    /// The communicator, or the pair of a message.
    pub group: Option<String>,
    /// Ranks, and what they wait for.
    pub sides: Vec<StopSide>,
    /// All of it in one sentence.
    pub what: String,
    /// What was met before: the list of hazards has these, too.
    #[serde(skip)]
    pub hazards: Vec<Hazard>,
}

/// Ranks that stand at one place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StopSide {
    pub ranks: Vec<u32>,
    pub site: Option<Site>,
    pub what: String,
}

impl Stop {
    fn at(stopped: WorldError, oracle: OracleKind) -> Stop {
        let text = stopped.to_string();
        let what = match oracle {
            OracleKind::RES => format!("a resumed run stops: {text}"),
            _ => text,
        };
        let (class, group, sides, hazards) = match stopped {
            WorldError::CollectiveMismatch {
                group,
                sides,
                hazards,
                ..
            } => (OriginClass::CollectiveMismatch, Some(group), sides, hazards),
            WorldError::Deadlock { sides, hazards, .. } => {
                (OriginClass::Deadlock, None, sides, hazards)
            }
            _ => unreachable!("nothing else is a stop"),
        };
        // What a rank did not join is unwritten, and nobody waits for it: no cause of the stop.
        let is_cause = |hazard: &Hazard| {
            let follows = [HazardKind::UninitialisedRead, HazardKind::MissingJoin];
            !follows.contains(&hazard.kind)
        };
        let hazards = hazards.into_iter().filter(is_cause).collect();
        let side = |Side { ranks, site, what }: Side| StopSide {
            ranks,
            site: site.map(|site| (*site).clone()),
            what,
        };
        Stop {
            class,
            oracle,
            group,
            sides: sides.into_iter().map(side).collect(),
            what,
            hazards,
        }
    }

    /// The first place where some ranks wait.
    pub fn site(&self) -> Option<&Site> {
        self.sides.iter().find_map(|side| side.site.as_ref())
    }
}

/// Whether the ranks themselves stopped the world.
fn is_stop(error: &WorldError) -> bool {
    matches!(
        error,
        WorldError::CollectiveMismatch { .. } | WorldError::Deadlock { .. }
    )
}

impl CheckError {
    /// Of one of two runs of the same choices, where the other came to its end: it is no choice of
    /// the model's but where one of these pairs, which nothing orders, was met.
    pub(in crate::prove) fn not_repeated(self, hazards: &[Hazard]) -> CheckError {
        let CheckError::Stopped(mut stop) = self else {
            return self;
        };
        stop.hazards.extend(hazards.iter().cloned());
        if stop.hazards.is_empty() {
            stop.class = OriginClass::Uncontrolled;
            stop.what = format!("the same choices stop one of two runs: {}", stop.what);
        }
        CheckError::Stopped(stop)
    }

    /// Whether the ranks of a run themselves stopped it.
    pub(in crate::prove) fn is_stop(&self) -> bool {
        matches!(self, CheckError::World(error) if is_stop(error))
    }

    /// Of a run whose stop is the recipe's own, as `oracle` shows it.
    pub(super) fn stop_shown_by(self, oracle: OracleKind) -> CheckError {
        match self {
            CheckError::World(error) if is_stop(&error) => {
                CheckError::Stopped(Box::new(Stop::at(error, oracle)))
            }
            error => error,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn side() -> Side {
        Side {
            ranks: vec![1],
            site: None,
            what: "rank 1 has finished and never joins".to_string(),
        }
    }

    #[test]
    fn what_ranks_do_is_a_verdict_and_what_a_machine_does_is_not() {
        let deadlock = || {
            CheckError::World(WorldError::Deadlock {
                detail: "no rank can go on".to_string(),
                sides: vec![side()],
                hazards: Vec::new(),
            })
        };
        let mismatch = CheckError::World(WorldError::CollectiveMismatch {
            group: "dp0".to_string(),
            detail: "ranks [1] call other things".to_string(),
            sides: vec![side()],
            hazards: Vec::new(),
        });
        for (error, oracle, class, group) in [
            (deadlock(), OracleKind::R2R, OriginClass::Deadlock, None),
            (deadlock(), OracleKind::RES, OriginClass::Deadlock, None),
            (
                mismatch,
                OracleKind::R2R,
                OriginClass::CollectiveMismatch,
                Some("dp0".to_string()),
            ),
        ] {
            let CheckError::Stopped(stop) = error.stop_shown_by(oracle) else {
                panic!("it is a stop");
            };
            assert_eq!(
                (stop.class, stop.oracle, &stop.group),
                (class, oracle, &group)
            );
            assert_eq!(stop.sides[0].ranks, [1]);
            let resumed = stop.what.starts_with("a resumed run stops: ");
            assert_eq!(resumed, oracle == OracleKind::RES, "{}", stop.what);
        }
        let canary = CheckError::World(WorldError::Canary { rank: 1 });
        let left = canary.stop_shown_by(OracleKind::R2R);
        assert!(matches!(left, CheckError::World(WorldError::Canary { .. })));
    }
}
