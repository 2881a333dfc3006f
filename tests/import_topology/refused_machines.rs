//! What is wrong with machines, hosts and places of ranks, where it stands.

use bitproof::diagnostic::Source;
use bitproof::topology::import::{Given, import};

use super::fixture;
use super::refused::{refused, refuses};

/// The same for a form that needs the number of GPUs.
#[track_caller]
fn refuses_hosts(name: &str, from: &str, to: &str, at: &str, why: &str) {
    let text = fixture(name).text.to_string();
    assert!(text.contains(from), "{from} is in {name}");
    let source = Source::new(name, text.replacen(from, to, 1));
    let given = Given {
        gpus_per_host: Some(4),
        ..Given::default()
    };
    let finding = import(&[source], &given).expect_err("it is refused");
    let (place, _) = finding.place.clone().expect("a place");
    let said = finding.to_plain();
    assert!(said.contains(why), "{said}");
    assert_eq!(&place.source.text[place.span.clone()], at, "{said}");
}

#[test]
fn machines() {
    let xml = |from, to, at, why| refuses("machine.xml", &[(from, to)], at, why);
    xml(
        "0000:05:00.0",
        "0000:02:00.0",
        "0000:02:00.0",
        "another GPU is there already",
    );
    xml(
        "count=\"18\"",
        "count=\"x\"",
        "x",
        "a number from 0 to 1024",
    );
    xml("dev=\"1\"", "dev=\"-1\"", "-1", "a number from 0");
    let one = |text: &str| refused(&[Source::new("x.xml", text)]).0;
    assert!(one("<system><cpu/></system>").contains("the file has no GPU"));
    let gpu = |host: u32, bus: u32| {
        format!("<cpu host_hash=\"{host}\"><pci busid=\"{bus}\" class=\"0x030200\"/></cpu>")
    };
    let unequal = format!("<system>{}{}{}</system>", gpu(1, 1), gpu(1, 2), gpu(2, 1));
    assert!(one(&unequal).contains("hosts of different sizes: 2, 1 GPUs"));
    let smi = |from, to, at, why| refuses("smi.txt", &[(from, to)], at, why);
    smi(
        "GPU1\tNV12",
        "GPU1\tNV11",
        "NV12",
        "from GPU1 to GPU0 it is NV11",
    );
    smi("NIC0\tPIX", "NIC0\tFAR", "FAR", "expected X, SYS");
    smi(
        "GPU1\tNV12\t X ",
        "GPU1\tNV12\tSYS",
        "SYS",
        "where a device meets itself",
    );
    smi(
        "\nGPU1\t",
        "\nGPU7\t",
        "GPU7",
        "expected GPU1, as in the header",
    );
    smi("SYS\tPXB\tSYS\t X ", "SYS", "NIC1", "1 cells of NIC1");
}

#[test]
fn simulators() {
    let simai = |from, to, at, why| refuses("simai.txt", &[(from, to)], at, why);
    simai(
        "11 4 2 1 12",
        "11 3 2 1 12",
        "11 3 2 1 12 H100",
        "8 GPUs are no servers of 3",
    );
    simai(
        "11 4 2 1 12",
        "11 4 2 1 13",
        "11 4 2 1 13 H100",
        "12 links, the first line says 13",
    );
    simai("8 9 10", "8 9", "8 9", "2 switches are listed");
    simai(
        "0 8 400",
        "0 11 400",
        "0 11 400Gbps 0.000025ms 0",
        "expected two of 11 nodes",
    );
    simai(
        "11 4 2 1 12",
        "3 4 2 1 12",
        "3 4 2 1 12 H100",
        "expected 1 to 65536 GPUs",
    );
    let astra = |from, to, at, why| refuses("astra.yml", &[(from, to)], at, why);
    astra("50.5", "tbd", "tbd", "expected a number");
    astra(
        "Ring",
        "Torus",
        "Torus",
        "expected Ring, Switch or FullyConnected",
    );
    astra("[ 8, 4 ]", "[ 8, 0 ]", "0", "expected a number of NPUs");
    astra("[ 8, 4 ]", "[ 8, 99999 ]", "99999", "at most 65536");
    astra("[ 8, 4 ]", "&a [ 8, 4 ]", "&a [ ", "anchors are not read");
}

#[test]
fn fabrics() {
    refuses_hosts(
        "tree.conf",
        "leaf[1-2]",
        "leaf[1-3]",
        "leaf[1-3]",
        "no switch is called `leaf3`",
    );
    refuses_hosts(
        "tree.conf",
        "gpu[01-02]",
        "gpu[01-03]",
        "leaf2",
        "`gpu03` is under `leaf1`",
    );
    refuses_hosts(
        "tree.conf",
        "Nodes=gpu[01-02]",
        "Node=x",
        "Node=x",
        "no key of topology.conf",
    );
    refuses_hosts(
        "tree.conf",
        "gpu[01-02]",
        "gpu[01-",
        "gpu[01-",
        "`[` without `]`",
    );
    refuses_hosts(
        "block.conf",
        "[4-6]",
        "[4-5]",
        "rack2",
        "blocks of 3 and of 2 hosts",
    );
    refuses_hosts(
        "topology.yaml",
        "tray[3-4]",
        "tray[2-3]",
        "b2",
        "`tray2` is under `b1` already",
    );
    refuses_hosts(
        "topology.yaml",
        "tray[3-4]",
        "[tray3]",
        "[",
        "expected a word",
    );
    refuses(
        "ib.txt",
        &[],
        &fixture("ib.txt").text,
        "say `--gpus-per-host N`",
    );
}

#[test]
fn places() {
    let hosts = |from, to, at, why| refuses("hosts.txt", &[(from, to)], at, why);
    hosts(
        "slots=3",
        "slots=0",
        "gpu01 slots=0 max_slots=8",
        "expected 1 to 65536",
    );
    hosts(
        "gpu02",
        "gpu01",
        "gpu01 slots = 2",
        "`gpu01` is named again",
    );
    hosts("slots = 2", "", "gpu02", "`gpu02` has no slots");
    let ranks = |from, to, at, why| refuses("ranks.txt", &[(from, to)], at, why);
    ranks(
        "rank 2",
        "rank 0",
        "rank 0=gpu07 slot=0:1",
        "rank 0 is there twice",
    );
    ranks(
        "rank 1=gpu03",
        "rank 1=+n0",
        "rank 1=+n0 slot=1",
        "relative ones",
    );
    let gap = fixture("ranks.txt").text.replace("rank  3", "rank 4");
    let (said, _) = refused(&[Source::new("ranks.txt", gap)]);
    assert!(said.contains("rank 3 is placed nowhere"), "{said}");
    let line_a_rank = Source::new("hosts", "a\na\nb\n");
    assert!(import(&[line_a_rank], &Given::default()).is_ok());
    let mixed = Source::new("hosts", "a\nb\na\n");
    assert!(refused(&[mixed]).0.contains("`a` is named again"));
}
