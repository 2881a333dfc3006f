//! From the ranks' parts to whole tensors: every copy is compared, every element has an owner.

use std::collections::{BTreeMap, BTreeSet};

use super::{CanonicalError, CanonicalState, Form, GeneratorState, Generators};
use crate::numerics::Dtype;
use crate::train::checkpoint::{Checkpoint, RankState};
use crate::train::holding::Holding;
use crate::train::options::TrainOptions;
use crate::world::{Component, StateTensor};

/// A word that no rank has written yet.
const NOBODY: u32 = u32::MAX;

/// A whole tensor while it is put together: each word with the first rank that had it.
struct Assembly {
    dtype: Dtype,
    words: Vec<u32>,
    owners: Vec<u32>,
}

#[derive(Default)]
struct Gathering {
    tensors: BTreeMap<(Component, String), Assembly>,
    /// With the first rank that had each.
    generators: BTreeMap<(u32, u32), (u32, GeneratorState)>,
}

impl CanonicalState {
    /// Puts `checkpoint`, of ranks laid out by `options`, together. A component that no rank has
    /// anything of was left out of the checkpoint, and is left out here.
    ///
    /// # Errors
    /// Copies that disagree, tensors that do not fit the layout, elements that no rank holds.
    pub fn gather(
        options: &TrainOptions,
        checkpoint: &Checkpoint,
    ) -> Result<CanonicalState, CanonicalError> {
        let nothing = RankState::default();
        let states = 0..options.layout.world_size();
        let state_of = |rank: u32| checkpoint.rank(rank).unwrap_or(&nothing);
        let present: BTreeSet<Component> = states
            .clone()
            .flat_map(|rank| state_of(rank).tensors().map(|(component, ..)| component))
            .collect();
        let mut gathering = Gathering::default();
        for rank in states {
            let part = Part {
                rank,
                holding: Holding::of(options, rank),
                state: state_of(rank),
            };
            part.add(&present, &mut gathering)?;
        }
        let generators = gathering.generators.into_iter();
        Ok(CanonicalState {
            steps: checkpoint.steps,
            tensors: whole(gathering.tensors)?,
            generators: Generators {
                pipeline: options.layout.pipeline_model_parallel_size,
                tensor: options.layout.tensor_model_parallel_size,
                states: generators
                    .map(|(place, (_, state))| (place, state))
                    .collect(),
            },
        })
    }
}

/// The finished tensors, if every element was held by some rank.
fn whole(
    assemblies: BTreeMap<(Component, String), Assembly>,
) -> Result<BTreeMap<(Component, String), StateTensor>, CanonicalError> {
    let finished = assemblies.into_iter().map(|(key, assembly)| {
        let hole = assembly.owners.iter().position(|owner| *owner == NOBODY);
        match hole {
            Some(element) => Err(CanonicalError::Hole {
                component: key.0,
                name: key.1,
                element: element as u64,
            }),
            None => Ok((
                key,
                StateTensor {
                    dtype: assembly.dtype,
                    words: assembly.words,
                },
            )),
        }
    });
    finished.collect()
}

/// One rank's part of the state.
struct Part<'a> {
    rank: u32,
    holding: Holding,
    state: &'a RankState,
}

impl Part<'_> {
    fn add(
        &self,
        present: &BTreeSet<Component>,
        into: &mut Gathering,
    ) -> Result<(), CanonicalError> {
        let mut known: BTreeSet<(Component, &str)> = BTreeSet::new();
        for component in present.iter().copied() {
            match Form::of(component) {
                Form::Parameters => {
                    for parameter in &self.holding.parameters {
                        known.insert((component, &parameter.name));
                    }
                    self.add_parameters(component, into)?;
                }
                Form::Flat(name) => {
                    known.insert((component, name));
                    self.add_flat(component, name, into)?;
                }
                Form::Generator => {
                    known.extend(self.names(component).map(|name| (component, name)));
                    self.add_generators(component, into)?;
                }
                Form::Single => {
                    known.extend(self.names(component).map(|name| (component, name)));
                    self.add_cells(component, into)?;
                }
            }
        }
        let mut tensors = self.state.tensors();
        match tensors.find(|(component, name, _)| !known.contains(&(*component, *name))) {
            Some((component, name, _)) => Err(CanonicalError::Unknown {
                rank: self.rank,
                component,
                name: name.to_string(),
            }),
            None => Ok(()),
        }
    }

    fn names(&self, component: Component) -> impl Iterator<Item = &str> {
        let tensors = self.state.tensors();
        tensors.filter_map(move |(of, name, _)| (of == component).then_some(name))
    }

    /// The tensor of this rank, which must have `want` words.
    fn tensor(
        &self,
        component: Component,
        name: &str,
        want: u32,
    ) -> Result<&StateTensor, CanonicalError> {
        let Some(tensor) = self.state.tensor(component, name) else {
            return Err(self.missing(component, name));
        };
        let (have, want) = (tensor.words.len() as u64, u64::from(want));
        match have == want {
            true => Ok(tensor),
            false => Err(CanonicalError::Length {
                rank: self.rank,
                component,
                name: name.to_string(),
                have,
                want,
            }),
        }
    }

    fn missing(&self, component: Component, name: &str) -> CanonicalError {
        CanonicalError::Missing {
            rank: self.rank,
            component,
            name: name.to_string(),
        }
    }

    fn add_parameters(
        &self,
        component: Component,
        into: &mut Gathering,
    ) -> Result<(), CanonicalError> {
        let holding = &self.holding;
        for parameter in &holding.parameters {
            let tensor = self.tensor(component, &parameter.name, parameter.len())?;
            let places = (0..parameter.len()).map(|local| holding.whole_index(parameter, local));
            let words = tensor.words.iter().copied();
            let whole_len = holding.whole_len(parameter);
            let whole = Whole {
                component,
                name: parameter.whole_name(),
                dtype: tensor.dtype,
                len: whole_len,
            };
            self.put(&whole, places.zip(words), into)?;
        }
        Ok(())
    }

    fn add_flat(
        &self,
        component: Component,
        name: &str,
        into: &mut Gathering,
    ) -> Result<(), CanonicalError> {
        let holding = &self.holding;
        let tensor = self.tensor(component, name, holding.owned_len())?;
        for piece in holding.pieces() {
            let parameter = &holding.parameters[piece.parameter];
            let places = piece
                .local
                .clone()
                .map(|local| holding.whole_index(parameter, local));
            let words = tensor.words[piece.start as usize..].iter().copied();
            let whole = Whole {
                component,
                name: parameter.whole_name(),
                dtype: tensor.dtype,
                len: holding.whole_len(parameter),
            };
            self.put(&whole, places.zip(words), into)?;
        }
        Ok(())
    }

    fn add_cells(&self, component: Component, into: &mut Gathering) -> Result<(), CanonicalError> {
        // A cell that an earlier rank has is one that every rank has.
        let earlier = into.tensors.keys().filter(|(of, _)| *of == component);
        let absent = earlier
            .map(|(_, name)| name)
            .find(|name| self.state.tensor(component, name).is_none());
        if let Some(name) = absent {
            return Err(self.missing(component, name));
        }
        for name in self.names(component) {
            let key = (component, name.to_string());
            if self.rank > 0 && !into.tensors.contains_key(&key) {
                let (rank, name) = (0, key.1);
                return Err(CanonicalError::Missing {
                    rank,
                    component,
                    name,
                });
            }
            let tensor = self.state.tensor(component, name).expect("just named");
            let whole = Whole {
                component,
                name,
                dtype: tensor.dtype,
                len: tensor.words.len() as u64,
            };
            self.put(&whole, (0..).zip(tensor.words.iter().copied()), into)?;
        }
        Ok(())
    }

    /// One state a (pipeline rank, tensor-parallel rank): data-parallel ranks have the same.
    fn add_generators(
        &self,
        component: Component,
        into: &mut Gathering,
    ) -> Result<(), CanonicalError> {
        let own: GeneratorState = self
            .names(component)
            .filter_map(|name| {
                let tensor = self.state.tensor(component, name)?;
                Some((name.to_string(), tensor.clone()))
            })
            .collect();
        if own.is_empty() {
            return Err(self.missing(component, "rng"));
        }
        let place = (self.holding.place.stage, self.holding.place.tensor);
        let (first, known) = into
            .generators
            .entry(place)
            .or_insert_with(|| (self.rank, own.clone()));
        let differing = own
            .iter()
            .find(|(name, tensor)| known.get(*name) != Some(*tensor));
        match differing {
            None if known.len() == own.len() => Ok(()),
            None => Err(self.missing(component, "rng")),
            Some((name, tensor)) => {
                let words = known.get(name).map_or(&[][..], |tensor| &tensor.words);
                let element = first_difference(words, &tensor.words).unwrap_or(0);
                Err(CanonicalError::Disagree {
                    component,
                    name: name.clone(),
                    ranks: (*first, self.rank),
                    element,
                })
            }
        }
    }

    /// Writes words to their places in a whole tensor, or compares them with what is there.
    fn put(
        &self,
        whole: &Whole<'_>,
        words: impl Iterator<Item = (u64, u32)>,
        into: &mut Gathering,
    ) -> Result<(), CanonicalError> {
        let Whole {
            component,
            name,
            dtype,
            len,
        } = *whole;
        let key = (component, name.to_string());
        let assembly = into.tensors.entry(key).or_insert_with(|| Assembly {
            dtype,
            words: vec![0; len as usize],
            owners: vec![NOBODY; len as usize],
        });
        let (rank, name) = (self.rank, || name.to_string());
        if assembly.dtype != dtype {
            let name = name();
            return Err(CanonicalError::Type {
                rank,
                component,
                name,
            });
        }
        let have = assembly.words.len() as u64;
        if have != len {
            return Err(CanonicalError::Length {
                rank,
                component,
                name: name(),
                have: len,
                want: have,
            });
        }
        for (element, word) in words {
            let place = element as usize;
            let owner = assembly.owners[place];
            if owner == NOBODY {
                assembly.words[place] = word;
                assembly.owners[place] = rank;
            } else if assembly.words[place] != word {
                return Err(CanonicalError::Disagree {
                    component,
                    name: name(),
                    ranks: (owner, rank),
                    element,
                });
            }
        }
        Ok(())
    }
}

/// A tensor of the whole model, as one rank sees it.
#[derive(Clone, Copy)]
struct Whole<'a> {
    component: Component,
    name: &'a str,
    dtype: Dtype,
    len: u64,
}

/// The first place where two texts of words differ, one that only one of them has included.
pub(super) fn first_difference(a: &[u32], b: &[u32]) -> Option<u64> {
    let place = a.iter().zip(b).position(|(a, b)| a != b);
    let shorter = a.len().min(b.len());
    place
        .or((a.len() != b.len()).then_some(shorter))
        .map(|place| place as u64)
}
