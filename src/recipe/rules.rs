//! The rules between a recipe's values: what must divide what, and what excludes what.
//!
//! Sources: Megatron-LM's `validate_args` (`megatron/training/arguments.py`) and
//! `TransformerConfig.__post_init__`; the multiples of four are those of our vec4 kernels.

use super::{
    BUFFER_WORDS_MAX, Determinism, KV_CHANNELS_MAX, MICROBATCH_COUNT_MAX, Recipe, STATE_BYTES_MAX,
};
use crate::diagnostic::document::Read;
use crate::diagnostic::{Diagnostic, Findings, Place};

/// Values that rules relate to each other, with the places they were written at.
pub(super) struct Draft {
    pub world_size: Read<u32>,
    pub tensor_model_parallel_size: Read<u32>,
    pub pipeline_model_parallel_size: Read<u32>,
    pub num_virtual_stages_per_pipeline_rank: Read<u32>,
    pub sequence_parallel: Read<bool>,
    pub num_layers: Read<u32>,
    pub hidden_size: Read<u32>,
    pub ffn_hidden_size: Read<u32>,
    pub num_attention_heads: Read<u32>,
    pub num_query_groups: Read<u32>,
    pub kv_channels: Read<u32>,
    pub seq_length: Read<u32>,
    pub padded_vocab_size: Read<u32>,
    pub micro_batch_size: Read<u32>,
    pub global_batch_size: Read<u32>,
    pub bf16: Read<bool>,
    pub fp16: Read<bool>,
    pub accumulate_allreduce_grads_in_fp32: Read<bool>,
    pub grad_reduce_in_bf16: Read<bool>,
    pub use_distributed_optimizer: Read<bool>,
    pub num_distributed_optimizer_instances: Read<u32>,
    pub ddp_reduce_scatter_with_fp32_accumulation: Read<bool>,
    pub determinism: Determinism,
    pub wgrad_splits: Read<u32>,
}

impl Draft {
    /// In a bf16 job Megatron turns fp32 accumulation on unless bf16 reduction is asked for; in an
    /// fp16 job it has to be asked for itself.
    pub fn reduces_in_fp32(&self) -> bool {
        let asked = &self.accumulate_allreduce_grads_in_fp32;
        let is_on = asked.value && (asked.is_given() || !self.fp16.value);
        is_on && !self.grad_reduce_in_bf16.value
    }
}

/// A number with its name, as a rule speaks of it.
struct Named<'a> {
    name: &'a str,
    read: &'a Read<u32>,
}

/// Checks every rule whose values are themselves sound.
pub(super) fn layout(draft: &Draft, table: &Place, findings: &mut Findings) {
    let mut rules = Rules { table, findings };
    let world = Named {
        name: "world_size",
        read: &draft.world_size,
    };
    let tensor = Named {
        name: "tensor_model_parallel_size",
        read: &draft.tensor_model_parallel_size,
    };
    let pipeline = Named {
        name: "pipeline_model_parallel_size",
        read: &draft.pipeline_model_parallel_size,
    };
    let hidden = Named {
        name: "hidden_size",
        read: &draft.hidden_size,
    };
    let ffn = Named {
        name: "ffn_hidden_size",
        read: &draft.ffn_hidden_size,
    };
    let vocab = Named {
        name: "padded_vocab_size",
        read: &draft.padded_vocab_size,
    };
    let layers = Named {
        name: "num_layers",
        read: &draft.num_layers,
    };
    let seq = Named {
        name: "seq_length",
        read: &draft.seq_length,
    };

    let chunks = Named {
        name: "num_virtual_stages_per_pipeline_rank",
        read: &draft.num_virtual_stages_per_pipeline_rank,
    };

    let divides = rules.multiple(&world, &[&tensor, &pipeline], 1);
    rules.multiple(&layers, &[&pipeline, &chunks], 1);
    heads(draft, &tensor, &hidden, &mut rules);
    rules.multiple(&hidden, &[&tensor], 4);
    rules.multiple(&ffn, &[&tensor], 4);
    rules.multiple(&vocab, &[&tensor], 4);
    if draft.sequence_parallel.value {
        rules.multiple(&seq, &[&tensor], 1);
    }
    if divides {
        batch(draft, &mut rules);
    }
    tokens(draft, &mut rules);
    exclusions(draft, &mut rules);
}

/// The memory that the recipe is known to need.
pub(super) fn size(recipe: &Recipe, table: &Place, findings: &mut Findings) {
    let bytes = recipe.state_bytes_min();
    if bytes <= STATE_BYTES_MAX {
        buffers(recipe, table, findings);
    } else {
        let gib = bytes >> 30;
        let limit = STATE_BYTES_MAX >> 30;
        let message = format!("the virtual ranks would hold at least {gib} GiB of training state");
        findings.push(
            Diagnostic::error("too-large", message)
                .at(
                    table,
                    format!("expected at most {limit} GiB over all ranks"),
                )
                .with_help(
                    "keep the layout and scale `hidden_size`, `ffn_hidden_size` and \
                    `num_layers` down: which orders are possible follows from the layout",
                ),
        );
    }
}

/// No buffer of a rank is larger than the training program can address.
fn buffers(recipe: &Recipe, table: &Place, findings: &mut Findings) {
    let sizes = recipe.buffer_sizes();
    let step = sizes.step_words_max(&recipe.step_sizes());
    let step = (step > BUFFER_WORDS_MAX).then_some(("a step's gradients or tokens", step));
    let Some((name, words)) = sizes.too_large().or(step) else {
        return;
    };
    let message = format!("{name} would have {words} words on a virtual rank");
    findings.push(
        Diagnostic::error("too-large", message)
            .at(
                table,
                format!("expected at most {BUFFER_WORDS_MAX} in one buffer"),
            )
            .with_help("keep the layout and scale the model and its microbatches down"),
    );
}

struct Rules<'a> {
    table: &'a Place,
    findings: &'a mut Findings,
}

impl Rules<'_> {
    /// `number` is a multiple of the product of `divisors` and `factor`. False when it is not,
    /// or when a value is unsound.
    fn multiple(&mut self, number: &Named<'_>, divisors: &[&Named<'_>], factor: u32) -> bool {
        if !number.read.sound || divisors.iter().any(|divisor| !divisor.read.sound) {
            return false;
        }
        let value = u64::from(number.read.value);
        let product: u64 = divisors
            .iter()
            .map(|divisor| u64::from(divisor.read.value))
            .product();
        let step = product.saturating_mul(u64::from(factor));
        if value.is_multiple_of(step) {
            return true;
        }
        let mut terms: Vec<String> = divisors
            .iter()
            .map(|divisor| format!("{} ({})", divisor.name, divisor.read.value))
            .collect();
        if factor > 1 {
            terms.insert(0, factor.to_string());
        }
        let message = format!(
            "`{}` is {value}, not a multiple of {}",
            number.name,
            terms.join(" x ")
        );
        let divisor_places = divisors
            .iter()
            .filter_map(|divisor| divisor.read.place.as_ref());
        let mut places = number.read.place.iter().chain(divisor_places);
        let place = places.next().unwrap_or(self.table);
        let mut finding = Diagnostic::error("does-not-divide", message)
            .at(place, format!("expected a multiple of {step}"));
        for place in places {
            finding = finding.with_context(Some(place), "divides it");
        }
        self.findings
            .push(finding.with_help(multiples_near(number.name, value, step)));
        false
    }

    fn exclude(&mut self, message: &str, place: &Option<Place>, label: &str, help: &str) {
        self.findings.push(
            Diagnostic::error("excluded", message)
                .at(place.as_ref().unwrap_or(self.table), label)
                .with_help(help),
        );
    }
}

fn multiples_near(name: &str, value: u64, step: u64) -> String {
    let below = value / step * step;
    let above = below.saturating_add(step);
    match below {
        0 => format!("the least is `{name} = {above}`"),
        below => format!("the nearest are `{name} = {below}` and `{name} = {above}`"),
    }
}

/// `global_batch_size` splits into microbatches of all data-parallel ranks.
fn batch(draft: &Draft, rules: &mut Rules<'_>) {
    let model_parallel =
        draft.tensor_model_parallel_size.value * draft.pipeline_model_parallel_size.value;
    let data_parallel = Read {
        value: draft.world_size.value / model_parallel,
        place: draft.world_size.place.clone(),
        sound: true,
    };
    let global = Named {
        name: "global_batch_size",
        read: &draft.global_batch_size,
    };
    let micro = Named {
        name: "micro_batch_size",
        read: &draft.micro_batch_size,
    };
    let data = Named {
        name: "data-parallel size",
        read: &data_parallel,
    };
    if !rules.multiple(&global, &[&micro, &data], 1) {
        return;
    }
    let count = global.read.value / micro.read.value / data_parallel.value;
    if count > MICROBATCH_COUNT_MAX {
        let message = format!("a step has {count} microbatches a rank");
        let place = global.read.place.as_ref().unwrap_or(rules.table);
        rules
            .findings
            .push(Diagnostic::error("out-of-range", message).at(
                place,
                format!("expected at most {MICROBATCH_COUNT_MAX} microbatches"),
            ));
    }
}

/// Heads of queries fall into groups, groups into tensor-parallel ranks, heads into pairs.
fn heads(draft: &Draft, tensor: &Named<'_>, hidden: &Named<'_>, rules: &mut Rules<'_>) {
    let heads = Named {
        name: "num_attention_heads",
        read: &draft.num_attention_heads,
    };
    let groups = Named {
        name: "num_query_groups",
        read: &draft.num_query_groups,
    };
    let channels = Named {
        name: "kv_channels",
        read: &draft.kv_channels,
    };
    rules.multiple(&heads, &[tensor], 1);
    rules.multiple(&heads, &[&groups], 1);
    rules.multiple(&groups, &[tensor], 1);
    // Rotary embeddings turn pairs: a head has an even width.
    if draft.kv_channels.is_given() {
        rules.multiple(&channels, &[], 2);
    } else if rules.multiple(hidden, &[&heads], 2) {
        head_width(draft, rules);
    }
    attention_widths(draft, tensor, rules);
}

/// Kernels take four columns at a time: of the heads joined, and of queries, keys and values.
fn attention_widths(draft: &Draft, tensor: &Named<'_>, rules: &mut Rules<'_>) {
    let (heads, groups) = (&draft.num_attention_heads, &draft.num_query_groups);
    let channels = &draft.kv_channels;
    let is_given = groups.is_given() || channels.is_given();
    if !is_given || !heads.sound || !groups.sound || !channels.sound {
        // Then the heads joined are `hidden_size` wide, which has this rule itself.
        return;
    }
    let products = [
        ("num_attention_heads x kv_channels", heads.value),
        (
            "(num_attention_heads + 2 x num_query_groups) x kv_channels",
            heads.value + 2 * groups.value,
        ),
    ];
    for (name, count) in products {
        let read = Read {
            value: count * channels.value,
            place: channels.place.clone().or_else(|| groups.place.clone()),
            sound: true,
        };
        rules.multiple(&Named { name, read: &read }, &[tensor], 4);
    }
}

fn head_width(draft: &Draft, rules: &mut Rules<'_>) {
    let width = draft.hidden_size.value / draft.num_attention_heads.value;
    if width > KV_CHANNELS_MAX {
        let least = draft.hidden_size.value.div_ceil(KV_CHANNELS_MAX);
        let message = format!("an attention head is {width} wide");
        let place = draft
            .num_attention_heads
            .place
            .as_ref()
            .unwrap_or(rules.table);
        rules.findings.push(
            Diagnostic::error("out-of-range", message)
                .at(place, format!("expected at least {least} heads"))
                .with_context(draft.hidden_size.place.as_ref(), "divided by it")
                .with_note(format!("a head is at most {KV_CHANNELS_MAX} wide")),
        );
    }
}

/// A microbatch has a multiple of four tokens, and at least as many as split-K parts.
fn tokens(draft: &Draft, rules: &mut Rules<'_>) {
    if !draft.seq_length.sound || !draft.micro_batch_size.sound {
        return;
    }
    let value = draft
        .seq_length
        .value
        .saturating_mul(draft.micro_batch_size.value);
    let count = Read {
        value,
        place: draft.seq_length.place.clone(),
        sound: true,
    };
    let one = Read {
        value: 1,
        place: None,
        sound: true,
    };
    let tokens = Named {
        name: "seq_length x micro_batch_size",
        read: &count,
    };
    rules.multiple(
        &tokens,
        &[&Named {
            name: "tokens of a vec4",
            read: &one,
        }],
        4,
    );
    let splits = &draft.wgrad_splits;
    if splits.sound && splits.value > value {
        let message = format!("{} split-K parts for {value} tokens", splits.value);
        let place = splits.place.as_ref().unwrap_or(rules.table);
        rules
            .findings
            .push(Diagnostic::error("out-of-range", message).at(
                place,
                format!("expected at most {value}, the tokens of a microbatch"),
            ));
    }
}

/// Switches that contradict each other.
fn exclusions(draft: &Draft, rules: &mut Rules<'_>) {
    let tensor = &draft.tensor_model_parallel_size;
    if draft.sequence_parallel.value && tensor.sound && tensor.value == 1 {
        rules.exclude(
            "`sequence_parallel` splits the sequence over tensor-parallel ranks, of which there \
             is one",
            &draft.sequence_parallel.place,
            "expected false, or a larger tensor_model_parallel_size",
            "Megatron switches it off silently here; a recipe should say what runs",
        );
    }
    let both = draft.accumulate_allreduce_grads_in_fp32.is_given()
        && draft.accumulate_allreduce_grads_in_fp32.value
        && draft.grad_reduce_in_bf16.value;
    if both {
        rules.exclude(
            "`grad_reduce_in_bf16` and `accumulate_allreduce_grads_in_fp32` exclude each other",
            &draft.grad_reduce_in_bf16.place,
            "expected one of the two",
            "leave out the one you do not mean",
        );
    }
    if draft.grad_reduce_in_bf16.value && !draft.bf16.value && draft.bf16.sound {
        rules.exclude(
            "`grad_reduce_in_bf16` needs a bf16 recipe",
            &draft.grad_reduce_in_bf16.place,
            "expected false, or bf16 = true",
            "add `bf16 = true`",
        );
    }
    let sharded = &draft.use_distributed_optimizer;
    if draft.ddp_reduce_scatter_with_fp32_accumulation.value && sharded.sound && !sharded.value {
        rules.exclude(
            "`ddp_reduce_scatter_with_fp32_accumulation` needs the distributed optimizer",
            &draft.ddp_reduce_scatter_with_fp32_accumulation.place,
            "nothing is reduce-scattered here",
            "add `use_distributed_optimizer = true`",
        );
    }
}
