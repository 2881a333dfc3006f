//! Forms that tell machines, hosts and places of ranks, but no rings: a snapshot each, and samples.

use bitproof::topology::import::{Form, Given, Machine};

use super::{fixture, hosts, imported, sample, written};

fn gpus(gpus: u32) -> Given {
    Given {
        gpus_per_host: Some(gpus),
        ..Given::default()
    }
}

#[track_caller]
fn is(name: &str, form: Form, given: &Given) -> String {
    let source = [fixture(name)];
    assert_eq!(imported(&source, given).0, form);
    written(&source, given)
}

#[test]
fn machines() {
    let nothing = Given::default();
    insta::assert_snapshot!(
        "machine.xml",
        is("machine.xml", Form::MachineXml, &hosts(2))
    );
    insta::assert_snapshot!("virtual.xml", is("virtual.xml", Form::MachineXml, &nothing));
    insta::assert_snapshot!("smi.txt", is("smi.txt", Form::NvidiaSmi, &nothing));
    insta::assert_snapshot!("astra.yml", is("astra.yml", Form::AstraSim, &nothing));
    insta::assert_snapshot!("simai.txt", is("simai.txt", Form::SimAi, &nothing));
}

#[test]
fn hosts_of_fabrics() {
    insta::assert_snapshot!("tree.conf", is("tree.conf", Form::SlurmConf, &gpus(8)));
    insta::assert_snapshot!("block.conf", is("block.conf", Form::SlurmConf, &gpus(4)));
    insta::assert_snapshot!(
        "topology.yaml",
        is("topology.yaml", Form::SlurmYaml, &gpus(4))
    );
    insta::assert_snapshot!("ib.txt", is("ib.txt", Form::IbNetDiscover, &gpus(8)));
}

#[test]
fn places_of_ranks() {
    insta::assert_snapshot!(
        "hosts.txt",
        is("hosts.txt", Form::HostFile, &Given::default())
    );
    insta::assert_snapshot!(
        "ranks.txt",
        is("ranks.txt", Form::RankFile, &Given::default())
    );
}

/// Files of public machines, where they are at hand: hosts, GPUs, hosts that NVLink joins.
#[test]
fn samples_are_read() {
    let samples = [
        (
            "nccl-topo-azure-ndv5-h100.xml",
            Given::default(),
            Form::MachineXml,
            (1, 8),
        ),
        (
            "rccl-topo-8x-gfx942-mi300x.xml",
            Given::default(),
            Form::MachineXml,
            (1, 8),
        ),
        (
            "nvidia-smi-topo-m-8xh200-12nic.txt",
            Given::default(),
            Form::NvidiaSmi,
            (1, 8),
        ),
        (
            "slurm-topology-tree.conf",
            gpus(8),
            Form::SlurmConf,
            (96, 8),
        ),
        (
            "simai-spectrum-x-128g-a100.txt",
            Given::default(),
            Form::SimAi,
            (16, 8),
        ),
        (
            "astrasim-net-hgx-h100-32.yml",
            Given::default(),
            Form::AstraSim,
            (4, 8),
        ),
        (
            "nccl-graph-azure-ncv4-4xa100.xml",
            Given::default(),
            Form::GraphXml,
            (1, 4),
        ),
    ];
    for (name, given, form, (hosts, gpus)) in samples {
        let Some(source) = sample(name) else { continue };
        let source = [source];
        let (found, imported) = imported(&source, &given);
        let topology = imported.machine.topology();
        assert_eq!(
            (found, topology.hosts, topology.gpus_per_host),
            (form, hosts, gpus),
            "{name}"
        );
        assert!(matches!(imported.machine, Machine::Topology(_)), "{name}");
        written(&source, &given);
    }
    if let Some(source) = sample("ibnetdiscover-ndr-leaf-spine-excerpt.txt") {
        let (form, imported) = imported(&[source], &gpus(8));
        let hosts = imported.machine.topology().hosts;
        assert!(form == Form::IbNetDiscover && hosts >= 17, "{hosts} hosts");
        let is_told = |note: &String| note.contains("the name that they were made with");
        assert!(imported.notes.iter().any(is_told), "{imported:?}");
        assert!(
            imported
                .notes
                .iter()
                .any(|note| note.starts_with("3 leaf switches")),
            "{imported:?}"
        );
    }
    // An algorithm is no machine: MSCCL's files are XML, too.
    if let Some(source) = sample("mscclxml-ring-allreduce-8.xml") {
        let refused = bitproof::topology::import::import(&[source], &Given::default());
        assert_eq!(refused.expect_err("no machine").code, "unknown-form");
    }
}
