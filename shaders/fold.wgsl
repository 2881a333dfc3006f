// Purpose: the one node whose arithmetic has an order: n addends become one value.
// Operands:
//   addends      f32[n][stride], addend k of element e at k * stride + e
//   program      u32: a ring of n places (chain), or a stack program (ops)
//   accumulator  f32[count], read only when init == 2
//   result       f32[count]
// Order: exactly the one that `program` says. chain: ring[start], ring[start + 1], ... (mod n),
//   folded left. ops: a word below 0xffffffff pushes that addend, 0xffffffff combines the two
//   values on top of the stack.
// Params: vec4_count, addend_count, stride4 (stride / 4), kind (0 chain, 1 ops), start,
//   program_len, init (0 first addend, 1 +0, 2 accumulator), combine (0 sum, 1 max),
//   partial_code, out_code, pre_multiply (bits; 0 means none), post_divide (bits; 0 means none).
// use: math/combine

struct Params {
    vec4_count: u32,
    addend_count: u32,
    stride4: u32,
    kind: u32,
    start: u32,
    program_len: u32,
    init: u32,
    combine: u32,
    partial_code: u32,
    out_code: u32,
    pre_multiply: u32,
    post_divide: u32,
}

@group(0) @binding(0) var<storage, read_write> addends: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> program: array<u32>;
@group(0) @binding(2) var<storage, read_write> accumulator: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> result: array<vec4<f32>>;
@group(1) @binding(0) var<uniform> params: Params;

fn addend(place: u32, element: u32) -> vec4<f32> {
    let x = addends[place * params.stride4 + element];
    if (params.pre_multiply == 0u) {
        return x;
    }
    return round4(x * bitcast<f32>(params.pre_multiply), params.partial_code);
}

fn combined(a: vec4<f32>, b: vec4<f32>) -> vec4<f32> {
    if (params.combine == 1u) {
        return combine_max(a, b);
    }
    return combine_sum(a, b, params.partial_code);
}

fn chain(element: u32) -> vec4<f32> {
    let n = params.addend_count;
    var place = params.start;
    var partial = vec4<f32>(0.0);
    var k = 0u;
    if (params.init == 0u) {
        partial = addend(program[place], element);
        k = 1u;
        place = place + 1u;
    } else if (params.init == 2u) {
        partial = accumulator[element];
    }
    loop {
        if (k >= n) {
            break;
        }
        if (place >= n) {
            place = place - n;
        }
        partial = combined(partial, addend(program[place], element));
        place = place + 1u;
        k = k + 1u;
    }
    return partial;
}

fn ops(element: u32) -> vec4<f32> {
    var stack: array<vec4<f32>, 20>;
    var depth = 0u;
    for (var i = 0u; i < params.program_len; i = i + 1u) {
        let word = program[i];
        if (word == 0xffffffffu) {
            depth = depth - 1u;
            stack[depth - 1u] = combined(stack[depth - 1u], stack[depth]);
        } else {
            stack[depth] = addend(word, element);
            depth = depth + 1u;
        }
    }
    var total = stack[0];
    if (params.init == 1u) {
        total = combined(vec4<f32>(0.0), total);
    } else if (params.init == 2u) {
        total = combined(accumulator[element], total);
    }
    return total;
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) gid: vec3<u32>) {
    let element = gid.x;
    if (element >= params.vec4_count) {
        return;
    }
    var total = vec4<f32>(0.0);
    if (params.kind == 0u) {
        total = chain(element);
    } else {
        total = ops(element);
    }
    if (params.post_divide != 0u) {
        total = total / bitcast<f32>(params.post_divide);
    }
    result[element] = round4(total, params.out_code);
}
