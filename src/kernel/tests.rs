//! Linking, places in files, what is refused, signatures.

use super::{KernelError, Operand, Registry};

const HEAD: &str = "@group(0) @binding(0) var<storage, read_write> x: array<f32>;\n";
const MAIN: &str =
    "@compute @workgroup_size(64)\nfn main(@builtin(global_invocation_id) gid: vec3<u32>) {\n";

fn registry(sources: &[(&str, &str)]) -> Registry {
    Registry::from_sources(sources).unwrap_or_else(|error| panic!("{error}"))
}

/// The error of a kernel `k` with this body on line 4, after `HEAD` and `MAIN`.
fn refusal(body: &str) -> String {
    let source = format!("{HEAD}{MAIN}{body}\n}}\n");
    let error = registry(&[("k", source.as_str())])
        .get("k")
        .expect_err(body)
        .to_string();
    assert!(error.starts_with("shaders/k.wgsl:"), "{error}");
    error
}

#[test]
fn a_used_file_comes_once_and_first() {
    let kernel = format!("// use: math/b\n// use: math/a\n{HEAD}{MAIN} x[0] = b(); }}\n");
    let registry = registry(&[
        ("k", kernel.as_str()),
        ("math/b", "// use: math/a\nfn b() -> f32 { return a(); }"),
        ("math/a", "fn a() -> f32 { return 1.0; }"),
    ]);
    let kernel = registry.get("k").expect("valid");
    assert_eq!(kernel.text.matches("fn a()").count(), 1);
    assert!(kernel.text.find("fn a()") < kernel.text.find("fn b()"));
    assert_eq!(registry.names().collect::<Vec<_>>(), ["k"]);
}

#[test]
fn the_hash_covers_what_is_used() {
    let kernel = format!("// use: math/a\n{HEAD}{MAIN} x[0] = a(); }}\n");
    let hash = |part: &str| {
        let registry = registry(&[("k", kernel.as_str()), ("math/a", part)]);
        (registry.get("k").expect("valid").hash, registry.hash())
    };
    let (one, all) = hash("fn a() -> f32 { return 1.0; }");
    assert_eq!((one, all), hash("fn a() -> f32 { return 1.0; }"));
    let (other, other_all) = hash("fn a() -> f32 { return 2.0; }");
    assert!(one != other && all != other_all);
}

#[test]
fn circles_and_unknown_files_name_the_line() {
    let circle = Registry::from_sources(&[
        ("k", "// use: math/a\n"),
        ("math/a", "\n// use: math/b\n"),
        ("math/b", "// use: math/a\n"),
    ]);
    let error = circle.err().expect("a circle").to_string();
    assert!(error.starts_with("shaders/math/b.wgsl:1:1"), "{error}");
    assert!(
        error.ends_with("k -> math/a -> math/b -> math/a"),
        "{error}"
    );
    let unknown = Registry::from_sources(&[("k", "\n\n// use: math/nothing\n")]);
    let error = unknown.err().expect("no such file").to_string();
    assert!(
        error.starts_with("shaders/k.wgsl:3:1: `// use: math/nothing`"),
        "{error}"
    );
    assert!(matches!(
        registry(&[]).get("fold"),
        Err(KernelError::Unknown { .. })
    ));
}

#[test]
fn errors_are_told_in_the_file_they_were_written_in() {
    let kernel = format!("// use: math/a\n{HEAD}{MAIN} x[0] = a(); }}\n");
    let at = |kernel: &str, part: &str| {
        let registry = registry(&[("k", kernel), ("math/a", part)]);
        registry.get("k").expect_err("broken").to_string()
    };
    let error = at(
        &kernel,
        "// one\n// two\nfn a() -> f32 { return nothing; }\n",
    );
    assert!(error.starts_with("shaders/math/a.wgsl:3:24: "), "{error}");
    let good = "// one\n// two\nfn a() -> f32 { return 1.0; }\n";
    let error = at(&kernel.replace("a();", "a()"), good);
    assert!(error.starts_with("shaders/k.wgsl:5:"), "{error}");
    // Valid for the parser, not for the validator: an f32 array indexed by an f32.
    let error = at(&kernel.replace("x[0]", "x[a()]"), good);
    assert!(error.starts_with("shaders/k.wgsl:5:"), "{error}");
}

#[test]
fn inexact_builtins_are_refused_by_name_and_line() {
    for (body, name, line) in [
        ("x[0] = fma(x[1], x[2], x[3]);", "`fma`", 4),
        (
            "\nx[0] = dot(vec2<f32>(x[1]), vec2<f32>(x[2]));",
            "`dot`",
            5,
        ),
        ("x[0] = min(x[1], x[2]);", "`min`", 4),
        ("x[0] = max(x[1], 0.0);", "`max`", 4),
        ("x[0] = mix(x[1], x[2], 0.5);", "`mix`", 4),
        ("x[0] = clamp(x[1], 0.0, 1.0);", "`clamp`", 4),
        ("x[0] = exp(x[1]);", "`exp`", 4),
        ("x[0] = log2(x[1]);", "`log2`", 4),
        ("x[0] = inverseSqrt(x[1]);", "`inverseSqrt`", 4),
        ("x[0] = round(x[1]);", "`round`", 4),
        ("x[0] = pow(x[1], x[2]);", "`pow`", 4),
        ("x[0] = x[1] % x[2];", "`%` of floats", 4),
        (
            "if gid.x > 1u {\n x[0] = length(vec2<f32>(x[1])); }",
            "`length`",
            5,
        ),
    ] {
        let error = refusal(body);
        assert!(error.contains(&format!("k.wgsl:{line}:")), "{error}");
        assert!(
            error.contains(&format!("{name} is not supported")),
            "{error}"
        );
        assert!(error.contains("left to the driver"), "{error}");
    }
}

#[test]
fn unbuilt_features_are_refused_by_name_and_line() {
    for (body, name) in [
        ("workgroupBarrier();", "a barrier"),
        ("loop { storageBarrier(); break; }", "a barrier"),
        ("x[0] = f32(arrayLength(&x));", "arrayLength"),
    ] {
        let error = refusal(body);
        assert!(error.contains("k.wgsl:4:"), "{error}");
        assert!(error.contains(name), "{error}");
    }
    let whole = |globals: &str, body: &str| {
        let source = format!("{globals}\n{HEAD}{MAIN}{body}\n}}\n");
        registry(&[("k", source.as_str())])
            .get("k")
            .expect_err(globals)
            .to_string()
    };
    let error = whole("var<workgroup> shared_words: array<u32, 4>;", "x[0] = 1.0;");
    assert!(
        error.contains("k.wgsl:1:1: workgroup memory is not supported"),
        "{error}"
    );
    let error = whole("var<private> p: u32;", "x[0] = 1.0;");
    assert!(
        error.contains("k.wgsl:1:1: a global in Private space"),
        "{error}"
    );
    let counter = "@group(0) @binding(1) var<storage, read_write> n: atomic<u32>;";
    let error = whole(counter, "atomicAdd(&n, 1u);");
    assert!(error.contains("atomic is not supported"), "{error}");
    let matrix = "fn m() -> f32 { let a = mat2x2<f32>(); return a[0].x; }";
    assert!(whole(matrix, "x[0] = m();").contains("matrix"));
    let pointer = "fn p(at: ptr<storage, f32, read_write>) { *at = 1.0; }";
    assert!(whole(pointer, "").contains("pointer"));
}

/// Negative control of the two tests above: what is allowed passes.
#[test]
fn allowed_operations_pass() {
    let body = "
        let i = countLeadingZeros(gid.x) + min(gid.y, 3u) + max(1u, gid.z);
        x[i] = sqrt(abs(x[0])) + floor(x[1]) - trunc(x[2]) / f32(i % 7u) * bitcast<f32>(i << 3u);
        x[1] = select(x[1], -x[2], all(vec2<bool>(x[1] < x[2], gid.x == 0u)));";
    let source = format!("{HEAD}{MAIN}{body}\n}}\n");
    registry(&[("k", source.as_str())])
        .get("k")
        .unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn signatures_are_read_from_the_ir() {
    let source = "
        struct Params { count: u32, scale: f32, shift: i32 }
        @group(0) @binding(2) var<storage, read_write> both: array<vec4<f32>>;
        @group(0) @binding(0) var<storage, read_write> input: array<f32>;
        @group(0) @binding(1) var<storage, read_write> output: array<vec2<u32>>;
        @group(0) @binding(3) var<storage, read_write> unused: array<i32>;
        @group(1) @binding(0) var<uniform> params: Params;
        fn helper(i: u32) -> f32 { return input[i]; }
        @compute @workgroup_size(8, 4)
        fn main(@builtin(global_invocation_id) gid: vec3<u32>) {
            output[gid.x].y = u32(helper(gid.x));
            both[gid.x] = both[gid.y] * params.scale;
        }";
    let registry = registry(&[("k", source)]);
    let kernel = registry.get("k").expect("valid");
    let operand = |name: &str, element_words, reads, writes| Operand {
        name: name.to_owned(),
        element_words,
        reads,
        writes,
    };
    let want = [
        operand("input", 1, true, false),
        operand("output", 2, false, true),
        operand("both", 4, true, true),
        operand("unused", 1, false, false),
    ];
    assert_eq!(kernel.operands, want);
    assert_eq!((kernel.params_words, kernel.workgroup), (3, [8, 4, 1]));
}

#[test]
fn wrong_signatures_are_refused() {
    let global = |text: &str| {
        let source = format!("{text}\n{MAIN} }}\n");
        let registry = registry(&[("k", source.as_str())]);
        registry.get("k").expect_err(text).to_string()
    };
    for (text, part) in [
        (
            "@group(0) @binding(0) var<storage, read> x: array<f32>;",
            "read_write",
        ),
        (
            "@group(0) @binding(1) var<storage, read_write> x: array<f32>;",
            "bindings 0, 1, 2",
        ),
        (
            "@group(2) @binding(0) var<storage, read_write> x: array<f32>;",
            "group 0",
        ),
        (
            "@group(0) @binding(0) var<storage, read_write> x: array<vec3<f32>>;",
            "vec2 or vec4",
        ),
        (
            "@group(0) @binding(0) var<storage, read_write> x: array<f32, 8>;",
            "without a length",
        ),
        (
            "struct P { v: vec2<u32> }\n@group(1) @binding(0) var<uniform> p: P;",
            "`v` of params",
        ),
        ("@group(1) @binding(0) var<uniform> p: u32;", "not a struct"),
        ("", "bindings 0, 1, 2"),
    ] {
        let error = global(text);
        assert!(error.contains(part), "{text}: {error}");
    }
    let source = HEAD.to_owned() + &MAIN.replace("main", "other") + "}";
    let error = registry(&[("k", source.as_str())])
        .get("k")
        .expect_err("no main")
        .to_string();
    assert!(error.contains("fn main"), "{error}");
}
