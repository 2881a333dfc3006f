//! Limits of the process, as shells and batch systems set them: what does not fit is refused before
//! an adapter's driver is there to crash in.
#![cfg(all(target_os = "linux", feature = "wgpu"))]

use std::process::{Command, Output};

const SCENARIO: &str = "
name = 'limited'
steps = 1
[recipe]
world_size = 3
tensor_model_parallel_size = 3
num_layers = 1
hidden_size = 12
ffn_hidden_size = 24
num_attention_heads = 3
seq_length = 8
micro_batch_size = 1
global_batch_size = 1
train_iters = 1
lr = 5e-3
padded_vocab_size = 264
[recipe.env]
NCCL_ALGO = 'Ring'
";

/// A check below a limit, of KiB.
fn checked(limit: &str, arguments: &str) -> Output {
    let base = tempfile::tempdir().unwrap();
    std::fs::write(base.path().join("limited.toml"), SCENARIO).unwrap();
    let bitproof = env!("CARGO_BIN_EXE_bitproof");
    let script =
        format!("ulimit {limit}; exec {bitproof} check limited.toml --no-save -q {arguments}");
    Command::new("sh")
        .args(["-c", &script])
        .current_dir(base.path())
        .env_remove("MALLOC_ARENA_MAX")
        .env("LP_NUM_THREADS", "0")
        .output()
        .unwrap()
}

fn refused(limit: &str, arguments: &str) -> String {
    let output = checked(limit, arguments);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(5), "{limit} {arguments}: {said}");
    assert!(said.contains("too-large"), "{limit}: {said}");
    said
}

/// Lavapipe of Mesa 22.3.6 crashed under each of these.
#[test]
fn what_a_driver_would_crash_for_want_of_is_refused() {
    for kib in [990_000, 1_000_000, 1_090_000] {
        let said = refused(&format!("-v {kib}"), "--engine wgpu");
        assert!(said.contains("`ulimit -v unlimited`"), "{said}");
        assert!(said.contains("`--engine cpu`"), "{said}");
    }
    for kib in [180_000, 200_000, 300_000] {
        let said = refused(&format!("-d {kib}"), "--engine wgpu");
        assert!(said.contains("`ulimit -d unlimited`"), "{said}");
        assert!(!said.contains("MALLOC_ARENA_MAX"), "{said}");
    }
    refused("-v 800000", "--native-races 2");
    let said = refused("-v 1500000", "--engine wgpu --workers 8");
    assert!(said.contains("`--workers 1`"), "{said}");
}

#[test]
fn what_fits_is_checked() {
    for (limit, arguments) in [("-v 1000000", ""), ("-d 200000", "")] {
        let output = checked(limit, &format!("--workers 2 {arguments}"));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_ne!(output.status.code(), Some(5), "{limit}: {said}");
        assert!(output.status.code().is_some_and(|code| code < 5), "{said}");
    }
}
