//! Pages are usable by keyboard: Tab is pressed in headless Chromium, and each stop must be the
//! next one of the page, lie in sight, and be seen to have the focus.

use std::path::Path;

use devtools::Page;
use process::{bitproof, ended};
use serde_json::Value;

#[path = "support/devtools.rs"]
mod devtools;
#[path = "support/process.rs"]
mod process;

/// What a page should stop at, in its order.
const STOPS: &str = "[...document.querySelectorAll('a[href],button,summary,[tabindex]')]\
                     .filter(one => one.tabIndex >= 0)";

/// The stop that has the focus, and whether that is seen.
fn focused(page: &mut Page) -> (Option<usize>, bool) {
    let ask = format!(
        "(() => {{ const at = document.activeElement; const style = getComputedStyle(at);\
         const box = at.getBoundingClientRect();\
         return {{ stop: {STOPS}.indexOf(at),\
         seen: style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2\
         && style.outlineColor !== 'rgba(0, 0, 0, 0)',\
         near: box.bottom > 0 && box.top < innerHeight && box.right > 0 && box.left < innerWidth\
         }}; }})()"
    );
    let said = page.evaluate(&ask);
    let stop = said["stop"].as_u64().map(|stop| stop as usize);
    (stop, said["seen"] == true && said["near"] == true)
}

/// Goes through a page with Tab and back with Shift-Tab; complains of what is not as it should be.
fn complaints(page: &mut Page) -> (usize, Vec<String>) {
    let count = page
        .evaluate(&format!("{STOPS}.length"))
        .as_u64()
        .expect("a number") as usize;
    let mut found = Vec::new();
    let mut expect = |page: &mut Page, stop: usize| {
        let (at, is_seen) = focused(page);
        if at != Some(stop) {
            found.push(format!("{at:?} has the focus, and stop {stop} should"));
        } else if !is_seen {
            found.push(format!("the focus of stop {stop} is not seen"));
        }
    };
    for stop in 0..count {
        page.tab(false);
        expect(page, stop);
    }
    for stop in (0..count.saturating_sub(1)).rev() {
        page.tab(true);
        expect(page, stop);
    }
    (count, found)
}

fn written(folder: &Path, name: &str, arguments: &[&str]) -> std::path::PathBuf {
    let path = folder.join(name);
    let page = path.display().to_string();
    let mut command = bitproof(env!("CARGO_MANIFEST_DIR"));
    let (_, text, talk) = ended(command.args(arguments).args(["--html", &page]));
    assert!(path.is_file(), "{text}{talk}");
    path
}

fn assert_usable(path: &Path, least: usize, holds: &str) {
    let Some(mut page) = Page::open(path) else {
        return;
    };
    let (count, found) = complaints(&mut page);
    assert_eq!(found, Vec::<String>::new());
    assert!(count >= least, "{count} stops");
    let text = format!("{STOPS}.map(one => one.textContent + one.ariaLabel).join('\\n')");
    let text: Value = page.evaluate(&text);
    assert!(
        text.as_str().is_some_and(|text| text.contains(holds)),
        "{text}"
    );
}

#[test]
fn a_comparison_is_usable_by_keyboard() {
    let folder = tempfile::tempdir().unwrap();
    let [a, b] = ["a", "b"].map(|run| format!("tests/golden/traces/divergent/run_{run}"));
    let page = written(folder.path(), "diff.html", &["trace", "diff", &a, &b]);
    // The map, and the cell of each of four ranks.
    assert_usable(&page, 5, "all_reduce");
}

#[test]
fn a_check_is_usable_by_keyboard() {
    let folder = tempfile::tempdir().unwrap();
    let mut check = bitproof(env!("CARGO_MANIFEST_DIR"));
    let what = ["check", "scenarios/any-allocation.toml", "--no-save", "-q"];
    let (_, json, talk) = ended(check.args(what).args(["--format", "json"]));
    assert!(json.starts_with('{'), "{talk}");
    let run = folder.path().join("run.json");
    std::fs::write(&run, json).unwrap();
    let page = written(
        folder.path(),
        "run.html",
        &["report", &run.display().to_string()],
    );
    // The map, the cell that parts, both expressions, and the replay line.
    assert_usable(&page, 5, "bitproof replay ");
}

/// The negative control: a page without marks, and with an order of its own, is complained of.
#[test]
fn a_page_that_hides_its_focus_is_complained_of() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bad.html");
    let text = "<!doctype html><html><style>pre:focus{outline:none}</style>\
                <pre tabindex=\"0\">a</pre><pre tabindex=\"2\">b</pre><a href=\"#\">c</a></html>";
    std::fs::write(&path, text).unwrap();
    let Some(mut page) = Page::open(&path) else {
        return;
    };
    let (count, found) = complaints(&mut page);
    assert_eq!(count, 3);
    assert!(found.iter().any(|one| one.contains("should")), "{found:?}");
    std::fs::write(&path, text.replace("\"2\"", "\"0\"")).unwrap();
    let mut page = Page::open(&path).expect("it was there before");
    let (_, found) = complaints(&mut page);
    assert!(
        found.iter().any(|one| one.contains("is not seen")),
        "{found:?}"
    );
    assert!(!found.iter().any(|one| one.contains("should")), "{found:?}");
}
