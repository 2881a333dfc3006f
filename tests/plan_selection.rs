//! The selector: what placements, environments and sizes do to plans.

use std::sync::Arc;

use bitproof::numerics::Dtype;
use bitproof::plan::{
    Backend, Collective, Environment, EnvironmentError, Plan, PlanError, Reduction, Request,
    Selector, Tree,
};
use bitproof::topology::{Allocation, Topology};

const BLOCK: &str = include_str!("../topologies/block-2x8.toml");
const PLANE: &str = include_str!("../topologies/plane2-2x8.toml");

fn selector(allocation: &str, variables: &[(&str, &str)]) -> Selector {
    let allocation = Allocation::from_toml(allocation).unwrap();
    Selector::new(
        allocation,
        Environment::parse(variables.iter().copied()).unwrap(),
    )
}

fn request(members: &[u32], collective: Collective, elements: u64) -> Request<'_> {
    Request {
        backend: Backend::Nccl,
        members,
        collective,
        dtype: Dtype::F32,
        elements,
        reduction: Reduction::Sum,
    }
}

fn same(a: &Selector, b: &Selector, request: &Request<'_>) -> bool {
    a.plan(request)
        .unwrap()
        .same_bits(&b.plan(request).unwrap())
}

fn every_order(plan: &Plan) -> Vec<Vec<u32>> {
    plan.pieces
        .iter()
        .map(|piece| piece.tree.order_for_chain().expect("a ring"))
        .collect()
}

/// TP2 PP2 DP4 in Megatron's default order on the two allocations of the documentation.
#[test]
fn data_parallel_rings_move_between_allocations_and_tensor_parallel_pairs_do_not() {
    let (block, plane) = (selector(BLOCK, &[]), selector(PLANE, &[]));
    let data_parallel = [0, 2, 4, 6];
    let scatter = request(&data_parallel, Collective::ReduceScatter, 4 * 1000);
    // Places in the group: ranks 0, 4 | 2, 6 on the two hosts.
    let block_orders = every_order(&block.plan(&scatter).unwrap());
    let plane_orders = every_order(&plane.plan(&scatter).unwrap());
    assert_eq!(block_orders[0], [1, 2, 3, 0]);
    assert_eq!(plane_orders[0], [2, 1, 3, 0]);
    assert!(!same(&block, &plane, &scatter));
    assert!(!same(
        &block,
        &plane,
        &request(&data_parallel, Collective::AllReduce, 4001)
    ));
    let world: Vec<u32> = (0..16).collect();
    assert!(!same(
        &block,
        &plane,
        &request(&world, Collective::AllReduce, 1)
    ));
    for first in (0..16).step_by(2) {
        let pair = [first, first + 1];
        assert!(same(
            &block,
            &plane,
            &request(&pair, Collective::AllReduce, 100_000)
        ));
        assert!(same(
            &block,
            &plane,
            &request(&pair, Collective::ReduceScatter, 100_000)
        ));
    }
}

/// What the report advises: each switch makes the two allocations equal.
#[test]
fn switches_that_remove_the_dependence_on_placement() {
    let data_parallel = [0, 2, 4, 6];
    let (block, plane) = (selector(BLOCK, &[]), selector(PLANE, &[]));
    let local_sum = Collective::ReduceScatterFp32Accumulation;
    assert!(same(
        &block,
        &plane,
        &request(&data_parallel, local_sum, 4000)
    ));
    let gloo = Request {
        backend: Backend::Gloo,
        ..request(&data_parallel, Collective::AllReduce, 4000)
    };
    assert!(same(&block, &plane, &gloo));
}

#[test]
fn one_channel_leaves_one_ring_and_one_tree() {
    let dgx = Topology::from_toml(include_str!("../topologies/dgx-h100-2.toml")).unwrap();
    let allocation = dgx.block(16).unwrap();
    let world: Vec<u32> = (0..16).collect();
    let classes = |variables: &[(&str, &str)], collective| {
        let environment = Environment::parse(variables.iter().copied()).unwrap();
        let selector = Selector::new(allocation.clone(), environment);
        let plan = selector
            .plan(&request(&world, collective, 16 << 20))
            .unwrap();
        assert_eq!(plan.check(), Ok(()));
        plan.class_sizes().len()
    };
    let (ring, tree) = (Collective::ReduceScatter, Collective::AllReduce);
    assert_eq!(classes(&[("NCCL_MAX_NCHANNELS", "1")], ring), 16);
    assert_eq!(classes(&[], ring), 16 * 8);
    let one = [("NCCL_ALGO", "allreduce:tree"), ("NCCL_MAX_NCHANNELS", "1")];
    assert_eq!(classes(&one, tree), 1);
    // Sixteen channels, but with two nodes both trees of a chain add the same two partial sums.
    assert_eq!(classes(&[("NCCL_ALGO", "allreduce:tree")], tree), 8);
}

#[test]
fn protocols_move_elements_between_chunks_and_sizes_between_channels() {
    let world: Vec<u32> = (0..16).collect();
    let simple = selector(BLOCK, &[]);
    let ll = selector(BLOCK, &[("NCCL_PROTO", "LL")]);
    assert!(!same(
        &simple,
        &ll,
        &request(&world, Collective::AllReduce, 1 << 20)
    ));
    // One ring, so a reduce-scatter does not mind.
    assert!(same(
        &simple,
        &ll,
        &request(&world, Collective::ReduceScatter, 1 << 20)
    ));
}

#[test]
fn averages_multiply_first_in_nccl_and_divide_last_in_gloo() {
    let block = selector(BLOCK, &[]);
    let members = [0, 1, 2];
    let average = Request {
        dtype: Dtype::Bf16,
        reduction: Reduction::Avg,
        ..request(&members, Collective::AllReduce, 3)
    };
    let plan = block.plan(&average).unwrap();
    let third = half::bf16::from_f32(1.0 / 3.0).to_f32();
    assert_eq!(plan.arithmetic.pre_multiply_bits, Some(third.to_bits()));
    assert!(plan.arithmetic.contraction_free);
    let gloo = block
        .plan(&Request {
            backend: Backend::Gloo,
            ..average
        })
        .unwrap();
    assert_eq!(gloo.arithmetic.post_divide_bits, Some(3f32.to_bits()));
    assert_eq!(gloo.arithmetic.pre_multiply_bits, None);
}

#[test]
fn equal_groups_share_one_plan() {
    let block = selector(BLOCK, &[]);
    let a = block
        .plan(&request(&[0, 2, 4, 6], Collective::AllReduce, 999))
        .unwrap();
    let b = block
        .plan(&request(&[8, 10, 12, 14], Collective::AllReduce, 999))
        .unwrap();
    assert!(Arc::ptr_eq(&a, &b));
    let copied = block
        .plan(&request(&[0, 2], Collective::AllGather, 10))
        .unwrap();
    assert_eq!((copied.addend_count, copied.check()), (1, Ok(())));
    let empty = block
        .plan(&request(&[0, 2], Collective::AllReduce, 0))
        .unwrap();
    assert_eq!(empty.check(), Ok(()));
}

#[test]
fn impossible_requests_are_refused_with_their_reason() {
    let block = selector(BLOCK, &[]);
    let refused = |request: Request<'_>| block.plan(&request).unwrap_err();
    assert_eq!(
        refused(request(&[], Collective::AllReduce, 1)),
        PlanError::NoRanks
    );
    assert_eq!(
        refused(request(&[3, 3], Collective::AllReduce, 1)),
        PlanError::Twice { rank: 3 }
    );
    assert!(matches!(
        refused(request(&[16], Collective::AllReduce, 1)),
        PlanError::NotPlaced {
            rank: 16,
            world: 16,
            ..
        }
    ));
    assert_eq!(
        refused(request(&[0, 1], Collective::ReduceScatter, 3)),
        PlanError::UnevenBlocks {
            elements: 3,
            ranks: 2
        }
    );
    assert_eq!(
        refused(request(&[0, 1], Collective::Reduce { root: 2 }, 3)),
        PlanError::NoSuchRoot { root: 2, ranks: 2 }
    );
    let ll = selector(BLOCK, &[("NCCL_PROTO", "LL")]);
    let huge = ll
        .plan(&request(&[0, 1, 2], Collective::AllReduce, 1 << 40))
        .unwrap_err();
    assert!(matches!(huge, PlanError::TooLarge { .. }), "{huge}");
    let tree = selector(BLOCK, &[("NCCL_ALGO", "Tree")]);
    let error = tree
        .plan(&request(&[0, 1], Collective::ReduceScatter, 2))
        .unwrap_err();
    let expected = EnvironmentError::NoAlgorithm {
        function: "ReduceScatter",
    };
    assert_eq!(error, PlanError::Environment(expected));
}

/// 304 hosts of 8, buckets of a real size: planned, hashed and scaled at once.
#[test]
fn a_cluster_of_2432_is_planned_and_scaled() {
    let mut dgx = Topology::from_toml(include_str!("../topologies/dgx-h100-2.toml")).unwrap();
    dgx.hosts = 304;
    let members: Vec<u32> = (0..2432).collect();
    let selector = Selector::new(dgx.block(2432).unwrap(), Environment::default());
    let elements = 2432 * 100_000;
    let reduce = selector
        .plan(&request(&members, Collective::AllReduce, elements))
        .unwrap();
    let scatter = selector
        .plan(&request(&members, Collective::ReduceScatter, elements))
        .unwrap();
    assert_eq!(reduce.class_sizes().len(), 2432 * 8);
    assert!(!reduce.same_bits(&scatter));
    let small = reduce.scaled_to(20_000).unwrap();
    assert_eq!(small.class_sizes().len(), 2432 * 8);
    assert!(reduce.scaled_to(19_455).is_err());
    let last = small.tree_at(19_999);
    assert!(matches!(last, Tree::Chain { .. }) && last.check(2432).is_ok());
}
