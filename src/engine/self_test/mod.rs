//! The self-test of an engine's arithmetic: expressions that optimisers rewrite and devices round
//! otherwise, on inputs from a buffer, compared bit by bit with IEEE 754.
//!
//! It runs on whatever adapter there is, so it trusts nothing but this process's own float
//! arithmetic, and that only after a digest has shown it.

mod expressions;
mod functions;
mod inputs;
#[cfg(test)]
mod tests;

use serde::Serialize;

use super::{ArenaId, Engine, EngineError, Launch, ProgramId, Span};
use crate::kernel::Registry;
use crate::numerics::Digest;
use expressions::{Expression, FIRST_WORD_CASE, all};
use inputs::{INPUTS, Triple};

const KERNEL: &str = "self_test";
const COUNT: u32 = INPUTS as u32;
const WORKGROUP: u32 = 64;
/// What results hold before they are written.
const UNWRITTEN: u32 = 0xdead_beef;
/// The digest of all inputs and expected bits.
const KNOWN: &str = "ab0d1531c8cf5858db761bfc9e4ebcbd";
/// Inputs x, y, z and results, floats and words.
const OPERANDS: u32 = 5;

/// What became of every expression on one engine.
#[derive(Clone, Debug, Serialize)]
pub struct SelfTest {
    pub expressions: Vec<Tested>,
}

/// One expression.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Tested {
    pub name: &'static str,
    pub formula: &'static str,
    /// What would make it differ.
    pub guards: &'static str,
    pub inputs: u32,
    /// Inputs whose result has other bits than expected.
    pub differing: u32,
    pub first: Option<Difference>,
}

/// The first input with other bits than expected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    #[serde(serialize_with = "hexadecimal")]
    pub x: u32,
    #[serde(serialize_with = "hexadecimal")]
    pub y: u32,
    #[serde(serialize_with = "hexadecimal")]
    pub z: u32,
    #[serde(serialize_with = "hexadecimal")]
    pub expected: u32,
    #[serde(serialize_with = "hexadecimal")]
    pub got: u32,
}

fn hexadecimal<S: serde::Serializer>(bits: &u32, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{bits:#010x}"))
}

impl Tested {
    pub fn passed(&self) -> bool {
        self.differing == 0
    }
}

impl SelfTest {
    /// Runs every expression on the engine. `kernels` holds the kernel `self_test`.
    ///
    /// # Errors
    /// What the engine refuses or fails at, and a process whose own arithmetic is not IEEE 754.
    pub fn run(engine: &mut dyn Engine, kernels: &Registry) -> Result<SelfTest, EngineError> {
        let unsupported = |reason: String| EngineError::Unsupported {
            kernel: KERNEL.to_owned(),
            reason,
        };
        let kernel = kernels
            .get(KERNEL)
            .map_err(|error| unsupported(error.to_string()))?;
        let cases: Vec<Case> = all().map(Case::new).collect();
        if digest(&cases).to_string() != KNOWN {
            let reason = "this process's own float arithmetic is not IEEE 754's: \
                something changed the processor's float control register";
            return Err(unsupported(reason.to_owned()));
        }
        let program = engine.load(kernel)?;
        let arena = engine.alloc(cases.len() as u32 * OPERANDS * COUNT, UNWRITTEN)?;
        let results = results(engine, program, arena, &cases);
        let released = engine.release(arena);
        let expressions = cases.iter().zip(results?);
        released?;
        Ok(SelfTest {
            expressions: expressions.map(|(case, got)| case.judge(&got)).collect(),
        })
    }

    /// Every expression has the bits of IEEE 754.
    pub fn strict(&self) -> bool {
        !self.expressions.is_empty() && self.expressions.iter().all(Tested::passed)
    }

    /// Names of the expressions with other bits.
    pub fn differing(&self) -> impl Iterator<Item = &'static str> {
        let differing = self.expressions.iter().filter(|tested| !tested.passed());
        differing.map(|tested| tested.name)
    }
}

/// An expression with its inputs and the bits expected.
struct Case {
    expression: &'static Expression,
    inputs: Vec<Triple>,
    expected: Vec<u32>,
}

impl Case {
    fn new(expression: &'static Expression) -> Case {
        let inputs = (expression.inputs)();
        let expected = expression.expected(&inputs);
        assert_eq!((inputs.len(), expected.len()), (INPUTS, INPUTS));
        Case {
            expression,
            inputs,
            expected,
        }
    }

    fn judge(&self, got: &[u32]) -> Tested {
        assert_eq!(got.len(), INPUTS);
        let differs = |place: &usize| self.expected[*place] != got[*place];
        let first = (0..INPUTS).find(differs).map(|place| {
            let [x, y, z] = self.inputs[place].map(f32::to_bits);
            Difference {
                x,
                y,
                z,
                expected: self.expected[place],
                got: got[place],
            }
        });
        Tested {
            name: self.expression.name,
            formula: self.expression.formula,
            guards: self.expression.guards,
            inputs: COUNT,
            differing: (0..INPUTS).filter(differs).count() as u32,
            first,
        }
    }

    /// The words of the case's operands, results not yet written.
    fn words(&self) -> Vec<u32> {
        let operand = |at: usize| self.inputs.iter().map(move |triple| triple[at].to_bits());
        let mut words: Vec<u32> = (0..3).flat_map(operand).collect();
        words.resize(OPERANDS as usize * INPUTS, UNWRITTEN);
        words
    }
}

/// Runs all cases at once and gives the results of each.
fn results(
    engine: &mut dyn Engine,
    program: ProgramId,
    arena: ArenaId,
    cases: &[Case],
) -> Result<Vec<Vec<u32>>, EngineError> {
    let span = |case: usize, operand: u32| Span {
        arena,
        offset_words: (case as u32 * OPERANDS + operand) * COUNT,
        words: COUNT,
    };
    let words: Vec<u32> = cases.iter().flat_map(Case::words).collect();
    let whole = Span {
        arena,
        offset_words: 0,
        words: words.len() as u32,
    };
    engine.write(whole, &words)?;
    let launches: Vec<Launch> = cases
        .iter()
        .enumerate()
        .map(|(place, case)| Launch {
            program,
            grid: [COUNT.div_ceil(WORKGROUP), 1, 1],
            operands: (0..OPERANDS).map(|operand| span(place, operand)).collect(),
            params: vec![COUNT, case.expression.case],
        })
        .collect();
    engine.run(&launches)?;
    let result = |(place, case): (usize, &Case)| {
        let is_word = case.expression.case >= FIRST_WORD_CASE;
        engine.read(span(place, if is_word { 4 } else { 3 }))
    };
    cases.iter().enumerate().map(result).collect()
}

/// Of all inputs and all expected bits.
fn digest(cases: &[Case]) -> Digest {
    let words = cases.iter().flat_map(|case| {
        let inputs = case.inputs.iter().flatten().map(|value| value.to_bits());
        inputs.chain(case.expected.iter().copied())
    });
    Digest::of_words(&words.collect::<Vec<u32>>())
}
