// The leaves of a digest: the chaining value of each chunk of 256 words, as BLAKE3 has them.
//
// words [count] u32   nodes [chunks][8] u32
//
// One invocation a chunk; a chunk's blocks are compressed in their order. No words are one chunk.
// use: digest/compress

@group(0) @binding(0) var<storage, read_write> words: array<u32>;
@group(0) @binding(1) var<storage, read_write> nodes: array<vec4<u32>>;

struct Params {
    count: u32,
    chunks: u32,
}
@group(1) @binding(0) var<uniform> params: Params;

// Words past the end are zero: BLAKE3 pads a short block.
fn word(place: u32) -> u32 {
    if place < params.count {
        return words[place];
    }
    return 0u;
}

fn quarter(place: u32) -> vec4<u32> {
    return vec4<u32>(word(place), word(place + 1u), word(place + 2u), word(place + 3u));
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) gid: vec3<u32>) {
    let chunk = gid.x;
    if chunk >= params.chunks {
        return;
    }
    let first = chunk * 256u;
    let left = params.count - first;
    let length = select(256u, left, left < 256u);
    var chain = bp_digest_start();
    var at = 0u;
    loop {
        let rest = length - at;
        let is_last = rest <= 16u;
        let size = select(16u, rest, is_last);
        // 1 starts a chunk, 2 ends one, 8 is the root.
        let root = select(0u, 8u, params.chunks == 1u);
        let flags = select(0u, 1u, at == 0u) | select(0u, 2u | root, is_last);
        let place = first + at;
        chain = bp_compressed(
            chain,
            quarter(place),
            quarter(place + 4u),
            quarter(place + 8u),
            quarter(place + 12u),
            vec4<u32>(chunk, 0u, 4u * size, flags),
        );
        if is_last {
            break;
        }
        at = at + 16u;
    }
    nodes[2u * chunk] = chain.low;
    nodes[2u * chunk + 1u] = chain.high;
}
