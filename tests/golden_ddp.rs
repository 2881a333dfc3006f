//! Gradient buckets against the real torch 2.15.0 DistributedDataParallel on gloo.

use bitproof::job::{DdpBuckets, DdpOptions, DdpParam, GradientType, assignment, ddp_buckets};
use golden::golden;
use serde_json::Value;

#[path = "support/golden.rs"]
mod golden;

fn list(value: &Value) -> &[Value] {
    value.as_array().expect("a list")
}

fn numbers(value: &Value) -> Vec<u64> {
    let number = |value: &Value| value.as_u64().expect("a number");
    list(value).iter().map(number).collect()
}

fn indices(value: &Value) -> Vec<usize> {
    numbers(value).into_iter().map(|n| n as usize).collect()
}

fn params(case: &Value) -> Vec<DdpParam> {
    let param = |entry: &Value| DdpParam {
        elements: entry[0].as_u64().expect("a number"),
        dtype: match entry[1].as_str().expect("a type") {
            "f64" => GradientType::Float64,
            "f32" => GradientType::Float32,
            "f16" => GradientType::Float16,
            "bf16" => GradientType::BFloat16,
            other => panic!("type {other}"),
        },
    };
    list(&case["params"]).iter().map(param).collect()
}

/// Mebibytes as torch turns them into bytes.
fn bytes(mebibytes: &Value) -> u64 {
    (mebibytes.as_f64().expect("a number") * 1024.0 * 1024.0) as u64
}

fn options(case: &Value) -> DdpOptions {
    let flag = |key: &str| case[key].as_bool().expect("a flag");
    let cap = &case["bucket_cap_mb"];
    DdpOptions {
        bucket_cap: (!cap.is_null()).then(|| bytes(cap)),
        bucket_cap_list: case["cap_list"]
            .as_array()
            .map_or(Vec::new(), |list| list.iter().map(bytes).collect()),
        find_unused_parameters: flag("find_unused"),
        static_graph: flag("static_graph"),
    }
}

/// Gradients of a chain become ready in reverse; one that is used twice after its first use.
fn ready(case: &Value) -> Vec<usize> {
    let mut first_uses = Vec::new();
    for param in indices(&case["use"]) {
        if !first_uses.contains(&param) {
            first_uses.push(param);
        }
    }
    first_uses.reverse();
    first_uses
}

/// The buckets, those without an order of their own sorted.
fn comparable(mut buckets: Vec<Vec<usize>>, unordered_from: usize) -> Vec<Vec<usize>> {
    buckets[unordered_from..].sort();
    buckets
}

fn shown(iteration: &Value) -> Vec<Vec<usize>> {
    list(iteration)
        .iter()
        .map(|bucket| indices(&bucket[3]))
        .collect()
}

#[test]
fn golden_ddp_buckets_of_three_iterations() {
    let file = golden("ddp_buckets.json");
    let cases = list(&file["cases"]);
    assert!(cases.len() >= 25);
    let (mut compared, mut unordered) = (0, 0);
    for case in cases {
        let (params, ready, options) = (params(case), ready(case), options(case));
        for (number, iteration) in (1..).zip(list(&case["iterations"])) {
            let label = format!("{} iteration {number}", case["id"]);
            let found = ddp_buckets(&params, &ready, &options, number);
            let found = found.unwrap_or_else(|e| panic!("{label}: {e}"));
            let DdpBuckets {
                buckets,
                unordered_from,
                ..
            } = found;
            unordered += usize::from(unordered_from < buckets.len());
            let expected = shown(iteration);
            assert_eq!(expected.len(), buckets.len(), "{label}");
            assert_eq!(
                comparable(buckets, unordered_from),
                comparable(expected, unordered_from),
                "{label}"
            );
            elements(&params, iteration, &label);
            compared += 1;
        }
    }
    // Two cases mix types, and are rebuilt with a bucket of several of them left open.
    assert_eq!((compared, unordered), (3 * cases.len(), 4));
}

/// Our reading of the file's parameters: sizes of buckets are as torch saw them.
fn elements(params: &[DdpParam], iteration: &Value, label: &str) {
    for bucket in list(iteration) {
        let sizes = indices(&bucket[3])
            .into_iter()
            .map(|index| params[index].elements);
        assert_eq!(Some(sizes.sum()), bucket[1].as_u64(), "{label}");
    }
}

#[test]
fn golden_ddp_assignments_by_size() {
    let file = golden("ddp_buckets.json");
    let mut compared = 0;
    for case in list(&file["cases"]) {
        let params = params(case);
        for (name, expected) in case["assignment"].as_object().expect("a table") {
            let label = format!("{} {name}", case["id"]);
            let found = assignment(&params, &numbers(&expected["limits"]), None);
            let found = found.unwrap_or_else(|e| panic!("{label}: {e}"));
            let buckets: Vec<_> = list(&expected["buckets"]).iter().map(indices).collect();
            assert_eq!(found.buckets, buckets, "{label}");
            let limits = numbers(&expected["per_bucket_limits"]);
            assert_eq!(found.limits, limits, "{label}");
            assert_eq!(found.unordered_from, found.buckets.len(), "{label}");
            compared += 1;
        }
    }
    assert!(compared >= 75, "{compared} assignments");
}

/// What the comparison is worth: another first limit gives other buckets in some cases.
#[test]
fn golden_ddp_first_bucket_matters() {
    let file = golden("ddp_buckets.json");
    let differ = |case: &&Value| {
        let options = DdpOptions {
            bucket_cap: Some(25 << 20),
            ..options(case)
        };
        let (params, ready) = (params(case), ready(case));
        let found = ddp_buckets(&params, &ready, &options, 2).expect("a case of torch");
        case["bucket_cap_mb"].is_null() && found.buckets != shown(&case["iterations"][1])
    };
    assert!(list(&file["cases"]).iter().filter(differ).count() >= 3);
}
