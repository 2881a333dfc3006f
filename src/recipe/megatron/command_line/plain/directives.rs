//! Lines of a script that others than its shell read: the kernel its first, a batch system its
//! comments.
//!
//! Sources: the manual pages of `execve` (interpreter scripts) and `sbatch`.

use super::super::slurm::MARKS;
use super::Beyond;

/// Who runs a script.
pub(super) struct Runs {
    /// Otherwise a plain POSIX shell may, which has no arrays.
    pub is_bash: bool,
}

/// Options of `sbatch` that change neither the environment nor what runs.
const BATCH: [&str; 43] = [
    "--account",
    "--array",
    "--begin",
    "--chdir",
    "--comment",
    "--constraint",
    "--cpus-per-gpu",
    "--cpus-per-task",
    "--dependency",
    "--error",
    "--exclude",
    "--exclusive",
    "--gpus",
    "--gpus-per-node",
    "--gpus-per-task",
    "--gres",
    "--hint",
    "--job-name",
    "--mail-type",
    "--mail-user",
    "--mem",
    "--mem-per-cpu",
    "--mem-per-gpu",
    "--nice",
    "--no-requeue",
    "--nodelist",
    "--nodes",
    "--ntasks",
    "--ntasks-per-node",
    "--open-mode",
    "--output",
    "--overcommit",
    "--partition",
    "--qos",
    "--requeue",
    "--reservation",
    "--signal",
    "--switches",
    "--threads-per-core",
    "--time",
    "--verbose",
    "--wait",
    "--wckey",
];

/// Short ones.
const BATCH_LETTERS: &str = "ACDGJNacdenopqtwx";

/// The shell of the script's first line.
pub(super) fn shell(text: &str) -> Result<Runs, Beyond> {
    let line = text.lines().next().unwrap_or_default();
    let Some(program) = line.strip_prefix("#!") else {
        return Ok(Runs { is_bash: true });
    };
    let mut words = program.split([' ', '\t']).filter(|word| !word.is_empty());
    let mut path = words.next().unwrap_or_default();
    let is_env = path == "/usr/bin/env" || path == "/bin/env";
    if is_env {
        path = words.next().unwrap_or_default();
    }
    let folders = ["/bin/", "/usr/bin/", "/usr/local/bin/"];
    let of_folder = folders.iter().find_map(|folder| path.strip_prefix(folder));
    let name = if is_env { Some(path) } else { of_folder };
    let is_bash = match name {
        Some("bash") => true,
        Some("sh" | "dash") => false,
        _ => return Err(0..line.len()),
    };
    // The kernel passes all of the rest as one word.
    let options: Vec<&str> = words.collect();
    let is_idle = |option: &str| {
        let letters = option.strip_prefix('-').unwrap_or_default();
        !letters.is_empty() && letters.chars().all(|c| matches!(c, 'e' | 'u' | 'x'))
    };
    match options.as_slice() {
        [] => Ok(Runs { is_bash }),
        [option] if !is_env && is_idle(option) => Ok(Runs { is_bash }),
        _ => Err(0..line.len()),
    }
}

/// As [`shell`], of a shell in any folder.
pub(super) fn followed(text: &str) -> Result<(), Beyond> {
    let text = text.trim_start_matches('\u{feff}');
    let line = text.lines().next().unwrap_or_default();
    let Some(program) = line.strip_prefix("#!") else {
        return Ok(());
    };
    let path = program.split([' ', '\t']).find(|word| !word.is_empty());
    let (folder, name) = path
        .and_then(|path| path.rsplit_once('/'))
        .unwrap_or_default();
    let behind = program.split_once(name).map_or("", |(_, behind)| behind);
    match folder.is_empty() || name.is_empty() {
        true => Err(0..line.len()),
        false => shell(&format!("#!/bin/{name}{behind}"))
            .map(|_| ())
            .map_err(|_| 0..line.len()),
    }
}

/// Whether a comment says nothing to anyone who would change the job. `is_first`: it stands at the
/// start of its line.
pub(super) fn is_plain(line: &str, is_first: bool, is_behind_commands: bool) -> bool {
    let is_batch = MARKS.iter().any(|mark| line.starts_with(mark));
    // Other batch systems have their own: their options are not known here.
    let others = [
        "#PBS", "#BSUB", "#$", "#FLUX", "#flux", "#COBALT", "#OAR", "#PJM", "#MSUB",
    ];
    match (is_batch, is_behind_commands) {
        (true, true) => true,
        (true, false) => is_first && is_plain_request(line),
        (false, _) => !others.iter().any(|other| line.starts_with(other)),
    }
}

/// `#SBATCH --nodes=2 -N 2`: each word an option, or the value of the one before it.
fn is_plain_request(line: &str) -> bool {
    if line.contains(['"', '\'', '\\']) {
        return false;
    }
    let mut words = line.split([' ', '\t']).filter(|word| !word.is_empty());
    if words.next().is_none_or(|word| !MARKS.contains(&word)) {
        return false;
    }
    let mut may_be_value = false;
    let mut is_remark = false;
    for word in words {
        let is_option = word.starts_with('-');
        is_remark |= word.starts_with('#');
        let fits = match (is_remark, is_option) {
            (true, _) => !is_option,
            (false, true) => is_batch_option(word),
            (false, false) => std::mem::take(&mut may_be_value),
        };
        if !fits {
            return false;
        }
        if is_option {
            let is_long = word.starts_with("--");
            may_be_value = if is_long {
                !word.contains('=')
            } else {
                word.len() == 2
            };
        }
    }
    true
}

fn is_batch_option(word: &str) -> bool {
    // Its default.
    if word == "--export=ALL" {
        return true;
    }
    let name = word.split('=').next().unwrap_or_default();
    match word.strip_prefix("--") {
        Some(_) => BATCH.contains(&name),
        None => word[1..].starts_with(|c| BATCH_LETTERS.contains(c)),
    }
}
