//! Training: layout, data, 1F1B schedule, gradient reduction, optimizer, checkpoints.

mod batch;
mod bucket;
mod canonical;
mod checkpoint;
mod corpus;
mod data_parallel;
mod finalize;
mod gradient;
mod holding;
mod initial;
mod layout;
mod memory;
mod optimizer;
mod options;
mod pipeline;
mod process_groups;
mod program;
mod start;
mod tensor_file;
mod trainer;

pub use batch::{Batch, vocabulary_segments};
pub use bucket::{Bucket, ChunkRange, FlatLayout, chunk_buffers};
pub use canonical::{CanonicalError, CanonicalState, StateDifference};
pub use checkpoint::{Checkpoint, RankState};
pub use corpus::{BUILT_IN_TEXT, Corpus, CorpusError};
pub use gradient::Gradients;
pub use holding::{BucketWord, FlatPlace};
pub use initial::Initial;
pub use layout::{Coordinates, Layout, LayoutError};
pub use memory::RankWords;
pub use options::{OptionsError, TrainOptions};
pub use process_groups::{CommunicatorKind, GroupIds, ProcessGroups};
pub use program::{Run, program};
pub use tensor_file::CheckpointError;
pub use trainer::Trainer;
