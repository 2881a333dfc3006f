//! Plans of listed collectives: those of a recipe's list are the recipe's own, and a dump of the
//! flight recorder is read for what it holds.

use std::path::Path;

use bitproof::plan::{Collective, Reduction};
use bitproof::scenario::{Job, Overrides};
use bitproof::train::{TrainOptions, step_collectives};
use plan_verb::{object, plan};
use serde_json::{Value, json};

#[path = "support/plan_verb.rs"]
mod plan_verb;

const QUICKSTART: &str = "scenarios/quickstart.toml";
const BLOCK: &str = "topologies/block-2x8.toml";
const PLANE: &str = "topologies/plane2-2x8.toml";

#[track_caller]
fn refused(text: &str) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("list.json");
    std::fs::write(&path, text).expect("it is written");
    let path = path.display().to_string();
    let output = plan(&["show", "--collectives", &path, "--topology", BLOCK]);
    assert_eq!(output.status.code(), Some(2), "{text}: {output:?}");
    String::from_utf8(output.stderr).expect("text")
}

/// The quickstart's collectives, as a list.
fn quickstart() -> Value {
    let job = Job::load(Path::new(QUICKSTART), &Overrides::default()).expect("it is shipped");
    let options = TrainOptions::from(&job.recipe);
    let communicators = options.layout.communicators();
    let collectives = step_collectives(&options).expect("buckets");
    let object = |one: &bitproof::train::StepCollective| {
        let groups = one.groups.iter();
        let groups = groups.map(|group| communicators[group.0 as usize].ranks.to_vec());
        json!({
            "name": one.name,
            "groups": groups.collect::<Vec<_>>(),
            "operation": match one.collective {
                Collective::AllReduce => "all-reduce",
                Collective::ReduceScatter => "reduce-scatter",
                other => panic!("{other:?}"),
            },
            "reduction": if one.reduction == Reduction::Max { "max" } else { "sum" },
            "dtype": one.dtype.to_string(),
            "elements": one.elements,
            "times": one.times,
        })
    };
    let env = job.recipe.env.clone();
    json!({ "env": env, "collectives": collectives.iter().map(object).collect::<Vec<_>>() })
}

#[test]
fn a_list_of_a_recipes_collectives_has_the_recipes_plans() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("list.json");
    std::fs::write(&path, quickstart().to_string()).expect("it is written");
    let path = path.display().to_string();
    let hash = |of: &[&str]| object(&[&["hash"], of, &["--topology", BLOCK]].concat(), 0);
    let listed = hash(&["--collectives", &path]);
    assert_eq!(listed["hash"], hash(&[QUICKSTART])["hash"]);
    let both = ["--topology", BLOCK, "--topology", PLANE];
    let differences = |of: &[&str]| {
        let found = object(&[&["diff"], of, &both].concat(), 1);
        let list = found["differences"].as_array().expect("a list").clone();
        let one = |one: &Value| (one["name"].clone(), one["ranges"].clone());
        list.iter().map(one).collect::<Vec<_>>()
    };
    let found = differences(&["--collectives", &path]);
    assert_eq!(found, differences(&[QUICKSTART]));
    assert!(!found.is_empty());
    // A variable of the environment, on both sides.
    let env = ["--collectives", &path, "--both-env", "NCCL_MAX_NCHANNELS=1"];
    let shown = object(&[&["show"], &env[..], &["--topology", BLOCK]].concat(), 0);
    assert_eq!(shown["collectives"][0]["family"], Value::Null);
    let pin = plan(&["pin", "--collectives", &path, "--topology", BLOCK]);
    assert_eq!(pin.status.code(), Some(2));
    let neither = plan(&["show", "--topology", BLOCK]);
    assert_eq!(neither.status.code(), Some(2));
}

/// In the form of the PyTorch tutorial: two groups, repeated calls, calls that only move data, and
/// calls that are not understood.
fn dump() -> Value {
    let call = |name: &str, group: &str, sizes: Value, dtype: &str| {
        json!({
            "record_id": 0, "pg_id": 0, "process_group": [group, "x"], "collective_seq_id": 1,
            "profiling_name": name, "input_sizes": sizes, "input_dtypes": [dtype],
            "output_sizes": [[3, 4]], "state": "completed", "is_p2p": false, "frames": [],
        })
    };
    json!({
        "version": "2.5",
        "pg_config": {
            "0": { "name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3, 4, 5, 6, 7]" },
            "3": { "name": "3", "desc": "undefined", "ranks": [0, 2, 4, 6] },
        },
        "entries": [
            call("nccl:all_reduce", "0", json!([[30, 40]]), "BFloat16"),
            call("nccl:_reduce_scatter_base", "3", json!([[4000]]), "Float"),
            call("nccl:_all_gather_base", "3", json!([[1000]]), "Float"),
            call("nccl:all_reduce", "0", json!([[1200]]), "BFloat16"),
            call("nccl:all_reduce_coalesced", "0", json!([[8], [8]]), "Float"),
            call("nccl:all_reduce", "0", json!([[1]]), "Long"),
            call("nccl:reduce", "0", json!([[8]]), "Float"),
            call("nccl:send 0->1", "0", json!([[8]]), "Float"),
            call("nccl:new_thing", "0", json!([[8]]), "Float"),
        ],
    })
}

#[test]
fn a_dump_of_the_flight_recorder_is_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("dump.json");
    std::fs::write(&path, dump().to_string()).expect("it is written");
    let path = path.display().to_string();
    let show = ["show", "--collectives", &path, "--topology", BLOCK];
    let shown = object(&show, 0);
    let list = shown["collectives"].as_array().expect("a list");
    let facts: Vec<String> = list
        .iter()
        .map(|one| {
            let text = |key: &str| one[key].to_string();
            [
                text("name"),
                text("elements"),
                text("times"),
                text("ranks"),
                text("dtype"),
            ]
            .join(" ")
        })
        .collect();
    assert_eq!(
        facts,
        [
            "\"all_reduce.default_pg.0.bf16x1200\" 1200 2 8 \"bf16\"",
            "\"reduce_scatter.group3.f32x4000\" 4000 1 4 \"f32\"",
        ]
    );
    let assumed = shown["assumed"].to_string();
    for told in [
        "neither averages nor maxima",
        "1 calls of nccl:all_reduce_coalesced, which are left out: several operations",
        "1 calls of nccl:all_reduce, which are left out: no plans of Long",
        "does not hold its root",
        "nccl:new_thing",
    ] {
        assert!(assumed.contains(told), "{told}: {assumed}");
    }
    assert!(!assumed.contains("send"), "{assumed}");
    let bucket = [
        "--collective",
        "reduce_scatter.group3.f32x4000",
        "--element",
        "5",
    ];
    let element = object(&[&show[..], &bucket].concat(), 0);
    let said = element["element"]["expressions"][0]["expression"]
        .as_str()
        .expect("text");
    assert_eq!(said, "(((r2 + r4) + r6) + r0)");
    let both = ["--topology", BLOCK, "--topology", PLANE];
    let diff = [&["diff", "--collectives", &path][..], &both].concat();
    assert_eq!(object(&diff, 1)["identical"], false);
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    let broken = refused("{\n  \"collectives\": [}\n");
    assert!(broken.contains("list.json:2:19"), "{broken}");
    assert!(refused("{\"collectives\": []}").contains("no collective in it adds anything"));
    let one = |change: &dyn Fn(&mut Value)| {
        let mut list = json!({ "collectives": [{
            "name": "a", "groups": [[0, 1, 2]], "operation": "all-reduce", "dtype": "f32",
            "elements": 10,
        }] });
        change(&mut list);
        refused(&list.to_string())
    };
    let own = |key: &'static str, value: Value| {
        one(&move |list| list["collectives"][0][key] = value.clone())
    };
    assert!(own("operation", json!("all-reduc")).contains("unknown variant"));
    assert!(own("elements", json!(0)).contains("at least one element"));
    assert!(own("elements", json!(u64::MAX / 4)).contains("more than 4398046511104 elements"));
    assert!(own("groups", json!([[0, 1], [2]])).contains("the same number of ranks"));
    assert!(own("groups", json!([[0, 0]])).contains("none twice"));
    assert!(own("groups", json!([])).contains("no groups"));
    assert!(own("groups", json!([[0, 99_999]])).contains("below 65536"));
    assert!(own("groups", json!([[0, 16]])).contains("17 ranks"));
    assert!(own("root", json!(0)).contains("a reduce has a `root`"));
    assert!(own("dtypes", json!(0)).contains("unknown field"));
    assert!(own("operation", json!("reduce-scatter")).contains("do not divide into 3 blocks"));
    let typo = one(&|list| list["env"] = json!({ "NCCL_ALG": "Ring" }));
    assert!(typo.contains("did you mean `NCCL_ALGO`?"), "{typo}");
    let tree = one(&|list| list["env"] = json!({ "NCCL_ALGO": "NVLS" }));
    assert!(tree.contains("not modelled"), "{tree}");
    let twice = one(&|list| {
        let first = list["collectives"][0].clone();
        list["collectives"]
            .as_array_mut()
            .expect("a list")
            .push(first);
    });
    assert!(twice.contains("two collectives have this name"));
    let change = |change: &dyn Fn(&mut Value)| {
        let mut dump = dump();
        change(&mut dump);
        refused(&dump.to_string())
    };
    let group = change(&|dump| dump["entries"][0]["process_group"] = json!(["9", "x"]));
    assert!(
        group.contains("process group `9` is not in pg_config"),
        "{group}"
    );
    let ranks = change(&|dump| dump["pg_config"]["0"]["ranks"] = json!("0-7"));
    assert!(ranks.contains("are no list"), "{ranks}");
    let huge = json!([[u64::MAX, 2]]);
    let sizes = change(&|dump| dump["entries"][0]["input_sizes"] = huge.clone());
    assert!(sizes.contains("overflow"), "{sizes}");
}
