//! What the README shows is what bitproof prints.

#[test]
fn the_examples_of_the_readme_are_real() {
    trycmd::TestCases::new().case("README.md");
}

#[test]
fn the_readme_lists_every_exit_code() {
    let readme = include_str!("../README.md");
    for code in [0, 1, 2, 3, 4, 5, 6, 70] {
        assert!(
            readme.contains(&format!("\n| {code} | ")),
            "exit code {code}"
        );
    }
}
