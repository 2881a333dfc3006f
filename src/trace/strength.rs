//! How much it shows that two values agree.

use super::op::{Operand, Value};

/// How much agreement shows, weakest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Strength {
    /// Nothing was compared.
    None,
    /// Shapes, types and names only.
    Metadata,
    /// Statistics.
    Summary,
    /// Digests of some elements.
    Sampled,
    /// An XOR of all elements: blind to order, and to many pairs of changes.
    Xor,
    /// Hashes of all bytes.
    Full,
}

impl Strength {
    pub fn slug(self) -> &'static str {
        match self {
            Strength::None => "none",
            Strength::Metadata => "metadata",
            Strength::Summary => "summary",
            Strength::Sampled => "sampled",
            Strength::Xor => "xor",
            Strength::Full => "full",
        }
    }
}

impl Operand<'_> {
    /// What agreement of this operand's digest shows; nothing if it has none.
    pub fn strength(&self) -> Option<Strength> {
        let Value::Digest { digest, bytes64 } = &self.value else {
            return None;
        };
        if self.extra.get("mode") == Some("\"sampled\"") {
            return Some(Strength::Sampled);
        }
        // `torch.hash_tensor` has 64 bits; what is longer hashes bytes in their order.
        let is_xor = digest.len() == XOR_DIGITS && bytes64.is_none() && self.numel > 1;
        Some(match is_xor {
            true => Strength::Xor,
            false => Strength::Full,
        })
    }
}

const XOR_DIGITS: usize = 16;
