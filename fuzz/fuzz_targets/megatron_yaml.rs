//! Any bytes, read as functional tests' files: an error with a place, or a job; never a panic.
#![no_main]

use std::path::Path;

use bitproof::diagnostic::{Findings, Source};
use bitproof::recipe::megatron::GivenJob;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let source = Source::new("model_config.yaml", text);
    let mut findings = Findings::default();
    let job = GivenJob::read(&source, Path::new("case/model_config.yaml"), &mut findings);
    for finding in findings.into_vec() {
        finding.to_plain();
    }
    drop(job);
});
