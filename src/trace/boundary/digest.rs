//! The SHA-256 of a tensor (pull request 6610): over a header, a zero byte, and the elements.

use sha2::{Digest, Sha256};

/// The digest of `bytes`, the captured elements in row-major order and little-endian, in lower-case
/// hex. `sampled` has the indices of mode `sampled`, nothing in mode `full`.
pub fn sha256(dtype: &str, shape: &[u64], sampled: Option<&[u64]>, bytes: &[u8]) -> String {
    let list = |numbers: &[u64]| {
        let texts = numbers.iter().map(u64::to_string);
        texts.collect::<Vec<_>>().join(",")
    };
    let dtype = serde_json::to_string(dtype).expect("a string has a JSON form");
    let (mode, indices) = match sampled {
        Some(indices) => (
            "sampled",
            format!("\"sample_indices\":[{}],", list(indices)),
        ),
        None => ("full", String::new()),
    };
    let shape = list(shape);
    let header = format!(
        "{{\"dtype\":{dtype},\"mode\":\"{mode}\",{indices}\"schema_version\":1,\
         \"shape\":[{shape}]}}"
    );
    let mut hash = Sha256::new();
    hash.update(header);
    hash.update([0]);
    hash.update(bytes);
    hash.finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// Which elements are captured: `count` of `numel`, evenly.
pub(super) fn sample_indices(numel: u64, count: u64) -> impl Iterator<Item = u64> {
    let last = u128::from(numel.saturating_sub(1));
    let parts = u128::from(count.saturating_sub(1).max(1));
    (0..count).map(move |i| (u128::from(i) * last / parts) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn f32s(values: &[f32]) -> Vec<u8> {
        values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect()
    }

    /// Computed with Python's hashlib from the request's rule.
    #[test]
    fn digests_are_those_of_the_format() {
        let full = sha256("float32", &[2], None, &f32s(&[1.0, 2.0]));
        assert_eq!(
            full,
            "1190c2ff6137a974acc4e1dcb9e7752a66901d1d258d8d72079d3a34608b01a3"
        );
        let indices: Vec<u64> = sample_indices(5, 3).collect();
        assert_eq!(indices, [0, 2, 4]);
        let sampled = sha256("float32", &[5], Some(&indices), &f32s(&[0.0, 2.0, 4.0]));
        assert_eq!(
            sampled,
            "b6a93aff8a892f2cb963a437aa40c43c6ed87ded19413256f235f70f80ccc323"
        );
        let scalar = sha256("float32", &[], None, &f32s(&[0.5]));
        assert_eq!(
            scalar,
            "81bed3e8825fb618145eef83d2270ca8513d2ab6af93e4f0b3211bb3ae37a8d5"
        );
    }

    #[test]
    fn samples_are_even_and_one_is_the_first() {
        assert_eq!(sample_indices(10, 1).collect::<Vec<_>>(), [0]);
        assert_eq!(sample_indices(10, 4).collect::<Vec<_>>(), [0, 3, 6, 9]);
        assert_eq!(sample_indices(u64::MAX, 2).last(), Some(u64::MAX - 1));
        assert_eq!(sample_indices(0, 0).count(), 0);
    }
}
