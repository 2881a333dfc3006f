//! Content digests: 128 bits of BLAKE3, for comparing what two runs computed.

/// 128 bits of the BLAKE3 hash of some words, little-endian.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Digest(pub [u8; 16]);

impl Digest {
    pub fn of_bytes(bytes: &[u8]) -> Self {
        Digest(first_half(blake3::hash(bytes)))
    }

    /// The digest whose first words, as an engine holds them, are these.
    pub(crate) fn of_root(words: [u32; 4]) -> Self {
        let mut digest = Digest::default();
        for (bytes, word) in digest.0.chunks_exact_mut(4).zip(words) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        digest
    }

    pub fn of_words(words: &[u32]) -> Self {
        Digest::of_bytes(bytemuck::cast_slice(words))
    }

    /// The digest of this one followed by another: a chain tells order.
    pub fn then(self, next: Digest) -> Digest {
        let mut both = [0; 32];
        both[..16].copy_from_slice(&self.0);
        both[16..].copy_from_slice(&next.0);
        Digest::of_bytes(&both)
    }
}

fn first_half(hash: blake3::Hash) -> [u8; 16] {
    let mut half = [0; 16];
    half.copy_from_slice(&hash.as_bytes()[..16]);
    half
}

impl std::fmt::Display for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl std::fmt::Debug for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self}")
    }
}

impl serde::Serialize for Digest {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
