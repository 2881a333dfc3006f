//! On the adapter of this machine, with the kernel as it is and with texts that are tampered with.

use std::path::Path;

use super::*;
use crate::engine::wgpu::skip::unless_missing;
use crate::engine::wgpu::{NativeAdapter, WgpuOptions};
use crate::kernel::ATOMIC_ADD;
use crate::scenario::{Overrides, Scenario};

/// The adapter with a kernel, or nothing with the reason on standard error.
fn adapter(text: &str) -> Option<Box<dyn NativeAtomics>> {
    let opened = NativeAdapter::with_kernel(&WgpuOptions::default(), text);
    Some(Box::new(unless_missing(opened)?))
}

fn tampered(replace: &str, by: &str) -> String {
    assert!(ATOMIC_ADD.contains(replace), "no `{replace}` in the kernel");
    ATOMIC_ADD.replacen(replace, by, 1)
}

const ADD: &str = "add(start + column, addends[writer * params[1] + column]);";

fn one(rank: &mut Rank) -> Result<(), RankError> {
    plain(rank, &VALUES);
    rank.end_step()
}

#[test]
fn true_atomics_are_inside_the_model() {
    let Some(adapter) = adapter(ATOMIC_ADD) else {
        return;
    };
    let found = raced(adapter, 150, |rank| {
        plain(rank, &many(12));
        plain(rank, &many(100));
        all_kinds(rank)
    });
    let found = found.expect("the adapter does not fail");
    assert!(found.is_inside(), "{:?}", found.outside);
    assert_eq!(found.folds.len(), 5);
    // How many free repeats land out of order is the machine's business.
    assert!(found.folds[0].ticketed_results > 1);
    assert_eq!(found.judged.unjudged, 0);
}

#[test]
fn every_tampered_kernel_is_outside_the_model() {
    let twice = format!("{ADD} if (writer == 2u) {{ {ADD} }}");
    let dropped = format!("if (writer != 2u) {{ {ADD} }}");
    // Two writers load before either stores, as without atomics: the second adds to what the first
    // has found, which that one leaves in its row of addends.
    let lost = format!(
        "let place = writer * params[1] + column;
         if (ticket == 1u) {{
             let first = permutations[repeat * params[0]] * params[1] + column;
             atomicStore(&accumulators[start + column], word(addends[first] + addends[place]));
         }} else {{
             let found = bitcast<f32>(atomicLoad(&accumulators[start + column]));
             {ADD}
             if (ticket == 0u) {{ addends[place] = found; }}
         }}"
    );
    let texts = [
        ("adds one twice", tampered(ADD, &twice), 8),
        ("drops one", tampered(ADD, &dropped), 8),
        ("loses an update", tampered(ADD, &lost), 1),
        (
            "reads another writer",
            tampered(
                "addends[writer * params[1]",
                "addends[(writer / 2u) * params[1]",
            ),
            8,
        ),
        (
            "ignores the order",
            tampered(
                "permutations[repeat * params[0] + ticket]",
                "params[0] - 1u - ticket",
            ),
            8,
        ),
    ];
    for (flaw, text, repeats) in texts {
        let Some(adapter) = adapter(&text) else {
            return;
        };
        let found = raced(adapter, repeats, one).expect("the adapter does not fail");
        let is_ticketed = |outside: &OutsideModel| outside.mode == RaceMode::Ticketed;
        assert!(found.outside.iter().any(is_ticketed), "{flaw} is not seen");
    }
}

#[test]
fn a_kernel_that_does_not_get_on_is_an_error_and_no_hang() {
    let stuck = tampered("atomicStore(&state[turn], ticket + 1u);", "");
    let crowded = tampered("attempt < params[5]", "attempt < 0u * params[5]");
    for (text, said) in [(stuck, "turn has not come"), (crowded, "has not succeeded")] {
        let Some(adapter) = adapter(&text) else {
            return;
        };
        let error = raced(adapter, 2, one).expect_err("nobody's turn comes");
        assert!(
            error.contains("the device failed") && error.contains(said),
            "{error}"
        );
    }
}

#[test]
fn shipped_scenarios_in_arrival_order_are_inside_the_model() {
    for (name, families) in [
        ("arrival-wgrad", [Family::WgradSplitK]),
        ("arrival-embedding", [Family::EmbeddingGrad]),
    ] {
        let Some(adapter) = adapter(ATOMIC_ADD) else {
            return;
        };
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let overrides = Overrides {
            steps: Some(1),
            ..Overrides::default()
        };
        let path = root.join(format!("scenarios/{name}.toml"));
        let loaded = Scenario::load(&path, &overrides).expect("a shipped scenario is valid");
        let mut session = Session::new(loaded.scenario, &CheckOptions::default()).expect("it runs");
        let mut races = Races::on(adapter, 6, 7);
        let options = RunOptions::default();
        let steps = session.steps();
        let run = session.run(&options, steps, None, &mut Watch(&mut races));
        run.expect("it runs");
        let found = races.end();
        assert!(found.is_inside(), "{name}: {:?}", found.outside);
        let raced: BTreeSet<Family> = found.folds.iter().map(|fold| fold.family).collect();
        assert_eq!(raced, families.into(), "{name}");
        assert!(
            found.judged.exact_set > 0 && found.judged.unjudged == 0,
            "{name}"
        );
    }
}
