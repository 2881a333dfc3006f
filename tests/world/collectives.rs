//! Every collective gives what plain host code says, bit for bit, for groups of 1 to 6.

use bitproof::numerics::Dtype;
use bitproof::plan::{Arithmetic, Combine, Init};
use bitproof::world::order::CollectiveShape;
use bitproof::world::{Family, Rank, RankError, command::CollectiveKind};

use crate::cluster::{ALL, Cluster, Seen, Shape, rough, show, tensor, typed};
use crate::reference::{evaluate, special};

const FAMILY: Family = Family::DpGradients;
const LENS: [u32; 5] = [1, 5, 7, 64, 130];

/// The arithmetic of the collectives that recipes use, by the type of the buffer.
fn arithmetics() -> Vec<Arithmetic> {
    use Dtype::{Bf16, F16, F32};
    let third = Some((1.0f32 / 3.0).to_bits());
    vec![
        Arithmetic::sum(F32, F32, F32),
        Arithmetic::sum(Bf16, Bf16, Bf16),
        Arithmetic::sum(F16, F16, F16),
        Arithmetic::sum(Bf16, F32, Bf16),
        Arithmetic {
            init: Init::Zero,
            ..Arithmetic::sum(F32, F32, F32)
        },
        Arithmetic {
            pre_multiply_bits: third,
            ..Arithmetic::sum(Bf16, Bf16, Bf16)
        },
        Arithmetic {
            post_divide_bits: Some(3.0f32.to_bits()),
            ..Arithmetic::sum(F32, F32, F32)
        },
        Arithmetic {
            pre_multiply_bits: third,
            ..Arithmetic::sum(F32, F32, F32)
        },
    ]
}

type Values = fn(u32, u32, Dtype) -> Vec<f32>;

fn ordinary(rank: u32, len: u32, dtype: Dtype) -> Vec<f32> {
    let values = rough(rank, len, len);
    values.into_iter().map(|value| dtype.round(value)).collect()
}

/// All-reduces of every length on `n` ranks, compared with the reference.
fn all_reduces(n: u32, shape: Shape, combine: Combine, arithmetic: Arithmetic, values: Values) {
    let cluster = Cluster::new(n).shape(shape).watched();
    let cluster = match combine {
        Combine::Sum => cluster.arithmetic(arithmetic),
        Combine::Max => cluster,
    };
    let dtype = arithmetic.addend;
    let outcome = cluster.run(move |rank, seen| {
        for len in LENS {
            let x = typed(rank, "x", dtype, &values(rank.id, len, dtype));
            let handle = rank.all_reduce("sum", FAMILY, ALL, x, combine);
            rank.wait(handle);
            show(rank, seen, &format!("{len}"), x)?;
        }
        Ok(())
    });
    assert_eq!(outcome.record().hazards, []);
    for len in LENS {
        let kind = CollectiveKind::AllReduce {
            combine,
            family: FAMILY,
        };
        let (group, elements) = (ALL, u64::from(len));
        let plan = cluster.plans().plan(CollectiveShape {
            group,
            kind,
            dtype,
            elements,
        });
        assert_eq!(plan.check(), Ok(()));
        let addends: Vec<Vec<f32>> = (0..n).map(|rank| values(rank, len, dtype)).collect();
        let expected = evaluate(&plan, &addends, None);
        for rank in 0..n {
            let words = outcome.words(rank, &format!("{len}"));
            assert_eq!(
                words, expected,
                "{n} ranks, {len}, {shape:?}, {arithmetic:?}"
            );
        }
    }
}

#[test]
fn all_reduce_gives_the_plans_bits() {
    for n in 1..=6 {
        for shape in [Shape::Ring, Shape::Tree] {
            for arithmetic in arithmetics() {
                all_reduces(n, shape, Combine::Sum, arithmetic, ordinary);
            }
        }
    }
}

#[test]
fn all_reduce_of_special_values_gives_the_plans_bits() {
    for n in [2, 3, 5] {
        for shape in [Shape::Ring, Shape::Tree] {
            for arithmetic in arithmetics() {
                all_reduces(n, shape, Combine::Sum, arithmetic, special);
            }
        }
    }
}

/// Total order: -0 < +0, and a NaN is the largest.
#[test]
fn maximum_is_taken_in_total_order() {
    for n in 1..=6 {
        for shape in [Shape::Ring, Shape::Tree] {
            let arithmetic = Arithmetic::max(Dtype::F32);
            all_reduces(n, shape, Combine::Max, arithmetic, special);
            all_reduces(n, shape, Combine::Max, arithmetic, ordinary);
        }
    }
    let outcome = Cluster::new(2).run(|rank, seen| {
        let sign = if rank.id == 0 { 1.0 } else { -1.0 };
        let x = tensor(rank, "x", &[0.0 * sign, sign]);
        let handle = rank.all_reduce("max", FAMILY, ALL, x, Combine::Max);
        rank.wait(handle);
        show(rank, seen, "x", x)
    });
    assert_eq!(outcome.words(1, "x"), [0, 1.0f32.to_bits()]);
}

/// The negative control: the orders do matter for these values.
#[test]
fn the_rough_values_depend_on_their_order() {
    let plan = |shape| {
        let cluster = Cluster::new(5).shape(shape);
        let (group, dtype, elements) = (ALL, Dtype::F32, 130);
        let kind = CollectiveKind::ReduceScatter { family: FAMILY };
        cluster.plans().plan(CollectiveShape {
            group,
            kind,
            dtype,
            elements,
        })
    };
    let addends: Vec<Vec<f32>> = (0..5).map(|rank| ordinary(rank, 130, Dtype::F32)).collect();
    let ring = evaluate(&plan(Shape::Ring), &addends, None);
    let tree = evaluate(&plan(Shape::Tree), &addends, None);
    let differ = ring.iter().zip(&tree).filter(|(a, b)| a != b).count();
    assert!(differ > 20, "{differ} of 130");
}

#[test]
fn reduce_scatter_gives_each_place_its_block() {
    for n in 1..=6u32 {
        for shape in [Shape::Ring, Shape::Tree] {
            let cluster = Cluster::new(n).shape(shape);
            for block in [1u32, 3, 20] {
                let outcome = cluster.run(move |rank, seen| {
                    let values = rough(rank.id, block, block * n);
                    let input = tensor(rank, "input", &values);
                    let output = rank.alloc("output", Dtype::F32, block);
                    let handle = rank.reduce_scatter("scatter", FAMILY, ALL, input, output);
                    rank.wait(handle);
                    show(rank, seen, "output", output)?;
                    show(rank, seen, "input", input)
                });
                let (group, dtype, elements) = (ALL, Dtype::F32, u64::from(block * n));
                let plan = cluster.plans().plan(CollectiveShape {
                    group,
                    kind: CollectiveKind::ReduceScatter { family: FAMILY },
                    dtype,
                    elements,
                });
                let addends: Vec<Vec<f32>> =
                    (0..n).map(|rank| rough(rank, block, block * n)).collect();
                let expected = evaluate(&plan, &addends, None);
                for rank in 0..n {
                    let from = (rank * block) as usize;
                    let words = outcome.words(rank, "output");
                    assert_eq!(words, expected[from..from + block as usize]);
                    assert_eq!(outcome.values(rank, "input"), addends[rank as usize]);
                }
            }
        }
    }
}

/// Block `b` of what `rank` gives away.
fn block(rank: u32, b: u32) -> Vec<f32> {
    (0..3).map(|i| (rank * 100 + b * 10 + i) as f32).collect()
}

#[test]
fn data_moves_where_it_should() {
    for n in 1..=6u32 {
        let outcome = Cluster::new(n).watched().run(move |rank, seen| {
            let mine = tensor(rank, "mine", &block(rank.id, 0));
            let all = rank.alloc("all", Dtype::F32, 3 * n);
            let handle = rank.all_gather("gather", ALL, mine, all);
            rank.wait(handle);
            show(rank, seen, "gathered", all)?;
            in_place_gather(rank, seen, n)?;
            let blocks: Vec<f32> = (0..n).flat_map(|b| block(rank.id, b)).collect();
            let blocks = tensor(rank, "blocks", &blocks);
            let exchanged = rank.alloc("exchanged", Dtype::F32, 3 * n);
            let handle = rank.all_to_all("exchange", ALL, blocks, exchanged);
            rank.wait(handle);
            show(rank, seen, "exchanged", exchanged)?;
            let spread = tensor(rank, "spread", &block(rank.id, 7));
            let handle = rank.broadcast("spread", ALL, spread, n / 2);
            rank.wait(handle);
            show(rank, seen, "spread", spread)
        });
        assert_eq!(outcome.record().hazards, []);
        for rank in 0..n {
            let gathered: Vec<f32> = (0..n).flat_map(|from| block(from, 0)).collect();
            assert_eq!(outcome.values(rank, "gathered"), gathered);
            assert_eq!(outcome.values(rank, "in place"), gathered);
            let exchanged: Vec<f32> = (0..n).flat_map(|from| block(from, rank)).collect();
            assert_eq!(outcome.values(rank, "exchanged"), exchanged);
            assert_eq!(outcome.values(rank, "spread"), block(n / 2, 7));
        }
    }
}

/// The input is the rank's own part of the output, as ZeRO gathers parameters.
fn in_place_gather(rank: &mut Rank, seen: &Seen, n: u32) -> Result<(), RankError> {
    let all = rank.alloc("in place", Dtype::F32, 3 * n);
    let own = all.slice(3 * rank.id, 3);
    rank.upload_f32("own part", own, &block(rank.id, 0));
    let handle = rank.all_gather("gather in place", ALL, own, all);
    rank.wait(handle);
    show(rank, seen, "in place", all)
}

/// Messages of one pair arrive in the order they were sent, pairs do not disturb each other.
#[test]
fn messages_are_matched_in_order_for_each_pair() {
    for n in 2..=5u32 {
        let outcome = Cluster::new(n).watched().run(move |rank, seen| {
            let (next, last) = ((rank.id + 1) % n, (rank.id + n - 1) % n);
            let mut handles = Vec::new();
            for number in 0..3 {
                let (to, from) = (block(rank.id, number), vec![0.0; 3]);
                let to = tensor(rank, "to", &to);
                let from = tensor(rank, &format!("from {number}"), &from);
                handles.push(rank.send("pass on", next, to));
                handles.push(rank.recv("take", last, from));
                if number == 2 {
                    handles.into_iter().for_each(|handle| rank.wait(handle));
                    return show(rank, seen, "third", from);
                }
            }
            Ok(())
        });
        assert_eq!(outcome.record().hazards, []);
        for rank in 0..n {
            assert_eq!(outcome.values(rank, "third"), block((rank + n - 1) % n, 2));
        }
    }
}

/// Places count in the group's order, which need not be ascending.
#[test]
fn a_groups_order_is_its_own() {
    let cluster = Cluster::new(4).group(&[3, 1, 2]);
    let outcome = cluster.run(|rank, seen| {
        let group = bitproof::world::GroupId(1);
        let Some(place) = rank.place_in(group) else {
            return Ok(());
        };
        let mine = tensor(rank, "mine", &[rank.id as f32, place as f32]);
        let all = rank.alloc("all", Dtype::F32, 6);
        let handle = rank.all_gather("gather", group, mine, all);
        rank.wait(handle);
        show(rank, seen, "all", all)
    });
    for rank in [1, 2, 3] {
        assert_eq!(outcome.values(rank, "all"), [3.0, 0.0, 1.0, 1.0, 2.0, 2.0]);
    }
}
