// 1 / sqrt x. Within 1.5 ulp over all f32 where sqrt and division are correctly rounded: two
// roundings of half an ulp, the first halved or doubled by the second's binade.
// NaN and all below zero give NaN, zeros give an infinity of their sign, inf gives +0.

fn bp_rsqrt(x: f32) -> f32 {
    return 1.0 / sqrt(x);
}
