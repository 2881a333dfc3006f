//! Traces.
fn main() {}
