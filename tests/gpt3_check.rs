//! Checks of a GPT-3 recipe: proved where every order is fixed, resumed with both generators, and
//! caught where the attention's backward adds in the order of arrival.

use std::path::Path;

use bitproof::diagnostic::Source;
use bitproof::prove::outcome::{OracleVerdict, Outcome};
use bitproof::prove::{CheckOptions, Grade, Silent, check};
use bitproof::scenario::{OracleKind, Overrides, Scenario};
use bitproof::world::Family;

/// Two tensor-parallel ranks, two stages, two replicas.
const GPT3: &str = "
name = 'gpt3'
oracles = ['R2R', 'RES', 'XR']
steps = 2

[recipe]
world_size = 8
tensor_model_parallel_size = 2
pipeline_model_parallel_size = 2
num_layers = 2
hidden_size = 16
num_attention_heads = 4
num_query_groups = 2
seq_length = 8
micro_batch_size = 1
global_batch_size = 4
train_iters = 2
lr = 5e-3
use_distributed_optimizer = true
normalization = 'LayerNorm'
swiglu = false
disable_bias_linear = false
position_embedding_type = 'learned_absolute'
max_position_embeddings = 12
untie_embeddings_and_output_weights = false
attention_dropout = 0.1
hidden_dropout = 0.1
";

fn checked(recipe: &str, more: &str) -> Outcome {
    let text = format!("{GPT3}{recipe}\n[recipe.env]\nNCCL_ALGO = 'Ring'\n{more}");
    let source = Source::new("gpt3.toml", text);
    let loaded = Scenario::from_source(&source, Path::new("gpt3.toml"), &Overrides::default());
    let scenario = match loaded {
        Ok(loaded) => loaded.scenario,
        Err(findings) => panic!("{findings:?}"),
    };
    check(
        scenario,
        CheckOptions {
            workers: 1,
            ..CheckOptions::default()
        },
        &Silent,
    )
    .expect("the check ends")
}

fn verdict(outcome: &Outcome, of: OracleKind) -> OracleVerdict {
    let mut oracles = outcome.oracles.iter();
    let found = oracles.find(|result| result.oracle == of);
    found.expect("the oracle was asked").verdict
}

#[test]
fn gpt3_with_every_order_fixed_is_proved_and_resumes() {
    for recipe in ["sequence_parallel = true", "bf16 = true"] {
        let outcome = checked(recipe, "[checkpoint]\nrestarts = [[1]]\n");
        assert_eq!(outcome.grade(), Grade::Proved, "{recipe}: {outcome:#?}");
        for oracle in [OracleKind::R2R, OracleKind::RES, OracleKind::XR] {
            assert_eq!(
                verdict(&outcome, oracle),
                OracleVerdict::Equal,
                "{oracle:?}"
            );
        }
        assert_eq!(outcome.mutants.caught, outcome.mutants.total);
    }
}

/// Without the generators' state the masks of a resumed run are others.
#[test]
fn gpt3_resumed_without_its_generators_differs() {
    let checkpoint = "[checkpoint]\nrestarts = [[1]]\nomit = ['rng']\n";
    let outcome = checked("sequence_parallel = true", checkpoint);
    assert_eq!(outcome.grade(), Grade::Divergent);
    let first = outcome.first_divergence.expect("a first divergence");
    assert!(first.site.module.contains("rng"), "{}", first.site);
}

#[test]
fn attention_that_adds_blocks_as_they_arrive_is_caught() {
    let arrival = "[recipe.determinism]\nattention_backward = 'arrival'\n";
    let outcome = checked("", arrival);
    assert_eq!(outcome.grade(), Grade::Divergent);
    let first = outcome.first_divergence.expect("a first divergence");
    assert_eq!(first.family, Some(Family::AttentionGrad));
    assert!(first.site.module.ends_with("core_attention"));
    assert_eq!(&*first.site.op, "query_grad");
}
