use bitproof::prove::session::Session;
use bitproof::prove::sweep::Sweep;
use bitproof::scenario::*;
use bitproof::world::*;
#[test]
fn smoke() {
    let f = std::env::var("SCN").unwrap_or("scenarios/quickstart.toml".into());
    let loaded = Scenario::load(std::path::Path::new(&f), &Overrides::default()).unwrap();
    let t = std::time::Instant::now();
    let mut s = Session::new(loaded.scenario, 2, 1).unwrap();
    println!("session {:?}", t.elapsed());
    let mut sweep = Sweep::new(s.sweep_options());
    let steps = s.steps();
    let t = std::time::Instant::now();
    let r = s
        .run(&RunOptions::default(), steps.clone(), None, &mut sweep)
        .unwrap();
    println!(
        "run {:?} nodes {} folds {} waves {} mem {}",
        t.elapsed(),
        r.nodes,
        r.folds,
        r.waves,
        r.memory_words
    );
    for (k, v) in &r.metrics {
        println!("{k:?} {v}");
    }
    for (k, v) in &sweep.tallies {
        println!("{k:?} {v:?}");
    }
    for (k, v) in &sweep.first {
        println!("{k:?} {v:#?}");
    }
    println!("drifts {:?} notes {:?}", r.drifts, r.notes);
    let t = std::time::Instant::now();
    let o = RunOptions {
        start_descending: true,
        batch_launches_max: 3,
        memory: MemoryOptions {
            base_words: 4160,
            poison: Some(0xdead_beef),
        },
        ..Default::default()
    };
    let r2 = s.plain_run(&o, steps).unwrap();
    println!("second {:?} {}", t.elapsed(), r.root() == r2.root());
}
