//! The ladder adds on the host; `fold.wgsl` adds everywhere else. Here both add the same values in
//! the same orders, and every bit must agree: what the ladder proves then holds for the fold.

use bitproof::engine::cpu::CpuEngine;
use bitproof::engine::{Engine, Launch, ProgramId, Span};
use bitproof::kernel::Registry;
use bitproof::numerics::Dtype;
use bitproof::numerics::ladder::{Order, Start, Sum, TreeOp, portfolio};

const ELEMENTS: u32 = 1024;
const MOST_ADDENDS: u32 = 9;
const COMBINE: u32 = 0xffff_ffff;

/// Addend, partial and output types.
const TYPES: [[Dtype; 3]; 7] = {
    use Dtype::{Bf16, F16, F32};
    [
        [F32, F32, F32],
        [Bf16, F32, Bf16],
        [F16, F32, F16],
        [Bf16, Bf16, Bf16],
        [F16, F16, F16],
        [F32, Bf16, Bf16],
        [F32, F16, F16],
    ]
};

#[test]
fn fold_and_ladder_agree_bit_for_bit() {
    let mut bench = FoldBench::new();
    let mut seed = 1;
    for types in TYPES {
        for n in 1..=MOST_ADDENDS {
            for init in 0..3 {
                seed += 1;
                let case = Case::new(types, n, init, seed);
                for permutation in portfolio(&vec![0.0; n as usize], u64::from(seed)) {
                    let folded = bench.fold(&case, 0, &permutation);
                    case.compare(&folded, &Order::Chain(permutation));
                }
                let tree = balanced(0, n);
                let folded = bench.fold(&case, 1, &tree);
                case.compare(&folded, &case.order_of(&tree));
            }
        }
    }
}

/// Negative control: another order is another result.
#[test]
fn another_order_is_noticed() {
    let case = Case::new([Dtype::F32; 3], 5, 0, 3);
    let folded = FoldBench::new().fold(&case, 0, &[0, 1, 2, 3, 4]);
    let parting = (0..ELEMENTS as usize).filter(|&element| {
        let addends = case.addends(element);
        let other = case
            .sum(element, &addends)
            .evaluate(&Order::Chain(vec![4, 3, 2, 1, 0]));
        other.expect("a permutation").to_bits() != folded[element]
    });
    assert!(parting.count() > 100);
}

/// The program of a tree that halves its range of addends.
fn balanced(first: u32, count: u32) -> Vec<u32> {
    if count == 1 {
        return vec![first];
    }
    let left = count.div_ceil(2);
    [
        balanced(first, left),
        balanced(first + left, count - left),
        vec![COMBINE],
    ]
    .concat()
}

struct Case {
    types: [Dtype; 3],
    init: u32,
    /// Addend major, as the fold takes them.
    words: Vec<u32>,
    accumulator: Vec<u32>,
}

impl Case {
    fn new(types: [Dtype; 3], n: u32, init: u32, seed: u32) -> Case {
        let value = |dtype: Dtype, i: u32| dtype.round(spread(seed, i)).to_bits();
        let words = (0..n * ELEMENTS).map(|i| value(types[0], i)).collect();
        let accumulator = (0..ELEMENTS).map(|i| value(types[1], !i)).collect();
        Case {
            types,
            init,
            words,
            accumulator,
        }
    }

    fn addends(&self, element: usize) -> Vec<f32> {
        let own = self.words.iter().skip(element).step_by(ELEMENTS as usize);
        own.map(|&word| f32::from_bits(word)).collect()
    }

    fn sum<'a>(&self, element: usize, addends: &'a [f32]) -> Sum<'a> {
        let start = match self.init {
            0 => Start::First,
            1 => Start::Zero,
            _ => Start::Base(f32::from_bits(self.accumulator[element])),
        };
        let [addend, partial, out] = self.types;
        Sum {
            addends,
            start,
            addend,
            partial,
            out,
        }
    }

    /// The fold adds a tree's total to what it starts from.
    fn order_of(&self, program: &[u32]) -> Order {
        let op = |&word: &u32| {
            if word == COMBINE {
                TreeOp::Combine
            } else {
                TreeOp::Push(word)
            }
        };
        let mut ops: Vec<TreeOp> = program.iter().map(op).collect();
        if self.init != 0 {
            ops.insert(0, TreeOp::Start);
            ops.push(TreeOp::Combine);
        }
        Order::Tree(ops)
    }

    fn compare(&self, folded: &[u32], order: &Order) {
        for (element, &bits) in folded.iter().enumerate() {
            let addends = self.addends(element);
            let sum = self.sum(element, &addends);
            let host = sum.evaluate(order).expect("an order of these addends");
            assert_eq!(bits, host.to_bits(), "{order:?} {sum:?}");
        }
    }
}

/// Ordinary values, and here and there a signed zero, a subnormal, a huge value, an infinity or a
/// NaN.
fn spread(seed: u32, i: u32) -> f32 {
    let mixed = u64::from(seed) << 32 | u64::from(i);
    let mixed = mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let bits = (mixed >> 32) as u32;
    match mixed & 63 {
        0 => f32::from_bits(bits & 0x8000_0000),
        1 => f32::from_bits(bits & 0x807f_ffff),
        2 => f32::from_bits(bits & 0x80ff_ffff | 0x7f00_0000),
        3 => f32::from_bits(bits),
        4 => f32::from_bits(bits & 0x807f_ffff | 0x4700_0000),
        5 => f32::from_bits(bits & 0x8000_0fff | 0x3380_0000),
        _ => f32::from_bits(bits & 0x81ff_ffff | 0x3e00_0000),
    }
}

struct FoldBench {
    engine: CpuEngine,
    program: ProgramId,
    operands: [Span; 4],
}

impl FoldBench {
    fn new() -> FoldBench {
        let registry = Registry::new().unwrap();
        let mut engine = CpuEngine::new(1).unwrap();
        let program = engine.load(registry.get("fold").unwrap()).unwrap();
        let sizes = [
            MOST_ADDENDS * ELEMENTS,
            2 * MOST_ADDENDS,
            ELEMENTS,
            ELEMENTS,
        ];
        let arena = engine.alloc(sizes.iter().sum(), 0x7fc0_dead).unwrap();
        let mut offset_words = 0;
        let operands = sizes.map(|words| {
            let span = Span {
                arena,
                offset_words,
                words,
            };
            offset_words += words;
            span
        });
        FoldBench {
            engine,
            program,
            operands,
        }
    }

    /// `kind` 0: `program` is a permutation; 1: a stack program.
    fn fold(&mut self, case: &Case, kind: u32, program: &[u32]) -> Vec<u32> {
        let [addends, order, accumulator, result] = self.operands;
        let addends = Span {
            words: case.words.len() as u32,
            ..addends
        };
        let order = Span {
            words: program.len() as u32,
            ..order
        };
        for (span, words) in [
            (addends, &case.words[..]),
            (order, program),
            (accumulator, &case.accumulator),
        ] {
            self.engine.write(span, words).unwrap();
        }
        let n = addends.words / ELEMENTS;
        let [_, partial, out] = case.types.map(Dtype::code);
        let length = order.words;
        let quarter = ELEMENTS / 4;
        let params = vec![
            quarter, n, quarter, kind, 0, length, case.init, 0, partial, out, 0, 0,
        ];
        let operands = vec![addends, order, accumulator, result];
        let launch = Launch {
            program: self.program,
            grid: [quarter.div_ceil(64), 1, 1],
            operands,
            params,
        };
        self.engine.run(&[launch]).unwrap();
        self.engine.read(result).unwrap()
    }
}
