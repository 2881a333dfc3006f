//! Any bytes, read as files of other tools about machines: a refusal with a place, or a topology
//! whose own file reads as it; never a panic.
#![no_main]

use bitproof::diagnostic::Source;
use bitproof::topology::import::{Given, Machine, import};
use bitproof::topology::{Allocation, Topology};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let sources = [Source::new("given", text)];
    let given = Given {
        gpus_per_host: Some(2),
        ..Given::default()
    };
    match import(&sources, &given) {
        Err(finding) => drop(finding.to_plain()),
        Ok((form, imported)) => {
            let file = imported.to_toml(form, &sources);
            match &imported.machine {
                Machine::Topology(topology) => {
                    assert_eq!(Topology::from_toml(&file).as_ref(), Ok(topology));
                }
                Machine::Allocation(allocation) => {
                    assert_eq!(Allocation::from_toml(&file).as_ref(), Ok(allocation));
                }
            }
        }
    }
});
