//! The rules of `ddp = "torch"`: a model that each rank holds whole, in fp32, whose gradients
//! torch's DistributedDataParallel all-reduces.

use super::Recipe;
use super::argument::{DataParallelKind, DistributedBackend, TransformerImpl};
use crate::diagnostic::document::Table;
use crate::diagnostic::{Diagnostic, Findings};

const WHY: &str = "with `ddp = \"torch\"` every rank holds the whole model in fp32, and \
    DistributedDataParallel all-reduces its gradients";

pub(super) fn torch_ddp(recipe: &Recipe, table: &Table, findings: &mut Findings) {
    let wrong = match recipe.ddp {
        DataParallelKind::Torch => foreign(recipe),
        DataParallelKind::Megatron => without_torch(recipe),
    };
    for (key, expected) in wrong {
        let place = table
            .get(key)
            .map_or(&table.place, |entry| &entry.item.place);
        let message = match recipe.ddp {
            DataParallelKind::Torch => format!("`{key}` beside `ddp = \"torch\"`"),
            DataParallelKind::Megatron => format!("`{key}` without `ddp = \"torch\"`"),
        };
        let finding = Diagnostic::error("out-of-range", message)
            .at(place, format!("expected {expected}"))
            .with_note(WHY);
        findings.push(finding);
    }
}

/// Keys of Megatron's DDP and of models that are cut, and what they must be.
fn foreign(recipe: &Recipe) -> Vec<(&'static str, &'static str)> {
    let keys = [
        (
            recipe.tensor_model_parallel_size > 1,
            "tensor_model_parallel_size",
            "1",
        ),
        (
            recipe.pipeline_model_parallel_size > 1,
            "pipeline_model_parallel_size",
            "1",
        ),
        (recipe.bf16, "bf16", "false"),
        (
            recipe.use_distributed_optimizer,
            "use_distributed_optimizer",
            "false",
        ),
        (recipe.overlap_grad_reduce, "overlap_grad_reduce", "false"),
        (
            recipe.transformer_impl == TransformerImpl::Local,
            "transformer_impl",
            "no value",
        ),
    ];
    let wrong = keys.into_iter().filter(|(is_wrong, ..)| *is_wrong);
    wrong.map(|(_, key, expected)| (key, expected)).collect()
}

/// Keys that only torch's DDP reads.
fn without_torch(recipe: &Recipe) -> Vec<(&'static str, &'static str)> {
    let keys = [
        (recipe.bucket_cap_mb.is_some(), "bucket_cap_mb", "no value"),
        (
            recipe.find_unused_parameters,
            "find_unused_parameters",
            "false",
        ),
        (
            recipe.distributed_backend == DistributedBackend::Gloo,
            "distributed_backend",
            "\"nccl\"",
        ),
    ];
    let wrong = keys.into_iter().filter(|(is_wrong, ..)| *is_wrong);
    wrong.map(|(_, key, expected)| (key, expected)).collect()
}

#[cfg(test)]
mod tests {
    use crate::diagnostic::Source;
    use crate::recipe::Recipe;

    const SAMPLE: &str = "world_size = 4\nnum_layers = 2\nhidden_size = 16\n\
        num_attention_heads = 2\nseq_length = 16\nmicro_batch_size = 1\nglobal_batch_size = 4\n\
        train_iters = 4\nlr = 1e-3\n";

    fn refused(more: &str) -> Vec<String> {
        let source = Source::new("recipe.toml", format!("{SAMPLE}{more}"));
        let found = Recipe::from_source(&source).err().unwrap_or_default();
        found.into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn torch_ddp_has_whole_models_in_fp32() {
        let torch = "ddp = \"torch\"\n";
        assert_eq!(refused(torch), Vec::<String>::new());
        let all = "distributed_backend = \"gloo\"\nbucket_cap_mb = 0.5\n\
            find_unused_parameters = true\n";
        assert_eq!(refused(&format!("{torch}{all}")), Vec::<String>::new());
        assert_eq!(refused(all).len(), 3);
        for more in [
            "tensor_model_parallel_size = 2",
            "pipeline_model_parallel_size = 2",
            "bf16 = true",
            "use_distributed_optimizer = true",
            "overlap_grad_reduce = true",
        ] {
            assert_eq!(refused(more), Vec::<String>::new(), "{more}");
            let key = more.split(' ').next().unwrap();
            let found = refused(&format!("{torch}{more}"));
            assert_eq!(found, [format!("`{key}` beside `ddp = \"torch\"`")]);
        }
    }
}
