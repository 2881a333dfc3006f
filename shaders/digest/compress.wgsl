// One compression of BLAKE3 (O'Connor, Aumasson, Neves, Wilcox-O'Hearn, 2020, section 2.2): it has
// integers only, so every engine gives the same words. A state's four rows are one vector each.

// A chaining value: its words 0 to 3, and 4 to 7.
struct BpChain {
    low: vec4<u32>,
    high: vec4<u32>,
}

fn bp_digest_start() -> BpChain {
    return BpChain(
        vec4<u32>(0x6a09e667u, 0xbb67ae85u, 0x3c6ef372u, 0xa54ff53au),
        vec4<u32>(0x510e527fu, 0x9b05688cu, 0x1f83d9abu, 0x5be0cd19u),
    );
}

fn bp_rotated(x: vec4<u32>, by: u32) -> vec4<u32> {
    return (x >> vec4<u32>(by)) | (x << vec4<u32>(32u - by));
}

// Compresses the 64 bytes of `m0` to `m3` into `chain`; `about` holds the chunk's number (its low
// and high word), the bytes of the block and its flags.
fn bp_compressed(
    chain: BpChain,
    block0: vec4<u32>,
    block1: vec4<u32>,
    block2: vec4<u32>,
    block3: vec4<u32>,
    about: vec4<u32>,
) -> BpChain {
    var m0 = block0;
    var m1 = block1;
    var m2 = block2;
    var m3 = block3;
    var a = chain.low;
    var b = chain.high;
    var c = bp_digest_start().low;
    var d = about;
    for (var round = 0u; round < 7u; round = round + 1u) {
        // Columns.
        a = a + b + vec4<u32>(m0.x, m0.z, m1.x, m1.z);
        d = bp_rotated(d ^ a, 16u);
        c = c + d;
        b = bp_rotated(b ^ c, 12u);
        a = a + b + vec4<u32>(m0.y, m0.w, m1.y, m1.w);
        d = bp_rotated(d ^ a, 8u);
        c = c + d;
        b = bp_rotated(b ^ c, 7u);
        // Diagonals, which rotating the rows makes columns.
        b = b.yzwx;
        c = c.zwxy;
        d = d.wxyz;
        a = a + b + vec4<u32>(m2.x, m2.z, m3.x, m3.z);
        d = bp_rotated(d ^ a, 16u);
        c = c + d;
        b = bp_rotated(b ^ c, 12u);
        a = a + b + vec4<u32>(m2.y, m2.w, m3.y, m3.w);
        d = bp_rotated(d ^ a, 8u);
        c = c + d;
        b = bp_rotated(b ^ c, 7u);
        b = b.wxyz;
        c = c.zwxy;
        d = d.yzwx;
        // The next round's message: words 2 6 3 10 7 0 4 13 1 11 12 5 9 14 15 8 of this one's.
        let n0 = vec4<u32>(m0.z, m1.z, m0.w, m2.z);
        let n1 = vec4<u32>(m1.w, m0.x, m1.x, m3.y);
        let n2 = vec4<u32>(m0.y, m2.w, m3.x, m1.y);
        let n3 = vec4<u32>(m2.y, m3.z, m3.w, m2.x);
        m0 = n0;
        m1 = n1;
        m2 = n2;
        m3 = n3;
    }
    return BpChain(a ^ c, b ^ d);
}
