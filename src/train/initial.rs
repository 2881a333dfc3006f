//! Initial weights: the same whole model whatever the layout.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::model::{Parameter, Role};
use crate::numerics::philox::StatelessKey;

/// Where the first weights come from.
#[derive(Clone, Debug)]
pub enum Initial {
    /// Drawn by Philox from the seed, the parameter's name and the element's place in the whole
    /// model.
    Seeded(u32),
    /// Whole tensors by name, C order.
    Given(Arc<BTreeMap<String, Vec<f32>>>),
}

impl Initial {
    /// This rank's part of a parameter; an error in words when a given tensor does not fit.
    pub fn values(&self, parameter: &Parameter, tp_rank: u32, tp: u32) -> Result<Vec<f32>, String> {
        let places = (0..parameter.len()).map(|local| parameter.global_index(local, tp_rank, tp));
        match self {
            Initial::Seeded(seed) => Ok(seeded(parameter, *seed, tp, places)),
            Initial::Given(map) => {
                let name = parameter.whole_name();
                let whole = map
                    .get(name)
                    .ok_or_else(|| format!("no weights for {name}"))?;
                let value = |place: u64| {
                    let length = whole.len();
                    let missing =
                        || format!("{name} has {length} weights, element {place} is asked");
                    whole.get(place as usize).copied().ok_or_else(missing)
                };
                places.map(value).collect()
            }
        }
    }
}

/// Gains are 1, biases 0. Matrices and tables have variance 1 / inputs: the sum of four uniforms,
/// less its mean, times sqrt(3 / inputs). Square root and division are IEEE's; no libm.
fn seeded(
    parameter: &Parameter,
    seed: u32,
    tp: u32,
    places: impl Iterator<Item = u64>,
) -> Vec<f32> {
    match parameter.role {
        Role::Gain => return places.map(|_| 1.0).collect(),
        Role::Bias => return places.map(|_| 0.0).collect(),
        Role::Weight | Role::SharedEmbedding | Role::SharedCopy => {}
    }
    let mut hasher = blake3::Hasher::new();
    hasher.update(&seed.to_le_bytes());
    hasher.update(parameter.whole_name().as_bytes());
    let hash = hasher.finalize();
    let bytes: [u8; 8] = hash.as_bytes()[..8]
        .try_into()
        .expect("a hash has 32 bytes");
    let key = StatelessKey {
        seed: u64::from_le_bytes(bytes),
        offset_blocks: 0,
    };
    let scale = (3.0 / parameter.fan_in(tp) as f32).sqrt();
    places
        .map(|place| {
            // Multiples of 2^-22 below 4: the sum is exact.
            let units: u32 = key.block(place).iter().map(|word| word >> 10).sum();
            let centred = units as f32 / 4_194_304.0 - 2.0;
            centred * scale
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Partition;

    fn matrix(rows: u32, columns: u32, partition: Partition) -> Parameter {
        Parameter {
            name: "w".to_string(),
            rows,
            columns,
            partition,
            decays: true,
            role: Role::Weight,
            sequence_parallel: false,
        }
    }

    #[test]
    fn gains_start_at_one_biases_at_zero_and_a_copy_as_its_embedding() {
        let initial = Initial::Seeded(3);
        let of = |name: &str, role| {
            let mut parameter = matrix(4, 4, Partition::Rows { groups: 1 });
            (parameter.name, parameter.role) = (name.to_string(), role);
            initial.values(&parameter, 1, 2).unwrap()
        };
        assert!(of("g", Role::Gain).iter().all(|value| *value == 1.0));
        assert!(of("b", Role::Bias).iter().all(|value| *value == 0.0));
        let embedding = of("embedding.word_embeddings.weight", Role::SharedEmbedding);
        assert_eq!(of("output_layer.weight", Role::SharedCopy), embedding);
        assert_ne!(of("output_layer.weight", Role::Weight), embedding);
    }

    #[test]
    fn shards_are_parts_of_the_same_whole() {
        let initial = Initial::Seeded(7);
        let whole = initial
            .values(&matrix(8, 4, Partition::Columns), 0, 1)
            .unwrap();
        let half = initial
            .values(&matrix(8, 2, Partition::Columns), 1, 2)
            .unwrap();
        for row in 0..8 {
            assert_eq!(half[2 * row..2 * row + 2], whole[4 * row + 2..4 * row + 4]);
        }
    }

    #[test]
    fn matrices_have_the_variance_they_should() {
        let values = Initial::Seeded(1)
            .values(&matrix(64, 64, Partition::Columns), 0, 1)
            .unwrap();
        let mean: f64 = values.iter().map(|v| f64::from(*v)).sum::<f64>() / 4096.0;
        let square: f64 = values.iter().map(|v| f64::from(v * v)).sum::<f64>() / 4096.0;
        assert!(
            mean.abs() < 0.01 && (square * 64.0 - 1.0).abs() < 0.1,
            "{mean} {square}"
        );
        assert_ne!(
            values,
            Initial::Seeded(2)
                .values(&matrix(64, 64, Partition::Columns), 0, 1)
                .unwrap()
        );
    }

    #[test]
    fn a_given_tensor_that_is_short_is_an_error() {
        let map = BTreeMap::from([("w".to_string(), vec![1.0; 7])]);
        let given = Initial::Given(Arc::new(map));
        assert!(
            given
                .values(&matrix(2, 4, Partition::Columns), 0, 1)
                .is_err()
        );
    }
}
