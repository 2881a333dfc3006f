//! The virtual cluster as a whole: what it computes, what it reports, and that nothing hangs.

mod cluster;
mod collectives;
mod failures;
mod faults;
mod folds;
mod footprints;
mod hazards;
mod host;
mod invariance;
mod kernels;
mod live_in;
mod named_faults;
mod reference;
mod reversal;
mod streams;
