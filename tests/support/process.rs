//! The program as a whole process.
#![allow(dead_code, reason = "each test binary uses its own part")]

use std::path::Path;
use std::process::Command;

/// The program, without colours that the environment asks for, started in `folder`.
pub fn bitproof(folder: impl AsRef<Path>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bitproof"));
    command.current_dir(folder).env_remove("CLICOLOR_FORCE");
    command
}

/// The exit code, standard output and standard error.
pub fn ended(command: &mut Command) -> (i32, String, String) {
    let output = command.output().expect("the binary starts");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    let code = output.status.code().expect("an exit code");
    (code, text(output.stdout), text(output.stderr))
}
