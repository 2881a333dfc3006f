//! What stands before a program in its command: which variables it passes on, sets, or may set.
//!
//! What is not known to leave the environment alone leaves nothing known of it. Sources: the
//! manual pages of `env`, `srun` and `sbatch` (`--export`), `mpirun` (Open MPI, `-x`), `mpiexec`
//! (MPICH, `-genv`), `sudo` (`env_reset`), `docker run` (`-e`), `apptainer exec` (`--env`,
//! `--cleanenv`) and `nsys profile` (`--env-var`).

use std::ops::Range;

use super::program::{base_name, is_name};
use super::shell::{Exported, Taken};
use super::text::Text;

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

/// Options of `srun` and `mpirun` that take the next word.
const TAKE_ONE: [&str; 30] = [
    "-n",
    "-N",
    "-c",
    "-p",
    "-A",
    "-J",
    "-t",
    "-w",
    "-o",
    "-e",
    "-np",
    "--np",
    "-H",
    "--host",
    "-npernode",
    "--npernode",
    "-ppn",
    "--nodes",
    "--ntasks",
    "--ntasks-per-node",
    "--gpus-per-node",
    "--cpus-per-task",
    "--nodelist",
    "-hostfile",
    "--hostfile",
    "--jobid",
    "--partition",
    "--account",
    "--output",
    "--error",
];

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

fn wrapper(name: &str) -> Option<Wrapper> {
    Some(match name {
        "env" => Wrapper::Env,
        "srun" | "sbatch" | "salloc" => Wrapper::Slurm,
        "mpirun" | "mpiexec" | "mpiexec.hydra" | "orterun" | "prterun" => Wrapper::Mpi,
        "sudo" => Wrapper::Sudo,
        "docker" | "podman" | "nerdctl" => Wrapper::Container,
        "apptainer" | "singularity" => Wrapper::Apptainer,
        "nsys" => Wrapper::Nsys,
        "nohup" | "nice" | "ionice" | "time" | "timeout" | "stdbuf" | "numactl" | "taskset"
        | "setsid" | "unbuffer" | "ncu" | "uv" | "catchsegv" | "chrt" => Wrapper::Plain,
        _ => return None,
    })
}

/// Programs whose words are no wrapper's any more.
fn is_launcher(name: &str) -> bool {
    let is_version = |rest: &str| rest.chars().all(|c| c.is_ascii_digit() || c == '.');
    let is_python = name.strip_prefix("python").is_some_and(is_version);
    is_python || matches!(name, "torchrun" | "accelerate")
}

/// What the words before a program change in its environment, in order.
pub(super) fn changes(before: &[Text]) -> Vec<Change> {
    let mut reader = Reader {
        words: before,
        at: 0,
        wrapper: Wrapper::Start,
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
    changes: Vec<Change>,
}

impl Reader<'_> {
    /// Reads one word, or one option and its value. Whether a launcher stands here.
    fn word(&mut self) -> bool {
        let word = &self.words[self.at];
        let (text, name) = (word.string(), base_name(word));
        if let "bash" | "sh" = name.as_str() {
            return self.shell();
        }
        if text == "deepspeed" || text.ends_with("/deepspeed") {
            // It reads a file `.deepspeed_env`.
            self.changes.push(Change::Open(word.span()));
            return true;
        }
        if is_launcher(&name) {
            return true;
        }
        if let Some(wrapper) = wrapper(&name) {
            self.wrapper = wrapper;
            if matches!(wrapper, Wrapper::Container | Wrapper::Sudo) {
                self.lose();
            }
            if wrapper == Wrapper::Apptainer {
                self.changes.push(Change::Open(word.span()));
            }
            return false;
        }
        match text.starts_with('-') {
            true => self.option(&text),
            false => self.operand(),
        }
        false
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

    /// A word that is no option: `NAME=value`, the value of an option, or a program.
    fn operand(&mut self) {
        let word = &self.words[self.at];
        let assigned = word.split_once('=').filter(|(name, _)| is_name(name));
        let sets = matches!(self.wrapper, Wrapper::Env | Wrapper::Sudo);
        if let (true, Some((name, value))) = (sets, assigned) {
            return self.changes.push(Change::Put(name, value));
        }
        let follows = |before: &Text| before.starts_with("-") && !before.string().contains('=');
        let is_value = self.at > 0 && follows(&self.words[self.at - 1]);
        let text = word.string();
        // Unless an option takes it, what is not known may be more options.
        let takes = |before: &Text| TAKE_ONE.contains(&&*before.string());
        let is_taken = self.at > 0 && takes(&self.words[self.at - 1]);
        let is_path = text.contains('/') || text.ends_with(".sh");
        let is_unknown = text.starts_with(['$', '`']);
        let is_other = match self.wrapper {
            Wrapper::Start => true,
            Wrapper::Env => !is_value,
            Wrapper::Container | Wrapper::Other => is_unknown,
            _ => (is_path && !is_value) || (is_unknown && !is_taken),
        };
        if is_other {
            self.wrapper = Wrapper::Other;
            self.lose();
        }
    }

    /// The word behind this one, which is then read.
    fn next(&mut self) -> Option<Text> {
        self.at += 1;
        self.words.get(self.at).cloned()
    }

    /// The value of `--name=value` or `--name value`.
    fn value(&mut self) -> Text {
        let value = self.words[self.at].split_once('=').map(|(_, value)| value);
        value.or_else(|| self.next()).unwrap_or_default()
    }

    fn option(&mut self, text: &str) {
        let name = text.split('=').next().unwrap_or_default();
        match self.wrapper {
            Wrapper::Start | Wrapper::Other => self.lose(),
            // `uv run --env-file`
            Wrapper::Plain if text.contains("env") => self.lose(),
            Wrapper::Plain => {}
            Wrapper::Env => self.of_env(text),
            Wrapper::Slurm if name == "--export" => {
                let value = self.value();
                let list = exported(&value);
                self.changes.extend(list);
            }
            Wrapper::Slurm => {
                let marks = ["env", "export", "prolog", "container", "propagate"];
                if marks.iter().any(|mark| name.contains(mark)) {
                    let open = Change::Open(self.words[self.at].span());
                    self.changes.push(open);
                }
            }
            Wrapper::Mpi => self.of_mpi(text),
            Wrapper::Sudo => {}
            Wrapper::Container if matches!(name, "-e" | "--env") => {
                let value = self.value();
                self.put(&value);
            }
            // `-eNAME=value`
            Wrapper::Container if text.starts_with("-e") => {
                self.put(&Text(self.words[self.at].0[2..].to_vec()));
            }
            Wrapper::Container => {}
            Wrapper::Apptainer if name == "--env" => self.list(),
            Wrapper::Apptainer => {
                const KEEP: [&str; 6] = ["--nv", "--bind", "-B", "--pwd", "--rocm", "--no-home"];
                if !KEEP.contains(&name) {
                    self.lose();
                }
            }
            Wrapper::Nsys if matches!(name, "-e" | "--env-var") => self.list(),
            Wrapper::Nsys => {}
        }
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
            }
            _ if text.contains("env") => self.lose(),
            "--mca" | "-mca" | "--prtemca" | "--pmixmca" | "--gmca" => {
                let name = self.next().unwrap_or_default().string();
                match name.contains("env") || name.contains(['$', '`']) {
                    true => self.lose(),
                    false => drop(self.next()),
                }
            }
            _ => {}
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
    exports || beginnings.iter().any(is_inner)
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
            });
        }
    }
}
