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
        .run(&RunOptions { hazard_steps_max: 2, ..Default::default() }, steps.clone(), None, &mut sweep)
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
    println!("hazards {:#?} {}", r.hazards, r.hazards_beyond); println!("drifts {:?} notes {:?}", r.drifts, r.notes);
    for (n, o) in [("desc", RunOptions { start_descending: true, ..Default::default() }), ("batch", RunOptions { batch_launches_max: 3, ..Default::default() }),
       ("base", RunOptions { memory: MemoryOptions { base_words: 4160, poison: None }, ..Default::default() }), ("poison", RunOptions { memory: MemoryOptions { base_words: 0, poison: Some(0xdead_beef) }, ..Default::default() })] {
    let r2 = s.plain_run(&RunOptions { record_nodes: true, ..o.clone() }, steps.clone()).unwrap();
    println!("second {n} {}", r.root() == r2.root());
    if r.root() != r2.root() {
      let r1 = s.plain_run(&RunOptions { record_nodes: true, ..Default::default() }, steps.clone()).unwrap();
      println!("{} {}", r1.records.len(), r2.records.len());
      for rank in 0..16 { let a: Vec<_> = r1.records.iter().filter(|x| x.rank == rank).collect(); let b: Vec<_> = r2.records.iter().filter(|x| x.rank == rank).collect();
        for (x, y) in a.iter().zip(&b) { if x.digest != y.digest { println!("{} {} vs {}", rank, x.site, y.site); break; } } }
    }
    }
}
