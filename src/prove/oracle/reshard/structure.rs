//! Why two layouts of one recipe need not compute the same bits: sums that have other addends or
//! another order, by family.

use std::collections::{BTreeMap, BTreeSet};

use super::{Resume, layout};
use crate::prove::oracle::family_name;
use crate::prove::session::Session;
use crate::prove::sweep::{FoldSite, Sweep};
use crate::train::{FlatPlace, TrainOptions};
use crate::world::Family;

/// A family of sums, or of drawn numbers, that the layouts do not share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanDifference {
    /// `None` for what is no sum.
    pub family: Option<Family>,
    pub why: String,
    /// The first such sum of a step of the straight run.
    pub first_site: Option<String>,
}

impl std::fmt::Display for PlanDifference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(family) = self.family {
            write!(f, "{} ", family_name(family))?;
        }
        write!(f, "{}", self.why)?;
        match &self.first_site {
            Some(site) => write!(f, " (first: {site})"),
            None => Ok(()),
        }
    }
}

/// Fewest and most addends of a family's sums; `None` where there are none.
type Addends = Option<(u32, u32)>;

/// Everything that the layouts of the straight and of the resumed run do not share. An empty list
/// says that every element of every tensor is computed by the same expression.
pub(super) fn differences(
    resume: &Resume<'_>,
    session: &Session,
    resumed: &Sweep,
) -> Vec<PlanDifference> {
    let layouts = Layouts {
        names: (
            layout(resume.straight).to_string(),
            layout(session).to_string(),
        ),
        straight: &resume.straight.options,
        resumed: &session.options,
    };
    let (a, b) = (addends(resume.sweep), addends(resumed));
    let families: BTreeSet<Family> = a.keys().chain(b.keys()).copied().collect();
    let mut found = Vec::new();
    if resume.straight.plans_at_full_size != session.plans_at_full_size {
        let name = &layouts.names.1;
        found.push(PlanDifference {
            family: None,
            why: format!("the real job does not divide so: orders on {name} are the small model's"),
            first_site: None,
        });
    }
    found.extend(layouts.samples());
    found.extend(layouts.masks());
    for family in families {
        let (a, b) = (a.get(&family).copied(), b.get(&family).copied());
        let Some(why) = layouts.why(family, a, b) else {
            continue;
        };
        found.push(PlanDifference {
            family: Some(family),
            why,
            first_site: first_site(resume.sweep, family),
        });
    }
    found.sort_by_key(|difference| difference.family.is_none());
    found
}

/// Addends of each family's sums. A row of the embedding's gradient is the sum of its tokens in
/// ascending order, whoever holds the row: how many meet is the data's matter.
fn addends(sweep: &Sweep) -> BTreeMap<Family, (u32, u32)> {
    let mut all: BTreeMap<Family, (u32, u32)> = BTreeMap::new();
    let tallies = sweep.tallies.iter();
    for (key, tally) in tallies.filter(|(key, _)| key.family != Family::EmbeddingGrad) {
        let (least, most) = (tally.addends_min, tally.addends_max);
        let known = all.entry(key.family).or_insert((least, most));
        *known = (known.0.min(least), known.1.max(most));
    }
    all
}

/// The first sum of the family in the canonical schedule, among those of the first steps.
fn first_site(sweep: &Sweep, family: Family) -> Option<String> {
    let sites = sweep.catalogue.sites.values();
    let of_family = sites.filter(|site| site.family == family);
    let first: Option<&FoldSite> =
        of_family.min_by_key(|site| (site.node.step, site.wave, site.node));
    // The step of the listed one is not the step that parts: each step has the same sums.
    let name = &first?.name;
    Some(match name.split_once(", ") {
        Some((_, rest)) => rest.to_string(),
        None => name.clone(),
    })
}

struct Layouts<'a> {
    names: (String, String),
    straight: &'a TrainOptions,
    resumed: &'a TrainOptions,
}

impl Layouts<'_> {
    fn why(&self, family: Family, a: Addends, b: Addends) -> Option<String> {
        let (here, there) = (&self.names.0, &self.names.1);
        if a != b {
            let (a, b) = (sums(a), sums(b));
            return Some(format!("{a} on {here}, {b} on {there}"));
        }
        match family {
            // Squares are summed in the order in which parameters lie in each rank's buffer.
            Family::NormLocal if self.flat_orders_differ() => Some(format!(
                "in another order: ranks hold other parameters on {there}"
            )),
            // Two addends commute; of more, a ring or tree starts where the buffer says.
            Family::DpGradients | Family::OptimizerInstances
                if a.is_some_and(|(_, most)| most > 2) && self.flat_orders_differ() =>
            {
                Some(format!(
                    "in another order: an element's place in its bucket is another on {there}"
                ))
            }
            _ => None,
        }
    }

    fn flat_orders_differ(&self) -> bool {
        flat_orders(self.straight) != flat_orders(self.resumed)
    }

    /// Data-parallel ranks take turns in the samples of a step.
    fn samples(&self) -> Option<PlanDifference> {
        let dealt =
            |options: &TrainOptions| (options.layout.data_parallel_size, options.microbatches());
        let (a, b) = (dealt(self.straight), dealt(self.resumed));
        let told = |(ranks, microbatches): (u32, u32)| {
            format!("{ranks} ranks of {microbatches} microbatches")
        };
        (a != b).then(|| PlanDifference {
            family: None,
            why: format!(
                "samples are dealt to {} on {}, to {} on {}",
                told(a),
                self.names.0,
                told(b),
                self.names.1
            ),
            first_site: None,
        })
    }

    /// Dropout's masks come from generators of (pp, tp) ranks, started anew on another layout.
    fn masks(&self) -> Option<PlanDifference> {
        let sizes = |options: &TrainOptions| {
            let layout = &options.layout;
            (
                layout.tensor_model_parallel_size,
                layout.pipeline_model_parallel_size,
            )
        };
        let model = &self.straight.model;
        let drops = model.hidden_dropout > 0.0 || model.attention_dropout > 0.0;
        // A generator serves its rank's layers one after another.
        let others = sizes(self.straight) != sizes(self.resumed) || self.flat_orders_differ();
        (drops && others).then(|| PlanDifference {
            family: None,
            why: "dropout's masks are drawn by other generators".to_string(),
            first_site: None,
        })
    }
}

fn sums(addends: Addends) -> String {
    match addends {
        None => "no sums".to_string(),
        Some((least, most)) if least == most => format!("sums of {most} addends"),
        Some((least, most)) => format!("sums of {least} to {most} addends"),
    }
}

/// What the ranks of each pipeline stage hold, in the order in which it lies.
fn flat_orders(options: &TrainOptions) -> BTreeMap<u32, Vec<FlatPlace>> {
    let ranks = 0..options.layout.world_size();
    let mut orders = BTreeMap::new();
    for rank in ranks {
        let stage = options.layout.coordinates(rank).stage;
        orders
            .entry(stage)
            .or_insert_with(|| options.flat_places(rank));
    }
    orders
}
