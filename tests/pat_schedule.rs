//! NCCL's PAT against a step-by-step simulation of its message schedule: every rank goes through
//! one list of steps, takes what another has sent, adds it to what it has of that block, and sends
//! it on.

use std::collections::BTreeMap;

use bitproof::numerics::Dtype;
use bitproof::plan::{
    Algorithm, Backend, Collective, Environment, PlanError, Reduction, Request, Selector, pat,
};
use bitproof::topology::{Allocation, Topology};
use proptest::prelude::*;

#[path = "support/symbols.rs"]
mod symbols;
use symbols::Symbols;

/// One step of a rank: what it receives (from the rank 2^k below), and the offset of the block that
/// it works on. Each block but its own is sent on to the rank 2^k above, k its lowest set bit.
#[derive(Clone, Copy, Debug)]
struct Step {
    receives: Option<u32>,
    block: usize,
}

/// All bits turned round and inverted: the order in which aggregated steps are taken.
fn mirrored(a: usize, of: usize) -> usize {
    let bits = of.ilog2();
    (0..bits)
        .filter(|bit| a >> bit & 1 == 0)
        .map(|bit| of >> (bit + 1))
        .sum()
}

/// The steps of every rank, where `factor` steps are aggregated.
fn schedule(ranks: usize, factor: usize) -> Vec<Step> {
    let delta = ranks.next_power_of_two() / factor;
    let mut out: Vec<Step> = Vec::new();
    let receive = |out: &mut Vec<Step>, from: usize| {
        let bit = from.trailing_zeros();
        let block = from - (1 << bit);
        let receives = (from < ranks).then_some(bit);
        if block < ranks {
            out.push(Step { receives, block });
        }
    };
    let mut at = delta - 1;
    loop {
        for a in 0..factor {
            let block = mirrored(a, factor) * delta + at;
            if block < ranks {
                out.push(Step {
                    receives: None,
                    block,
                });
            }
        }
        if at == 1 {
            break;
        }
        loop {
            for a in 0..factor {
                receive(&mut out, mirrored(a, factor) * delta + at);
            }
            at -= 1;
            if at % 2 == 1 {
                break;
            }
        }
    }
    let mut scale = 1;
    while scale < factor {
        let last = factor / (2 * scale);
        for add in [1, 0] {
            for a in 0..last {
                receive(&mut out, (2 * mirrored(a, last) + 1) * scale * delta + add);
            }
        }
        scale *= 2;
    }
    receive(&mut out, 1);
    out
}

/// What each rank has of its own block at the end.
fn run(ranks: usize, factor: usize, symbols: &mut Symbols) -> Vec<u32> {
    let steps = schedule(ranks, factor);
    let mut last = BTreeMap::new();
    for (at, step) in steps.iter().enumerate() {
        last.insert(step.block, at);
    }
    // Of each rank: the next step, its sums by block, and what has arrived, by link and owner.
    let mut next = vec![0; ranks];
    let mut sums: Vec<BTreeMap<usize, u32>> = vec![BTreeMap::new(); ranks];
    let mut arrived: BTreeMap<(usize, u32, usize), u32> = BTreeMap::new();
    loop {
        let mut moved = false;
        for rank in 0..ranks {
            let Some(step) = steps.get(next[rank]) else {
                continue;
            };
            let owner = (rank + step.block) % ranks;
            let message = match step.receives {
                None => None,
                Some(bit) => match arrived.remove(&(rank, bit, owner)) {
                    Some(value) => Some(value),
                    None => continue,
                },
            };
            let own = sums[rank].get(&step.block).copied();
            let own = own.unwrap_or(rank as u32);
            let sum = message.map_or(own, |message| symbols.add(message, own));
            sums[rank].insert(step.block, sum);
            if last[&step.block] == next[rank] && step.block > 0 {
                let bit = step.block.trailing_zeros();
                let to = (rank + (1 << bit)) % ranks;
                let before = arrived.insert((to, bit, owner), sum);
                assert!(before.is_none(), "one message for a block");
            }
            next[rank] += 1;
            moved = true;
        }
        if !moved {
            break;
        }
    }
    assert!(
        next.iter().all(|next| *next == steps.len()),
        "it runs to its end"
    );
    assert!(arrived.is_empty(), "all is received");
    sums.iter().map(|sums| sums[&0]).collect()
}

/// How many steps are aggregated, counted as the kernel does.
fn factor(ranks: u64, channel_bytes: u64, chunk: u64) -> u64 {
    let mut factor = 1;
    while chunk / (channel_bytes * factor) >= 2 && factor < ranks / 2 {
        factor *= 2;
    }
    for _ in 0..3 {
        if factor < ranks / 2 {
            factor *= 2;
        }
    }
    factor
}

fn is_as_simulated(ranks: u64, channel_bytes: u64, buffer: u64) -> bool {
    let chunk = pat::chunk_bytes(buffer, ranks, channel_bytes);
    let delta = pat::delta_log2(ranks, channel_bytes, chunk);
    let factor = factor(ranks, channel_bytes, chunk);
    assert_eq!(ranks.next_power_of_two() / factor, 1 << delta);
    let mut symbols = Symbols::default();
    let ran = run(ranks as usize, factor as usize, &mut symbols);
    (0..ranks as u32).zip(ran).all(|(owner, ran)| {
        let tree = pat::reduce_scatter_tree(ranks as u32, owner, delta);
        assert_eq!(tree.check(ranks as u32), Ok(()), "each rank once");
        tree.fold(|addend| addend, |a, b| symbols.add(a, b)) == ran
    })
}

#[test]
fn every_count_of_ranks_and_every_aggregation() {
    for ranks in (2..=69).chain([96, 100, 128, 152, 200, 256]) {
        for channel_bytes in [16, 4096, 20_000, 40_000, 300_000, 8 << 20] {
            assert!(
                is_as_simulated(ranks, channel_bytes, 4 << 20),
                "{ranks} {channel_bytes}"
            );
        }
    }
}

/// Negative control: another aggregation is another tree from 33 ranks on, which is seen here.
#[test]
fn another_aggregation_would_be_seen() {
    let simulated = |factor: usize, delta: u32| {
        let mut symbols = Symbols::default();
        let ran = run(40, factor, &mut symbols);
        let tree = pat::reduce_scatter_tree(40, 0, delta);
        tree.fold(|addend| addend, |a, b| symbols.add(a, b)) == ran[0]
    };
    assert!(simulated(8, 3) && simulated(16, 2));
    assert!(!simulated(8, 2) && !simulated(16, 3));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn sizes_and_buffers(ranks in 2u64..90, bytes in 1u64..2_000_000, buffer in 18u32..25) {
        prop_assert!(is_as_simulated(ranks, bytes, 1 << buffer));
    }
}

fn selector(hosts: u32, gpus: u32, more: &[(&str, &str)]) -> Selector {
    let allocation: Allocation = Topology::switched("hosts", hosts, gpus)
        .block(hosts * gpus)
        .expect("it fits");
    let algo = ("NCCL_ALGO", "ring;reducescatter:pat");
    let variables = [&[algo], more].concat();
    Selector::new(allocation, Environment::parse(variables).expect("readable"))
}

fn request(members: &[u32], elements: u64) -> Request<'_> {
    Request {
        backend: Backend::Nccl,
        members,
        collective: Collective::ReduceScatter,
        dtype: Dtype::Bf16,
        elements,
        reduction: Reduction::Sum,
    }
}

#[test]
fn plans_are_made_where_nodes_have_one_rank() {
    let members: Vec<u32> = (0..40).collect();
    let spread = selector(40, 1, &[]);
    let (small, large) = (request(&members, 40 * 512), request(&members, 40 << 20));
    for request in [small, large] {
        let plan = spread.plan(&request).expect("a plan");
        assert_eq!(plan.check(), Ok(()));
        let how = spread
            .carried_out(&request)
            .expect("a plan")
            .expect("by NCCL");
        assert_eq!(how.algorithm, Algorithm::Pat);
    }
    let tree = |request| spread.plan(&request).expect("a plan").tree_at(0).clone();
    assert_ne!(tree(small), tree(large), "the order follows from the size");
    let few: Vec<u32> = (0..16).collect();
    let tree = |elements| {
        spread
            .plan(&request(&few, elements))
            .expect("a plan")
            .tree_at(0)
            .clone()
    };
    assert_eq!(tree(16 * 512), tree(16 << 20), "not of 16 ranks");
}

#[test]
fn what_nccl_has_no_pat_for_is_refused() {
    let members: Vec<u32> = (0..8).collect();
    let refused = |selector: &Selector, request: &Request<'_>| {
        let error = selector.plan(request).expect_err("no plan");
        assert!(matches!(error, PlanError::Unsupported { .. }), "{error}");
        error.to_string()
    };
    let scatter = request(&members, 8 * 64);
    let dense = refused(&selector(2, 4, &[]), &scatter);
    assert!(dense.contains("one rank on each node"), "{dense}");
    let ll = refused(&selector(8, 1, &[("NCCL_PROTO", "LL")]), &scatter);
    assert!(ll.contains("Simple"), "{ll}");
    let average = Request {
        reduction: Reduction::Avg,
        ..scatter
    };
    let average = refused(&selector(8, 1, &[]), &average);
    assert!(average.contains("no averages"), "{average}");
}
