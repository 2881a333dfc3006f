//! Where tokens come from: the bytes of a file or of the built-in text.

use std::sync::Arc;

/// A text of our own, so that training needs no file.
pub const BUILT_IN_TEXT: &str = include_str!("corpus.txt");

/// An odd multiplier near 2^64 / golden ratio: spreads consecutive samples over the text.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// Training data. Sample `i` is a pure function of `i`.
#[derive(Clone, Debug)]
pub enum Corpus {
    /// Windows of bytes, scattered over the text.
    Bytes(Arc<[u8]>),
    /// Samples as given, round and round; each has at least one token more than the sequence.
    Samples(Arc<[Vec<u32>]>),
}

/// Data that no sample can be cut from.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CorpusError {
    #[error("a sample needs {need} bytes of data, and there are only {have}")]
    TooShort { have: usize, need: usize },
    #[error("token {token} is outside the vocabulary of {vocabulary}")]
    OutsideVocabulary { token: u32, vocabulary: u32 },
    #[error("there are no samples")]
    Empty,
}

impl Corpus {
    pub fn built_in() -> Corpus {
        Corpus::Bytes(BUILT_IN_TEXT.as_bytes().into())
    }

    /// Checks that every sample has `seq_length + 1` tokens below `vocabulary`.
    pub fn check(&self, seq_length: u32, vocabulary: u32) -> Result<(), CorpusError> {
        let need = seq_length as usize + 1;
        let (shortest, greatest) = match self {
            Corpus::Bytes(bytes) => (bytes.len(), bytes.iter().max().map(|b| u32::from(*b))),
            Corpus::Samples(samples) => (
                samples.iter().map(Vec::len).min().unwrap_or(0),
                samples.iter().flatten().max().copied(),
            ),
        };
        if shortest < need {
            return Err(CorpusError::TooShort {
                have: shortest,
                need,
            });
        }
        match greatest {
            None => Err(CorpusError::Empty),
            Some(token) if token >= vocabulary => {
                Err(CorpusError::OutsideVocabulary { token, vocabulary })
            }
            Some(_) => Ok(()),
        }
    }

    /// Tokens `0..=seq_length` of sample `index`: inputs are all but the last, targets all but the
    /// first.
    pub fn sample(&self, index: u64, seq_length: u32) -> Vec<u32> {
        let need = seq_length as usize + 1;
        match self {
            Corpus::Bytes(bytes) => {
                let windows = (bytes.len() - need + 1) as u64;
                // The high half of a product: even over the windows for any count of them.
                let scattered = u128::from(index.wrapping_mul(SPREAD)) * u128::from(windows);
                let start = (scattered >> 64) as usize;
                bytes[start..start + need]
                    .iter()
                    .map(|byte| u32::from(*byte))
                    .collect()
            }
            Corpus::Samples(samples) => {
                let place = (index % samples.len() as u64) as usize;
                samples[place][..need].to_vec()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_text_is_plain_and_long_enough() {
        assert!(BUILT_IN_TEXT.is_ascii());
        assert!(
            (7_000..12_000).contains(&BUILT_IN_TEXT.len()),
            "{}",
            BUILT_IN_TEXT.len()
        );
        Corpus::built_in().check(512, 256).unwrap();
    }

    #[test]
    fn samples_reach_every_window() {
        let corpus = Corpus::Bytes((0..20u8).collect::<Vec<_>>().into());
        let mut seen = [false; 17];
        for index in 0..200 {
            let sample = corpus.sample(index, 3);
            assert_eq!(sample.len(), 4);
            seen[sample[0] as usize] = true;
        }
        assert!(seen.iter().all(|seen| *seen));
    }

    #[test]
    fn bad_data_is_refused() {
        let short = Corpus::Bytes(vec![1u8; 8].into());
        assert_eq!(
            short.check(8, 256),
            Err(CorpusError::TooShort { have: 8, need: 9 })
        );
        assert!(short.check(7, 256).is_ok());
        assert!(matches!(
            short.check(7, 1),
            Err(CorpusError::OutsideVocabulary { token: 1, .. })
        ));
    }
}
