//! The largest recipe that is accepted. A limit is far above any sensible use, and far below
//! what would overflow or exhaust a machine before an error could be shown.

pub const WORLD_SIZE_MAX: u32 = 65_536;
pub const NUM_LAYERS_MAX: u32 = 1_024;
pub const HIDDEN_SIZE_MAX: u32 = 16_384;
pub const FFN_HIDDEN_SIZE_MAX: u32 = 65_536;
pub const NUM_ATTENTION_HEADS_MAX: u32 = 1_024;
/// Width of one attention head: the attention kernels' own.
pub const KV_CHANNELS_MAX: u32 = 128;
pub const SEQ_LENGTH_MAX: u32 = 65_536;
pub const MAX_POSITION_EMBEDDINGS_MAX: u32 = 1 << 24;
pub const PADDED_VOCAB_SIZE_MAX: u32 = 262_144;
pub const MICRO_BATCH_SIZE_MAX: u32 = 1_024;
/// Microbatches of one rank in one step.
pub const MICROBATCH_COUNT_MAX: u32 = 1_024;
pub const TRAIN_ITERS_MAX: u32 = 1_000_000;
pub const WGRAD_SPLITS_MAX: u32 = 256;
/// Parameters, gradients and optimizer state of all virtual ranks together: 1 TiB.
pub const STATE_BYTES_MAX: u64 = 1 << 40;
/// Variables in `[env]`.
pub const ENV_COUNT_MAX: usize = 256;
