//! `bitproof doctor`, run as a user runs it: on this machine as it is, and with drivers that are
//! missing or broken. It never crashes, and never waits.

use std::process::{Command, Output};

use bitproof::engine::EngineIdentity;
use bitproof::engine::self_test::{Difference, SelfTest, Tested};
use bitproof::report::doctor::{AdapterLine, Asked, Doctor, Examined};

fn doctor(arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bitproof"));
    command.arg("doctor").args(arguments).env("NO_COLOR", "1");
    for name in ["VK_ICD_FILENAMES", "VK_ADD_DRIVER_FILES"] {
        command.env_remove(name);
    }
    command.envs(variables.iter().copied());
    command.output().expect("the binary starts")
}

fn code(output: &Output) -> i32 {
    let said = String::from_utf8_lossy(&output.stderr);
    output
        .status
        .code()
        .unwrap_or_else(|| panic!("ended by a signal: {said}"))
}

fn text(output: Output) -> String {
    String::from_utf8(output.stdout).expect("text")
}

fn object(output: Output) -> serde_json::Value {
    let text = text(output);
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Hides every driver, on systems where the Vulkan loader is the only way to one.
const HIDDEN: [(&str, &str); 1] = [("VK_DRIVER_FILES", "/nonexistent/driver.json")];
const ONLY_VULKAN: bool = cfg!(target_os = "linux");

#[test]
fn the_cpu_engine_is_exact_here() {
    let output = doctor(&[], &[]);
    assert_eq!(code(&output), 0);
    let text = text(output);
    for piece in [
        "engines:\n  cpu: ",
        " expressions exact",
        "    strict: ",
        "adapters:\n",
    ] {
        assert!(text.contains(piece), "no {piece:?} in\n{text}");
    }
}

#[test]
fn json_has_the_table_of_every_engine() {
    let output = doctor(&["--format", "json"], &[]);
    assert_eq!(code(&output), 0);
    let found = object(output);
    assert_eq!(found["version"], env!("CARGO_PKG_VERSION"));
    let cpu = &found["engines"][0];
    assert_eq!(
        (&cpu["engine"], &cpu["arithmetic"]),
        (&"cpu".into(), &"strict".into())
    );
    let expressions = cpu["self_test"]["expressions"].as_array().expect("a table");
    assert!(expressions.len() >= 50);
    for expression in expressions {
        assert_eq!(expression["differing"], 0, "{expression}");
        assert!(expression["first"].is_null(), "{expression}");
    }
    assert_eq!(found["adapters_built"], cfg!(feature = "wgpu"));
}

/// Without a driver: the command that installs one, exit 0; exit 5 only where one was asked for.
#[test]
fn no_driver_is_no_fault_unless_one_is_asked_for() {
    if !ONLY_VULKAN {
        eprintln!("SKIPPED: adapters of this system cannot be hidden");
        return;
    }
    let output = doctor(&[], &HIDDEN);
    assert_eq!(code(&output), 0);
    let found = text(output);
    if cfg!(feature = "wgpu") {
        for piece in [
            "none was found; the cpu engine needs none",
            "`unset VK_DRIVER_FILES` first: it decides which drivers are seen\n",
            "  if there is still none, one in software: ",
            "VK_DRIVER_FILES=/nonexistent/driver.json\n    /nonexistent/driver.json is not there",
        ] {
            assert!(found.contains(piece), "no {piece:?} in\n{found}");
        }
    } else {
        assert!(found.contains("without the feature `wgpu`"), "{found}");
    }
    let output = doctor(&["--require-adapter"], &HIDDEN);
    assert_eq!(code(&output), 5);
    assert!(text(output).contains("missing: no adapter was found"));
}

#[test]
fn an_adapter_that_is_not_there_is_named() {
    let output = doctor(&["--adapter", "no\u{1b}such adapter"], &[]);
    assert_eq!(code(&output), 5);
    let found = text(output);
    let piece = "missing: no adapter is called `no\\u{1b}such adapter`";
    assert!(found.contains(piece), "{found}");
    // Those that are there are named, and nothing is to be installed.
    let there = object(doctor(&["--format", "json"], &[]))["adapters"].take();
    for adapter in there.as_array().expect("adapters") {
        let name = adapter["name"].as_str().expect("a name");
        let plain = name.chars().all(|c| !c.is_control());
        assert!(!plain || found.contains(name), "no {name} in\n{found}");
        assert!(!found.contains("none was found"), "{found}");
    }
}

#[test]
fn broken_drivers_are_survived() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let no_library = r#"{"file_format_version": "1.0.0",
        "ICD": {"library_path": "/nonexistent/libvulkan_none.so", "api_version": "1.3.0"}}"#;
    std::fs::write(folder.path().join("library.txt"), "no library").expect("a writable folder");
    let library = folder.path().join("library.txt").display().to_string();
    let wrong_library = no_library.replace("/nonexistent/libvulkan_none.so", &library);
    for (name, content) in [
        ("empty.json", ""),
        ("broken.json", "{\"ICD\": {"),
        ("no_library.json", no_library),
        ("wrong_library.json", &wrong_library),
    ] {
        let path = folder.path().join(name);
        std::fs::write(&path, content).expect("a writable folder");
        let path = path.display().to_string();
        let output = doctor(&[], &[("VK_DRIVER_FILES", &path)]);
        assert_eq!(code(&output), 0, "{name}");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!said.contains("panicked"), "{name}: {said}");
        let found = text(output);
        assert!(
            !ONLY_VULKAN || !found.contains("the wgpu engine ran"),
            "{name}: {found}"
        );
    }
}

#[test]
fn unknown_options_are_usage() {
    assert_eq!(code(&doctor(&["--adapters"], &[])), 2);
    assert_eq!(code(&doctor(&["--format", "junit"], &[])), 2);
}

fn collect(value: &serde_json::Value, keys: &mut Vec<String>) {
    match value {
        serde_json::Value::Object(object) => object.iter().for_each(|(key, value)| {
            keys.push(key.clone());
            collect(value, keys);
        }),
        serde_json::Value::Array(items) => items.iter().for_each(|item| collect(item, keys)),
        _ => {}
    }
}

/// With an adapter, and with an expression of other bits: what this machine may not show.
fn sample() -> Doctor {
    let adapter = AdapterLine {
        limits: vec![("bytes of a storage binding", 1)],
        refused: Some("too small".to_owned()),
        ..AdapterLine::default()
    };
    let first = Difference {
        x: 0,
        y: 0,
        z: 0,
        expected: 0,
        got: 1,
    };
    let differing = Tested {
        name: "sum",
        formula: "x + y",
        guards: "nothing",
        inputs: 1,
        differing: 1,
        first: Some(first),
    };
    let identity = EngineIdentity {
        name: "wgpu".to_owned(),
        adapter: "an adapter (Vulkan)".to_owned(),
        versions: vec![("driver".to_owned(), "1".to_owned())],
        strict: false,
    };
    let expressions = vec![differing];
    let examined = Examined::new("wgpu", identity, Ok(SelfTest { expressions }));
    Doctor::new(vec![examined], vec![adapter], Asked::default())
}

#[test]
fn every_key_of_the_object_is_documented() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/engines.md");
    let text = std::fs::read_to_string(path).expect("the reference is part of the tree");
    let mut keys = Vec::new();
    let sample = serde_json::to_value(sample()).expect("an object");
    collect(&sample, &mut keys);
    for key in ["driver", "limits", "refused", "expected", "got"] {
        assert!(keys.iter().any(|known| known == key), "{key}: {keys:?}");
    }
    collect(&object(doctor(&["--format", "json"], &HIDDEN)), &mut keys);
    assert!(
        keys.len() > 50 && keys.contains(&"missing".to_owned()),
        "{keys:?}"
    );
    let is_missing = |key: &&String| !text.contains(&format!("`{key}`"));
    let missing: Vec<&String> = keys.iter().filter(is_missing).collect();
    assert!(missing.is_empty(), "{missing:?}");
    assert!(is_missing(&&"unheard_of".to_owned()));
}
