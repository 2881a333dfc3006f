use std::collections::BTreeSet;

use super::*;

fn all() -> impl Iterator<Item = &'static Argument> {
    AREAS
        .iter()
        .copied()
        .chain([attributes::EARLIER, attributes::ATTRIBUTES])
        .flatten()
}

#[test]
fn hundreds_of_arguments_are_known_and_none_twice() {
    // Building it asserts that no two arguments share a spelling.
    let catalogue = Catalogue::default();
    assert!(catalogue.flag_count() > 700, "{}", catalogue.flag_count());
}

#[test]
fn every_name_is_a_name_and_every_effect_says_something() {
    for argument in all() {
        let is_name = |name: &str| {
            name.chars()
                .all(|c| c.is_ascii_alphanumeric() || "-_".contains(c))
        };
        assert!(is_name(argument.name), "{argument:?}");
        let said = match argument.effect {
            Effect::Used(text)
            | Effect::Replaced(text)
            | Effect::NoBits(text)
            | Effect::Needs(text)
            | Effect::Open(text) => text,
            Effect::Part(feature) | Effect::Only(feature) => feature.name(),
        };
        assert!(
            said.len() > 2 && !said.ends_with('.') && !said.contains("  "),
            "{argument:?}"
        );
    }
}

#[test]
fn every_default_is_of_its_kind() {
    for argument in all().filter(|argument| !argument.default.is_empty()) {
        let default = argument.default;
        let fits = match argument.kind {
            Kind::Int | Kind::Ints => default.parse::<i64>().is_ok(),
            Kind::Float | Kind::Floats => default.parse::<f64>().is_ok(),
            Kind::Word(words) => words.contains(&default),
            Kind::Text | Kind::Texts => true,
            Kind::On | Kind::Off | Kind::GeneratedOff | Kind::Toggle => default == "true",
        };
        assert!(fits, "{argument:?}");
    }
}

#[test]
fn spellings_of_one_argument_lead_to_it() {
    let catalogue = Catalogue::default();
    let dest = |name: &str| catalogue.find(name).map(|(argument, _)| argument.dest());
    for (name, attribute) in [
        ("--num-layers", "num_layers"),
        ("num_layers", "num_layers"),
        (
            "trainer.strategy.tensor_model_parallel_size",
            "tensor_model_parallel_size",
        ),
        ("model.config.num_moe_experts", "num_experts"),
        (
            "--override-opt_param-scheduler",
            "override_opt_param_scheduler",
        ),
        (
            "--override-opt-param-scheduler",
            "override_opt_param_scheduler",
        ),
        ("--disable-bias-linear", "add_bias_linear"),
        ("add_bias_linear", "add_bias_linear"),
        ("--no-manual-gc-eval", "manual_gc_eval"),
        ("--disable-manual-gc-eval", "manual_gc_eval"),
        ("--disable-tp-comm-overlap-ag", "tp_comm_overlap_ag"),
        ("--persistent-save-interval", "save_interval"),
        ("--norm-epsilon", "layernorm_epsilon"),
        ("--no-rl-partial-rollouts", "rl_partial_rollouts"),
        ("--fp8-format", "fp8"),
    ] {
        assert_eq!(dest(name).as_deref(), Some(attribute), "{name}");
    }
    // Megatron's parser takes no abbreviations (allow_abbrev=False), nor names without a value.
    for name in [
        "--num-layer",
        "num-layers",
        "--tensor-model",
        "trainer.num_layers.x",
        "a.b",
        "",
    ] {
        assert_eq!(dest(name), None, "{name}");
    }
}

#[test]
fn every_switch_of_a_feature_is_an_argument() {
    let catalogue = Catalogue::default();
    let mut seen = BTreeSet::new();
    for feature in Feature::all() {
        assert!(seen.insert(feature), "{feature:?} twice");
        for switch in feature.switches() {
            let dest = switch.split('=').next().unwrap();
            let argument = catalogue.attribute(dest);
            assert!(argument.is_some(), "{switch}");
            let effect = argument.unwrap().effect;
            let part_of_another = matches!(effect, Effect::Part(other) if other != feature);
            assert!(
                !matches!(effect, Effect::NoBits(_)) || part_of_another,
                "{switch}"
            );
        }
    }
    for argument in all() {
        if let Effect::Part(feature) | Effect::Only(feature) = argument.effect {
            assert!(seen.contains(&feature), "{argument:?}");
        }
        // A switch that were a part of what it switches on would be named by nobody.
        if let Effect::Part(feature) = argument.effect {
            let dest = argument.dest();
            assert!(!feature.switches().contains(&dest.as_str()), "{argument:?}");
        }
    }
}

#[test]
fn variables_are_found_by_name_and_by_the_longest_start() {
    assert_eq!(variable("NCCL_ALGO").unwrap().name, "NCCL_ALGO");
    assert_eq!(variable("NCCL_IB_TIMEOUT").unwrap().name, "NCCL_IB_TIMEOUT");
    assert_eq!(variable("NCCL_IB_HCA").unwrap().name, "NCCL_IB_*");
    assert_eq!(
        variable("NCCL_P2P_NET_CHUNKSIZE").unwrap().name,
        "NCCL_P2P_NET_CHUNKSIZE"
    );
    assert_eq!(variable("NCCL_P2P_READ_ENABLE").unwrap().name, "NCCL_P2P_*");
    assert_eq!(variable("NCCL_ALGOO"), None);
    // What is open says so at every value but those at which nothing follows.
    for (name, value, is_named) in [
        ("NVTE_NORM_FWD_USE_CUDNN", "1", true),
        ("NVTE_NORM_FWD_USE_CUDNN", "0", false),
        // As good as not set, which the linter tells of.
        ("NCCL_TUNER_PLUGIN", "", false),
        ("NCCL_TUNER_PLUGIN", "None", false),
        ("NCCL_TUNER_PLUGIN", "libnccl-tuner.so", true),
        ("NCCL_P2P_DISABLE", "1", true),
        ("NCCL_IB_TIMEOUT", "19", false),
        ("NCCL_ALGO", "Ring", false),
        ("NCCL_ALGOO", "Ring", true),
        ("NVTE_OF_TOMORROW", "1", true),
        ("CUBLAS_OF_TOMORROW", "1", true),
        ("OUR_SITES_OWN", "1", false),
    ] {
        assert_eq!(not_covered(name, value).is_some(), is_named, "{name}");
    }
    let mut names: Vec<&str> = environment::names().collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count, "a variable stands twice");
}
