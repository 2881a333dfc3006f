//! Faults of a scenario from its file to its verdict: found, named, shown with what they do, and
//! told apart from what a machine does.

use std::path::Path;

use bitproof::diagnostic::Source;
use bitproof::fault::FaultKind;
use bitproof::prove::faults::places;
use bitproof::prove::outcome::{HazardKind, OracleVerdict, Outcome};
use bitproof::prove::session::CheckError;
use bitproof::prove::{CheckOptions, Silent, Token, check, replay};
use bitproof::scenario::{Grade, OracleKind, OriginClass, Overrides, Scenario};

const RECIPE: &str = "steps = 3\n[recipe]\nworld_size = 4\nnum_layers = 1\nhidden_size = 16\n\
    num_attention_heads = 2\nseq_length = 16\nmicro_batch_size = 1\nglobal_batch_size = 12\n\
    train_iters = 3\nlr = 1e-2\nuse_distributed_optimizer = true\n";

fn scenario(faults: &str) -> Scenario {
    let text = format!("{RECIPE}{faults}\n");
    let source = Source::new("scenario.toml", text.as_str());
    let loaded = Scenario::from_source(&source, Path::new("scenario.toml"), &Overrides::default());
    let complaint = |diagnostics| panic!("{diagnostics:#?}\n{text}");
    loaded.unwrap_or_else(complaint).scenario
}

fn checked(faults: &str) -> Outcome {
    check(scenario(faults), CheckOptions::default(), &Silent).expect("the check ends")
}

fn r2r(outcome: &Outcome) -> &str {
    let result = &outcome.oracles[0];
    assert_eq!(result.verdict, OracleVerdict::Different);
    result.detail.as_deref().expect("a sentence")
}

#[test]
fn a_dropped_wait_is_found_and_what_it_does_is_shown() {
    let sound = checked("");
    assert_eq!(sound.grade(), Grade::Proved, "{:#?}", sound.vacuity);
    assert_eq!((sound.hazards.len(), sound.faults.len()), (0, 0));
    assert!(sound.peak_bytes.is_some_and(|(bytes, _)| bytes > 0));
    let outcome = checked("[fault]\ndrop_wait = \"grad_reduce.bucket0\"");
    assert_eq!(outcome.faults, ["drop_wait `grad_reduce.bucket0`"]);
    assert_eq!(outcome.grade(), Grade::Divergent);
    let hazard = &outcome.hazards[0];
    assert_eq!(hazard.kind, HazardKind::ReadBeforeComplete);
    assert_eq!(hazard.edge.as_deref(), Some("grad_reduce.bucket0"));
    let consequence = hazard.consequence.as_deref().expect("it was tried");
    assert!(
        consequence.contains("bytes part first at step 1"),
        "{consequence}"
    );
    let first = outcome.first_divergence.as_ref().expect("bits part");
    assert!(first.variable.name.contains("grad_shard"), "{first:?}");
    // The same run done again is the same: nothing was corrupted.
    assert!(!outcome.oracles.iter().any(|result| {
        let detail = result.detail.as_deref();
        detail.is_some_and(|detail| detail.contains("corruption"))
    }));
}

#[test]
fn corruption_is_named_and_told_apart() {
    let at_node = "[fault]\nflip_bit = { node = \"optimizer.adamw\", rank = 2, step = 2, bit = 9 }";
    let outcome = checked(at_node);
    assert_eq!(outcome.grade(), Grade::Uncontrolled);
    assert_eq!(outcome.hazards, []);
    let told = r2r(&outcome);
    assert!(
        told.contains("what `optimizer.adamw` wrote in step 2 on rank 2"),
        "{told}"
    );
    let in_memory = "[fault]\nflip_bit = { component = \"exp-avg\", rank = 1, step = 1, bit = 20 }";
    let outcome = checked(in_memory);
    assert_eq!(outcome.grade(), Grade::Uncontrolled);
    let told = r2r(&outcome);
    assert!(told.contains("`exp_avg` of rank 1 after step 1"), "{told}");
    let first = outcome.first_divergence.expect("bits part");
    assert!(first.variable.name.contains("corruption"), "{first:?}");
}

#[test]
fn a_fault_that_no_run_meets_is_refused_with_the_nearest_name() {
    let scenario = scenario("[fault]\ndrop_wait = \"grad_reduce.bucket7\"");
    let error = check(scenario, CheckOptions::default(), &Silent).unwrap_err();
    let CheckError::UnmetFaults(unmet) = &error else {
        panic!("{error}");
    };
    assert_eq!(unmet[0].nearest.as_deref(), Some("grad_reduce.bucket0"));
    let told = error.to_string();
    assert!(
        told.contains("no run comes by drop_wait `grad_reduce.bucket7`"),
        "{told}"
    );
}

/// What the line to paste shows is what the check has found: the pair that was turned round.
#[test]
fn a_hazard_is_replayed() {
    let faulty = scenario("[fault]\ndrop_wait = \"grad_reduce.bucket0\"");
    let outcome = check(faulty.clone(), CheckOptions::default(), &Silent).expect("it ends");
    let token = Token::decode(outcome.replay.as_deref().expect("a token")).expect("it is whole");
    let shown = replay(faulty.clone(), &token, CheckOptions::default(), &Silent);
    let shown = shown.expect("it reproduces");
    assert_eq!((shown.grade(), shown.hazards.len()), (outcome.grade(), 1));
    assert!(
        outcome.hazards.contains(&shown.hazards[0]),
        "{:#?}",
        shown.hazards
    );
    assert_eq!(shown.replay, outcome.replay);
    let class = |outcome: &Outcome| outcome.origin.as_ref().map(|origin| origin.class);
    assert_eq!(class(&shown), class(&outcome));
    // R2R fails, and does not call itself equal.
    for outcome in [&outcome, &shown] {
        assert_eq!(outcome.oracles[0].verdict, OracleVerdict::Different);
    }
    let other = Token { value: 99, ..token };
    let refused = replay(faulty, &other, CheckOptions::default(), &Silent).unwrap_err();
    assert!(refused.to_string().contains("does not part"), "{refused}");
}

#[test]
fn bits_that_a_type_has_not_are_refused() {
    let text = |bit: u32| {
        format!(
            "bf16 = true\n[fault]\n\
             flip_bit = {{ component = \"model\", rank = 1, step = 2, bit = {bit} }}"
        )
    };
    let refused = check(scenario(&text(0)), CheckOptions::default(), &Silent).unwrap_err();
    let told = refused.to_string();
    assert!(told.contains("bf16 from bit 16 on"), "{told}");
    let outcome = checked(&text(16));
    assert_eq!(outcome.grade(), Grade::Uncontrolled);
}

const PIPELINE: &str = "steps = 2\noracles = [\"R2R\"]\n[recipe]\nnum_layers = 4\n\
    hidden_size = 8\nffn_hidden_size = 16\nnum_attention_heads = 2\nseq_length = 4\n\
    micro_batch_size = 1\ntrain_iters = 8\nlr = 0.005\nworld_size = 4\n\
    pipeline_model_parallel_size = 4\n";

fn pipeline(microbatches: u32, rest: &str) -> Outcome {
    let text = format!("{PIPELINE}global_batch_size = {microbatches}\n{rest}");
    let scenario = Scenario::from_toml(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    check(scenario, CheckOptions::default(), &Silent).expect("the check ends")
}

/// In a pipeline's steady state the other stages order what its cool-down does not: one occurrence
/// of a hazard says nothing of the others.
#[test]
fn a_hazard_of_the_cool_down_alone_is_found() {
    let fault = "[fault]\ndrop_wait = { at = \"pipeline.send_backward\", rank = 2 }\n";
    for microbatches in [3, 4, 8] {
        let sound = pipeline(microbatches, "");
        assert_eq!((sound.grade(), sound.hazards.len()), (Grade::Proved, 0));
        let outcome = pipeline(microbatches, fault);
        let told = format!(
            "{microbatches}: {:#?}\n{:#?}",
            outcome.hazards, outcome.notes
        );
        assert_eq!(outcome.grade(), Grade::Divergent, "{told}");
        let hazard = &outcome.hazards[0];
        assert_eq!(
            (hazard.kind, hazard.rank),
            (HazardKind::WriteAfterRead, 2),
            "{told}"
        );
        // The last send before the cool-down's, whose buffer the last microbatch gets.
        assert_eq!(
            hazard.first.site.microbatch,
            Some(microbatches - 3),
            "{told}"
        );
        assert_eq!(
            hazard.second.site.microbatch,
            Some(microbatches - 1),
            "{told}"
        );
        let consequence = hazard.consequence.as_deref().expect("it was tried");
        assert!(consequence.contains("bytes part first at"), "{told}");
    }
}

/// The last stage of two sends before it computes the next backward, which no other rank orders:
/// whatever is ordered in a layout of four stages says nothing of that.
#[test]
fn what_one_layout_orders_another_need_not() {
    let topo = "[[topo]]\nname = \"two\"\nmay_differ = true\n\
        recipe = { pipeline_model_parallel_size = 2 }\n";
    let fault = "[fault]\ndrop_wait = { at = \"pipeline.send_backward\", rank = 2 }\n";
    let both = "oracles = [\"R2R\", \"TOPO\"]";
    let text = |rest: &str| {
        let recipe = PIPELINE.replace("oracles = [\"R2R\"]", both);
        Scenario::from_toml(&format!("{recipe}global_batch_size = 4\n{rest}"))
    };
    let scenario = text(&format!("{fault}{topo}")).expect("it is sound");
    let outcome = check(scenario, CheckOptions::default(), &Silent).expect("the check ends");
    assert!(outcome.grade() >= Grade::Hazard, "{:#?}", outcome.hazards);
    let told = &outcome.topo[0].summary;
    assert!(told.contains("write after read on rank 2"), "{told}");
    assert!(
        told.contains("microbatch 0") && told.contains("microbatch 1"),
        "{told}"
    );
}

/// The control: pairs each of which other ranks order are no hazards, and are told of.
#[test]
fn a_pair_that_is_ordered_each_time_is_no_hazard() {
    let fault = "[fault]\ndrop_wait = { at = \"pipeline.recv_backward\", rank = 1 }\n";
    let outcome = pipeline(4, fault);
    let ordered = "recv_backward comes before step 2, microbatch 0, forward";
    let of_pair = outcome.notes.iter().find(|note| note.contains(ordered));
    let note = of_pair.unwrap_or_else(|| panic!("{:#?}", outcome.notes));
    assert!(note.contains("by way of other ranks alone"), "{note}");
    let mut hazards = outcome.hazards.iter();
    assert!(hazards.all(|hazard| !hazard.second.site.op.contains("alloc")));
}

/// Copies that differ are the finding, whatever layout the run is resumed on besides.
#[test]
fn a_drift_is_a_finding_where_other_layouts_are_asked_for() {
    let outcome = checked("[checkpoint]\nreshard = [\"2x1xNone\"]\n[fault]\nrank_seed = \"dp\"");
    assert_eq!(outcome.grade(), Grade::Divergent);
}

/// A fault that only the resumed run on another layout comes by is met there.
#[test]
fn a_fault_of_another_layout_is_met_there() {
    let recipe = PIPELINE.replace("oracles = [\"R2R\"]", "oracles = [\"R2R\", \"RES\"]");
    let recipe = recipe.replace("parallel_size = 4", "parallel_size = 1");
    let rest = "global_batch_size = 8\n[checkpoint]\nreshard = [\"1x2xNone\"]\n\
        [fault]\ndrop_wait = { at = \"pipeline.send_backward\", rank = 2 }\n";
    let scenario = Scenario::from_toml(&format!("{recipe}{rest}")).expect("it is sound");
    let outcome = check(scenario, CheckOptions::default(), &Silent).expect("some run meets it");
    assert!(outcome.grade() >= Grade::Hazard, "{:#?}", outcome.hazards);
}

#[test]
fn an_omitted_component_of_which_nothing_comes_is_vacuous() {
    let of = |fault: &str| checked(&format!("[fault]\nomit_component = \"{fault}\"")).grade();
    assert_eq!(of("exp-avg"), Grade::Divergent);
    // The weights are float32: there are no others.
    assert_eq!(of("main-params"), Grade::Vacuous);
    // As a checkpoint that lacks what nobody needs, it is no fault.
    let plain = checked("[checkpoint]\nomit = [\"main-params\"]");
    assert_eq!(plain.grade(), Grade::Proved);
    // Where nothing is resumed, no run comes by it.
    let mut unresumed = scenario("[fault]\nomit_component = \"exp-avg\"");
    unresumed.oracles = [OracleKind::R2R].into();
    let error = check(unresumed, CheckOptions::default(), &Silent).unwrap_err();
    let told = error.to_string();
    assert!(
        told.contains("no run comes by omit_component `exp-avg`"),
        "{told}"
    );
}

#[test]
fn an_expectation_without_words_is_refused() {
    let text = format!("{RECIPE}[expect]\ngrade = \"divergent\"\nnames = \" \"\n");
    let source = Source::new("scenario.toml", text.as_str());
    let path = Path::new("scenario.toml");
    let found = Scenario::from_source(&source, path, &Overrides::default()).unwrap_err();
    assert_eq!(found[0].code, "out-of-range", "{found:#?}");
}

#[test]
fn every_kind_has_its_places() {
    let places = places(scenario(""), &CheckOptions::default()).expect("the scenario runs");
    let known = |kind, at: &str| {
        let found = places
            .iter()
            .find(|place| (place.kind, &*place.at) == (kind, at));
        let found = found.unwrap_or_else(|| panic!("no {kind:?} at {at}"));
        (found.ranks, found.times_in_step)
    };
    assert_eq!(known(FaultKind::DropWait, "grad_reduce.bucket0"), (4, 1));
    assert_eq!(known(FaultKind::SkipLaunch, "optimizer.adamw"), (4, 1));
    assert_eq!(known(FaultKind::OmitComponent, "scheduler"), (4, 1));
    let kinds: Vec<FaultKind> = places.iter().map(|place| place.kind).collect();
    assert!(kinds.contains(&FaultKind::SkipCollective));
}

#[test]
fn faults_are_part_of_a_scenarios_content() {
    let sound = scenario("");
    let one = scenario("[fault]\nskip_launch = \"optimizer.adamw\"");
    let table = "[fault]\n\
        skip_launch = [\"a.b\", { at = \"optimizer.adamw\", rank = 3, step = 2 }]\n\
        flip_bit = [{ buffer = \"parameters\", rank = 0, step = 1, bit = 4 }]";
    let several = scenario(table);
    assert_eq!(several.faults.named.len(), 2);
    let hashes = [&sound, &one, &several].map(Scenario::content_hash);
    assert!(hashes[0] != hashes[1] && hashes[1] != hashes[2]);
    for scenario in [&one, &several] {
        let text = scenario.to_toml(Path::new("."));
        let read = Scenario::from_toml(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        assert_eq!(read.faults, scenario.faults);
        assert_eq!(read.content_hash(), scenario.content_hash());
    }
    // The same checkpoints; but of a fault something must come.
    let omitted = scenario("[fault]\nomit_component = \"scheduler\"");
    let lacking = scenario("[checkpoint]\nomit = [\"scheduler\"]");
    assert_eq!(omitted.checkpoint, lacking.checkpoint);
    assert!(lacking.faults.is_empty() && !omitted.faults.is_empty());
    assert_ne!(omitted.content_hash(), lacking.content_hash());
    let read = Scenario::from_toml(&omitted.to_toml(Path::new("."))).expect("it is sound");
    assert_eq!(read.faults, omitted.faults);
    assert_eq!(read.content_hash(), omitted.content_hash());
}

#[test]
fn what_cannot_be_a_fault_is_refused_at_its_place() {
    for (faults, code) in [
        ("[fault]\ndrop_weight = \"x\"", "unknown-key"),
        ("[fault]\ndrop_wait = 3", "wrong-type"),
        ("[fault]\ndrop_wait = \"\"", "out-of-range"),
        ("[fault]\ndrop_wait = { rank = 1 }", "missing-key"),
        (
            "[fault]\ndrop_wait = { at = \"x\", rank = 4 }",
            "out-of-range",
        ),
        (
            "[fault]\ndrop_wait = { at = \"x\", step = 4 }",
            "out-of-range",
        ),
        ("[fault]\nomit_component = \"schedule\"", "unknown-value"),
        ("[fault]\nflip_bit = { rank = 0, step = 1 }", "missing-key"),
        (
            "[fault]\nflip_bit = { buffer = \"x\", rank = 0, step = 3 }",
            "out-of-range",
        ),
        (
            "[fault]\nflip_bit = { node = \"x\", buffer = \"x\", rank = 0, step = 1 }",
            "missing-key",
        ),
    ] {
        let text = format!("{RECIPE}{faults}\n");
        let source = Source::new("scenario.toml", text.as_str());
        let path = Path::new("scenario.toml");
        let found = Scenario::from_source(&source, path, &Overrides::default()).unwrap_err();
        assert!(
            found.iter().any(|one| one.code == code),
            "{faults}: {found:#?}"
        );
    }
}

/// The read is not behind the allocation either: one mistake, of the wait for what fills it.
#[test]
fn a_send_without_its_wait_is_no_matter_of_lifetimes() {
    let stages = "pipeline_model_parallel_size = 2\nnum_layers = 2\n";
    let text = RECIPE.replace("num_layers = 1\n", stages);
    let text = format!("{text}[fault]\ndrop_wait = \"pipeline.send_forward.start\"\n");
    let source = Source::new("scenario.toml", text.as_str());
    let loaded = Scenario::from_source(&source, Path::new("scenario.toml"), &Overrides::default());
    let scenario = loaded.expect("a sound scenario").scenario;
    let outcome = check(scenario, CheckOptions::default(), &Silent).expect("the check ends");
    let origin = outcome.origin.expect("it has one");
    assert_eq!(origin.class, OriginClass::MissingWait, "{}", origin.what);
    let kinds: Vec<HazardKind> = outcome.hazards.iter().map(|hazard| hazard.kind).collect();
    assert_eq!(kinds, [HazardKind::ReadBeforeComplete]);
}

/// No checkpoint of this recipe has a scaler that it could lack.
#[test]
fn what_no_checkpoint_has_cannot_be_lost() {
    let scenario = scenario("[fault]\nomit_component = \"loss-scaler\"");
    let error = check(scenario, CheckOptions::default(), &Silent).unwrap_err();
    assert!(matches!(error, CheckError::UnmetFaults(_)), "{error}");
}
