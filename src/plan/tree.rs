//! The expression tree of one reduction, with its rounding points.

use std::ops::Range;
use std::sync::Arc;

use crate::numerics::Dtype;

/// One step of a stack program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Op {
    /// Push addend `i`.
    Push(u32),
    /// Pop two values, push their rounded sum.
    Combine,
}

/// The order in which the addends of an element meet. Addends are numbered by their place in the
/// group (a collective) or in the fold's operand (a local fold), never by global rank.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tree {
    /// A left fold that starts at `ring[start]` and goes round: a ring, or any chain.
    Chain { ring: Arc<[u32]>, start: u32 },
    /// A stack program of depth at most log2 n + 1.
    Ops(Arc<[Op]>),
}

/// What one combination does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Combine {
    Sum,
    Max,
}

/// Where a fold starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Init {
    /// The first addend of the tree is the first partial sum.
    First,
    /// A +0 stands before the first addend: differs from `First` in the sign of a zero.
    Zero,
    /// What the output holds already stands before the first addend, and counts as one.
    Accumulator,
}

/// The arithmetic of a fold, apart from its order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Arithmetic {
    pub combine: Combine,
    pub init: Init,
    /// Type of the addends as they arrive.
    pub addend: Dtype,
    /// Type that every partial result is rounded to.
    pub partial: Dtype,
    /// Type of the result.
    pub out: Dtype,
    /// Each addend is first multiplied by this `f32` (bits), rounded to `partial` (NCCL's
    /// PreMulSum).
    pub pre_multiply_bits: Option<u32>,
    /// A build may contract pre-multiply and add into one fused operation: at every addend of a
    /// chain but the first. Of two leaves that meet in a program, the one pushed last is fused.
    pub contraction_free: bool,
    /// The finished sum is divided by this `f32` (bits), before it is rounded to `out`: Gloo's AVG.
    pub post_divide_bits: Option<u32>,
}

impl Arithmetic {
    /// A plain sum of `addend`s, each partial sum rounded to `partial`.
    pub const fn sum(addend: Dtype, partial: Dtype, out: Dtype) -> Self {
        Arithmetic {
            combine: Combine::Sum,
            init: Init::First,
            addend,
            partial,
            out,
            pre_multiply_bits: None,
            contraction_free: false,
            post_divide_bits: None,
        }
    }

    /// A maximum in total order.
    pub const fn max(dtype: Dtype) -> Self {
        Arithmetic {
            combine: Combine::Max,
            ..Arithmetic::sum(dtype, dtype, dtype)
        }
    }
}

/// A range of elements that share one tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    pub range: Range<u64>,
    pub tree: Tree,
}

/// The plan of one collective, or of one local fold: which tree each element takes.
///
/// Invariant: `pieces` are ascending, do not overlap and cover `0..element_count`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    pub addend_count: u32,
    pub element_count: u64,
    pub arithmetic: Arithmetic,
    pub pieces: Vec<Piece>,
}
