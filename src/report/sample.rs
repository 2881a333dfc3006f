//! Made-up outcomes for the tests of every output format.

use crate::diagnostic::Source;
use crate::engine::EngineIdentity;
use crate::numerics::ladder::Rung;
use crate::prove::outcome::*;
use crate::prove::sweep::Reach;
use crate::recipe::Recipe;
use crate::scenario::{ChoiceVariable, Grade, OracleKind, Scope, Values};
use crate::world::{Family, NodeId, Owner, Phase, Site};

fn recipe() -> Recipe {
    let text = include_str!("../../scenarios/recipes/gpt-tp2-pp2-dp4.toml");
    Recipe::from_source(&Source::new("recipe.toml", text))
        .expect("a shipped recipe")
        .0
}

fn oracle(oracle: OracleKind, comparisons: u64) -> OracleResult {
    let verdict = OracleVerdict::Equal;
    OracleResult {
        oracle,
        verdict,
        comparisons,
        detail: None,
        components: Vec::new(),
    }
}

fn count(family: Family, rung: Rung, points: u64, addends: u32, full: u64) -> PointCount {
    PointCount {
        family,
        reach: Reach::Within,
        choice: "pinned".into(),
        rung: Some(rung),
        points,
        addends_min: addends,
        addends_max: addends,
        addends_at_full_size: Some(full),
    }
}

pub fn proved() -> Outcome {
    let hash = |digit: &str| digit.repeat(64);
    Outcome {
        scenario: ScenarioIdentity {
            name: "quickstart".into(),
            hash: hash("a"),
            not_covered: Vec::new(),
        },
        within: Some(Grade::Proved),
        across: None,
        imported: None,
        recipe: recipe(),
        engine: EngineIdentity {
            name: "cpu".into(),
            adapter: "x86-64".into(),
            versions: vec![
                ("naga".into(), "30.0.2".into()),
                ("cranelift".into(), "0.135.8".into()),
            ],
            strict: true,
        },
        steps: 4,
        ranks: 16,
        nodes: 51_234,
        points: vec![
            count(Family::DpGradients, Rung::Plan, 40, 4, 38),
            count(Family::TensorParallel, Rung::L0, 1_280, 2, 8),
        ],
        input_points: Vec::new(),
        input_point_count: 0,
        sampling: None,
        faults: Vec::new(),
        peak_bytes: None,
        hazards: Vec::new(),
        hazards_beyond: 0,
        notes: Vec::new(),
        origin: None,
        stop: None,
        oracles: vec![
            oracle(OracleKind::R2R, 51_234),
            oracle(OracleKind::RES, 9),
            oracle(OracleKind::XR, 512),
        ],
        reshardings: Vec::new(),
        topo: Vec::new(),
        serial: None,
        mutants: MutantScore {
            caught: 12,
            total: 12,
            ..MutantScore::default()
        },
        native_races: None,
        vacuity: Vec::new(),
        first_divergence: None,
        witness: None,
        visible_effect: None,
        remedies: Vec::new(),
        losses: vec![5.546_12, 5.5, 5.25, 5.125],
        replay: None,
        regression: None,
        like: None,
        certificate: Certificate {
            recipe_hash: hash("b"),
            data_hash: hash("c"),
            kernels_hash: hash("d"),
            variables: Vec::new(),
            plan_basis: "NCCL 2.30.7, read from source; in-node orders from the topology file"
                .into(),
            assumptions: vec!["A2 purity: the whole run was repeated and compared".into()],
            second_run: "one worker, ranks started in reverse, another poison".into(),
            root_hash: "e".repeat(32),
            self_test: SelfTestResult {
                expressions: 56,
                differing: Vec::new(),
            },
        },
        not_covered: vec![
            "the insides of closed kernels, such as cuBLAS and FlashAttention".into(),
        ],
        not_said:
            "This is a proof about the model of the job named in the certificate; it does not \
                   say that the job's own kernels keep their bits."
                .into(),
    }
}

fn node() -> NodeId {
    NodeId {
        step: 1,
        owner: Owner::Group(7),
        ordinal: 0,
    }
}

fn site() -> Site {
    Site {
        step: 1,
        microbatch: None,
        phase: Phase::GradReduce,
        module: "ddp.bucket0".into(),
        op: "reduce_scatter".into(),
    }
}

fn first_divergence(variable: &ChoiceVariable) -> FirstDivergence {
    FirstDivergence {
        site: site(),
        node: Some(node()),
        family: Some(Family::DpGradients),
        group: Some("dp 0".into()),
        ranks: vec![0, 2, 4, 6],
        is_origin: true,
        variable: variable.clone(),
        value_a: "block-2x8".into(),
        value_b: "plane2-2x8".into(),
        nodes_equal_before: 4_211,
    }
}

fn witness() -> Witness {
    let addend = |rank: u32, value: f32| Addend {
        source: format!("rank {rank}"),
        value: Bits::of(value),
    };
    Witness {
        site: site(),
        node: node(),
        group: Some("dp 0".into()),
        ranks: vec![0, 2, 4, 6],
        element: 77,
        plan_a: "(((r0 + r2) + r4) + r6)".into(),
        plan_b: "(((r0 + r4) + r2) + r6)".into(),
        addends: vec![
            addend(0, 1.0),
            addend(2, 6e-8),
            addend(4, 6e-8),
            addend(6, -0.0),
        ],
        sum_a: Bits::of(f32::from_bits(0x3f80_0001)),
        sum_b: Bits::of(1.0),
        differing_elements: 317,
        total_elements: 8_192,
        max_ulp: Some(3),
        counterfactual: true,
        alone: Some(VisibleEffect {
            steps: 24,
            metric: "lm loss".into(),
            first_step: None,
            value_a: None,
            value_b: None,
            losses: Vec::new(),
            spread: Vec::new(),
        }),
        adjacent_swaps: None,
        steps: 1,
        shrunk: Some(ShrunkWitness {
            addends: vec![addend(0, 1.0), addend(2, 6e-8), addend(4, 6e-8)],
            plan_a: "((r0 + r2) + r4)".into(),
            plan_b: "((r2 + r4) + r0)".into(),
            sum_a: Bits::of(1.0),
            sum_b: Bits::of(f32::from_bits(0x3f80_0001)),
        }),
        causes: vec![
            "topologies/block-2x8.toml".into(),
            "topologies/plane2-2x8.toml".into(),
        ],
    }
}

pub fn divergent() -> Outcome {
    let variable = ChoiceVariable {
        name: "placement".into(),
        scope: Scope::Run,
        values: Values::Listed(vec!["block-2x8".into(), "plane2-2x8".into()]),
    };
    let remedy = |switch: &str, removes, tried_grade| Remedy {
        switch: switch.into(),
        removes,
        tried_grade,
        still_parts: None,
    };
    let mut outcome = proved();
    outcome.scenario.name = "any-allocation".into();
    outcome.across = Some(Grade::Divergent);
    outcome.first_divergence = Some(first_divergence(&variable));
    outcome.witness = Some(witness());
    outcome.visible_effect = Some(VisibleEffect {
        steps: 24,
        metric: "lm loss".into(),
        first_step: Some(2),
        value_a: Some(Bits::of(5.25)),
        value_b: Some(Bits::of(5.250_001)),
        losses: Vec::new(),
        spread: Vec::new(),
    });
    outcome.remedies = vec![
        remedy(
            "ddp_reduce_scatter_with_fp32_accumulation = true",
            true,
            Grade::Proved,
        ),
        remedy("env.NCCL_ALGO = \"Tree\"", false, Grade::Divergent),
    ];
    outcome.certificate.variables = vec![variable];
    outcome.replay = Some("040G40R40M30E209000G23XC096KDR93".into());
    outcome
}

pub fn vacuous() -> Outcome {
    let finding = |family, reason, addends_here, addends_at_full_size, change: &str| {
        let change = change.into();
        VacuityFinding {
            family,
            reason,
            site: Some(site().to_string()),
            points: 12,
            addends_here,
            addends_at_full_size,
            change,
        }
    };
    let mut outcome = proved();
    outcome.scenario.name = "vacuous".into();
    outcome.within = Some(Grade::Vacuous);
    outcome.vacuity = vec![
        finding(
            Family::DpGradients,
            VacuityReason::TooFewAddends,
            2,
            38,
            "give the scenario a data-parallel size of at least 3",
        ),
        finding(
            Family::LossMean,
            VacuityReason::SilentHere,
            4,
            38,
            "accept the input, or pin it",
        ),
    ];
    outcome
}

/// Training that overflowed.
pub fn not_finite() -> Outcome {
    let mut outcome = vacuous();
    outcome.losses = vec![5.5, f32::NAN];
    outcome.vacuity = vec![VacuityFinding {
        family: Family::LossMean,
        reason: VacuityReason::NotFinite,
        site: Some("step 2, lm loss".into()),
        points: 1,
        addends_here: 0,
        addends_at_full_size: 0,
        change: "a smaller lr".into(),
    }];
    outcome
}
