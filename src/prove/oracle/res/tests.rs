//! What of a resumed run is looked at.

use std::path::Path;

use super::*;
use crate::diagnostic::Source;
use crate::prove::check::{CheckOptions, reference_run};
use crate::scenario::{Overrides, Scenario};

const EDGE: &str = "grad_reduce.bucket0.autograd";

/// A job whose second step, and each later one of a process, replays CUDA graphs.
fn session(fault: &str) -> Session {
    let text = format!(
        "steps = 4\n[recipe]\nworld_size = 2\nnum_layers = 2\nhidden_size = 16\n\
         num_attention_heads = 2\nseq_length = 16\nmicro_batch_size = 1\n\
         global_batch_size = 4\ntrain_iters = 4\nlr = 5e-3\n\
         use_distributed_optimizer = true\noverlap_grad_reduce = true\n\
         cuda_graph_impl = 'local'\n[checkpoint]\nrestarts = [[1]]\n{fault}"
    );
    let source = Source::new("scenario.toml", text);
    let loaded = Scenario::from_source(&source, Path::new("x.toml"), &Overrides::default());
    let scenario = loaded.unwrap_or_else(|findings| panic!("{findings:#?}"));
    Session::new(scenario.scenario, &CheckOptions::default()).expect("it can be run")
}

/// The hazards of the straight run and of the resumed one that have this edge.
fn hazards(fault: &str) -> [usize; 2] {
    let mut session = session(fault);
    let reference = reference_run(&mut session, &mut Unobserved).expect("it runs");
    let restart = Restart {
        cut: 1,
        state: &reference.checkpoints[&1],
        omitted: &[],
        until: 4,
        keep: false,
    };
    let mut sweep = Sweep::new(session.sweep_options());
    let resumed = resume(&mut session, &restart, &mut sweep).expect("it runs");
    [reference, resumed].map(|record| {
        let named = record.hazards.iter();
        let named = named.filter(|hazard| hazard.edge.as_deref() == Some(EDGE));
        named.count()
    })
}

/// A resumed process replays from its second step on, and is followed until it does.
#[test]
fn the_replays_of_a_resumed_process_are_followed() {
    let fault = format!("[fault]\ndrop_wait = {{ at = '{EDGE}' }}\n");
    let [straight, resumed] = hazards(&fault);
    assert!(straight > 0 && resumed > 0, "{straight}, {resumed}");
    // The control: no wait is dropped.
    assert_eq!(hazards(""), [0, 0]);
}
