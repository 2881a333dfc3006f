//! Files of golden results.
#![allow(dead_code, reason = "each test binary uses its own part")]

use std::path::PathBuf;

use serde_json::Value;

/// The golden file `name`: of `BITPROOF_GOLDEN_DIR`, else of `tests/golden`.
pub fn golden(name: &str) -> Value {
    let default = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let folder = std::env::var_os("BITPROOF_GOLDEN_DIR").map_or(default, PathBuf::from);
    let path = folder.join(name);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_str(&text).expect("golden files are JSON")
}

/// The odd values of a type that a golden file draws inputs from.
pub fn edge_table(file: &Value, dtype: &str) -> Vec<u64> {
    let entries = file["edge_tables"][dtype].as_array().expect("a table");
    let bits = |entry: &Value| u64::from_str_radix(entry.as_str().expect("hex"), 16);
    entries
        .iter()
        .map(|entry| bits(entry).expect("hex"))
        .collect()
}
