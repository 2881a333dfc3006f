//! What stands between a launcher and its program: `torchrun`'s options, and Python's own.
//!
//! Sources: `get_args_parser` in PyTorch's `torch/distributed/run.py`; `python --help`.

use super::program::base_name;
use super::text::Text;
use super::wrapper::MPI_LAUNCHERS;

/// What a launcher's words lead to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leads {
    /// Its program, or the module behind `-m`.
    To(usize),
    /// A word that is not known: it may be any option, or several.
    Open(usize),
    /// A word by which another program may run: `--no-python`, an option that is not known.
    Astray(usize),
    /// To no program.
    Nowhere,
}

/// Options of `torchrun` that take a value. As its parser does, `_` is taken for `-`.
const WITH_VALUE: [&str; 27] = [
    "--nnodes",
    "--nproc-per-node",
    "--rdzv-backend",
    "--rdzv-endpoint",
    "--rdzv-id",
    "--rdzv-conf",
    "--max-restarts",
    "--monitor-interval",
    "--start-method",
    "--event-log-handler",
    "--role",
    "--log-dir",
    "-r",
    "--redirects",
    "-t",
    "--tee",
    "--local-ranks-filter",
    "--node-rank",
    "--master-addr",
    "--master-port",
    "--local-addr",
    "--logs-specs",
    "--numa-binding",
    "--signals-to-handle",
    "--shutdown-timeout",
    "--log-line-prefix-template",
    "--rdzv-timeout",
];

/// `torchrun`, by each of its names.
pub(super) const TORCHRUN: [&str; 3] = [
    "torchrun",
    "torch.distributed.run",
    "torch.distributed.launch",
];

const SWITCHES: [&str; 3] = ["--standalone", "--virtual-local-rank", "--use-env"];

/// Python's own that change nothing of what runs.
const OF_PYTHON: [&str; 10] = ["-u", "-O", "-OO", "-B", "-E", "-s", "-I", "-P", "-q", "-v"];

/// Whether a word is `python`, of any version.
pub(super) fn is_python(name: &str) -> bool {
    let is_version = |rest: &str| rest.chars().all(|c| c.is_ascii_digit() || c == '.');
    name.strip_prefix("python").is_some_and(is_version)
}

/// Where the first of `words` that is `python` or `torchrun` leads; `None` where there is none.
pub(super) fn leads(words: &[Text]) -> Option<Leads> {
    let is_one = |word: &Text| {
        let name = base_name(word);
        name == "torchrun" || is_python(&name)
    };
    let at = words.iter().position(is_one)?;
    Some(match base_name(&words[at]) == "torchrun" {
        true => of_torchrun(words, at + 1),
        false => of_python(words, at + 1),
    })
}

fn of_python(words: &[Text], mut at: usize) -> Leads {
    while let Some(word) = words.get(at) {
        let text = word.string();
        match text.as_str() {
            _ if is_open(word) => return Leads::Open(at),
            "-m" => return of_module(words, at + 1),
            "-X" | "-W" => at += 1,
            option if OF_PYTHON.contains(&option) => {}
            option if option.starts_with('-') || option.is_empty() => return Leads::Astray(at),
            _ => return Leads::To(at),
        }
        at += 1;
    }
    Leads::Nowhere
}

fn of_module(words: &[Text], at: usize) -> Leads {
    let Some(module) = words.get(at) else {
        return Leads::Nowhere;
    };
    match module.string().as_str() {
        "torch.distributed.run" | "torch.distributed.launch" => of_torchrun(words, at + 1),
        // It reads a file of its own.
        "accelerate.commands.launch" => Leads::Open(at),
        _ if is_open(module) => Leads::Open(at),
        _ => Leads::To(at),
    }
}

fn of_torchrun(words: &[Text], mut at: usize) -> Leads {
    let mut is_module = false;
    while let Some(word) = words.get(at) {
        let text = word.string();
        let is_long = text.starts_with("--");
        let name = text.split('=').next().unwrap_or_default();
        let name = name.replace('_', "-");
        let has_value = is_long && text.contains('=');
        match name.as_str() {
            _ if is_open(word) => return Leads::Open(at),
            // As its parser does, it takes the beginning of an option for the whole.
            option if is_beginning(option) => at += usize::from(!has_value),
            "-m" | "--module" if !has_value => is_module = true,
            option if SWITCHES.contains(&option) && !has_value => {}
            option if WITH_VALUE.contains(&option) => {
                let value = words.get(at + 1);
                // As argparse does, it takes `-8` for a number.
                let is_number = |text: &str| text[1..].starts_with(|c: char| c.is_ascii_digit());
                let is_value = value
                    .is_some_and(|value| !value.starts_with("-") || is_number(&value.string()));
                if !has_value && !is_value {
                    return Leads::Astray(at);
                }
                at += usize::from(!has_value);
            }
            option if option.starts_with('-') || option.is_empty() => return Leads::Astray(at),
            // `torchrun -m a.b` and `torchrun a.py`; a program of Python either way.
            _ if is_module || text.ends_with(".py") => return Leads::To(at),
            _ => return Leads::Astray(at),
        }
        at += 1;
    }
    Leads::Nowhere
}

/// Whether it begins the options that say how many ranks there are, and is not one of them.
fn is_beginning(option: &str) -> bool {
    let of = |whole: &str, least: &str| option.starts_with(least) && whole.starts_with(option);
    let is_whole = WITH_VALUE.contains(&option);
    !is_whole && (of("--nproc-per-node", "--nproc") || of("--nnodes", "--nn"))
}

/// A word of which not even the beginning is known.
fn is_open(word: &Text) -> bool {
    word.starts_with("$") || word.starts_with("`")
}

/// Whether a launch is `torchrun` or `python`, options, and its program: nothing else stands
/// before it, and nothing of it is not known but values.
pub(super) fn is_plain(before: &[Text], program: &Text) -> bool {
    let mut words = before.to_vec();
    words.push(program.clone());
    let first = before.first().map(base_name).unwrap_or_default();
    let is_launcher = first == "torchrun" || is_python(&first);
    // A module, `pdb`, may run another program.
    let is_file = program.string().ends_with(".py");
    is_launcher && is_file && leads(&words) == Some(Leads::To(before.len()))
}

/// Whether a program is started by `python` alone: as many processes as whoever runs the script
/// starts, each with the `WORLD_SIZE` that it finds.
pub(super) fn is_alone(before: &[Text]) -> bool {
    const OTHERS: [&str; 4] = [
        "accelerate",
        "accelerate.commands.launch",
        "deepspeed",
        "srun",
    ];
    let is_launcher = |name: &String| {
        let all = TORCHRUN.iter().chain(&OTHERS).chain(&MPI_LAUNCHERS);
        all.into_iter().any(|launcher| launcher == name)
    };
    let names: Vec<String> = before.iter().map(base_name).collect();
    names.iter().any(|name| is_python(name)) && !names.iter().any(is_launcher)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Option<Leads> {
        let text = |word: &str| Text(word.chars().map(|c| (c, 1)).collect());
        let words: Vec<Text> = line.split(' ').map(text).collect();
        leads(&words)
    }

    #[test]
    fn known_options_lead_to_the_program() {
        for (line, at) in [
            ("torchrun a.py --b", 1),
            (
                "torchrun --nproc_per_node 8 --nnodes=2 --standalone a.py",
                5,
            ),
            ("torchrun --master-addr $HOST a.py", 3),
            ("torchrun --nproc 8 --nno=2 a.py", 4),
            ("torchrun -m a.b", 2),
            ("python -u a.py", 2),
            (
                "python3.11 -m torch.distributed.run --nproc-per-node 8 a.py",
                5,
            ),
            ("uv run python -m a.b --c", 4),
            ("/x/torchrun -r 3 a.py", 3),
        ] {
            assert_eq!(of(line), Some(Leads::To(at)), "{line}");
        }
    }

    #[test]
    fn any_other_word_leads_astray() {
        for (line, at) in [
            ("torchrun --no-python a.sh", 1),
            ("torchrun --no_python env A=1 python a.py", 1),
            ("torchrun --run-path a.py", 1),
            // Beginnings of options: argparse would take them.
            ("torchrun --np 8 a.py", 1),
            ("torchrun -nproc-per-node 8 a.py", 1),
            ("torchrun --nnodes --standalone a.py", 1),
            ("torchrun --standalone=1 a.py", 1),
            ("torchrun env a.py", 1),
            ("python -c x a.py", 1),
            ("python - a.py", 1),
        ] {
            assert_eq!(of(line), Some(Leads::Astray(at)), "{line}");
        }
        assert_eq!(of("torchrun $A a.py"), Some(Leads::Open(1)));
        assert_eq!(of("python $A a.py"), Some(Leads::Open(1)));
        assert_eq!(of("torchrun --standalone"), Some(Leads::Nowhere));
        assert_eq!(of("srun a.py"), None);
    }

    #[test]
    fn python_alone_is_no_launcher() {
        let alone = |line: &str| {
            let text = |word: &str| Text(word.chars().map(|c| (c, 1)).collect());
            is_alone(&line.split(' ').map(text).collect::<Vec<Text>>())
        };
        assert!(alone("python") && alone("nohup /usr/bin/python3.11 -u"));
        for line in [
            "torchrun",
            "python -m torch.distributed.run --nproc-per-node 8",
            "mpirun -np 4 python",
            "srun -n 4 python",
            "$LAUNCHER",
        ] {
            assert!(!alone(line), "{line}");
        }
    }

    #[test]
    fn a_plain_launch_begins_with_its_launcher() {
        let plain = |line: &str| {
            let text = |word: &str| Text(word.chars().map(|c| (c, 1)).collect());
            let mut words: Vec<Text> = line.split(' ').map(text).collect();
            let program = words.pop().expect("a word");
            is_plain(&words, &program)
        };
        assert!(plain("torchrun --nproc-per-node 8 a.py"));
        assert!(plain("python a.py"));
        for line in [
            "env torchrun a.py",
            "torchrun $A a.py",
            "torchrun --nproc-per-node 8 b.py a.py",
            "python b a.py",
            "python -m pdb",
            "a.py",
            "nohup a.py",
        ] {
            assert!(!plain(line), "{line}");
        }
    }
}
