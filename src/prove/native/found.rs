//! What races on an adapter have shown, as plain data.

use serde::Serialize;

use crate::engine::EngineIdentity;
use crate::prove::outcome::Bits;
use crate::world::{Family, NodeId};

/// Folds in arrival order, with true atomics in their place.
#[derive(Clone, Debug, Serialize)]
pub struct NativeRaces {
    pub adapter: EngineIdentity,
    /// Repeats of each fold: in the order of tickets, and as the adapter runs them.
    pub ticketed: u32,
    pub free: u32,
    /// Ticketed repeats, of all folds, that were run with each writer alone.
    pub ticketed_apart: u64,
    pub folds: Vec<RacedFold>,
    /// Folds in arrival order of the first step that were not raced, and why.
    pub not_raced: Vec<NotRaced>,
    /// Elements of free repeats by what told whether their bits are among the model's.
    pub judged: Judged,
    /// The first results that the model does not allow.
    pub outside: Vec<OutsideModel>,
    pub outside_count: u64,
    /// Why nothing was raced, where nothing was.
    pub reason: Option<&'static str>,
}

impl NativeRaces {
    /// With the reason, where there are no folds.
    pub(super) fn reasoned(self) -> NativeRaces {
        let reason = match (self.folds.is_empty(), self.not_raced.is_empty()) {
            (false, _) => None,
            (true, true) => Some("nothing to race: no fold of the first step is in arrival order"),
            (true, false) => {
                Some("nothing raced: no fold of the first step in arrival order could be")
            }
        };
        NativeRaces { reason, ..self }
    }

    /// Whether every result is one that the model allows, as far as it could be told.
    pub fn is_inside(&self) -> bool {
        self.outside_count == 0
    }
}

/// One fold that was raced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RacedFold {
    pub site: String,
    pub node: NodeId,
    pub family: Family,
    pub ranks: Vec<u32>,
    pub writers: u32,
    /// Addends of an element, the most of any.
    pub addends_max: u32,
    pub elements: u64,
    /// Different results among the ticketed repeats, and among the free ones.
    pub ticketed_results: u64,
    pub free_results: u64,
    /// Free repeats that have not the bits of their order of tickets.
    pub free_out_of_order: u32,
}

/// Folds of one family that were not raced, for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NotRaced {
    pub family: Family,
    pub reason: String,
    pub folds: u64,
}

/// Elements by what judged their free results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Judged {
    /// Every result that an order gives, and no other.
    pub exact_set: u64,
    /// Between the least and the greatest result of any order.
    pub min_max: u64,
    /// Inside the error bound of any order.
    pub interval: u64,
    /// Nothing could be said.
    pub unjudged: u64,
}

/// Bits that no order of the model gives, or not the order that was run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OutsideModel {
    pub site: String,
    pub node: NodeId,
    pub ranks: Vec<u32>,
    pub element: u64,
    pub mode: RaceMode,
    pub got: Bits,
    /// What the model gives in the same order, where there was one.
    pub expected: Option<Bits>,
    /// The order, as numbers of the fold's addends or rows.
    pub order: Option<Vec<u32>>,
    /// Elements of the same result that are outside, this one included.
    pub elements: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RaceMode {
    Ticketed,
    Free,
}

/// Two folds, and nothing outside the model.
#[cfg(test)]
pub(crate) fn sample() -> NativeRaces {
    let fold = |rank: u32| RacedFold {
        site: "step 1, backward, output_layer, wgrad_sum".to_owned(),
        node: NodeId {
            step: 1,
            owner: crate::world::Owner::Rank(rank),
            ordinal: 0,
        },
        family: Family::WgradSplitK,
        ranks: vec![rank],
        writers: 3,
        addends_max: 3,
        elements: 4_096,
        ticketed_results: 3,
        free_results: 2,
        free_out_of_order: 1,
    };
    NativeRaces {
        adapter: EngineIdentity {
            name: "wgpu".to_owned(),
            adapter: "llvmpipe (Vulkan)".to_owned(),
            versions: Vec::new(),
            strict: true,
        },
        ticketed: 5,
        free: 5,
        ticketed_apart: 0,
        folds: vec![fold(0), fold(1)],
        not_raced: vec![NotRaced {
            family: Family::EmbeddingGrad,
            reason: "fewer than two addends meet".to_owned(),
            folds: 16,
        }],
        judged: Judged {
            exact_set: 8_192,
            ..Judged::default()
        },
        outside: Vec::new(),
        outside_count: 0,
        reason: None,
    }
}

/// Nothing that could race.
#[cfg(test)]
pub(crate) fn sample_of_nothing() -> NativeRaces {
    let nothing = NativeRaces {
        folds: Vec::new(),
        not_raced: Vec::new(),
        judged: Judged::default(),
        ..sample()
    };
    nothing.reasoned()
}
