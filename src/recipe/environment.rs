//! The job's environment variables.

use std::collections::BTreeMap;

use super::megatron::{not_covered, variable};
use super::nccl::{Environment, EnvironmentError, Function, SIMULATED};
use super::{ENV_COUNT_MAX, Recipe};
use crate::diagnostic::document::{Entry, Table, Value};
use crate::diagnostic::{Diagnostic, Findings, nearest};

/// Reads the table `env`: strings, or integers as a convenience.
pub(super) fn environment(table: &Table, findings: &mut Findings) -> BTreeMap<String, String> {
    let mut variables = BTreeMap::new();
    if table.entries.len() > ENV_COUNT_MAX {
        let label = format!("expected at most {ENV_COUNT_MAX} variables");
        findings
            .push(Diagnostic::error("too-many", "`env` is absurdly long").at(&table.place, label));
        return variables;
    }
    for (name, entry) in &table.entries {
        // POSIX.1, 8.1: names contain no `=`; a name that steers a terminal is no typo.
        if name.is_empty() || name.contains(|c: char| c == '=' || c.is_control()) {
            findings.push(
                Diagnostic::error("env-name", format!("`{name}` names no variable"))
                    .at(&entry.key, "expected a name such as NCCL_ALGO"),
            );
            continue;
        }
        let value = match &entry.item.value {
            Value::Text(text) => text.clone(),
            Value::Integer(number) => number.to_string(),
            other => {
                let message = format!("`env.{name}` is {}", other.kind());
                findings.push(
                    Diagnostic::error("wrong-type", message)
                        .at(&entry.item.place, "expected a string or an integer"),
                );
                continue;
            }
        };
        // An empty value is none.
        if !SIMULATED.contains(&name.as_str()) && !value.is_empty() {
            findings.push(without_effect(name, &value, entry));
        }
        variables.insert(name.clone(), value);
    }
    variables
}

fn without_effect(name: &str, value: &str, entry: &Entry) -> Diagnostic {
    let finding = Diagnostic::warning(
        "env-without-effect",
        format!("`{name}` changes nothing here"),
    )
    .at(&entry.key, "not simulated");
    if variable(name).is_some() {
        return match not_covered(name, value) {
            Some(what) => finding.with_note(format!("not covered: {what}")),
            None => finding,
        };
    }
    match nearest(name, SIMULATED) {
        Some(known) => finding.with_help(format!("did you mean `{known}`?")),
        None => finding.with_note(format!("simulated variables: {}", SIMULATED.join(", "))),
    }
}

/// The workspaces with which cuBLAS promises the same bits in every run, whatever streams are
/// active (cuBLAS documentation, results reproducibility).
pub(crate) const CUBLAS_WORKSPACES: [&str; 2] = [":4096:8", ":16:8"];

/// Why a job whose environment leaves cuBLAS's workspace open is not covered in this.
const CUBLAS_OPEN: &str = "where several streams are active cuBLAS may pick another product, and \
    another split of it, from run to run, unless it is :4096:8 or :16:8; here the parts of a split \
    are as determinism.wgrad_split_k says";

impl Recipe {
    /// Variables of the environment from which bits follow in a way that is not simulated, each
    /// with what it decides.
    pub fn variables_not_covered(&self) -> impl Iterator<Item = (&str, &'static str)> {
        let variables = self.env.iter();
        variables.filter_map(|(name, value)| {
            let what = match name.as_str() {
                // Empty where the job is known not to set it.
                "CUBLAS_WORKSPACE_CONFIG" => {
                    let is_fixed = CUBLAS_WORKSPACES.contains(&value.as_str());
                    (!is_fixed).then_some(CUBLAS_OPEN)?
                }
                _ => not_covered(name, value)?,
            };
            Some((name.as_str(), what))
        })
    }

    /// Why no plan can be made of a reduction of this job, whose variables are readable.
    pub fn nccl_refusal(&self) -> Option<EnvironmentError> {
        let variables = self.env.iter();
        let read =
            Environment::parse(variables.map(|(name, value)| (name.as_str(), value.as_str())));
        match read {
            Ok(environment) => environment.refused(&self.nccl_reductions()),
            Err(error) => Some(error),
        }
    }

    /// NCCL's functions that add or compare values in a step of this job, as far as NCCL chooses
    /// their algorithm: a reduce-scatter with fp32 accumulation is an all-to-all.
    pub fn nccl_reductions(&self) -> Vec<Function> {
        let by_all_to_all = self.ddp_reduce_scatter_with_fp32_accumulation;
        let gradients = self.use_distributed_optimizer && self.data_parallel_size() > 1;
        let activations = self.sequence_parallel && self.tensor_model_parallel_size > 1;
        let mut functions = Vec::new();
        if self.world_size > 1 {
            functions.push(Function::AllReduce);
        }
        if activations || (gradients && !by_all_to_all) {
            functions.push(Function::ReduceScatter);
        }
        functions
    }
}
