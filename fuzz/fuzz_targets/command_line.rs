//! Any bytes, read as launch scripts: an error with a place, or a job; never a panic.
#![no_main]

use std::path::Path;

use bitproof::diagnostic::{Findings, Source};
use bitproof::recipe::megatron::GivenJob;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let source = Source::new("launch.sh", text);
    let mut findings = Findings::default();
    let job = GivenJob::read(&source, Path::new("case/launch.sh"), &mut findings);
    for finding in findings.into_vec() {
        finding.to_plain();
    }
    drop(job);
});
