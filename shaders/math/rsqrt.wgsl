// 1 / sqrt x. Within 1.5 ulp over all f32 where sqrt and division are correctly rounded: the
// root's relative error of 2^-24 is at most one ulp of the quotient, the division adds half of one.
// NaN and all below zero give NaN, zeros give an infinity of their sign, inf gives +0.

fn bp_rsqrt(x: f32) -> f32 {
    return 1.0 / sqrt(x);
}
