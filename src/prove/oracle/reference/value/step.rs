//! One step of a parallel run against the serial model's.

use std::collections::BTreeSet;

use super::bound::{Allowed, Scales, gamma, unit_roundoff};
use super::serial::{
    CARRIER, NoModel, Serial, SerialStep, SerialUpdate, floats, whole, whole_gradients,
};
use super::watch::ValueWatch;
use super::{ComparedTensor, Quantity, Values};
use crate::fault::Component;
use crate::numerics::Dtype;
use crate::prove::memory;
use crate::prove::oracle::parting;
use crate::prove::session::{CheckError, Session};
use crate::train::{CanonicalState, Trainer};
use crate::world::RunRecord;

/// The steps of one run, and what was found in them so far.
pub(super) struct Comparison<'a> {
    parallel: &'a Session,
    record: &'a RunRecord,
    watch: &'a ValueWatch,
    /// In the recipe's precision, and in the other one.
    own: Serial,
    other: Serial,
    allowed: Allowed,
    /// Steps whose end waits for all parameters.
    kept: BTreeSet<u32>,
    /// The parameters as the next step's forward gathers them, where a step has left that to it.
    ungathered: Option<CanonicalState>,
    pub values: Values,
}

impl<'a> Comparison<'a> {
    /// # Errors
    /// A step that one rank cannot take.
    pub fn new(
        parallel: &'a Session,
        record: &'a RunRecord,
        watch: &'a ValueWatch,
    ) -> Result<Comparison<'a>, CheckError> {
        let bf16 = parallel.scenario.recipe.bf16;
        let own = Serial::new(parallel, bf16)?;
        let allowed = Allowed::of(&parallel.options, own.words());
        Ok(Comparison {
            parallel,
            record,
            watch,
            own,
            other: Serial::new(parallel, !bf16)?,
            allowed,
            kept: memory::states_kept(&parallel.scenario),
            ungathered: None,
            values: Values::default(),
        })
    }

    /// Compares a step. The inner error: what the ranks are is no one model.
    ///
    /// # Errors
    /// Whatever stops a serial run.
    pub fn step(&mut self, step: u32) -> Result<Result<(), NoModel>, CheckError> {
        let states = (self.state(step - 1)?, self.state(step)?);
        let gradients = whole_gradients(&self.parallel.options, step, self.watch);
        let losses = self.losses(step);
        let (before, after, gradients, losses) = match (states.0, states.1, gradients, losses) {
            (Ok(before), Ok(after), Ok(gradients), Ok(losses)) => {
                (before, after, gradients, losses)
            }
            (Err(error), ..) | (_, Err(error), ..) | (.., Err(error), _) | (.., Err(error)) => {
                return Ok(Err(error));
            }
        };
        let before = match self.ungathered.take() {
            Some(model) => before.with(Component::Model, &model),
            None => before,
        };
        // What a state says of the data's position, a resume reads; a straight run knows it.
        let position = (step - 1).wrapping_mul(self.parallel.options.global_batch_size);
        let known = before.at_sample(position);
        let serial = self.own.step(&known, step)?;
        let other = self.other.step(&known, step)?;
        self.compare_losses(step, &losses, (&serial, &other));
        self.compare_gradients(step, &gradients, (&serial, &other));
        let clip = self.compare_clips(step);
        let update = self.own.update(&before, &gradients, (step, clip))?;
        self.compare_norm(step, clip, &update);
        let defers = self.parallel.options.defers_param_gather() && !self.kept.contains(&step);
        self.compare_state(step, (&update.after, &after), defers);
        self.compare_loss(step, &losses[0]);
        self.ungathered = defers.then_some(update.after);
        Ok(Ok(()))
    }

    fn state(&self, step: u32) -> Result<Result<CanonicalState, NoModel>, CheckError> {
        let state = self.record.checkpoints.get(&step);
        let state = state
            .ok_or_else(|| CheckError::Internal(format!("no state was kept after step {step}")))?;
        Ok(whole(&self.parallel.options, step, state))
    }

    fn add(
        &mut self,
        step: u32,
        quantity: Quantity,
        name: &str,
        elements: impl Iterator<Item = (f64, f64)>,
    ) {
        let compared = ComparedTensor::of((step, quantity, name), elements);
        self.values.compared.push(compared);
    }

    /// Token losses by tensor-parallel rank.
    fn losses(&self, step: u32) -> Result<Vec<Vec<f32>>, NoModel> {
        let options = &self.parallel.options;
        let ranks = 0..options.layout.tensor_model_parallel_size;
        let losses = ranks.map(|tensor| {
            let losses = parting::by_sample((options, tensor), &self.watch.token_losses, step);
            losses.map(floats).ok_or(NoModel::NoLosses { tensor })
        });
        losses.collect()
    }

    fn compare_losses(
        &mut self,
        step: u32,
        losses: &[Vec<f32>],
        (serial, other): (&SerialStep, &SerialStep),
    ) {
        let scales = Scales::of(&distances(&serial.losses, &other.losses), &serial.losses, 1);
        let found = losses
            .iter()
            .map(|of_rank| distances(of_rank, &serial.losses));
        let allowed = self.allowed;
        let elements = found.flat_map(|found| found.into_iter().enumerate());
        let elements = elements.map(|(at, distance)| (distance, allowed.rounding(scales.at(at))));
        let elements: Vec<(f64, f64)> = elements.collect();
        self.add(step, Quantity::TokenLosses, "", elements.into_iter());
        self.conditioned(&scales);
    }

    fn compare_gradients(
        &mut self,
        step: u32,
        gradients: &CanonicalState,
        (serial, other): (&SerialStep, &SerialStep),
    ) {
        let (columns, allowed) = (self.own.columns(), self.allowed);
        for (place, (name, own)) in serial.gradients.iter().enumerate() {
            let tensor = gradients.tensor(CARRIER.0, name);
            let tensor = tensor.expect("both are of one model");
            let errors = distances(own, &other.gradients[place].1);
            let scales = Scales::of(&errors, own, columns[name]);
            let found = distances(&floats(tensor.words.clone()), own);
            let magnitudes = &serial.magnitudes[place].1;
            let elements = found.into_iter().enumerate().map(|(at, distance)| {
                let rounding = allowed.rounding(scales.at(at));
                (distance, rounding + allowed.reduction(magnitudes[at]))
            });
            self.add(step, Quantity::Gradient, name, elements);
            self.conditioned(&scales);
        }
    }

    /// Of the tensor that was compared last.
    fn conditioned(&mut self, scales: &Scales) {
        let last = self.values.compared.last_mut();
        last.expect("one was compared").conditioning = scales.relative();
    }

    /// Norm and coefficient, which all ranks must have alike.
    fn compare_clips(&mut self, step: u32) -> [u32; 2] {
        let of_step = self.watch.clips.range((step, 0)..=(step, u32::MAX));
        let clips: Vec<[f32; 2]> = of_step
            .map(|(_, clip)| [clip[0], clip[1]].map(f32::from_bits))
            .collect();
        let first = *clips.first().expect("every rank has an optimizer");
        for (place, quantity) in [(0, Quantity::GradNorm), (1, Quantity::ClipCoefficient)] {
            let own = clips.iter().map(|clip| clip[place]);
            let differ: Vec<(f64, f64)> = own
                .map(|value| (distance(value, first[place]), 0.0))
                .collect();
            if differ.iter().any(|(distance, _)| *distance != 0.0) {
                self.add(step, quantity, "", differ.into_iter());
            }
        }
        first.map(f32::to_bits)
    }

    fn compare_norm(&mut self, step: u32, clip: [u32; 2], update: &SerialUpdate) {
        let [norm, coefficient] = clip.map(f32::from_bits);
        let relative = self.allowed.norm();
        let pairs = [
            (Quantity::GradNorm, norm, update.norm),
            (Quantity::ClipCoefficient, coefficient, update.coefficient),
        ];
        for (quantity, parallel, serial) in pairs {
            let bound = relative * f64::from(serial).abs();
            let element = (distance(parallel, serial), bound);
            self.add(step, quantity, "", std::iter::once(element));
        }
    }

    /// Equal tensors of a component are one entry.
    fn compare_state(
        &mut self,
        step: u32,
        (serial, parallel): (&CanonicalState, &CanonicalState),
        defers: bool,
    ) {
        for component in serial.components() {
            if defers && component == Component::Model {
                continue;
            }
            let counts = |of: Component| of == component;
            let differing = serial.differences(parallel, counts);
            let quantity = Quantity::State(component);
            if differing.is_empty() {
                let (_, words) = serial.size(counts);
                let equal = std::iter::repeat_n((0.0, 0.0), words as usize);
                self.add(step, quantity, "", equal);
            }
            for found in differing {
                let number = |word: Option<u32>| match component {
                    Component::Model
                    | Component::MainParams
                    | Component::ExpAvg
                    | Component::ExpAvgSq => f64::from(f32::from_bits(word.unwrap_or(0))),
                    _ => f64::from(word.unwrap_or(0)),
                };
                let (a, b) = (number(found.words.0), number(found.words.1));
                self.values.compared.push(ComparedTensor {
                    step,
                    quantity,
                    name: found.name,
                    elements: found.total,
                    element: found.element,
                    difference: (a - b).abs(),
                    bound: 0.0,
                    exceeding: found.differing,
                    conditioning: 0.0,
                });
            }
        }
    }

    /// The loss that is printed is the mean of the tokens'.
    fn compare_loss(&mut self, step: u32, losses: &[f32]) {
        let name = Trainer::LM_LOSS.to_string();
        let printed = self.record.metrics.get(&(step, name)).copied();
        let printed = printed.expect("last stages report it");
        let count = losses.len() as f64;
        let mean = losses.iter().map(|loss| f64::from(*loss)).sum::<f64>() / count;
        let magnitude = losses
            .iter()
            .map(|loss| f64::from(*loss).abs())
            .sum::<f64>()
            / count;
        let found = match printed.is_finite() || mean.is_finite() {
            true => (f64::from(printed) - mean).abs(),
            false => 0.0,
        };
        // A sum of all tokens, its factor, the product.
        let bound = gamma(count + 2.0, unit_roundoff(Dtype::F32)) * magnitude;
        self.add(step, Quantity::LmLoss, "", std::iter::once((found, bound)));
    }
}

/// Distances of elements.
fn distances(a: &[f32], b: &[f32]) -> Vec<f64> {
    assert_eq!(a.len(), b.len(), "both are of one model");
    a.iter().zip(b).map(|(a, b)| distance(*a, *b)).collect()
}

/// Infinite where one of the two alone is no number; what is not finite on both sides is another
/// matter: such a run is vacuous.
fn distance(a: f32, b: f32) -> f64 {
    match (a.is_finite(), b.is_finite()) {
        (true, true) => (f64::from(a) - f64::from(b)).abs(),
        (false, false) => 0.0,
        _ => f64::INFINITY,
    }
}
