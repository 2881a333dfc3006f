//! Vocab-parallel token embedding: each tensor-parallel rank holds a block of rows, looks up its
//! own tokens, and the rows meet in a sum of which all but one addend is +0.

use crate::model::parameter::ParameterId;
use crate::model::stage::Stage;
use crate::world::{Family, Rank, Segments, Tensor};

#[derive(Clone, Debug)]
pub struct Embedding {
    module: String,
    weight: ParameterId,
}

impl Embedding {
    pub fn new(stage: &Stage) -> Embedding {
        let module = "embedding.word_embeddings".to_string();
        let weight = stage.store.find(&format!("{module}.weight"));
        Embedding { module, weight }
    }

    /// `out [local tokens, hidden]` for `tokens [tokens]`.
    pub fn forward(&self, rank: &mut Rank, stage: &Stage, tokens: Tensor, out: Tensor) {
        let shape = &stage.shape;
        let count = shape.tokens() * shape.hidden_size;
        let rows = shape.local_vocab();
        let partial = stage.partial_for(out);
        rank.module(&self.module, |rank| {
            let operands = [stage.store.value(self.weight), tokens, partial];
            let params = [count, shape.hidden_size, stage.tensor_rank * rows, rows];
            rank.launch(
                "forward",
                "embedding_forward",
                [count, 1, 1],
                &operands,
                &params,
            );
            stage.reduce(rank, partial, out);
        });
    }

    /// Adds each token's row of `grad [local tokens, hidden]` into its row of the gradient slot.
    /// `segments` lists, for each row held here, the tokens that looked it up.
    pub fn backward(
        &self,
        rank: &mut Rank,
        stage: &Stage,
        segments: &Segments,
        grad: Tensor,
        microbatch: u32,
    ) {
        let order = stage.shape.orders.embedding_backward;
        let slot = stage.store.slot(self.weight, microbatch);
        rank.module(&self.module, |rank| {
            let rows = stage.gather(rank, grad, stage.scratch.gathered);
            let width = stage.shape.hidden_size;
            rank.fold_segments(
                "weight_grad",
                Family::EmbeddingGrad,
                rows,
                width,
                segments,
                slot,
                order,
            );
        });
    }
}
