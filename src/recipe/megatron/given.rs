//! What a file says, before anything is made of it: arguments, variables, and where they stand.

use crate::diagnostic::Place;

/// Which kind of text the arguments come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GivenKind {
    /// `tests/functional_tests/test_cases/*/*/model_config.yaml` of Megatron-LM.
    FunctionalTest,
    /// The block `------------------------ arguments ------------------------` that Megatron
    /// prints at its start: every argument with the value that it ended up with.
    ArgumentDump,
    /// A launch line or script: `--flag value` words.
    CommandLine,
}

/// The value of one argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GivenValue {
    /// A flag without a value, or `true`.
    On,
    /// `false`.
    Off,
    /// Python's `None` in a dump, Hydra's `null`, or an empty text, which is not passed on.
    Nothing,
    /// One word, as written; `${VARIABLES}` stand in it unreplaced.
    Text(String),
    /// Several words: `[a b]`, a Python list, or words after a flag.
    List(Vec<String>),
}

/// One argument as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GivenArgument {
    /// As written: `--num-layers`, `trainer.devices`, or `num_layers` in a dump.
    pub flag: String,
    pub value: GivenValue,
    pub flag_place: Place,
    pub value_place: Place,
}

/// One environment variable as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GivenVariable {
    pub name: String,
    pub value: String,
    pub place: Place,
}

/// The arguments of one run of a case: `MODEL_ARGS`, `MODEL_ARGS_2` ...
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GivenPhase {
    pub name: String,
    pub place: Place,
    pub arguments: Vec<GivenArgument>,
    /// `MODEL_ENV_VARS.<name>`, such as `GPUS_PER_NODE`.
    pub variables: Vec<GivenVariable>,
    /// Commands of a script that are not read here, and that may have set any variable.
    pub reads: Option<Place>,
    /// Where a script is more than assignments and a launch, if it is.
    pub followed: Option<Place>,
    /// Variables from which bits follow, and words of the launch, where a script leaves their
    /// values to whoever starts it, and the `${NAME:-word}` whose word is taken.
    pub assumed: Vec<(String, Place)>,
    /// Whether its program is started by `python`, and by no launcher that sets `WORLD_SIZE`.
    pub is_alone: bool,
    /// Whether there are arguments and no program: how it is started stands elsewhere.
    pub is_list: bool,
}

/// Everything a file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GivenJob {
    pub kind: GivenKind,
    /// In order; at least one.
    pub phases: Vec<GivenPhase>,
    pub env: Vec<GivenVariable>,
    pub test_type: Option<String>,
    pub mode: Option<String>,
    pub launcher: Option<String>,
    /// The name of the folder that holds a functional test's file.
    pub case: Option<String>,
    /// The name of the folder around that one: Megatron's tests are sorted by model.
    pub model: Option<String>,
}

impl GivenJob {
    /// The variables of one phase: the file's, then its own. `setting` says which counts.
    pub fn variables(&self, phase: usize) -> impl DoubleEndedIterator<Item = &GivenVariable> {
        self.env.iter().chain(&self.phases[phase].variables)
    }

    /// The setting of a variable that counts in a phase.
    pub fn variable(&self, phase: usize, name: &str) -> Option<&GivenVariable> {
        setting(self.variables(phase), name)
    }

    /// Whether all of a phase's environment stands in the file: a log and a list of arguments show
    /// arguments only, and what a script reads, or the tools that it calls, may set more.
    pub fn shows_environment(&self, phase: usize) -> bool {
        let phase = &self.phases[phase];
        self.kind != GivenKind::ArgumentDump && !phase.is_list && phase.reads.is_none()
    }

    /// Whether it is a test whose second run goes on from half the steps of its first
    /// (`run_ci_test.sh`).
    pub fn resumes(&self) -> bool {
        self.test_type.as_deref() == Some("ckpt-resume") || self.resumes_from_stored()
    }

    /// Whether that run goes on from a checkpoint that is stored, not from the first run's.
    pub fn resumes_from_stored(&self) -> bool {
        self.test_type.as_deref() == Some("frozen-resume")
    }

    /// The phase that a `ckpt-resume` test resumes the phase `index` with, if it is another.
    pub fn resumed_phase(&self, index: usize) -> Option<usize> {
        let is_first = self.resumes() && self.phases[index].name == FIRST;
        let mut phases = self.phases.iter();
        phases
            .position(|phase| phase.name == SECOND)
            .filter(|_| is_first)
    }

    /// The program that a functional test runs, and where that is said: `TRAINING_SCRIPT_PATH`,
    /// else what the recipe of the folder's model sets (`tests/test_utils/recipes/*.yaml`).
    pub fn test_program(&self, phase: usize) -> Option<(&str, &Place)> {
        if self.kind != GivenKind::FunctionalTest {
            return None;
        }
        if let Some(said) = self.variable(phase, "TRAINING_SCRIPT_PATH") {
            return Some((&said.value, &said.place));
        }
        let model = self.model.as_deref()?;
        let program = PROGRAMS.iter().find(|(name, _)| *name == model);
        program.map(|(_, program)| (*program, &self.phases[phase].place))
    }

    /// [`GivenJob::variables`] in a list of its own.
    pub fn environment(&self, phase: usize) -> Vec<GivenVariable> {
        self.variables(phase).cloned().collect()
    }
}

/// The arguments of a functional test's first run, and those of its second.
pub(super) const FIRST: &str = "MODEL_ARGS";
pub(super) const SECOND: &str = "MODEL_ARGS_2";

/// Programs of Megatron's functional tests by model, but `pretrain_gpt.py`.
const PROGRAMS: [(&str, &str); 6] = [
    ("bert", "pretrain_bert.py"),
    ("t5", "pretrain_t5.py"),
    ("mamba", "pretrain_mamba.py"),
    ("hybrid", "pretrain_mamba.py"),
    ("multimodal-llava", "pretrain_vlm.py"),
    ("mimo", "examples/mimo/train.py"),
];

/// The setting of a variable that counts where it is set more than once: the last, an empty one
/// too.
pub fn setting<'v>(
    variables: impl IntoIterator<Item = &'v GivenVariable, IntoIter: DoubleEndedIterator>,
    name: &str,
) -> Option<&'v GivenVariable> {
    let mut variables = variables.into_iter();
    variables.rfind(|variable| variable.name == name)
}
