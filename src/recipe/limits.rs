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
/// Steps of a run, of its decay and its warm-up. A job's own numbers are much larger than what is
/// run of it.
pub const TRAIN_ITERS_MAX: u32 = 1 << 30;
pub const WGRAD_SPLITS_MAX: u32 = 256;
/// Parameters, gradients and optimizer state of all virtual ranks together: 1 TiB.
pub const STATE_BYTES_MAX: u64 = 1 << 40;
/// Worker processes of a data loader.
pub const NUM_WORKERS_MAX: u32 = 64;
/// Samples of an epoch: their order is made anew in each.
pub const EPOCH_SAMPLES_MAX: u32 = 1 << 16;
/// Variables in `[env]`.
pub const ENV_COUNT_MAX: usize = 256;

// Files of other tools. A configuration file as a whole: `diagnostic::FILE_BYTES_MAX`.

/// Longest job log that is searched for its arguments: 64 MiB.
pub const LOG_BYTES_MAX: u64 = 64 << 20;
/// Arguments of one phase; Megatron-LM has about 700.
pub const ARGUMENTS_MAX: usize = 4_096;
/// Phases of one file: `MODEL_ARGS`, `MODEL_ARGS_2`, launches of a script.
pub const PHASES_MAX: usize = 64;
/// Longest value of one argument or variable: 64 KiB.
pub const VALUE_BYTES_MAX: usize = 64 << 10;
/// All values of a YAML document together: aliases repeat a long one in a few letters.
pub const VALUES_BYTES_MAX: usize = 4 << 20;
/// Programs that a script launches.
pub const LAUNCHES_MAX: usize = 256;
/// Collections within collections of a YAML document, and merges within merges.
pub const YAML_DEPTH_MAX: usize = 64;
/// Scalars, sequences and mappings of a YAML document.
pub const YAML_NODES_MAX: usize = 1 << 17;
/// Keys that `<<` brings in, over all mappings of a document.
pub const YAML_MERGED_KEYS_MAX: usize = 1 << 16;
/// Words of a script, its arrays and variables put in: 64 Ki.
pub const SCRIPT_WORDS_MAX: usize = 1 << 16;
/// Characters of a script, its variables put in.
pub const SCRIPT_CHARS_MAX: usize = 4 << 20;
/// `sh -c` within `sh -c`, functions within functions, `$( )` within `$( )`.
pub const SCRIPT_DEPTH_MAX: usize = 32;
/// Branches, loops, functions and brackets of a script within each other.
pub const SCRIPT_NESTING_MAX: usize = 32;
