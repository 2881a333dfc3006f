//! Probe inputs, one number a rank and run, and what their outputs say.
//!
//! FPRev (arXiv 2411.00442): rank i gives +M, rank j -M, all others a unit that M swallows. What
//! was added before the two met is swallowed with them; the output counts what came after. So many
//! runs as there are pairs give the tree at every element of the buffer. Runs of random numbers
//! after them tell what each addition was rounded to.

use std::collections::BTreeMap;
use std::ops::Range;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use super::evaluate::Folded;
use super::reconstruct::{NotATree, reconstruct};
use crate::numerics::Dtype;
use crate::plan::{Arithmetic, Piece, Plan, Tree};

/// Runs of random numbers after those of masks.
pub const RANDOM_PROBES: u32 = 16;

/// Ranks of the largest probe: as many as counts are exact for in bf16.
const RANKS_MAX: u32 = 128;

/// Why there is no probe.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProbeError {
    #[error("{ranks} ranks: expected 3 to {RANKS_MAX}, as two have one order")]
    Ranks { ranks: u32 },
    #[error("{0} is no floating-point type: its sums have one order")]
    Dtype(Dtype),
}

/// The runs of one collective that tell its trees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    pub ranks: u32,
    pub dtype: Dtype,
}

/// What came out at the elements of one range: the same in every run.
#[derive(Clone, Debug)]
pub struct Probed {
    pub range: Range<u64>,
    /// The tree, and its arithmetic where the random numbers fit one: each sum rounded to the type,
    /// or all in f32 and rounded once.
    pub tree: Result<(Tree, Option<Arithmetic>), NotCounted>,
}

/// Why outputs are those of no tree.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotCounted {
    #[error("run {run} gave {value}, which counts no addends")]
    NoCount { run: u32, value: String },
    #[error(transparent)]
    NotATree(#[from] NotATree),
}

impl Probe {
    /// # Errors
    /// Too few or too many ranks, or a type whose sums have one order.
    pub fn new(ranks: u32, dtype: Dtype) -> Result<Probe, ProbeError> {
        if dtype == Dtype::U32 {
            return Err(ProbeError::Dtype(dtype));
        }
        if !(3..=RANKS_MAX).contains(&ranks) {
            return Err(ProbeError::Ranks { ranks });
        }
        Ok(Probe { ranks, dtype })
    }

    /// Pairs of ranks, in the order of their runs.
    pub fn pairs(self) -> impl Iterator<Item = (u32, u32)> {
        let ranks = self.ranks;
        (0..ranks).flat_map(move |i| (i + 1..ranks).map(move |j| (i, j)))
    }

    pub fn runs(self) -> u32 {
        self.ranks * (self.ranks - 1) / 2 + RANDOM_PROBES
    }

    /// A number that swallows as many units as there are ranks, in the type and in f32, and the
    /// unit. f16 has little range: its unit is small, and an f32 sum of it swallows nothing, which
    /// no tree explains.
    fn mask_and_unit(self) -> (f32, f32) {
        match self.dtype {
            Dtype::F16 => (32_768.0, 1.0 / 256.0),
            _ => (f32::from_bits((127 + 100) << 23), 1.0),
        }
    }

    /// What a rank gives, run by run.
    pub fn inputs(self, rank: u32) -> Vec<f32> {
        let (mask, unit) = self.mask_and_unit();
        let masked = |(i, j): (u32, u32)| match rank {
            _ if rank == i => mask,
            _ if rank == j => -mask,
            _ => unit,
        };
        let mut inputs: Vec<f32> = self.pairs().map(masked).collect();
        let mut random = ChaCha8Rng::seed_from_u64(u64::from(rank));
        inputs.extend((0..RANDOM_PROBES).map(|_| self.random(&mut random)));
        inputs
    }

    /// A number of either sign between 1/64 and 64: sums of them round in every type.
    fn random(self, random: &mut ChaCha8Rng) -> f32 {
        let word = random.next_u32();
        let exponent = 121 + (word >> 8) % 12;
        let bits = (word & 1) << 31 | exponent << 23 | random.next_u32() >> 9;
        self.dtype.round(f32::from_bits(bits))
    }

    /// The trees of all elements: `output(run)` has the bits of every element in one run.
    ///
    /// # Panics
    /// Where runs have different numbers of elements, or are not as many as the probe has.
    pub fn read(self, outputs: &[Vec<u32>]) -> Vec<Probed> {
        assert_eq!(outputs.len(), self.runs() as usize, "an output a run");
        let elements = outputs[0].len();
        assert!(outputs.iter().all(|run| run.len() == elements));
        let same = |a: usize, b: usize| outputs.iter().all(|run| run[a] == run[b]);
        let inputs: Vec<Vec<f32>> = (0..self.ranks).map(|rank| self.inputs(rank)).collect();
        let mut known = BTreeMap::new();
        let mut found: Vec<Probed> = Vec::new();
        let mut at = 0;
        while at < elements {
            let end = (at + 1..elements).find(|next| !same(at, *next));
            let end = end.unwrap_or(elements);
            let range = at as u64..end as u64;
            let bits: Vec<u32> = outputs.iter().map(|run| run[at]).collect();
            let tree = known
                .entry(bits)
                .or_insert_with_key(|bits| self.tree_of(bits, &inputs))
                .clone();
            found.push(Probed { range, tree });
            at = end;
        }
        found
    }

    /// The tree of one element, by its outputs.
    fn tree_of(
        self,
        outputs: &[u32],
        inputs: &[Vec<f32>],
    ) -> Result<(Tree, Option<Arithmetic>), NotCounted> {
        let (_, unit) = self.mask_and_unit();
        let ranks = self.ranks as usize;
        let mut met = vec![vec![0; ranks]; ranks];
        for ((run, (i, j)), bits) in (0..).zip(self.pairs()).zip(outputs) {
            let value = f32::from_bits(*bits);
            let after = (value / unit) as u32;
            if after as f32 * unit != value || after > self.ranks - 2 {
                let value = format!("{value:?}");
                return Err(NotCounted::NoCount { run, value });
            }
            met[i as usize][j as usize] = self.ranks - after;
            met[j as usize][i as usize] = self.ranks - after;
        }
        let tree = reconstruct(self.ranks, &|i, j| met[i as usize][j as usize])?;
        let masks = self.runs() - RANDOM_PROBES;
        let fits = |arithmetic: &Arithmetic| {
            let folded = Folded::new(&tree, *arithmetic).expect("a plain sum");
            (masks as usize..outputs.len()).all(|run| {
                let addends: Vec<f32> = inputs.iter().map(|rank| rank[run]).collect();
                folded.value(&addends) == outputs[run]
            })
        };
        let own = Arithmetic::sum(self.dtype, self.dtype, self.dtype);
        let wide = Arithmetic::sum(self.dtype, Dtype::F32, self.dtype);
        let arithmetic = [own, wide].into_iter().find(fits);
        Ok((tree, arithmetic))
    }

    /// The plan of what was probed, where every element has a tree and one arithmetic.
    pub fn plan(self, probed: &[Probed]) -> Option<Plan> {
        let mut pieces = Vec::new();
        let mut rules = None;
        for one in probed {
            let (tree, arithmetic) = one.tree.as_ref().ok()?;
            let arithmetic = (*arithmetic)?;
            if *rules.get_or_insert(arithmetic) != arithmetic {
                return None;
            }
            pieces.push(Piece {
                range: one.range.clone(),
                tree: tree.clone(),
            });
        }
        let plan = Plan {
            addend_count: self.ranks,
            element_count: pieces.last()?.range.end,
            arithmetic: rules?,
            pieces,
        };
        Some(plan.merged())
    }
}
