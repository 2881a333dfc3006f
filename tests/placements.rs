//! `plan diff --all-placements` against brute force: on small jobs every placement of a class is
//! made here too, and planned. What is said to be the same must be, whatever was tried.

use std::collections::{BTreeMap, BTreeSet};

use bitproof::Recipe;
use bitproof::plan::{Backend, Digest, Environment, Request, Selector};
use bitproof::prove::placements::{Argument, Class, Found, Job, survey};
use bitproof::topology::machines::Preset;
use bitproof::topology::{Allocation, Slot};
use bitproof::train::{TrainOptions, step_collectives};
use plan_verb::{object, text};
use proptest::prelude::*;

#[path = "support/plan_verb.rs"]
mod plan_verb;

fn recipe(world: u32, tensor: u32, sharded: bool, env: &[(&str, &str)]) -> Recipe {
    let data = world / tensor;
    let text = format!(
        "world_size = {world}\ntensor_model_parallel_size = {tensor}\nnum_layers = 1\n\
         hidden_size = 16\nnum_attention_heads = 4\nseq_length = 16\nmicro_batch_size = 1\n\
         global_batch_size = {data}\ntrain_iters = 2\nlr = 1e-2\n\
         use_distributed_optimizer = {sharded}\n"
    );
    let mut recipe = Recipe::from_toml(&text).expect("a small recipe");
    let pairs = env.iter().map(|(a, b)| (a.to_string(), b.to_string()));
    recipe.env = pairs.collect();
    recipe
}

/// The hashes of each collective's groups, by the selector alone.
fn hashes(recipe: &Recipe, allocation: &Allocation) -> Vec<Vec<Digest>> {
    let options = TrainOptions::from(recipe);
    let communicators = options.layout.communicators();
    let env = recipe.env.iter();
    let environment = Environment::parse(env.map(|(a, b)| (a.as_str(), b.as_str())));
    let selector = Selector::new(allocation.clone(), environment.expect("readable"));
    let collectives = step_collectives(&options).expect("buckets");
    let of_one = collectives.iter().map(|one| {
        let groups = one.groups.iter();
        let plans = groups.map(|group| {
            let request = Request {
                backend: Backend::Nccl,
                members: &communicators[group.0 as usize].ranks,
                collective: one.collective,
                dtype: one.dtype,
                elements: one.elements,
                reduction: one.reduction,
            };
            selector.plan(&request).expect("a plan").hash()
        });
        plans.collect()
    });
    of_one.collect()
}

fn permutations<T: Clone>(items: &[T]) -> Vec<Vec<T>> {
    let Some((last, rest)) = items.split_last() else {
        return vec![Vec::new()];
    };
    let with_last = |order: Vec<T>| {
        (0..=order.len()).map(move |at| {
            let mut order = order.clone();
            order.insert(at, last.clone());
            order
        })
    };
    permutations(rest).into_iter().flat_map(with_last).collect()
}

/// Ranks and GPUs of each node that has some, and where the node begins.
type Node = (u32, Vec<(u32, Slot)>);

fn nodes(base: &Allocation) -> Vec<Node> {
    let span = base.topology.hosts_per_nvlink_domain;
    let mut nodes: BTreeMap<u32, Vec<(u32, Slot)>> = BTreeMap::new();
    for (rank, slot) in base.placement.slots.iter().enumerate() {
        let node = nodes.entry(slot.host / span).or_default();
        node.push((rank as u32, *slot));
    }
    for node in nodes.values_mut() {
        node.sort_by_key(|(_, slot)| *slot);
    }
    nodes
        .into_iter()
        .map(|(node, ranks)| (node * span, ranks))
        .collect()
}

fn at(base: &Allocation, slots: Vec<Slot>) -> Allocation {
    let mut allocation = base.clone();
    allocation.topology.hosts = 64 * base.topology.hosts_per_nvlink_domain;
    allocation.placement.slots = slots;
    allocation
}

/// Every order of the nodes. Where ranks lie node by node they are filled in anew; else each node's
/// ranks go together to a node with the same GPUs.
fn all_node_orders(base: &Allocation) -> Vec<Allocation> {
    let nodes = nodes(base);
    let span = base.topology.hosts_per_nvlink_domain;
    let places = |node: &Node| -> Vec<(u32, u32)> {
        node.1
            .iter()
            .map(|(_, slot)| (slot.host - node.0, slot.gpu))
            .collect()
    };
    let is_filled = base
        .placement
        .slots
        .windows(2)
        .all(|pair| pair[0] < pair[1]);
    let mut all = Vec::new();
    for order in permutations(&nodes) {
        let mut slots = base.placement.slots.clone();
        if is_filled {
            slots.clear();
            for (at, node) in order.iter().enumerate() {
                let first = at as u32 * span;
                slots.extend(places(node).into_iter().map(|(host, gpu)| Slot {
                    host: first + host,
                    gpu,
                }));
            }
        } else {
            if nodes
                .iter()
                .zip(&order)
                .any(|(a, b)| places(a) != places(b))
            {
                continue;
            }
            for (here, there) in nodes.iter().zip(&order) {
                for ((rank, _), (_, slot)) in here.1.iter().zip(&there.1) {
                    slots[*rank as usize] = *slot;
                }
            }
        }
        all.push(at(base, slots));
    }
    all
}

fn all_local_orders(base: &Allocation) -> Vec<Allocation> {
    let mut all = vec![base.placement.slots.clone()];
    for (_, node) in nodes(base) {
        let gpus: Vec<Slot> = node.iter().map(|(_, slot)| *slot).collect();
        let orders = permutations(&gpus);
        let with = |slots: Vec<Slot>| {
            let node = &node;
            orders.iter().map(move |order| {
                let mut slots = slots.clone();
                for ((rank, _), slot) in node.iter().zip(order) {
                    slots[*rank as usize] = *slot;
                }
                slots
            })
        };
        all = all.into_iter().flat_map(with).collect();
    }
    all.into_iter().map(|slots| at(base, slots)).collect()
}

fn all_placements(base: &Allocation) -> Vec<Allocation> {
    let all = permutations(&base.placement.slots);
    all.into_iter().map(|slots| at(base, slots)).collect()
}

/// A host's ranks on a host without ranks, or on one of a domain of its own.
fn all_spares(base: &Allocation) -> Vec<Allocation> {
    let span = base.topology.hosts_per_nvlink_domain;
    let used: BTreeSet<u32> = base.placement.slots.iter().map(|slot| slot.host).collect();
    let own = (0..base.topology.hosts).filter(|host| !used.contains(host));
    let beyond = 63 * span;
    let spares: Vec<u32> = own.chain([beyond]).collect();
    let mut all = Vec::new();
    for lost in &used {
        for spare in &spares {
            let mut slots = base.placement.slots.clone();
            slots
                .iter_mut()
                .filter(|slot| slot.host == *lost)
                .for_each(|slot| slot.host = *spare);
            all.push(at(base, slots));
        }
    }
    all
}

fn all_splits(base: &Allocation) -> Vec<Allocation> {
    let span = base.topology.hosts_per_nvlink_domain;
    let mut all = Vec::new();
    for (first, node) in nodes(base) {
        for cut in first + 1..first + span {
            let is_moved = |slot: &Slot| slot.host / span == first / span && slot.host >= cut;
            let moved = node.iter().filter(|(_, slot)| is_moved(slot)).count();
            if moved == 0 || moved == node.len() {
                continue;
            }
            let mut slots = base.placement.slots.clone();
            for slot in slots.iter_mut().filter(|slot| is_moved(slot)) {
                slot.host = 63 * span + slot.host % span;
            }
            all.push(at(base, slots));
        }
    }
    all
}

/// What brute force says of a class: collectives that some placement changes, and different plans.
fn forced(recipe: &Recipe, base: &Allocation, class: Class) -> Option<(BTreeSet<usize>, usize)> {
    let all = match class {
        Class::NodeOrder => all_node_orders(base),
        Class::LocalOrder => all_local_orders(base),
        Class::AnyPlacement => all_placements(base),
        Class::Spare => all_spares(base),
        Class::CliqueSplit => all_splits(base),
        Class::LostNic => return None,
    };
    let own = hashes(recipe, base);
    let (mut differing, mut met) = (BTreeSet::new(), BTreeSet::from([own.clone()]));
    for allocation in all {
        let found = hashes(recipe, &allocation);
        let pairs = found.iter().zip(&own).enumerate();
        differing.extend(pairs.filter(|(_, (a, b))| a != b).map(|(place, _)| place));
        met.insert(found);
    }
    Some((differing, met.len()))
}

/// Ranks on up to four hosts, in order or not, with orders of their own or none, joined or not.
fn any_base(world: u32) -> impl Strategy<Value = Allocation> {
    let ranks: Vec<u32> = (0..world).collect();
    let order = prop_oneof![Just(ranks.clone()), Just(ranks).prop_shuffle()];
    let cuts = prop::collection::btree_set(1..world as usize, 0..=3);
    let graph = (
        any::<bool>(),
        any::<bool>(),
        prop::sample::select(vec!["tree", "balanced"]),
    );
    (order, cuts, 1u32..=2, 0u32..=1, graph).prop_map(
        |(ranks, cuts, span, spare, (known, swap, pattern))| {
            let mut hosts: Vec<Vec<u32>> = Vec::new();
            let mut from = 0;
            for cut in cuts.into_iter().chain([ranks.len()]) {
                hosts.push(ranks[from..cut].to_vec());
                from = cut;
            }
            if span > 1 {
                hosts.resize(hosts.len().next_multiple_of(2), Vec::new());
            }
            let longest = hosts.iter().map(Vec::len).max().expect("a host") as u32;
            let per_host = longest + spare;
            let gpus: Vec<u32> = (0..per_host * span).collect();
            let turned = [&gpus[1..], &gpus[..1]].concat();
            let back: Vec<u32> = gpus.iter().rev().copied().collect();
            let nccl = match known {
                true => format!(
                    "[nccl]\nring_orders = [{gpus:?}, {back:?}]\ntree_orders = [{turned:?}, \
                     {gpus:?}]\ntree_pattern = \"{pattern}\"\ncross_nic_swap = {swap}\n"
                ),
                false => String::new(),
            };
            let text = format!(
                "name = \"drawn\"\nhosts = {hosts:?}\ngpus_per_host = {per_host}\n\
                 hosts_per_nvlink_domain = {span}\n{nccl}"
            );
            Allocation::from_toml(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
        },
    )
}

fn any_case() -> impl Strategy<Value = (Recipe, Allocation)> {
    let shape = prop::sample::select(vec![(3, 1), (4, 1), (4, 2), (5, 1)]);
    let algo = prop::sample::select(vec!["Ring", "ring;allreduce:tree"]);
    (shape, algo, any::<bool>()).prop_flat_map(|((world, tensor), algo, sharded)| {
        let env = [("NCCL_ALGO", algo), ("NCCL_BUFFSIZE", "4096")];
        let recipe = recipe(world, tensor, sharded, &env);
        (Just(recipe), any_base(world))
    })
}

/// What is claimed holds in brute force.
fn is_sound(found: &Found, differing: &BTreeSet<usize>) -> bool {
    found.differing.is_subset(differing)
        && found.same.keys().all(|place| !differing.contains(place))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn brute_force_finds_the_same((recipe, base) in any_case(), few in 1usize..12) {
        let job = Job::of(&recipe, None).expect("a job");
        let whole = survey(&job, &base, 5_000).expect("plans");
        let part = survey(&job, &base, few).expect("plans");
        for (whole, part) in whole.classes.iter().zip(&part.classes) {
            let Some((differing, plans)) = forced(&recipe, &base, whole.class) else {
                // What NCCL finds without a NIC is never shown to be the same.
                prop_assert!(!whole.same.values().any(|why| *why == Argument::Tried));
                continue;
            };
            let said = format!("{whole:?} of {base:?}");
            prop_assert_eq!(&whole.differing, &differing, "{}", said);
            prop_assert_eq!(whole.plans, plans, "{}", said);
            prop_assert!(whole.is_derived(), "{}", said);
            prop_assert!(is_sound(part, &differing), "{:?} of {:?}", part, base);
            prop_assert!(part.tried <= few);
        }
        if let Some(witness) = whole.smallest {
            prop_assert_ne!(hashes(&recipe, &witness.allocation), hashes(&recipe, &base));
        }
    }

    /// A file has all that a plan reads.
    #[test]
    fn allocations_are_read_back_as_they_were((recipe, base) in any_case()) {
        let text = base.to_toml(&["drawn".to_string()]);
        let read = Allocation::from_toml(&text).expect("it was written");
        prop_assert_eq!(&read.topology.graph, &base.topology.graph);
        prop_assert_eq!(read.topology.gpus_per_host, base.topology.gpus_per_host);
        prop_assert_eq!(hashes(&recipe, &read), hashes(&recipe, &base));
        prop_assert_eq!(read.to_toml(&["drawn".to_string()]), text);
    }
}

/// Nodes of two sizes: which comes first decides which ranks share one.
#[test]
fn nodes_of_other_sizes_in_another_order_change_plans() {
    let recipe = recipe(5, 1, true, &[("NCCL_ALGO", "Ring")]);
    let file = "name = \"x\"\nhosts = [[0, 1, 2], [3], [4]]\n[nccl]\nring_orders = [[1, 0, 2]]";
    let base = Allocation::from_toml(file).expect("a file");
    let found = survey(&Job::of(&recipe, None).expect("a job"), &base, 5_000).expect("plans");
    let order = &found.classes[0];
    assert_eq!(
        (order.class, order.count, order.plans),
        (Class::NodeOrder, Some(3), 3)
    );
    assert!(order.is_derived() && !order.differing.is_empty());
    // A sample that finds a difference is no derivation.
    let any = found.classes.last().expect("any placement");
    assert_eq!((any.count, any.is_all), (Some(120), true));
    let few = survey(&Job::of(&recipe, None).expect("a job"), &base, 20).expect("plans");
    let any = few.classes.last().expect("any placement");
    assert!(!any.differing.is_empty() && !any.is_derived());
}

/// One rank on each of eight nodes: any placement is one of the same nodes with other names.
#[test]
fn one_rank_a_node_is_the_same_wherever_it_is() {
    let recipe = recipe(8, 1, true, &[("NCCL_ALGO", "ring;reducescatter:pat")]);
    let (preset, units) = Preset::named("dragonflyx8").expect("a preset");
    let mut base = preset.allocation(units, 8).expect("it fits");
    for (rank, slot) in base.placement.slots.iter_mut().enumerate() {
        *slot = Slot {
            host: rank as u32,
            gpu: 0,
        };
    }
    let found = survey(&Job::of(&recipe, None).expect("a job"), &base, 50).expect("plans");
    let any = found.classes.last().expect("any placement is the last");
    assert!(any.is_derived() && !any.is_all && any.differing.is_empty());
    // With a rank on another GPU of its node an argument holds no more, and none is needed here.
    base.placement.slots[3].gpu = 2;
    let found = survey(&Job::of(&recipe, None).expect("a job"), &base, 50).expect("plans");
    let any = found.classes.last().expect("any placement is the last");
    assert!(!any.is_derived() && any.differing.is_empty());
}

/// Negative control: a claim about placements that were not tried would be seen.
#[test]
fn a_claim_without_ground_is_seen() {
    let recipe = recipe(4, 1, true, &[("NCCL_ALGO", "Ring")]);
    let base = Allocation::from_toml("name = \"x\"\nhosts = [[0, 1], [2, 3]]").expect("a file");
    let job = Job::of(&recipe, None).expect("a job");
    let mut found = survey(&job, &base, 5_000).expect("plans");
    let any = found.classes.pop().expect("any placement is the last");
    let (differing, _) = forced(&recipe, &base, Class::AnyPlacement).expect("made here");
    assert!(!differing.is_empty() && is_sound(&any, &differing));
    let mut wrong = any;
    let place = *differing.first().expect("some differ");
    wrong.differing.remove(&place);
    wrong.same.insert(place, Argument::Tried);
    assert!(!is_sound(&wrong, &differing));
}

/// Tensor-parallel groups of a whole host, data-parallel ones of a rank on each: only the first
/// follow the order within a node, and no argument is needed for placements beyond counting.
#[test]
fn large_classes_are_derived_by_argument() {
    let mut recipe = recipe(32, 4, true, &[("NCCL_ALGO", "Ring")]);
    recipe.bf16 = true;
    let (preset, units) = Preset::named("dragonflyx8").expect("a preset");
    let base = preset.allocation(units, 32).expect("it fits");
    let job = Job::of(&recipe, None).expect("a job");
    let found = survey(&job, &base, 40).expect("plans");
    let of = |class: Class| {
        let mut classes = found.classes.iter();
        classes
            .find(|found| found.class == class)
            .expect("all are there")
    };
    let names: Vec<&str> = found
        .own
        .collectives
        .iter()
        .map(|one| &*one.collective.name)
        .collect();
    let local = of(Class::LocalOrder);
    // 24 orders of each of eight nodes.
    assert_eq!(local.count, Some(24u64.pow(8)));
    let bucket = names
        .iter()
        .position(|name| name.starts_with("grad_reduce"));
    let bucket = bucket.expect("there is a bucket");
    assert_eq!(local.same.get(&bucket), Some(&Argument::OneRankANode));
    assert!(!local.differing.is_empty());
    assert!(of(Class::NodeOrder).is_derived() && of(Class::Spare).is_derived());
    assert_eq!(of(Class::NodeOrder).plans, 1);
    assert!(of(Class::AnyPlacement).count.is_none());
    assert!(of(Class::AnyPlacement).differing.contains(&bucket));
    assert!(!of(Class::LostNic).is_derived());
}

/// The pair that is written really differs, in what it is said to differ in.
#[test]
fn a_pair_of_files_differs_as_it_is_said_to() {
    let quickstart = "scenarios/quickstart.toml";
    let folder = tempfile::tempdir().expect("a folder");
    for topology in [
        "topologies/block-2x8.toml",
        "topologies/plane2-2x8.toml",
        "preset:dgx-h100x2",
        "preset:gb200-nvl72",
        "preset:dragonfly",
    ] {
        let out = folder.path().join(topology.replace(['/', ':'], "-"));
        let out = out.display().to_string();
        let arguments = [
            "diff",
            quickstart,
            "--topology",
            topology,
            "--all-placements",
            "--placements",
            "40",
            "--out",
            &out,
        ];
        let found = object(&arguments, 1);
        let pair = &found["pair"];
        assert_eq!(pair["moved"], 2, "{topology}: {pair}");
        let [a, b] = [0, 1].map(|side| pair["files"][side].as_str().expect("a file").to_string());
        let diff = object(&["diff", quickstart, "--topology", &a, "--topology", &b], 1);
        let names: Vec<&serde_json::Value> = diff["differences"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|one| &one["name"])
            .collect();
        let said: Vec<&serde_json::Value> = pair["differing"]
            .as_array()
            .expect("a list")
            .iter()
            .collect();
        assert_eq!(names, said, "{topology}");
        // The first file is the topology itself.
        let own = object(
            &["diff", quickstart, "--topology", topology, "--topology", &a],
            0,
        );
        assert_eq!(own["identical"], true);
        // Nothing is lost that is there.
        assert!(text(&arguments, 2).contains("`--force` replaces it"));
    }
}

#[test]
fn classes_are_told_with_what_they_rest_on() {
    let arguments = |more: &[&'static str]| {
        let diff = ["diff", "scenarios/quickstart.toml", "--topology"];
        [
            &diff[..],
            &["topologies/dgx-h100-2.toml", "--all-placements"],
            more,
        ]
        .concat()
    };
    let human = text(&arguments(&["--placements", "20"]), 1);
    for said in [
        "node order: the nodes in any order",
        "derived: 1 of 1 tried, no other plans",
        "two addends or a maximum have one order: embedding.stage0",
        "what NCCL finds on the node itself is not known",
        "`--out DIR` writes it as two topology files",
    ] {
        assert!(human.contains(said), "{said}: {human}");
    }
    // Another library adds in rank order: every class is derived, and nothing differs.
    let gloo = object(&arguments(&["--backend", "gloo"]), 0);
    let classes = gloo["classes"].as_array().expect("a list");
    assert!(classes.iter().all(|class| class["marked"] == "derived"));
    assert!(gloo["pair"].is_null());
    let refused = text(&arguments(&["--topology", "topologies/block-2x8.toml"]), 2);
    assert!(refused.contains("one `--topology`"), "{refused}");
    let refused = text(&arguments(&["--env", "NCCL_PROTO=LL"]), 2);
    assert!(refused.contains("cannot be used with"), "{refused}");
    assert!(text(&arguments(&["--placements", "0"]), 2).contains("1..=100000"));
}
