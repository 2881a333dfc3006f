//! Dropout of the attention's probabilities and of what is added to the residual stream. Masks are
//! made from RNG words saved when the microbatch went forward, so backward makes them again.
//!
//! Megatron-LM has two generators (tensor_parallel/random.py, `model_parallel_cuda_manual_seed`):
//! the default one, alike on tensor-parallel ranks, and the tracker's, which differs between them.
//! The attention always draws from the tracker. Hidden dropouts draw from the default generator, so
//! that whole activations get one mask, but from the tracker where each rank has tokens of its own:
//! under sequence parallelism the whole block runs inside the tracker's fork
//! (transformer_block.py; language_model_embedding.py).

use crate::model::stage::Stage;
use crate::world::{Rank, Tensor};

/// Philox blocks between one dropout and the next: each element's subsequence takes one.
const BLOCKS_A_SITE: u32 = 1;

/// Words of one generator: seed low, seed high, offset low, offset high.
pub const RNG_WORDS: u32 = 4;

/// The copy that sets a generator back to what it was at the forward: Megatron-LM's
/// `CheckpointFunction.backward` (tensor_parallel/random.py).
pub const RESTORE_RNG: &str = "restore_rng";

/// Both generators' cells, `[4]` each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Generators {
    pub default: Tensor,
    /// The tracker's `model-parallel-rng`.
    pub model_parallel: Tensor,
}

/// One dropout of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Site {
    Embedding,
    /// Of layer `n` of the stage: its probabilities, what its attention and what its MLP adds.
    Attention(u32),
    AfterAttention(u32),
    AfterMlp(u32),
}

/// Where a dropout's words come from: the saved words of the tracker or of the default generator,
/// and how many dropouts drew from it before in this microbatch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Draw {
    tracker: bool,
    number: u32,
}

impl Stage {
    /// Whether hidden dropout is on.
    pub fn drops(&self) -> bool {
        self.shape.hidden_dropout > 0.0
    }

    /// Whether dropout of the attention's probabilities is on.
    pub fn drops_attention(&self) -> bool {
        self.shape.attention_dropout > 0.0
    }

    /// Dropouts of one microbatch in this stage that draw from the default generator and from the
    /// tracker: after the embedding, and three a layer. A dropout of probability 0 draws nothing,
    /// as in PyTorch.
    pub fn dropout_sites(&self) -> (u32, u32) {
        let layers = self.shape.layers_per_stage();
        let hidden = u32::from(self.drops()) * (1 + 2 * layers);
        let attention = u32::from(self.drops_attention()) * layers;
        match self.shape.splits_sequence() {
            true => (0, hidden + attention),
            false => (hidden, attention),
        }
    }

    fn draw(&self, site: Site) -> Draw {
        let (hidden, attention) = (u32::from(self.drops()), u32::from(self.drops_attention()));
        // What drew before: of hidden dropouts, and of the attention's.
        let (hidden, attention) = match site {
            Site::Embedding => (0, 0),
            Site::Attention(layer) => (hidden * (1 + 2 * layer), attention * layer),
            Site::AfterAttention(layer) => (hidden * (1 + 2 * layer), attention * (layer + 1)),
            Site::AfterMlp(layer) => (hidden * (2 + 2 * layer), attention * (layer + 1)),
        };
        let of_attention = matches!(site, Site::Attention(_));
        match (self.shape.splits_sequence(), of_attention) {
            (true, _) => Draw {
                tracker: true,
                number: hidden + attention,
            },
            (false, true) => Draw {
                tracker: true,
                number: attention,
            },
            (false, false) => Draw {
                tracker: false,
                number: hidden,
            },
        }
    }

    /// Saves the RNG words of this microbatch, `saved [2, 4]`, and advances each generator past
    /// its masks.
    pub fn take_rng(&self, rank: &mut Rank, rng: Generators, saved: Tensor) {
        let (default, tracker) = self.dropout_sites();
        let takes = [
            ("take", rng.default, default),
            ("take_model_parallel", rng.model_parallel, tracker),
        ];
        rank.module("rng", |rank| {
            for (place, (op, cell, sites)) in (0..).zip(takes) {
                if sites > 0 {
                    let kept = saved.slice(place * RNG_WORDS, RNG_WORDS);
                    let increment = [sites * BLOCKS_A_SITE];
                    rank.launch(op, "rng_take", [1, 1, 1], &[cell, kept], &increment);
                }
            }
        });
    }

    /// Sets the words that recomputation draws from back to those of the microbatch, `saved`
    /// `[2, 4]`, and returns them.
    pub fn restore_rng(&self, rank: &mut Rank, saved: Tensor) -> Tensor {
        let (default, tracker) = self.dropout_sites();
        self.restore(rank, saved, [default > 0, tracker > 0])
    }

    /// The same for the attention's dropout alone, which draws from the tracker.
    pub fn restore_attention_rng(&self, rank: &mut Rank, saved: Tensor) -> Tensor {
        self.restore(rank, saved, [false, self.drops_attention()])
    }

    fn restore(&self, rank: &mut Rank, saved: Tensor, generators: [bool; 2]) -> Tensor {
        let again = self.rng_again.expect("something is recomputed");
        let places = (0..).zip(generators).filter(|(_, drawn)| *drawn);
        rank.module("rng", |rank| {
            for (place, _) in places {
                let words = |of: Tensor| of.slice(place * RNG_WORDS, RNG_WORDS);
                rank.copy(RESTORE_RNG, words(saved), words(again));
            }
        });
        again
    }

    /// `out = x` with hidden dropout `site`'s mask applied, `[local tokens, hidden]`. `rng [2, 4]`
    /// are the microbatch's saved words.
    pub fn dropout(&self, rank: &mut Rank, site: Site, rng: Tensor, x: Tensor, out: Tensor) {
        let count = self.shape.local_tokens() * self.shape.hidden_size;
        let (words, first) = self.words_of(site, rng);
        let (threshold, scale) = keep(self.shape.hidden_dropout);
        let params = [count, first, threshold, scale, self.round_code()];
        let operands = [x, words, out];
        rank.launch("dropout", "dropout", [count, 1, 1], &operands, &params);
    }

    /// Where the multipliers of the attention's dropout are: without dropout a tensor that no
    /// kernel reads.
    pub fn attention_mask(&self) -> Tensor {
        self.scratch.attention_mask.unwrap_or(self.scratch.scores)
    }

    /// Makes the multipliers of the attention's dropout; 1 if there are any, else 0.
    pub fn make_attention_mask(&self, rank: &mut Rank, site: Site, rng: Tensor) -> u32 {
        let Some(mask) = self.scratch.attention_mask else {
            return 0;
        };
        let (words, first) = self.words_of(site, rng);
        let (threshold, scale) = keep(self.shape.attention_dropout);
        let params = [mask.len, first, threshold, scale];
        let grid = [mask.len, 1, 1];
        rank.launch("mask", "dropout_mask", grid, &[words, mask], &params);
        1
    }

    /// The saved words that `site` draws from, and the first Philox block of its own.
    fn words_of(&self, site: Site, rng: Tensor) -> (Tensor, u32) {
        let draw = self.draw(site);
        let words = rng.slice(u32::from(draw.tracker) * RNG_WORDS, RNG_WORDS);
        (words, draw.number * BLOCKS_A_SITE)
    }
}

/// The least word that keeps an element, and the bits of what a kept one is multiplied by.
fn keep(probability: f32) -> (u32, u32) {
    // Exact: a multiplication by a power of two, and a truncation.
    let threshold = (f64::from(probability) * 4_294_967_296.0) as u32;
    (threshold, (1.0 / (1.0 - probability)).to_bits())
}
