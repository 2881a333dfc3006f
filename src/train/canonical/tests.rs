use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::fault::ReshardFault;
use crate::model::{ModelShape, ModuleOrder, Orders, Parameter, Partition, stage_parameters};
use crate::numerics::Dtype;
use crate::recipe::{Normalization, PositionEmbedding};
use crate::train::bucket::FlatLayout;
use crate::train::checkpoint::{Checkpoint, RankState};
use crate::train::layout::Layout;
use crate::train::options::tests::options as plain_options;

const LAYERS: u32 = 4;

/// (tensor, pipeline, data) ranks, sharded optimizer, bucket size, stages numbered first.
type Plain = (u32, u32, u32, bool, Option<u32>, bool);

/// A layout, interleaved where its layers allow it, with two optimizer instances where its
/// data-parallel ranks do.
#[derive(Clone, Copy, Debug)]
struct Drawn {
    plain: Plain,
    interleaved: bool,
    instances: bool,
}

impl Drawn {
    fn made_up(&self) -> CanonicalState {
        made_up(self.plain.0, self.plain.1)
    }

    fn options(&self) -> TrainOptions {
        let mut options = options(self.plain);
        let layout = &mut options.layout;
        if self.interleaved && layout.pipeline_model_parallel_size == 2 {
            layout.num_virtual_stages_per_pipeline_rank = 2;
            options.model.pipeline_model_parallel_size = 4;
            options.microbatch_group_size_per_virtual_pipeline_stage = 2;
        }
        if self.instances && options.use_distributed_optimizer {
            let halves = layout.data_parallel_size.is_multiple_of(2);
            layout.num_distributed_optimizer_instances = 1 + u32::from(halves);
        }
        options.check().expect("a sound layout");
        options
    }
}

fn options((tp, pp, dp, sharded, bucket, stages_first): Plain) -> TrainOptions {
    let options = TrainOptions {
        model: ModelShape {
            num_layers: LAYERS,
            hidden_size: 16,
            ffn_hidden_size: 16,
            num_attention_heads: 4,
            num_query_groups: 4,
            kv_channels: 4,
            padded_vocab_size: 32,
            seq_length: 8,
            max_position_embeddings: 12,
            micro_batch_size: 1,
            module_order: ModuleOrder::TransformerEngine,
            normalization: Normalization::LayerNorm,
            norm_epsilon: 1e-5,
            swiglu: true,
            add_bias_linear: true,
            position_embedding_type: PositionEmbedding::LearnedAbsolute,
            rotary_base: 10_000.0,
            attention_dropout: 0.1,
            hidden_dropout: 0.1,
            untie_embeddings_and_output_weights: false,
            params_dtype: Dtype::Bf16,
            tensor_model_parallel_size: tp,
            pipeline_model_parallel_size: pp,
            sequence_parallel: tp > 1,
            wgrad_splits: 1,
            orders: Orders::ORDERED,
        },
        layout: Layout {
            tensor_model_parallel_size: tp,
            pipeline_model_parallel_size: pp,
            data_parallel_size: dp,
            use_tp_pp_dp_mapping: stages_first,
            num_virtual_stages_per_pipeline_rank: 1,
            num_distributed_optimizer_instances: 1,
        },
        microbatch_group_size_per_virtual_pipeline_stage: 1,
        global_batch_size: 24,
        use_distributed_optimizer: sharded,
        ddp_bucket_size: bucket,
        overlap_grad_reduce: bucket.is_some(),
        ..plain_options()
    };
    options.check().expect("a sound layout");
    options
}

fn any_layout() -> impl Strategy<Value = Drawn> {
    let plain = (
        prop::sample::select(vec![1, 2, 4]),
        prop::sample::select(vec![1, 2, 4]),
        prop::sample::select(vec![1, 2, 3, 4]),
        any::<bool>(),
        prop::option::of(1u32..4_000),
        any::<bool>(),
    );
    (plain, any::<bool>(), any::<bool>()).prop_map(|(plain, interleaved, instances)| Drawn {
        plain,
        interleaved,
        instances,
    })
}

/// Words that tell every element of every tensor apart.
fn words(seed: u32, len: u64) -> Vec<u32> {
    let mix = |word: u32| (word ^ word >> 15).wrapping_mul(0x2c1b_3c6d) ^ seed;
    (0..len as u32).map(|place| mix(place + 1)).collect()
}

fn tensor(dtype: Dtype, words: Vec<u32>) -> StateTensor {
    StateTensor { dtype, words }
}

const FLAT: [(Component, &str); 3] = [
    (Component::MainParams, "main_params"),
    (Component::ExpAvg, "exp_avg"),
    (Component::ExpAvgSq, "exp_avg_sq"),
];

/// The state of a whole model, made up; its RNG states belong to (tp, pp) ranks.
fn made_up(tp: u32, pp: u32) -> CanonicalState {
    let whole = options((1, 1, 1, false, None, false));
    let mut tensors = BTreeMap::new();
    for (number, parameter) in (0..).zip(stage_parameters(&whole.model, 0)) {
        let len = u64::from(parameter.len());
        // A bf16 word has nothing in its low half.
        let model = words(number, len)
            .into_iter()
            .map(|word| word & 0x7f7f_0000);
        let name = parameter.name.clone();
        let model = tensor(Dtype::Bf16, model.collect());
        tensors.insert((Component::Model, name), model);
        for (of, (component, _)) in (1..).zip(FLAT) {
            let words = words(number + 1_000 * of, len);
            let words = tensor(Dtype::F32, words);
            tensors.insert((component, parameter.name.clone()), words);
        }
    }
    let cell = |word: u32| tensor(Dtype::U32, vec![word]);
    tensors.insert((Component::OptimizerStep, "step".to_string()), cell(7));
    tensors.insert(
        (Component::LossScaler, "growth_tracker".to_string()),
        cell(3),
    );
    tensors.insert((Component::DataPosition, "samples".to_string()), cell(84));
    tensors.insert((Component::Scheduler, "num_steps".to_string()), cell(85));
    let places = (0..pp).flat_map(|stage| (0..tp).map(move |rank| (stage, rank)));
    let state = |(stage, rank): (u32, u32)| {
        let seed = tensor(Dtype::U32, vec![100 * stage + rank, 5, 0, 0]);
        ((stage, rank), [("rng".to_string(), seed)].into())
    };
    CanonicalState {
        steps: 7,
        tensors,
        generators: Generators {
            pipeline: pp,
            tensor: tp,
            states: places.map(state).collect(),
        },
    }
}

/// A parameter's part on one tensor-parallel rank, cut by loops over rows and columns.
fn slice(whole: &[u32], partition: Partition, shape: (u32, u32), rank: u32, tp: u32) -> Vec<u32> {
    let (rows, columns) = (shape.0 as usize, shape.1 as usize);
    let (rank, tp) = (rank as usize, tp as usize);
    match partition {
        Partition::Replicated => whole.to_vec(),
        Partition::Columns => whole
            .chunks(columns * tp)
            .flat_map(|row| row[rank * columns..(rank + 1) * columns].to_vec())
            .collect(),
        Partition::Rows { groups } => {
            let part = rows / groups as usize * columns;
            let groups = whole.chunks(part * tp);
            groups
                .flat_map(|group| group[rank * part..(rank + 1) * part].to_vec())
                .collect()
        }
    }
}

/// What a rank should hold, without any of the code under test.
fn expected(state: &CanonicalState, options: &TrainOptions, rank: u32) -> RankState {
    let place = options.layout.coordinates(rank);
    let tp = options.layout.tensor_model_parallel_size;
    let flat = FlatLayout::of(options, place.stage);
    let parameters = &flat.parameters;
    let mut part = RankState::default();
    let cut = |component: Component, parameter: &Parameter| {
        let whole = state.tensor(component, parameter.whole_name());
        let whole = whole.expect("made up");
        let shape = (parameter.rows, parameter.columns);
        let words = slice(&whole.words, parameter.partition, shape, place.tensor, tp);
        tensor(whole.dtype, words)
    };
    for parameter in parameters {
        let words = cut(Component::Model, parameter);
        part.insert(Component::Model, &parameter.name, words);
    }
    for (component, name) in FLAT {
        let mut buffer = vec![0; flat.len() as usize];
        for (parameter, offset) in parameters.iter().zip(&flat.offsets) {
            let words = cut(component, parameter).words;
            buffer[*offset as usize..][..words.len()].copy_from_slice(&words);
        }
        let shards = options.layout.instance_size();
        if options.use_distributed_optimizer && shards > 1 {
            let parts = flat.buckets.iter().flat_map(|bucket| {
                let words = &buffer[bucket.range.start as usize..bucket.range.end as usize];
                let len = words.len() / shards as usize;
                words[(place.data % shards) as usize * len..][..len].to_vec()
            });
            buffer = parts.collect();
        }
        part.insert(component, name, tensor(Dtype::F32, buffer));
    }
    for (component, name) in [
        (Component::OptimizerStep, "step"),
        (Component::LossScaler, "growth_tracker"),
        (Component::DataPosition, "samples"),
        (Component::Scheduler, "num_steps"),
    ] {
        let cell = state.tensor(component, name).expect("made up");
        part.insert(component, name, cell.clone());
    }
    if let Some(states) = state.generators.states.get(&(place.stage, place.tensor)) {
        part.insert(Component::Rng, "rng", states["rng"].clone());
    }
    part
}

fn all(_: Component) -> bool {
    true
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Any layout to any other one and back: whole tensors come through unchanged.
    #[test]
    fn resharding_keeps_the_state(from in any_layout(), to in any_layout()) {
        let state = from.made_up();
        let (from, to) = (from.options(), to.options());
        let saved = state.scatter(&from).unwrap();
        let gathered = CanonicalState::gather(&from, &saved).unwrap();
        prop_assert_eq!(&gathered, &state);
        let left = gathered.not_carried_to(&to);
        let loaded = CanonicalState::gather(&to, &gathered.scatter(&to).unwrap()).unwrap();
        let is_carried = |component| !left.contains(&component);
        prop_assert_eq!(state.differences(&loaded, is_carried), []);
        let same = from.layout.tensor_model_parallel_size == to.layout.tensor_model_parallel_size
            && from.layout.pipeline_model_parallel_size
                == to.layout.pipeline_model_parallel_size;
        prop_assert_eq!(left, if same { BTreeSet::new() } else { [Component::Rng].into() });
        let (tensors, words) = state.size(all);
        // 4 of each of 12 parameters a layer and 4 more, 4 cells, and the RNG states.
        let ranks = from.layout.tensor_model_parallel_size
            * from.layout.pipeline_model_parallel_size;
        prop_assert_eq!(tensors, 4 * (12 * u64::from(LAYERS) + 4) + 4 + u64::from(ranks));
        prop_assert!(words > 30_000);
    }

    /// Each rank gets what a cut by loops over the whole tensors gives it.
    #[test]
    fn parts_are_slices_of_the_whole(layout in any_layout()) {
        let (state, options) = (layout.made_up(), layout.options());
        let parts = state.scatter(&options).unwrap();
        for rank in 0..options.layout.world_size() {
            prop_assert_eq!(parts.rank(rank), Some(&expected(&state, &options, rank)), "{}", rank);
        }
    }

    /// Negative control: state that lands in the wrong place is found, and the tensor named.
    #[test]
    fn misplaced_state_is_found_and_named(layout in any_layout()) {
        let (state, options) = (layout.made_up(), layout.options());
        let right = state.scatter(&options).unwrap();
        for fault in ReshardFault::ALL {
            let wrong = state.scatter_with(&options, Some(fault)).unwrap();
            let Some((component, name)) = state.fault_target(&options, fault) else {
                let is_sharded = options.use_distributed_optimizer
                    && options.layout.instance_size() > 1;
                prop_assert!(fault == ReshardFault::ShiftedShard && !is_sharded);
                prop_assert_eq!(&wrong, &right);
                continue;
            };
            let loaded = CanonicalState::gather(&options, &wrong);
            let named = state.names_fault(&loaded, all, (component, name.as_deref()));
            prop_assert!(named, "{fault:?} is not found in {component} {name:?}");
        }
    }
}

/// A checkpoint with one rank's tensor changed.
fn changed(
    checkpoint: &Checkpoint,
    options: &TrainOptions,
    at: (u32, Component, &str),
    change: impl Fn(&mut StateTensor),
) -> Checkpoint {
    let ranks = 0..options.layout.world_size();
    let mut states: BTreeMap<u32, RankState> = ranks
        .map(|rank| (rank, checkpoint.rank(rank).expect("all ranks").clone()))
        .collect();
    let (rank, component, name) = at;
    let state = states.get_mut(&rank).expect("a rank of the layout");
    let mut words = state.tensor(component, name).expect("its tensor").clone();
    change(&mut words);
    state.insert(component, name, words);
    Checkpoint::new(checkpoint.steps, states)
}

#[test]
fn copies_that_disagree_are_named_with_their_ranks() {
    let options = options((2, 1, 2, false, None, false));
    let saved = made_up(2, 1).scatter(&options).unwrap();
    // Ranks 0 and 1 are one tensor-parallel group, 0 and 2 hold the same part.
    let gain = "decoder.layers.1.input_layernorm.weight";
    let qkv = "decoder.layers.1.self_attention.linear_qkv.weight";
    let cases = [
        (1, Component::Model, gain, gain, (0, 1), 3),
        (3, Component::Model, qkv, qkv, (1, 3), 24 * 16 + 3),
        (2, Component::OptimizerStep, "step", "step", (0, 2), 0),
        (3, Component::Rng, "rng", "rng", (1, 3), 3),
    ];
    for (rank, component, tensor, name, ranks, element) in cases {
        let place = if component == Component::OptimizerStep {
            0
        } else {
            3
        };
        let flipped = changed(&saved, &options, (rank, component, tensor), |tensor| {
            tensor.words[place] ^= 1;
        });
        let name = name.to_string();
        let want = CanonicalError::Disagree {
            component,
            name,
            ranks,
            element,
        };
        let got = CanonicalState::gather(&options, &flipped);
        assert_eq!(got, Err(want));
    }
}

#[test]
fn what_does_not_fit_is_an_error() {
    let small = options((2, 2, 1, false, None, false));
    let saved = made_up(2, 2).scatter(&small).unwrap();
    let at = (1, Component::ExpAvg, "exp_avg");
    let short = changed(&saved, &small, at, |tensor| {
        tensor.words.pop();
    });
    let got = CanonicalState::gather(&small, &short);
    assert!(
        matches!(got, Err(CanonicalError::Length { rank: 1, .. })),
        "{got:?}"
    );
    let retyped = changed(&saved, &small, at, |tensor| tensor.dtype = Dtype::Bf16);
    let got = CanonicalState::gather(&small, &retyped);
    assert!(
        matches!(got, Err(CanonicalError::Type { rank: 1, .. })),
        "{got:?}"
    );
    // As other layouts would read it.
    for (layout, other) in [
        ("more ranks", options((2, 2, 2, false, None, false))),
        ("fewer stages", options((2, 1, 1, false, None, false))),
        ("other cuts", options((4, 1, 1, false, None, false))),
    ] {
        let got = CanonicalState::gather(&other, &saved);
        let is_named = matches!(
            got,
            Err(CanonicalError::Missing { .. } | CanonicalError::Length { .. })
        );
        assert!(is_named, "{layout}: {got:?}");
    }
    let more = changed(&saved, &small, (0, Component::ExpAvg, "exp_avg"), |_| {});
    let mut rank = more.rank(0).unwrap().clone();
    rank.insert(Component::ExpAvg, "amsgrad", tensor(Dtype::F32, vec![1]));
    let ranks = (0..4).map(|id| (id, more.rank(id).unwrap().clone()));
    let mut ranks: BTreeMap<u32, RankState> = ranks.collect();
    ranks.insert(0, rank);
    let got = CanonicalState::gather(&small, &Checkpoint::new(7, ranks));
    assert!(
        matches!(got, Err(CanonicalError::Unknown { rank: 0, .. })),
        "{got:?}"
    );
}

#[test]
fn a_component_left_out_stays_out() {
    let options = options((2, 2, 2, true, Some(600), false));
    let saved = made_up(2, 2).scatter(&options).unwrap();
    for component in Component::ALL {
        let ranks = (0..8).map(|rank| {
            let mut kept = RankState::default();
            for (of, name, tensor) in saved.rank(rank).unwrap().tensors() {
                if of != component {
                    kept.insert(of, name, tensor.clone());
                }
            }
            (rank, kept)
        });
        let less = Checkpoint::new(7, ranks.collect());
        let gathered = CanonicalState::gather(&options, &less).unwrap();
        assert!(!gathered.components().contains(&component));
        let again = gathered.scatter(&options).unwrap();
        assert_eq!(again, less);
        let full = made_up(2, 2);
        let differences = full.differences(&gathered, all);
        let named: BTreeSet<Component> = differences.iter().map(|d| d.component).collect();
        assert_eq!(named, BTreeSet::from([component]));
        let text = differences[0].to_string();
        assert!(
            text.contains(component.name()) && text.contains("nothing"),
            "{text}"
        );
    }
}

#[test]
fn a_file_gives_the_same_state_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("canonical.safetensors");
    let state = made_up(2, 2);
    state.save(&path).unwrap();
    assert_eq!(CanonicalState::load(&path).unwrap(), state);
    let ranked = state
        .scatter(&options((1, 1, 1, false, None, false)))
        .unwrap();
    ranked.save(&path).unwrap();
    assert!(
        CanonicalState::load(&path).is_err(),
        "a checkpoint of ranks"
    );
}
