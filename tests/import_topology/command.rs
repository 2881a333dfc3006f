//! The verb, run as a user runs it, and plans that are made of what it writes.

use std::process::{Command, Output};

use serde_json::Value;

fn run(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bitproof"));
    command.args(arguments).env("NO_COLOR", "1");
    command.output().expect("the binary starts")
}

#[track_caller]
fn ended(arguments: &[&str], code: i32) -> (String, String) {
    let output = run(arguments);
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
    let (said, talk) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{said}{talk}");
    (said, talk)
}

const RECIPE: &str = "world_size = 4\nnum_layers = 1\nhidden_size = 16\nnum_attention_heads = 2\n\
    seq_length = 16\nmicro_batch_size = 1\nglobal_batch_size = 4\ntrain_iters = 2\nlr = 1e-2\n\
    [env]\nNCCL_ALGO = \"Tree\"\nNCCL_PROTO = \"Simple\"\n";

fn file(name: &str) -> String {
    format!(
        "{}/tests/fixtures/topology/{name}",
        env!("CARGO_MANIFEST_DIR")
    )
}

#[test]
fn plans_are_made_of_recorded_trees_and_say_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name).display().to_string();
    let (recipe, out) = (at("recipe.toml"), at("recorded.toml"));
    std::fs::write(&recipe, RECIPE).expect("it is written");
    let logs = [file("two-hosts-0.log"), file("two-hosts-1.log")];
    let (said, talk) = ended(&["import", "topology", &logs[0], &logs[1], "-o", &out], 0);
    assert_eq!(said, "");
    assert!(
        talk.contains("2 hosts of 2 GPUs, 4 ranks, 3 communicators recorded"),
        "{talk}"
    );
    let show = ["plan", "show", &recipe, "--topology", &out];
    let element = [
        "--collective",
        "grad_reduce.stage0.bucket0",
        "--element",
        "0",
    ];
    let (said, _) = ended(&[&show[..], &element].concat(), 0);
    // Rank 0 adds its children 1 and 2 in that order; rank 2 has added 3.
    assert!(
        said.contains("((r0 + r1) + (r2 + r3))") || said.contains("((r1 + r0) + (r3 + r2))"),
        "{said}"
    );
    assert!(
        said.contains("rings and trees of 1 of 1 groups as the topology file has them"),
        "{said}"
    );
    assert!(!said.contains("the rings within a node"), "{said}");
    // The same machines without what was recorded: other trees, or the same ones on other channels.
    let plain = at("plain.toml");
    std::fs::write(&plain, "name = \"plain\"\nhosts = [[1, 0], [2, 3]]\n").expect("it is written");
    let sides = ["--topology", &out, "--topology", &plain];
    let diff = run(&[&["plan", "diff", &recipe], &sides[..]].concat());
    let said = String::from_utf8(diff.stdout).expect("text");
    assert!(
        said.contains("basis of two-hosts-0: ") && said.contains("basis of plain: "),
        "{said}"
    );
}

#[test]
fn an_object_has_what_was_understood() {
    let graph = file("graph.xml");
    let import = [
        "import", "topology", &graph, "--hosts", "4", "--name", "four",
    ];
    let (said, _) = ended(&[&import[..], &["--format", "json"]].concat(), 0);
    let object: Value = serde_json::from_str(&said).expect("one object");
    assert_eq!(
        (&object["name"], &object["hosts"]),
        (&"four".into(), &4.into())
    );
    assert_eq!(object["form"], "NCCL graph XML");
    let (toml, _) = ended(&import, 0);
    assert_eq!(object["topology"], toml.as_str());
    let documentation = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/topology.md");
    let documentation = std::fs::read_to_string(documentation).expect("it is part of the tree");
    for key in object.as_object().expect("an object").keys() {
        assert!(
            documentation.contains(&format!("`{key}`")),
            "{key} is documented"
        );
    }
    let (said, _) = ended(&["import", "topology", "README.md", "--format", "json"], 2);
    let object: Value = serde_json::from_str(&said).expect("one object");
    assert_eq!(object["findings"][0]["code"], "unknown-form");
}

#[test]
fn nothing_is_overwritten_by_mistake() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out.toml").display().to_string();
    let graph = file("graph.xml");
    let import = ["import", "topology", &graph, "-o", &out];
    ended(&import, 0);
    let (_, talk) = ended(&import, 2);
    assert!(talk.contains("`--force` replaces it"), "{talk}");
    ended(&[&import[..], &["--force"]].concat(), 0);
    let (_, talk) = ended(&["import", "topology", &graph, "-o", &graph, "--force"], 2);
    assert!(talk.contains("own file"), "{talk}");
    let many = ["import", "topology", &graph, "--hosts", "65536"];
    let (_, talk) = ended(&many, 2);
    assert!(talk.contains("at most 65536 are supported"), "{talk}");
}
