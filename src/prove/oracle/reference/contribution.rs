//! Sums as the contributions they are made of, and what is wrong with one.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

/// Where a contribution comes from: the backward of one microbatch on one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Source {
    pub step: u32,
    pub rank: u32,
    pub microbatch: u32,
}

/// A source and the bits of what it is multiplied by, as f64: products of f32 factors.
type Term = (Source, u64);

/// A word's value as a sum of contributions. Empty: a constant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Terms(Arc<BTreeMap<Term, u32>>);

impl Terms {
    pub fn of(source: Source) -> Terms {
        Terms(Arc::new(BTreeMap::from([((source, 1f64.to_bits()), 1)])))
    }

    /// Each source once, with this weight.
    pub fn each(sources: impl Iterator<Item = Source>, scale: f32) -> Terms {
        let bits = f64::from(scale).to_bits();
        Terms(Arc::new(
            sources.map(|source| ((source, bits), 1)).collect(),
        ))
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn add(&self, other: &Terms) -> Terms {
        if self.0.is_empty() {
            return other.clone();
        }
        let mut sum = (*self.0).clone();
        for (term, times) in other.0.iter() {
            *sum.entry(*term).or_insert(0) += times;
        }
        Terms(Arc::new(sum))
    }

    pub fn scaled(&self, factor: f32) -> Terms {
        let mut scaled = BTreeMap::new();
        for ((source, bits), times) in self.0.iter() {
            let weight = f64::from_bits(*bits) * f64::from(factor);
            *scaled.entry((*source, weight.to_bits())).or_insert(0) += times;
        }
        Terms(Arc::new(scaled))
    }

    /// What is wrong with these terms where `wanted` were to be; nothing where they are equal.
    pub fn faults(&self, wanted: &Terms, step: u32) -> Vec<Fault> {
        let mut faults = Vec::new();
        let (have, want) = (self.by_source(), wanted.by_source());
        let missing: Vec<Source> = want
            .keys()
            .filter(|source| !have.contains_key(*source))
            .copied()
            .collect();
        if !missing.is_empty() {
            faults.push(Fault::Missing { sources: missing });
        }
        let (mut doubled, mut foreign, mut stale) = (Vec::new(), Vec::new(), Vec::new());
        let mut weights: BTreeMap<(u64, u64), Vec<Source>> = BTreeMap::new();
        for (source, (times, weight)) in &have {
            match want.get(source) {
                None if source.step < step => stale.push(*source),
                None => foreign.push(*source),
                Some(_) if *times > 1 => doubled.push(*source),
                Some((_, wanted)) if weight != wanted => {
                    let sources = weights.entry((*weight, *wanted)).or_default();
                    sources.push(*source);
                }
                Some(_) => {}
            }
        }
        if !doubled.is_empty() {
            faults.push(Fault::Doubled { sources: doubled });
        }
        if !foreign.is_empty() {
            faults.push(Fault::Foreign { sources: foreign });
        }
        if !stale.is_empty() {
            faults.push(Fault::Stale { sources: stale });
        }
        for ((have, want), sources) in weights {
            let (have, want) = (f64::from_bits(have), f64::from_bits(want));
            faults.push(Fault::Scaled {
                sources,
                have,
                want,
            });
        }
        faults
    }

    /// How often each source is there, and its weight.
    fn by_source(&self) -> BTreeMap<Source, (u32, u64)> {
        let mut sources: BTreeMap<Source, (u32, u64)> = BTreeMap::new();
        for ((source, bits), times) in self.0.iter() {
            let entry = sources.entry(*source).or_insert((0, *bits));
            entry.0 += times;
        }
        sources
    }
}

/// What is wrong with a sum.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "fault")]
pub enum Fault {
    /// Contributions that never arrived.
    Missing { sources: Vec<Source> },
    /// Contributions that were added more than once.
    Doubled { sources: Vec<Source> },
    /// Contributions of ranks whose gradients do not belong here: partial sums were mixed.
    Foreign { sources: Vec<Source> },
    /// Contributions of an earlier step.
    Stale { sources: Vec<Source> },
    /// Contributions with another weight than the average asks for.
    Scaled {
        sources: Vec<Source>,
        have: f64,
        want: f64,
    },
}

impl Eq for Fault {}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Fault::Missing { sources } => write!(f, "lacks {}", listed(sources)),
            Fault::Doubled { sources } => write!(f, "has {} more than once", listed(sources)),
            Fault::Foreign { sources } => {
                write!(f, "has {}, which do not belong here", listed(sources))
            }
            Fault::Stale { sources } => write!(f, "still has {}", listed(sources)),
            Fault::Scaled {
                sources,
                have,
                want,
            } => {
                write!(f, "has {} times {have}, not {want}", listed(sources))
            }
        }
    }
}

/// Few sources in full, more by their number.
fn listed(sources: &[Source]) -> String {
    const SHOWN: usize = 3;
    let mut parts: Vec<String> = sources
        .iter()
        .take(SHOWN)
        .map(|source| {
            let Source {
                step,
                rank,
                microbatch,
            } = source;
            format!("microbatch {microbatch} of rank {rank} in step {step}")
        })
        .collect();
    if sources.len() > SHOWN {
        parts.push(format!("{} more", sources.len() - SHOWN));
    }
    parts.join(", ")
}

/// A run of gradient words whose contributions are not what the layout asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub step: u32,
    /// The rank whose optimizer read them.
    pub rank: u32,
    pub parameter: String,
    /// Words from..to of the gradients that the optimizer reads.
    pub words: (u32, u32),
    pub faults: Vec<Fault>,
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Finding {
            step,
            rank,
            parameter,
            words: (from, to),
            faults,
        } = self;
        write!(
            f,
            "in step {step} the gradient of `{parameter}` that the optimizer of rank {rank} reads \
             (words {from}..{to}) "
        )?;
        let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
        f.write_str(&faults.join("; "))
    }
}
