//! The native record: what a check writes of a simulated run (DESIGN 9).
//!
//! Its records are those of the op stream and of the boundary stream, so that whatever reads a
//! cluster's traces reads these. A file is a chain of zstd frames (RFC 8878): a skippable one with
//! a [`Header`], a frame of whole lines each time something is flushed, and a skippable one with
//! the number of records, which a run that was killed does not leave. Programs that unpack zstd
//! pass over the skippable ones.

mod description;
mod earliest;
mod file;
mod frames;
mod line;
mod recording;
mod unlike;
mod whole;

pub use description::{DIGEST_RULE, Header, Level, RunDescription, Stream};
pub use earliest::{Earliest, earliest};
pub use line::{Fingerprint, Kind, OpLine, metric_line, step_line};
pub use recording::{Recording, RecordingError};
pub(super) use unlike::unlike;
pub(super) use whole::complaints;

#[cfg(test)]
mod tests;
