// The random word that element `element` takes at dropout site `site`: word element % 4 of
// Philox4x32-10 with key = seed and counter = (offset + site, element / 4), the offset and
// subsequence halves as PyTorch lays them out (ATen PhiloxRNGEngine.h).
//
// state: seed low, seed high, offset low, offset high
// use: math/philox

fn bp_dropout_word(state: vec4<u32>, site: u32, element: u32) -> u32 {
    let low = state.z + site;
    let carry = select(0u, 1u, low < site);
    let counter = vec4<u32>(low, state.w + carry, element / 4u, 0u);
    let words = bp_philox(counter, state.xy);
    return words[element % 4u];
}
