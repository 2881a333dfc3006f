//! Any bytes, read as job logs: an error with a place, or a job; never a panic.
#![no_main]

use std::path::Path;

use bitproof::diagnostic::{Findings, Source};
use bitproof::recipe::megatron::GivenJob;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let source = Source::new("job.log", text);
    let mut findings = Findings::default();
    let job = GivenJob::read(&source, Path::new("case/job.log"), &mut findings);
    for finding in findings.into_vec() {
        finding.to_plain();
    }
    drop(job);
});
