//! Rules about words that must not stand in some places.

use super::tree::File;

/// Lines of the program with one of the words in them, comments apart.
fn lines_with(file: &File, words: &[&str]) -> Vec<(usize, String)> {
    let code = |line: &str| line.split("//").next().unwrap_or_default().to_string();
    let mut found = Vec::new();
    for (number, line) in file.program_lines() {
        let code = code(line);
        for word in words {
            if contains_word(&code, word) {
                found.push((number, format!("`{word}`")));
            }
        }
    }
    found
}

/// Whether `word` stands in `code` and not within a longer name.
fn contains_word(code: &str, word: &str) -> bool {
    let is_name = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    let starts_name = is_name(word.chars().next());
    let ends_name = is_name(word.chars().next_back());
    code.match_indices(word).any(|(at, _)| {
        let before = is_name(code[..at].chars().next_back());
        let after = is_name(code[at + word.len()..].chars().next());
        !(starts_name && before || ends_name && after)
    })
}

fn is_in(file: &File, folders: &[&str]) -> bool {
    folders.iter().any(|folder| file.path.starts_with(folder))
}

/// Hash order, clocks and unseeded generators. Clocks may drive what people see and results do not.
pub fn nondeterminism(file: &File) -> Vec<(usize, String)> {
    let mut found = lines_with(
        file,
        &[
            "HashMap",
            "HashSet",
            "RandomState",
            "thread_rng",
            "from_os_rng",
            "rand::rng",
        ],
    );
    if !is_in(file, &["src/cli/"]) {
        found.extend(lines_with(file, &["Instant", "SystemTime"]));
    }
    found
}

/// Functions whose bits are the platform's, not ours.
pub fn libm(file: &File) -> Vec<(usize, String)> {
    const NAMES: [&str; 20] = [
        "exp", "exp2", "exp_m1", "ln", "ln_1p", "log", "log2", "log10", "powf", "powi", "sin",
        "cos", "tan", "tanh", "sinh", "cosh", "atan2", "hypot", "cbrt", "mul_add",
    ];
    if !file.path.starts_with("src/") {
        return Vec::new();
    }
    let calls: Vec<String> = NAMES
        .iter()
        .flat_map(|name| {
            [
                format!(".{name}("),
                format!("f32::{name}"),
                format!("f64::{name}"),
            ]
        })
        .collect();
    let calls: Vec<&str> = calls.iter().map(String::as_str).collect();
    lines_with(file, &calls)
}

pub fn undone(file: &File) -> Vec<(usize, String)> {
    let words = [
        ["to", "do!"],
        ["unimple", "mented!"],
        ["db", "g!"],
        ["FIX", "ME"],
        ["XX", "X"],
    ];
    let words = words.map(|halves| halves.concat());
    let lines = file.text.lines().enumerate();
    lines
        .filter(|(_, line)| words.iter().any(|word| contains_word(line, word)))
        .map(|(place, line)| (place + 1, line.trim().to_string()))
        .collect()
}

/// Engines call what the compiler cannot see: machine code of the JIT, SPIR-V given to a driver.
pub fn unsafe_code(file: &File) -> Vec<(usize, String)> {
    let word = ["un", "safe"].concat();
    let mut found = lines_with(file, &[&word]);
    // A function pointer's type promises nothing; its call does.
    let is_type = |number: usize| {
        file.text
            .lines()
            .nth(number - 1)
            .is_some_and(|line| line.starts_with("type "))
    };
    found.retain(|(number, _)| !is_type(*number));
    if is_in(file, &["src/engine/"]) {
        let lines: Vec<&str> = file.text.lines().collect();
        let is_proved = |number: usize| {
            let before = &lines[number.saturating_sub(12)..number];
            before
                .iter()
                .any(|line| line.contains("SAFETY:") || line.contains("# Safety"))
        };
        found.retain(|(number, _)| !is_proved(*number));
    }
    found
}

/// What a checkpoint would miss: state of model and training code outside the ranks' memory.
pub fn hidden_state(file: &File) -> Vec<(usize, String)> {
    if !is_in(file, &["src/model/", "src/train/"]) {
        return Vec::new();
    }
    let mut found = lines_with(
        file,
        &[
            "thread_local",
            "Mutex",
            "RwLock",
            "OnceLock",
            "LazyLock",
            "OnceCell",
            "RefCell",
            "Cell",
            "AtomicBool",
            "AtomicU32",
            "AtomicU64",
            "AtomicUsize",
        ],
    );
    let statics = file.program_lines().filter(|(_, line)| {
        let code = line.trim_start().trim_start_matches("pub ");
        code.starts_with("static ")
    });
    found.extend(statics.map(|(number, _)| (number, "`static`".to_string())));
    found
}
