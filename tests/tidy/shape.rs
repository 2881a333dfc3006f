//! Rules about the shape of files.

use super::tree::File;

const COLUMNS_MAX: usize = 100;
const FUNCTION_LINES_MAX: usize = 70;
const FILE_LINES_MAX: usize = 600;

pub fn line_width(file: &File) -> Vec<(usize, String)> {
    let lines = file.text.lines().enumerate();
    let long = lines.filter(|(_, line)| line.chars().count() > COLUMNS_MAX);
    long.map(|(place, line)| (place + 1, format!("{} columns", line.chars().count())))
        .collect()
}

pub fn file_length(file: &File) -> Vec<(usize, String)> {
    let count = file.text.lines().count();
    if count > FILE_LINES_MAX {
        vec![(1, format!("{count} lines"))]
    } else {
        Vec::new()
    }
}

/// Rust modules start with `//!`, shaders with `//`. Benchmarks and tests, too.
pub fn header(file: &File) -> Vec<(usize, String)> {
    let start = if file.path.ends_with(".wgsl") {
        "//"
    } else {
        "//!"
    };
    let first = file.text.lines().next().unwrap_or_default();
    // A module of tests says all in its parent's name; `main.rs` is one call.
    let is_exempt = file.is_test_only || file.path == "src/main.rs";
    if is_exempt || first.starts_with(start) {
        return Vec::new();
    }
    vec![(1, "no header comment".to_string())]
}

/// Functions as rustfmt lays them out: the closing brace stands under the first letter. Tests are
/// exempt: theirs may be tables.
pub fn function_length(file: &File) -> Vec<(usize, String)> {
    if !file.path.ends_with(".rs") {
        return Vec::new();
    }
    let lines: Vec<&str> = file.program_lines().map(|(_, line)| line).collect();
    let mut found = Vec::new();
    for (place, line) in lines.iter().enumerate() {
        let code = line.trim_start();
        let indent = &line[..line.len() - code.len()];
        let is_declared_only = || {
            let head = lines[place..]
                .iter()
                .find(|line| line.ends_with(['{', ';', '}']));
            head.is_some_and(|line| line.ends_with(';'))
        };
        if !starts_function(code) || is_declared_only() || code.ends_with('}') {
            continue;
        }
        let closing = format!("{indent}}}");
        let last = lines[place..].iter().position(|line| *line == closing);
        let length = last.map_or(lines.len() - place, |last| last + 1);
        if length > FUNCTION_LINES_MAX {
            found.push((place + 1, format!("a function of {length} lines")));
        }
    }
    found
}

fn starts_function(code: &str) -> bool {
    let mut words = code.split(' ').skip_while(|word| {
        word.starts_with("pub")
            || ["const", "async", "unsafe", "extern"].contains(word)
            || word.starts_with('"')
    });
    words.next() == Some("fn")
}
