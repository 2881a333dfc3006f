//! The job's environment variables.

use std::collections::BTreeMap;

use super::ENV_COUNT_MAX;
use crate::diagnostic::document::{Entry, Table, Value};
use crate::diagnostic::{Diagnostic, Findings, nearest};

/// Variables that change what bitproof simulates (NCCL 2.30's documentation of its environment).
const SIMULATED: [&str; 5] = [
    "NCCL_ALGO",
    "NCCL_BUFFSIZE",
    "NCCL_MAX_NCHANNELS",
    "NCCL_MIN_NCHANNELS",
    "NCCL_PROTO",
];

/// Variables of real recipes that change nothing here, known so that they are not called typos.
const WITHOUT_EFFECT: [&str; 5] = [
    "CUBLAS_WORKSPACE_CONFIG",
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "NCCL_DEBUG",
    "NVTE_ALLOW_NONDETERMINISTIC_ALGO",
    "TORCH_NCCL_AVOID_RECORD_STREAMS",
];

/// Reads the table `env`: strings, or integers as a convenience.
pub(super) fn environment(table: &Table, findings: &mut Findings) -> BTreeMap<String, String> {
    let mut variables = BTreeMap::new();
    if table.entries.len() > ENV_COUNT_MAX {
        let label = format!("expected at most {ENV_COUNT_MAX} variables");
        findings
            .push(Diagnostic::error("too-many", "`env` is absurdly long").at(&table.place, label));
        return variables;
    }
    for (name, entry) in &table.entries {
        // POSIX.1, 8.1: names contain no `=`; a name that steers a terminal is no typo.
        if name.is_empty() || name.contains(|c: char| c == '=' || c.is_control()) {
            findings.push(
                Diagnostic::error("env-name", format!("`{name}` names no variable"))
                    .at(&entry.key, "expected a name such as NCCL_ALGO"),
            );
            continue;
        }
        let value = match &entry.item.value {
            Value::Text(text) => text.clone(),
            Value::Integer(number) => number.to_string(),
            other => {
                let message = format!("`env.{name}` is {}", other.kind());
                findings.push(
                    Diagnostic::error("wrong-type", message)
                        .at(&entry.item.place, "expected a string or an integer"),
                );
                continue;
            }
        };
        if !SIMULATED.contains(&name.as_str()) {
            findings.push(without_effect(name, entry));
        }
        variables.insert(name.clone(), value);
    }
    variables
}

fn without_effect(name: &str, entry: &Entry) -> Diagnostic {
    let finding = Diagnostic::warning(
        "env-without-effect",
        format!("`{name}` changes nothing here"),
    )
    .at(&entry.key, "not simulated");
    if WITHOUT_EFFECT.contains(&name) {
        return finding;
    }
    match nearest(name, SIMULATED) {
        Some(known) => finding.with_help(format!("did you mean `{known}`?")),
        None => finding.with_note(format!("simulated variables: {}", SIMULATED.join(", "))),
    }
}
