//! Philox in WGSL against the host's, and cuRAND's map to (0, 1].

use bitproof::numerics::philox::{curand_uniform, philox4x32};

use crate::bench::{Bench, CHUNK, PARTS};

/// Words that take every power of two, the ends, and a spread.
fn words() -> Vec<u32> {
    let spread = |i: u32| match i % 5 {
        0 => 1u32.rotate_left(i / 5),
        1 => !1u32.rotate_left(i / 5),
        _ => i.wrapping_mul(0x9e37_79b9) ^ i.rotate_left(13),
    };
    (0..CHUNK).map(spread).collect()
}

#[test]
fn blocks_equal_the_hosts() {
    let body = "y[i] = bp_philox(x[i], x[i].wy ^ vec2<u32>(0x1234567u, i));";
    let words = words();
    let blocks = Bench::new(&PARTS, "math/philox", "vec4<u32>", body).run(&words);
    for (i, (counter, block)) in words
        .chunks_exact(4)
        .zip(blocks.chunks_exact(4))
        .enumerate()
    {
        let counter: [u32; 4] = counter.try_into().unwrap();
        let key = [counter[3] ^ 0x0123_4567, counter[1] ^ i as u32];
        assert_eq!(block, philox4x32(counter, key));
    }
}

#[test]
fn uniforms_equal_the_hosts() {
    let body = "y[i] = bitcast<u32>(bp_curand_uniform(x[i]));";
    let words = words();
    let values = Bench::new(&PARTS, "math/philox", "u32", body).run(&words);
    for (word, value) in words.into_iter().zip(values) {
        assert_eq!(value, curand_uniform(word).to_bits(), "{word:08x}");
    }
}

#[test]
fn high_products_are_exact() {
    let body = "y[i] = bp_high_product(x[i], x[i] * 0x9e3779b9u + i);";
    let words = words();
    let products = Bench::new(&PARTS, "math/product", "u32", body).run(&words);
    for (i, (word, product)) in words.into_iter().zip(products).enumerate() {
        let other = word.wrapping_mul(0x9e37_79b9).wrapping_add(i as u32);
        assert_eq!(product, ((u64::from(word) * u64::from(other)) >> 32) as u32);
    }
}
