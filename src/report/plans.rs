//! Plans of a job's collectives, for people and for programs.

use std::fmt::Write;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::plan::{CarriedOut, Collective, Digest, Plan, PlanError, Reduction};
use crate::prove::job_plans::{Cause, CollectivePlans, Difference, Hashes, JobPlans};
use crate::recipe::nccl::Protocol;

/// Digits of a hash that people are shown.
const SHORT_HASH: usize = 16;
/// What stands above a list of assumptions.
pub(super) const ASSUMED: &str = "assumed, as neither the job nor the topology says it:\n";
/// Ranges that people are shown of a difference.
const RANGES_SHOWN: usize = 3;

/// Plans of one job and what they are called.
pub struct NamedPlans<'a> {
    pub recipe: &'a str,
    pub plans: &'a JobPlans,
    /// What was changed in its environment: `NCCL_BUFFSIZE=1048576`.
    pub changes: &'a [String],
}

impl NamedPlans<'_> {
    /// The allocation, and what was changed.
    fn side(&self) -> String {
        let name = &self.plans.allocation().name;
        match self.changes {
            [] => name.clone(),
            changes => format!("{name} with {}", changes.join(" ")),
        }
    }

    fn world(&self) -> u32 {
        self.plans.allocation().placement.world()
    }

    /// All collectives, or the one of that name.
    fn shown(&self, only: Option<&str>) -> impl Iterator<Item = &CollectivePlans> {
        let all = self.plans.collectives.iter();
        all.filter(move |one| only.is_none_or(|name| name == one.collective.name))
    }

    /// A table, a line a collective.
    pub fn to_human(&self, only: Option<&str>) -> String {
        let mut hashes = Hashes::default();
        let head = [
            "collective",
            "groups",
            "operation",
            "type",
            "elements",
            "times",
            "carried out",
            "orders",
            "plans",
            "hash",
        ];
        let mut rows = vec![head.map(str::to_string)];
        for one in self.shown(only) {
            rows.push(row(one, &mut hashes));
        }
        let (recipe, side, world) = (self.recipe, self.side(), self.world());
        let mut text = format!("{recipe} on {side}: {world} ranks\n\n");
        text.push_str(&aligned(&rows));
        let all = hex(&self.plans.hash());
        let _ = writeln!(text, "\nall plans: {all}");
        text.push_str(&self.foundations());
        text
    }

    /// What the plans rest on.
    pub(super) fn foundations(&self) -> String {
        let mut text = format!("basis: {}\n", self.plans.basis());
        if !self.plans.assumed.is_empty() {
            text.push_str(ASSUMED);
        }
        for one in &self.plans.assumed {
            let _ = writeln!(text, "  - {one}");
        }
        text
    }

    pub fn to_json(&self, only: Option<&str>) -> Value {
        let mut hashes = Hashes::default();
        let collectives: Vec<Value> = self
            .shown(only)
            .map(|one| object(self.plans, one, &mut hashes))
            .collect();
        json!({
            "recipe": self.recipe,
            "topology": self.plans.allocation().name,
            "world_size": self.world(),
            "basis": self.plans.basis(),
            "assumed": self.plans.assumed,
            "hash": hex(&self.plans.hash()),
            "collectives": collectives,
        })
    }

    /// How one element of a collective is added: an expression for each different plan.
    pub fn expressions(&self, one: &CollectivePlans, element: u64) -> Vec<Expression> {
        let mut found: Vec<(Digest, Expression)> = Vec::new();
        let mut hashes = Hashes::default();
        let groups = one.collective.groups.iter().zip(&one.plans);
        for (group, plan) in groups {
            let hash = hashes.of(plan);
            if found.iter().any(|(known, _)| *known == hash) {
                continue;
            }
            let group = &self.plans.communicators[group.0 as usize];
            let name = |local: u32| format!("r{}", group.ranks[local as usize]);
            let gpu = |rank: &u32| {
                let slot = self.plans.allocation().placement.slots[*rank as usize];
                (*rank, slot.host, slot.gpu)
            };
            let expression = Expression {
                group: group.name.clone(),
                text: plan.expression_at(element, &name),
                gpus: group.ranks.iter().map(gpu).collect(),
            };
            found.push((hash, expression));
        }
        found
            .into_iter()
            .map(|(_, expression)| expression)
            .collect()
    }
}

/// How the ranks of one group add an element.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Expression {
    pub group: String,
    #[serde(rename = "expression")]
    pub text: String,
    /// Rank, host, GPU of the host.
    pub gpus: Vec<(u32, u32, u32)>,
}

impl Expression {
    pub fn to_human(&self) -> String {
        let mut text = format!("{}: {}\n", self.group, self.text);
        for (rank, host, gpu) in &self.gpus {
            let _ = writeln!(text, "  r{rank}: host {host}, GPU {gpu}");
        }
        text
    }
}

fn row(one: &CollectivePlans, hashes: &mut Hashes) -> [String; 10] {
    let collective = &one.collective;
    let plans = distinct(one, hashes);
    let reduction = match collective.reduction {
        Reduction::Max => " (max)",
        _ => "",
    };
    [
        collective.name.clone(),
        format!("{} x {}", collective.groups.len(), one.ranks),
        format!("{}{reduction}", operation(collective.collective)),
        collective.dtype.to_string(),
        collective.elements.to_string(),
        collective.times.to_string(),
        all_carried_out(one),
        plans
            .iter()
            .map(|plan| orders(plan.plan))
            .max()
            .unwrap_or(0)
            .to_string(),
        plans.len().to_string(),
        hex(&plans[0].hash)[..SHORT_HASH].to_string(),
    ]
}

/// The first group's way, and whether others have another.
fn all_carried_out(one: &CollectivePlans) -> String {
    let first = &one.carried_out[0];
    let said = first.as_ref().map_or("-".to_string(), carried_out);
    match one.carried_out.iter().all(|other| other == first) {
        true => said,
        false => format!("{said}; others otherwise"),
    }
}

fn carried_out(how: &CarriedOut) -> String {
    let channels = match how.channels {
        1 => "1 channel".to_string(),
        channels => format!("{channels} channels"),
    };
    let (algorithm, protocol) = (how.algorithm.name(), protocol(how.protocol));
    let chunk = how
        .chunk_bytes
        .map(|bytes| format!(", {} KiB", bytes / 1024));
    format!(
        "{algorithm}/{protocol}, {channels}{}",
        chunk.unwrap_or_default()
    )
}

const fn protocol(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Simple => "Simple",
        Protocol::Ll => "LL",
        Protocol::Ll128 => "LL128",
    }
}

/// One of the different plans of a collective.
struct Distinct<'a> {
    plan: &'a Arc<Plan>,
    hash: Digest,
    groups: u32,
    /// Place of the first group that has it.
    first: usize,
}

fn distinct<'a>(one: &'a CollectivePlans, hashes: &mut Hashes) -> Vec<Distinct<'a>> {
    let mut found: Vec<Distinct<'_>> = Vec::new();
    for (first, plan) in one.plans.iter().enumerate() {
        let hash = hashes.of(plan);
        match found.iter_mut().find(|known| known.hash == hash) {
            Some(known) => known.groups += 1,
            None => found.push(Distinct {
                plan,
                hash,
                groups: 1,
                first,
            }),
        }
    }
    found
}

/// Different orders within one plan.
fn orders(plan: &Plan) -> usize {
    plan.class_sizes().len()
}

fn object(plans: &JobPlans, one: &CollectivePlans, hashes: &mut Hashes) -> Value {
    let collective = &one.collective;
    let name = |place: usize| &plans.communicators[collective.groups[place].0 as usize].name;
    let different = distinct(one, hashes);
    let different = different.iter().map(|plan| {
        json!({
            "hash": hex(&plan.hash),
            "groups": plan.groups,
            "first_group": name(plan.first),
            "orders": orders(plan.plan),
            "carried_out": one.carried_out[plan.first].as_ref().map(carried_out_object),
        })
    });
    json!({
        "name": collective.name,
        "family": collective.family,
        "groups": collective.groups.len(),
        "ranks": one.ranks,
        "operation": operation(collective.collective),
        "reduction": match collective.reduction {
            Reduction::Sum => "sum",
            Reduction::Max => "max",
            Reduction::Avg => "avg",
        },
        "dtype": collective.dtype.to_string(),
        "elements": collective.elements,
        "bytes": collective.elements * collective.dtype.wire_bytes(),
        "times": collective.times,
        "plans": different.collect::<Vec<Value>>(),
    })
}

fn carried_out_object(how: &CarriedOut) -> Value {
    json!({
        "algorithm": how.algorithm.name(),
        "protocol": protocol(how.protocol),
        "channels": how.channels,
        "chunk_bytes": how.chunk_bytes,
    })
}

/// A difference in words: where, how much of it, and why.
///
/// # Errors
/// A group that one of the allocations does not place.
pub fn difference_to_human(
    [a, b]: [&NamedPlans<'_>; 2],
    found: &Difference,
) -> Result<String, PlanError> {
    let one = &a.plans.collectives[found.place];
    let collective = &one.collective;
    let group = &a.plans.communicators[collective.groups[found.first_group].0 as usize].name;
    let differing: u64 = found
        .ranges
        .iter()
        .map(|range| range.end - range.start)
        .sum();
    let mut text = format!(
        "{}: {} of {} groups; of {group} {differing} of {} elements: ",
        collective.name,
        found.groups,
        one.plans.len(),
        collective.elements,
    );
    let shown = found.ranges.iter().take(RANGES_SHOWN);
    let shown: Vec<String> = shown
        .map(|range| format!("{}..{}", range.start, range.end))
        .collect();
    text.push_str(&shown.join(", "));
    if let more @ 1.. = found.ranges.len().saturating_sub(RANGES_SHOWN) {
        let _ = write!(text, " and {more} more ranges");
    }
    let _ = writeln!(text, "\n  {}", cause(a, b, found)?);
    Ok(text)
}

fn cause(a: &NamedPlans<'_>, b: &NamedPlans<'_>, found: &Difference) -> Result<String, PlanError> {
    let one = &a.plans.collectives[found.place];
    if let Cause::CarriedOut(x, y) = &found.cause {
        return Ok(format!("{}, against {}", carried_out(x), carried_out(y)));
    }
    let mine = a.plans.rings(one, found.first_group)?;
    let theirs = b.plans.rings(one, found.first_group)?;
    let mut pairs = mine.iter().zip(&theirs).enumerate();
    Ok(match pairs.find(|(_, (x, y))| x != y) {
        Some((channel, (x, y))) => format!(
            "the ring of channel {channel} is {}, against {}",
            listed(x),
            listed(y)
        ),
        None => "the same rings, in other trees or blocks".to_string(),
    })
}

/// Ranks of a ring, a long one cut.
fn listed(ranks: &[u32]) -> String {
    const SHOWN: usize = 12;
    let shown: Vec<String> = ranks.iter().take(SHOWN).map(u32::to_string).collect();
    let more = if ranks.len() > SHOWN { " ..." } else { "" };
    format!("{}{more}", shown.join(" "))
}

/// What differs and what does not between two sides of one job.
///
/// # Errors
/// A group that one of the allocations does not place.
pub fn diff_to_human(
    sides: [&NamedPlans<'_>; 2],
    found: &[Difference],
) -> Result<String, PlanError> {
    let [a, b] = sides;
    let all = a.plans.collectives.len();
    let (recipe, one, other) = (a.recipe, a.side(), b.side());
    let mut text = format!("{recipe}: {one} against {other}, {} ranks\n", a.world());
    let _ = writeln!(text, "{} of {all} collectives differ", found.len());
    for difference in found {
        text.push('\n');
        text.push_str(&difference_to_human(sides, difference)?);
    }
    let differs = |place: &usize| found.iter().any(|difference| difference.place == *place);
    let equal: Vec<&str> = (0..all)
        .filter(|place| !differs(place))
        .map(|place| &*a.plans.collectives[place].collective.name)
        .collect();
    if !equal.is_empty() {
        let _ = writeln!(
            text,
            "\nequal bits for all finite inputs: {}",
            equal.join(", ")
        );
    }
    text.push_str(&both_foundations(a, b));
    Ok(text)
}

/// What both sides rest on: what is assumed of one of them alone is told with its name.
fn both_foundations(a: &NamedPlans<'_>, b: &NamedPlans<'_>) -> String {
    let (mine, theirs) = (&a.plans.assumed, &b.plans.assumed);
    let bases = [a.plans.basis(), b.plans.basis()];
    let is_one_basis = bases[0] == bases[1];
    if is_one_basis && mine == theirs {
        return a.foundations();
    }
    let mut text = match is_one_basis {
        true => format!("basis: {}\n", bases[0]),
        false => format!(
            "basis of {}: {}\nbasis of {}: {}\n",
            a.side(),
            bases[0],
            b.side(),
            bases[1]
        ),
    };
    if mine.is_empty() && theirs.is_empty() {
        return text;
    }
    text.push_str(ASSUMED);
    for one in mine {
        let of = if theirs.contains(one) {
            String::new()
        } else {
            format!("{}: ", a.side())
        };
        let _ = writeln!(text, "  - {of}{one}");
    }
    for one in theirs.iter().filter(|one| !mine.contains(one)) {
        let _ = writeln!(text, "  - {}: {one}", b.side());
    }
    text
}

/// The same for programs.
///
/// # Errors
/// A group that one of the allocations does not place.
pub fn diff_to_json(
    [a, b]: [&NamedPlans<'_>; 2],
    found: &[Difference],
) -> Result<Value, PlanError> {
    let object = |difference: &Difference| {
        let one = &a.plans.collectives[difference.place];
        let collective = &one.collective;
        let first = collective.groups[difference.first_group];
        let ranges = difference.ranges.iter();
        Ok(json!({
            "name": collective.name,
            "groups": difference.groups,
            "of_groups": one.plans.len(),
            "first_group": a.plans.communicators[first.0 as usize].name,
            "elements": collective.elements,
            "ranges": ranges.map(|range| [range.start, range.end]).collect::<Vec<_>>(),
            "cause": cause(a, b, difference)?,
        }))
    };
    let differences: Vec<Value> = found.iter().map(object).collect::<Result<_, PlanError>>()?;
    Ok(json!({
        "recipe": a.recipe,
        "topologies": [a.side(), b.side()],
        "world_size": a.world(),
        "basis": [a.plans.basis(), b.plans.basis()],
        "assumed": [a.plans.assumed, b.plans.assumed],
        "hashes": [hex(&a.plans.hash()), hex(&b.plans.hash())],
        "identical": found.is_empty(),
        "collectives": a.plans.collectives.len(),
        "differences": differences,
    }))
}

pub fn hex(digest: &Digest) -> String {
    digest.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Columns as wide as their widest cell, two blanks between.
fn aligned<const N: usize>(rows: &[[String; N]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<usize> = (0..N).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(&widths);
        let line: Vec<String> = cells
            .map(|(cell, width)| format!("{cell:<width$}"))
            .collect();
        text.push_str(line.join("  ").trim_end());
        text.push('\n');
    }
    text
}

/// What a collective is called in reports.
const fn operation(collective: Collective) -> &'static str {
    match collective {
        Collective::AllReduce => "all-reduce",
        Collective::ReduceScatter => "reduce-scatter",
        Collective::ReduceScatterFp32Accumulation => "reduce-scatter, fp32 sum",
        Collective::Reduce { .. } => "reduce",
        Collective::AllGather => "all-gather",
        Collective::Broadcast => "broadcast",
        Collective::AllToAll => "all-to-all",
    }
}
