//! Joint answers to non-blocking queries: each run shows further queries, so what there is to run
//! is found while it is explored.
//!
//! A run is decided by the set of queries that are answered *not ready*: everything else that it
//! does follows. Sets are visited by their size, and each once. A query is *asleep* in a set, as in
//! Godefroid's sleep sets, if the sets that add it are visited from another one: because it came
//! before the answer that this set added, or because it is independent of it. Queries are
//! independent if their ranks are in parts of the world that nothing joins, no collective and no
//! message of any run: then what a rank does under both answers it does under one of the two.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::world::{GroupId, QueryId, RunRecord};

/// Queries that are answered *not ready*.
pub type Answers = BTreeSet<QueryId>;

/// What one run showed.
#[derive(Clone, Debug, Default)]
pub struct Ran {
    /// Queries that both answers could be given to, in the order in which they were answered; none
    /// where the run stopped.
    pub open: Vec<QueryId>,
    /// Ranks that met, list by list.
    pub met: Vec<Arc<[u32]>>,
}

impl Ran {
    /// What an exploration needs to know of a run.
    pub fn of(record: &RunRecord, ranks_of: impl Fn(GroupId) -> Arc<[u32]>) -> Ran {
        let open = record.queries.iter().filter(|query| query.open);
        let groups = record.groups_met.iter();
        let pairs = record.messages_met.iter();
        let pairs = pairs.map(|(from, to)| Arc::from([*from, *to]));
        Ran {
            open: open.map(|query| query.id).collect(),
            met: groups.map(|group| ranks_of(*group)).chain(pairs).collect(),
        }
    }
}

/// How far an exploration came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Explored {
    /// Sets of answers that were run, the empty one included.
    pub runs: u64,
    /// Every set that is reached was run, but for those that independence leaves out.
    pub is_complete: bool,
    /// Every set of at most so many answers was.
    pub answers_max: u64,
    /// Queries that were left out of a set because they are independent of it.
    pub independent: u64,
}

/// The parts of a world that nothing joins, by rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parts(Vec<u32>);

impl Parts {
    fn of<'a>(ranks: u32, runs: impl Iterator<Item = &'a Ran>) -> Parts {
        let mut parts = Parts((0..ranks).collect());
        for met in runs.flat_map(|ran| &ran.met) {
            for rank in met.iter().skip(1) {
                parts.join(met[0], *rank);
            }
        }
        // Every rank under the least of its part.
        Parts((0..ranks).map(|rank| parts.part(rank)).collect())
    }

    fn part(&self, mut rank: u32) -> u32 {
        while self.0[rank as usize] != rank {
            rank = self.0[rank as usize];
        }
        rank
    }

    fn join(&mut self, a: u32, b: u32) {
        let (a, b) = (self.part(a), self.part(b));
        self.0[a.max(b) as usize] = a.min(b);
    }

    /// Whether nothing joins the ranks of these queries.
    pub fn are_apart(&self, a: QueryId, b: QueryId) -> bool {
        self.part(a.rank) != self.part(b.rank)
    }
}

/// Whether two queries are independent, given the parts of the world.
type Independent = fn(&Parts, QueryId, QueryId) -> bool;

/// Visits sets of answers, at most `runs_max` of them. `run` is called once for each.
///
/// # Errors
/// What `run` fails with.
pub fn explore<E>(
    ranks: u32,
    runs_max: usize,
    run: impl FnMut(&Answers) -> Result<Ran, E>,
) -> Result<Explored, E> {
    explore_with(Parts::are_apart, ranks, runs_max, run)
}

fn explore_with<E>(
    independent: Independent,
    ranks: u32,
    runs_max: usize,
    mut run: impl FnMut(&Answers) -> Result<Ran, E>,
) -> Result<Explored, E> {
    let mut known: BTreeMap<Answers, Ran> = BTreeMap::new();
    loop {
        let parts = Parts::of(ranks, known.values());
        let walk = Walk {
            independent,
            parts: &parts,
            runs_max,
        };
        let explored = walk.through(&mut known, &mut run)?;
        // What has met by now may have been taken for apart.
        if !explored.is_complete || Parts::of(ranks, known.values()) == parts {
            return Ok(explored);
        }
    }
}

struct Walk<'a> {
    independent: Independent,
    parts: &'a Parts,
    runs_max: usize,
}

impl Walk<'_> {
    fn through<E>(
        &self,
        known: &mut BTreeMap<Answers, Ran>,
        run: &mut impl FnMut(&Answers) -> Result<Ran, E>,
    ) -> Result<Explored, E> {
        let mut explored = Explored::default();
        let mut level = vec![(Answers::new(), Answers::new())];
        while !level.is_empty() {
            let mut next = Vec::new();
            for (denied, asleep) in &level {
                if !known.contains_key(denied) {
                    if known.len() >= self.runs_max {
                        explored.runs = known.len() as u64;
                        return Ok(explored);
                    }
                    let ran = run(denied)?;
                    known.insert(denied.clone(), ran);
                }
                explored.independent += self.further(&known[denied], (denied, asleep), &mut next);
            }
            explored.answers_max = level[0].0.len() as u64;
            level = next;
        }
        explored.runs = known.len() as u64;
        explored.is_complete = true;
        Ok(explored)
    }

    /// The sets with one answer more that are visited from this one; how many queries fell asleep
    /// in them as they are independent.
    fn further(
        &self,
        ran: &Ran,
        (denied, asleep): (&Answers, &Answers),
        next: &mut Vec<(Answers, Answers)>,
    ) -> u64 {
        let is_awake = |query: &&QueryId| !denied.contains(query) && !asleep.contains(query);
        let awake: Vec<QueryId> = ran.open.iter().filter(is_awake).copied().collect();
        let mut independent = 0;
        for (place, query) in awake.iter().enumerate() {
            let (earlier, later) = (&awake[..place], &awake[place + 1..]);
            let apart = |other: &&QueryId| (self.independent)(self.parts, **other, *query);
            let apart: Vec<QueryId> = later.iter().filter(apart).copied().collect();
            independent += apart.len() as u64;
            let mut denied = denied.clone();
            denied.insert(*query);
            let mut asleep = asleep.clone();
            asleep.extend(earlier.iter().copied().chain(apart));
            next.push((denied, asleep));
        }
        independent
    }
}

#[cfg(test)]
mod tests;
