//! Which words of the whole model's tensors a rank holds, and where.

use std::ops::Range;

use crate::model::{Parameter, Partition};
use crate::train::bucket::FlatLayout;
use crate::train::gradient::shards;
use crate::train::layout::Coordinates;
use crate::train::options::TrainOptions;

/// The flat words whose optimizer state the rank at `place` holds: its shard of each bucket under
/// the distributed optimizer, else all.
pub(super) fn owned(
    options: &TrainOptions,
    layout: &FlatLayout,
    place: Coordinates,
) -> Vec<Range<u32>> {
    match shards(options) {
        true => layout.shard(place.data % options.layout.instance_size()),
        false => std::iter::once(0..layout.len()).collect(),
    }
}

/// Consecutive words of one parameter in a flat buffer that holds the owned words alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    /// The parameter's place in the rank's list.
    pub parameter: usize,
    /// Elements of the rank's part of the parameter.
    pub local: Range<u32>,
    /// Where the first of them lies among the owned words.
    pub start: u32,
}

/// Where a parameter lies in the flat buffers of its rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlatPlace {
    /// The parameter's name.
    pub parameter: String,
    /// Its words in the rank's flat buffers, whoever owns their optimizer state.
    pub words: Range<u32>,
    /// Words of a row of it.
    pub columns: u32,
}

/// A word of a gradient bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketWord {
    /// Counted in the bucket.
    pub place: u64,
    /// The whole model's tensor that it is of, and its element there.
    pub whole: String,
    pub index: u64,
    /// The rank's name of its part of the tensor.
    pub held_as: String,
}

impl TrainOptions {
    /// The words of bucket `number` of `rank` that are of a parameter; for options that pass
    /// [`TrainOptions::check`].
    ///
    /// # Panics
    /// For a bucket that the rank has not.
    pub fn bucket_words(&self, rank: u32, number: usize) -> Vec<BucketWord> {
        let holding = Holding::of(self, rank);
        let bucket = FlatLayout::of(self, holding.place.stage).buckets[number]
            .range
            .clone();
        let mut words = Vec::with_capacity(bucket.len());
        for (parameter, offset) in holding.parameters.iter().zip(&holding.offsets) {
            let (from, to) = (
                bucket.start.max(*offset),
                bucket.end.min(offset + parameter.len()),
            );
            words.extend((from..to).map(|word| BucketWord {
                place: u64::from(word - bucket.start),
                whole: parameter.whole_name().to_string(),
                index: holding.whole_index(parameter, word - offset),
                held_as: parameter.name.clone(),
            }));
        }
        words
    }

    /// The parameters of `rank` and their places in its flat buffers, in the order in which they
    /// lie; for options that pass [`TrainOptions::check`].
    pub fn flat_places(&self, rank: u32) -> Vec<FlatPlace> {
        let holding = Holding::of(self, rank);
        let placed = holding.parameters.iter().zip(&holding.offsets);
        let mut places: Vec<FlatPlace> = placed
            .map(|(parameter, offset)| FlatPlace {
                parameter: parameter.name.clone(),
                words: *offset..offset + parameter.len(),
                columns: parameter.columns,
            })
            .collect();
        places.sort_by_key(|place| place.words.start);
        places
    }

    /// Flat words of `rank` whose optimizer state it keeps, and whose squares it adds to the norm;
    /// for options that pass [`TrainOptions::check`].
    pub fn owned_words(&self, rank: u32) -> Vec<Range<u32>> {
        Holding::of(self, rank).owned
    }
}

/// What one rank holds of the model.
#[derive(Clone, Debug)]
pub(super) struct Holding {
    pub place: Coordinates,
    pub parameters: Vec<Parameter>,
    offsets: Vec<u32>,
    /// Flat words whose optimizer state is here.
    pub owned: Vec<Range<u32>>,
    tensor_ranks: u32,
}

impl Holding {
    pub fn of(options: &TrainOptions, rank: u32) -> Holding {
        let place = options.layout.coordinates(rank);
        let layout = FlatLayout::of(options, place.stage);
        Holding {
            place,
            owned: owned(options, &layout, place),
            offsets: layout.offsets,
            parameters: layout.parameters,
            tensor_ranks: options.layout.tensor_model_parallel_size,
        }
    }

    /// Words of a flat buffer of optimizer state.
    pub fn owned_len(&self) -> u32 {
        let ranges = self.owned.iter();
        ranges.map(|range| range.end - range.start).sum()
    }

    /// Elements of the whole model's tensor.
    pub fn whole_len(&self, parameter: &Parameter) -> u64 {
        let copies = match parameter.partition {
            Partition::Replicated => 1,
            _ => self.tensor_ranks,
        };
        u64::from(parameter.len()) * u64::from(copies)
    }

    /// Where element `local` of this rank's part stands in the whole model's tensor.
    pub fn whole_index(&self, parameter: &Parameter, local: u32) -> u64 {
        parameter.global_index(local, self.place.tensor, self.tensor_ranks)
    }

    /// The owned words that belong to parameters.
    pub fn pieces(&self) -> Vec<Piece> {
        pieces(&self.parameters, &self.offsets, &self.owned)
    }
}

/// The owned words that belong to parameters, in the order in which they lie; the words between
/// parameters belong to nobody.
pub(super) fn pieces(
    parameters: &[Parameter],
    offsets: &[u32],
    owned: &[Range<u32>],
) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut start = 0;
    for range in owned {
        let mut inside: Vec<Piece> = Vec::new();
        for (place, (parameter, offset)) in parameters.iter().zip(offsets).enumerate() {
            let from = range.start.max(*offset);
            let to = range.end.min(offset + parameter.len());
            if from < to {
                inside.push(Piece {
                    parameter: place,
                    local: from - offset..to - offset,
                    start: start + from - range.start,
                });
            }
        }
        inside.sort_by_key(|piece| piece.start);
        pieces.extend(inside);
        start += range.end - range.start;
    }
    pieces
}
