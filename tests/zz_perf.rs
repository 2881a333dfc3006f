mod harness;
use bitproof::engine::cpu::CpuEngine;
use bitproof::numerics::Dtype;
use bitproof::train::*;
use bitproof::world::*;
use harness::*;
use std::sync::Arc;
#[test]
fn perf() {
    let quick = |tp, pp, dp, layers| {
        let mut o = with_layout(small_options(), tp, pp, dp);
        o.model.sequence_parallel = true;
        o.use_distributed_optimizer = true;
        o.model.params_dtype = Dtype::Bf16;
        o.model.num_layers = layers;
        o.model.hidden_size = 32;
        o.model.ffn_hidden_size = 64;
        o.model.padded_vocab_size = 256;
        o.model.seq_length = 16;
        o.model.micro_batch_size = 1;
        o.global_batch_size = 4 * dp;
        o
    };
    for (tp, pp, dp) in [(2, 2, 4), (2, 2, 16), (2, 2, 128)] {
        let o = quick(tp, pp, dp, 4);
        o.check().unwrap();
        let mut e = CpuEngine::new(2).unwrap();
        let w = world(&o);
        let p = program(
            Arc::new(o.clone()),
            Corpus::built_in(),
            Initial::Seeded(1),
            Run {
                steps: 0..2,
                checkpoint: None,
            },
        );
        let t = std::time::Instant::now();
        let r = w
            .run(&mut e, &RunOptions::default(), &p, &mut Unobserved)
            .unwrap();
        let t2 = t.elapsed();
        let p = program(
            Arc::new(o.clone()),
            Corpus::built_in(),
            Initial::Seeded(1),
            Run {
                steps: 0..1,
                checkpoint: None,
            },
        );
        let t = std::time::Instant::now();
        w.run(&mut e, &RunOptions::default(), &p, &mut Unobserved)
            .unwrap();
        let t1 = t.elapsed();
        println!(
            "{tp}x{pp}x{dp}: nodes/rank/step {} folds/rank/step {} waves/step {} words/rank {} step {:?} run2 {:?} loss {:?}",
            r.nodes / (2 * w.ranks as u64),
            r.folds / (2 * w.ranks as u64),
            r.waves / 2,
            r.memory_words / w.ranks as u64,
            t2.saturating_sub(t1),
            t2,
            r.metrics
        );
    }
}
