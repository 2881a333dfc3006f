use serde_json::Value;

use super::*;

fn golden() -> Value {
    let here = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden");
    let folder = std::env::var("BITPROOF_GOLDEN_DIR").unwrap_or_else(|_| here.to_string());
    let text = std::fs::read_to_string(format!("{folder}/philox.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn hex(value: &Value) -> u64 {
    u64::from_str_radix(value.as_str().unwrap(), 16).unwrap()
}

fn hex_list(value: &Value) -> Vec<u64> {
    value.as_array().unwrap().iter().map(hex).collect()
}

fn words_of<const N: usize>(value: &Value) -> [u32; N] {
    let list: Vec<u32> = hex_list(value)
        .into_iter()
        .map(|word| word as u32)
        .collect();
    list.try_into().unwrap()
}

fn section<'a>(golden: &'a Value, name: &str) -> &'a Vec<Value> {
    let list = golden[name].as_array().unwrap();
    assert!(!list.is_empty());
    list
}

#[test]
fn golden_known_answers() {
    let golden = golden();
    for case in section(&golden, "kat_random123") {
        let count = case["rounds"].as_u64().unwrap() as u32;
        let out = rounds(count, words_of(&case["ctr"]), words_of(&case["key"]));
        assert_eq!(out, words_of::<4>(&case["out"]));
    }
    for case in section(&golden, "blocks") {
        let out = philox4x32(words_of(&case["ctr"]), words_of(&case["key"]));
        assert_eq!(out, words_of::<4>(&case["out"]));
    }
}

#[test]
fn golden_curand_state() {
    for case in section(&golden(), "curand_state") {
        let [seed, subsequence, offset] =
            ["seed", "subsequence", "offset_words"].map(|key| case[key].as_u64().unwrap());
        let next: Vec<u64> = [0, 4]
            .iter()
            .flat_map(|step| curand_block(seed, subsequence, offset + step))
            .map(u64::from)
            .collect();
        assert_eq!(next, hex_list(&case["next8"]));
    }
}

#[test]
fn golden_uniform_maps() {
    for case in section(&golden(), "uniform_maps") {
        let word = hex(&case["u32"]) as u32;
        assert_eq!(
            u64::from(curand_uniform(word).to_bits()),
            hex(&case["curand_uniform"])
        );
        assert_eq!(
            u64::from(triton_uniform(word).to_bits()),
            hex(&case["triton_rand"])
        );
    }
}

#[test]
fn golden_torch_stateless() {
    for case in section(&golden(), "torch_stateless") {
        let [seed, offset_blocks] = hex_list(&case["key"])[..] else {
            panic!("a key is a pair")
        };
        let key = StatelessKey {
            seed,
            offset_blocks,
        };
        for (index, expected) in hex_list(&case["randint_int32"]).into_iter().enumerate() {
            assert_eq!(u64::from(key.word(index as u64)), expected);
        }
        let top_half = |value: f32| u64::from(value.to_bits() >> 16);
        for (index, expected) in hex_list(&case["uniform_f32"]).into_iter().enumerate() {
            assert_eq!(u64::from(key.uniform_f32(index as u64).to_bits()), expected);
        }
        for (index, expected) in hex_list(&case["uniform_bf16"]).into_iter().enumerate() {
            assert_eq!(top_half(key.uniform_bf16(index as u64)), expected);
        }
        for (index, expected) in hex_list(&case["uniform_f16"]).into_iter().enumerate() {
            let value = half::f16::from_f32(key.uniform_f16(index as u64));
            assert_eq!(u64::from(value.to_bits()), expected);
        }
        for fold in section(case, "fold_in") {
            let folded = key.fold_in(fold["data"].as_u64().unwrap());
            assert_eq!(
                vec![folded.seed, folded.offset_blocks],
                hex_list(&fold["key"])
            );
        }
    }
}

#[test]
fn golden_cuda_dropout_masks() {
    for case in section(&golden(), "cuda_dropout_masks") {
        let [elements, seed, offset, sms, new_offset, kept] =
            ["numel", "seed", "offset", "sms", "new_offset", "kept"]
                .map(|key| case[key].as_u64().unwrap());
        let grid = DropoutGrid {
            elements,
            multiprocessors: sms as u32,
        };
        assert_eq!(offset + grid.offset_words(), new_offset);
        let drop = case["p"].as_f64().unwrap();
        let packed = case["keep_bits_lsb_first_hex"].as_str().unwrap();
        let mut count = 0;
        for index in 0..elements {
            let digit = 2 * (index as usize / 8);
            let byte = u8::from_str_radix(&packed[digit..digit + 2], 16).unwrap();
            let keep = grid.keeps(index, drop, seed, offset);
            assert_eq!(keep, byte >> (index % 8) & 1 == 1, "element {index}");
            count += u64::from(keep);
        }
        assert_eq!(count, kept);
    }
}
