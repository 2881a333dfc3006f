use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use super::*;
use crate::diagnostic::Source;
use crate::numerics::Dtype;
use crate::plan::{Combine, Environment, Plan};
use crate::prove::plans::AllocationPlans;
use crate::scenario::Overrides;
use crate::topology::Allocation;
use crate::world::{GroupId, PlanSource};

/// 2 x 2 x 4 ranks of a small model; `full` is the table of the real one.
fn scenario(full: &str) -> Scenario {
    let text = format!(
        "[recipe]\nworld_size = 16\ntensor_model_parallel_size = 2\n\
         pipeline_model_parallel_size = 2\nsequence_parallel = true\nnum_layers = 4\n\
         hidden_size = 32\nffn_hidden_size = 64\nnum_attention_heads = 4\nseq_length = 32\n\
         micro_batch_size = 1\nglobal_batch_size = 16\ntrain_iters = 2\nlr = 1e-3\nbf16 = true\n\
         use_distributed_optimizer = true\noverlap_grad_reduce = true\n[full_size]\n{full}"
    );
    let source = Source::new("case.toml", text);
    let loaded = Scenario::from_source(&source, Path::new("case.toml"), &Overrides::default());
    loaded.expect("a sound scenario").scenario
}

const FULL: &str = "num_layers = 24\nhidden_size = 1024\nffn_hidden_size = 4096\n\
    num_attention_heads = 16\nnum_query_groups = 16\nkv_channels = 64\nseq_length = 2048\n\
    micro_batch_size = 2\npadded_vocab_size = 51200\n";

fn twins(full: &str) -> (TrainOptions, Twins) {
    let scenario = scenario(full);
    let options = TrainOptions::from(&scenario.recipe);
    let twins = Twins::of(&scenario, &options).expect("the full size is given");
    (options, twins)
}

/// The first communicator of the name's kind.
fn group(options: &TrainOptions, kind: &str) -> GroupId {
    let list = options.layout.communicators();
    let place = list.iter().position(|group| group.name.starts_with(kind));
    GroupId(place.expect("a communicator of that kind") as u32)
}

fn scatter(group: GroupId, family: Family, elements: u64) -> CollectiveShape {
    CollectiveShape {
        group,
        kind: CollectiveKind::ReduceScatter { family },
        dtype: Dtype::F32,
        elements,
    }
}

#[test]
fn activations_and_scalars_have_the_sizes_of_the_real_job() {
    let (options, twins) = twins(FULL);
    let tensor = group(&options, "tp");
    let activations = scatter(tensor, Family::TensorParallel, 32 * 32);
    assert_eq!(twins.of_shape(activations), [2048 * 2 * 1024]);
    let all_reduce = |family, elements| CollectiveShape {
        kind: CollectiveKind::AllReduce {
            combine: Combine::Sum,
            family,
        },
        ..scatter(tensor, family, elements)
    };
    let entropy = all_reduce(Family::VocabCrossEntropy, 32);
    assert_eq!(twins.of_shape(entropy), [2048 * 2]);
    // Two gains a layer: twelve layers of 1,024 for two of 32.
    let gains = all_reduce(Family::NormWeightTp, 4 * 32);
    assert_eq!(twins.of_shape(gains), [24 * 1024]);
    assert_eq!(twins.of_shape(all_reduce(Family::NormGlobal, 1)), [1]);
}

#[test]
fn a_bucket_stands_for_the_real_ones() {
    let bucketed = format!("{FULL}ddp_bucket_size = 40000000\n");
    let (options, twins) = twins(&bucketed);
    let data = group(&options, "dp");
    let whole = twins.here.stages[0].buckets[0];
    assert_eq!(twins.here.stages[0].buckets.len(), 1);
    let sizes = twins.of_shape(scatter(data, Family::DpGradients, whole));
    let full = scenario(&bucketed);
    let full = full.full_size.unwrap().recipe(&full.recipe).unwrap();
    let parameters = full.parameter_count(0);
    let sum: u64 = sizes.iter().sum();
    assert!(sizes.len() > 1, "{sizes:?}");
    assert!(sizes.iter().all(|size| size % 4 == 0));
    assert!(
        (parameters..parameters + parameters / 100).contains(&sum),
        "{sum} of {parameters}"
    );
    // A bucket that the small model has not stands for all.
    assert_eq!(
        twins.of_shape(scatter(data, Family::DpGradients, 64)),
        sizes
    );
}

#[test]
fn without_the_model_there_are_no_twins() {
    let scenario = scenario("data_parallel_size = 38\n");
    assert!(Twins::of(&scenario, &TrainOptions::from(&scenario.recipe)).is_none());
}

#[test]
fn everything_is_stood_for() {
    for (here, full) in [(1, 1), (1, 7), (3, 7), (7, 3), (4, 4), (5, 12)] {
        let all: Vec<BTreeSet<usize>> = (0..here).map(|at| stood_for(at, here, full)).collect();
        assert!(all.iter().all(|places| !places.is_empty()));
        let union: BTreeSet<usize> = all.into_iter().flatten().collect();
        assert!(union.into_iter().eq(0..full), "{here} {full}");
    }
    assert_eq!(stood_for(2, 4, 4), BTreeSet::from([2]));
}

/// One host whose rings on channel 1 have the two given first ranks swapped.
fn allocation(name: &str, swap: bool) -> Allocation {
    let ring = |swapped: bool| {
        let mut ranks: Vec<u32> = (0..16).collect();
        if swapped {
            ranks.swap(1, 4);
        }
        format!("{ranks:?}")
    };
    let (plain, second) = (ring(false), ring(swap));
    let hosts = &plain;
    let text = format!(
        "name = \"{name}\"\nhosts = [{hosts}]\n[nccl]\nring_orders = [{plain}, {second}]\n\
         tree_orders = [{plain}, {plain}]\n"
    );
    Allocation::from_toml(&text).expect("a sound allocation")
}

/// The trees that two plans have side by side, over all of their elements.
fn pairs(plans: &[Arc<Plan>]) -> BTreeSet<Vec<[u8; 32]>> {
    let mut pairs = BTreeSet::new();
    let (a, b) = (plans[0].classes(), plans[1].classes());
    for (range, x) in &a {
        for (other, y) in &b {
            if range.start < other.end && other.start < range.end {
                pairs.insert(vec![*x, *y]);
            }
        }
    }
    pairs
}

#[test]
fn a_small_buffer_has_every_order_of_the_real_ones() {
    let (options, twins) = twins(&format!("{FULL}ddp_bucket_size = 40000000\n"));
    let communicators: Arc<[Communicator]> = options.layout.communicators().into();
    let places = [allocation("a", false), allocation("b", true)];
    let environment = Environment::parse([("NCCL_ALGO", "Ring")]).unwrap();
    let plans = |twins: Option<Twins>| {
        AllocationPlans::new(&places, &environment, communicators.clone(), twins)
    };
    let (own, scaled) = (plans(None), plans(Some(twins.clone())));
    let elements = twins.here.stages[0].buckets[0];
    let shape = scatter(group(&options, "dp"), Family::DpGradients, elements);
    let real = twins.of_shape(shape).into_iter().map(|elements| {
        let shape = CollectiveShape { elements, ..shape };
        pairs(&own.plans(shape).unwrap())
    });
    let real: BTreeSet<_> = real.flatten().collect();
    let small = scaled.plans(shape).unwrap();
    assert_eq!(pairs(&small), real);
    assert!(!small[0].same_bits(&small[1]));
    // The control: the small buffer's own plans have fewer orders, and do not part.
    let alone = own.plans(shape).unwrap();
    assert!(pairs(&alone).len() < real.len());
    assert!(alone[0].same_bits(&alone[1]));
}
