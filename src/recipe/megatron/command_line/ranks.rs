//! How many ranks a launch starts: `torchrun`'s options, else those of `mpirun` or `srun`, else
//! what a batch script asks of Slurm.
//!
//! Sources: `torchrun --help` (a node and a process where nothing is said); the manual pages of
//! `mpirun` (Open MPI), `mpiexec` (MPICH) and `srun`.

use super::launcher::TORCHRUN;
use super::program::{Launch, base_name};
use super::slurm;
use super::text::Text;
use super::wrapper::MPI_LAUNCHERS;
use super::{Diagnostic, Findings, GivenVariable, Reader, escaped};

const MPI_PROCESSES: [&str; 5] = ["-np", "--np", "-n", "--n", "-c"];
const MPI_PER_NODE: [&str; 5] = ["-npernode", "--npernode", "-ppn", "--ppn", "-N"];

/// Options of one launcher: a name and a value each.
struct Options(Vec<(String, Text)>);

impl Options {
    fn last(&self, names: &[&str]) -> Option<Text> {
        let is_named = |(name, _): &&(String, Text)| names.contains(&name.as_str());
        let last = self.0.iter().rev().find(is_named);
        last.map(|(_, value)| value.clone())
    }

    fn last_beginning(&self, beginning: &str) -> Option<Text> {
        let begins = |(name, _): &&(String, Text)| name.starts_with(beginning);
        let last = self.0.iter().rev().find(begins);
        last.map(|(_, value)| value.clone())
    }
}

/// What torchrun starts where its options do not say: what the variable says, such as
/// `PET_NPROC_PER_NODE`, else one process on a node, and one node (`torch/distributed/run.py`).
fn torchrun_default(launch: &Launch, variable: &str) -> Option<Text> {
    let is_it = |word: &&Text| TORCHRUN.contains(&&*base_name(word));
    let at = launch.before.iter().find(is_it)?.0.last()?.1;
    let named = |exported: &&super::Exported| exported.name == variable;
    let told = launch.environment.iter().find(named);
    let value = told.map_or("1", |exported| exported.value.as_str());
    Some(Text(value.chars().map(|c| (c, at)).collect()))
}

/// The words behind one of `launchers`, up to the next program that launches.
fn options_of(before: &[Text], launchers: &[&str]) -> Option<Options> {
    const NEXT: [&str; 6] = ["torchrun", "python", "python3", "bash", "sh", "env"];
    let is_it = |word: &Text| launchers.contains(&&*base_name(word));
    let start = before.iter().rposition(is_it)? + 1;
    let is_next = |word: &Text| NEXT.contains(&&*base_name(word));
    let rest = &before[start..];
    let end = rest.iter().position(is_next).unwrap_or(rest.len());
    Some(Options(slurm::options(&rest[..end])))
}

/// `--num_gpus` times `--num_nodes`; a file of hosts, or a choice of them, says more.
fn of_deepspeed(options: &Options, launch: &Launch) -> [(&'static str, Option<Text>); 2] {
    let more = ["--include", "-i", "--exclude", "-e", "--hostfile", "-H"];
    let per_node = options.last(&["--num_gpus"]);
    match options.last(&more) {
        Some(_) => {
            let is_it = |word: &&Text| base_name(word) == "deepspeed";
            let last = launch
                .before
                .iter()
                .find(is_it)
                .and_then(|word| word.0.last());
            let at = last.map_or(0, |(_, at)| *at);
            let unknown = Text("$hosts".chars().map(|c| (c, at)).collect());
            [("GPUS_PER_NODE", Some(unknown)), ("NNODES", None)]
        }
        None => [
            ("GPUS_PER_NODE", per_node),
            ("NNODES", options.last(&["--num_nodes"])),
        ],
    }
}

impl Reader<'_> {
    /// `GPUS_PER_NODE` and `NNODES`, or `WORLD_SIZE`: what is known of them.
    pub(super) fn ranks(&self, launch: &Launch, findings: &mut Findings) -> Vec<GivenVariable> {
        let all = Options(slurm::options(&launch.before));
        // As its parser does, torchrun takes the beginning of an option for the whole.
        let nodes = all
            .last_beginning("--nn")
            .or_else(|| torchrun_default(launch, "PET_NNODES"));
        let per_node = all
            .last_beginning("--nproc")
            .or_else(|| torchrun_default(launch, "PET_NPROC_PER_NODE"));
        let found = if per_node.is_some() || nodes.is_some() {
            [("GPUS_PER_NODE", per_node), ("NNODES", nodes)]
        } else {
            self.tasks(launch)
        };
        let mut known = Vec::new();
        for (name, value) in found {
            let Some(value) = value else { continue };
            let text = value.string();
            let is_word = matches!(text.as_str(), "gpu" | "cpu" | "auto" | "xpu");
            let is_open = text.contains(['$', '`']) || is_word;
            let is_number = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
            if !is_number && !is_open && name == "GPUS_PER_NODE" {
                let message = format!("`{}` is no number of processes", escaped(&text));
                let at = if text.is_empty() {
                    launch.at()
                } else {
                    value.span()
                };
                findings.push(
                    Diagnostic::error("wrong-value", message)
                        .at(&self.place(&at), "expected a whole number above 0"),
                );
                continue;
            }
            if !is_number {
                findings.push(self.unknown_ranks(name, &value));
                // Whether there is one node only is told by what is left of the number.
                if name != "NNODES" {
                    continue;
                }
            }
            known.push(GivenVariable {
                name: name.to_string(),
                value: text,
                place: self.place(&value.span()),
            });
        }
        known
    }

    /// Processes that another launcher starts, one a rank.
    fn tasks(&self, launch: &Launch) -> [(&'static str, Option<Text>); 2] {
        if let Some(mpi) = options_of(&launch.before, &MPI_LAUNCHERS) {
            return match mpi.last(&MPI_PROCESSES) {
                Some(all) => [("WORLD_SIZE", Some(all)), ("NNODES", None)],
                // One node, as far as this tells.
                None => [("GPUS_PER_NODE", mpi.last(&MPI_PER_NODE)), ("NNODES", None)],
            };
        }
        let of = |launcher, name| options_of(&launch.before, &[launcher])?.last(&[name]);
        if let Some(deepspeed) = options_of(&launch.before, &["deepspeed"]) {
            return of_deepspeed(&deepspeed, launch);
        }
        let processes = of("accelerate", "--num_processes");
        if let Some(all) = processes.or_else(|| of("accelerate", "--num-processes")) {
            return [("WORLD_SIZE", Some(all)), ("NNODES", None)];
        }
        // What a batch script asks for is what `srun` starts: a program alone is one process.
        let Some(srun) = options_of(&launch.before, &["srun"]) else {
            return [("GPUS_PER_NODE", None), ("NNODES", None)];
        };
        let (all, per_node, nodes) = (
            srun.last(&["--ntasks", "-n"]),
            srun.last(&["--ntasks-per-node"]),
            srun.last(&["--nodes", "-N"]),
        );
        let is_bare = per_node.is_none() && nodes.is_none();
        match all.or_else(|| self.preset("SLURM_NTASKS").filter(|_| is_bare)) {
            Some(all) => [("WORLD_SIZE", Some(all)), ("NNODES", None)],
            None => [
                (
                    "GPUS_PER_NODE",
                    per_node.or_else(|| self.preset("SLURM_NTASKS_PER_NODE")),
                ),
                ("NNODES", nodes.or_else(|| self.preset("SLURM_NNODES"))),
            ],
        }
    }

    fn preset(&self, variable: &str) -> Option<Text> {
        let is_it = |(name, _): &&(Text, Text)| name.string() == variable;
        let preset = self.preset.iter().find(is_it);
        preset.map(|(_, value)| value.clone())
    }

    fn unknown_ranks(&self, name: &str, value: &Text) -> Diagnostic {
        let shown = escaped(&value.string()).into_owned();
        let (what, taken) = match name {
            "NNODES" => ("nodes", "one node is assumed"),
            _ => ("processes", "the number of ranks is assumed"),
        };
        let message = format!("`{shown}` is no number of {what} that is known here");
        Diagnostic::warning("unset-variable", message)
            .at(&self.place(&value.span()), taken)
            .with_help("`--world N` says how many ranks there are")
    }
}
