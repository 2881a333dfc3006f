// One level of a digest's tree: each two neighbours become one node, a last one alone goes up as it
// is. Level by level this is BLAKE3's tree, whose left side is always full.
//
// children [count][8] u32   parents [(count + 1) / 2][8] u32
//
// One invocation a parent.
// use: digest/compress

@group(0) @binding(0) var<storage, read_write> children: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read_write> parents: array<vec4<u32>>;

struct Params {
    count: u32,
}
@group(1) @binding(0) var<uniform> params: Params;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) gid: vec3<u32>) {
    let parent = gid.x;
    let left = 2u * parent;
    if left >= params.count {
        return;
    }
    var chain = BpChain(children[2u * left], children[2u * left + 1u]);
    if left + 1u < params.count {
        // 4 is a parent, 8 the root.
        let flags = 4u | select(0u, 8u, params.count == 2u);
        chain = bp_compressed(
            bp_digest_start(),
            chain.low,
            chain.high,
            children[2u * left + 2u],
            children[2u * left + 3u],
            vec4<u32>(0u, 0u, 64u, flags),
        );
    }
    parents[2u * parent] = chain.low;
    parents[2u * parent + 1u] = chain.high;
}
