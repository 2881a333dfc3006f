//! Dropout of what is added to the residual stream. The mask is made from RNG words saved when the
//! microbatch went forward, so backward makes it again.

use crate::model::stage::Stage;
use crate::world::{Rank, Tensor};

/// Philox blocks between one dropout and the next: each element's subsequence takes one.
const BLOCKS_A_SITE: u32 = 1;

impl Stage {
    pub fn drops(&self) -> bool {
        self.shape.hidden_dropout > 0.0
    }

    /// Dropouts of one microbatch in this stage: after the embedding, and two a layer.
    pub fn dropout_sites(&self) -> u32 {
        (1 + 2 * self.shape.layers_per_stage()) * BLOCKS_A_SITE
    }

    /// Saves the RNG words of this microbatch and advances the generator past its masks.
    pub fn take_rng(&self, rank: &mut Rank, rng: Tensor, saved: Tensor) {
        let increment = [self.dropout_sites()];
        rank.module("rng", |rank| {
            rank.launch("take", "rng_take", [1, 1, 1], &[rng, saved], &increment);
        });
    }

    /// `out = x` with site `site`'s mask applied, `[local tokens, hidden]`.
    pub fn dropout(&self, rank: &mut Rank, site: u32, rng: Tensor, x: Tensor, out: Tensor) {
        let count = self.shape.local_tokens() * self.shape.hidden_size;
        let probability = self.shape.hidden_dropout;
        // Exact: a multiplication by a power of two, and a truncation.
        let threshold = (f64::from(probability) * 4_294_967_296.0) as u32;
        let scale = (1.0 / (1.0 - probability)).to_bits();
        let params = [
            count,
            site * BLOCKS_A_SITE,
            threshold,
            scale,
            self.round_code(),
        ];
        rank.launch("dropout", "dropout", [count, 1, 1], &[x, rng, out], &params);
    }
}
