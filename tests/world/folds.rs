//! Local folds: slots and segments, in order and as writers arrive, tied to the host's addition.

use std::sync::{Arc, Mutex};

use bitproof::engine::EngineError;
use bitproof::numerics::Dtype;
use bitproof::plan::{Arithmetic, Init, Piece, Plan, Tree};
use bitproof::world::fold::{FoldLab, FoldNode, FoldOrder};
use bitproof::world::{
    Family, LocalOrder, NodeId, Observer, Owner, Rank, RankError, Segments, SlotFold,
};

use crate::cluster::{Cluster, Seen, rough, show, typed};
use crate::reference::{evaluate, segment_sums, special};

const FAMILY: Family = Family::WgradSplitK;

/// A left fold over `order` at every element.
fn chain(order: &[u32], elements: u32, arithmetic: Arithmetic) -> Plan {
    let (ring, start) = (order.into(), 0);
    Plan {
        addend_count: order.len() as u32,
        element_count: elements.into(),
        arithmetic,
        pieces: vec![Piece {
            range: 0..elements.into(),
            tree: Tree::Chain { ring, start },
        }],
    }
}

fn first_fold(rank: u32) -> NodeId {
    let (owner, ordinal) = (Owner::Rank(rank), 0);
    NodeId {
        step: 0,
        owner,
        ordinal,
    }
}

/// One fold over slots whose values `rough` and `special` give by slot number.
#[derive(Clone, Copy)]
struct Slots {
    slots: u32,
    len: u32,
    addend: Dtype,
    out: Dtype,
    init: Init,
}

impl Slots {
    fn addends(&self) -> Vec<Vec<f32>> {
        let values = |slot| match slot % 2 {
            0 => special(slot, self.len, self.addend),
            _ => rough(slot, 5, self.len),
        };
        let rounded = |values: Vec<f32>| values.into_iter().map(|x| self.addend.round(x)).collect();
        (0..self.slots).map(values).map(rounded).collect()
    }

    fn held(&self) -> Vec<f32> {
        special(77, self.len, self.out)
    }

    fn program(self) -> impl Fn(&mut Rank, &Seen) -> Result<(), RankError> {
        move |rank, seen| {
            let addends = typed(rank, "addends", self.addend, &self.addends().concat());
            let out = typed(rank, "out", self.out, &self.held());
            let (slots, init) = (self.slots, self.init);
            let (family, order) = (FAMILY, LocalOrder::Arrival);
            let fold = SlotFold {
                family,
                addends,
                slots,
                out,
                init,
                order,
            };
            rank.fold("fold", fold);
            show(rank, seen, "out", out)
        }
    }

    fn expected(&self, order: &[u32]) -> Vec<u32> {
        let arithmetic = Arithmetic {
            init: self.init,
            ..Arithmetic::sum(self.addend, Dtype::F32, self.out)
        };
        let held = (self.init == Init::Accumulator).then(|| self.held());
        let plan = chain(order, self.len, arithmetic);
        evaluate(&plan, &self.addends(), held.as_deref())
    }
}

fn cases() -> Vec<Slots> {
    let mut cases = Vec::new();
    for (slots, len) in [(1, 7), (2, 4), (3, 65), (7, 130)] {
        for init in [Init::First, Init::Zero, Init::Accumulator] {
            for (addend, out) in [(Dtype::F32, Dtype::F32), (Dtype::Bf16, Dtype::Bf16)] {
                cases.push(Slots {
                    slots,
                    len,
                    addend,
                    out,
                    init,
                });
            }
        }
    }
    cases
}

#[test]
fn slots_fold_in_ascending_order_unless_told() {
    for case in cases() {
        let ascending: Vec<u32> = (0..case.slots).collect();
        let mut orders = vec![ascending.clone()];
        let mut rotated = ascending;
        rotated.rotate_left(1);
        orders.push(rotated.iter().rev().copied().collect());
        orders.push(rotated);
        for (number, order) in orders.iter().enumerate() {
            let arrival: Arc<[u32]> = order.as_slice().into();
            let cluster = Cluster::new(1).options(|options| {
                if number > 0 {
                    options.schedule.arrivals.insert(first_fold(0), arrival);
                }
            });
            let words = cluster.run(case.program()).words(0, "out");
            assert_eq!(words, case.expected(order), "{order:?}");
        }
    }
}

/// -0 alone: first-write gives it back, a zeroed accumulator does not.
#[test]
fn a_first_write_keeps_the_sign_of_zero() {
    let folded = |init| {
        let outcome = Cluster::new(1).run(move |rank, seen| {
            let addends = typed(rank, "addends", Dtype::F32, &[-0.0; 8]);
            let out = typed(rank, "out", Dtype::F32, &[-0.0; 4]);
            let (family, order, slots) = (FAMILY, LocalOrder::Ordered, 2);
            let fold = SlotFold {
                family,
                addends,
                slots,
                out,
                init,
                order,
            };
            rank.fold("fold", fold);
            show(rank, seen, "out", out)
        });
        outcome.words(0, "out")
    };
    let negative = [(-0.0f32).to_bits(); 4];
    assert_eq!(folded(Init::First), negative);
    assert_eq!(folded(Init::Zero), [0; 4]);
    assert_eq!(folded(Init::Accumulator), negative);
}

const WIDTH: u32 = 8;
const ROWS: u32 = 9;

/// Rows in several segments, twice in one, and in none; an empty segment.
fn lists() -> Vec<Vec<u32>> {
    vec![
        vec![0, 4, 2, 8],
        vec![],
        vec![5, 5, 1, 0, 7],
        vec![3],
        vec![6, 2, 8, 0, 1, 3],
    ]
}

fn scatter(out: Dtype) -> impl Fn(&mut Rank, &Seen) -> Result<(), RankError> {
    move |rank, seen| {
        let rows = typed(rank, "rows", Dtype::F32, &rough(4, 4, ROWS * WIDTH));
        let mut pointers = vec![0];
        for list in lists() {
            pointers.push(pointers[pointers.len() - 1] + list.len() as u32);
        }
        let out = rank.alloc("out", out, lists().len() as u32 * WIDTH);
        let segments = Segments {
            pointers: pointers.into(),
            indices: lists().concat().into(),
        };
        let order = LocalOrder::Arrival;
        rank.fold_segments("scatter", FAMILY, rows, WIDTH, &segments, out, order);
        show(rank, seen, "out", out)
    }
}

#[test]
fn segments_fold_in_the_order_in_which_rows_arrive() {
    let rows = rough(4, 4, ROWS * WIDTH);
    let orders: [Vec<u32>; 3] = [
        (0..ROWS).collect(),
        (0..ROWS).rev().collect(),
        vec![3, 8, 0, 1, 7, 5, 2, 6, 4],
    ];
    let mut results = Vec::new();
    for out in [Dtype::F32, Dtype::Bf16] {
        for order in &orders {
            let arrival: Arc<[u32]> = order.as_slice().into();
            let cluster = Cluster::new(1).options(|options| {
                options.schedule.arrivals.insert(first_fold(0), arrival);
            });
            let place = |row: &u32| order.iter().position(|other| other == row);
            let mut arrived = lists();
            arrived.iter_mut().for_each(|list| list.sort_by_key(place));
            let words = cluster.run(scatter(out)).words(0, "out");
            assert_eq!(words, segment_sums(&rows, WIDTH as usize, &arrived, out));
            results.push(words);
        }
    }
    assert_ne!(results[0], results[1], "the order matters for these rows");
}

/// The canonical order of a segment is ascending by row: what a sequential loop over rows does.
#[test]
fn segments_fold_in_ascending_rows_unless_told() {
    let rows = rough(4, 4, ROWS * WIDTH);
    let mut ascending = lists();
    ascending.iter_mut().for_each(|list| list.sort());
    let words = Cluster::new(1).run(scatter(Dtype::F32)).words(0, "out");
    assert_eq!(
        words,
        segment_sums(&rows, WIDTH as usize, &ascending, Dtype::F32)
    );
}

/// Asks at every fold what the reverse order would give.
struct Curious(Arc<Mutex<Vec<Answers>>>);

struct Answers {
    reference: Vec<u32>,
    reverse: Vec<u32>,
    addends: Vec<Vec<u32>>,
    accumulator: Option<Vec<u32>>,
}

impl Observer for Curious {
    fn on_fold(&mut self, node: &FoldNode, lab: &mut FoldLab<'_>) -> Result<(), EngineError> {
        let n = node.addend_count();
        let ascending = FoldOrder::Permutation((0..n).collect());
        let reversed = FoldOrder::Permutation((0..n).rev().collect());
        let answers = Answers {
            reference: lab.evaluate(node, &ascending)?,
            reverse: lab.evaluate(node, &reversed)?,
            addends: lab.addends(node)?,
            accumulator: lab.accumulator(node)?,
        };
        self.0.lock().expect("only here").push(answers);
        Ok(())
    }
}

/// The lab answers from the node's own inputs, in place or not, and leaves the run alone.
#[test]
fn an_observer_sees_other_orders_without_changing_the_run() {
    for case in cases() {
        let answers = Arc::new(Mutex::new(Vec::new()));
        let cluster = Cluster::new(1);
        let observed = cluster.run_observed(case.program(), Curious(answers.clone()));
        let plain = cluster.run(case.program());
        assert_eq!(observed.record().root(), plain.record().root());
        let answers = answers.lock().expect("the run is over");
        let ascending: Vec<u32> = (0..case.slots).collect();
        let reverse: Vec<u32> = ascending.iter().rev().copied().collect();
        let bits = |values: Vec<f32>| values.into_iter().map(f32::to_bits).collect::<Vec<u32>>();
        assert_eq!(answers.len(), 1);
        assert_eq!(answers[0].reference, plain.words(0, "out"));
        assert_eq!(answers[0].reverse, case.expected(&reverse));
        let addends: Vec<Vec<u32>> = case.addends().into_iter().map(bits).collect();
        assert_eq!(answers[0].addends, addends);
        let held = (case.init == Init::Accumulator).then(|| bits(case.held()));
        assert_eq!(answers[0].accumulator, held);
    }
}
