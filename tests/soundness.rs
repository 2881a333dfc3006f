//! Ways to a wrong or empty *proved* that were found once. None may be found again.

use std::path::Path;
use std::sync::Arc;

use bitproof::diagnostic::Source;
use bitproof::fault::MutantKind;
use bitproof::prove::outcome::{OracleVerdict, Outcome, VacuityReason};
use bitproof::prove::session::CheckError;
use bitproof::prove::{CheckOptions, Silent, Token, check, replay};
use bitproof::scenario::{Data, Grade, OracleKind, Overrides, Scenario};
use bitproof::world::Family;

/// A scenario of a few ranks; `head` comes before the recipe, `recipe` into it.
fn scenario(head: &str, recipe: &str, tail: &str) -> Scenario {
    scenario_of(2, head, recipe, tail)
}

fn scenario_of(steps: u32, head: &str, recipe: &str, tail: &str) -> Scenario {
    let text = format!(
        "steps = {steps}\n{head}\n[recipe]\nnum_layers = 2\nhidden_size = 32\n\
         ffn_hidden_size = 64\nnum_attention_heads = 4\nseq_length = 32\nmicro_batch_size = 1\n\
         train_iters = {steps}\nlr = 5e-3\nuse_distributed_optimizer = true\n{recipe}\n\
         [recipe.env]\nNCCL_ALGO = \"Ring\"\n{tail}\n"
    );
    let source = Source::new("scenario.toml", text.as_str());
    let loaded = Scenario::from_source(&source, Path::new("scenario.toml"), &Overrides::default());
    let complaint = |diagnostics| panic!("{diagnostics:#?}\n{text}");
    loaded.unwrap_or_else(complaint).scenario
}

fn checked(scenario: Scenario) -> Outcome {
    check(scenario, CheckOptions::default(), &Silent).expect("the check ends")
}

fn reasons(outcome: &Outcome, family: Family) -> Vec<VacuityReason> {
    let of = outcome
        .vacuity
        .iter()
        .filter(|finding| finding.family == family);
    of.map(|finding| finding.reason).collect()
}

const ONE_RANK: &str = "world_size = 1\nglobal_batch_size = 1\nbf16 = true";
const FOUR_RANKS: &str = "world_size = 4\nglobal_batch_size = 12\nbf16 = true";

#[test]
fn one_rank_says_nothing_of_304() {
    let full = "[full_size]\ntensor_model_parallel_size = 8\ndata_parallel_size = 38\n";
    let outcome = checked(scenario("", ONE_RANK, full));
    assert_eq!(outcome.grade(), Grade::Vacuous);
    for family in [
        Family::TensorParallel,
        Family::DpGradients,
        Family::NormGlobal,
    ] {
        assert_eq!(
            reasons(&outcome, family),
            [VacuityReason::Absent],
            "{family:?}"
        );
    }
    // The control: without the larger job there is nothing that it fails to speak of.
    assert_eq!(checked(scenario("", ONE_RANK, "")).grade(), Grade::Proved);
}

#[test]
fn a_free_order_of_one_part_is_not_a_proof_of_that_order() {
    let splits = "[recipe.determinism]\nwgrad_split_k = \"arrival\"\nwgrad_splits = 1\n";
    let outcome = checked(scenario("", FOUR_RANKS, splits));
    assert_eq!(outcome.grade(), Grade::Vacuous);
    assert_eq!(
        reasons(&outcome, Family::WgradSplitK),
        [VacuityReason::Absent]
    );
}

/// One switch frees the gradients of both tables that are looked up.
#[test]
fn a_position_table_of_single_sequences_stands_for_no_wider_one() {
    let racy = "[recipe.determinism]\nembedding_backward = \"arrival\"\n";
    let found = |full: u32, positions: &str| {
        let full = format!("[full_size]\nmicro_batch_size = {full}\n");
        let recipe = format!("{FOUR_RANKS}\n{positions}");
        let outcome = checked(scenario(&full, &recipe, racy));
        reasons(&outcome, Family::PositionGrad)
    };
    let learned = "position_embedding_type = \"learned_absolute\"\n";
    assert!(found(4, learned).contains(&VacuityReason::Absent));
    assert!(found(1, learned).is_empty());
    assert!(found(4, "").is_empty());
}

#[test]
fn data_without_repeats_does_not_make_a_scatter_ordered() {
    let racy = "[recipe.determinism]\nembedding_backward = \"arrival\"\n";
    let mut scenario = scenario("", FOUR_RANKS, racy);
    let bytes: Vec<u8> = (0..64).flat_map(|_| 0..=255).collect();
    scenario.data = Data::File {
        path: "distinct.bin".into(),
        bytes: Arc::from(bytes),
    };
    let outcome = checked(scenario);
    assert_eq!(outcome.grade(), Grade::Vacuous);
    assert!(!reasons(&outcome, Family::EmbeddingGrad).is_empty());
}

#[test]
fn nothing_is_proved_across_two_names_of_one_allocation() {
    let named = |name: &str, hosts: &str| {
        format!(
            "[[allocations]]\nname = \"{name}\"\ntext = '''\nname = \"{name}\"\n\
             hosts = {hosts}\n'''\n"
        )
    };
    let a = named("a", "[[0, 1], [2, 3]]");
    let b = named("b", "[[2, 3], [0, 1]]");
    let twice = format!("free = [\"placement\"]\n{a}{b}");
    let refused = check(
        scenario(&twice, FOUR_RANKS, ""),
        CheckOptions::default(),
        &Silent,
    );
    let Err(CheckError::Input(message)) = refused else {
        panic!("{refused:?}");
    };
    assert!(message.contains("place every rank alike"), "{message}");
}

/// Two hosts' rings that agree on the first channel only, which is all that a small buffer takes.
fn second_channel_differs(world: u32) -> String {
    let ranks = (0..world)
        .map(|rank| rank.to_string())
        .collect::<Vec<_>>()
        .join(", ");
    let swapped = format!(
        "0, 2, 1, {}",
        (3..world)
            .map(|r| r.to_string())
            .collect::<Vec<_>>()
            .join(", ")
    );
    let allocation = |name: &str, second: &str| {
        format!(
            "[[allocations]]\nname = \"{name}\"\ntext = '''\nname = \"{name}\"\n\
             hosts = [[{ranks}]]\n[nccl]\nring_orders = [[{ranks}], [{second}]]\n\
             tree_orders = [[{ranks}], [{ranks}]]\n'''\n"
        )
    };
    format!(
        "free = [\"placement\"]\n{}{}",
        allocation("a", &ranks),
        allocation("b", &swapped)
    )
}

#[test]
fn plans_that_part_at_larger_buffers_are_not_proved_by_small_ones() {
    let recipe = "world_size = 4\nglobal_batch_size = 12\nbf16 = true\nclip_grad = 0.0";
    let outcome = checked(scenario(&second_channel_differs(4), recipe, ""));
    assert_ne!(outcome.across, Some(Grade::Proved), "{:?}", outcome.points);
    if outcome.across == Some(Grade::Vacuous) {
        let of = reasons(&outcome, Family::DpGradients);
        assert_eq!(of, [VacuityReason::BufferSize]);
    }
}

#[test]
fn plans_of_full_size_part_on_a_small_buffer_where_the_real_ones_part() {
    let recipe = "world_size = 4\nglobal_batch_size = 12\nbf16 = true\nclip_grad = 0.0";
    let full = "[full_size]\nhidden_size = 1024\nffn_hidden_size = 4096\n";
    let outcome = checked(scenario(&second_channel_differs(4), recipe, full));
    assert_eq!(
        outcome.across,
        Some(Grade::Divergent),
        "{:?}",
        outcome.points
    );
    assert_eq!(outcome.within, Some(Grade::Proved));
    let basis = &outcome.certificate.plan_basis;
    assert!(basis.contains("full-size bytes"), "{basis}");
    assert!(
        outcome
            .not_covered
            .iter()
            .all(|sentence| !sentence.contains("256 MiB"))
    );
}

#[test]
fn training_without_clipping_is_sound() {
    let recipe = "world_size = 4\nglobal_batch_size = 12\nbf16 = true\nclip_grad = 0.0";
    let outcome = checked(scenario("", recipe, ""));
    assert_eq!(outcome.grade(), Grade::Proved, "{:?}", outcome.hazards);
    assert!(outcome.hazards.is_empty());
    assert!(outcome.losses.iter().all(|loss| loss.is_finite()));
}

#[test]
fn a_restart_oracle_without_restarts_is_no_pass() {
    let head = "oracles = [\"R2R\", \"RES\"]";
    let mut scenario = scenario(head, FOUR_RANKS, "");
    scenario.checkpoint.restarts.clear();
    let outcome = checked(scenario);
    assert_eq!(outcome.grade(), Grade::Vacuous);
    let res = outcome
        .oracles
        .iter()
        .find(|result| result.oracle == OracleKind::RES);
    assert_eq!(
        res.map(|result| result.verdict),
        Some(OracleVerdict::NotChecked)
    );
}

#[test]
fn a_token_that_names_no_difference_is_refused() {
    let racy = "[recipe.determinism]\nwgrad_split_k = \"arrival\"\nwgrad_splits = 3\n";
    let scenario = scenario("", FOUR_RANKS, racy);
    let outcome = checked(scenario.clone());
    assert_eq!(outcome.grade(), Grade::Divergent);
    let token = Token::decode(outcome.replay.as_deref().expect("a token")).expect("a sound one");
    let replayed =
        |token: Token| replay(scenario.clone(), &token, CheckOptions::default(), &Silent);
    let again = replayed(token).expect("the token's own scenario");
    assert_eq!(again.witness, outcome.witness);
    let forged = [
        Token {
            variable: 7,
            ..token
        },
        Token {
            value: token.value + 1,
            ..token
        },
        Token {
            element: token.element + 1,
            ..token
        },
        Token {
            element: 99_999_999,
            ..token
        },
        Token {
            node: bitproof::world::NodeId {
                ordinal: 9_999,
                ..token.node
            },
            ..token
        },
        Token {
            node: bitproof::world::NodeId {
                step: 9,
                ..token.node
            },
            ..token
        },
    ];
    for token in forged {
        assert!(
            matches!(replayed(token), Err(CheckError::Input(_))),
            "{token:?}"
        );
    }
}

#[test]
fn every_kind_of_fault_finds_a_place_in_the_quickstart_or_is_named() {
    let path = Path::new("scenarios/quickstart.toml");
    let scenario = Scenario::load(path, &Overrides::default())
        .expect("it is shipped")
        .scenario;
    let outcome = checked(scenario);
    let score = &outcome.mutants;
    assert!(score.missed.is_empty(), "{:?}", score.missed);
    assert!(score.total >= 20 && score.caught == score.total);
    let all = MutantKind::all().len();
    assert!(
        score.not_planted.len() <= 4,
        "{:?} of {all}",
        score.not_planted
    );
}

/// Steps of NaN agree in every order, and what is proved is proved for finite inputs.
#[test]
fn training_that_is_not_finite_proves_nothing() {
    let text = |steps: u32| {
        format!(
            "oracles = [\"R2R\", \"XR\"]\nsteps = {steps}\n[recipe]\nworld_size = 3\n\
             num_layers = 1\nhidden_size = 8\nffn_hidden_size = 8\nnum_attention_heads = 2\n\
             seq_length = 4\nmicro_batch_size = 1\nglobal_batch_size = 3\ntrain_iters = 14\n\
             lr = 100\nadam_eps = 1e-30\nweight_decay = 1\nadam_beta1 = 0\nadam_beta2 = 0\n\
             clip_grad = 1e6\nnorm_epsilon = 1e-12\n[recipe.env]\nNCCL_ALGO = \"Ring\"\n"
        )
    };
    let loaded = |steps: u32| {
        let source = Source::new("nan.toml", text(steps).as_str());
        let loaded = Scenario::from_source(&source, Path::new("nan.toml"), &Overrides::default());
        loaded.expect("a sound scenario").scenario
    };
    let mut long = loaded(14);
    long.accept_input = true;
    let outcome = checked(long);
    let first = outcome.losses.iter().position(|loss| !loss.is_finite());
    let first = first.expect("the training overflows") + 1;
    assert_eq!(outcome.grade(), Grade::Vacuous);
    let finding = &outcome.vacuity[0];
    assert_eq!(finding.reason, VacuityReason::NotFinite);
    let site = finding.site.as_deref().expect("a step");
    let named = site
        .strip_prefix("step ")
        .and_then(|rest| rest.split_once(", "));
    let named: usize = named.expect("a step").0.parse().expect("a number");
    assert!(
        (2..=first).contains(&named),
        "{site}, loss from step {first}"
    );
    // The control: the steps before it are proved.
    let outcome = checked(loaded(named as u32 - 1));
    assert_eq!(outcome.grade(), Grade::Proved, "{:?}", outcome.vacuity);
}

const TIMED: &str = "sequence_parallel = false\ntensor_model_parallel_size = 2\n\
     [recipe.determinism]\nautotune = \"timed\"\n";

/// Ranks that time their kernels choose among orders that differ; one table for all does not.
#[test]
fn a_configuration_that_each_rank_times_is_a_choice_and_is_replayed() {
    let racy = format!("{FOUR_RANKS}\n{TIMED}wgrad_splits = 4\n");
    let racy = scenario("", &racy, "");
    let outcome = checked(racy.clone());
    assert_eq!(outcome.grade(), Grade::Divergent, "{outcome}");
    let first = outcome.first_divergence.as_ref().expect("named");
    assert_eq!(first.variable.name, "autotune");
    let (a, b) = (&first.value_a, &first.value_b);
    assert!(a.ends_with("chose one block of 4"), "{a}");
    assert!(b.ends_with("chose blocks of 2"), "{b}");
    let origin = outcome.origin.as_ref().expect("named");
    assert_eq!(origin.class.name(), "autotune-choice");
    assert!(origin.what.starts_with(a.as_str()), "{}", origin.what);
    // The table of one rank serves many nodes: the first of them parts alone, too.
    let witness = outcome.witness.as_ref().expect("shown");
    assert!(witness.counterfactual && witness.alone.is_some());
    let remedy = &outcome.remedies[0];
    assert_eq!(remedy.switch, "determinism.autotune = \"fixed\"");
    assert!(remedy.removes);

    let token = Token::decode(outcome.replay.as_deref().expect("a token")).expect("sound");
    let again = replay(racy, &token, CheckOptions::default(), &Silent).expect("it replays");
    assert_eq!(again.grade(), outcome.grade());
    let again = again.first_divergence.expect("the same");
    assert_eq!((&again.value_a, &again.site), (a, &first.site));

    let fixed = format!("{FOUR_RANKS}\n{TIMED}wgrad_splits = 4\n");
    let fixed = fixed.replace("timed", "fixed");
    assert_eq!(checked(scenario("", &fixed, "")).grade(), Grade::Proved);
}

/// Where a kernel has one configuration, nothing was chosen and nothing was tried.
#[test]
fn a_tuned_kernel_with_one_configuration_is_vacuous() {
    for splits in [1, 3] {
        let recipe = format!("{FOUR_RANKS}\n{TIMED}wgrad_splits = {splits}\n");
        let outcome = checked(scenario("", &recipe, ""));
        let reasons = reasons(&outcome, Family::WgradSplitK);
        assert!(
            reasons.contains(&VacuityReason::Absent),
            "{splits}: {reasons:?}"
        );
        // Once, with what a tuned sum needs.
        assert_eq!(reasons.len(), 1, "{splits}: {reasons:?}");
        let mut told = outcome.vacuity.iter();
        let told = told.find(|one| one.family == Family::WgradSplitK);
        let change = told.map(|one| one.change.as_str());
        assert_eq!(change, Some("determinism.wgrad_splits >= 4"), "{splits}");
        assert!(outcome.grade() >= Grade::Vacuous, "{splits}");
    }
}

const POLLED: &str = "world_size = 2\nglobal_batch_size = 4\nasync_save = true";
const POLLS: &str = "[checkpoint]\nrestarts = [[1]]\npolls = true\n";

/// Ranks that ask whether a writer is done may be told so one step later, some or all of them.
#[test]
fn every_joint_answer_to_a_poll_is_run() {
    let three_steps = |tail: &str| scenario_of(3, "", POLLED, tail);
    let outcome = checked(three_steps(POLLS));
    let notes = outcome.notes.join("\n");
    // Of the first poll's two answers three say no; then there is a second poll of four answers.
    assert!(
        notes.contains("12 sets of answers were run, all that are reached"),
        "{notes}"
    );
    // A denied answer makes further queries.
    assert_eq!(outcome.grade(), Grade::Bounded, "{outcome}");
    // The control: a tracker that is written when the file is taken over tells of the answers.
    let late = format!("{POLLS}[fault]\nlate_tracker = \"iteration\"\n");
    let outcome = checked(three_steps(&late));
    let notes = outcome.notes.join("\n");
    assert!(
        notes.contains("the file of the checkpoint after step 1 is another one"),
        "{notes}"
    );
    assert_eq!(outcome.grade(), Grade::Divergent);
}

/// A resumed run asks as well: its answers are run and told as the straight run's are.
#[test]
fn answers_in_a_resumed_run_are_run() {
    const TWICE: &str = "[checkpoint]\nrestarts = [[1], [2]]\npolls = true\n";
    let outcome = checked(scenario_of(3, "", POLLED, TWICE));
    let of_resumed = |outcome: &Outcome| {
        let notes = outcome.notes.iter();
        let notes = notes.filter(|note| note.starts_with("restarts [1], after step 1: "));
        notes.cloned().collect::<Vec<_>>().join("\n")
    };
    let notes = of_resumed(&outcome);
    assert!(
        notes.contains("3 sets of answers were run, all that are reached"),
        "{notes}"
    );
    // Not of the run that is resumed after the last save: nobody asks there.
    let asks = |note: &String| note.starts_with("restarts [2]");
    assert!(!outcome.notes.iter().any(asks), "{:?}", outcome.notes);
    // Each file is taken over before the next one is written: no answer makes further queries.
    assert_eq!(outcome.grade(), Grade::Proved, "{outcome}");
    let uncovered = outcome.not_covered.join("\n");
    assert!(!uncovered.contains("queries of"), "{uncovered}");

    // The control: what an answer does to a file of the resumed run is found there, too.
    let tail = format!("{TWICE}[fault]\nlate_tracker = \"iteration\"\n");
    let outcome = checked(scenario_of(3, "", POLLED, &tail));
    let notes = of_resumed(&outcome);
    assert!(
        notes.contains("the file of the checkpoint after step 2 is another one"),
        "{notes}"
    );
    assert_eq!(outcome.grade(), Grade::Divergent);
}
