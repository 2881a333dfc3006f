//! What stands before a program in its command: which variables it passes on, sets, or may set.
//!
//! What is not known to leave the environment alone leaves nothing known of it. Sources: the
//! manual pages of `env`, `srun` and `sbatch` (`--export`), `mpirun` (Open MPI, `-x`), `mpiexec`
//! (MPICH, `-genv`), `sudo` (`env_reset`), `docker run` (`-e`), `apptainer exec` (`--env`,
//! `--cleanenv`) and `nsys profile` (`--env-var`).

mod shape;

use std::ops::Range;

use super::launcher::is_python;
use super::program::{base_name, is_name};
use super::shell::{Exported, Taken};
use super::text::Text;
use shape::Shape;

/// What the words before a program do to its environment.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// `env -i`
    Clear,
    /// `env -u NAME`
    Remove(Text),
    /// `env NAME=value`, `mpirun -x NAME=value`, `srun --export=ALL,NAME=value`
    Put(Text, Text),
    /// `srun --export=NAME`: only these are passed on.
    Keep(Vec<String>),
    /// It may set or drop any: `docker run`, a script of its own, an option that is not known.
    Lose(Range<usize>),
    /// What is set is passed on; others may be set, too.
    Open(Range<usize>),
}

/// A command before the program, whose options are read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wrapper {
    /// None yet.
    Start,
    Env,
    Slurm,
    Mpi,
    Sudo,
    /// `docker`, `podman`: nothing is passed on but what `-e` names.
    Container,
    Apptainer,
    Nsys,
    /// What it starts has its environment, whatever its options are.
    Plain,
    /// Nothing is known of it.
    Other,
}

/// Open MPI's and MPICH's launchers.
pub(super) const MPI_LAUNCHERS: [&str; 5] =
    ["mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prterun"];

/// The wrapper of this name, and the words that it takes.
fn wrapper(name: &str) -> Option<(Wrapper, Shape)> {
    Some(match name {
        "env" => (Wrapper::Env, shape::NONE),
        "srun" | "sbatch" | "salloc" => (Wrapper::Slurm, shape::SLURM),
        "sudo" => (Wrapper::Sudo, shape::SUDO),
        "docker" | "podman" | "nerdctl" => (Wrapper::Container, shape::CONTAINER),
        "apptainer" | "singularity" => (Wrapper::Apptainer, shape::APPTAINER),
        "nsys" => (Wrapper::Nsys, shape::NSYS),
        _ if MPI_LAUNCHERS.contains(&name) => (Wrapper::Mpi, shape::MPI),
        _ => (Wrapper::Plain, shape::of_plain(name)?),
    })
}

/// Programs whose words are no wrapper's any more.
fn is_launcher(name: &str) -> bool {
    is_python(name) || name == "torchrun"
}

/// What the words before a program change in its environment, in order.
pub(super) fn changes(before: &[Text]) -> Vec<Change> {
    let mut reader = Reader {
        words: before,
        at: 0,
        wrapper: Wrapper::Start,
        shape: shape::NONE,
        is_first_operand: true,
        changes: Vec::new(),
    };
    while reader.at < before.len() && !reader.word() {
        reader.at += 1;
    }
    reader.changes
}

struct Reader<'a> {
    words: &'a [Text],
    at: usize,
    wrapper: Wrapper,
    /// What the wrapper takes, and how many operands are still to come.
    shape: Shape,
    is_first_operand: bool,
    changes: Vec<Change>,
}

impl Reader<'_> {
    /// Reads one word, or one option and its value. Whether a launcher stands here.
    fn word(&mut self) -> bool {
        let word = &self.words[self.at];
        let (text, name) = (word.string(), base_name(word));
        if text.starts_with('-') {
            self.option(&text);
            return false;
        }
        if self.shape.operands > 0 && self.wrapper != Wrapper::Other {
            self.own_operand(&text);
            return false;
        }
        if let "bash" | "sh" = name.as_str() {
            return self.shell();
        }
        if matches!(name.as_str(), "deepspeed" | "accelerate") {
            // They read a file: `.deepspeed_env`, `default_config.yaml`.
            self.changes.push(Change::Open(word.span()));
            return true;
        }
        if is_launcher(&name) {
            return true;
        }
        if let Some((wrapper, shape)) = wrapper(&name) {
            (self.wrapper, self.shape) = (wrapper, shape);
            self.is_first_operand = true;
            if matches!(wrapper, Wrapper::Container | Wrapper::Sudo) {
                self.lose();
            }
            if wrapper == Wrapper::Apptainer {
                self.changes.push(Change::Open(word.span()));
            }
            return false;
        }
        self.operand();
        false
    }

    /// A word that the wrapper takes itself: `10` of `timeout 10`, `run` of `uv run`.
    fn own_operand(&mut self, text: &str) {
        self.shape.operands -= 1;
        let is_first = std::mem::replace(&mut self.is_first_operand, false);
        let is_verb = !is_first || self.shape.verbs.is_empty() || self.shape.verbs.contains(&text);
        if !is_verb || text.starts_with(['$', '`']) {
            self.wrapper = Wrapper::Other;
            self.lose();
        }
    }

    /// `bash -c`: a login shell, or an interactive one, reads files.
    fn shell(&mut self) -> bool {
        let reads = |word: &Text| {
            let word = word.string();
            let is_long = word == "--login" || word == "--rcfile" || word == "--init-file";
            let is_short = word.starts_with('-') && !word.starts_with("--");
            is_long || (is_short && word.contains(['l', 'i']))
        };
        if self.words[self.at + 1..].iter().any(reads) {
            self.lose();
        }
        true
    }

    fn lose(&mut self) {
        self.changes.push(Change::Lose(self.words[self.at].span()));
    }

    /// A word that is no option, nor an operand of the wrapper: `NAME=value`, or a program.
    fn operand(&mut self) {
        let word = &self.words[self.at];
        let assigned = word.split_once('=').filter(|(name, _)| is_name(name));
        let sets = matches!(self.wrapper, Wrapper::Env | Wrapper::Sudo);
        if let (true, Some((name, value))) = (sets, assigned) {
            return self.changes.push(Change::Put(name, value));
        }
        // It may be a program that sets or drops any, or more options.
        if self.wrapper != Wrapper::Other {
            self.wrapper = Wrapper::Other;
            self.lose();
        }
    }

    /// The word behind this one, if there is one, which is then read.
    fn next(&mut self) -> Option<Text> {
        let next = self.words.get(self.at + 1).cloned()?;
        self.at += 1;
        Some(next)
    }

    /// The value of `--name=value` or `--name value`.
    fn value(&mut self) -> Text {
        let value = self.words[self.at].split_once('=').map(|(_, value)| value);
        value.or_else(|| self.next()).unwrap_or_default()
    }

    fn option(&mut self, text: &str) {
        let name = text.split('=').next().unwrap_or_default();
        match self.wrapper {
            Wrapper::Start => self.lose(),
            Wrapper::Other => {}
            Wrapper::Env => self.of_env(text),
            Wrapper::Slurm => self.of_slurm(text, name),
            Wrapper::Mpi => self.of_mpi(text),
            Wrapper::Container if matches!(name, "-e" | "--env") => {
                let value = self.value();
                self.put(&value);
            }
            // `-eNAME=value`
            Wrapper::Container if text.starts_with("-e") => {
                self.put(&Text(self.words[self.at].0[2..].to_vec()));
            }
            Wrapper::Apptainer if name == "--env" => self.list(),
            Wrapper::Nsys if matches!(name, "-e" | "--env-var") => self.list(),
            Wrapper::Plain
            | Wrapper::Container
            | Wrapper::Sudo
            | Wrapper::Apptainer
            | Wrapper::Nsys => self.usual(text),
        }
    }

    /// An option that changes no variable, where it is known.
    fn usual(&mut self, text: &str) {
        if !self.takes(text) {
            // Nor is known whether the next word is its value.
            self.wrapper = Wrapper::Other;
            self.lose();
        }
    }

    /// Goes past an option of the wrapper's and its value; whether it has such an option.
    fn takes(&mut self, text: &str) -> bool {
        let name = text.split('=').next().unwrap_or_default();
        let has_value = name.len() < text.len();
        let (with_value, switches) = (self.shape.with_value, self.shape.switches);
        if with_value.contains(&name) {
            self.at += usize::from(!has_value);
            return true;
        }
        if text == "--" || (switches.contains(&name) && !has_value) {
            return true;
        }
        // `-N2`, `-it`
        let letters: Vec<char> = text.chars().skip(1).collect();
        let short = |letter: &char| format!("-{letter}");
        let is_short = !text.starts_with("--") && letters.len() > 1;
        let is_number = letters.iter().skip(1).all(char::is_ascii_digit);
        let is_attached = letters
            .first()
            .is_some_and(|first| with_value.contains(&&*short(first)))
            && (is_number || self.wrapper != Wrapper::Mpi);
        let are_switches = letters
            .iter()
            .all(|letter| switches.contains(&&*short(letter)));
        is_short && (is_attached || are_switches)
    }

    fn of_slurm(&mut self, text: &str, name: &str) {
        if name == "--export" {
            let value = self.value();
            let list = exported(&value);
            return self.changes.extend(list);
        }
        let marks = ["env", "export", "prolog"];
        if marks.iter().any(|mark| name.contains(mark)) {
            self.lose();
        }
        if name.contains("container") {
            let open = Change::Open(self.words[self.at].span());
            self.changes.push(open);
        }
        self.usual(text);
    }

    fn of_env(&mut self, text: &str) {
        let word = &self.words[self.at];
        match text {
            "-i" | "-" | "--ignore-environment" => self.changes.push(Change::Clear),
            "-u" | "--unset" => {
                let name = self.next().map(Change::Remove);
                self.changes.extend(name);
            }
            "-C" | "--chdir" => drop(self.next()),
            "-0" | "--null" | "-v" | "--debug" | "--" => {}
            _ if text.starts_with("--chdir=") => {}
            _ if text.starts_with("--unset=") => {
                let name = word.split_once('=').map(|(_, name)| Change::Remove(name));
                self.changes.extend(name);
            }
            _ if text.starts_with("-u") => {
                let name = Text(word.0[2..].to_vec());
                self.changes.push(Change::Remove(name));
            }
            // `-S` splits its value into more words.
            _ => {
                self.wrapper = Wrapper::Other;
                self.lose();
            }
        }
    }

    fn of_mpi(&mut self, text: &str) {
        match text {
            "-x" => {
                let value = self.next().unwrap_or_default();
                self.put(&value);
            }
            "-genv" | "-env" | "--genv" | "--env" => {
                let (name, value) = (self.next(), self.next());
                if let (Some(name), Some(value)) = (name, value) {
                    self.changes.push(Change::Put(name, value));
                }
            }
            "-genvall" | "-envall" => {}
            // Open MPI passes to other hosts what `-x` names only.
            "-H" | "-host" | "--host" | "-hostfile" | "--hostfile" | "-machinefile"
            | "--machinefile" => {
                let open = Change::Open(self.words[self.at].span());
                self.changes.push(open);
                self.usual(text);
            }
            _ if text.contains("env") => self.lose(),
            "--mca" | "-mca" | "--prtemca" | "--pmixmca" | "--gmca" => {
                let name = self.next().unwrap_or_default().string();
                match name.contains("env") || name.contains(['$', '`']) {
                    true => self.lose(),
                    false => drop(self.next()),
                }
            }
            _ => self.usual(text),
        }
    }

    /// `NAME=value`, or `NAME`, which is passed on.
    fn put(&mut self, text: &Text) {
        match text.split_once('=').filter(|(name, _)| is_name(name)) {
            Some((name, value)) => self.changes.push(Change::Put(name, value)),
            None if is_name(text) && self.wrapper == Wrapper::Mpi => {}
            None => self.lose(),
        }
    }

    /// `NAME=value,NAME=value`
    fn list(&mut self) {
        let value = self.value();
        for part in value.0.split(|(c, _)| *c == ',') {
            self.put(&Text(part.to_vec()));
        }
    }
}

/// `srun --export=ALL,NAME=value`, `--export=NONE`, `--export=NAME`.
fn exported(list: &Text) -> Vec<Change> {
    let parts = list.0.split(|(c, _)| *c == ',');
    let parts: Vec<Text> = parts.map(|part| Text(part.to_vec())).collect();
    let is_known = |part: &Text| {
        let name = part.split_once('=').map_or(part.clone(), |(name, _)| name);
        is_name(&name)
    };
    if !parts.iter().all(is_known) {
        return vec![Change::Lose(list.span())];
    }
    let mut changes = Vec::new();
    if !parts.iter().any(|part| part.string() == "ALL") {
        changes.push(Change::Keep(parts.iter().map(Text::string).collect()));
    }
    let put = |part: &Text| part.split_once('=').map(|(name, v)| Change::Put(name, v));
    changes.extend(parts.iter().filter_map(put));
    changes
}

/// Variables by which a wrapper sets others, or drops them.
pub(super) fn steers(exported: &Exported) -> bool {
    let name = &exported.name;
    let is_inner = |beginning: &&str| name.starts_with(*beginning);
    let beginnings = ["APPTAINERENV_", "SINGULARITYENV_", "OMPI_MCA_mca_base_env"];
    let exports = name == "SLURM_EXPORT_ENV" && exported.value != "ALL";
    let runs = [
        "PET_NO_PYTHON",
        "PET_RUN_PATH",
        "PET_MODULE",
        "SLURM_TASK_PROLOG",
    ];
    exports || runs.contains(&name.as_str()) || beginnings.iter().any(is_inner)
}

/// The environment behind a change.
pub(super) fn changed(environment: &mut Vec<Exported>, change: Change) {
    let keep = |environment: &mut Vec<Exported>, names: &[String], wanted: bool| {
        environment.retain(|variable| names.contains(&variable.name) == wanted);
    };
    match change {
        Change::Clear => environment.clear(),
        Change::Remove(name) => keep(environment, &[name.string()], false),
        Change::Keep(names) => keep(environment, &names, true),
        Change::Lose(at) => {
            for variable in environment.iter_mut() {
                variable.value = format!("${}", variable.name);
                variable.conditional = Some((at.clone(), Taken::Read));
            }
        }
        Change::Open(_) => {}
        Change::Put(name, value) => {
            keep(environment, &[name.string()], false);
            environment.push(Exported {
                name: name.string(),
                value: value.string(),
                at: name.span(),
                conditional: None,
                assumed: None,
            });
        }
    }
}
