//! Why two layouts of one recipe need not compute the same bits: sums that have other addends or
//! another order, by phase and family.

use std::collections::{BTreeMap, BTreeSet};

use super::acts::{Acts, Parameters};
use super::{Side, order};
use crate::job::Work;
use crate::prove::oracle::family_name;
use crate::prove::sweep::SumKind;
use crate::train::{Coordinates, FlatPlace, TrainOptions};
use crate::world::{Family, Phase};

/// A family of sums, or of drawn numbers, that the layouts do not share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanDifference {
    /// `None` for what is no sum.
    pub family: Option<Family>,
    pub why: String,
    /// The first such sum of a step of the straight run, else of the other one.
    pub first_site: Option<String>,
    /// What it can part.
    pub acts: Acts,
}

impl PlanDifference {
    /// In few words, for what it parts.
    pub fn name(&self) -> String {
        match self.family {
            Some(family) => format!("{} {}", family_name(family), self.why),
            None => self.why.clone(),
        }
    }
}

impl std::fmt::Display for PlanDifference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.name())?;
        match &self.first_site {
            Some(site) => write!(f, " (first: {site})"),
            None => Ok(()),
        }
    }
}

/// Everything that the layouts of the straight and of the other run do not share. An empty list
/// says that every element of every tensor is computed by the same expression.
pub(in crate::prove::oracle) fn differences(
    (straight, other): (Side<'_>, Side<'_>),
) -> Vec<PlanDifference> {
    let layouts = Layouts {
        names: (straight.name, other.name),
        straight: &straight.session.options,
        resumed: &other.session.options,
    };
    let mut found = Vec::new();
    let (a, b) = (&straight.sums.kinds, &other.sums.kinds);
    let kinds: BTreeSet<(Phase, Family)> = a.keys().chain(b.keys()).copied().collect();
    // A row of the embedding's gradient is the sum of its tokens in ascending order, whoever holds
    // the row: how many meet is the data's matter.
    for (phase, family) in kinds
        .into_iter()
        .filter(|(_, family)| *family != Family::EmbeddingGrad)
    {
        let pair = (a.get(&(phase, family)), b.get(&(phase, family)));
        let Some((why, acts)) = layouts.why(phase, family, pair) else {
            continue;
        };
        let first_site = pair.0.or(pair.1).map(|kind| kind.first_site.clone());
        found.push(PlanDifference {
            family: Some(family),
            why,
            first_site,
            acts,
        });
    }
    found.extend(layouts.masks());
    found.extend(layouts.samples());
    if straight.session.plans_at_full_size != other.session.plans_at_full_size {
        let name = other.name;
        found.push(PlanDifference {
            family: None,
            why: format!("the real job does not divide so: orders on {name} are the small model's"),
            first_site: None,
            acts: Acts::Nowhere,
        });
    }
    found
}

struct Layouts<'a> {
    names: (&'a str, &'a str),
    straight: &'a TrainOptions,
    resumed: &'a TrainOptions,
}

impl Layouts<'_> {
    /// Why sums of one family in one phase are not the same ones, and what that can part.
    fn why(
        &self,
        phase: Phase,
        family: Family,
        (a, b): (Option<&SumKind>, Option<&SumKind>),
    ) -> Option<(String, Acts)> {
        let (here, there) = self.names;
        let acts = Acts::of(phase, family);
        let addends = |kind: Option<&SumKind>| kind.map(|kind| kind.addends);
        if addends(a) != addends(b) {
            let (a, b) = (sums(addends(a)), sums(addends(b)));
            return Some((format!("{a} on {here}, {b} on {there}"), acts));
        }
        let (a, b) = (a?, b?);
        match family {
            // Squares are summed in the order in which parameters lie in each rank's buffer.
            Family::NormLocal => self.norm_shares_differ().then(|| {
                let why = format!("in another order: ranks hold other parameters on {there}");
                (why, acts)
            }),
            Family::NormGlobal if members(self.straight) != members(self.resumed) => {
                let why = format!("in another order: other ranks hold the parts on {there}");
                Some((why, acts))
            }
            Family::DpGradients => {
                let moved = order::moved((self.straight, a), (self.resumed, b));
                let why = moved.told(there)?;
                Some((why, Acts::Gradients(Parameters::Listed(moved.parameters))))
            }
            _ => order::differ(a, b).then(|| {
                let why = format!(
                    "in another order: rings, trees or lengths of buffers are others on {there}"
                );
                (why, acts)
            }),
        }
    }

    /// Each rank adds the squares of what it keeps the optimizer state of, in flat order: buckets
    /// and instances decide that as much as what it holds does.
    fn norm_shares_differ(&self) -> bool {
        let shares = |options: &TrainOptions| {
            let ranks = 0..options.layout.world_size();
            let owned = ranks.map(|rank| (coordinates(options, rank), options.owned_words(rank)));
            owned
                .filter(|(place, _)| counts_in_norm(options, place))
                .collect::<BTreeMap<_, _>>()
        };
        flat_orders(self.straight) != flat_orders(self.resumed)
            || shares(self.straight) != shares(self.resumed)
    }

    /// Data-parallel ranks take turns in the samples of a step: whose sums over microbatches and
    /// ranks these are. Each sample's own numbers do not depend on it.
    fn samples(&self) -> Option<PlanDifference> {
        let (a, b) = (dealt(self.straight), dealt(self.resumed));
        let told = |(ranks, microbatches, samples): (u32, u32, u32)| match a.2 == b.2 {
            true => format!("{ranks} ranks of {microbatches} microbatches"),
            false => format!("{ranks} ranks of {microbatches} microbatches of {samples} samples"),
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
            acts: Acts::Nowhere,
        })
    }

    /// Dropout's masks come from generators of (pp, tp) ranks, started anew on another layout.
    fn masks(&self) -> Option<PlanDifference> {
        masks_differ(self.straight, self.resumed).map(|why| PlanDifference {
            family: None,
            why: why.to_string(),
            first_site: None,
            acts: Acts::Forward,
        })
    }
}

/// Ranks that share one copy of the model: tensor-parallel ranks, and stages.
fn model_ranks(options: &TrainOptions) -> (u32, u32) {
    let layout = &options.layout;
    (
        layout.tensor_model_parallel_size,
        layout.pipeline_model_parallel_size,
    )
}

/// Why dropout draws other masks on the other layout, where it does.
pub(in crate::prove::oracle) fn masks_differ(
    straight: &TrainOptions,
    resumed: &TrainOptions,
) -> Option<&'static str> {
    let model = &straight.model;
    let drops = model.hidden_dropout > 0.0 || model.attention_dropout > 0.0;
    if drops && model_ranks(straight) != model_ranks(resumed) {
        return Some(
            "dropout masks differ by layout: Megatron-LM forks its seeds by TP and PP rank, and \
             starts them anew on another TP or PP",
        );
    }
    if drops && flat_orders(straight) != flat_orders(resumed) {
        return Some(
            "dropout masks differ by layout: a rank's generator serves its layers in turn, and \
             they are others",
        );
    }
    if drops && dealt(straight) != dealt(resumed) {
        return Some(
            "dropout masks differ: a rank's generator serves its samples in turn, and they are \
             others",
        );
    }
    if drops && turns(straight) != turns(resumed) {
        return Some(
            "dropout masks differ: a rank's generator serves chunks of the model in the order of \
             its schedule, which is another",
        );
    }
    (drops && straight.model.splits_sequence() != resumed.model.splits_sequence()).then_some(
        "dropout masks differ: with sequence parallelism hidden dropout draws from the generator \
         of tensor-parallel ranks",
    )
}

/// How the samples of a step are dealt: ranks, microbatches of each, samples of one.
fn dealt(options: &TrainOptions) -> (u32, u32, u32) {
    (
        options.layout.data_parallel_size,
        options.microbatches(),
        options.model.micro_batch_size,
    )
}

/// Chunk and microbatch of each forward, by stage.
fn turns(options: &TrainOptions) -> Vec<Vec<(u32, u32)>> {
    let stages = 0..options.layout.pipeline_model_parallel_size;
    let turns = stages.map(|stage| {
        let slots = options.pipeline_schedule(stage);
        let slots = slots.expect("options that were checked have a schedule");
        let forward = slots.into_iter().filter(|slot| slot.work == Work::Forward);
        forward.map(|slot| (slot.chunk, slot.microbatch)).collect()
    });
    turns.collect()
}

fn sums(addends: Option<(u32, u32)>) -> String {
    match addends {
        None => "no sums".to_string(),
        Some((least, most)) if least == most => format!("sums of {most} addends"),
        Some((least, most)) => format!("sums of {least} to {most} addends"),
    }
}

/// Tensor, data and pipeline rank.
fn coordinates(options: &TrainOptions, rank: u32) -> (u32, u32, u32) {
    let Coordinates {
        tensor,
        data,
        stage,
    } = options.layout.coordinates(rank);
    (tensor, data, stage)
}

/// Who meets in the sum of the norm's parts, in the order of the ranks: all, or those that share
/// one copy of the model.
fn members(options: &TrainOptions) -> Vec<(u32, u32, u32)> {
    let ranks = 0..options.layout.world_size();
    let all = ranks.map(|rank| coordinates(options, rank));
    all.filter(|place| counts_in_norm(options, place)).collect()
}

/// Whether a rank's part is one of the norm's: copies of the whole have parts of their own.
fn counts_in_norm(options: &TrainOptions, (_, data, _): &(u32, u32, u32)) -> bool {
    options.use_distributed_optimizer || *data == 0
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
