use super::*;
use crate::prove::sweep::Reach;
use crate::world::{Access, Drift, Hazard, HazardKind, Phase, Site};

fn layout(text: &str) -> ReshardLayout {
    text.parse().expect("a layout")
}

/// Any hazard.
pub(in crate::prove) fn hazard() -> Hazard {
    let access = |write| Access {
        site: Site {
            step: 2,
            microbatch: None,
            phase: Phase::Forward,
            module: "layer".into(),
            op: "read".into(),
        },
        stream: "stream 0".to_string(),
        write,
    };
    Hazard {
        kind: HazardKind::WriteAfterRead,
        rank: 0,
        first: access(false),
        second: access(true),
        words: (0, 4),
        buffer: None,
        missing_edge: "an event".to_string(),
        edge: None,
        ran: None,
        occurrences: 1,
        further: Vec::new(),
    }
}

fn equal() -> Resharding {
    Resharding::new(layout("2x2xNone"), layout("1x4xNone"), 1)
}

#[test]
fn what_fails_is_what_parts_and_what_may() {
    let found = equal();
    assert!(!found.run.parts() && !found.run.fails());
    let mut drifted = equal();
    drifted.run.drifts.push(Drift {
        step: Some(2),
        group: "dp0".to_string(),
        name: "weight".to_string(),
        ranks: (0, 1),
        microbatch: None,
    });
    assert!(drifted.run.parts() && drifted.run.fails());
    let mut sensitive = equal();
    sensitive.run.sensitive.insert(Reach::Across, 1);
    assert!(sensitive.run.parts() && sensitive.run.fails());
    let mut hazardous = equal();
    hazardous.run.hazards.push(hazard());
    assert!(!hazardous.run.parts() && hazardous.run.fails());
}

#[test]
fn the_reason_of_a_part_is_its_own() {
    let mut found = equal();
    found.run.not_carried.insert(Component::Rng);
    assert!(found.is_in_part());
    let because = found.in_part_because();
    assert!(
        because.contains("rng") && !because.contains("masks"),
        "{because}"
    );
    found.unread.insert(Component::Rng);
    assert!(!found.is_in_part());
    found.masks_differ = Some("dropout masks differ by layout");
    assert_eq!(found.in_part_because(), "dropout masks differ by layout");
}
