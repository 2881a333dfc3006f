//! What a batch script asks of Slurm: `#SBATCH --nodes=2`, and the variables that follow from it.
//!
//! Source: the manual page of `sbatch`, "Options" and "Output environment variables".

use std::ops::Range;

use super::text::Text;

/// Variables by the option that sets them.
const VARIABLES: [(&[&str], &[&str]); 5] = [
    (&["--nodes", "-N"], &["SLURM_NNODES", "SLURM_JOB_NUM_NODES"]),
    (&["--ntasks-per-node"], &["SLURM_NTASKS_PER_NODE"]),
    (&["--ntasks", "-n"], &["SLURM_NTASKS", "SLURM_NPROCS"]),
    (&["--gpus-per-node", "--gres"], &["SLURM_GPUS_ON_NODE"]),
    // The value itself: `h100:8` is no number.
    (&["--gpus-per-node"], &["SLURM_GPUS_PER_NODE"]),
];

/// Words of the `#SBATCH` lines: those before the first command.
fn requests(text: &Text) -> Vec<Vec<Text>> {
    let mut found = Vec::new();
    for line in text.0.split(|(c, _)| *c == '\n') {
        let mut words = line
            .split(|(c, _)| c.is_whitespace())
            .filter(|word| !word.is_empty())
            .map(|word| Text(word.to_vec()));
        match words.next() {
            None => {}
            Some(word) if word.string() == "#SBATCH" => found.push(words.collect()),
            Some(word) if word.starts_with("#") => {}
            Some(_) => break,
        }
    }
    found
}

/// Whether Slurm runs the script: it then sets more than what is asked for says.
pub(super) fn is_batch(text: &Text) -> bool {
    !requests(text).is_empty()
}

/// Where Slurm is asked for another environment than the caller's: `#SBATCH --export=NONE`.
pub(super) fn environment(text: &Text) -> Option<Range<usize>> {
    requests(text).into_iter().find_map(|words| {
        let sets = |(name, value): &(String, Text)| {
            let is_export = name == "--export" && value.string() != "ALL";
            is_export || matches!(name.as_str(), "--export-file" | "--get-user-env")
        };
        let found = options(&words).into_iter().any(|option| sets(&option));
        found.then(|| words[0].span())
    })
}

/// The variables that Slurm sets, and their values, where these are numbers.
pub(super) fn variables(text: &Text) -> Vec<(Text, Text)> {
    let mut found = Vec::new();
    for words in requests(text) {
        for (option, value) in options(&words) {
            let is_it = |(options, _): &&(&[&str], &[&str])| options.contains(&option.as_str());
            let named: Vec<_> = VARIABLES.iter().filter(is_it).collect();
            if named.is_empty() {
                continue;
            }
            // A list is of several kinds, and what is no GPU counts none.
            let is_list = value.0.iter().any(|(c, _)| *c == ',');
            if is_list || (option == "--gres" && !value.starts_with("gpu:")) {
                continue;
            }
            // `--gres=gpu:8`, `--gpus-per-node=h100:8`.
            let mut parts = value.0.rsplit(|(c, _)| *c == ':');
            let number = parts.next().unwrap_or_default().to_vec();
            if number.is_empty() || !number.iter().all(|(c, _)| c.is_ascii_digit()) {
                continue;
            }
            let at = |name: &str| Text(name.chars().map(|c| (c, number[0].1)).collect());
            let is_word = number.len() < value.0.len();
            for name in named.iter().flat_map(|(_, names)| names.iter()) {
                if !(is_word && *name == "SLURM_GPUS_PER_NODE") {
                    found.push((at(name), Text(number.clone())));
                }
            }
        }
    }
    found
}

/// `--name value`, `--name=value` and `-n2`, in order.
pub(super) fn options(words: &[Text]) -> Vec<(String, Text)> {
    let mut found = Vec::new();
    for (index, word) in words.iter().enumerate() {
        if !word.starts_with("-") {
            continue;
        }
        // `-N2`
        let attached = word.0.get(1).is_some_and(|(c, _)| c.is_ascii_alphabetic())
            && word.0.get(2).is_some_and(|(c, _)| c.is_ascii_digit());
        if attached {
            let (name, value) = word.0.split_at(2);
            found.push((Text(name.to_vec()).string(), Text(value.to_vec())));
            continue;
        }
        match word.split_once('=') {
            Some((name, value)) => found.push((name.string(), value)),
            None => {
                let value = words.get(index + 1).cloned().unwrap_or_default();
                found.push((word.string(), value));
            }
        }
    }
    found
}
