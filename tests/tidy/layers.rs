//! The order of the folders: each uses those above it, none below, and none on its own line.

use super::tree::File;

/// From the top. Folders on one line do not use each other.
const LAYERS: [&[&str]; 16] = [
    &["diagnostic"],
    &["numerics"],
    &["topology"],
    &["recipe"],
    &["job"],
    &["plan"],
    &["fault"],
    &["scenario"],
    &["kernel"],
    &["engine", "trace"],
    &["world"],
    &["model"],
    &["train"],
    &["prove"],
    &["report"],
    &["cli"],
];

fn layer(folder: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.contains(&folder))
}

pub fn upward(file: &File) -> Vec<(usize, String)> {
    let Some(inside) = file.path.strip_prefix("src/") else {
        return Vec::new();
    };
    let Some((folder, _)) = inside.split_once('/') else {
        return Vec::new();
    };
    let Some(own) = layer(folder) else {
        return vec![(
            1,
            format!("`{folder}` has no place in the order of folders"),
        )];
    };
    let mut found = Vec::new();
    for (at, _) in file.text.match_indices("crate::") {
        let line = file.text[..at].matches('\n').count() + 1;
        // Paths in comments lead readers, not the compiler.
        let is_comment = file
            .text
            .lines()
            .nth(line - 1)
            .is_some_and(|line| line.trim_start().starts_with("//"));
        if is_comment {
            continue;
        }
        for name in first_names(&file.text[at + "crate::".len()..]) {
            let is_own = name == folder;
            if layer(name).is_some_and(|other| other >= own && !is_own) {
                found.push((line, format!("`{folder}` may not use `{name}`")));
            }
        }
    }
    found
}

/// The first names of a path, or of each path of a braced list.
fn first_names(path: &str) -> Vec<&str> {
    let Some(list) = path.strip_prefix('{') else {
        return vec![name(path)];
    };
    let mut names = Vec::new();
    let mut depth = 1;
    let mut start = 0;
    for (at, c) in list.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 || depth == 1 && c == ',' {
            names.push(name(list[start..at].trim_start()));
            start = at + 1;
        }
        if depth == 0 {
            break;
        }
    }
    names
}

fn name(path: &str) -> &str {
    let end = path.find(|c: char| !c.is_alphanumeric() && c != '_');
    &path[..end.unwrap_or(path.len())]
}
