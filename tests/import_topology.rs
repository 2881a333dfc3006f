//! `import topology`: what other tools know of machines, against what came of it.

#[path = "import_topology/command.rs"]
mod command;
#[path = "import_topology/graph_xml.rs"]
mod graph_xml;
#[path = "import_topology/info_log.rs"]
mod info_log;
#[path = "import_topology/machines.rs"]
mod machines;
#[path = "import_topology/mutated.rs"]
mod mutated;
#[path = "import_topology/refused.rs"]
mod refused;
#[path = "import_topology/refused_machines.rs"]
mod refused_machines;
#[path = "support/shared.rs"]
mod shared;
#[path = "support/symbols.rs"]
mod symbols;

use bitproof::diagnostic::Source;
use bitproof::topology::import::{Form, Given, Imported, Machine, import};
use bitproof::topology::{Allocation, Topology};

fn fixture(name: &str) -> Source {
    let path = format!(
        "{}/tests/fixtures/topology/{name}",
        env!("CARGO_MANIFEST_DIR")
    );
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    Source::new(name, text)
}

/// A file of the folder of samples, if that is at hand.
fn sample(name: &str) -> Option<Source> {
    let folder = shared::shared("BITPROOF_TOPOLOGY_SAMPLES", "topology-samples", name)?;
    let text = std::fs::read_to_string(folder.join(name)).expect("readable");
    Some(Source::new(name, text))
}

#[track_caller]
fn imported(sources: &[Source], given: &Given) -> (Form, Imported) {
    import(sources, given).unwrap_or_else(|finding| panic!("{}", finding.to_plain()))
}

/// The file that is written, which reads as what was imported.
#[track_caller]
fn written(sources: &[Source], given: &Given) -> String {
    let (form, imported) = imported(sources, given);
    let text = imported.to_toml(form, sources);
    match &imported.machine {
        Machine::Topology(topology) => {
            assert_eq!(Topology::from_toml(&text).as_ref(), Ok(topology), "{text}");
        }
        Machine::Allocation(allocation) => {
            assert_eq!(
                Allocation::from_toml(&text).as_ref(),
                Ok(allocation),
                "{text}"
            );
        }
    }
    text
}

fn hosts(hosts: u32) -> Given {
    Given {
        hosts: Some(hosts),
        ..Given::default()
    }
}
