// Philox4x32-10, the counter-based generator of Salmon et al. (SC'11): four words for each counter
// and key. Equal to src/numerics/philox.rs on all inputs. Word 0 is the least significant.
// use: math/product

fn bp_philox(counter: vec4<u32>, key: vec2<u32>) -> vec4<u32> {
    var c = counter;
    var k = key;
    for (var round = 0u; round < 10u; round = round + 1u) {
        let high0 = bp_high_product(0xd2511f53u, c.x);
        let high1 = bp_high_product(0xcd9e8d57u, c.z);
        c = vec4<u32>(high1 ^ c.y ^ k.x, 0xcd9e8d57u * c.z, high0 ^ c.w ^ k.y, 0xd2511f53u * c.x);
        k = vec2<u32>(k.x + 0x9e3779b9u, k.y + 0xbb67ae85u);
    }
    return c;
}

// curand_uniform: a word as an f32 in (0, 1]. The product is exact, so this is one fused
// multiply-add, as CUDA has it.
fn bp_curand_uniform(word: u32) -> f32 {
    return f32(word) * 0x1p-32 + 0x1p-33;
}
