//! Why copies part: they are followed back from where they differ, operand by operand, as long as
//! what was read differs as well.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::world::{Drift, Phase, Site};

use super::log::{Behind, Kinship, Log, Pair, Words, Written};
use super::seen::Seen;

/// Where a difference begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beginning {
    /// A node reads the same on both ranks and writes other bytes.
    Node,
    /// Both ranks wrote the same, and what was there later is another thing, though nobody wrote.
    Memory,
    /// Different nodes of the program wrote the words last.
    Strangers,
    /// One node, run with other parameters on each rank.
    Unlike,
    /// The host gave other words.
    Uploads,
    /// Each rank has a part of its own of one collective's result.
    Parts,
    /// Operands differ in words that are not matched one by one. Whether the ranks should have had
    /// them so is not known.
    Unmatched,
    /// Nobody wrote the words on one of the ranks in the steps that were looked at.
    Earlier,
}

/// One node, as two ranks ran it: in another place of the program, perhaps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub ranks: (u32, u32),
    /// `None` where a rank has run none.
    pub sites: (Option<Arc<Site>>, Option<Arc<Site>>),
}

/// Where a difference of two ranks begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    pub beginning: Beginning,
    pub place: Place,
}

/// The node that let a difference into copies, and what it goes back to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LetIn {
    pub drift: Drift,
    /// The last node that computed the copies. What only moved them on is left out.
    pub at: Place,
    /// The operand of that node which differed already, if one did.
    pub operand: Option<String>,
    /// Where the differing operand was computed of what a microbatch gave.
    pub computed: Option<Place>,
    pub cause: Cause,
}

/// A drift, with what let it in where that is known.
pub fn told(drift: &Drift, let_in: Option<&LetIn>) -> String {
    let of_drift = let_in.filter(|let_in| let_in.drift == *drift);
    of_drift.map_or_else(|| drift.to_string(), ToString::to_string)
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (a, b) = self.ranks;
        match &self.sites {
            (Some(site), Some(other)) if site == other => {
                write!(f, "{site} (ranks {a} and {b})")
            }
            (Some(earlier), Some(site)) if earlier.step < site.step => {
                write!(
                    f,
                    "{site}, which rank {a} does not run as rank {b} does: {earlier}"
                )
            }
            (Some(site), Some(earlier)) if earlier.step < site.step => {
                write!(
                    f,
                    "{site}, which rank {b} does not run as rank {a} does: {earlier}"
                )
            }
            (Some(site), Some(other)) => write!(f, "{site} on rank {a} and {other} on rank {b}"),
            (Some(site), None) | (None, Some(site)) => {
                let (runs, lacks) = if self.sites.0.is_some() {
                    (a, b)
                } else {
                    (b, a)
                };
                write!(f, "{site} on rank {runs}, and at nothing on rank {lacks}")
            }
            (None, None) => write!(f, "what ranks {a} and {b} had before"),
        }
    }
}

impl std::fmt::Display for LetIn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}; let in at ", self.drift)?;
        let Cause { beginning, place } = &self.cause;
        if let Some(operand) = &self.operand {
            write!(f, "{}, whose `{operand}` differs already", self.at)?;
            if let Some(computed) = &self.computed {
                write!(f, ", as computed at {computed}")?;
            }
            f.write_str("; the difference begins at ")?;
        }
        write!(f, "{place}")?;
        f.write_str(match beginning {
            Beginning::Node => ", where the ranks read the same and write other bytes",
            Beginning::Memory => {
                ", or after it: both ranks wrote the same, and then the memory of one is another, \
                 though nobody wrote"
            }
            Beginning::Strangers => {
                " was the last to write there; no collective on the way from there joins the two"
            }
            Beginning::Unlike => ", run with other parameters on each of them",
            Beginning::Uploads => ", where the hosts give other words",
            Beginning::Parts => {
                ", of which each rank has a part; no collective on the way from there joins the two"
            }
            Beginning::Unmatched => {
                ", whose operands differ already, in words that are not matched one by one: the \
                 way back from there is not followed; no collective on the way from there joins \
                 the two"
            }
            Beginning::Earlier => ", as one of them last wrote it in an earlier step",
        })
    }
}

/// One step back: words that differ, by whom they were written, and what of that differed before.
struct Step {
    by: (Option<Words>, Option<Words>),
    read: Pair,
    follows: Follows,
}

enum Follows {
    Ends(Beginning),
    /// Operands that differ; `is_exact` if the words come from the same places of them.
    Operands {
        pairs: Vec<Pair>,
        is_exact: bool,
    },
    /// Further back than was looked.
    Unknown,
}

/// Follows differences of one drift.
pub(super) struct Search<'a> {
    pub log: &'a Log,
    pub seen: &'a Seen,
}

impl Search<'_> {
    /// What let the difference in; `None` where that is not known.
    pub fn let_in(&self) -> Option<LetIn> {
        let copies = self.log.copies()?;
        let chain = self.chain(copies);
        let computes = |step: &&Step| step.by.0.is_none_or(|by| !self.log.moves(by));
        let place = chain.iter().position(|step| computes(&step));
        let place = place.unwrap_or(0);
        let (at, last) = (chain.get(place)?, chain.last()?);
        let cause = match (self.certain(copies), &last.follows) {
            (Some(cause), _) => cause,
            (None, Follows::Ends(beginning)) => self.cause(last, *beginning),
            (None, Follows::Operands { .. }) => self.cause(last, Beginning::Unmatched),
            (None, Follows::Unknown) => return None,
        };
        let at = self.place(at);
        let behind = chain.get(place + 1..).unwrap_or_default();
        let operand = behind.first().map(|next| self.log.name(next.read.0));
        let is_own = cause.place == at;
        let computed = behind.iter().find(|step| self.is_of_microbatch(step));
        let computed = computed.map(|step| self.place(step));
        Some(LetIn {
            drift: self.log.drift.clone(),
            operand: operand.filter(|_| !is_own).map(ToString::to_string),
            computed: computed.filter(|computed| *computed != cause.place),
            at,
            cause,
        })
    }

    fn is_of_microbatch(&self, step: &Step) -> bool {
        let site = step.by.0.map(|by| self.log.site(by));
        site.is_some_and(|site| site.microbatch.is_some())
    }

    /// Back along the first operand that differs, as long as it is known which words of it matter.
    fn chain(&self, copies: Pair) -> Vec<Step> {
        let mut chain: Vec<Step> = Vec::new();
        let mut met: BTreeSet<Pair> = BTreeSet::new();
        let mut next = Some(copies);
        while let Some(pair) = next.take().filter(|pair| met.insert(*pair)) {
            let Some(step) = self.steps(pair).into_iter().next() else {
                break;
            };
            if let Follows::Operands {
                pairs,
                is_exact: true,
            } = &step.follows
            {
                next = pairs.first().copied();
            }
            chain.push(step);
        }
        chain
    }

    /// The earliest place, on all ways back, where a difference begins for certain.
    fn certain(&self, copies: Pair) -> Option<Cause> {
        let mut first: Option<(usize, Cause)> = None;
        let mut met: BTreeSet<Pair> = BTreeSet::new();
        let mut ahead = vec![copies];
        while let Some(pair) = ahead.pop() {
            if !met.insert(pair) {
                continue;
            }
            for step in self.steps(pair) {
                match (&step.follows, step.by.0) {
                    (Follows::Operands { pairs, .. }, _) => ahead.extend(pairs),
                    (Follows::Ends(begins @ (Beginning::Node | Beginning::Memory)), Some(by)) => {
                        let known = first.as_ref().map_or(usize::MAX, |(node, _)| *node);
                        if by.node < known {
                            first = Some((by.node, self.cause(&step, *begins)));
                        }
                    }
                    _ => {}
                }
            }
        }
        first.map(|(_, cause)| cause)
    }

    fn cause(&self, step: &Step, beginning: Beginning) -> Cause {
        Cause {
            beginning,
            place: self.place(step),
        }
    }

    fn place(&self, step: &Step) -> Place {
        let (a, b) = step.by;
        let site = |by: Words| self.log.site(by).clone();
        let rank = |by: Option<Words>, read: Words| match by {
            Some(by) => self.log.rank_of_output(by),
            None => self.log.rank_of_operand(read),
        };
        Place {
            ranks: (rank(a, step.read.0), rank(b, step.read.1)),
            sites: (a.map(site), b.map(site)),
        }
    }

    /// Whether the words of a pair differ; `None` where they were not looked at.
    fn differs(&self, pair: Pair) -> Option<bool> {
        if self.log.is_same(pair) {
            return Some(false);
        }
        let reads = &self.seen.reads;
        Some(reads.get(&pair.0)? != reads.get(&pair.1)?)
    }

    /// One step back from each piece of a pair that differs.
    fn steps(&self, pair: Pair) -> Vec<Step> {
        let pieces = self.log.written(pair).into_iter();
        let differing = pieces.filter(|piece| self.differs(piece.read) == Some(true));
        let steps = differing.map(|Written { read, by }| Step {
            by,
            read,
            follows: self.follows(by),
        });
        steps.collect()
    }

    fn follows(&self, by: (Option<Words>, Option<Words>)) -> Follows {
        let (Some(a), Some(b)) = by else {
            return Follows::Ends(Beginning::Earlier);
        };
        let left = &self.seen.writes;
        match (left.get(&a), left.get(&b)) {
            (Some(a), Some(b)) if a == b => return Follows::Ends(Beginning::Memory),
            (Some(_), Some(_)) => {}
            _ => return Follows::Unknown,
        }
        Follows::Ends(match self.log.kinship((a, b)) {
            Kinship::One => Beginning::Node,
            Kinship::Parts => Beginning::Parts,
            Kinship::Strangers => Beginning::Strangers,
            Kinship::Uploads => Beginning::Uploads,
            Kinship::Alike { behind, is_like } => return self.operands(&behind, is_like),
        })
    }

    /// Of two nodes of the same work that wrote other bytes: which operands differed.
    fn operands(&self, behind: &[Behind], is_like: bool) -> Follows {
        let of = |is_old: bool, is_narrow: bool| {
            let behind = behind.iter().filter(move |one| one.is_old == is_old);
            let pairs = behind.filter_map(move |one| match is_narrow {
                true => one.narrow,
                false => one.whole,
            });
            let pairs = pairs.map(|pair| (pair, self.differs(pair)));
            pairs.collect::<Vec<(Pair, Option<bool>)>>()
        };
        // Ranks are set up differently in part: that explains only what nothing later does.
        let mut of_setup: Option<Follows> = None;
        // What the outputs held before matters where nothing else explains them.
        for (is_old, is_narrow) in [(false, true), (false, false), (true, true)] {
            let pairs = of(is_old, is_narrow);
            let differ = pairs.iter().filter(|(_, differs)| *differs == Some(true));
            let differ: Vec<Pair> = differ.map(|(pair, _)| *pair).collect();
            let later = differ.iter().filter(|pair| !self.is_of_setup(**pair));
            let later: Vec<Pair> = later.copied().collect();
            let follows = |pairs: Vec<Pair>| Follows::Operands {
                pairs,
                is_exact: is_narrow,
            };
            if !later.is_empty() {
                return follows(later);
            }
            if !differ.is_empty() {
                of_setup.get_or_insert(follows(differ));
            } else if pairs.iter().any(|(_, differs)| differs.is_none()) {
                return of_setup.unwrap_or(Follows::Unknown);
            }
        }
        of_setup.unwrap_or(Follows::Ends(match is_like {
            true => Beginning::Node,
            false => Beginning::Unlike,
        }))
    }

    /// Whether all that differs of a pair was last written before the first step.
    fn is_of_setup(&self, pair: Pair) -> bool {
        let pieces = self.log.written(pair).into_iter();
        let mut differing = pieces.filter(|piece| self.differs(piece.read) == Some(true));
        differing.all(|Written { by: (a, b), .. }| {
            let mut both = a.into_iter().chain(b);
            both.all(|by| self.log.site(by).phase == Phase::Setup)
        })
    }
}
