//! `bitproof plan`, run as a user runs it.
#![allow(dead_code, reason = "each test binary uses its own part")]

use std::process::{Command, Output};

use serde_json::Value;

pub fn plan(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bitproof"));
    command.arg("plan").args(arguments).env("NO_COLOR", "1");
    command.output().expect("the binary starts")
}

/// Standard output, then standard error, of a run that ends with `code`.
#[track_caller]
pub fn text(arguments: &[&str], code: i32) -> String {
    let output = plan(arguments);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{said}");
    String::from_utf8(output.stdout).expect("text") + &said
}

#[track_caller]
pub fn object(arguments: &[&str], code: i32) -> Value {
    let output = plan(&[arguments, &["--format", "json"]].concat());
    assert_eq!(output.status.code(), Some(code), "{output:?}");
    serde_json::from_slice(&output.stdout).expect("one object")
}
