//! Reduce-scatter as an all-to-all and a local sum.
//!
//! Megatron's `ddp_reduce_scatter_with_fp32_accumulation`: blocks travel in the gradient's
//! type, each rank sums its block over the ranks in fp32 and rounds once
//! (`distributed/reduce_scatter_with_fp32_accumulation.py`). No ring is involved, so no placement.
//! The local sum is pinned to group order, 0 first.

use crate::numerics::Dtype;
use crate::plan::{Arithmetic, Plan, local};

/// The plan of the whole input, `ranks` blocks: `elements` elements.
pub fn reduce_scatter(ranks: u32, elements: u64, dtype: Dtype) -> Plan {
    local::ascending(ranks, elements, Arithmetic::sum(dtype, Dtype::F32, dtype))
}
