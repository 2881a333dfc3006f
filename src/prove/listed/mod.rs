//! Collectives that are listed, not derived from a recipe: our own list, or what PyTorch's flight
//! recorder kept of a rank.

mod flight;
mod own;

use std::collections::BTreeSet;
use std::path::Path;

use crate::diagnostic::{Diagnostic, Place, Source, SourceError, escaped};
use crate::numerics::Dtype;
use crate::plan::{Collective, Reduction};
use crate::prove::job_plans::Facts;
use crate::recipe::nccl::Function;
use crate::topology::MAX_RANKS;
use crate::train::StepCollective;
use crate::world::{Communicator, GroupId};

/// Bytes of the largest list that is read.
const BYTES_MAX: u64 = 256 << 20;
/// Elements of the largest buffer: its bytes, and what passes 65,536 ranks, fit 64 bits.
const ELEMENTS_MAX: u64 = 1 << 42;
/// Collectives of the longest list, and ranks of all their groups together.
const COLLECTIVES_MAX: usize = 100_000;
const MEMBERS_MAX: usize = 16 << 20;

/// A list of collectives.
#[derive(Clone, Debug)]
pub struct Listed {
    pub collectives: Vec<StepCollective>,
    pub communicators: Vec<Communicator>,
    /// Ranks that must be placed: the highest that is named, and one.
    pub world: u32,
    pub facts: Facts,
}

impl Listed {
    /// Reads a file of either form: a dump has `entries`.
    ///
    /// # Errors
    /// What is wrong with it, with its place.
    pub fn read(path: &Path) -> Result<Listed, Box<Diagnostic>> {
        let unreadable = |error: SourceError| {
            let named = Source::new(path.display().to_string(), "");
            let finding = Diagnostic::error("unreadable-file", error.to_string());
            Box::new(finding.at(&Place::new(&named, 0..0), ""))
        };
        let source = Source::read_lossy(path, BYTES_MAX).map_err(unreadable)?;
        Listed::of_source(&source)
    }

    fn of_source(source: &Source) -> Result<Listed, Box<Diagnostic>> {
        #[derive(serde::Deserialize)]
        struct Probe {
            entries: Option<serde::de::IgnoredAny>,
        }
        let probe: Probe = parsed(source)?;
        match probe.entries {
            Some(_) => flight::read(source),
            None => own::read(source),
        }
    }
}

/// What a file's JSON says.
fn parsed<'a, T: serde::Deserialize<'a>>(source: &'a Source) -> Result<T, Box<Diagnostic>> {
    serde_json::from_str(&source.text).map_err(|error| {
        let line_start: usize = source
            .text
            .split_inclusive('\n')
            .take(error.line().saturating_sub(1))
            .map(str::len)
            .sum();
        let at = (line_start + error.column().saturating_sub(1)).min(source.text.len());
        let message = format!("no list of collectives: {}", escaped(&error.to_string()));
        let finding = Diagnostic::error("collectives", message);
        let help = "docs/plan.md says which keys a list has";
        let place = Place::new(source, at..at);
        Box::new(finding.at(&place, "read up to here").with_help(help))
    })
}

/// What is wrong with a file that is JSON of the right shape.
fn wrong(source: &Source, message: &str) -> Box<Diagnostic> {
    let finding = Diagnostic::error("collectives", escaped(message));
    Box::new(finding.at(&Place::new(source, 0..0), "in this list"))
}

/// One collective as a file has it.
struct Entry {
    name: String,
    collective: Collective,
    reduction: Reduction,
    dtype: Dtype,
    elements: u64,
    times: u64,
    /// By group: its name and its global ranks.
    groups: Vec<(String, Vec<u32>)>,
}

/// A list while it is put together.
struct List<'a> {
    source: &'a Source,
    collectives: Vec<StepCollective>,
    communicators: Vec<Communicator>,
    names: BTreeSet<String>,
    members: usize,
}

impl<'a> List<'a> {
    fn new(source: &'a Source) -> List<'a> {
        List {
            source,
            collectives: Vec::new(),
            communicators: Vec::new(),
            names: BTreeSet::new(),
            members: 0,
        }
    }

    fn add(&mut self, entry: Entry) -> Result<(), Box<Diagnostic>> {
        let name = entry.name;
        let bad = |why: String| wrong(self.source, &format!("`{name}`: {why}"));
        if !self.names.insert(name.clone()) {
            return Err(bad("two collectives have this name".to_string()));
        }
        if self.collectives.len() >= COLLECTIVES_MAX {
            return Err(bad(format!("more than {COLLECTIVES_MAX} collectives")));
        }
        if entry.elements == 0 || entry.times == 0 {
            return Err(bad("expected at least one element and one time".to_string()));
        }
        if entry.elements > ELEMENTS_MAX || entry.times > ELEMENTS_MAX {
            return Err(bad(format!("more than {ELEMENTS_MAX} elements or times")));
        }
        let Some((_, first)) = entry.groups.first() else {
            return Err(bad("no groups".to_string()));
        };
        let ranks = first.len();
        let mut groups = Vec::new();
        for (group, members) in &entry.groups {
            let distinct: BTreeSet<u32> = members.iter().copied().collect();
            self.members += members.len();
            if members.len() != ranks || ranks == 0 || distinct.len() != ranks {
                let why = "groups must have the same number of ranks, none twice";
                return Err(bad(why.to_string()));
            }
            if distinct.last().is_some_and(|rank| *rank >= MAX_RANKS) {
                return Err(bad(format!("ranks are below {MAX_RANKS}")));
            }
            if self.members > MEMBERS_MAX {
                return Err(bad(format!("more than {MEMBERS_MAX} ranks of all groups")));
            }
            groups.push(GroupId(self.communicators.len() as u32));
            self.communicators.push(Communicator {
                name: group.clone(),
                ranks: members.clone().into(),
            });
        }
        self.collectives.push(StepCollective {
            name,
            family: None,
            collective: entry.collective,
            reduction: entry.reduction,
            dtype: entry.dtype,
            elements: entry.elements,
            groups,
            times: entry.times,
        });
        Ok(())
    }

    fn finish(self, mut facts: Facts) -> Result<Listed, Box<Diagnostic>> {
        if self.collectives.is_empty() {
            return Err(wrong(self.source, "no collective in it adds anything"));
        }
        let function = |one: &StepCollective| match one.collective {
            Collective::AllReduce => Some(Function::AllReduce),
            Collective::ReduceScatter => Some(Function::ReduceScatter),
            Collective::Reduce { .. } => Some(Function::Reduce),
            _ => None,
        };
        let functions: BTreeSet<Function> = self.collectives.iter().filter_map(function).collect();
        facts.functions = functions.into_iter().collect();
        let members = self
            .communicators
            .iter()
            .flat_map(|group| group.ranks.iter());
        Ok(Listed {
            world: members.max().map_or(0, |rank| rank + 1),
            collectives: self.collectives,
            communicators: self.communicators,
            facts,
        })
    }
}
