// tanh(0.79788456 x (1 + 0.044715 x^2)), of which Megatron-LM's approximation of GELU and its
// slope are made, with its constants (core/fusions/fused_bias_gelu.py).
// use: math/tanh

fn bp_gelu_tanh(x: f32) -> f32 {
    return bp_tanh(0.79788456 * x * (1.0 + 0.044715 * x * x));
}
