//! How a long check tells that it is alive. Nothing told here reaches a result.

/// Receives what a check is doing. Stages follow each other; none overlaps.
pub trait Progress: Sync {
    /// A stage of `total` units begins, such as "reference run" with a unit a step.
    fn begin(&self, stage: &str, total: u64);
    /// `units` more are done.
    fn advance(&self, units: u64);
    fn end(&self);
}

/// Tells nobody.
pub struct Silent;

impl Progress for Silent {
    fn begin(&self, _stage: &str, _total: u64) {}
    fn advance(&self, _units: u64) {}
    fn end(&self) {}
}
