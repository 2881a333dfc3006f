//! What a batch script asks of Slurm: `#SBATCH --nodes=2`, and the variables that follow from it.
//!
//! Source: the manual page of `sbatch`, "Options" and "Output environment variables".

use std::ops::Range;

use super::text::Text;

/// Variables, and the options that set them: several spellings of one each.
const VARIABLES: [(&[&str], &[&[&str]]); 5] = [
    (
        &["SLURM_NNODES", "SLURM_JOB_NUM_NODES"],
        &[&["--nodes", "-N"]],
    ),
    (&["SLURM_NTASKS_PER_NODE"], &[&["--ntasks-per-node"]]),
    (&["SLURM_NTASKS", "SLURM_NPROCS"], &[&["--ntasks", "-n"]]),
    (&["SLURM_GPUS_ON_NODE"], &[&["--gpus-per-node"], &[GRES]]),
    (&["SLURM_GPUS_PER_NODE"], &[&["--gpus-per-node"]]),
];

const GRES: &str = "--gres";

/// Marks of lines that `sbatch` reads (`src/sbatch/opt.c` of Slurm).
pub(super) const MARKS: [&str; 2] = ["#SBATCH", "#SLURM"];

/// Words of the lines with such a mark: those before the first command.
fn requests(text: &Text) -> Vec<Vec<Text>> {
    let mut found = Vec::new();
    for line in text.0.split(|(c, _)| *c == '\n') {
        let mut words = line
            .split(|(c, _)| c.is_whitespace())
            .filter(|word| !word.is_empty())
            .map(|word| Text(word.to_vec()));
        match words.next() {
            None => {}
            // A mark that is indented is a comment to `sbatch`.
            Some(word) if MARKS.contains(&&*word.string()) => {
                let is_first = line.first().is_some_and(|(c, _)| *c == '#');
                found.extend(is_first.then(|| words.collect()));
            }
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

/// The variables that Slurm sets, and their values. Of an option that is given again the last
/// counts, whatever it says; where that is no number, or two options say two, the variable stands
/// for itself: it is not known.
pub(super) fn variables(text: &Text) -> Vec<(Text, Text)> {
    let requests = requests(text);
    let given: Vec<(String, Text)> = requests.iter().flat_map(|words| options(words)).collect();
    let last = |spellings: &&[&str]| {
        let is_it = |(option, _): &&(String, Text)| spellings.contains(&option.as_str());
        given.iter().rev().find(is_it)
    };
    let mut found = Vec::new();
    for (names, options) in VARIABLES {
        let asked: Vec<&(String, Text)> = options.iter().filter_map(last).collect();
        let Some((_, first)) = asked.first() else {
            continue;
        };
        let at = first.0.first().map_or(0, |(_, at)| *at);
        let text = |written: &str| Text(written.chars().map(|c| (c, at)).collect());
        let numbers: Vec<Option<Text>> = asked.iter().map(|(name, v)| number(name, v)).collect();
        let same = |number: &Option<Text>| {
            let string = |number: &Option<Text>| number.as_ref().map(Text::string);
            string(number) == string(&numbers[0])
        };
        for name in names {
            // The value itself: `h100:8` is no number.
            let is_whole = *name != "SLURM_GPUS_PER_NODE" || is_number(&first.0);
            let value = numbers[0].clone().filter(|_| is_whole);
            let value = value.filter(|_| numbers.iter().all(same));
            let value = value.unwrap_or_else(|| text(&format!("${name}")));
            found.push((text(name), value));
        }
    }
    found
}

/// `8`, `h100:8`, of other resources `gpu:8`. A list is of several kinds, and what is no GPU counts
/// none.
fn number(option: &str, value: &Text) -> Option<Text> {
    if option == GRES && !value.starts_with("gpu:") {
        return None;
    }
    let number = value.0.rsplit(|(c, _)| *c == ':').next()?;
    let is_list = value.0.iter().any(|(c, _)| *c == ',');
    (!is_list && is_number(number)).then(|| Text(number.to_vec()))
}

fn is_number(chars: &[super::text::Char]) -> bool {
    !chars.is_empty() && chars.iter().all(|(c, _)| c.is_ascii_digit())
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
