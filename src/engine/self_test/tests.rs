//! The cpu engine is strict; the expected bits are right; what is tampered with is caught.

mod adapter;
mod tampering;
mod truth;

use super::*;
use crate::engine::cpu::CpuEngine;

fn run(engine: &mut dyn Engine) -> SelfTest {
    let kernels = Registry::new().expect("shaders link");
    SelfTest::run(engine, &kernels).expect("runs")
}

#[test]
fn the_cpu_engine_is_strict() {
    for workers in [1, 2] {
        let mut engine = CpuEngine::new(workers).expect("an engine");
        let test = run(&mut engine);
        let differing: Vec<_> = test.expressions.iter().filter(|t| !t.passed()).collect();
        assert!(test.strict(), "{differing:#x?}");
        assert!(test.expressions.len() >= 50, "{}", test.expressions.len());
    }
}

#[test]
fn a_test_of_nothing_is_not_strict() {
    let test = SelfTest {
        expressions: Vec::new(),
    };
    assert!(!test.strict());
}

#[test]
fn a_self_test_gives_its_memory_back_and_may_be_repeated() {
    let mut engine = CpuEngine::new(1).expect("an engine");
    let (first, second) = (run(&mut engine), run(&mut engine));
    assert_eq!(first.expressions, second.expressions);
    let span = Span {
        arena: ArenaId(0),
        offset_words: 0,
        words: 1,
    };
    let read = engine.read(span);
    assert!(matches!(read, Err(EngineError::BadSpan { .. })), "{read:?}");
}

#[test]
fn a_registry_without_the_kernel_is_an_error() {
    let kernels = Registry::from_sources(&[]).expect("links");
    let mut engine = CpuEngine::new(1).expect("an engine");
    let error = SelfTest::run(&mut engine, &kernels).expect_err("no kernel");
    assert!(error.to_string().contains("self_test"), "{error}");
}

/// The digest that shows this process's arithmetic sees one wrong bit.
#[test]
fn a_process_that_computes_otherwise_is_noticed() {
    let mut cases: Vec<Case> = all().map(Case::new).collect();
    assert_eq!(digest(&cases).to_string(), KNOWN, "KNOWN in mod.rs");
    cases[20].expected[100] ^= 1;
    assert_ne!(digest(&cases).to_string(), KNOWN);
}

#[test]
fn names_are_distinct_and_formulas_are_those_of_the_shader() {
    let shader = include_str!("../../../shaders/self_test.wgsl");
    let mut names: Vec<&str> = all().map(|expression| expression.name).collect();
    for expression in all() {
        let case = format!(
            "case {}u: {{ return {}; }}",
            expression.case, expression.formula
        );
        let is_apart = matches!(expression.case, 98 | 99);
        assert!(is_apart || shader.contains(&case), "{case}");
    }
    let count = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), count);
    let cases = shader.matches(" case ").count();
    let tested = |case: u32| all().any(|expression| expression.case == case);
    assert_eq!((0..200).filter(|case| tested(*case)).count(), cases + 2);
}
