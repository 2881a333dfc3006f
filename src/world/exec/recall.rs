//! Tensors that are computed twice, and must come out the same: what activation recomputation
//! computes in the backward, against what the forward computed.

use std::sync::Arc;

use crate::engine::Span;
use crate::world::command::Recall;
use crate::world::error::WorldError;
use crate::world::rank::Tensor;
use crate::world::site::Site;

use super::Drift;
use super::coordinator::{Coordinator, at};
use super::rank_state::Remembered;

impl Coordinator<'_> {
    /// What was to be computed again and was not, by the end of the step, differs as well.
    pub(super) fn never_recomputed(&mut self, rank: u32, step: u32, unused: Remembered) {
        let drifts = unused.into_keys().map(|(microbatch, name)| Drift {
            step: Some(step),
            group: "recompute".to_string(),
            name: name.to_string(),
            ranks: (rank, rank),
            microbatch,
        });
        self.record.drifts.extend(drifts);
    }

    /// Keeps the digests of `tensors`, or compares them with those that were kept.
    pub(super) fn recall(
        &mut self,
        rank: u32,
        site: &Arc<Site>,
        tensors: &[(Arc<str>, Tensor)],
        recall: Recall,
    ) -> Result<(), WorldError> {
        let memory = &self.ranks[rank as usize].memory;
        let spans: Vec<Span> = tensors.iter().map(|(_, t)| memory.span(*t)).collect();
        let digests = self.engine.digests(&spans);
        let digests = digests.map_err(|source| at(&rank.to_string(), &site.to_string(), source))?;
        for ((name, tensor), digest) in tensors.iter().zip(digests) {
            self.on_read(rank, *tensor);
            let kept = &mut self.ranks[rank as usize].remembered;
            let key = (site.microbatch, name.clone());
            if recall == Recall::Remember {
                kept.insert(key, digest);
                continue;
            }
            // What was never computed before differs from everything.
            let same = kept.remove(&key) == Some(digest);
            self.record.recomputed += 1;
            if !same {
                self.record.drifts.push(Drift {
                    step: Some(site.step),
                    group: "recompute".to_string(),
                    name: name.to_string(),
                    ranks: (rank, rank),
                    microbatch: site.microbatch,
                });
            }
        }
        Ok(())
    }
}
