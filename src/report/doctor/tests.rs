use super::*;
use crate::engine::self_test::{Difference, Tested};

fn tested(differing: u32) -> Tested {
    let difference = Difference {
        x: 0x3f80_0000,
        y: 0x8000_0000,
        z: 1,
        expected: 0x7fc0_0000,
        got: 0,
    };
    Tested {
        name: "a sum",
        formula: "(x + y) - y",
        guards: "an optimiser that makes it x",
        inputs: 256,
        differing,
        first: (differing > 0).then_some(difference),
    }
}

fn identity(name: &str, strict: bool) -> EngineIdentity {
    EngineIdentity {
        name: name.to_owned(),
        adapter: format!("{name} adapter (Vulkan)"),
        versions: vec![("driver".to_owned(), "1\u{1b}[2J".to_owned())],
        strict,
    }
}

fn engine(name: &'static str, strict: bool, differing: &[u32]) -> Examined {
    let expressions = differing.iter().map(|count| tested(*count)).collect();
    Examined::new(name, identity(name, strict), Ok(SelfTest { expressions }))
}

fn adapter(name: &str) -> AdapterLine {
    AdapterLine {
        name: name.to_owned(),
        backend: "Vulkan".to_owned(),
        kind: "Cpu".to_owned(),
        driver: "driver\u{9b}2J".to_owned(),
        features: vec!["PASSTHROUGH_SHADERS"],
        limits: vec![("bytes of a storage binding", 134_217_728)],
        refused: None,
    }
}

fn doctor(engines: Vec<Examined>, adapters: Vec<AdapterLine>, asked: Asked) -> Doctor {
    Doctor {
        adapters_built: true,
        ..Doctor::new(engines, adapters, asked)
    }
}

fn asked(any: bool, name: Option<&str>) -> Asked {
    let name = name.map(str::to_owned);
    Asked { any, name }
}

#[test]
fn arithmetic_is_strict_only_where_it_is_tested_and_guarded() {
    use Arithmetic::{Differs, Strict, Unguarded, Unknown};
    assert_eq!(engine("cpu", true, &[0, 0]).arithmetic, Strict);
    assert_eq!(engine("wgpu", false, &[0, 0]).arithmetic, Unguarded);
    assert_eq!(engine("wgpu", true, &[0, 3]).arithmetic, Differs);
    assert_eq!(engine("wgpu", true, &[]).arithmetic, Differs, "of nothing");
    let failed = Examined::new(
        "wgpu",
        identity("wgpu", true),
        Err("lost".to_owned().into()),
    );
    assert_eq!(failed.arithmetic, Unknown);
    assert_eq!(
        Examined::unopened("wgpu", "none".to_owned().into()).arithmetic,
        Unknown
    );
}

#[test]
fn exits_follow_what_was_asked_for() {
    let cpu = || engine("cpu", true, &[0]);
    let gpu = || engine("wgpu", true, &[4]);
    let here = || vec![adapter("wgpu adapter")];
    let exit = |engines, adapters, asked| doctor(engines, adapters, asked).exit().code();
    assert_eq!(exit(vec![cpu()], vec![], asked(false, None)), 0);
    assert_eq!(exit(vec![cpu()], vec![], asked(true, None)), 5);
    assert_eq!(exit(vec![cpu()], vec![], asked(false, Some("radeon"))), 5);
    assert_eq!(exit(vec![cpu(), gpu()], here(), asked(true, None)), 0);
    assert_eq!(
        exit(vec![cpu(), gpu()], here(), asked(true, Some("ADAPTER"))),
        0
    );
    assert_eq!(
        exit(vec![cpu(), gpu()], here(), asked(false, Some("radeon"))),
        5
    );
    // An adapter that is there and cannot be used is none.
    let broken = || Examined::unopened("wgpu", "refused".to_owned().into());
    assert_eq!(exit(vec![cpu(), broken()], here(), asked(true, None)), 5);
    assert_eq!(exit(vec![cpu(), broken()], here(), asked(false, None)), 0);
    // Without a sound default engine nothing else counts.
    let wrong = engine("cpu", true, &[1]);
    assert_eq!(exit(vec![wrong, gpu()], here(), asked(false, None)), 70);
    assert_eq!(exit(vec![gpu()], here(), asked(false, None)), 70);
}

#[test]
fn the_report_shows_what_differs_and_what_it_means() {
    let engines = vec![engine("cpu", true, &[0, 0]), engine("wgpu", true, &[0, 17])];
    let text = doctor(engines, vec![adapter("wgpu adapter")], asked(false, None)).to_human();
    for piece in [
        "all 2 expressions exact, on 256 inputs each",
        "1 of 2 expressions differ, 256 inputs each",
        "(x + y) - y: other bits for 17 inputs\n",
        "guards against an optimiser that makes it x\n",
        "at x 0x3f800000, y 0x80000000, z 0x00000001: expected 0x7fc00000, got 0x00000000",
        "not strict: bits are this adapter's own",
        "strict: a proof here holds",
        "134,217,728 bytes of a storage binding",
        "the wgpu engine ran its self-test on it",
    ] {
        assert!(text.contains(piece), "no {piece:?} in\n{text}");
    }
    assert!(
        text.chars().all(|c| c == '\n' || !c.is_control()),
        "{text:?}"
    );
}

#[test]
fn where_there_is_no_adapter_the_way_to_one_is_shown() {
    let mut found = doctor(vec![engine("cpu", true, &[0])], vec![], asked(true, None));
    found.install = Some("apk add mesa-vulkan-swrast".to_owned());
    found.variables = vec![Variable::new(
        "VK_DRIVER_FILES",
        "/gone\u{1b}".to_owned(),
        |_| false,
    )];
    let text = found.to_human();
    for piece in [
        "none was found; the cpu engine needs none",
        "one in software: apk add mesa-vulkan-swrast",
        "VK_DRIVER_FILES=/gone\\u{1b}",
        "/gone\\u{1b} is not there",
        "missing: no adapter was found",
    ] {
        assert!(text.contains(piece), "no {piece:?} in\n{text}");
    }
    found.adapters_built = false;
    assert!(found.to_human().contains("without the feature `wgpu`"));
}

#[test]
fn an_adapter_that_was_not_tested_is_said_to_be_so() {
    let engines = vec![engine("cpu", true, &[0])];
    let found = doctor(engines, vec![adapter("other")], asked(false, Some("other")));
    let text = found.to_human();
    assert!(
        text.contains("not tested: no engine was opened on it"),
        "{text}"
    );
    assert!(text.contains("could not be tested"), "{text}");
    assert_eq!(found.exit().code(), 5);
    let refused = AdapterLine {
        refused: Some("no immediates\u{1b}".to_owned()),
        ..adapter("small")
    };
    let found = doctor(
        vec![engine("cpu", true, &[0])],
        vec![refused],
        asked(true, None),
    );
    let text = found.to_human();
    assert!(
        text.contains("cannot be used: no immediates\\u{1b}\n"),
        "{text}"
    );
    assert_eq!(found.exit().code(), 5);
}

#[test]
fn what_hides_drivers_comes_before_an_installation() {
    let mut found = doctor(vec![engine("cpu", true, &[0])], vec![], asked(false, None));
    found.install = Some("apk add mesa-vulkan-swrast".to_owned());
    let set = |name| Variable::new(name, "/gone".to_owned(), |_| false);
    found.variables = vec![set("VK_DRIVER_FILES"), set("VK_ICD_FILENAMES")];
    found.unset = unset_command(&found.variables);
    found.limited = Some("a limit\u{1b} may be too low".to_owned());
    let text = found.to_human();
    assert!(text.contains("  a limit\\u{1b} may be too low\n"), "{text}");
    let place = |piece: &str| {
        text.find(piece)
            .unwrap_or_else(|| panic!("{piece}\n{text}"))
    };
    let unset = place("`unset VK_DRIVER_FILES VK_ICD_FILENAMES` first");
    assert!(unset < place("if there is still none, one in software: apk add"));
    assert_eq!(text.matches("not read: VK_DRIVER_FILES is set").count(), 1);
    found.variables.remove(0);
    found.unset = None;
    let text = found.to_human();
    assert!(text.contains("if there is still none, "), "{text}");
    assert!(
        !text.contains("unset") && !text.contains("not read"),
        "{text}"
    );
}

#[test]
fn adapters_of_other_names_are_named() {
    let asked = || asked(false, Some("nosuch\u{1b}"));
    let mut found = doctor(vec![engine("cpu", true, &[0])], vec![], asked());
    found.others = vec!["llvmpipe\u{9b} (Vulkan)".to_owned()];
    let text = found.to_human();
    let piece = "none is called `nosuch\\u{1b}`; there is llvmpipe\\u{9b} (Vulkan)\n";
    assert!(text.contains(piece), "{text}");
    assert!(!text.contains("none was found"), "{text}");
    assert_eq!(found.exit().code(), 5);
}

#[test]
fn an_engine_that_was_not_opened_has_a_next_command() {
    let failure = Failure {
        reason: "its driver gets no memory\u{1b}".to_owned(),
        help: Some("raise what limits memory (`ulimit -v`)"),
    };
    let engines = vec![
        engine("cpu", true, &[0]),
        Examined::unopened("wgpu", failure),
    ];
    let found = doctor(engines, vec![adapter("wgpu adapter")], asked(true, None));
    let text = found.to_human();
    let lines = "    not tested: its driver gets no memory\\u{1b}\n    raise what limits memory";
    assert!(text.contains(lines), "{text}");
    assert_eq!(found.exit().code(), 5);
}
