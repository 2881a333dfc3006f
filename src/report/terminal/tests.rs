use super::*;
use crate::report::{Requirement, sample};
use crate::scenario::{Expectation, Grade};

fn plain(outcome: crate::prove::outcome::Outcome, detail: Detail) -> String {
    style::plain(&Report::new(outcome, &Requirement::default(), None).to_human(detail))
}

#[test]
fn a_divergence_reads_from_verdict_to_replay_line() {
    insta::assert_snapshot!(plain(sample::divergent(), Detail::Usual), @r#"
    any-allocation: divergent
      within this allocation: proved
      across allocations:     divergent
      This is a proof about the model of the job named in the certificate; it does not say that the
        job's own kernels keep their bits.

    first divergence
      step 1, grad-reduce, ddp.bucket0, reduce_scatter
      dp 0: ranks 0 2 4 6, dp-gradients; 4,211 nodes before it agree
      its inputs are equal
      free: placement (one value a run)
      A: block-2x8
      B: plane2-2x8

    witness
      element 77; 317 of 8,192 elements differ, by at most 3 ulp
      A = (((r0 + r2) + r4) + r6)
      B = (((r0 + r4) + r2) + r6)
        rank 0  0x3f800000  1.0
        rank 2  0x3380d959  6e-8
        rank 4  0x3380d959  6e-8
        rank 6  0x80000000  -0.0
        sum A   0x3f800001  1.0000001
        sum B   0x3f800000  1.0
      3 addends suffice:
        A = ((r0 + r2) + r4) = 1.0
        B = ((r2 + r4) + r0) = 1.0000001
      changing this node alone parts them too; lm loss stays the same
      from topologies/block-2x8.toml
      from topologies/plane2-2x8.toml

    visible effect
      lm loss differs from step 2 on (both runs: 24 steps)
        A  0x40a80000  5.25
        B  0x40a80002  5.250001

    switches that were tried
      removes it: ddp_reduce_scatter_with_fp32_accumulation = true
        the sweep is then proved
      does not: env.NCCL_ALGO = "Tree"
        the sweep is then divergent

    choice points, by what proved them
                               P         L0    addends  at full size
      dp-gradients            40          -          4            38
      tensor-parallel          -      1,280          2             8

    oracles
      R2R  equal (51,234 comparisons)
      RES  equal (9 comparisons)
      XR   equal (512 comparisons)

    planted faults
      12 of 12 caught and named

    lm loss, a value a step
      5.546120 5.500000 5.250000 5.125000

    certificate
      4 steps, 16 ranks, 51,234 nodes
      engine cpu (strict): x86-64, naga 30.0.2, cranelift 0.135.8
      free: placement (one value a run): block-2x8, plane2-2x8
      plans: NCCL 2.30.7, read from source; in-node orders from the topology file

    not covered
      - the insides of closed kernels, such as cuBLAS and FlashAttention

    reproduce it with: bitproof replay 040G40R40M30E209000G23XC096KDR93
    "#);
}

#[test]
fn a_vacuous_check_says_what_could_not_have_failed() {
    let text = plain(sample::vacuous(), Detail::Usual);
    assert!(text.starts_with("vacuous: vacuous\n"), "{text}");
    assert!(
        text.contains("dp-gradients: too few addends to differ (12 points)"),
        "{text}"
    );
    assert!(
        text.contains("2 addends here, 38 at full size; give the scenario"),
        "{text}"
    );
    assert!(
        text.contains("loss-mean: order-dependent, silent here"),
        "{text}"
    );
}

#[test]
fn quiet_keeps_the_verdict_and_the_line_to_paste() {
    let text = plain(sample::divergent(), Detail::Verdict);
    assert!(text.starts_with("any-allocation: divergent\n"));
    assert!(text.ends_with("bitproof replay 040G40R40M30E209000G23XC096KDR93\n"));
    assert!(!text.contains("witness"));
}

/// In every form: what a scenario says of itself is no matter of detail.
#[test]
fn what_a_scenario_leaves_open_is_told_in_every_form() {
    let mut outcome = sample::proved();
    let sentences = ["the script was followed", "a file was not read"];
    outcome.scenario.not_covered = sentences.map(str::to_string).to_vec();
    let report = Report::new(outcome, &Requirement::default(), None);
    let quiet = style::plain(&report.to_human(Detail::Verdict));
    assert!(
        quiet.contains("not covered: the script was followed; and 1 more"),
        "{quiet}"
    );
    let found = report.diagnostics();
    let [note] = found.as_slice() else {
        panic!("{found:?}");
    };
    assert_eq!(note.code, "not-covered");
    assert_eq!(note.notes, ["a file was not read"]);
    let xml = crate::report::junit(&[crate::report::Checked::Reported(Box::new(report))]);
    for sentence in sentences {
        assert!(xml.contains(sentence), "{xml}");
    }
}

#[test]
fn verbose_prints_hashes_and_assumptions() {
    let usual = plain(sample::proved(), Detail::Usual);
    let full = plain(sample::proved(), Detail::Full);
    assert!(!usual.contains("A2 purity") && full.contains("A2 purity"));
    assert!(full.contains(&"d".repeat(64)));
    assert!(!full.contains("reproduce it"));
}

#[test]
fn an_expectation_is_judged_in_sight() {
    let expect = Expectation {
        first: Some("reduce_scatter".into()),
        ..Expectation::of(Grade::Divergent)
    };
    let report = Report::new(sample::divergent(), &Requirement::default(), Some(expect));
    let text = style::plain(&report.to_human(Detail::Verdict));
    assert!(
        text.contains("expected divergent first at reduce_scatter: met"),
        "{text}"
    );
}

#[test]
fn lines_fit_the_page_and_styles_strip_away() {
    for outcome in [sample::proved(), sample::divergent(), sample::vacuous()] {
        let text = plain(outcome, Detail::Full);
        assert!(!text.contains('\u{1b}'));
        for line in text.lines() {
            assert!(line.chars().count() <= 100, "{line}");
        }
    }
}

#[test]
fn a_failed_oracle_is_explained_first_and_ends_with_the_check_to_repeat() {
    use crate::fault::Component;
    use crate::prove::outcome::OracleVerdict;
    let mut outcome = sample::proved();
    outcome.within = Some(Grade::Divergent);
    outcome.oracles[1].verdict = OracleVerdict::Different;
    outcome.oracles[1].components = vec![Component::Rng];
    outcome.oracles[1].detail = Some("resumed after step 1: step 2 differs".into());
    let report = Report::new(outcome, &Requirement::default(), None);
    let report = report.repeated_by("bitproof check a.toml".into());
    let text = style::plain(&report.to_human(Detail::Usual));
    let failed = text.find("oracle RES failed\n  a resumed run lacks: rng\n  resumed after step 1");
    assert!(
        failed < text.find("choice points") && failed.is_some(),
        "{text}"
    );
    assert!(
        text.ends_with("reproduce it with: bitproof check a.toml\n"),
        "{text}"
    );
}

#[test]
fn a_fault_that_was_not_caught_is_told_beside_the_verdict() {
    let mut outcome = sample::vacuous();
    outcome.mutants.caught = 11;
    outcome.mutants.missed = vec![crate::prove::outcome::PlantedMutant {
        kind: "race".into(),
        site: "step 1, loss, loss, all_reduce".into(),
        reason: "no node was named".into(),
    }];
    let text = plain(outcome, Detail::Usual);
    assert!(text.contains("did not catch\n  race at step 1, loss, loss, all_reduce: no node"));
    assert!(text.contains("11 of 12 caught"));
}

#[test]
fn points_of_several_ranks_share_a_line() {
    use crate::numerics::ladder::Rung;
    use crate::prove::outcome::InputPoint;
    use crate::world::Family;
    let point = |site: &str, addends| InputPoint {
        site: site.into(),
        family: Family::EmbeddingGrad,
        rung: Rung::L1,
        addends,
        addends_at_full_size: 1_000,
    };
    let mut outcome = sample::proved();
    outcome.input_points = vec![point("here", 4), point("here", 7), point("there", 5)];
    outcome.input_point_count = 9;
    let text = plain(outcome, Detail::Usual);
    let lines = "  L1 here: 4-7 addends, 1,000 at full size (2 points)\n  \
                 L1 there: 5 addends, 1,000 at full size (1 point)\n  and 6 more\n";
    assert!(text.contains(lines), "{text}");
}

#[test]
fn a_switch_that_leaves_another_difference_says_so() {
    let mut outcome = sample::divergent();
    outcome.remedies[0].tried_grade = Grade::Divergent;
    outcome.remedies[0].still_parts = Some("step 1, optimizer, norm".into());
    let text = plain(outcome, Detail::Usual);
    let told = "accumulation = true\n    the sweep is then divergent, elsewhere: step 1, \
                optimizer, norm\n";
    assert!(text.contains(told), "{text}");
    assert!(!plain(sample::divergent(), Detail::Usual).contains("elsewhere"));
}

#[test]
fn a_check_of_nothing_says_so_and_no_more() {
    let mut outcome = sample::proved();
    outcome.oracles.clear();
    let text = plain(outcome, Detail::Full);
    assert!(text.starts_with("quickstart: nothing checked\n"), "{text}");
    assert!(
        !text.contains("proved") && text.lines().count() == 2,
        "{text}"
    );
}
