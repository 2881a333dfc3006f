//! Whole checks that resume on other layouts: verdicts, tokens, and what is told.

use super::*;

/// Two hosts of four whose ranks lie otherwise. On the own layout no sum of three addends is left
/// to the placement; on the other one gradients are sums of four.
fn placed(checkpoint: &str) -> Scenario {
    let allocation = |name: &str, hosts: &str| {
        format!(
            "[[allocations]]\nname = \"{name}\"\ntext = \"\"\"\nname = \"{name}\"\n\
             hosts = {hosts}\n\"\"\"\n"
        )
    };
    let lists = [
        allocation("block", "[[0, 1, 2, 3], [4, 5, 6, 7]]"),
        allocation("dealt", "[[0, 1, 6, 7], [2, 3, 4, 5]]"),
    ];
    let text = format!(
        "free = ['placement']\n{}\n[checkpoint]\n{checkpoint}\n{}",
        RECIPE
            .replacen("lr = ", "clip_grad = 0.0\nlr = ", 1)
            .replacen("steps = 3", "steps = 2", 1),
        lists.concat()
    );
    let source = Source::new("placed.toml", text);
    let loaded = Scenario::from_source(&source, Path::new("placed.toml"), &Overrides::default());
    loaded
        .unwrap_or_else(|findings| panic!("{findings:?}"))
        .scenario
}

/// The resumed run is swept on every allocation, and what parts there alone has its own token.
#[test]
fn another_layout_is_checked_across_allocations_and_replayed() {
    let scenario = placed("restarts = [[1]]\nreshard = ['2x2x2', '2x1xNone']");
    let found = outcome(scenario.clone());
    assert!(found.within < Some(Grade::Divergent), "{found}");
    assert!(
        found.first_divergence.is_none(),
        "the own layout parts nowhere"
    );
    assert_eq!(found.across, Some(Grade::Divergent), "{found}");
    let moved = &found.reshardings[1];
    assert!(moved.to == "2x1xNone" && moved.sensitive == 0 && moved.sensitive_across > 0);
    assert!(
        moved.summary.contains("part across allocations"),
        "{}",
        moved.summary
    );
    let mut oracles = found.oracles.iter();
    let res = oracles
        .find(|result| result.oracle == OracleKind::RES)
        .unwrap();
    assert_eq!(res.verdict, OracleVerdict::Different, "{res:?}");
    let line = found.replay.expect("a failure ends with a line to paste");
    assert!((30..=45).contains(&line.len()), "{line}");
    let token = Token::decode(&line).unwrap();
    let options = CheckOptions {
        workers: 1,
        ..CheckOptions::default()
    };
    let again =
        replay(scenario.clone(), &token, options.clone(), &Silent).expect("it is there again");
    assert_eq!(again.reshardings, std::slice::from_ref(moved));
    assert_eq!((again.within, again.across), (None, Some(Grade::Divergent)));
    // The layout that holds, and one that is not there.
    for value in [0, 2] {
        let other = Token { value, ..token };
        let refused = replay(scenario.clone(), &other, options.clone(), &Silent);
        assert!(matches!(refused, Err(CheckError::Input(_))), "{refused:?}");
    }
}

#[test]
fn lost_generators_are_never_called_equal() {
    let found = outcome(scenario(
        ("lr = ", "hidden_dropout = 0.1\nlr = "),
        "restarts = [[1]]\nreshard = ['1x4xNone', '2x2x2']",
    ));
    for result in &found.reshardings {
        assert_eq!(
            result.verdict,
            OracleVerdict::EqualInPart,
            "{}",
            result.summary
        );
        assert!(
            result.summary.contains("dropout masks differ by layout"),
            "{}",
            result.summary
        );
    }
    let mut oracles = found.oracles.iter();
    let res = oracles
        .find(|result| result.oracle == OracleKind::RES)
        .unwrap();
    assert_eq!(res.verdict, OracleVerdict::EqualInPart);
    assert!(
        res.detail.as_ref().unwrap().contains("forks its seeds"),
        "{res:?}"
    );
}

fn outcome(scenario: Scenario) -> Outcome {
    check(
        scenario,
        CheckOptions {
            workers: 1,
            ..CheckOptions::default()
        },
        &Silent,
    )
    .expect("the check ends")
}

#[test]
fn a_whole_check_tells_of_each_layout() {
    let reshard = "restarts = [[1]]\nreshard = ['1x4xNone', '2x1xNone']";
    let found = outcome(plain(reshard));
    let res = found
        .oracles
        .iter()
        .find(|result| result.oracle == OracleKind::RES)
        .unwrap();
    assert_eq!(res.verdict, OracleVerdict::Equal, "{res:?}");
    assert!(found.mutants.missed.is_empty(), "{:?}", found.mutants);
    let layouts: Vec<&str> = found.reshardings.iter().map(|result| &*result.to).collect();
    assert_eq!(layouts, ["1x4xNone", "2x1xNone"]);
    for result in &found.reshardings {
        assert_eq!(result.verdict, OracleVerdict::Equal, "{}", result.summary);
    }
    let omitting = format!("omit = ['exp-avg']\n{reshard}");
    let found = outcome(plain(&omitting));
    assert_eq!(found.within, Some(Grade::Divergent));
    for result in &found.reshardings {
        assert_eq!(result.verdict, OracleVerdict::Different);
        assert!(
            result.run.differing[0].contains("exp-avg"),
            "{:?}",
            result.run.differing
        );
    }
}

/// Copies that drift are the finding: no other layout can be resumed from such a state, and that is
/// no fault of bitproof's.
#[test]
fn copies_that_drift_are_told_whatever_layouts_are_asked_for() {
    let faulty = "restarts = [[1]]\nreshard = ['1x4xNone']\n[fault]\nrank_seed = 'dp'";
    let found = outcome(plain(faulty));
    assert_eq!(found.within, Some(Grade::Divergent), "{found}");
    let origin = found.origin.expect("a fault is named");
    assert_eq!(origin.oracle, OracleKind::XR, "{}", origin.what);
}
