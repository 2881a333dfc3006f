//! Which texts are scripts, launch lines, or lists of arguments.

use crate::diagnostic::Source;

/// Whether a file is a shell script, by its name or its first line; blank lines before that one
/// make no difference to the shell that somebody runs it with.
pub(in super::super) fn is_script(source: &Source) -> bool {
    let name = source.name.to_ascii_lowercase();
    let endings = [".sh", ".bash", ".sbatch", ".slurm"];
    let text = source.text.trim_start_matches('\u{feff}').trim_start();
    text.starts_with("#!") || endings.iter().any(|ending| name.ends_with(ending))
}

/// Whether a file's name is one of a shell that is not followed here: `zsh` does not split `$A`.
pub(super) fn is_of_another_shell(source: &Source) -> bool {
    let name = source.name.to_ascii_lowercase();
    let endings = [".zsh", ".fish", ".csh", ".tcsh", ".ksh"];
    endings.iter().any(|ending| name.ends_with(ending))
}

/// Whether a file is a list of arguments, by its name.
pub(in super::super) fn is_list(source: &Source) -> bool {
    source.name.to_ascii_lowercase().ends_with(".args")
}

/// Whether a text that is no script's looks like a launch line: words that start with `--`, and a
/// launcher, or nothing but such words.
pub(in super::super) fn is_command_line(source: &Source) -> bool {
    if is_list(source) {
        return true;
    }
    let mut code = source.text.lines().map(str::trim_start);
    let starts = code
        .clone()
        .find(|line| !line.is_empty() && !line.starts_with('#'));
    if starts.is_some_and(is_flag) {
        return true;
    }
    let launchers = [
        "torchrun",
        "torch.distributed",
        "pretrain_",
        "python",
        "srun",
    ];
    let launches = |line: &str| {
        !line.starts_with('#') && launchers.iter().any(|launcher| line.contains(launcher))
    };
    code.any(launches) && source.text.split_whitespace().any(is_flag)
}

/// Commands that launch, or that a script has before it does. None is a word that a line of a
/// job's log begins with by itself, such as `time` or `set`.
const COMMANDS: [&str; 20] = [
    "accelerate",
    "apptainer",
    "bash",
    "deepspeed",
    "docker",
    "env",
    "exec",
    "export",
    "mpiexec",
    "mpirun",
    "nohup",
    "numactl",
    "podman",
    "python",
    "python3",
    "sbatch",
    "sh",
    "singularity",
    "srun",
    "torchrun",
];

/// Whether a line is a command of a script, or flags of a list. An assignment alone is neither: a
/// job prints its environment so.
pub(in super::super) fn is_command(line: &str) -> bool {
    let is_assignment = |word: &&str| {
        let name = word.split_once('=').map_or("", |(name, _)| name);
        super::super::launch::is_variable_name(name)
    };
    let mut words = line.split_whitespace().skip_while(is_assignment);
    let Some(first) = words.next() else {
        return false;
    };
    let bare = first.trim_matches(['"', '\'']);
    let name = bare.rsplit('/').next().unwrap_or_default();
    is_flag(first) || bare.starts_with('$') || COMMANDS.contains(&name)
}

/// `--name`
pub(super) fn is_flag(word: &str) -> bool {
    let name = word.strip_prefix("--").unwrap_or_default();
    name.starts_with(|c: char| c.is_ascii_alphabetic())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_which_shell_a_script_is_for() {
        let other = |name: &str| is_of_another_shell(&Source::new(name, ""));
        assert!(other("run.zsh") && other("a/RUN.Fish") && other("x.csh"));
        assert!(!other("run.sh") && !other("run") && !other("zsh"));
    }
}
