//! Every schedule of a small program.

use std::collections::BTreeMap;
use std::sync::Arc;

use bitproof::prove::sweep::{Finding, Variable};
use bitproof::world::fold::{FoldJob, FoldNode};
use bitproof::world::{Choice, NodeId, NodeRecord, Schedule, TuneKey};

use crate::program::{Case, Scope};

/// What each node of a run wrote, in the order of the run.
pub type Digests = Vec<NodeRecord>;

/// A fold, as far as schedules are concerned.
#[derive(Clone, Debug)]
pub struct Node {
    pub id: NodeId,
    op: String,
    choice: Varies,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Varies {
    Pinned,
    Plan,
    Arrival { writers: u32 },
    Configuration { key: TuneKey, count: u32 },
}

impl Node {
    pub fn of(node: &FoldNode) -> Node {
        let writers = match &node.job {
            FoldJob::Slots(job) => job.addends.len() as u32,
            FoldJob::Segments(job) => job.rows.words / job.width,
        };
        Node {
            id: node.id,
            op: node.site.op.to_string(),
            choice: match &node.choice {
                Choice::Pinned => Varies::Pinned,
                Choice::Placement(_) => Varies::Plan,
                Choice::Arrival => Varies::Arrival { writers },
                Choice::Configuration(plans) => Varies::Configuration {
                    key: node.tune_key(),
                    count: plans.len() as u32,
                },
            },
        }
    }

    /// The plan variable that the node reads.
    fn variable(&self, scope: Scope) -> Vec<String> {
        let communicator = format!("{:?}", self.id.owner);
        let kind = self.op.split(' ').next().expect("ops have names");
        match scope {
            Scope::Run => Vec::new(),
            Scope::Communicator => vec![communicator],
            Scope::FirstUse => vec![communicator, kind.to_string()],
            Scope::Call => vec![communicator, self.op.clone()],
        }
    }

    /// Every single deviation of this node within one allocation.
    pub fn call_deviations(&self) -> Vec<Schedule> {
        let writers = match self.choice {
            Varies::Arrival { writers } => writers,
            Varies::Configuration { count, .. } => {
                let alone = |value| Schedule {
                    plan_at: [(self.id, value)].into(),
                    ..Schedule::default()
                };
                return (1..count).map(alone).collect();
            }
            Varies::Pinned | Varies::Plan => return Vec::new(),
        };
        let orders = permutations(writers).into_iter().skip(1);
        let alone = |order| Schedule {
            arrivals: [(self.id, order)].into(),
            ..Schedule::default()
        };
        orders.map(alone).collect()
    }
}

/// All permutations, ascending first.
fn permutations(count: u32) -> Vec<Arc<[u32]>> {
    let mut all: Vec<Vec<u32>> = vec![Vec::new()];
    for _ in 0..count {
        let longer = |order: &Vec<u32>| {
            let left: Vec<u32> = (0..count)
                .filter(|writer| !order.contains(writer))
                .collect();
            let order = order.clone();
            left.into_iter()
                .map(move |writer| [&order[..], &[writer]].concat())
        };
        all = all.iter().flat_map(longer).collect();
    }
    all.into_iter().map(Arc::from).collect()
}

/// One choice variable: who reads it, and its values.
enum Chosen {
    Plans(Vec<NodeId>, u32),
    Order(NodeId, Vec<Arc<[u32]>>),
    /// What one rank has tuned, with its configurations.
    Tuned(TuneKey, u32),
}

impl Chosen {
    fn count(&self) -> u32 {
        match self {
            Chosen::Plans(_, plans) | Chosen::Tuned(_, plans) => *plans,
            Chosen::Order(_, orders) => orders.len() as u32,
        }
    }

    /// Writes value `number` into a schedule; 0 is the canonical one.
    fn put(&self, number: u32, schedule: &mut Schedule) {
        match self {
            _ if number == 0 => {}
            Chosen::Plans(nodes, _) => {
                let values = nodes.iter().map(|node| (*node, number));
                schedule.plan_at.extend(values);
            }
            Chosen::Tuned(key, _) => drop(schedule.configurations.insert(*key, number)),
            Chosen::Order(node, orders) => {
                let order = orders[number as usize].clone();
                schedule.arrivals.insert(*node, order);
            }
        }
    }
}

fn variables(case: &Case, nodes: &[Node]) -> Vec<Chosen> {
    let mut plans: BTreeMap<Vec<String>, Vec<NodeId>> = BTreeMap::new();
    let mut chosen = Vec::new();
    let mut tuned: BTreeMap<TuneKey, u32> = BTreeMap::new();
    for node in nodes {
        match node.choice {
            Varies::Pinned => {}
            Varies::Configuration { key, count } => drop(tuned.insert(key, count)),
            Varies::Plan => plans
                .entry(node.variable(case.scope))
                .or_default()
                .push(node.id),
            Varies::Arrival { writers } => {
                chosen.push(Chosen::Order(node.id, permutations(writers)))
            }
        }
    }
    let of_plans = plans
        .into_values()
        .map(|nodes| Chosen::Plans(nodes, case.plan_count));
    chosen.extend(of_plans);
    let tuned = tuned.into_iter();
    chosen.extend(tuned.map(|(key, count)| Chosen::Tuned(key, count)));
    chosen
}

/// The first schedule for which `parts` is true, over all joint assignments but the canonical one.
pub fn each_schedule(
    case: &Case,
    nodes: &[Node],
    mut parts: impl FnMut(Schedule) -> bool,
) -> Option<Schedule> {
    let variables = variables(case, nodes);
    let joint: u64 = variables
        .iter()
        .map(|chosen| u64::from(chosen.count()))
        .product();
    for number in 1..joint {
        let (mut schedule, mut rest) = (Schedule::default(), number);
        for chosen in &variables {
            let count = u64::from(chosen.count());
            chosen.put((rest % count) as u32, &mut schedule);
            rest /= count;
        }
        if parts(schedule.clone()) {
            return Some(schedule);
        }
    }
    None
}

/// The schedule in which the finding's variable, and nothing else, has the finding's value.
pub fn deviation(case: &Case, nodes: &[Node], finding: &Finding) -> Schedule {
    let Variable::Placement { value } = finding.variable else {
        return finding.schedule();
    };
    if case.scope == Scope::Run {
        return finding.schedule();
    }
    let own = nodes.iter().find(|node| node.id == finding.node);
    let own = own.expect("the finding's node ran").variable(case.scope);
    let same = nodes
        .iter()
        .filter(|node| node.choice == Varies::Plan && node.variable(case.scope) == own);
    Schedule {
        plan_at: same.map(|node| (node.id, value)).collect(),
        ..Schedule::default()
    }
}

/// The records that differ in the first wave in which any does.
pub fn first_difference<'a>(a: &'a Digests, b: &Digests) -> Option<Vec<&'a NodeRecord>> {
    let differing = differing(a, b);
    let wave = differing.iter().map(|record| record.wave).min()?;
    let of_wave = differing.into_iter().filter(|record| record.wave == wave);
    Some(of_wave.collect())
}

pub fn differs_at(a: &Digests, b: &Digests, node: NodeId) -> bool {
    differing(a, b)
        .iter()
        .any(|record| record.fold == Some(node))
}

fn differing<'a>(a: &'a Digests, b: &Digests) -> Vec<&'a NodeRecord> {
    assert_eq!(a.len(), b.len(), "a choice changes no node's existence");
    let pairs = a.iter().zip(b);
    let differing = pairs.filter(|(a, b)| {
        assert_eq!((&a.site, a.rank, a.fold), (&b.site, b.rank, b.fold));
        a.digest != b.digest
    });
    differing.map(|(a, _)| a).collect()
}
