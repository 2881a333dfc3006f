//! Resumes on other layouts: the state at the load is the straight run's, whatever the ranks hold;
//! later steps agree where plans do; and what lands in the wrong place is named.

mod checks;

use std::collections::BTreeSet;
use std::path::Path;

use bitproof::diagnostic::Source;
use bitproof::prove::check::reference_run;
use bitproof::prove::oracle::parting::{Acts, Parameters};
use bitproof::prove::oracle::res;
use bitproof::prove::oracle::reshard::{self, Resharding, Resume};
use bitproof::prove::outcome::{OracleVerdict, Outcome};
use bitproof::prove::session::{CheckError, Session};
use bitproof::prove::sweep::Sweep;
use bitproof::prove::{CheckOptions, Grade, Silent, Token, check, replay};
use bitproof::recipe::ReshardLayout;
use bitproof::scenario::{OracleKind, Overrides, Scenario};
use bitproof::train::CanonicalError;
use bitproof::world::{Component, Family, RunRecord};

/// Eight ranks, two of each dimension.
const RECIPE: &str = "
name = 'resharding'
steps = 3

[recipe]
world_size = 8
tensor_model_parallel_size = 2
pipeline_model_parallel_size = 2
num_layers = 4
hidden_size = 16
ffn_hidden_size = 16
num_attention_heads = 4
seq_length = 8
micro_batch_size = 1
global_batch_size = 8
train_iters = 3
lr = 5e-3
bf16 = true
use_distributed_optimizer = true

[recipe.env]
NCCL_ALGO = 'Ring'
";

fn scenario(change: (&str, &str), checkpoint: &str) -> Scenario {
    let (from, to) = change;
    assert!(RECIPE.contains(from), "{from}");
    let text = format!(
        "{}\n[checkpoint]\n{checkpoint}",
        RECIPE.replacen(from, to, 1)
    );
    let source = Source::new("resharding.toml", text);
    let path = Path::new("resharding.toml");
    match Scenario::from_source(&source, path, &Overrides::default()) {
        Ok(loaded) => loaded.scenario,
        Err(findings) => panic!("{findings:?}"),
    }
}

fn plain(checkpoint: &str) -> Scenario {
    scenario(("lr = ", "lr = "), checkpoint)
}

/// A straight run with its sweep.
struct Straight {
    session: Session,
    reference: RunRecord,
    sweep: Sweep,
}

impl Straight {
    fn new(scenario: Scenario) -> Straight {
        let mut session =
            Session::new(scenario, &CheckOptions::default()).expect("the scenario can be run");
        let mut sweep = Sweep::new(session.sweep_options());
        let reference = reference_run(&mut session, &mut sweep).expect("the run ends");
        Straight {
            session,
            reference,
            sweep,
        }
    }

    fn resumed_on(&self, layout: &str, cut: u32) -> Resharding {
        let layout: ReshardLayout = layout.parse().expect("a layout");
        let mut session = self.session.resharded(layout).expect("it can be run");
        let resume = Resume {
            straight: &self.session,
            reference: &self.reference,
            sums: &self.sweep.sums,
            cut,
        };
        resume.on(&mut session).expect("the resumed run ends")
    }
}

const RESTARTS: &str = "restarts = [[1], [2]]\nreshard = ['1x4xNone']";

#[test]
fn the_state_is_equal_at_load_on_every_layout() {
    for change in [
        ("lr = ", "lr = "),
        ("use_distributed_optimizer = true", "ddp_bucket_size = 700"),
        ("bf16 = true", "bf16 = true\nuse_tp_pp_dp_mapping = true"),
        ("bf16 = true", "sequence_parallel = true"),
        (
            "lr = ",
            "untie_embeddings_and_output_weights = false\ndisable_bias_linear = false\nlr = ",
        ),
    ] {
        let straight = Straight::new(scenario(change, RESTARTS));
        let layouts: &[&str] = match change.1 {
            "lr = " => &["1x4xNone", "4x2xNone", "1x1xNone", "2x2x2"],
            _ => &["1x4xNone"],
        };
        for layout in layouts {
            let found = straight.resumed_on(layout, 2);
            assert!(
                found.run.starts_equal() && !found.run.is_broken(),
                "{change:?}: {found}"
            );
            assert!(
                found.run.tensors > 100 && found.run.words > 40_000,
                "{found}"
            );
            assert!(
                found.run.drifts.is_empty() && found.run.hazards.is_empty(),
                "{found}"
            );
            assert!(
                found.run.points > 0 && found.run.sensitive.is_empty(),
                "{found}"
            );
        }
    }
}

#[test]
fn the_own_layout_comes_back_bit_for_bit() {
    let straight = Straight::new(plain(RESTARTS));
    for cut in [1, 2] {
        let found = straight.resumed_on("2x2xNone", cut);
        assert!(
            found.run.plans.is_empty() && found.run.parting().is_none(),
            "{found}"
        );
        assert_eq!(found.run.steps.len() as u32, 3 - cut);
        for step in &found.run.steps {
            assert_eq!(step.metrics.len(), 2);
            let (total, equal) = step.tensors.expect("kept");
            assert!(total == equal && total == found.run.tensors, "{step:?}");
        }
        assert!(
            found
                .to_string()
                .contains("equal the straight run's; no plan differs")
        );
    }
}

/// Optimizer instances of one rank each here, of two there.
#[test]
fn optimizer_instances_are_no_part_of_the_state() {
    let instances = "use_distributed_optimizer = true\nnum_distributed_optimizer_instances = 2";
    let change = ("use_distributed_optimizer = true", instances);
    let straight = Straight::new(scenario(change, RESTARTS));
    let found = straight.resumed_on("1x2xNone", 1);
    assert!(
        found.run.starts_equal() && !found.run.is_broken(),
        "{found}"
    );
    assert!(
        found.run.drifts.is_empty() && found.run.plans.len() > 1,
        "{found}"
    );
}

/// Chunks of interleaved stages hold other layers and add nothing in another order, but for the
/// norm: without it, later steps must have the same bits, and do.
#[test]
fn interleaving_alone_changes_no_bit() {
    let straight = Straight::new(scenario(("lr = ", "clip_grad = 0.0\nlr = "), RESTARTS));
    let found = straight.resumed_on("2x2x2", 1);
    assert!(
        found.run.plans.is_empty() && found.run.parting().is_none(),
        "{found}"
    );
    assert!(!found.run.is_broken(), "{found}");
    let clipped = Straight::new(plain(RESTARTS)).resumed_on("2x2x2", 1);
    let norm = clipped
        .run
        .plans
        .iter()
        .find(|plan| plan.family == Some(Family::NormLocal));
    assert!(norm.is_some() && clipped.run.starts_equal(), "{clipped}");
}

/// Tensor parallelism's partial sums are rounded to bf16: without them other bits come out, and
/// the report says where the sums part.
#[test]
fn other_sums_are_told_with_their_addends() {
    let straight = Straight::new(plain(RESTARTS));
    let found = straight.resumed_on("1x4xNone", 1);
    assert!(
        !found.run.is_broken() && found.run.parting().is_some(),
        "{found}"
    );
    let tensor = found
        .run
        .plans
        .iter()
        .find(|plan| plan.family == Some(Family::TensorParallel));
    let tensor = tensor.expect("tensor-parallel sums differ");
    assert_eq!(
        tensor.why,
        "sums of 2 addends on 2x2xNone, no sums on 1x4xNone"
    );
    let site = tensor.first_site.as_deref().expect("a place");
    assert!(site.contains("forward"), "{site}");
    let text = found.to_string();
    for word in [
        "resharded 2x2xNone -> 1x4xNone after step 1",
        "first at step 2",
        "forward, the loss of token",
    ] {
        assert!(text.contains(word), "{text}");
    }
}

/// Negative control: later bits that differ although no plan does are a fault.
#[test]
fn parting_without_a_reason_is_a_fault() {
    let mut straight = Straight::new(plain(RESTARTS));
    let key = (3, "lm loss".to_string());
    let loss = straight.reference.metrics.get_mut(&key).expect("a loss");
    *loss = f32::from_bits(loss.to_bits() ^ 1);
    let found = straight.resumed_on("2x2xNone", 1);
    assert!(
        found.run.starts_equal() && found.run.plans.is_empty(),
        "{found}"
    );
    assert!(found.run.is_broken());
    assert_eq!(found.run.parting().map(|parting| parting.step), Some(3));
    assert_eq!(found.run.unexcused(), found.run.parting());
}

/// A reason excuses what lies behind it, and nothing before: norms that are summed in another order
/// are none for a loss.
#[test]
fn a_later_reason_excuses_no_earlier_parting() {
    let mut straight = Straight::new(plain(RESTARTS));
    let sound = straight.resumed_on("2x2x2", 1);
    assert!(
        !sound.run.plans.is_empty() && !sound.run.is_broken(),
        "{sound}"
    );
    let key = (2, "lm loss".to_string());
    let loss = straight.reference.metrics.get_mut(&key).expect("a loss");
    *loss = f32::from_bits(loss.to_bits() ^ 1);
    let found = straight.resumed_on("2x2x2", 1);
    let unexcused = found.run.unexcused().expect("no forward sum is another");
    assert!(
        unexcused.step == 2 && unexcused.what.starts_with("lm loss"),
        "{found}"
    );
    assert!(
        found.run.is_broken()
            && found
                .to_string()
                .contains("no difference of the layouts acts")
    );
}

/// Four data-parallel ranks: an element of a gradient is summed from where its place in its bucket
/// says. Chunks of an interleaved pipeline have buckets of their own, so plans are compared element
/// by element, and a gradient may part only where its own tree is another.
#[test]
fn gradients_are_excused_by_their_own_trees() {
    let text = RECIPE
        .replacen("world_size = 8", "world_size = 16\nclip_grad = 0.0", 1)
        .replacen("global_batch_size = 8", "global_batch_size = 16", 1)
        .replacen("steps = 3", "steps = 2", 1);
    let text = format!("{text}\n[checkpoint]\n{RESTARTS}");
    let source = Source::new("wide.toml", text.replace("[1], [2]", "[1]"));
    let loaded = Scenario::from_source(&source, Path::new("wide.toml"), &Overrides::default());
    let loaded = loaded.unwrap_or_else(|findings| panic!("{findings:?}"));
    let straight = Straight::new(loaded.scenario);
    let own = straight.resumed_on("2x2xNone", 1);
    assert!(
        own.run.plans.is_empty() && own.run.parting().is_none(),
        "{own}"
    );
    let found = straight.resumed_on("2x2x2", 1);
    assert!(!found.run.is_broken(), "{found}");
    let mut plans = found.run.plans.iter();
    let gradients = plans.find(|plan| plan.family == Some(Family::DpGradients));
    let gradients = gradients.unwrap_or_else(|| panic!("rings of four start elsewhere: {found}"));
    assert!(gradients.why.contains("elements"), "{}", gradients.why);
    let Acts::Gradients(Parameters::Listed(names)) = &gradients.acts else {
        panic!("{gradients:?}");
    };
    assert!(gradients.acts.reach_gradient(names.first().unwrap()));
    assert!(!gradients.acts.reach_gradient("another.weight") && !gradients.acts.reach_forward());
    let losses = found.run.steps[0].token_losses.as_ref().expect("kept");
    assert!(
        losses.first.is_none() && losses.total == 16 * 8,
        "{losses:?}"
    );
}

/// Changes what is loaded on every rank, and what the load is compared with, alike: the state is
/// equal at the load, and is not the straight run's.
fn loaded_otherwise(straight: &mut Straight, component: Component, name: &str, word: u32) {
    let state = straight.reference.checkpoints.get_mut(&1).expect("kept");
    let mut changed = 0;
    for ((_, of, tensor), words) in state.iter_mut() {
        if *of == component && tensor == name {
            words.words[0] = word;
            changed += 1;
        }
    }
    assert!(changed > 0, "{name}");
}

/// A fault that shows in forward alone, where data parallelism is another: means and gradients are
/// other sums, and excuse no token's loss.
#[test]
fn a_parameter_that_changes_unseen_is_caught_in_forward() {
    let name = "decoder.layers.0.self_attention.linear_qkv.weight";
    for (change, layout) in [
        ("lr = ", "2x2x2"),
        ("lr = ", "2x1xNone"),
        ("clip_grad = 0.0\nlr = ", "2x2x2"),
    ] {
        let mut straight = Straight::new(scenario(("lr = ", change), RESTARTS));
        let sound = straight.resumed_on(layout, 1);
        assert!(!sound.run.is_broken(), "{sound}");
        loaded_otherwise(&mut straight, Component::Model, name, 0x3f80_0000);
        let found = straight.resumed_on(layout, 1);
        assert!(found.run.starts_equal() && found.run.is_broken(), "{found}");
        let unexcused = found.run.unexcused().unwrap();
        assert!(
            unexcused.step == 2 && unexcused.what.starts_with("forward, the loss of token"),
            "{layout}: {unexcused:?}"
        );
    }
}

/// Counters and what is computed from them alone are excused by no sum, even where forward is.
#[test]
fn a_scheduler_that_resumes_elsewhere_is_caught() {
    for layout in ["1x4xNone", "2x1xNone", "2x2x2"] {
        let mut straight = Straight::new(scenario(
            ("lr = ", "lr_decay_style = 'linear'\nclip_grad = 0.0\nlr = "),
            RESTARTS,
        ));
        loaded_otherwise(&mut straight, Component::Scheduler, "num_steps", 16);
        let found = straight.resumed_on(layout, 1);
        assert!(found.run.starts_equal() && found.run.is_broken(), "{found}");
        let second = &found.run.steps[0];
        let unexcused: Vec<_> = second
            .partings
            .iter()
            .filter(|p| p.because.is_none())
            .collect();
        assert!(!unexcused.is_empty(), "{layout}: {second:?}");
        if layout == "2x2x2" {
            let unmoved = second.unmoved.as_ref().expect("another learning rate");
            assert!(unmoved.component == Component::MainParams, "{unmoved}");
        }
    }
}

#[test]
fn copies_that_disagree_have_no_canonical_state() {
    let mut straight = Straight::new(plain(RESTARTS));
    let state = straight.reference.checkpoints.get_mut(&2).expect("kept");
    // Rank 2 holds what rank 0 holds: they are data-parallel.
    let name = "embedding.word_embeddings.weight".to_string();
    let tensor = state
        .get_mut(&(2, Component::Model, name.clone()))
        .expect("its part");
    tensor.words[5] ^= 1 << 20;
    let found = straight.resumed_on("1x4xNone", 2);
    assert_eq!(
        found.run.refused,
        Some(CanonicalError::Disagree {
            component: Component::Model,
            name,
            ranks: (0, 2),
            element: 5,
        })
    );
    assert!(
        found.run.is_broken() && found.to_string().contains("ranks 0 and 2"),
        "{found}"
    );
}

#[test]
fn what_the_checkpoint_lacks_is_named_at_the_load() {
    let dropout = ("lr = ", "hidden_dropout = 0.1\nlr = ");
    let mut straight = Straight::new(scenario(dropout, RESTARTS));
    let unread = res::unread(&straight.reference, 1, &Component::ALL);
    let needed = Component::ALL.into_iter().filter(|of| !unread.contains(of));
    let needed: Vec<Component> = needed.collect();
    assert!(needed.len() >= 7, "{needed:?}");
    for component in needed {
        straight.session.scenario.checkpoint.omit = BTreeSet::from([component]);
        let found = straight.resumed_on("1x4xNone", 2);
        let named: BTreeSet<Component> = found
            .run
            .differences
            .iter()
            .map(|difference| difference.component)
            .collect();
        if component == Component::Rng {
            // Nobody takes it over where TP or PP differ.
            assert!(found.run.starts_equal(), "{found}");
            let own = straight.resumed_on("2x2xNone", 2);
            let rng = |found: &Resharding| {
                found
                    .run
                    .differences
                    .iter()
                    .any(|differing| differing.component == component)
            };
            assert!(rng(&own), "{own}");
            continue;
        }
        assert_eq!(named, BTreeSet::from([component]), "{found}");
        assert!(
            found.run.is_broken() && found.to_string().contains(component.name()),
            "{found}"
        );
    }
}

#[test]
fn generators_are_not_carried_over_and_said_so() {
    let dropout = ("lr = ", "hidden_dropout = 0.1\nlr = ");
    let straight = Straight::new(scenario(dropout, RESTARTS));
    let found = straight.resumed_on("1x4xNone", 2);
    assert!(found.run.starts_equal(), "{found}");
    assert_eq!(found.run.not_carried, BTreeSet::from([Component::Rng]));
    let text = found.to_string();
    assert!(
        text.contains("rng is not carried over") && text.contains("masks"),
        "{text}"
    );
    let own = straight.resumed_on("2x2xNone", 2);
    assert!(
        own.run.not_carried.is_empty() && own.run.parting().is_none(),
        "{own}"
    );
}

/// Each planted fault is found in the ranks' memory, and its tensor named.
#[test]
fn misplaced_state_is_caught_in_memory() {
    let straight = Straight::new(plain(RESTARTS));
    for layout in ["1x4xNone", "2x1xNone", "1x1xNone"] {
        let to: ReshardLayout = layout.parse().unwrap();
        let mut session = straight.session.resharded(to).unwrap();
        let resume = Resume {
            straight: &straight.session,
            reference: &straight.reference,
            sums: &straight.sweep.sums,
            cut: 1,
        };
        let planted = reshard::plant(&resume, &mut session).expect("the loads end");
        // Where tensor-parallel sums are others, every later number is excused.
        let unseen = planted
            .iter()
            .find(|fate| fate.kind == "changed-parameter (reshard)");
        let is_planted = unseen.expect("it is listed").target.is_some();
        assert_eq!(is_planted, layout == "2x1xNone", "{layout}");
        let caught = planted.iter().filter(|fate| fate.target.is_some());
        assert!(caught.clone().count() >= 8, "{planted:?}");
        for fate in caught {
            assert_eq!(fate.missed, None, "{layout}: {fate:?}");
        }
    }
}
