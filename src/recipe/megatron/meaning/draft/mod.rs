//! The full-size recipe as a table of our keys, each value at the place it was written at.

mod shape;
mod training;

use std::collections::BTreeMap;

use super::super::{GivenVariable, not_covered, setting};
use super::fields::CaseFields;
use super::schedule::schedule;
use super::understood::{Derivation, World};
use super::values::Values;
use crate::diagnostic::document::{Entry, Item, Table, Value};
use crate::diagnostic::{Diagnostic, Findings, Place};
use crate::recipe::CUBLAS_WORKSPACES;
use crate::recipe::nccl::SIMULATED;

/// What a recipe is made of.
pub(super) struct Inputs<'a, 'v> {
    pub values: &'a Values<'v>,
    /// Of the phase itself.
    pub fields: &'a CaseFields,
    pub world: &'a World,
    pub env: &'a [GivenVariable],
    /// The switches of `[determinism]`.
    pub orders: &'a [Derivation],
}

struct Draft<'a, 'v> {
    inputs: &'a Inputs<'a, 'v>,
    entries: BTreeMap<String, Entry>,
    derived: Vec<Derivation>,
}

/// The table, and the values in it that no argument states.
pub(super) fn table(inputs: &Inputs<'_, '_>, findings: &mut Findings) -> (Table, Vec<Derivation>) {
    let mut draft = Draft {
        inputs,
        entries: BTreeMap::new(),
        derived: Vec::new(),
    };
    draft.layout();
    draft.shape(findings);
    draft.activation(findings);
    let batch = draft.batch();
    draft.schedule(&schedule(inputs.values, batch, findings));
    draft.optimizer();
    draft.reduction();
    draft.recompute(findings);
    draft.checkpoints();
    draft.determinism();
    draft.environment();
    let table = Table {
        place: inputs.values.phase_place().clone(),
        entries: draft.entries,
    };
    (table, draft.derived)
}

/// Steps of the run, for what is derived beside the recipe.
pub(super) fn train_iters(inputs: &Inputs<'_, '_>) -> Option<u64> {
    let mut scratch = Findings::default();
    let batch = global_batch(inputs);
    schedule(inputs.values, batch, &mut scratch).train
}

fn global_batch(inputs: &Inputs<'_, '_>) -> u64 {
    let values = inputs.values;
    let replicas = u64::from(inputs.world.size / inputs.fields.model_parallel_size.max(1)).max(1);
    let micro = u64::from(values.count("micro_batch_size").unwrap_or(1));
    match values.count("global_batch_size") {
        Some(batch) => u64::from(batch),
        None => micro.saturating_mul(replicas),
    }
}

impl Draft<'_, '_> {
    fn put(&mut self, key: &str, value: Value, place: Place) {
        let item = Item {
            value,
            place: place.clone(),
        };
        let entry = Entry { key: place, item };
        let before = self.entries.insert(key.to_string(), entry);
        assert!(before.is_none(), "`{key}` twice");
    }

    fn whole(&mut self, key: &str, number: u64, dest: &str) {
        let number = i64::try_from(number).unwrap_or(i64::MAX);
        let place = self.inputs.values.place(dest).clone();
        self.put(key, Value::Integer(number), place);
    }

    /// A count of the same name, where it is known.
    fn count(&mut self, key: &str) {
        self.count_of(key, key);
    }

    /// What is negative or absurd is refused where the recipe is read, as it was written.
    fn count_of(&mut self, key: &str, dest: &str) {
        if let Some(number) = self.inputs.values.integer(dest) {
            let place = self.inputs.values.place(dest).clone();
            self.put(key, Value::Integer(number), place);
        }
    }

    fn real(&mut self, key: &str, dest: &str) {
        if let Some(number) = self.inputs.values.real(dest) {
            let place = self.inputs.values.place(dest).clone();
            self.put(key, Value::Float(format!("{number:?}")), place);
        }
    }

    fn flag(&mut self, key: &str, on: bool, dest: &str) {
        let place = self.inputs.values.place(dest).clone();
        self.put(key, Value::Boolean(on), place);
    }

    fn word(&mut self, key: &str, dest: &str) {
        if let Some(text) = self.inputs.values.text(dest) {
            let place = self.inputs.values.place(dest).clone();
            self.put(key, Value::Text(text.to_string()), place);
        }
    }

    fn derive(&mut self, key: &'static str, value: impl ToString, reason: impl Into<String>) {
        self.derived.push(Derivation {
            key,
            value: value.to_string(),
            reason: reason.into(),
        });
    }

    fn layout(&mut self) {
        let fields = self.inputs.fields;
        let place = self.inputs.values.phase_place().clone();
        let world = i64::from(self.inputs.world.size);
        self.put("world_size", Value::Integer(world), place);
        self.derive("world_size", world, self.inputs.world.reason.clone());
        self.count("tensor_model_parallel_size");
        self.count("pipeline_model_parallel_size");
        if let (Some(chunks), Some(source)) = (fields.vpp, &fields.vpp_source) {
            let key = "num_virtual_stages_per_pipeline_rank";
            self.whole(key, u64::from(chunks), &source.replace('-', "_"));
            let group = "microbatch_group_size_per_vp_stage";
            if let Some(size) = self.inputs.values.count(group) {
                let key = "microbatch_group_size_per_virtual_pipeline_stage";
                self.whole(key, u64::from(size), group);
            }
        }
        self.flag(
            "sequence_parallel",
            fields.sequence_parallel,
            "sequence_parallel",
        );
        if fields.sequence_parallel_flag != fields.sequence_parallel {
            self.derive(
                "sequence_parallel",
                false,
                "Megatron switches it off where tensor_model_parallel_size is 1 (validate_args)",
            );
        }
        let mapped = self.inputs.values.flag("use_tp_pp_dp_mapping");
        self.flag("use_tp_pp_dp_mapping", mapped, "use_tp_pp_dp_mapping");
    }

    fn recompute(&mut self, findings: &mut Findings) {
        let values = self.inputs.values;
        let Some(granularity) = self.inputs.fields.recompute.clone() else {
            return;
        };
        let dest = match values.flag("recompute_activations") {
            true => "recompute_activations",
            false => "recompute_granularity",
        };
        let place = values.place(dest).clone();
        let is_full = granularity == "full";
        self.put(
            "recompute_granularity",
            Value::Text(granularity),
            place.clone(),
        );
        if !is_full {
            let modules = values.list("recompute_modules").iter().cloned();
            let mut modules: Vec<String> = modules.collect();
            if modules.is_empty() {
                modules.push("core_attn".to_string());
                let reason = "the default of selective recompute (TransformerConfig)";
                self.derive("recompute_modules", "core_attn", reason);
            }
            let place = values.place("recompute_modules").clone();
            let item = |text| Item {
                value: Value::Text(text),
                place: place.clone(),
            };
            let items = modules.into_iter().map(item).collect();
            self.put("recompute_modules", Value::Array(items), place.clone());
            return;
        }
        for key in ["recompute_method", "recompute_num_layers"] {
            if !values.is_given(key) {
                findings.push(
                    Diagnostic::error("missing", format!("full recompute needs `{key}`"))
                        .at(&place, "Megatron refuses it at launch (TransformerConfig)"),
                );
            }
        }
        self.word("recompute_method", "recompute_method");
        self.count("recompute_num_layers");
    }

    fn checkpoints(&mut self) {
        self.count("cpu_offloading_num_layers");
        self.cuda_graphs();
        let values = self.inputs.values;
        let worker = values.flag("use_persistent_ckpt_worker");
        let distributed = values.text("ckpt_format") != Some("torch");
        let asynchronous = values.flag("async_save");
        // A log shows what the validator has left.
        let is_dropped = distributed && !worker && values.resolved("async_save").is_none();
        self.flag("async_save", asynchronous && !is_dropped, "async_save");
        if asynchronous && is_dropped {
            let reason = "Megatron switches it off without --use-persistent-ckpt-worker \
                (validate_args)";
            self.derive("async_save", false, reason);
        }
        // Megatron does not look at the clock for 0.
        let minutes = values.integer("exit_duration_in_mins");
        if minutes.is_some_and(|minutes| minutes > 0) {
            self.count("exit_duration_in_mins");
        }
    }

    /// Those of whole layers: others are refused by their own argument.
    fn cuda_graphs(&mut self) {
        let (values, graph) = (self.inputs.values, &self.inputs.fields.cuda_graph);
        let Some(graph) = graph.clone().filter(|graph| graph != "full_iteration") else {
            return;
        };
        let flags = ["enable_cuda_graph", "external_cuda_graph"];
        let flag = flags.into_iter().find(|flag| values.flag(flag));
        let place = values.place(flag.unwrap_or("cuda_graph_impl")).clone();
        let is_engines = graph == "transformer_engine";
        self.put("cuda_graph_impl", Value::Text(graph), place);
        if is_engines {
            self.count("cuda_graph_warmup_steps");
        }
    }

    fn determinism(&mut self) {
        let place = self.inputs.values.place("deterministic_mode").clone();
        let switches = self.inputs.orders.iter().filter_map(|order| {
            let key = order.key.strip_prefix("determinism.")?;
            Some((key, order.value.as_str()))
        });
        let table = text_table(switches, &place);
        self.put("determinism", Value::Table(table), place);
    }

    fn environment(&mut self) {
        // What others change is not simulated: they are kept, so that the certificate names them
        // under not covered.
        let is_kept = |given: &&GivenVariable| {
            let (name, value) = (given.name.as_str(), given.value.as_str());
            let is_simulated = SIMULATED.contains(&name) && !value.is_empty();
            is_simulated || not_covered(name, value).is_some()
        };
        let place = self.inputs.values.phase_place().clone();
        let mut entries = BTreeMap::new();
        // The last of a name counts: it takes the place of those before.
        for variable in self.inputs.env {
            entries.remove(&variable.name);
            if is_kept(&variable) {
                let text = Value::Text(variable.value.clone());
                entries.insert(variable.name.clone(), entry(text, &variable.place));
            }
        }
        // Megatron sets it; elsewhere the certificate says what is assumed.
        let given = |name: &str| self.inputs.env.iter().any(|given| given.name == name);
        if !given("NCCL_ALGO") && self.inputs.fields.deterministic_mode {
            let ring = Value::Text("Ring".to_string());
            entries.insert("NCCL_ALGO".to_string(), entry(ring, &place));
            let reason = "--deterministic-mode sets it where it is not set (determinism.py)";
            self.derive("env.NCCL_ALGO", "Ring", reason);
        }
        // Kept where it is empty, too: the job is known to leave it open.
        let name = "CUBLAS_WORKSPACE_CONFIG";
        let last = setting(self.inputs.env, name);
        let (value, place_of) = match last {
            Some(given) => (given.value.clone(), &given.place),
            None if self.inputs.fields.deterministic_mode => {
                (CUBLAS_WORKSPACES[0].to_string(), &place)
            }
            None => (String::new(), &place),
        };
        entries.insert(name.to_string(), entry(Value::Text(value), place_of));
        let table = Table {
            place: place.clone(),
            entries,
        };
        self.put("env", Value::Table(table), place);
    }
}

fn entry(value: Value, place: &Place) -> Entry {
    Entry {
        key: place.clone(),
        item: Item {
            value,
            place: place.clone(),
        },
    }
}

fn text_table<'t>(pairs: impl Iterator<Item = (&'t str, &'t str)>, place: &Place) -> Table {
    let entries = pairs.map(|(key, text)| {
        let value = Value::Text(text.to_string());
        (key.to_string(), entry(value, place))
    });
    Table {
        place: place.clone(),
        entries: entries.collect(),
    }
}
