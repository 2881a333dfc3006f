//! More data-parallel ranks than a job has, or is known to have.

use super::{Change, ScaleOptions};
use crate::recipe::{Recipe, WORLD_SIZE_MAX};

/// Data-parallel ranks of one optimizer instance that let every sum over them differ: three
/// addends are the least, and a ring of four has an order that no exchange of two makes.
const ENOUGH: u32 = 4;

/// Why a job cannot have that many data-parallel ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GrowError {
    #[error("the job has {own} data-parallel ranks, and cannot be grown to {wanted}")]
    Smaller { own: u32, wanted: u32 },
    #[error(
        "{wanted} data-parallel ranks do not divide into num_distributed_optimizer_instances = \
         {instances}"
    )]
    Instances { wanted: u32, instances: u32 },
    #[error("{wanted} data-parallel ranks make a world of {world}, at most {WORLD_SIZE_MAX}")]
    TooLarge { wanted: u32, world: u64 },
}

/// The data-parallel size to run with.
pub(super) fn wanted(full: &Recipe, options: &ScaleOptions) -> u32 {
    let own = full.data_parallel_size();
    if let Some(wanted) = options.grow_dp {
        return wanted;
    }
    let instances = full.num_distributed_optimizer_instances;
    if options.world_is_assumed && own / instances <= 2 {
        instances.saturating_mul(ENOUGH).max(own)
    } else {
        own
    }
}

impl Recipe {
    /// The same recipe on `ranks` data-parallel ranks: each has the microbatches that it had, so
    /// the global batch grows.
    pub fn grown(&self, ranks: u32) -> Result<Recipe, GrowError> {
        let own = self.data_parallel_size();
        let instances = self.num_distributed_optimizer_instances;
        if ranks < own {
            return Err(GrowError::Smaller { own, wanted: ranks });
        }
        if !ranks.is_multiple_of(instances) {
            return Err(GrowError::Instances {
                wanted: ranks,
                instances,
            });
        }
        let model = u64::from(self.world_size / own);
        let world = model * u64::from(ranks);
        if world > u64::from(WORLD_SIZE_MAX) {
            return Err(GrowError::TooLarge {
                wanted: ranks,
                world,
            });
        }
        let each = self.global_batch_size / own;
        Ok(Recipe {
            world_size: world as u32,
            global_batch_size: each.saturating_mul(ranks),
            ..self.clone()
        })
    }
}

/// What growing changed.
pub(super) fn changes(full: &Recipe, grown: &Recipe, options: &ScaleOptions) -> Vec<Change> {
    let why = match options.grow_dp {
        Some(_) => "asked for: --grow-dp",
        None => "sums of one or two addends cannot differ, and the job's ranks are only assumed",
    };
    let rows = [
        (
            "data-parallel size",
            full.data_parallel_size(),
            grown.data_parallel_size(),
            why,
        ),
        (
            "world_size",
            full.world_size,
            grown.world_size,
            "follows from the data-parallel size",
        ),
        (
            "global_batch_size",
            full.global_batch_size,
            grown.global_batch_size,
            "every rank keeps its microbatches",
        ),
    ];
    let rows = rows.into_iter().filter(|(_, from, to, _)| from != to);
    rows.map(|(key, from, to, why)| Change {
        key,
        from: from.to_string(),
        to: to.to_string(),
        why,
    })
    .collect()
}
