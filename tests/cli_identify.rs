//! `bitproof plan probe` and `plan identify`, run as a user runs them.

use std::path::Path;
use std::process::Command;

use bitproof::numerics::Dtype;
use bitproof::plan::identify::{Folded, Probe};
use bitproof::plan::{Backend, Collective, Environment, Plan, Reduction, Request, Selector};
use bitproof::topology::{Allocation, Topology};
use plan_verb::{object, text};
use serde_json::Value;

#[path = "support/plan_verb.rs"]
mod plan_verb;

const DGX: &str = "topologies/dgx-h100-2.toml";

/// NCCL's plan of a job's 16 ranks on two DGX, with a variable.
fn nccl(variable: (&str, &str), collective: Collective, elements: u64) -> Plan {
    let machine = std::fs::read_to_string(DGX).expect("it is shipped");
    let allocation: Allocation = Topology::from_toml(&machine)
        .expect("a topology")
        .block(16)
        .expect("it fits");
    let environment = Environment::parse([variable, ("NCCL_MAX_NCHANNELS", "16")]).expect("read");
    let members: Vec<u32> = (0..16).collect();
    let request = Request {
        backend: Backend::Nccl,
        members: &members,
        collective,
        dtype: Dtype::F32,
        elements,
        reduction: Reduction::Sum,
    };
    let selector = Selector::new(allocation, environment);
    (*selector.plan(&request).expect("a plan")).clone()
}

/// What the script would bring back from a library that adds by `plan`.
fn run_probe(folder: &Path, plan: &Plan, is_scattered: bool) {
    let probe = Probe::new(plan.addend_count, Dtype::F32).expect("a probe");
    let inputs: Vec<Vec<f32>> = (0..probe.ranks).map(|rank| probe.inputs(rank)).collect();
    let mut runs: Vec<Vec<u8>> = Vec::new();
    for run in 0..probe.runs() as usize {
        let addends: Vec<f32> = inputs.iter().map(|rank| rank[run]).collect();
        let mut bytes = Vec::new();
        for piece in &plan.pieces {
            let folded = Folded::new(&piece.tree, plan.arithmetic).expect("a sum");
            let value = folded.value(&addends).to_le_bytes();
            piece.range.clone().for_each(|_| bytes.extend(value));
        }
        runs.push(bytes);
    }
    for rank in 0..probe.ranks as usize {
        let own = |run: &Vec<u8>| match is_scattered {
            false => run.clone(),
            true => {
                let block = run.len() / probe.ranks as usize;
                run[rank * block..(rank + 1) * block].to_vec()
            }
        };
        let bytes: Vec<u8> = runs.iter().flat_map(own).collect();
        let path = folder.join(format!("outputs/rank_{rank:06}.bin"));
        std::fs::write(path, bytes).expect("it is written");
    }
}

fn names(found: &Value) -> String {
    found["left"][0]["plans"].to_string()
}

/// A library with rings of the topology is found by its topology, and its trees without one.
#[test]
fn a_probed_ring_is_named_by_its_topology() {
    let root = tempfile::tempdir().expect("a folder");
    let folder = root.path().join("probe");
    let path = folder.display().to_string();
    let written = object(
        &[
            "probe",
            "--ranks",
            "16",
            "--elements",
            "6000",
            "--out",
            &path,
        ],
        0,
    );
    assert_eq!(written["runs"], 120 + 16);
    run_probe(
        &folder,
        &nccl(("NCCL_PROTO", "LL"), Collective::AllReduce, 6000),
        false,
    );
    let basis = root.path().join("basis.json").display().to_string();
    let identify = ["identify", "--inputs", &path];
    let known = [&identify[..], &["--topology", DGX, "--basis", &basis]].concat();
    let found = object(&known, 0);
    assert!(names(&found).contains("NCCL Ring, LL"), "{found}");
    let basis: Value =
        serde_json::from_str(&std::fs::read_to_string(&basis).expect("written")).expect("JSON");
    assert_eq!(basis["hash"], found["hash"]);
    // Not there a second time without being asked.
    assert!(text(&known, 2).contains("--force"));
    let unknown = object(&identify, 0);
    assert_eq!(unknown["left"].as_array().map(Vec::len), Some(0));
    assert_eq!(unknown["hash"], found["hash"]);
    assert_eq!(unknown["ranges"], found["ranges"]);
    let human = text(&identify, 0);
    assert!(
        human.contains("no known plan, but a tree for every element"),
        "{human}"
    );
    // One rank that has other bits: no plan, and not a silent pick of one of the two.
    let other = folder.join("outputs/rank_000003.bin");
    let mut bytes = std::fs::read(&other).expect("it is there");
    bytes[40] ^= 1;
    std::fs::write(&other, bytes).expect("it is written");
    let said = text(&identify, 1);
    assert!(
        said.contains("rank_000003.bin") && said.contains("disagree"),
        "{said}"
    );
}

#[test]
fn a_probed_reduce_scatter_is_put_together_from_its_blocks() {
    let root = tempfile::tempdir().expect("a folder");
    let folder = root.path().join("probe");
    let path = folder.display().to_string();
    let operation = ["--operation", "reduce-scatter", "--elements", "4800"];
    let probe = [&["probe", "--ranks", "16", "--out", &path][..], &operation].concat();
    text(&probe, 0);
    run_probe(
        &folder,
        &nccl(("NCCL_ALGO", "Ring"), Collective::ReduceScatter, 4800),
        true,
    );
    let found = object(&["identify", "--inputs", &path, "--topology", DGX], 0);
    assert!(names(&found).contains("NCCL Ring"), "{found}");
}

/// Captured shards: safetensors inputs, the result as bytes.
#[test]
fn captured_values_are_identified() {
    let root = tempfile::tempdir().expect("a folder");
    let tree = nccl(("NCCL_ALGO", "Tree"), Collective::AllReduce, 5000);
    let value = |rank: u32, element: u64| {
        let word = (element + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15 ^ u64::from(rank) << 17);
        let exponent = 120 + (word >> 40) as u32 % 14;
        f32::from_bits(
            (word as u32 & 0x8000_0000) | exponent << 23 | (word >> 8) as u32 & 0x7f_ffff,
        )
    };
    let inputs = root.path().join("inputs");
    std::fs::create_dir(&inputs).expect("a folder");
    for rank in 0..16 {
        let bytes: Vec<u8> = (0..5000)
            .flat_map(|at| value(rank, at).to_le_bytes())
            .collect();
        let view =
            safetensors::tensor::TensorView::new(safetensors::Dtype::F32, vec![50, 100], &bytes);
        let file = safetensors::serialize([("grad", view.expect("whole"))], None);
        let path = inputs.join(format!("rank{rank}.safetensors"));
        std::fs::write(path, file.expect("a file")).expect("it is written");
    }
    let mut output = Vec::new();
    for piece in &tree.pieces {
        let folded = Folded::new(&piece.tree, tree.arithmetic).expect("a sum");
        for element in piece.range.clone() {
            let addends: Vec<f32> = (0..16).map(|rank| value(rank, element)).collect();
            output.extend(folded.value(&addends).to_le_bytes());
        }
    }
    let path = root.path().join("result.bin").display().to_string();
    std::fs::write(&path, &output).expect("it is written");
    let inputs = inputs.display().to_string();
    let identify = [
        "identify",
        "--inputs",
        &inputs,
        "--output",
        &path,
        "--topology",
        DGX,
    ];
    // Bytes alone have no type.
    assert!(text(&identify, 2).contains("--dtype"));
    let typed = [&identify[..], &["--dtype", "f32"]].concat();
    let found = object(&typed, 0);
    assert!(names(&found).contains("NCCL Tree"), "{found}");
    let excluded = found["excluded"].as_array().expect("a list");
    assert!(
        excluded.iter().all(|one| one["expected"] != one["found"]),
        "{found}"
    );
    // A result that nothing known gives.
    output[401] ^= 1;
    std::fs::write(&path, &output).expect("it is written");
    let none = text(&typed, 1);
    assert!(none.contains("no known plan gives these bits"), "{none}");
    assert!(none.contains("100..101: no tree of a known plan"), "{none}");
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    let root = tempfile::tempdir().expect("a folder");
    let path = |name: &str| root.path().join(name).display().to_string();
    let probe = |more: &[&str]| text(&[&["probe", "--out", &path("p")], more].concat(), 2);
    assert!(probe(&["--ranks", "2"]).contains("expected 3 to 128"));
    assert!(probe(&["--ranks", "129"]).contains("expected 3 to 128"));
    let uneven = [
        "--ranks",
        "3",
        "--elements",
        "4",
        "--operation",
        "reduce-scatter",
    ];
    assert!(probe(&uneven).contains("3 blocks"));
    let huge = ["--ranks", "100", "--elements", "1000000000"];
    assert!(probe(&huge).contains("too much to bring back"));
    text(
        &[
            "probe",
            "--ranks",
            "3",
            "--elements",
            "8",
            "--out",
            &path("p"),
        ],
        0,
    );
    assert!(probe(&["--ranks", "3"]).contains("not there yet"));
    let identify = |more: &[&str]| text(&[&["identify", "--inputs"], more].concat(), 2);
    // The script has not run.
    assert!(identify(&[&path("p")]).contains("a file a rank"));
    for (name, content) in [("rank_0.bin", "1234"), ("rank_1.bin", "123")] {
        std::fs::write(root.path().join(name), content).expect("it is written");
    }
    let folder = root.path().display().to_string();
    let none = identify(&[&folder]);
    assert!(none.contains("--output"), "{none}");
    let given = [&folder[..], "--output", &folder, "--dtype", "f32"];
    let cut = identify(&given);
    assert!(
        cut.contains("rank_1.bin") && cut.contains("no whole elements"),
        "{cut}"
    );
    std::fs::write(root.path().join("rank_1.bin"), "12345678").expect("it is written");
    assert!(identify(&given).contains("2 elements of f32, rank 0 has 1"));
    std::fs::rename(
        root.path().join("rank_1.bin"),
        root.path().join("rank_2.bin"),
    )
    .expect("moved");
    std::fs::write(root.path().join("rank_2.bin"), "1234").expect("it is written");
    assert!(identify(&given).contains("rank 1 has no file"));
    std::fs::write(root.path().join("p/probe.json"), "{\"version\": 1}").expect("it is written");
    assert!(identify(&[&path("p")]).contains("no probe's file"));
}

/// The script on real processes of torch with gloo. Where torch is not installed (set
/// `BITPROOF_TORCH_PYTHON` to a Python that has it) it is said and nothing is tested.
#[test]
fn torch_with_gloo_is_identified() {
    let python = std::env::var("BITPROOF_TORCH_PYTHON").unwrap_or_else(|_| "python3".to_string());
    let has_torch = Command::new(&python)
        .args(["-c", "import torch.distributed"])
        .output();
    if !has_torch.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: `{python}` has no torch; BITPROOF_TORCH_PYTHON names one that has");
        return;
    }
    let root = tempfile::tempdir().expect("a folder");
    let folder = root.path().join("probe");
    let path = folder.display().to_string();
    let probe = [
        "probe",
        "--ranks",
        "4",
        "--elements",
        "1001",
        "--dtype",
        "bf16",
    ];
    text(&[&probe[..], &["--out", &path]].concat(), 0);
    let script = folder.join("probe.py").display().to_string();
    let run = Command::new(&python)
        .args([
            "-m",
            "torch.distributed.run",
            "--standalone",
            "--nproc-per-node",
            "4",
        ])
        .args([&script, "--backend", "gloo"])
        .output()
        .expect("it starts");
    assert!(run.status.success(), "{run:?}");
    let found = object(&["identify", "--inputs", &path], 0);
    assert!(names(&found).contains("Gloo, ring"), "{found}");
    assert_eq!(found["ranges"].as_array().map(Vec::len), Some(4));
}
