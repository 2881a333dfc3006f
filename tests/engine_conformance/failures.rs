//! What an engine must refuse or tell, and never answer with zeros.

use bitproof::engine::{Engine, EngineChoice, EngineError, Launch, Span};
use bitproof::kernel::{Kernel, Registry};

const COUNT: u32 = 64;

fn scale() -> Kernel {
    let registry = Registry::new().expect("shaders link");
    registry.get("scale").expect("valid").clone()
}

/// A launch of `scale` that believes in `count` values, on an operand of `COUNT`.
fn launch(engine: &mut dyn Engine, kernel: &Kernel, count: u32) -> Launch {
    let program = engine.load(kernel).expect("loads");
    let arena = engine.alloc(COUNT + 64, 1.0f32.to_bits()).expect("memory");
    let operands = vec![Span {
        arena,
        offset_words: 0,
        words: COUNT,
    }];
    let params = vec![count, 2.0f32.to_bits()];
    let params = [params, vec![0; 8]].concat()[..kernel.params_words as usize].to_vec();
    let grid = [count.div_ceil(kernel.workgroup[0]), 1, 1];
    Launch {
        program,
        grid,
        operands,
        params,
    }
}

/// The first of two launches that are outside is named, at the latest when results are asked for,
/// and what comes after is sound again.
pub fn an_index_outside_is_told_with_its_launch(engine: &mut dyn Engine) {
    let kernel = scale();
    let counts = [COUNT, COUNT, COUNT + 1, COUNT, COUNT + 1];
    let launches: Vec<Launch> = counts
        .iter()
        .map(|count| launch(engine, &kernel, *count))
        .collect();
    engine.run(&launches[..1]).expect("inside");
    let run = engine.runs();
    let told = engine.run(&launches).and_then(|()| engine.settle());
    let Err(EngineError::OutOfExtent {
        kernel: named,
        operand,
        extent,
        at,
    }) = told
    else {
        panic!("{told:?}");
    };
    assert_eq!((named, operand.as_str()), (kernel.name.clone(), "values"));
    assert_eq!((at.run, at.launch), (run, 2));
    assert_eq!(extent, COUNT);
    engine.run(&launches[..2]).expect("inside");
    engine.settle().expect("nothing is left of the fault");
    engine.note(&launches[0].operands).expect("in the arena");
    let told = engine
        .run(&launches[2..])
        .and_then(|()| engine.noted().map(drop));
    assert!(
        matches!(told, Err(EngineError::OutOfExtent { .. })),
        "{told:?}"
    );
    // The cpu engine tells at once, and has the note still.
    let _ = engine.noted();
    assert_eq!(engine.noted().expect("none was asked for"), []);
    for launch in &launches {
        let behind = Span {
            offset_words: COUNT,
            words: 64,
            ..launch.operands[0]
        };
        let words = engine.read(behind).expect("in the arena");
        assert!(
            words.iter().all(|word| *word == 1.0f32.to_bits()),
            "a write outside"
        );
    }
}

/// Indexes known at run time only: of a lane of an operand, of a value, of locals.
const LOCALS: &str = "
struct Params { loaded: u32, value: i32, read: u32, written: u32, lane: u32 }
@group(0) @binding(0) var<storage, read_write> values: array<vec4<f32>>;
@group(1) @binding(0) var<uniform> params: Params;
fn third(at: u32) -> f32 {
    let pair = vec2<f32>(32.0, 64.0);
    return pair[at];
}
@compute @workgroup_size(1)
fn main() {
    var few: array<f32, 5>;
    var lanes = vec3<f32>(0.0);
    few[params.written] = 1.0;
    lanes[params.lane] = 2.0;
    let value = values[0] * 4.0;
    let sum = values[0][params.loaded] + value[params.value] + few[params.read];
    values[1] = vec4<f32>(sum + lanes.x + lanes.y + lanes.z + third(params.lane & 1u));
}
";

/// Each index at its last element, then each one past it: the first of two such launches is named.
pub fn an_index_outside_a_vector_or_a_local_array_is_told(engine: &mut dyn Engine) {
    let registry = Registry::from_sources(&[("locals", LOCALS)]).expect("it links");
    let program = engine
        .load(registry.get("locals").expect("valid"))
        .expect("loads");
    let arena = engine.alloc(8, 1.0f32.to_bits()).expect("memory");
    let launch = |params: [u32; 5]| Launch {
        program,
        grid: [1, 1, 1],
        operands: vec![arena.first(8)],
        params: params.to_vec(),
    };
    let last = [3, 3, 4, 4, 2];
    let good = launch(last);
    engine.run(std::slice::from_ref(&good)).expect("inside");
    let words = engine.read(arena.first(8)).expect("in the arena");
    // 1 of the operand, 4 of the value, 1 and 2 of the locals, 32 of the constant.
    assert_eq!(words[4..], [40.0f32.to_bits(); 4]);
    for (place, past) in [4, 4, 5, 5, 3].into_iter().enumerate() {
        for past in [past, u32::MAX] {
            let mut params = last;
            params[place] = past;
            let run = engine.runs();
            let launches = [good.clone(), launch(params), launch(params)];
            let told = launches
                .iter()
                .try_for_each(|launch| engine.run(std::slice::from_ref(launch)))
                .and_then(|()| engine.settle());
            let Err(EngineError::OutsideLocal { kernel, at }) = told else {
                panic!("index {place} of {past}: {told:?}");
            };
            assert_eq!(
                (kernel.as_str(), at.run),
                ("locals", run + 1),
                "index {place}"
            );
        }
    }
    engine.run(&[good]).expect("inside");
    engine.settle().expect("nothing is left of the fault");
}

pub fn what_does_not_fit_is_refused(engine: &mut dyn Engine) {
    let kernel = scale();
    let good = launch(engine, &kernel, COUNT);
    let mut outside = good.clone();
    outside.operands[0].offset_words = COUNT + 64;
    let mut short = good.clone();
    short.params.pop();
    let mut none = good.clone();
    none.operands.clear();
    for bad in [outside, short, none] {
        let run = engine.runs();
        let refused = engine.run(&[good.clone(), bad]);
        let Err(EngineError::BadLaunch { at, .. }) = refused else {
            panic!("{refused:?}");
        };
        assert_eq!((at.run, at.launch), (run, 1));
    }
    let most = engine.arena_words_max();
    if most < u32::MAX {
        let refused = engine.alloc(most + 1, 0);
        assert!(
            matches!(refused, Err(EngineError::OutOfMemory { .. })),
            "{refused:?}"
        );
    }
}

#[test]
fn an_adapter_that_is_not_there_is_no_other_engine() {
    let choice = EngineChoice::Wgpu {
        adapter: Some("no adapter is called this".to_owned()),
    };
    let opened = choice.open(1);
    assert!(matches!(opened, Err(EngineError::NoAdapter { .. })));
}
