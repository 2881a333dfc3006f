//! The tokens of one step on one data-parallel rank.

use std::sync::Arc;

use crate::train::corpus::Corpus;
use crate::train::loader::SampleOrder;
use crate::train::options::TrainOptions;
use crate::world::Segments;

/// Tokens and targets of all microbatches, `[microbatches, seq, batch]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    pub tokens: Vec<u32>,
    pub targets: Vec<u32>,
}

impl Batch {
    /// The batch that starts at sample `position`, as data-parallel rank `data_rank` sees it:
    /// each microbatch of the step takes consecutive samples, rank after rank (Megatron-LM,
    /// `MegatronPretrainingSampler`).
    pub fn at(corpus: &Corpus, options: &TrainOptions, position: u32, data_rank: u32) -> Batch {
        let epoch = options
            .epoch_samples
            .map_or(0, |samples| position / samples);
        Batch::in_epoch(corpus, options, position, epoch, data_rank)
    }

    /// The same, where the first sample is shuffled as in `epoch`.
    pub fn in_epoch(
        corpus: &Corpus,
        options: &TrainOptions,
        position: u32,
        epoch: u32,
        data_rank: u32,
    ) -> Batch {
        let mut order = SampleOrder::new(options, position, epoch);
        let (seq, batch) = (options.model.seq_length, options.model.micro_batch_size);
        let ranks = options.layout.data_parallel_size;
        let microbatches = options.microbatches();
        let words = (microbatches * seq * batch) as usize;
        let (mut tokens, mut targets) = (vec![0; words], vec![0; words]);
        for microbatch in 0..microbatches {
            for place in 0..batch {
                let index = (microbatch * ranks + data_rank) * batch + place;
                let sample = corpus.sample(order.sample(index), seq);
                for s in 0..seq {
                    let word = ((microbatch * seq + s) * batch + place) as usize;
                    tokens[word] = sample[s as usize];
                    targets[word] = sample[s as usize + 1];
                }
            }
        }
        Batch { tokens, targets }
    }
}

/// For each of the `rows` vocabulary rows from `first`: the places in `tokens` that look it up,
/// ascending.
pub fn vocabulary_segments(tokens: &[u32], first: u32, rows: u32) -> Segments {
    let mut counts = vec![0u32; rows as usize + 1];
    let row_of = |token: u32| token.checked_sub(first).filter(|row| *row < rows);
    for row in tokens.iter().filter_map(|token| row_of(*token)) {
        counts[row as usize + 1] += 1;
    }
    for row in 1..counts.len() {
        counts[row] += counts[row - 1];
    }
    let pointers: Arc<[u32]> = counts.clone().into();
    let mut indices = vec![0; pointers[rows as usize] as usize];
    for (place, token) in tokens.iter().enumerate() {
        if let Some(row) = row_of(*token) {
            let next = &mut counts[row as usize];
            indices[*next as usize] = place as u32;
            *next += 1;
        }
    }
    Segments {
        pointers,
        indices: indices.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_list_each_token_once_in_ascending_order() {
        let tokens = [5, 2, 9, 5, 3, 5, 2];
        let segments = vocabulary_segments(&tokens, 2, 4);
        for row in 0..4 {
            let range = segments.pointers[row] as usize..segments.pointers[row + 1] as usize;
            let expected: Vec<u32> = (0..7)
                .filter(|place| tokens[*place as usize] == 2 + row as u32)
                .collect();
            assert_eq!(segments.indices[range], expected);
        }
        assert_eq!(segments.indices.len(), 6);
    }
}
