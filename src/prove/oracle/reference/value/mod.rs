//! REF, the part that says *how much*: what the ranks compute against a serial model of the same
//! recipe, tensor by tensor, within a bound from error analysis.
//!
//! **What is compared.** Step by step, each from the parallel run's own whole state before it, so
//! that no error is carried from one step into the next and every bound is that of one step:
//!
//! 1. *token losses* and the *gradients* that optimizers read, against a serial step;
//! 2. the *norm* and the clip coefficient, against those of the very same gradients;
//! 3. the *state* after the step (parameters, main parameters, moments, counters), against a serial
//!    optimizer on the very same gradients, clip and state: nothing is summed there, so every bit
//!    must agree;
//! 4. the *loss* that is printed, against the mean of the very same token losses.
//!
//! **The bound of 1.** Write `F` for a step in exact arithmetic, `P` and `S` for what the parallel
//! and the serial run give. To first order in the unit roundoff an error is linear in the roundings
//! behind it, `S_i - F_i = sum_j J_ij d_j` with `|d_j| <= u` (Higham, Accuracy and Stability of
//! Numerical Algorithms, 2nd edition, chapter 3). With independent roundings of mean zero it is
//! beyond `l s_i`, `s_i^2` its variance, with a probability of at most `2 exp(-l^2 / 2)` (Higham
//! and Mary, A New Approach to Probabilistic Rounding Error Analysis, SIAM J. Sci. Comput. 41,
//! 2019). `J` is not formed: `s_i` is measured as the difference of two serial runs, one in the
//! recipe's precision, one in the other (bf16 and fp32), by the mean squares of an element's row
//! and column ([`bound::Scales`]). The parallel run rounds where the serial one does, and once more
//! for each tensor-parallel rank's partial sum and each hop of their collective: with `T` ranks its
//! variance is at most `1 + T` times as large, that of `P - S` at most `2 + T` times. With
//! `l = `[`bound::DEVIATIONS`] the bound is `l sqrt(2 + T) s_i`.
//!
//! An fp32 recipe is measured by the bf16 run as well: its errors are `2^-16` of those, times the
//! longest sum of a step, as it rounds at each addition where the other rounds at stores.
//!
//! The sum over microbatches and data-parallel ranks is bounded apart, by Higham's
//! `gamma_n = n u / (1 - n u)` times the sum of magnitudes, with the `u` of each type that it is
//! rounded to, and `gamma_{1+T}` in the type of activations for partial sums whose error the sample
//! happens to lack. So are 2 and 4, which are such sums.
//!
//! **What this does not see.** What is wrong in the serial model too: its kernels are the same. A
//! fault below the bound. Masks of dropout are drawn from generators that a serial run has not: the
//! comparison is made without dropout, and the report says so.

mod bound;
mod serial;
mod step;
#[cfg(test)]
mod tests;
mod watch;

use crate::engine::EngineError;
use crate::fault::Component;
use crate::prove::session::{CheckError, Session};
use crate::scenario::Scenario;
use crate::world::{RunRecord, WorldError};

use bound::ratio;
pub use serial::NoModel;
pub(in crate::prove) use serial::recipe as serial_recipe;
use step::Comparison;
pub(super) use watch::ValueWatch;

/// Values against those of a serial model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Values {
    /// Steps that were compared, from the first.
    pub steps: u32,
    /// In the order in which a step computes them, step after step.
    pub compared: Vec<ComparedTensor>,
    /// A step of which no serial model is what the ranks are.
    pub disagreement: Option<(u32, NoModel)>,
    /// What was not compared, or not as it is, and why.
    pub not_compared: Vec<String>,
}

impl Values {
    /// Nothing was compared.
    pub fn none(why: String) -> Values {
        Values {
            not_compared: vec![why],
            ..Values::default()
        }
    }

    /// The first tensor beyond its bound.
    pub fn first_wrong(&self) -> Option<&ComparedTensor> {
        self.compared.iter().find(|tensor| tensor.exceeding > 0)
    }

    pub fn is_wrong(&self) -> bool {
        self.first_wrong().is_some() || self.disagreement.is_some()
    }

    pub fn elements(&self) -> u64 {
        self.compared.iter().map(|tensor| tensor.elements).sum()
    }

    /// The tensor with the greatest ratio to its bound.
    pub fn closest(&self) -> Option<&ComparedTensor> {
        let compared = self.compared.iter();
        compared.max_by(|a, b| a.ratio().total_cmp(&b.ratio()))
    }

    /// What is wrong, first in the order of the steps; `None` where nothing is.
    pub fn finding(&self) -> Option<String> {
        let Some(wrong) = self.first_wrong() else {
            let (step, error) = self.disagreement.as_ref()?;
            return Some(format!(
                "in step {step} no serial model is as the ranks are: {error}"
            ));
        };
        let mut told = wrong.to_string();
        let before = self.compared.iter().take_while(|tensor| *tensor != wrong);
        let same = |tensor: &&ComparedTensor| {
            let is_kin = (tensor.step, tensor.quantity) == (wrong.step, wrong.quantity);
            is_kin && !tensor.name.is_empty()
        };
        if let Some(last) = before.filter(same).last() {
            told += &format!("; `{}`, which comes before it, is within", last.name);
        }
        Some(told)
    }
}

/// One tensor of one step.
#[derive(Clone, Debug, PartialEq)]
pub struct ComparedTensor {
    pub step: u32,
    pub quantity: Quantity,
    /// The whole model's tensor; empty where the quantity has one tensor only, or where all of them
    /// are equal.
    pub name: String,
    pub elements: u64,
    /// The element with the greatest ratio, its difference, and what is allowed of it.
    pub element: u64,
    pub difference: f64,
    pub bound: f64,
    /// Elements beyond their bounds.
    pub exceeding: u64,
    /// How far the tensor is from itself in the other precision, by its size: 0 where every bit
    /// must agree, and of sums that are bounded by themselves.
    pub conditioning: f64,
}

/// What a tensor is of, in the order in which a step computes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Quantity {
    TokenLosses,
    Gradient,
    GradNorm,
    ClipCoefficient,
    State(Component),
    LmLoss,
}

impl std::fmt::Display for Quantity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Quantity::TokenLosses => f.write_str("token losses"),
            Quantity::Gradient => f.write_str("gradient"),
            Quantity::GradNorm => f.write_str("grad norm"),
            Quantity::ClipCoefficient => f.write_str("clip coefficient"),
            Quantity::State(component) => f.write_str(component.name()),
            Quantity::LmLoss => f.write_str("lm loss"),
        }
    }
}

impl ComparedTensor {
    /// Of elements' (difference, bound).
    fn of(
        (step, quantity, name): (u32, Quantity, &str),
        elements: impl Iterator<Item = (f64, f64)>,
    ) -> ComparedTensor {
        let mut found = ComparedTensor {
            step,
            quantity,
            name: name.to_string(),
            elements: 0,
            element: 0,
            difference: 0.0,
            bound: 0.0,
            exceeding: 0,
            conditioning: 0.0,
        };
        let mut worst = -1.0;
        for (place, (difference, bound)) in (0..).zip(elements) {
            let ratio = ratio(difference, bound);
            found.elements += 1;
            found.exceeding += u64::from(ratio > 1.0);
            if ratio > worst {
                worst = ratio;
                (found.element, found.difference, found.bound) = (place, difference, bound);
            }
        }
        found
    }

    /// The difference by what is allowed of it.
    pub fn ratio(&self) -> f64 {
        ratio(self.difference, self.bound)
    }
}

impl std::fmt::Display for ComparedTensor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ComparedTensor {
            step,
            quantity,
            name,
            elements,
            element,
            difference,
            bound,
            exceeding,
            conditioning: _,
        } = self;
        let what = match name.is_empty() {
            true => quantity.to_string(),
            false => format!("{quantity} `{name}`"),
        };
        write!(
            f,
            "in step {step} {what} is not the serial model's: {exceeding} of {elements} elements \
             are beyond the bound, element {element} by {difference:.3e} where {bound:.3e} is \
             allowed"
        )?;
        match quantity {
            Quantity::State(_) => write!(f, ", from the same gradients and state"),
            Quantity::GradNorm | Quantity::ClipCoefficient => write!(f, ", of the same gradients"),
            Quantity::LmLoss => write!(f, ", from the same token losses"),
            Quantity::TokenLosses | Quantity::Gradient => Ok(()),
        }
    }
}

/// The job without dropout, where it has any.
///
/// # Errors
/// None that the job itself has not.
pub(super) fn without_dropout(session: &Session) -> Result<Option<Session>, CheckError> {
    let recipe = &session.scenario.recipe;
    if recipe.hidden_dropout == 0.0 && recipe.attention_dropout == 0.0 {
        return Ok(None);
    }
    let mut scenario: Scenario = session.scenario.clone();
    scenario.recipe.hidden_dropout = 0.0;
    scenario.recipe.attention_dropout = 0.0;
    session.changed(scenario).map(Some)
}

/// Compares the steps up to `last` of a run that was watched, and whose states were kept.
///
/// # Errors
/// Whatever stops a serial run.
pub(super) fn compare(
    session: &Session,
    record: &RunRecord,
    watch: &ValueWatch,
    last: u32,
) -> Result<Values, CheckError> {
    let mut comparison = match Comparison::new(session, record, watch) {
        Ok(comparison) => comparison,
        Err(CheckError::Options(error)) => return Ok(too_large(&error)),
        Err(CheckError::TooLarge(finding)) => return Ok(too_large(&finding.message)),
        Err(error) => return Err(error),
    };
    for step in 1..last + 1 {
        let compared = match comparison.step(step) {
            // Of the serial run, as no other is made here.
            Err(CheckError::World(WorldError::Engine { source, .. })) if is_too_small(&source) => {
                let mut values = too_large(&source);
                values.steps = comparison.values.steps;
                values.compared = comparison.values.compared;
                return Ok(values);
            }
            compared => compared?,
        };
        if let Err(error) = compared {
            let values = &mut comparison.values;
            match record.drifts.first() {
                Some(drift) => values.not_compared.push(format!(
                    "values from step {step} on with a serial model's: {drift}"
                )),
                None => values.disagreement = Some((step, error)),
            }
            break;
        }
        comparison.values.steps = step;
    }
    Ok(comparison.values)
}

/// Whether the engine has not the room, or the reach, for one rank that takes the whole step.
fn is_too_small(error: &EngineError) -> bool {
    matches!(
        error,
        EngineError::OutOfMemory { .. } | EngineError::CutShort { .. } | EngineError::Limits { .. }
    )
}

fn too_large(why: &impl std::fmt::Display) -> Values {
    Values::none(format!(
        "values with a serial model's: one rank cannot take the whole step: {why}"
    ))
}
