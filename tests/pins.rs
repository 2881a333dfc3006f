//! `pins` against brute force: on small jobs every set of settings is tried here too, with every
//! placement, every pair of orders within a node and every environment that is left open.

use std::collections::{BTreeMap, BTreeSet};

use bitproof::Recipe;
use bitproof::plan::{
    Algorithm, Backend, Collective, Digest, Environment, Function, Protocol, Reduction, Request,
    Selector,
};
use bitproof::prove::pin::{Configured, Judged, Setting, Side, candidates, pins};
use bitproof::topology::machines::Preset;
use bitproof::topology::{Allocation, ChannelGraph, TreePattern};
use bitproof::train::{TrainOptions, step_collectives};
use proptest::prelude::*;

/// A job, and where it may run.
#[derive(Clone, Debug)]
struct Case {
    recipe: Recipe,
    allocations: Vec<Allocation>,
    free: bool,
}

fn recipe(world: u32, tensor: u32, sharded: bool, env: &BTreeMap<String, String>) -> Recipe {
    let (data, heads) = (world / tensor, tensor.max(4));
    let hidden = 4 * heads;
    let text = format!(
        "world_size = {world}\ntensor_model_parallel_size = {tensor}\nnum_layers = 1\n\
         hidden_size = {hidden}\nnum_attention_heads = {heads}\nseq_length = 16\n\
         micro_batch_size = 1\n         global_batch_size = {data}\ntrain_iters = 2\nlr = 1e-2\n\
         use_distributed_optimizer = {sharded}\n"
    );
    let mut recipe = Recipe::from_toml(&text).expect("a small recipe");
    recipe.env = env.clone();
    recipe
}

/// What is known of the orders within a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    Nothing,
    /// What the search finds for groups that have each node whole.
    Searched,
    /// What a graph file says to every communicator.
    Forced,
}

/// The case with settings applied: the recipe, the allocations, what is known of their orders and
/// whether ranks may move.
fn applied(case: &Case, settings: &[Setting]) -> (Recipe, Vec<(Allocation, Known)>, bool) {
    let mut recipe = case.recipe.clone();
    let mut free = case.free;
    let is_known = |one: &Allocation| match one.topology.graph
        == ChannelGraph::ascending(one.topology.gpus_per_node())
    {
        true => Known::Nothing,
        false => Known::Searched,
    };
    let sides = case.allocations.iter();
    let mut sides: Vec<_> = sides.map(|one| (one.clone(), is_known(one))).collect();
    let first = case.allocations[0].clone();
    for setting in settings {
        let mut set = |name: &str, value: String| recipe.env.insert(name.into(), value);
        match setting {
            Setting::Algorithm(value) => drop(set("NCCL_ALGO", value.to_string())),
            Setting::Protocol => drop(set("NCCL_PROTO", "Simple".into())),
            Setting::OneChannel => drop(set("NCCL_MAX_NCHANNELS", "1".into())),
            Setting::Channels(count) => {
                set("NCCL_MIN_NCHANNELS", count.to_string());
                set("NCCL_MAX_NCHANNELS", count.to_string());
            }
            Setting::Graph(_) => sides.iter_mut().for_each(|(side, known)| {
                side.topology.graph = first.topology.graph.clone();
                *known = Known::Forced;
            }),
            Setting::Placement(_) => {
                free = false;
                let slots = &first.placement.slots;
                for (side, _) in &mut sides {
                    side.placement.slots = slots.clone();
                }
            }
            Setting::Fp32Accumulation => recipe.ddp_reduce_scatter_with_fp32_accumulation = true,
        }
    }
    (recipe, sides, free)
}

fn permutations(items: &[u32]) -> Vec<Vec<u32>> {
    let Some((last, rest)) = items.split_last() else {
        return vec![Vec::new()];
    };
    let with_last = |order: Vec<u32>| {
        (0..=order.len()).map(move |at| {
            let mut order = order.clone();
            order.insert(at, *last);
            order
        })
    };
    permutations(rest).into_iter().flat_map(with_last).collect()
}

/// One or two channels with orders of their own, swapped on every second node or not.
fn graphs(gpus: u32) -> Vec<ChannelGraph> {
    let orders = permutations(&(0..gpus).collect::<Vec<_>>());
    let patterns = [TreePattern::Tree, TreePattern::Balanced, TreePattern::Split];
    let mut all = Vec::new();
    for (place, one) in orders.iter().enumerate() {
        for other in [&orders[place], &orders[0], orders.last().expect("an order")] {
            for pattern in patterns {
                for (channels, swap) in [(1, false), (2, false), (2, true), (3, false)] {
                    let list = [one.clone(), other.clone(), one.clone()][..channels].to_vec();
                    all.push(ChannelGraph {
                        ring_orders: list.clone(),
                        tree_orders: list,
                        tree_pattern: pattern,
                        cross_nic_swap: swap,
                        missing: None,
                    });
                }
            }
        }
    }
    all
}

/// Whether the orders of the file are those of a group: it has whole hosts, and they are one of one
/// or several of several.
fn is_whole(machine: &Allocation, group: &[u32]) -> bool {
    let host = |rank: u32| machine.placement.slots[rank as usize].host;
    let on = |wanted: u32| {
        (0..machine.placement.world())
            .filter(|rank| host(*rank) == wanted)
            .collect::<BTreeSet<u32>>()
    };
    let own: BTreeSet<u32> = group.iter().copied().collect();
    let hosts: BTreeSet<u32> = group.iter().map(|rank| host(*rank)).collect();
    hosts.iter().all(|host| {
        let ranks = on(*host);
        ranks.len() as u32 == machine.topology.gpus_per_host && ranks.is_subset(&own)
    })
}

/// Every machine that a side can be for a group.
fn machines(side: &Allocation, known: Known, free: bool, group: &[u32]) -> Vec<Allocation> {
    let own: Vec<u32> = (0..side.placement.world()).collect();
    let placements = match free {
        true => permutations(&own),
        false => vec![own],
    };
    let mut all = Vec::new();
    for order in &placements {
        let mut machine = side.clone();
        let slot = |place: &u32| side.placement.slots[*place as usize];
        machine.placement.slots = order.iter().map(slot).collect();
        let hosts: BTreeSet<u32> = machine.placement.slots.iter().map(|one| one.host).collect();
        let own: BTreeSet<u32> = group
            .iter()
            .map(|rank| machine.placement.slots[*rank as usize].host)
            .collect();
        let is_known = match known {
            Known::Nothing => false,
            Known::Searched => is_whole(&machine, group) && (own.len() > 1 || hosts.len() == 1),
            Known::Forced => is_whole(&machine, group),
        };
        let graphs = match is_known {
            true => vec![side.topology.graph.clone()],
            false => graphs(side.topology.gpus_per_node()),
        };
        for graph in graphs {
            let mut machine = machine.clone();
            machine.topology.graph = graph;
            all.push(machine);
        }
    }
    all
}

/// Every environment that a function may meet, or `None` where NCCL may take what is not modelled.
fn environments(recipe: &Recipe, function: Function) -> Option<Vec<Environment>> {
    let parse = |env: &BTreeMap<String, String>| {
        Environment::parse(env.iter().map(|(a, b)| (a.as_str(), b.as_str()))).expect("readable")
    };
    let own = parse(&recipe.env);
    let serving = Algorithm::ALL
        .into_iter()
        .filter(|one| one.serves(function));
    let algorithms = own.left(function).unwrap_or_else(|| serving.collect());
    if algorithms.is_empty() || !algorithms.iter().all(|one| one.modelled()) {
        return None;
    }
    let (min, max) = (own.min_channels, own.max_channels);
    let mut all = Vec::new();
    for algorithm in algorithms {
        for protocol in Protocol::ALL {
            // What a list does not leave, it would not choose.
            let text = recipe.env.get("NCCL_PROTO").cloned().unwrap_or_default();
            let is_left = |name: &str| text.split(',').any(|one| one.eq_ignore_ascii_case(name));
            if !text.is_empty() && !is_left(protocol.name()) {
                continue;
            }
            for count in min..=max.max(min) {
                let mut env = recipe.env.clone();
                env.insert(
                    "NCCL_ALGO".into(),
                    format!("{}:{}", function.name(), algorithm.name()),
                );
                env.insert("NCCL_PROTO".into(), protocol.name().into());
                if min < max {
                    env.insert("NCCL_MIN_NCHANNELS".into(), count.to_string());
                    env.insert("NCCL_MAX_NCHANNELS".into(), count.to_string());
                }
                all.push(parse(&env));
            }
        }
    }
    Some(all)
}

fn has_one_plan(
    request: &Request<'_>,
    machines: impl Iterator<Item = Allocation>,
    environments: &[Environment],
) -> bool {
    let mut plans: BTreeSet<Digest> = BTreeSet::new();
    for machine in machines {
        for environment in environments {
            let selector = Selector::new(machine.clone(), environment.clone());
            plans.insert(selector.plan(request).expect("a plan").hash());
            if plans.len() > 1 {
                return false;
            }
        }
    }
    true
}

/// Whether each group of each collective has one plan only, whatever is left open.
fn is_pinned(case: &Case, settings: &[Setting]) -> bool {
    let (recipe, sides, free) = applied(case, settings);
    let options = TrainOptions::from(&recipe);
    let communicators = options.layout.communicators();
    let collectives = step_collectives(&options).expect("buckets");
    collectives.iter().all(|one| {
        let ranks = |group: usize| &communicators[one.groups[group].0 as usize].ranks;
        let function = match one.collective {
            Collective::AllReduce => Function::AllReduce,
            Collective::ReduceScatter => Function::ReduceScatter,
            _ => return true,
        };
        if one.reduction == Reduction::Max || ranks(0).len() <= 2 {
            return true;
        }
        let Some(environments) = environments(&recipe, function) else {
            return false;
        };
        (0..one.groups.len()).all(|group| {
            let request = Request {
                backend: Backend::Nccl,
                members: ranks(group),
                collective: one.collective,
                dtype: one.dtype,
                elements: one.elements,
                reduction: one.reduction,
            };
            let machines = sides
                .iter()
                .flat_map(|(side, known)| machines(side, *known, free, ranks(group)));
            has_one_plan(&request, machines, &environments)
        })
    })
}

fn subsets(lists: &[Vec<Setting>]) -> Vec<Vec<Setting>> {
    let mut sets = vec![Vec::new()];
    for list in lists {
        for set in sets.clone() {
            for one in list {
                sets.push([&set[..], std::slice::from_ref(one)].concat());
            }
        }
    }
    sets
}

/// The sets that pin and have no part that does.
fn brute_force(case: &Case) -> BTreeSet<Vec<Setting>> {
    let job = Configured {
        recipe: case.recipe.clone(),
        sides: case
            .allocations
            .iter()
            .map(|one| Side::new(one.clone(), case.free))
            .collect(),
    };
    let sets = subsets(&candidates(&job));
    let pinning: Vec<&Vec<Setting>> = sets.iter().filter(|set| is_pinned(case, set)).collect();
    let has_part = |set: &&&Vec<Setting>| {
        !pinning
            .iter()
            .any(|other| other.len() < set.len() && other.iter().all(|one| set.contains(one)))
    };
    pinning
        .iter()
        .filter(has_part)
        .map(|set| sorted(set))
        .collect()
}

fn sorted(set: &[Setting]) -> Vec<Setting> {
    let mut set = set.to_vec();
    set.sort();
    set
}

fn any_case() -> impl Strategy<Value = Case> {
    let shape = prop::sample::select(vec![(2, 1), (3, 1), (4, 1), (4, 2), (6, 2)]);
    let algo = prop::sample::select(vec![
        "",
        "Ring",
        "^NVLS",
        "Ring;allreduce:tree",
        "Ring,Tree",
    ]);
    let proto = prop::sample::select(vec!["", "Simple", "LL", "LL,Simple"]);
    let limits = prop::sample::select(vec![(0, 1), (0, 2), (2, 2), (3, 2), (0, 3)]);
    let places = prop::collection::vec((1usize..=4, any::<u64>(), any::<bool>()), 1..=2);
    let flags = (any::<bool>(), prop::bool::weighted(0.3));
    (shape, algo, proto, limits, places, flags).prop_map(
        |((world, tensor), algo, proto, (min, max), places, (sharded, free))| {
            let mut env = BTreeMap::from([("NCCL_MAX_NCHANNELS".to_string(), max.to_string())]);
            let mut set = |name: &str, value: String| {
                if !value.is_empty() && value != "0" {
                    env.insert(name.to_string(), value);
                }
            };
            set("NCCL_ALGO", algo.to_string());
            set("NCCL_PROTO", proto.to_string());
            set("NCCL_MIN_NCHANNELS", u32::to_string(&min));
            let allocations = places
                .iter()
                .map(|(hosts, seed, known)| allocation(world, *hosts, *seed, *known));
            Case {
                recipe: recipe(world, tensor, sharded, &env),
                allocations: allocations.collect(),
                // All permutations of six ranks are too many to try here.
                free: free && world <= 4,
            }
        },
    )
}

/// Ranks dealt to hosts of at most three GPUs by a seed; with orders of its own or none.
fn allocation(world: u32, hosts: usize, seed: u64, known: bool) -> Allocation {
    let hosts = hosts.max(world.div_ceil(3) as usize).min(world as usize);
    let mut ranks: Vec<u32> = (0..world).collect();
    if seed % 2 == 1 {
        ranks.rotate_left(seed as usize / 2 % world as usize);
        ranks.swap(0, seed as usize / 7 % world as usize);
    }
    let mut lists = vec![Vec::new(); hosts];
    for (place, rank) in ranks.into_iter().enumerate() {
        lists[place % hosts].push(rank);
    }
    let gpus = lists.iter().map(Vec::len).max().expect("hosts") as u32;
    let order: Vec<u32> = (0..gpus).rev().collect();
    let nccl = match known && gpus > 1 {
        true => format!("[nccl]\nring_orders = [{order:?}]\ntree_orders = [{order:?}]\n"),
        false => String::new(),
    };
    let text = format!("name = \"a{seed}\"\nhosts = {lists:?}\n{nccl}");
    Allocation::from_toml(&text).expect("an allocation")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn brute_force_finds_the_same_sets(case in any_case()) {
        let found = pins(&case.recipe, None, &case.allocations, case.free).expect("a job");
        let sets: BTreeSet<Vec<Setting>> =
            found.sets.iter().map(|set| sorted(&set.settings)).collect();
        let forced = brute_force(&case);
        prop_assert_eq!(&sets, &forced);
        prop_assert_eq!(found.left.is_some(), sets.is_empty());
        if let Some((settings, left)) = found.left {
            prop_assert!(!left.is_empty());
            prop_assert!(!is_pinned(&case, &settings));
        }
    }
}

/// The cases above are neither all pinned nor all hopeless, and some need several settings.
#[test]
fn some_jobs_need_nothing_and_some_cannot_be_pinned() {
    let env = |pairs: &[(&str, &str)]| {
        pairs
            .iter()
            .map(|(a, b)| (a.to_string(), b.to_string()))
            .collect()
    };
    let (one, other) = (allocation(4, 2, 0, true), allocation(4, 4, 9, true));
    let pinned = env(&[
        ("NCCL_ALGO", "Ring"),
        ("NCCL_PROTO", "LL"),
        ("NCCL_MAX_NCHANNELS", "1"),
    ]);
    let job = |env: &BTreeMap<String, String>| recipe(4, 1, true, env);
    let alone = pins(&job(&pinned), None, std::slice::from_ref(&one), false).expect("a job");
    assert_eq!(alone.sets.len(), 1);
    assert!(alone.sets[0].settings.is_empty(), "{alone:?}");
    assert_eq!(alone.sets[0].cost, alone.now);
    let both = [one.clone(), other];
    let nothing = pins(&job(&pinned), None, &both, false).expect("a job");
    let (_, left) = nothing.left.expect("nothing pins two shapes");
    assert!(
        left.iter()
            .any(|one| matches!(one.judged, Judged::Open { .. }))
    );
    // An all-reduce of gradients: protocol and channels move its chunks.
    let replicated = recipe(4, 1, false, &env(&[]));
    let open = pins(&replicated, None, &[one], false).expect("a job");
    let sizes: BTreeSet<usize> = open.sets.iter().map(|set| set.settings.len()).collect();
    assert!(sizes.contains(&2), "{open:?}");
}

/// Costs by hand: four ranks, a reduce-scatter of gradients and two all-reduces of one number.
#[test]
fn costs_are_those_of_the_formulas() {
    let env = |proto: &str| {
        let pairs = [
            ("NCCL_ALGO", "Ring"),
            ("NCCL_PROTO", proto),
            ("NCCL_MAX_NCHANNELS", "1"),
        ];
        pairs.map(|(a, b)| (a.to_string(), b.to_string())).into()
    };
    let allocation = allocation(4, 1, 0, true);
    let cost = |proto: &str| {
        let recipe = recipe(4, 1, true, &env(proto));
        let collectives = step_collectives(&TrainOptions::from(&recipe)).expect("buckets");
        let bytes: u64 = collectives
            .iter()
            .map(|one| {
                let passes = if one.collective == Collective::AllReduce {
                    2
                } else {
                    1
                };
                passes * 3 * one.elements * one.dtype.wire_bytes() * one.times
            })
            .sum();
        let found = pins(&recipe, None, std::slice::from_ref(&allocation), false).expect("a job");
        (found.now.expect("rings"), bytes)
    };
    let ((simple, bytes), (ll, _)) = (cost("Simple"), cost("LL"));
    assert_eq!(simple.wire_bytes, bytes);
    assert_eq!(ll.wire_bytes, 2 * bytes);
    // Two all-reduces of 2 (n - 1) steps and a reduce-scatter of n - 1.
    assert_eq!(simple.steps, 6 + 6 + 3);
}

/// Data-parallel groups of four on a host of eight: NCCL searches their rings anew, so what it
/// finds for the whole host pins nothing of them. The job's largest group has the whole host.
#[test]
fn groups_on_a_part_of_a_node_are_not_pinned_by_its_orders() {
    let text = std::fs::read_to_string("scenarios/recipes/gpt-8.toml").expect("it is shipped");
    let recipe = Recipe::from_toml(&text).expect("a recipe");
    for name in ["dgx-h100x1", "dgx-a100x1"] {
        let (preset, units) = Preset::named(name).expect("a preset");
        let allocation = preset.allocation(units, 8).expect("it fits");
        let found = pins(&recipe, None, std::slice::from_ref(&allocation), false).expect("a job");
        assert!(found.sets.is_empty(), "{name}: {:?}", found.sets);
        let (_, left) = found.left.expect("something is left");
        let is_open = |name: &str| {
            left.iter()
                .any(|one| one.name == name && matches!(one.judged, Judged::Open { .. }))
        };
        assert!(is_open("loss"), "{left:?}");
        assert!(!left.iter().any(|one| one.name == "grad_norm"), "{left:?}");
    }
    // Negative control: with eight data-parallel ranks every group has the whole host.
    let mut whole = recipe;
    whole.tensor_model_parallel_size = 1;
    whole.sequence_parallel = false;
    whole.global_batch_size = 24;
    let (preset, units) = Preset::named("dgx-h100x1").expect("a preset");
    let allocation = preset.allocation(units, 8).expect("it fits");
    let found = pins(&whole, None, &[allocation], false).expect("a job");
    assert!(!found.sets.is_empty(), "{:?}", found.left);
}

/// A group on one whole node of several: known of machines whose search for it is known, else open.
#[test]
fn a_group_on_one_node_of_several_is_searched_for_alone() {
    let job = recipe(
        16,
        8,
        true,
        &BTreeMap::from([("NCCL_ALGO".into(), "Ring".into())]),
    );
    let (preset, units) = Preset::named("dgx-h100x2").expect("a preset");
    let known = preset.allocation(units, 16).expect("it fits");
    let judged = |allocation: Allocation| {
        let found = pins(&job, None, &[allocation], false).expect("a job");
        let left = found.left.map(|(_, left)| left).unwrap_or_default();
        left.into_iter().map(|one| one.name).collect::<Vec<_>>()
    };
    assert_eq!(judged(known.clone()), Vec::<String>::new());
    let mut unknown = known;
    unknown.topology.alone = None;
    let left = judged(unknown);
    assert!(
        left.iter().any(|name| name.starts_with("layers")),
        "{left:?}"
    );
}
