//! What a check says of a finding is measured: the small witness differs, the orders give the
//! results shown, and a node that is changed alone is seen to part or not to part the bits.

use std::path::Path;

use bitproof::prove::effect::{self, Alone};
use bitproof::prove::outcome::Witness;
use bitproof::prove::session::Session;
use bitproof::prove::sweep::{Finding, Reach, Sweep, Variable};
use bitproof::prove::{CheckOptions, witness};
use bitproof::scenario::{Overrides, Scenario};
use bitproof::world::{NodeId, Observer, Owner, RunOptions};

const STEPS: u32 = 2;

/// A scenario of the repository, swept over its first steps.
struct Swept {
    session: Session,
    sweep: Sweep,
}

impl Swept {
    fn new(file: &str) -> Swept {
        let overrides = Overrides {
            steps: Some(STEPS),
            ..Overrides::default()
        };
        let path = Path::new("scenarios").join(file);
        let mut scenario = Scenario::load(&path, &overrides)
            .expect("a shipped scenario")
            .scenario;
        // Deviations are carried on to the end of the training: bring it near.
        scenario.recipe.train_iters = STEPS;
        let mut session = Session::new(scenario, &CheckOptions::default()).expect("it can be run");
        let mut sweep = Sweep::new(session.sweep_options());
        let observer: &mut dyn Observer = &mut sweep;
        let ran = session.run(&RunOptions::default(), 1..STEPS + 1, None, observer);
        ran.expect("it runs");
        Swept { session, sweep }
    }

    fn alone(&mut self, reach: Reach) -> Option<Alone> {
        let effect = effect::measure(&mut self.session, &self.sweep);
        let effect = effect
            .expect("deviated runs end")
            .expect("something is sensitive");
        effect.alone.get(&reach).cloned()
    }

    fn witness(&self, reach: Reach, alone: Option<&Alone>) -> Witness {
        witness::of(&self.session, &self.sweep.first[&reach], alone)
    }
}

fn check_shrunk(witness: &Witness) {
    let Some(shrunk) = &witness.shrunk else {
        assert!(witness.addends.len() >= 3);
        return;
    };
    assert!(
        (3..witness.addends.len()).contains(&shrunk.addends.len()),
        "{shrunk:?}"
    );
    assert_ne!(shrunk.sum_a, shrunk.sum_b);
    assert_ne!(shrunk.plan_a, shrunk.plan_b);
    for addend in &shrunk.addends {
        assert!(
            witness.addends.contains(addend),
            "{addend:?} is no addend of the element"
        );
        assert!(shrunk.plan_a.contains(&addend.source), "{}", shrunk.plan_a);
    }
}

#[test]
fn a_placement_is_tried_at_its_node_alone() {
    let mut swept = Swept::new("any-allocation.toml");
    let alone = swept
        .alone(Reach::Across)
        .expect("placement reaches further");
    assert!(
        alone.parts,
        "the sweep saw this node part on these very inputs"
    );
    let shown = swept.witness(Reach::Across, Some(&alone));
    assert!(shown.counterfactual);
    assert_eq!(
        (shown.alone.as_ref(), shown.adjacent_swaps),
        (Some(&alone.visible), None)
    );
    assert_eq!(shown.steps, shown.site.step);
    assert_ne!(shown.sum_a, shown.sum_b);
    check_shrunk(&shown);
}

/// The control: a node that is insensitive is not seen to part, so nothing is assumed.
#[test]
fn a_node_that_does_not_part_is_not_said_to() {
    let mut swept = Swept::new("any-allocation.toml");
    let finding = swept.sweep.first[&Reach::Across].clone();
    // Sums over two tensor-parallel ranks commute, whatever the placement.
    let session = &swept.session;
    let pair = (0..session.group_count() as u32)
        .find(|group| session.group_ranks(bitproof::world::GroupId(*group)).len() == 2);
    let owner = Owner::Group(pair.expect("a tensor-parallel group"));
    let node = NodeId {
        owner,
        ordinal: 0,
        ..finding.node
    };
    let moved = Finding { node, ..finding };
    swept.sweep.first.insert(Reach::Across, moved);
    let alone = swept
        .alone(Reach::Across)
        .expect("placement reaches further");
    assert!(!alone.parts);
    assert_eq!(alone.visible.first_step, None);
    assert!(!swept.witness(Reach::Across, Some(&alone)).counterfactual);
}

#[test]
fn an_order_of_arrival_is_brought_down_to_a_swap() {
    let mut swept = Swept::new("arrival-wgrad.toml");
    assert_eq!(swept.alone(Reach::Within), None, "a call is its node");
    let finding = swept.sweep.first[&Reach::Within].clone();
    let Variable::Arrival { permutation, swap } = &finding.variable else {
        panic!("arrival varies")
    };
    let shown = swept.witness(Reach::Within, None);
    assert!(!shown.counterfactual && shown.alone.is_none());
    let swaps = shown.adjacent_swaps.expect("an order has a distance");
    assert_eq!(swaps == 1, swap.is_some(), "{permutation:?}");
    check_shrunk(&shown);
}
