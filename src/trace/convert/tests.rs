use super::*;
use crate::trace::certify::certify;
use crate::trace::diff::{Verdict, compare};

fn golden(pair: &str, run: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/traces");
    root.join(pair).join(run)
}

fn text(path: &Path) -> String {
    let mut lines = crate::trace::lines::Lines::open(path).unwrap();
    let mut text = String::new();
    while lines.ready().unwrap() {
        text.push_str(std::str::from_utf8(lines.line()).unwrap());
        text.push('\n');
        lines.advance();
    }
    text
}

#[test]
fn each_format_written_again_is_the_same_bytes() {
    let root = tempfile::tempdir().unwrap();
    let source = golden("divergent", "run_a");
    for (from, to, name) in [
        (source.clone(), Format::Ops, "ops"),
        (source.join("boundary"), Format::MegatronV1, "v1"),
    ] {
        let out = root.path().join(name);
        let folder = Folder::open(&from).unwrap();
        assert!(convert(&folder, to, &out).unwrap() > 0);
        let again = text(&out.join("rank_000002.jsonl"));
        assert_eq!(again, text(&from.join("rank_000002.jsonl.zst")));
        let again = convert(&folder, to, &out).unwrap_err();
        assert!(matches!(again, ConvertError::Exists(_)));
    }
}

#[test]
fn what_is_converted_is_certified_and_parts_where_it_did() {
    let root = tempfile::tempdir().unwrap();
    let converted = |from: &str, to: Format, name: &str| {
        ["run_a", "run_b"].map(|run| {
            let out = root.path().join(format!("{name}_{run}"));
            let folder = Folder::open(&golden("divergent", run).join(from)).unwrap();
            convert(&folder, to, &out).unwrap();
            let folder = Folder::open(&out).unwrap();
            let certificate = certify(&folder);
            assert!(certificate.is_trusted(), "{:?}", certificate.reasons);
            folder
        })
    };
    let [a, b] = converted("", Format::MegatronV1, "v1");
    assert!(a.ops.is_empty() && a.boundary.len() == 4);
    let found = compare(&a, &b, false);
    assert_eq!(found.firsts[&1].point.seq, 507);
    assert_eq!(compare(&a, &a, false).verdict, Verdict::Same);
    let [a, b] = converted("boundary", Format::Ops, "ops");
    assert!(a.boundary.is_empty() && a.ops.len() == 4);
    let found = compare(&a, &b, false);
    assert_eq!(found.verdict, Verdict::Different);
    assert_eq!(found.earliest().unwrap().point.kind, "boundary");
}

#[test]
fn a_damaged_trace_leaves_nothing_behind() {
    let root = tempfile::tempdir().unwrap();
    let from = root.path().join("from");
    std::fs::create_dir(&from).unwrap();
    let whole = text(&golden("divergent", "run_a").join("rank_000000.jsonl.zst"));
    std::fs::write(from.join("rank_0.jsonl"), &whole[..whole.len() / 2]).unwrap();
    let out = root.path().join("out");
    let failed = convert(&Folder::open(&from).unwrap(), Format::Ops, &out).unwrap_err();
    assert!(matches!(failed, ConvertError::Damaged(_)));
    let left: Vec<_> = std::fs::read_dir(root.path()).unwrap().collect();
    assert_eq!(left.len(), 1);
}
