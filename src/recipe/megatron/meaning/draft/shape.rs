//! The model of a recipe.

use super::super::vocabulary;
use super::Draft;
use crate::diagnostic::document::Value;
use crate::diagnostic::{Diagnostic, Findings};

impl Draft<'_, '_> {
    pub(super) fn shape(&mut self, findings: &mut Findings) {
        let values = self.inputs.values;
        let layers = ["num_layers", "encoder_num_layers"];
        if let Some(dest) = layers
            .into_iter()
            .find(|dest| values.integer(dest).is_some())
        {
            self.count_of("num_layers", dest);
        }
        self.count("hidden_size");
        self.count("num_attention_heads");
        self.feed_forward();
        if values.flag("group_query_attention") {
            self.count("num_query_groups");
        }
        if values.is_given("kv_channels") {
            self.count("kv_channels");
        }
        let sequence = ["seq_length", "encoder_seq_length"];
        if let Some(dest) = sequence
            .into_iter()
            .find(|dest| values.integer(dest).is_some())
        {
            self.count_of("seq_length", dest);
        }
        self.count("max_position_embeddings");
        if values.integer("max_position_embeddings").is_none() {
            let message = "`max_position_embeddings` is missing";
            findings.push(
                Diagnostic::error("missing", message)
                    .at(values.phase_place(), "Megatron refuses to start without it"),
            );
        }
        let (vocabulary, reason) = vocabulary::padded(values, self.inputs.fields.tp, findings);
        self.whole("padded_vocab_size", vocabulary, "vocab_size");
        self.derived.push(reason);
        self.word("transformer_impl", "transformer_impl");
        self.word("normalization", "normalization");
        self.real("norm_epsilon", "layernorm_epsilon");
        self.position();
        self.real("attention_dropout", "attention_dropout");
        self.real("hidden_dropout", "hidden_dropout");
        let untied = "untie_embeddings_and_output_weights";
        self.flag(untied, values.flag(untied), untied);
    }

    fn feed_forward(&mut self) {
        let values = self.inputs.values;
        if values.is_given("ffn_hidden_size") {
            self.count("ffn_hidden_size");
            return;
        }
        let Some(hidden) = values.count("hidden_size").map(u64::from) else {
            return;
        };
        // int((4 * hidden_size * 2 / 3) / 64) * 64 with gating, to keep the parameters' number.
        let (size, reason) = match values.flag("swiglu") {
            true => (
                hidden / 24 * 64,
                "two thirds of 4 x hidden_size, in 64s (validate_args)",
            ),
            false => (4 * hidden, "4 x hidden_size (validate_args)"),
        };
        self.whole("ffn_hidden_size", size, "hidden_size");
        self.derive("ffn_hidden_size", size, reason);
    }

    fn position(&mut self) {
        let values = self.inputs.values;
        if values.flag("use_rotary_position_embeddings") {
            let dest = "use_rotary_position_embeddings";
            let place = values.place(dest).clone();
            let rope = Value::Text("rope".to_string());
            self.put("position_embedding_type", rope, place);
        } else {
            self.word("position_embedding_type", "position_embedding_type");
            if values.text("position_embedding_type") != Some("rope") {
                return;
            }
        }
        self.real("rotary_base", "rotary_base");
    }

    pub(super) fn activation(&mut self, findings: &mut Findings) {
        let values = self.inputs.values;
        let (gated, biases) = (values.flag("swiglu"), values.flag("add_bias_linear"));
        self.flag("swiglu", gated, "swiglu");
        self.flag("disable_bias_linear", !biases, "add_bias_linear");
        if gated || (biases && values.flag("bias_gelu_fusion")) {
            return;
        }
        let dest = if biases {
            "bias_gelu_fusion"
        } else {
            "add_bias_linear"
        };
        let message = "Megatron takes an erf GELU here, bitproof a tanh one";
        findings.push(
            Diagnostic::warning("replaced-activation", message)
                .at(values.place(dest), "without the fusion of bias and GELU")
                .with_note(
                    "both are elementwise: the values differ, and which orders are possible does \
                     not",
                ),
        );
    }
}
