//! A check that is killed at any moment leaves nothing half-written under a final name.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use bitproof::train::CheckpointRoot;

const SCENARIO: &str = "
name = 'killed'
oracles = ['RES']
steps = 4
[recipe]
world_size = 2
num_layers = 1
hidden_size = 16
ffn_hidden_size = 16
num_attention_heads = 2
seq_length = 8
micro_batch_size = 1
global_batch_size = 2
train_iters = 4
lr = 5e-3
[recipe.env]
NCCL_ALGO = 'Ring'
[checkpoint]
restarts = [[1], [2], [3], [1, 2, 3], [1, 3], [2, 3]]
";
const KILLS: u64 = 100;

/// Every folder and tracker below `folder` that has a final name is whole; their number.
fn whole(folder: &Path) -> u64 {
    let mut count = 0;
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let path = entry.path();
        let name = entry.file_name().into_string().unwrap();
        if name.ends_with(".partial") {
            continue;
        }
        if name == "latest_checkpointed_iteration.txt" {
            let root = CheckpointRoot::new(folder);
            root.load().unwrap_or_else(|error| panic!("{error}"));
            count += 1;
        }
        if entry.file_type().unwrap().is_dir() {
            count += whole(&path);
        }
    }
    count
}

#[test]
fn a_hundred_kills_leave_no_half_of_a_checkpoint() {
    let base = tempfile::tempdir().unwrap();
    let scenario: PathBuf = base.path().join("killed.toml");
    fs::write(&scenario, SCENARIO).unwrap();
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut found = 0;
    for _ in 0..KILLS {
        let folder = tempfile::tempdir_in(base.path()).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_bitproof"))
            .args(["check", "--quiet"])
            .arg(&scenario)
            .current_dir(folder.path())
            .env("TMPDIR", folder.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the program starts");
        // Kills all over the run: xorshift from a fixed seed.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        std::thread::sleep(Duration::from_millis(state % 400));
        child.kill().expect("it can be killed");
        child.wait().expect("it has ended");
        found += whole(folder.path());
    }
    assert!(found > 0, "some kill comes while a checkpoint is there");
}
