// The upper 32 bits of the 64-bit product of two u32, from products of 16-bit halves.

fn bp_high_product(a: u32, b: u32) -> u32 {
    let a_low = a & 0xffffu;
    let a_high = a >> 16u;
    let b_low = b & 0xffffu;
    let b_high = b >> 16u;
    // At most (2^16 - 1)^2 + 2^16 - 1, twice: neither sum overflows.
    let middle = a_high * b_low + ((a_low * b_low) >> 16u);
    let other = a_low * b_high + (middle & 0xffffu);
    return a_high * b_high + (middle >> 16u) + (other >> 16u);
}
