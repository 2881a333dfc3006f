//! Every file of `shaders/`, embedded: the binary needs no files beside it.

/// `(name, WGSL)`, ascending by name. A test compares the list with the folder.
pub(super) const SHADERS: &[(&str, &str)] = &[
    ("fold", include_str!("../../shaders/fold.wgsl")),
    (
        "fold_segments",
        include_str!("../../shaders/fold_segments.wgsl"),
    ),
    (
        "math/combine",
        include_str!("../../shaders/math/combine.wgsl"),
    ),
    ("math/round", include_str!("../../shaders/math/round.wgsl")),
    ("matmul_nn", include_str!("../../shaders/matmul_nn.wgsl")),
    ("matmul_nt", include_str!("../../shaders/matmul_nt.wgsl")),
    ("matmul_tn", include_str!("../../shaders/matmul_tn.wgsl")),
];

#[cfg(test)]
mod tests {
    use super::SHADERS;
    use std::path::Path;

    fn names_below(folder: &Path, prefix: &str, names: &mut Vec<String>) {
        for entry in std::fs::read_dir(folder).expect("shaders/ can be read") {
            let path = entry.expect("an entry of shaders/").path();
            let stem = path
                .file_stem()
                .expect("a name")
                .to_string_lossy()
                .into_owned();
            if path.is_dir() {
                names_below(&path, &format!("{prefix}{stem}/"), names);
            } else if path
                .extension()
                .is_some_and(|extension| extension == "wgsl")
            {
                names.push(format!("{prefix}{stem}"));
            }
        }
    }

    #[test]
    fn the_list_is_the_folder() {
        let mut names = Vec::new();
        names_below(
            &Path::new(env!("CARGO_MANIFEST_DIR")).join("shaders"),
            "",
            &mut names,
        );
        names.sort();
        let listed: Vec<&str> = SHADERS.iter().map(|(name, _)| *name).collect();
        assert_eq!(
            listed, names,
            "src/kernel/shaders.rs lists other files than shaders/ holds"
        );
    }
}
