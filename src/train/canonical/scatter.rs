//! From whole tensors to the parts of another layout's ranks.

use std::collections::BTreeMap;

use super::{CanonicalError, CanonicalState, Form};
use crate::fault::ReshardFault;
use crate::model::Partition;
use crate::numerics::Dtype;
use crate::train::checkpoint::{Checkpoint, RankState};
use crate::train::gradient::shards;
use crate::train::holding::Holding;
use crate::train::options::TrainOptions;
use crate::world::{Component, StateTensor};

impl CanonicalState {
    /// The checkpoint that ranks laid out by `options` would have saved in this state. Components
    /// of [`CanonicalState::not_carried_to`] are left out of it; words between parameters are 0.
    ///
    /// # Errors
    /// A parameter of the layout that the state lacks, or has in another size.
    pub fn scatter(&self, options: &TrainOptions) -> Result<Checkpoint, CanonicalError> {
        self.scatter_with(options, None)
    }

    /// [`CanonicalState::scatter`] with a planted fault, for the mutation score.
    ///
    /// # Errors
    /// Those of `scatter`.
    pub fn scatter_with(
        &self,
        options: &TrainOptions,
        fault: Option<ReshardFault>,
    ) -> Result<Checkpoint, CanonicalError> {
        let scattering = Scattering {
            state: self,
            options,
            target: fault.and_then(|fault| Some((fault, self.fault_target(options, fault)?))),
        };
        let ranks = 0..options.layout.world_size();
        let parts = ranks.map(|rank| Ok((rank, scattering.part(rank)?)));
        let parts: Result<BTreeMap<u32, RankState>, CanonicalError> = parts.collect();
        Ok(Checkpoint::new(self.steps, parts?))
    }

    /// The tensor that `fault` would damage in a checkpoint for `options`, or the component where
    /// all of its tensors are damaged; `None` where the layout or the state has no place for it.
    pub fn fault_target(
        &self,
        options: &TrainOptions,
        fault: ReshardFault,
    ) -> Option<(Component, Option<String>)> {
        let holding = Holding::of(options, 0);
        match fault {
            ReshardFault::SwappedHalves => {
                let rows = |least: u32| {
                    let mut parameters = holding.parameters.iter();
                    parameters.find(|parameter| match parameter.partition {
                        Partition::Rows { groups } => groups >= least,
                        _ => false,
                    })
                };
                let parameter = rows(2).or(rows(1))?;
                Some((Component::Model, Some(parameter.whole_name().to_string())))
            }
            ReshardFault::ShiftedShard => shards(options).then_some((Component::MainParams, None)),
            ReshardFault::OtherTensor => {
                let mut names = self.tensors.keys();
                let (_, name) = names
                    .find(|(of, name)| *of == Component::ExpAvg && self.stand_in(name).is_some())?;
                Some((Component::ExpAvg, Some(name.clone())))
            }
        }
    }

    /// Another parameter's first moment of the same size.
    fn stand_in(&self, name: &str) -> Option<&StateTensor> {
        let own = self.tensor(Component::ExpAvg, name)?;
        let mut others = self.tensors.iter();
        let (_, found) = others.find(|((of, other), tensor)| {
            *of == Component::ExpAvg
                && other != name
                && tensor.words.len() == own.words.len()
                && tensor.words != own.words
        })?;
        Some(found)
    }
}

/// Whole tensors on their way to the ranks of a layout.
struct Scattering<'a> {
    state: &'a CanonicalState,
    options: &'a TrainOptions,
    /// The planted fault and the tensor that it damages.
    target: Option<(ReshardFault, (Component, Option<String>))>,
}

impl Scattering<'_> {
    fn part(&self, rank: u32) -> Result<RankState, CanonicalError> {
        let mut holding = Holding::of(self.options, rank);
        if self.has(ReshardFault::ShiftedShard) {
            for range in &mut holding.owned {
                (range.start, range.end) = (range.start + 1, range.end + 1);
            }
        }
        let mut part = RankState::default();
        let left = self.state.not_carried_to(self.options);
        let carried = self.state.components().into_iter();
        for component in carried.filter(|component| !left.contains(component)) {
            match Form::of(component) {
                Form::Parameters => self.add_parameters(rank, &holding, component, &mut part)?,
                Form::Flat(name) => {
                    let flat = self.flat(rank, &holding, component)?;
                    part.insert(component, name, flat);
                }
                Form::Generator => {
                    let place = (holding.place.stage, holding.place.tensor);
                    let states = self.state.generators.states.get(&place);
                    for (name, tensor) in states.into_iter().flatten() {
                        part.insert(component, name, tensor.clone());
                    }
                }
                Form::Single => {
                    let cells = self.state.tensors.iter();
                    for ((_, name), tensor) in cells.filter(|((of, _), _)| *of == component) {
                        part.insert(component, name, tensor.clone());
                    }
                }
            }
        }
        Ok(part)
    }

    fn has(&self, fault: ReshardFault) -> bool {
        self.target.as_ref().is_some_and(|(kind, _)| *kind == fault)
    }

    fn add_parameters(
        &self,
        rank: u32,
        holding: &Holding,
        component: Component,
        part: &mut RankState,
    ) -> Result<(), CanonicalError> {
        for place in 0..holding.parameters.len() {
            let whole = self.whole(rank, holding, component, place)?;
            let parameter = &holding.parameters[place];
            let words = (0..parameter.len()).map(|local| {
                let index = self.index(holding, place, local);
                whole.words[index as usize]
            });
            let tensor = StateTensor {
                dtype: whole.dtype,
                words: words.collect(),
            };
            part.insert(component, &parameter.name, tensor);
        }
        Ok(())
    }

    /// The owned words of the rank, those between parameters 0.
    fn flat(
        &self,
        rank: u32,
        holding: &Holding,
        component: Component,
    ) -> Result<StateTensor, CanonicalError> {
        let mut words = vec![0; holding.owned_len() as usize];
        let mut dtype = Dtype::F32;
        for piece in holding.pieces() {
            let whole = self.whole(rank, holding, component, piece.parameter)?;
            dtype = whole.dtype;
            let into = words[piece.start as usize..].iter_mut();
            for (word, local) in into.zip(piece.local.clone()) {
                let index = self.index(holding, piece.parameter, local);
                *word = whole.words[index as usize];
            }
        }
        Ok(StateTensor { dtype, words })
    }

    /// Where an element of a rank's part is taken from.
    fn index(&self, holding: &Holding, place: usize, local: u32) -> u64 {
        let parameter = &holding.parameters[place];
        let index = holding.whole_index(parameter, local);
        match &self.target {
            Some((ReshardFault::SwappedHalves, (_, name)))
                if name.as_deref() == Some(parameter.whole_name()) =>
            {
                let len = holding.whole_len(parameter);
                (index + len / 2) % len
            }
            _ => index,
        }
    }

    /// The whole tensor of a parameter, in the size that the layout says.
    fn whole(
        &self,
        rank: u32,
        holding: &Holding,
        component: Component,
        place: usize,
    ) -> Result<&StateTensor, CanonicalError> {
        let parameter = &holding.parameters[place];
        let name = || parameter.whole_name().to_string();
        let mut whole = self.state.tensor(component, parameter.whole_name());
        if let Some((ReshardFault::OtherTensor, (of, Some(damaged)))) = &self.target
            && *of == component
            && damaged == parameter.whole_name()
        {
            whole = self.state.stand_in(damaged);
        }
        let Some(whole) = whole else {
            let name = name();
            return Err(CanonicalError::Missing {
                rank,
                component,
                name,
            });
        };
        let (have, want) = (whole.words.len() as u64, holding.whole_len(parameter));
        match have == want {
            true => Ok(whole),
            false => Err(CanonicalError::Length {
                rank,
                component,
                name: name(),
                have,
                want,
            }),
        }
    }
}
