//! The house rules, read from the tree. Each rule is a function from a file to complaints, and each
//! is tried on a text that breaks it: a rule that finds nothing there would find nothing anywhere.

#[path = "tidy/layers.rs"]
mod layers;
#[path = "tidy/shape.rs"]
mod shape;
#[path = "tidy/tree.rs"]
mod tree;
#[path = "tidy/words.rs"]
mod words;

use tree::File;

/// A rule complains about a file, a line number and a reason each.
type Rule = fn(&File) -> Vec<(usize, String)>;

fn complaints(files: &[File], rule: Rule) -> Vec<String> {
    files
        .iter()
        .flat_map(|file| {
            let complain = |(line, reason)| format!("{}:{line}: {reason}", file.path);
            rule(file).into_iter().map(complain)
        })
        .collect()
}

/// The rule holds in the whole tree, and complains about each of `bad`, a (path, text) each.
fn holds(rule: Rule, bad: &[(&str, &str)]) {
    for (path, text) in bad {
        let file = File::new(path, text);
        assert!(
            !rule(&file).is_empty(),
            "the rule does not see its own negative control: {text}"
        );
    }
    let found = complaints(&tree::sources(), rule);
    assert!(found.is_empty(), "\n{}\n", found.join("\n"));
}

#[test]
fn the_tree_is_read() {
    let files = tree::sources();
    let count = |start: &str| {
        files
            .iter()
            .filter(|file| file.path.starts_with(start))
            .count()
    };
    assert!(count("src/") > 50 && count("tests/") >= 4 && count("shaders/") > 10);
    let is_test = |path: &str| {
        files
            .iter()
            .any(|file| file.path == path && file.is_test_only)
    };
    assert!(is_test("src/recipe/tests.rs") && !is_test("src/recipe/rules.rs"));
}

#[test]
fn lines_fit_in_100_columns() {
    let long = format!("// {}", "x".repeat(98));
    holds(
        shape::line_width,
        &[("src/a.rs", &long), ("shaders/a.wgsl", &long)],
    );
}

#[test]
fn functions_fit_on_a_screen() {
    let long = format!(
        "    pub fn f(\n        x: u32,\n    ) {{\n{}    }}\n",
        "        x;\n".repeat(68)
    );
    holds(shape::function_length, &[("src/a.rs", &long)]);
    let fits = format!("fn f() {{\n{}}}\n", "    x;\n".repeat(68));
    assert!(shape::function_length(&File::new("src/a.rs", &fits)).is_empty());
}

#[test]
fn files_are_small() {
    holds(shape::file_length, &[("src/a.rs", &"x\n".repeat(601))]);
}

#[test]
fn every_module_says_what_it_is() {
    holds(
        shape::header,
        &[
            ("src/a.rs", "use std::fmt;\n"),
            ("shaders/a.wgsl", "struct P {}\n"),
        ],
    );
}

#[test]
fn nothing_reaches_a_result_but_the_choices() {
    holds(
        words::nondeterminism,
        &[
            ("src/world/a.rs", "use std::collections::HashMap;"),
            ("src/report/a.rs", "let seen = HashSet::new();"),
            ("src/train/a.rs", "let start = std::time::Instant::now();"),
            ("src/prove/a.rs", "SystemTime::now()"),
            ("src/prove/a.rs", "let x = rand::rng();"),
        ],
    );
    let bar = File::new("src/cli/progress.rs", "let start = Instant::now();");
    assert!(words::nondeterminism(&bar).is_empty());
}

#[test]
fn no_result_comes_from_the_platforms_mathematics() {
    holds(
        words::libm,
        &[
            ("src/train/a.rs", "let y = x.exp();"),
            ("src/model/a.rs", "f32::powf(x, 2.0)"),
            ("src/numerics/ladder/prove.rs", "let x = points.ln();"),
        ],
    );
    let oracle = "#[cfg(test)]\nmod tests {\n    fn f() { x.exp(); }\n}\n";
    assert!(words::libm(&File::new("src/model/a.rs", oracle)).is_empty());
}

#[test]
fn nothing_is_left_undone() {
    // Put together, so that this file does not break the rule itself.
    let undone = ["to", "do!()"].concat();
    let unbuilt = ["unimple", "mented!()"].concat();
    holds(
        words::undone,
        &[("src/a.rs", &undone), ("tests/a.rs", &unbuilt)],
    );
}

#[test]
fn unsafe_code_is_in_engines_only_and_proved() {
    let here = ["un", "safe { f() }"].concat();
    holds(
        words::unsafe_code,
        &[
            ("src/world/a.rs", &here),
            ("src/engine/cpu/native.rs", &here),
        ],
    );
    let proved = format!("// SAFETY: f takes no memory.\n{here}");
    assert!(words::unsafe_code(&File::new("src/engine/cpu/native.rs", &proved)).is_empty());
}

#[test]
fn state_lives_in_cells_not_in_statics() {
    holds(
        words::hidden_state,
        &[
            ("src/train/a.rs", "static COUNT: u32 = 0;"),
            ("src/model/a.rs", "thread_local! { }"),
            ("src/train/a.rs", "seen: Mutex<u32>,"),
            ("src/model/a.rs", "let flag = AtomicBool::new(false);"),
            ("src/model/a.rs", "use std::cell::RefCell;"),
        ],
    );
    let other = File::new("src/engine/a.rs", "seen: Mutex<u32>,");
    assert!(words::hidden_state(&other).is_empty());
}

#[test]
fn folders_use_only_those_above_them() {
    holds(
        layers::upward,
        &[
            ("src/numerics/a.rs", "use crate::plan::Plan;"),
            ("src/engine/a.rs", "use crate::trace::Digest;"),
            (
                "src/prove/a.rs",
                "use crate::{world::Rank, report::Report};",
            ),
            (
                "src/plan/a.rs",
                "use crate::{\n    numerics::Dtype,\n    scenario::{Grade, Free},\n};",
            ),
            ("src/recipe/a.rs", "fn f() -> crate::world::Site {}"),
            ("src/unknown/a.rs", "//! A folder that the list lacks."),
        ],
    );
    let allowed = "use crate::numerics::Dtype;\nuse crate::plan::Plan;\nuse crate::prove::Token;\n";
    assert!(layers::upward(&File::new("src/prove/a.rs", allowed)).is_empty());
}

#[test]
fn every_shader_is_built_in_and_names_are_used() {
    let registry = ["src/kernel/shaders.rs", "src/kernel/native.rs"].map(tree::text);
    let shaders: Vec<File> = tree::sources()
        .into_iter()
        .filter(|file| file.path.ends_with(".wgsl"))
        .collect();
    let missing: Vec<&str> = shaders
        .iter()
        .map(|file| file.path.as_str())
        .filter(|path| {
            let named = format!("{path}\"");
            registry.iter().all(|text| !text.contains(&named))
        })
        .collect();
    assert!(
        missing.is_empty(),
        "not in src/kernel/shaders.rs or native.rs: {missing:?}"
    );
}

#[test]
fn every_shipped_scenario_and_topology_is_sound() {
    use bitproof::scenario::{Overrides, Scenario};
    let mut names = Vec::new();
    for path in tree::paths("scenarios", "toml") {
        let loaded = Scenario::load(&tree::root().join(&path), &Overrides::default());
        let loaded = loaded.unwrap_or_else(|found| panic!("{path}: {}", found[0].to_plain()));
        assert!(
            loaded.warnings.is_empty(),
            "{path}: {}",
            loaded.warnings[0].to_plain()
        );
        names.push(loaded.scenario.name);
    }
    assert!(
        names.contains(&"quickstart".to_string()) && names.len() >= 6,
        "{names:?}"
    );
}
