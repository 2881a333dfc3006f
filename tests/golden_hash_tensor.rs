//! `torch.hash_tensor` against what PyTorch 2.15 itself gave: `golden/hash_tensor.json`.

use bitproof::trace::hash_tensor::{Dialect, Element, hash, hash_over};
use serde_json::Value;

fn cases() -> Vec<Value> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/hash_tensor.json");
    let text = std::fs::read_to_string(path).expect("it is part of the tree");
    let golden: Value = serde_json::from_str(&text).expect("JSON");
    golden["cases"].as_array().expect("cases").clone()
}

fn numbers(value: &Value) -> Vec<usize> {
    let list = value.as_array().expect("a list").iter();
    list.map(|one| one.as_u64().expect("a size") as usize)
        .collect()
}

/// The tensor's elements in row-major order: what `contiguous()` gives.
fn contiguous(case: &Value, element: Element) -> Vec<u8> {
    let hex = case["storage_hex"].as_str().expect("hex");
    let digits: Vec<u32> = hex.chars().map(|c| c.to_digit(16).expect("hex")).collect();
    let storage: Vec<u8> = digits
        .chunks(2)
        .map(|pair| (pair[0] * 16 + pair[1]) as u8)
        .collect();
    let Some(_) = case.get("stride") else {
        return storage;
    };
    let (shape, stride) = (numbers(&case["shape"]), numbers(&case["stride"]));
    let offset = case["storage_offset"].as_u64().unwrap_or(0) as usize;
    let count: usize = shape.iter().product();
    let size = element.bytes();
    let mut bytes = Vec::new();
    for index in 0..count {
        let (mut rest, mut at) = (index, offset);
        for (size, stride) in shape.iter().zip(&stride).rev() {
            at += rest % size * stride;
            rest /= size;
        }
        bytes.extend(&storage[at * size..][..size]);
    }
    bytes
}

#[test]
fn every_case_has_torchs_hash() {
    let cases = cases();
    assert!(cases.len() >= 125);
    for case in &cases {
        let name = &case["name"];
        let element = Element::named(case["dtype"].as_str().expect("a name")).expect("known");
        let bytes = contiguous(case, element);
        let shape = numbers(&case["shape"]);
        let dims: Vec<i64> = match &case["dim"] {
            Value::Null => Vec::new(),
            Value::Array(dims) => dims
                .iter()
                .map(|dim| dim.as_i64().expect("a dim"))
                .collect(),
            dim => vec![dim.as_i64().expect("a dim")],
        };
        let keepdim = case["keepdim"].as_bool().expect("a flag");
        let found = hash_over(element, &shape, &bytes, &dims, keepdim);
        if case.get("error").is_some() {
            assert!(found.is_err(), "{name}");
            continue;
        }
        let (out_shape, hashes) = found.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(out_shape, numbers(&case["out_shape"]), "{name}");
        let texts: Vec<Value> = hashes
            .iter()
            .map(|hash| format!("{hash:016x}").into())
            .collect();
        assert_eq!(
            &texts,
            case["expected"].as_array().expect("a list"),
            "{name} {case}"
        );
        if dims.is_empty() {
            assert_eq!(
                hash(Dialect::Torch, element, &bytes),
                Ok(hashes[0]),
                "{name}"
            );
        }
    }
}

/// The three rules part on the same bytes, as they are said to.
#[test]
fn dialects_differ_where_they_do() {
    let all = [Dialect::Torch, Dialect::SignedView, Dialect::DebugMode];
    let hashes = |element, bytes: &[u8]| all.map(|dialect| hash(dialect, element, bytes).ok());
    let ones = u64::MAX;
    assert_eq!(
        hashes(Element::Uint8, &[0xff]),
        [Some(0xff), Some(ones), Some(0xff)]
    );
    assert_eq!(
        hashes(Element::Uint16, &[0xff, 0xff]),
        [None, Some(ones), Some(0xffff)]
    );
    assert_eq!(hashes(Element::Int8, &[0xff]), [Some(ones); 3]);
    // 1.0, 448 and -1.5 in E4M3; 2.0 in E5M2.
    let e4m3 = |code: u8| hashes(Element::Float8E4m3fn, &[code]);
    assert_eq!(e4m3(0x38), [None, Some(0x38), Some(1)]);
    assert_eq!(e4m3(0x7e), [None, Some(0x7e), Some(448)]);
    assert_eq!(e4m3(0xbc), [None, Some(0xbc | !0xff), Some(-1i64 as u64)]);
    assert_eq!(
        hashes(Element::Float8E5m2, &[0x40]),
        [None, Some(0x40), Some(2)]
    );
    assert_eq!(hashes(Element::Float32, &[]), [None, Some(0), Some(0)]);
    let two = [1.0f32, 2.0].map(f32::to_le_bytes).concat();
    assert_eq!(
        hashes(Element::Float32, &two),
        [Some(0x7ff0_0000_0000_0000); 3]
    );
    assert!(hash(Dialect::Torch, Element::Float32, &[0; 3]).is_err());
}

/// Every float16 and bfloat16 pattern, against the widening that Rust's own conversion has where
/// the value is no NaN.
#[test]
fn short_floats_are_widened_exactly() {
    for bits in 0..=u16::MAX {
        let bytes = bits.to_le_bytes();
        for (element, value) in [
            (Element::Float16, half::f16::from_bits(bits).to_f64()),
            (Element::Bfloat16, half::bf16::from_bits(bits).to_f64()),
        ] {
            let found = hash(Dialect::Torch, element, &bytes).expect("it is implemented");
            match value.is_nan() {
                false => assert_eq!(found, value.to_bits(), "{element:?} {bits:04x}"),
                true => assert!(f64::from_bits(found).is_nan() && found >> 51 & 1 == 1),
            }
        }
    }
}
