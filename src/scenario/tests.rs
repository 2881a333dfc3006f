use std::path::Path;

use super::*;
use crate::diagnostic::Diagnostic;

const RECIPE: &str = "world_size = 4\nnum_layers = 2\nhidden_size = 16\nnum_attention_heads = 2\n\
    seq_length = 8\nmicro_batch_size = 1\nglobal_batch_size = 8\ntrain_iters = 5\nlr = 1e-3\n";

/// A folder with a recipe, two allocations and a text.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in [
        ("recipe.toml", RECIPE),
        ("a.toml", "name = \"a\"\nhosts = [[0, 1], [2, 3]]\n"),
        ("b.toml", "name = \"b\"\nhosts = [[0, 2], [1, 3]]\n"),
        ("text.txt", "the quick brown fox"),
        ("short.txt", "x"),
    ] {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

fn load(folder: &Path, text: &str, overrides: &Overrides) -> Result<Loaded, Vec<Diagnostic>> {
    let path = folder.join("case.toml");
    std::fs::write(&path, text).unwrap();
    Scenario::load(&path, overrides)
}

fn codes(text: &str, overrides: &Overrides) -> Vec<&'static str> {
    let folder = folder();
    match load(folder.path(), text, overrides) {
        Ok(loaded) => loaded.warnings.iter().map(|finding| finding.code).collect(),
        Err(findings) => findings.iter().map(|finding| finding.code).collect(),
    }
}

const SAMPLE: &str = "recipe = \"recipe.toml\"\nallocations = [\"a.toml\", \"b.toml\"]\n\
    free = [\"placement\"]\n";

#[test]
fn a_scenario_reads_its_recipe_its_allocations_and_its_defaults() {
    let folder = folder();
    let text = format!("{SAMPLE}[override.determinism]\nembedding_backward = \"arrival\"\n");
    let scenario = load(folder.path(), &text, &Overrides::default())
        .unwrap()
        .scenario;
    assert_eq!(scenario.name, "case");
    assert_eq!(scenario.steps, 5);
    assert_eq!(scenario.checkpoint.restarts, [vec![1], vec![2], vec![1, 3]]);
    assert_eq!(scenario.oracles.len(), 4);
    assert_eq!(scenario.allocations[1].allocation.placement.world(), 4);
    let variables = scenario.choice_variables();
    assert_eq!(
        variables[0].values,
        Values::Listed(vec!["a".into(), "b".into()])
    );
    assert_eq!(
        (variables[1].scope, &variables[1].values),
        (Scope::Call, &Values::AnyOrder)
    );
    assert_eq!(variables.len(), 2);
}

#[test]
fn a_bare_recipe_is_a_scenario() {
    let folder = folder();
    let overrides = Overrides {
        set: vec!["hidden_size=32".into()],
        ..Overrides::default()
    };
    let scenario = load(folder.path(), RECIPE, &overrides).unwrap().scenario;
    assert_eq!(scenario.recipe.hidden_size, 32);
    assert_eq!(scenario.allocations, []);
    assert_eq!(scenario.data, Data::BuiltIn);
}

/// Around a bare recipe, too, keys of a scenario are the scenario's; all others are the recipe's.
#[test]
fn what_is_set_on_a_bare_recipe_finds_its_table() {
    let folder = folder();
    let overrides = Overrides {
        set: vec!["lr=0.5".into(), "oracles=[\"R2R\"]".into(), "seed=9".into()],
        grow_dp: Some(6),
        steps: Some(2),
        ..Overrides::default()
    };
    let text = RECIPE;
    let scenario = load(folder.path(), text, &overrides).unwrap().scenario;
    assert_eq!((scenario.recipe.lr, scenario.recipe.seed), (0.5, 9));
    assert_eq!(scenario.oracles, BTreeSet::from([OracleKind::R2R]));
    let plain = load(folder.path(), text, &Overrides::default())
        .unwrap()
        .scenario;
    let (own, grown) = (plain.recipe, scenario.recipe);
    assert_eq!(grown.data_parallel_size(), 6);
    assert_eq!(grown.microbatch_count(), own.microbatch_count());
    // Fewer ranks than the recipe has is no growth.
    let fewer = Overrides {
        grow_dp: Some(own.data_parallel_size() - 1),
        ..Overrides::default()
    };
    let findings = load(folder.path(), text, &fewer).unwrap_err();
    assert_eq!(findings[0].code, "grow-dp");
}

#[test]
fn flags_go_on_top_of_the_file() {
    let folder = folder();
    let overrides = Overrides {
        set: vec!["recipe.lr=0.5".into(), "checkpoint.omit=[\"rng\"]".into()],
        data: Some(folder.path().join("text.txt")),
        seed: Some(7),
        steps: Some(2),
        ..Overrides::default()
    };
    let scenario = load(folder.path(), SAMPLE, &overrides).unwrap().scenario;
    assert_eq!(
        (scenario.recipe.lr, scenario.seed, scenario.steps),
        (0.5, 7, 2)
    );
    assert_eq!(scenario.checkpoint.omit, BTreeSet::from([Component::Rng]));
    assert_eq!(scenario.checkpoint.restarts, [[1]]);
    assert!(matches!(scenario.data, Data::File { bytes, .. } if bytes.starts_with(b"the")));
}

#[test]
fn every_fault_of_a_scenario_is_named() {
    for (more, code) in [
        ("fre = [\"placement\"]", "unknown-key"),
        ("oracles = [\"R2D2\"]", "unknown-value"),
        ("oracles = \"R2R\"", "wrong-type"),
        ("steps = 6", "out-of-range"),
        ("accept = [\"anything\"]", "unknown-value"),
        ("data = \"missing.txt\"", "unreadable-file"),
        ("data = \"short.txt\"", "data-too-short"),
        ("data = \"text.txt\"\ndata_blake3 = \"00\"", "data-changed"),
        ("[checkpoint]\nomit = [\"rgn\"]", "unknown-value"),
        ("[checkpoint]\nrestarts = [[2, 1]]", "out-of-range"),
        ("[checkpoint]\nrestarts = [[5]]", "out-of-range"),
        ("[checkpoint]\nrestarts = [[]]", "out-of-range"),
        ("[checkpoint]\nrestarts = [1]", "wrong-type"),
        ("[checkpoint]\npolls = 1", "wrong-type"),
        ("[checkpoint]\npolls = true", "excluded"),
        ("steps = 1\noracles = [\"RES\"]", "nothing-to-resume"),
        ("[full_size]\ndata_parallel_size = 0", "out-of-range"),
        ("[full_size]\ndp = 4", "unknown-key"),
        ("[expect]\ngrade = \"proven\"", "unknown-value"),
        ("[expect]\nfirst = \"x\"", "missing-key"),
        ("[override]\nhidden_size = 17", "does-not-divide"),
        ("[override]\nworld_size = 8", "another-world"),
        ("[override.env]\nNCCL_ALGO = \"Rign\"", "environment"),
        ("[override.env]\nNCCL_ALGO = \"NVLS\"", "environment"),
    ] {
        let found = codes(&format!("{SAMPLE}{more}\n"), &Overrides::default());
        assert!(found.contains(&code), "{more}: {found:?}");
    }
    let unlike = |from: &str, to: &str| codes(&SAMPLE.replace(from, to), &Overrides::default());
    assert_eq!(unlike(", \"b.toml\"", ""), ["nothing-to-compare"]);
    assert_eq!(unlike("free = [\"placement\"]", ""), ["unused-allocation"]);
    assert_eq!(unlike("recipe = \"recipe.toml\"", ""), ["missing-key"]);
    assert_eq!(unlike("recipe.toml", "recipes.toml"), ["unreadable-file"]);
    assert_eq!(unlike("\"b.toml\"", "3"), ["wrong-type"]);
    assert_eq!(unlike("b.toml", "a.toml"), ["same-name"]);
    assert_eq!(unlike("b.toml", "recipe.toml"), ["allocation"]);
    let set = |text: &str| Overrides {
        set: vec![text.into()],
        ..Overrides::default()
    };
    assert_eq!(codes(SAMPLE, &set("recipe.hiden_size=8")), ["unknown-key"]);
    assert_eq!(codes(SAMPLE, &set("nonsense")), ["not-an-assignment"]);
    assert_eq!(
        codes(
            SAMPLE,
            &Overrides {
                steps: Some(9),
                ..Overrides::default()
            }
        ),
        ["out-of-range"]
    );
}

#[test]
fn the_content_hash_follows_what_decides_bits() {
    let folder = folder();
    let hash = |text: &str, overrides: &Overrides| {
        load(folder.path(), text, overrides)
            .unwrap()
            .scenario
            .content_hash()
    };
    let none = Overrides::default();
    let base = hash(SAMPLE, &none);
    let expecting = format!("name = \"x\"\n{SAMPLE}[expect]\ngrade = \"divergent\"\n");
    assert_eq!(base, hash(&expecting, &none));
    let set = |text: &str| Overrides {
        set: vec![text.into()],
        ..Overrides::default()
    };
    let mut others = vec![base];
    for change in [
        "recipe.lr=0.5",
        "seed=1",
        "steps=4",
        "checkpoint.omit=[\"rng\"]",
        "oracles=[\"XR\"]",
    ] {
        others.push(hash(SAMPLE, &set(change)));
    }
    let data = Some(folder.path().join("text.txt"));
    others.push(hash(
        SAMPLE,
        &Overrides {
            data: data.clone(),
            ..none.clone()
        },
    ));
    std::fs::write(folder.path().join("text.txt"), "THE quick brown fox").unwrap();
    others.push(hash(
        SAMPLE,
        &Overrides {
            data,
            ..none.clone()
        },
    ));
    std::fs::write(
        folder.path().join("b.toml"),
        "name = \"b\"\nhosts = [[0, 3], [1, 2]]\n",
    )
    .unwrap();
    others.push(hash(SAMPLE, &none));
    let distinct: BTreeSet<_> = others.iter().collect();
    assert_eq!(distinct.len(), others.len());
}

#[test]
fn a_self_contained_scenario_keeps_its_hash_away_from_its_files() {
    let folder = folder();
    let text = format!(
        "{SAMPLE}data = \"text.txt\"\naccept = [\"input\"]\n[full_size]\ndata_parallel_size = 38\n\
         [expect]\ngrade = \"divergent\"\nfirst = \"reduce\"\n\
         [override.env]\nNCCL_ALGO = \"Tree\"\n"
    );
    let scenario = load(folder.path(), &text, &Overrides::default())
        .unwrap()
        .scenario;
    let elsewhere = tempfile::tempdir().unwrap();
    let loaded = load(
        elsewhere.path(),
        &scenario.to_toml(elsewhere.path()),
        &Overrides::default(),
    );
    let again = loaded
        .unwrap_or_else(|findings| panic!("{}", findings[0].to_plain()))
        .scenario;
    assert_eq!(scenario.content_hash(), again.content_hash());
    assert_eq!(scenario.expect, again.expect);
    assert_eq!(scenario.name, again.name);
    assert!(again.accept_input);

    let found = find_by_hash(
        &[folder.path(), elsewhere.path()],
        &scenario.content_hash()[..5],
        &Overrides::default(),
    );
    assert_eq!(found.scenario.unwrap().0, folder.path().join("case.toml"));
    let none = find_by_hash(&[elsewhere.path()], &[0; 5], &Overrides::default());
    assert!(none.scenario.is_none() && none.others.len() == 1);
}

#[test]
fn a_missing_file_suggests_its_neighbour() {
    let folder = folder();
    let findings = Scenario::load(&folder.path().join("recipes.toml"), &Overrides::default());
    let help = &findings.unwrap_err()[0].help;
    assert!(help[0].contains("recipe.toml"), "{help:?}");
}

/// No input file makes the reader panic: every prefix, and every single-byte change of a file.
#[test]
fn damaged_files_give_diagnostics_not_panics() {
    let folder = folder();
    let text = format!("{SAMPLE}[checkpoint]\nrestarts = [[1]]\n[full_size]\nseq_length = 9\n");
    let path = folder.path().join("case.toml");
    for cut in 0..text.len() {
        for replacement in ["", "=", "\"", "[", "9"] {
            let damaged = format!("{}{replacement}{}", &text[..cut], &text[cut + 1..]);
            let source = Source::new("case.toml", damaged);
            if let Err(findings) = Scenario::from_source(&source, &path, &Overrides::default()) {
                findings
                    .iter()
                    .for_each(|finding| assert!(!finding.to_plain().is_empty()));
            }
        }
    }
}

#[test]
fn layouts_to_resume_on_are_read_and_judged() {
    let case = |checkpoint: &str| format!("recipe = \"recipe.toml\"\n[checkpoint]\n{checkpoint}\n");
    let folder = folder();
    let text = case("reshard = [\"2x1xNone\", \"1x2xNone\", \"1x1xNone\"]");
    let scenario = load(folder.path(), &text, &Overrides::default())
        .unwrap()
        .scenario;
    let layouts: Vec<String> = scenario
        .checkpoint
        .reshard
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(layouts, ["2x1xNone", "1x2xNone", "1x1xNone"]);
    let again = scenario.to_toml(folder.path());
    let again = load(folder.path(), &again, &Overrides::default())
        .unwrap()
        .scenario;
    assert_eq!(again.content_hash(), scenario.content_hash());
    let without = load(folder.path(), &case(""), &Overrides::default()).unwrap();
    assert_ne!(without.scenario.content_hash(), scenario.content_hash());
    for (checkpoint, code) in [
        ("reshard = \"1x1xNone\"", "wrong-type"),
        ("reshard = [1]", "wrong-type"),
        ("reshard = [\"1x1\"]", "unknown-layout"),
        ("reshard = [\"1x1xNone\", \"1x1xNone\"]", "twice"),
        ("reshard = [\"8x1xNone\"]", "does-not-divide"),
        ("reshard = [\"1x4xNone\"]", "does-not-divide"),
        (
            "restarts = []\nreshard = [\"1x1xNone\"]",
            "nothing-to-reshard",
        ),
        (
            "reshard = [\"1x1xNone\", \"2x1xNone\", \"4x1xNone\", \"1x2xNone\", \"2x2xNone\", \
             \"1x4xNone\", \"1x8xNone\", \"8x1xNone\", \"1x3xNone\"]",
            "too-many",
        ),
    ] {
        let found = codes(&case(checkpoint), &Overrides::default());
        assert!(found.contains(&code), "{checkpoint}: {found:?}");
    }
    let loaded = load(
        folder.path(),
        &case("reshard = [\"1x1xNone\",\n \"8x1xNone\"]"),
        &Overrides::default(),
    );
    let place = loaded.unwrap_err()[0].place.clone().expect("a place").0;
    assert_eq!(&place.source.text[place.span.clone()], "\"8x1xNone\"");
}
