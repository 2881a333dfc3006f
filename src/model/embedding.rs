//! Vocab-parallel token embedding: each tensor-parallel rank holds a block of rows, looks up its
//! own tokens, and the rows meet in a sum of which all but one addend is +0. A learned row for each
//! position, held whole by every rank, may be added.
//!
//! Under sequence parallelism the rows are reduce-scattered; with learned positions they are
//! reduced whole, the positions are added and each rank keeps its tokens (Megatron-LM,
//! language_model_embedding.py, `reduce_scatter_embeddings`). Either way backward gathers the
//! gradient of all tokens, so no gradient of a table is summed over tensor-parallel ranks.

use std::sync::Arc;

use crate::model::parameter::ParameterId;
use crate::model::pass::Pass;
use crate::model::shape::ModelShape;
use crate::model::stage::Stage;
use crate::numerics::Dtype;
use crate::recipe::PositionEmbedding;
use crate::world::{Family, Rank, Segments, Tensor};

const POSITIONS: &str = "embedding.position_embeddings";

#[derive(Clone, Debug)]
pub struct Embedding {
    module: String,
    weight: ParameterId,
    /// The learned table, and for each of its rows the tokens that stand there.
    positions: Option<(ParameterId, Segments)>,
}

impl Embedding {
    pub fn new(stage: &Stage) -> Embedding {
        let module = "embedding.word_embeddings".to_string();
        let weight = stage.store.find(&format!("{module}.weight"));
        let learned = stage.shape.position_embedding_type == PositionEmbedding::LearnedAbsolute;
        let positions = learned.then(|| {
            let table = stage.store.find(&format!("{POSITIONS}.weight"));
            (table, position_segments(&stage.shape))
        });
        Embedding {
            module,
            weight,
            positions,
        }
    }

    /// `out [local tokens, hidden]` for `tokens [tokens]`.
    pub fn forward(&self, rank: &mut Rank, stage: &mut Pass<'_>, tokens: Tensor, out: Tensor) {
        stage.enter(rank, [self.weight]);
        match &self.positions {
            None => {
                let partial = stage.partial_for(out);
                rank.module(&self.module, |rank| {
                    self.look_up(rank, stage, tokens, partial);
                    stage.reduce(rank, partial, out);
                });
            }
            Some((table, _)) => {
                let words = stage.scratch.partial;
                rank.module(&self.module, |rank| {
                    self.look_up(rank, stage, tokens, words);
                    stage.reduce_whole(rank, words);
                });
                stage.enter(rank, [*table]);
                add_positions(rank, stage, words, stage.store.value(*table), out);
            }
        }
    }

    fn look_up(&self, rank: &mut Rank, stage: &Stage, tokens: Tensor, out: Tensor) {
        let shape = &stage.shape;
        let count = shape.tokens() * shape.hidden_size;
        let rows = shape.local_vocab();
        let operands = [stage.store.value(self.weight), tokens, out];
        let params = [count, shape.hidden_size, stage.tensor_rank * rows, rows];
        let grid = [count, 1, 1];
        rank.launch("forward", "embedding_forward", grid, &operands, &params);
    }

    /// Adds each token's row of `grad [local tokens, hidden]` into its row of the gradient slot.
    /// `segments` lists, for each row held here, the tokens that looked it up.
    pub fn backward(
        &self,
        rank: &mut Rank,
        stage: &mut Pass<'_>,
        segments: &Segments,
        grad: Tensor,
    ) {
        let rows = rank.module(&self.module, |rank| {
            let rows = stage.gather(rank, grad, stage.scratch.gathered);
            self.word_gradient(rank, stage, segments, rows);
            rows
        });
        stage.leave(rank, self.weight);
        if let Some((table, tokens)) = &self.positions {
            let slot = stage.slot(*table);
            rank.module(POSITIONS, |rank| {
                fold_rows(rank, stage, Family::PositionGrad, rows, tokens, slot);
            });
            stage.leave(rank, *table);
        }
    }

    /// Where the output layer uses the same matrix on this stage, its gradient is in the slot by
    /// now. The embedding's own sum is made apart and added to it, as autograd hands it over to
    /// Megatron-LM's `main_grad.add_`: output layer first, then embedding.
    fn word_gradient(&self, rank: &mut Rank, stage: &Pass<'_>, segments: &Segments, rows: Tensor) {
        let slot = stage.slot(self.weight);
        let Some(own) = stage.scratch.grad_embedding else {
            return fold_rows(rank, stage, Family::EmbeddingGrad, rows, segments, slot);
        };
        fold_rows(rank, stage, Family::EmbeddingGrad, rows, segments, own);
        let (grid, params) = ([slot.len, 1, 1], [slot.len, Dtype::F32.code()]);
        let operands = [slot, own, slot];
        rank.launch("accumulate", "residual_add", grid, &operands, &params);
    }
}

fn fold_rows(
    rank: &mut Rank,
    stage: &Stage,
    family: Family,
    rows: Tensor,
    segments: &Segments,
    out: Tensor,
) {
    let (width, order) = (
        stage.shape.hidden_size,
        stage.shape.orders.embedding_backward,
    );
    rank.fold_segments("weight_grad", family, rows, width, segments, out, order);
}

/// `out [local tokens, hidden]`: this rank's tokens of `words [tokens, hidden]`, plus their
/// positions' rows.
fn add_positions(rank: &mut Rank, stage: &Stage, words: Tensor, table: Tensor, out: Tensor) {
    let shape = &stage.shape;
    let first = if shape.splits_sequence() {
        stage.tensor_rank * shape.local_tokens()
    } else {
        0
    };
    let (hidden, batch) = (shape.hidden_size, shape.micro_batch_size);
    let params = [out.len, hidden, batch, first, stage.round_code()];
    let operands = [words, table, out];
    rank.module(POSITIONS, |rank| {
        let grid = [out.len, 1, 1];
        rank.launch("forward", "position_embedding", grid, &operands, &params);
    });
}

/// For each row of the position table: the tokens of a microbatch that stand there.
fn position_segments(shape: &ModelShape) -> Segments {
    let tokens = shape.tokens();
    let ends = (0..=shape.max_position_embeddings).map(|row| {
        let end = u64::from(row) * u64::from(shape.micro_batch_size);
        u32::try_from(end).unwrap_or(u32::MAX).min(tokens)
    });
    Segments {
        pointers: ends.collect(),
        indices: (0..tokens).collect::<Arc<[u32]>>(),
    }
}
