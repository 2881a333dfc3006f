//! Names of variables that are more than variables to a shell.

use super::super::doubt::decides_bits;

/// The shell's own (bash manual, "Shell Variables"): it sets them, or changes when they are set.
const OF_SHELL: [&str; 46] = [
    "_",
    "CDPATH",
    "CHILD_MAX",
    "COLUMNS",
    "COPROC",
    "DIRSTACK",
    "EMACS",
    "ENV",
    "EUID",
    "EXECIGNORE",
    "FCEDIT",
    "FIGNORE",
    "FUNCNAME",
    "FUNCNEST",
    "GLOBIGNORE",
    "GROUPS",
    "HISTCMD",
    "HOME",
    "HOSTNAME",
    "HOSTTYPE",
    "IFS",
    "IGNOREEOF",
    "INPUTRC",
    "INSIDE_EMACS",
    "LINENO",
    "LINES",
    "MACHTYPE",
    "MAPFILE",
    "OLDPWD",
    "OPTARG",
    "OPTERR",
    "OPTIND",
    "OSTYPE",
    "PIPESTATUS",
    "PPID",
    "PWD",
    "RANDOM",
    "REPLY",
    "SECONDS",
    "SHELL",
    "SHELLOPTS",
    "SHLVL",
    "SRANDOM",
    "TIMEFORMAT",
    "TMOUT",
    "UID",
];

/// Beginnings of more of them; those of `PET_` are options of `torchrun`.
const BEGINNINGS: [&str; 17] = [
    "BASH",
    "COMP_",
    "COMPREPLY",
    "EPOCHREALTIME",
    "EPOCHSECONDS",
    "HIST",
    "MAIL",
    "POSIX",
    "PROMPT_COMMAND",
    "PROMPT_DIRTRIM",
    "PS0",
    "PS1",
    "PS2",
    "PS3",
    "PS4",
    "READLINE",
    "PET_",
];

/// Read by scripts and by nothing that they start.
const OF_LAUNCHES: [&str; 3] = ["GPUS_PER_NODE", "NNODES", "NUM_NODES"];

/// Whether an assignment to it does more than assign.
pub(super) fn is_of_shell(name: &str) -> bool {
    OF_SHELL.contains(&name)
        || BEGINNINGS
            .iter()
            .any(|beginning| name.starts_with(beginning))
}

/// Whether it may be put in: of the shell's own, those that everybody takes for unknown.
pub(super) fn is_readable(name: &str) -> bool {
    let is_unknown = matches!(name, "HOME" | "HOSTNAME" | "PWD");
    is_unknown || !is_of_shell(name)
}

/// Whether `torchrun` sets it for its program, whatever it was before.
///
/// Source: `torch/distributed/elastic/agent/server/local_elastic_agent.py`, `_start_workers`.
pub(super) fn is_told_by_torchrun(name: &str) -> bool {
    name == "WORLD_SIZE"
}

/// Whether bits follow from it: it is to be exported where it is assigned, as an assignment alone
/// reaches the job only where the caller has exported it.
pub(super) fn needs_export(name: &str) -> bool {
    decides_bits(name) && !OF_LAUNCHES.contains(&name)
}
