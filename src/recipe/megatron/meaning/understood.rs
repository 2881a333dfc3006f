//! What a job was understood to be.

use serde::{Serialize, Serializer};

use super::fields::CaseFields;
use crate::diagnostic::{Diagnostic, Place};
use crate::recipe::{Recipe, ReshardLayout};

/// What becomes of an argument or a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Verdict {
    /// The recipe follows it.
    #[serde(rename = "used")]
    Used,
    /// It names what bitproof has in its own form: text, tokenizer, files, kernels. Of a variable
    /// from which bits may follow so: the certificate names it under *not covered*.
    #[serde(rename = "replaced")]
    Replaced,
    /// No bit of a training step follows from it.
    #[serde(rename = "changes no bits")]
    NoBits,
    /// The recipe cannot be simulated with it.
    #[serde(rename = "unsupported")]
    Unsupported,
    /// Megatron knows no such argument, or not this value of it.
    #[serde(rename = "invalid")]
    Invalid,
    /// A variable that the catalogue does not hold. Of the libraries that decide bits, the
    /// certificate names it under *not covered*.
    #[serde(rename = "unknown")]
    Unknown,
}

impl Verdict {
    pub const ALL: [Verdict; 6] = [
        Verdict::Used,
        Verdict::Replaced,
        Verdict::NoBits,
        Verdict::Unsupported,
        Verdict::Invalid,
        Verdict::Unknown,
    ];

    pub fn words(self) -> &'static str {
        match self {
            Verdict::Used => "used",
            Verdict::Replaced => "replaced",
            Verdict::NoBits => "changes no bits",
            Verdict::Unsupported => "unsupported",
            Verdict::Invalid => "invalid",
            Verdict::Unknown => "unknown",
        }
    }
}

/// An argument or a variable with what it means here.
#[derive(Clone, Debug, Serialize)]
pub struct JudgedArgument {
    /// As written.
    pub flag: String,
    /// As written; absent for a flag without a value.
    pub value: Option<String>,
    pub verdict: Verdict,
    /// What it sets, where Megatron reads it and why that changes no bits, or what it needs.
    pub reason: String,
    #[serde(serialize_with = "file_and_line")]
    pub place: Place,
}

/// How many arguments and variables were understood how, in words.
pub fn tally<'a>(judged: impl Iterator<Item = &'a JudgedArgument> + Clone) -> String {
    let count = |kind: Verdict| {
        let count = judged.clone().filter(|one| one.verdict == kind).count();
        (count > 0).then(|| match kind {
            Verdict::NoBits => format!("{count} change no bits"),
            other => format!("{count} {}", other.words()),
        })
    };
    let counts: Vec<String> = Verdict::ALL.into_iter().filter_map(count).collect();
    counts.join(", ")
}

/// `file:line:column`, counted from 1.
fn file_and_line<S: Serializer>(place: &Place, serializer: S) -> Result<S::Ok, S::Error> {
    let (line, column) = place.source.line_column(place.span.start);
    serializer.serialize_str(&format!("{}:{line}:{column}", place.source.name))
}

/// How the number of ranks was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum WorldBasis {
    /// `--world`.
    Given,
    /// `world_size` of a job log.
    Logged,
    /// A functional test's `GPUS_PER_NODE`, or 8, times `NUM_NODES`, where either is given.
    GpusPerNode,
    /// `--nproc-per-node`, times `--nnodes`, of `torchrun`; `trainer.devices` times
    /// `trainer.num_nodes`.
    Launcher,
    /// Nothing says: 8, the GPUs of one node of Megatron's functional tests.
    Assumed,
}

/// Ranks of the job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct World {
    pub size: u32,
    pub basis: WorldBasis,
    /// The basis in words, with names and numbers.
    pub reason: String,
}

/// A value that no argument states, and what it follows from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Derivation {
    /// A key of our recipe, such as `determinism.attention_backward`.
    pub key: &'static str,
    pub value: String,
    /// With its source.
    pub reason: String,
}

/// How a functional test runs the job more than once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Rerun {
    /// The step that the test resumes from, half of `train_iters`: its first run ends at
    /// `train_iters`, its second starts here.
    pub restarts: Vec<u32>,
    /// The layout that the job is resumed on: that of `MODEL_ARGS_2`, else of a case's name
    /// `_reshard_TPxPPxVPP`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resharding: Option<ReshardLayout>,
    /// What of the job holds for its own layout only.
    #[serde(skip)]
    pub bound: Vec<Bound>,
    /// How the vocabulary is padded, where that follows from the layout.
    #[serde(skip)]
    pub padding: Option<Padding>,
}

/// A vocabulary that is padded to a multiple of `unit` for each tensor-parallel rank
/// (`vocab_size_with_padding`, `megatron/training/utils.py`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Padding {
    pub words: u64,
    /// Above 0.
    pub unit: u64,
}

impl Padding {
    /// The padded size on `tp` tensor-parallel ranks.
    pub fn padded(self, tp: u32) -> u64 {
        let multiple = self.unit.saturating_mul(u64::from(tp.max(1)));
        self.words.div_ceil(multiple).saturating_mul(multiple)
    }
}

/// What cannot be resumed on another layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// The torch format: `check_checkpoint_args` compares the layout.
    Format,
    /// The cyclic sampler deals each data-parallel rank samples of its own
    /// (`MegatronPretrainingRandomSampler`, `megatron/training/datasets/data_samplers.py`).
    Samples,
    /// Without `--global-batch-size` a batch is the micro batch times the data-parallel size.
    Batch,
}

impl Bound {
    /// The argument that makes it so.
    pub fn dest(self) -> &'static str {
        match self {
            Bound::Format => "ckpt_format",
            Bound::Samples => "dataloader_type",
            Bound::Batch => "micro_batch_size",
        }
    }

    /// That the job is not resumed on `layout`, asked for at `place`.
    pub fn refusal(self, layout: ReshardLayout, place: &Place) -> Diagnostic {
        Diagnostic::error("resume-refused", format!("not resumed on {layout}"))
            .at(place, self.words())
            .with_help(self.help())
    }

    fn words(self) -> &'static str {
        match self {
            Bound::Format => "a checkpoint in the torch format is of one layout",
            Bound::Samples => {
                "the cyclic data loader deals samples by the data-parallel size: on another, a \
                 batch has others"
            }
            Bound::Batch => {
                "without `--global-batch-size` a batch is the micro batch times the data-parallel \
                 size: on another it is another batch"
            }
        }
    }

    fn help(self) -> &'static str {
        match self {
            Bound::Format => "use `--ckpt-format torch_dist`",
            Bound::Samples => "add `--no-data-sharding`, or use `--dataloader-type single`",
            Bound::Batch => "say `--global-batch-size`",
        }
    }
}

impl Rerun {
    /// What keeps a job of `own` (tensor, pipeline) parallelism from going on on `layout`.
    pub fn bound_to_layout(&self, own: (u32, u32), layout: ReshardLayout) -> Option<Bound> {
        let asked = (
            layout.tensor_model_parallel_size,
            layout.pipeline_model_parallel_size,
        );
        // The ranks stay: data parallelism changes with their product.
        let ranks = |(tensor, pipeline): (u32, u32)| u64::from(tensor) * u64::from(pipeline);
        let holds = |bound: &&Bound| match bound {
            Bound::Format => true,
            Bound::Samples | Bound::Batch => ranks(own) != ranks(asked),
        };
        self.bound.iter().find(holds).copied()
    }

    /// What a resume on `layout` leaves open where its tensor parallelism pads the vocabulary to
    /// another size than the job's own, `tp`.
    pub fn repadded(&self, tp: u32, layout: ReshardLayout) -> Option<String> {
        let padding = self.padding?;
        let own = padding.padded(tp);
        let other = padding.padded(layout.tensor_model_parallel_size);
        (own != other).then(|| {
            format!(
                "the vocabulary on {layout}: Megatron-LM pads it to {other} words there and to \
                 {own} here (vocab_size_with_padding), so that the embedding and the softmax have \
                 other sizes; bitproof keeps {own}. `--padded-vocab-size` settles it"
            )
        })
    }
}

/// One phase of a job, understood.
#[derive(Clone, Debug, Serialize)]
pub struct Understood {
    /// What the job asks for, by Megatron's names.
    #[serde(flatten)]
    pub fields: CaseFields,
    /// As `fields`, of the phase that `recipe` is of.
    #[serde(skip)]
    pub own: CaseFields,
    /// The phase that `recipe` is of, from 0. The fields above are those of the first.
    pub phase: usize,
    pub world: World,
    pub rerun: Rerun,
    /// Every argument of the phase, in order.
    pub arguments: Vec<JudgedArgument>,
    /// Every environment variable, in order.
    pub variables: Vec<JudgedArgument>,
    /// Values that follow from several arguments, or from none.
    pub derived: Vec<Derivation>,
    /// What the job leaves to its libraries and bitproof does in one way: named under
    /// *not covered*.
    #[serde(skip)]
    pub open: Vec<String>,
    /// What the job needs and bitproof cannot do, in the order of the arguments that ask for it.
    pub needs: Vec<String>,
    /// At full size. `None` where `needs` is not empty, or findings have errors.
    pub recipe: Option<Recipe>,
}

/// What the caller knows beyond the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnderstandOptions {
    /// `--world`.
    pub world: Option<u32>,
    /// Which phase the recipe is of, from 0.
    pub phase: usize,
}
