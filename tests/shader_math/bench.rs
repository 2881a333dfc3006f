//! Runs one function of `shaders/math/` over many arguments.

use bitproof::engine::cpu::CpuEngine;
use bitproof::engine::{Engine, Launch, ProgramId, Span};
use bitproof::kernel::Registry;

/// Every part of `shaders/math/` that is tested here.
pub const PARTS: [(&str, &str); 8] = [
    ("math/exp", include_str!("../../shaders/math/exp.wgsl")),
    ("math/log", include_str!("../../shaders/math/log.wgsl")),
    (
        "math/philox",
        include_str!("../../shaders/math/philox.wgsl"),
    ),
    (
        "math/product",
        include_str!("../../shaders/math/product.wgsl"),
    ),
    ("math/round", include_str!("../../shaders/math/round.wgsl")),
    ("math/rsqrt", include_str!("../../shaders/math/rsqrt.wgsl")),
    (
        "math/sincos",
        include_str!("../../shaders/math/sincos.wgsl"),
    ),
    ("math/tanh", include_str!("../../shaders/math/tanh.wgsl")),
];

/// Words of arguments in one run.
pub const CHUNK: u32 = 1 << 16;
const WORKGROUP: u32 = 64;

/// A kernel that reads `x`, writes `y`, `words` words an invocation, loaded into an engine.
pub struct Bench {
    engine: CpuEngine,
    program: ProgramId,
    x: Span,
    y: Span,
    words_each: u32,
}

impl Bench {
    /// `body` is what an invocation `i` does with `x` and `y`, arrays of `element`.
    pub fn new(parts: &[(&str, &str)], used: &str, element: &str, body: &str) -> Bench {
        let kernel = format!(
            "// use: {used}
@group(0) @binding(0) var<storage, read_write> x: array<{element}>;
@group(0) @binding(1) var<storage, read_write> y: array<{element}>;
@compute @workgroup_size({WORKGROUP})
fn main(@builtin(global_invocation_id) gid: vec3<u32>) {{
    let i = gid.x;
    {body}
}}
"
        );
        let sources: Vec<(&str, &str)> = parts
            .iter()
            .copied()
            .chain([("bench", kernel.as_str())])
            .collect();
        let registry = Registry::from_sources(&sources).unwrap();
        let mut engine = CpuEngine::new(2).unwrap();
        let program = engine.load(registry.get("bench").unwrap()).unwrap();
        let arena = engine.alloc(2 * CHUNK, 0xffff_ffff).unwrap();
        let span = |offset_words| Span {
            arena,
            offset_words,
            words: CHUNK,
        };
        let words_each = if element.starts_with("vec4") { 4 } else { 1 };
        Bench {
            engine,
            program,
            x: span(0),
            y: span(CHUNK),
            words_each,
        }
    }

    /// The results for at most `CHUNK` words of arguments, missing ones taken as 0.
    pub fn run(&mut self, arguments: &[u32]) -> Vec<u32> {
        let mut words = arguments.to_vec();
        words.resize(CHUNK as usize, 0);
        self.engine.write(self.x, &words).unwrap();
        let launch = Launch {
            program: self.program,
            grid: [CHUNK / WORKGROUP / self.words_each, 1, 1],
            operands: vec![self.x, self.y],
            params: Vec::new(),
        };
        self.engine.run(&[launch]).unwrap();
        let mut results = self.engine.read(self.y).unwrap();
        results.truncate(arguments.len());
        results
    }
}
