//! What verbs are told that read tensors of real ranks.

use std::path::{Path, PathBuf};

use clap::Args;

use super::manifest::Float;
use crate::diagnostic::{Diagnostic, Place, Source};
use crate::numerics::Dtype;
use crate::plan::identify::Operation;
use crate::scenario::placed_any;
use crate::topology::Allocation;
use crate::trace::shards::{Wanted, finding};

/// An operation by the name of its option.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum Given {
    #[default]
    AllReduce,
    ReduceScatter,
    Reduce,
}

/// Each rank's tensor, and what was done with them.
#[derive(Debug, Args)]
pub(super) struct Captured {
    /// A folder of each rank's input: a file a rank, .safetensors or .bin, the last number of its
    /// name the rank (`identify`: or a folder of `plan probe` that the script has run in)
    #[arg(long, value_name = "DIR")]
    pub inputs: PathBuf,
    /// The global ranks of the group, in its order [default: all of the topology's]
    #[arg(
        long,
        value_name = "R,R,...",
        value_delimiter = ',',
        requires = "topology"
    )]
    ranks: Vec<u32>,
    /// What was done [default: all-reduce, or what the probe says]
    #[arg(long, value_enum, value_name = "OPERATION")]
    operation: Option<Given>,
    /// The rank of the group that a reduce leaves its result on
    #[arg(long, value_name = "R", default_value_t = 0)]
    root: u32,
    /// The type of .bin files
    #[arg(long, value_enum, value_name = "TYPE")]
    dtype: Option<Float>,
    /// The tensor in safetensors files that have several
    #[arg(long, value_name = "NAME")]
    tensor: Option<String>,
}

impl Captured {
    pub fn wanted(&self) -> Wanted {
        Wanted {
            dtype: self.dtype.map(Dtype::from),
            tensor: self.tensor.clone(),
        }
    }

    /// What was done with inputs of so many elements.
    pub fn operation(&self, ranks: u32, elements: usize) -> Result<Operation, Box<Diagnostic>> {
        if elements == 0 {
            return Err(finding("wrong-size", "no elements", &self.inputs));
        }
        Ok(match self.operation.unwrap_or_default() {
            Given::AllReduce => Operation::AllReduce,
            Given::ReduceScatter if elements.is_multiple_of(ranks as usize) => {
                Operation::ReduceScatter
            }
            Given::ReduceScatter => {
                let message = format!("{elements} elements do not divide into {ranks} blocks");
                return Err(finding("uneven-blocks", &message, &self.inputs));
            }
            Given::Reduce if self.root < ranks => Operation::Reduce { root: self.root },
            Given::Reduce => {
                let message = format!("`--root {}`: inputs are of {ranks} ranks", self.root);
                return Err(Box::new(Diagnostic::error("usage", message)));
            }
        })
    }

    /// The allocation and the group's ranks on it; without a topology, ranks by their number.
    pub fn group(
        &self,
        topology: Option<&Path>,
        ranks: u32,
    ) -> Result<(Option<Allocation>, Vec<u32>), Vec<Diagnostic>> {
        let Some(path) = topology else {
            return Ok((None, (0..ranks).collect()));
        };
        let members = match &self.ranks[..] {
            [] => (0..ranks).collect(),
            given => given.to_vec(),
        };
        let most = members.iter().copied().max().unwrap_or(0);
        let allocation = placed_any(path, most.saturating_add(1))?;
        let mut sorted = members.clone();
        sorted.sort_unstable();
        sorted.dedup();
        // Which ranks of a larger job these are must be said.
        let world = allocation.placement.world();
        let is_said = !self.ranks.is_empty() || world == ranks;
        if is_said && members.len() == ranks as usize && sorted.len() == members.len() {
            return Ok((Some(allocation), members));
        }
        let message = match self.ranks.is_empty() {
            true => format!("{world} ranks are placed, and there are inputs of {ranks}"),
            false => format!(
                "`--ranks` names {} different ranks, and there are inputs of {ranks}",
                sorted.len()
            ),
        };
        let file = Source::new(path.display().to_string(), "");
        let found = Diagnostic::error("world-mismatch", message);
        let found = found.at(&Place::new(&file, 0..0), "of this topology");
        Err(vec![
            found.with_help("one for each input: `--ranks 0,8,16`"),
        ])
    }
}
