//! What CUDA graphs of transformer layers go together with.
//!
//! Sources: Megatron-LM's `TransformerConfig.__post_init__` and `cuda_graphs.py`. What neither
//! refuses, and is not known to keep its bits, is refused as not simulated.

use super::schedule_rules::Rules;
use super::{CudaGraphImpl, DataParallelKind, Recipe, RecomputeGranularity};
use crate::diagnostic::document::Table;
use crate::diagnostic::{Diagnostic, Findings};

const KEY: &str = "cuda_graph_impl";

impl Recipe {
    /// Steps of a process before its first replay of a graph; `None` where nothing is replayed.
    pub fn eager_steps(&self) -> Option<u32> {
        let warmup = self.cuda_graph_warmup_steps;
        self.cuda_graph_impl.eager_steps(warmup)
    }
}

/// Checks a recipe whose sizes divide.
pub(super) fn cuda_graphs(recipe: &Recipe, table: &Table, findings: &mut Findings) {
    let mut rules = Rules { table, findings };
    if recipe.cuda_graph_impl == CudaGraphImpl::None {
        return unused(&mut rules);
    }
    memory(recipe, &mut rules);
    let not_simulated = |what: &str| format!("CUDA graphs and {what} are not simulated together");
    if recipe.attention_dropout > 0.0 || recipe.hidden_dropout > 0.0 {
        rules.refuse(
            KEY,
            not_simulated("dropout"),
            "expected \"none\", or attention_dropout and hidden_dropout 0".to_owned(),
            "a layer runs some times before its capture, and whether these runs draw from the \
             generators that training goes on with is not modelled",
        );
    }
    if recipe.ddp == DataParallelKind::Torch {
        rules.refuse(
            KEY,
            not_simulated("torch's DistributedDataParallel"),
            "expected \"none\", or ddp = \"megatron\"".to_owned(),
            "graphs here are those of Megatron-LM, whose own data parallelism hears of their \
             gradients",
        );
    }
    let is_engines = recipe.cuda_graph_impl == CudaGraphImpl::TransformerEngine;
    let stages = recipe.pipeline_model_parallel_size;
    if is_engines && stages > 1 {
        rules.refuse(
            KEY,
            not_simulated(&format!(
                "{stages} pipeline stages, with Transformer Engine's graphs,"
            )),
            "expected \"local\", or pipeline_model_parallel_size = 1".to_owned(),
            "microbatches in flight share static buffers as the order of the schedule allows \
             (`_reuse_graph_input_output_buffers`), which is not modelled",
        );
    }
}

/// What would put activations elsewhere than in the graph's buffers.
fn memory(recipe: &Recipe, rules: &mut Rules<'_>) {
    if recipe.cpu_offloading_num_layers > 0 {
        rules.refuse(
            KEY,
            "CUDA graphs, and activations on the host".to_owned(),
            "expected \"none\", or cpu_offloading_num_layers = 0".to_owned(),
            "Megatron-LM: \"CUDA graphs not supported with CPU offloading.\"",
        );
    }
    match recipe.recompute_granularity {
        None => {}
        Some(RecomputeGranularity::Full) => rules.refuse(
            KEY,
            "CUDA graphs of layers, and full recomputation".to_owned(),
            "expected \"none\", or no recompute_granularity".to_owned(),
            "Megatron-LM: \"Full recompute is only supported with full iteration CUDA graph.\"",
        ),
        Some(RecomputeGranularity::Selective) => rules.refuse(
            KEY,
            "CUDA graphs and selective recomputation are not simulated together".to_owned(),
            "expected \"none\", or no recompute_granularity".to_owned(),
            "Megatron-LM's earlier versions: \"CUDA graphs not supported with activation \
             recomputation.\"",
        ),
    }
}

fn unused(rules: &mut Rules<'_>) {
    let key = "cuda_graph_warmup_steps";
    if rules.table.get(key).is_none() {
        return;
    }
    let message = "`cuda_graph_warmup_steps` has no effect without `cuda_graph_impl`";
    let finding = Diagnostic::warning("no-effect", message)
        .at(rules.place(key), "nothing is captured")
        .with_help("add `cuda_graph_impl = \"transformer_engine\"`, or leave it out");
    rules.findings.push(finding);
}

#[cfg(test)]
mod tests {
    use crate::recipe::Recipe;
    use crate::recipe::tests::messages;

    const SAMPLE: &str = "world_size = 4\nnum_layers = 4\nhidden_size = 32\n\
        num_attention_heads = 4\nseq_length = 32\nmicro_batch_size = 1\nglobal_batch_size = 16\n\
        train_iters = 4\nlr = 1e-3\n";

    fn found(more: &str) -> Vec<String> {
        messages(&format!("{SAMPLE}{more}"))
    }

    #[test]
    fn what_cannot_be_captured_is_refused_with_its_reason() {
        for graphs in ["local", "transformer_engine"] {
            let given = format!("cuda_graph_impl = \"{graphs}\"\n");
            assert_eq!(found(&given), Vec::<String>::new());
            for (more, said) in [
                ("cpu_offloading_num_layers = 1", "activations on the host"),
                (
                    "recompute_granularity = \"selective\"",
                    "selective recomputation are not simulated",
                ),
                (
                    "recompute_granularity = \"full\"\nrecompute_method = \"uniform\"\n\
                     recompute_num_layers = 1",
                    "full recomputation",
                ),
                ("hidden_dropout = 0.1", "dropout are not simulated"),
                ("attention_dropout = 0.1", "dropout are not simulated"),
                ("ddp = \"torch\"", "DistributedDataParallel"),
            ] {
                let found = found(&format!("{given}{more}"));
                assert!(
                    found.len() == 1 && found[0].contains(said),
                    "{more}: {found:?}"
                );
            }
        }
        let staged = "pipeline_model_parallel_size = 2\ncuda_graph_impl = ";
        assert_eq!(found(&format!("{staged}\"local\"")), Vec::<String>::new());
        let refused = found(&format!("{staged}\"transformer_engine\""));
        assert!(refused[0].contains("2 pipeline stages"), "{refused:?}");
        let unused = found("cuda_graph_warmup_steps = 2");
        assert!(unused[0].contains("no effect without"), "{unused:?}");
        assert!(found("cuda_graph_impl = \"full_iteration\"")[0].contains("cuda_graph_impl"));
    }

    #[test]
    fn each_implementation_begins_to_replay_where_it_captures() {
        let eager = |more: &str| {
            let recipe = Recipe::from_toml(&format!("{SAMPLE}{more}")).expect("it is sound");
            recipe.eager_steps()
        };
        assert_eq!(eager(""), None);
        let local = "cuda_graph_impl = \"local\"\ncuda_graph_warmup_steps = 2";
        assert_eq!(eager(local), Some(1));
        let engine = "cuda_graph_impl = \"transformer_engine\"\n";
        assert_eq!(eager(engine), Some(3));
        let at_once = format!("{engine}cuda_graph_warmup_steps = 0");
        assert_eq!(eager(&at_once), Some(0));
    }
}
