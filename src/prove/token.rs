//! Replay tokens: one line that names a difference exactly.
//!
//! Layout before encoding, version 1 (a change of any line is a new version, and a line in the
//! changelog):
//! ```text
//! 1 byte    version
//! 5 bytes   scenario: start of its content hash
//! 4 bytes   build: start of the hash over kernels, engine and built-in text
//! 1 byte    variable: place in `Scenario::choice_variables`; `RESTART` for a restart, `RESHARD`
//!           for a resume on another layout, `HAZARD` for a pair that nothing orders, `QUERY` for
//!           the other answer to a question, `ANSWERS` for several such answers together, `TOPO`
//!           for another size or place
//! varint    value: of placement or a configuration, its number; of an arrival order, 1 + the
//!           place of the one pair of neighbours that changes places, or `AS_FOUND`; of a restart,
//!           its list's place; of a resume on another layout, the layout's place; of a hazard or a
//!           query, its place in the reference run's list; of joint answers, their run's number;
//!           of a size or place, its place in `[[topo]]`
//! varint    step; of a restart or such a resume, the cut; of the last four 0
//! varint    owner of the fold: twice the rank, or twice the communicator plus one
//! varint    ordinal of the fold among its owner's of that step
//! varint    element of the fold's output
//! 3 bytes   CRC-24 of all before
//! ```
//! A varint has seven bits a byte, low bits first. The text is Crockford's base 32: no letter that
//! looks like a digit, upper or lower case, hyphens ignored. 31 to 44 characters for every node of
//! runs up to 16,384 steps, 8,192 ranks, 2,097,152 folds a rank and step, and 2^28 elements. A
//! restart, resume and the like have no fold: rank 0's first one and element 0 stand for it.

use crate::prove::session::Session;
use crate::prove::sweep::{Finding, Variable};
use crate::prove::witness;
use crate::world::{NodeId, Owner};

/// Stands in place of a variable for a restart of the RES oracle. The value is the place of its
/// list among the scenario's restarts, and the step the cut that does not come back.
pub const RESTART: u8 = 0xfe;

/// Stands in place of a variable for a resume on another layout. The value is the place of the
/// layout in the scenario's `checkpoint.reshard`, and the step the cut.
pub const RESHARD: u8 = 0xfd;

/// Stands in place of a variable for two accesses that nothing orders, run the other way round.
pub const HAZARD: u8 = 0xfc;

/// Stands in place of a variable for the other answer to a non-blocking query.
pub const QUERY: u8 = 0xfb;

/// Stands in place of a variable for several answers together. The value is the number of their run
/// among those that a check explores, which are the same on every check.
pub const ANSWERS: u8 = 0xf9;

/// Stands in place of a variable for another size or place. The value is its place in `[[topo]]`.
pub const TOPO: u8 = 0xfa;

/// Stands in place of an arrival order's value where no swap of neighbours parts the bits: the
/// order that the sweep itself finds at the node.
pub const AS_FOUND: u32 = 0;

/// The token of a sensitive fold.
pub fn of_finding(session: &Session, finding: &Finding) -> Token {
    Token {
        variable: witness::variable_place(session, finding),
        value: value_of(&finding.variable),
        node: finding.node,
        element: finding.element,
        ..blank(session)
    }
}

/// A token's number for the value that a finding deviates to.
pub fn value_of(variable: &Variable) -> u32 {
    match variable {
        Variable::Placement { value } | Variable::Configuration { value, .. } => *value,
        Variable::Arrival {
            swap: Some(place), ..
        } => place + 1,
        Variable::Arrival { swap: None, .. } => AS_FOUND,
    }
}

/// The token of a restart that does not come back to the straight run.
pub fn of_restart(session: &Session, list: u32, cut: u32) -> Token {
    of_cut(session, RESTART, list, cut)
}

/// The token of a resume on another layout that is not what it should be.
pub fn of_resharding(session: &Session, layout: u32, cut: u32) -> Token {
    of_cut(session, RESHARD, layout, cut)
}

/// The token of a hazard of the straight run, by its place among them.
pub fn of_hazard(session: &Session, place: u32) -> Token {
    of_cut(session, HAZARD, place, 0)
}

/// The token of a query of the straight run, by its place among them.
pub fn of_query(session: &Session, place: u32) -> Token {
    of_cut(session, QUERY, place, 0)
}

/// The token of several answers together, by the number of their run.
pub fn of_answers(session: &Session, number: u32) -> Token {
    of_cut(session, ANSWERS, number, 0)
}

/// The token of another size or place that is not equal.
pub fn of_topo(session: &Session, place: u32) -> Token {
    of_cut(session, TOPO, place, 0)
}

fn of_cut(session: &Session, variable: u8, value: u32, cut: u32) -> Token {
    let node = NodeId {
        step: cut,
        owner: Owner::Rank(0),
        ordinal: 0,
    };
    Token {
        variable,
        value,
        node,
        ..blank(session)
    }
}

fn blank(session: &Session) -> Token {
    let (scenario, build) = (session.scenario.content_hash(), session.build_hash());
    Token {
        scenario: std::array::from_fn(|place| scenario[place]),
        build: std::array::from_fn(|place| build[place]),
        variable: 0,
        value: 0,
        node: NodeId {
            step: 0,
            owner: Owner::Rank(0),
            ordinal: 0,
        },
        element: 0,
    }
}

/// A difference, named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    pub scenario: [u8; 5],
    pub build: [u8; 4],
    pub variable: u8,
    pub value: u32,
    pub node: NodeId,
    pub element: u64,
}

/// Why a token cannot be replayed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    #[error("`{0}` is no character of a token")]
    Character(char),
    #[error("the token is damaged: {0}")]
    Damaged(&'static str),
    #[error("the token has version {found}; this bitproof reads version {VERSION}")]
    Version { found: u8 },
    #[error("the token belongs to another scenario ({token}, not {here}): the file has changed")]
    OtherScenario { token: String, here: String },
    #[error(
        "the token was made by other kernels or another engine ({token}, not {here}): \
         their bits need not be the same"
    )]
    OtherBuild { token: String, here: String },
}

const VERSION: u8 = 1;
const ALPHABET: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
/// Characters of the longest token: 1 + 5 + 4 + 1 + 4 * 5 + 10 + 3 bytes. An owner has 33
/// bits, which five bytes hold.
const CHARS_MAX: usize = 71;
const CHECKSUM_BYTES: usize = 3;

impl Token {
    pub fn encode(&self) -> String {
        let mut bytes = vec![VERSION];
        bytes.extend(self.scenario);
        bytes.extend(self.build);
        bytes.push(self.variable);
        let owner = match self.node.owner {
            Owner::Rank(rank) => u64::from(rank) * 2,
            Owner::Group(group) => u64::from(group) * 2 + 1,
        };
        let (value, step) = (u64::from(self.value), u64::from(self.node.step));
        for number in [
            value,
            step,
            owner,
            u64::from(self.node.ordinal),
            self.element,
        ] {
            push_varint(&mut bytes, number);
        }
        let checksum = crc24(&bytes);
        bytes.extend(&checksum.to_be_bytes()[1..]);
        let text = base32(&bytes);
        debug_assert_eq!(Token::decode(&text), Ok(*self));
        text
    }

    pub fn decode(text: &str) -> Result<Token, TokenError> {
        let bytes = bytes_of(text.trim())?;
        let Some(body_length) = bytes.len().checked_sub(CHECKSUM_BYTES) else {
            return Err(TokenError::Damaged("it is too short"));
        };
        let (body, checksum) = bytes.split_at(body_length);
        if crc24(body).to_be_bytes()[1..] != *checksum {
            return Err(TokenError::Damaged(
                "its checksum does not match; was it copied whole?",
            ));
        }
        let mut rest = Bytes(body);
        let version = rest.take::<1>()?[0];
        if version != VERSION {
            return Err(TokenError::Version { found: version });
        }
        let token = Token {
            scenario: rest.take()?,
            build: rest.take()?,
            variable: rest.take::<1>()?[0],
            value: rest.varint32()?,
            node: rest.node()?,
            element: rest.varint()?,
        };
        match rest.0 {
            [] => Ok(token),
            _ => Err(TokenError::Damaged("something follows its end")),
        }
    }

    /// Refuses a token that was made for another scenario or by another build. The hashes are
    /// those of `Scenario::content_hash` and of the kernels, engine and built-in text.
    pub fn check_fresh(&self, scenario: &[u8; 32], build: &[u8; 32]) -> Result<(), TokenError> {
        self.check_scenario(scenario)?;
        if build[..4] != self.build {
            let (token, here) = (hexadecimal(&self.build), hexadecimal(&build[..4]));
            return Err(TokenError::OtherBuild { token, here });
        }
        Ok(())
    }

    /// The half of [`Token::check_fresh`] that needs no engine.
    pub fn check_scenario(&self, scenario: &[u8; 32]) -> Result<(), TokenError> {
        if scenario[..5] != self.scenario {
            let (token, here) = (hexadecimal(&self.scenario), hexadecimal(&scenario[..5]));
            return Err(TokenError::OtherScenario { token, here });
        }
        Ok(())
    }
}

/// Two digits a byte: how hashes are printed.
pub(super) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn push_varint(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// A cursor over a token's body.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], TokenError> {
        let Some((taken, rest)) = self.0.split_first_chunk::<N>() else {
            return Err(TokenError::Damaged("it ends early"));
        };
        self.0 = rest;
        Ok(*taken)
    }

    fn varint(&mut self) -> Result<u64, TokenError> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let [byte] = self.take()?;
            let bits = u64::from(byte & 0x7f);
            // A last zero byte would be a second way to write the same number.
            let is_padded = byte == 0 && shift > 0;
            if is_padded || (bits << shift) >> shift != bits {
                return Err(TokenError::Damaged("a number is out of range"));
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(TokenError::Damaged("a number is out of range"))
    }

    fn node(&mut self) -> Result<NodeId, TokenError> {
        let step = self.varint32()?;
        let owner = self.varint()?;
        let place = u32::try_from(owner / 2);
        let place = place.map_err(|_| TokenError::Damaged("a number is out of range"))?;
        let owner = if owner % 2 == 0 {
            Owner::Rank(place)
        } else {
            Owner::Group(place)
        };
        let ordinal = self.varint32()?;
        Ok(NodeId {
            step,
            owner,
            ordinal,
        })
    }

    fn varint32(&mut self) -> Result<u32, TokenError> {
        u32::try_from(self.varint()?).map_err(|_| TokenError::Damaged("a number is out of range"))
    }
}

/// The CRC of OpenPGP (RFC 4880 section 6.1). It sees every error burst of up to 24 bits, so any
/// four neighbouring characters of a token may be damaged.
fn crc24(bytes: &[u8]) -> u32 {
    let mut crc = 0x00b7_04ce_u32;
    for byte in bytes {
        crc ^= u32::from(*byte) << 16;
        for _ in 0..8 {
            crc <<= 1;
            if crc & 0x0100_0000 != 0 {
                crc ^= 0x0186_4cfb;
            }
        }
    }
    crc
}

fn base32(bytes: &[u8]) -> String {
    let char_count = (bytes.len() * 8).div_ceil(5);
    let bit = |index: usize| match bytes.get(index / 8) {
        Some(byte) => (byte >> (7 - index % 8)) & 1,
        None => 0,
    };
    (0..char_count)
        .map(|place| {
            let digit = (0..5).fold(0, |digit, k| digit << 1 | bit(place * 5 + k));
            char::from(ALPHABET[usize::from(digit)])
        })
        .collect()
}

fn bytes_of(text: &str) -> Result<Vec<u8>, TokenError> {
    let digits: Vec<u8> = text
        .chars()
        .filter(|c| *c != '-')
        .map(digit_of)
        .collect::<Result<_, _>>()?;
    if digits.len() > CHARS_MAX {
        return Err(TokenError::Damaged("it is too long"));
    }
    let bit = |index: usize| (digits[index / 5] >> (4 - index % 5)) & 1;
    let byte_count = digits.len() * 5 / 8;
    let mut padding = byte_count * 8..digits.len() * 5;
    if padding.len() >= 5 || padding.any(|index| bit(index) != 0) {
        return Err(TokenError::Damaged(
            "its last character is not one that a token ends with",
        ));
    }
    Ok((0..byte_count)
        .map(|place| (0..8).fold(0, |byte, k| byte << 1 | bit(place * 8 + k)))
        .collect())
}

/// Crockford's reading: O is 0, I and L are 1.
fn digit_of(c: char) -> Result<u8, TokenError> {
    let upper = match c.to_ascii_uppercase() {
        'O' => '0',
        'I' | 'L' => '1',
        other => other,
    };
    let place = ALPHABET
        .iter()
        .position(|letter| char::from(*letter) == upper);
    place
        .map(|digit| digit as u8)
        .ok_or(TokenError::Character(c))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tokens() -> impl Strategy<Value = Token> {
        let numbers = (
            any::<u32>(),
            any::<u32>(),
            any::<u32>(),
            any::<u32>(),
            any::<u64>(),
        );
        // Shifted, so that short numbers are as frequent as long ones.
        let shifts = (0u32..32, 0u32..64, any::<bool>());
        let hashes = (any::<[u8; 5]>(), any::<[u8; 4]>());
        (hashes, any::<u8>(), numbers, shifts).prop_map(
            |((scenario, build), variable, numbers, (small, wide, is_local))| {
                let (value, step, place, ordinal, element) = numbers;
                let place = place >> small;
                let owner = if is_local {
                    Owner::Rank(place)
                } else {
                    Owner::Group(place)
                };
                let node = NodeId {
                    step: step >> small,
                    owner,
                    ordinal: ordinal >> small,
                };
                let (value, element) = (value >> small, element >> wide);
                Token {
                    scenario,
                    build,
                    variable,
                    value,
                    node,
                    element,
                }
            },
        )
    }

    proptest! {
        #[test]
        fn a_token_survives_text_in_any_case_and_grouping(token in tokens()) {
            let text = token.encode();
            prop_assert_eq!(Token::decode(&text), Ok(token));
            let grouped: Vec<&str> = (0..text.len()).step_by(5)
                .map(|at| &text[at..text.len().min(at + 5)]).collect();
            prop_assert_eq!(Token::decode(&grouped.join("-").to_lowercase()), Ok(token));
            let confused = text.replace('0', "O").replace('1', "l");
            prop_assert_eq!(Token::decode(&confused), Ok(token));
        }

        #[test]
        fn one_wrong_character_is_always_detected(
            token in tokens(), at in 0usize..80, by in 1u8..32,
        ) {
            let text = token.encode();
            let at = at % text.len();
            let digit = digit_of(char::from(text.as_bytes()[at])).unwrap();
            let wrong = char::from(ALPHABET[usize::from((digit + by) % 32)]);
            let damaged = format!("{}{wrong}{}", &text[..at], &text[at + 1..]);
            prop_assert!(Token::decode(&damaged).is_err());
        }

        #[test]
        fn swapped_neighbours_are_always_detected(token in tokens(), at in 0usize..80) {
            let text = token.encode();
            let at = at % (text.len() - 1);
            let mut swapped: Vec<char> = text.chars().collect();
            swapped.swap(at, at + 1);
            let swapped: String = swapped.into_iter().collect();
            prop_assert!(swapped == text || Token::decode(&swapped).is_err());
        }

        #[test]
        fn no_text_makes_decoding_panic(text in "\\PC{0,90}", letters in "[0-9A-Z]{0,80}") {
            prop_assert!(Token::decode(&text).is_err());
            prop_assert!(Token::decode(&letters).is_err());
        }
    }

    fn token() -> Token {
        let (scenario, build) = ([1, 2, 3, 4, 5], [6, 7, 8, 9]);
        let node = NodeId {
            step: 1,
            owner: Owner::Group(7),
            ordinal: 300,
        };
        Token {
            scenario,
            build,
            variable: 0,
            value: 1,
            node,
            element: 77,
        }
    }

    #[test]
    fn tokens_have_31_to_44_characters_within_the_stated_sizes() {
        let node = |step, owner, ordinal| NodeId {
            step,
            owner,
            ordinal,
        };
        let least = node(0, Owner::Rank(0), 0);
        let least = Token {
            value: 0,
            node: least,
            element: 0,
            ..token()
        };
        assert_eq!(least.encode().len(), 31);
        let most = Token {
            value: 16_383,
            node: node(16_383, Owner::Group(8_191), (1 << 21) - 1),
            element: (1 << 28) - 1,
            ..token()
        };
        assert_eq!(most.encode().len(), 44);
        let max = u32::MAX;
        let node = node(max, Owner::Group(max), max);
        let absurd = Token {
            value: max,
            node,
            element: u64::MAX,
            ..token()
        };
        assert_eq!(absurd.encode().len(), CHARS_MAX);
    }

    #[test]
    fn the_text_of_version_1_is_frozen() {
        assert_eq!(token().encode(), FROZEN);
        assert_eq!(Token::decode(FROZEN), Ok(token()));
    }

    /// Computed by an independent program from the layout above.
    const FROZEN: &str = "040G40R40M30E209000G23XC096KDR93";

    #[test]
    fn the_checksum_is_openpgps() {
        assert_eq!(crc24(b"123456789"), 0x21cf02);
    }

    #[test]
    fn stale_tokens_are_refused_with_the_reason() {
        let (mut scenario, mut build) = ([0; 32], [0; 32]);
        scenario[..5].copy_from_slice(&[1, 2, 3, 4, 5]);
        build[..4].copy_from_slice(&[6, 7, 8, 9]);
        assert_eq!(token().check_fresh(&scenario, &build), Ok(()));
        let stale = token().check_fresh(&[0; 32], &build);
        assert!(matches!(stale, Err(TokenError::OtherScenario { .. })));
        let stale = token().check_fresh(&scenario, &[0; 32]).unwrap_err();
        assert!(
            stale.to_string().contains("06070809, not 00000000"),
            "{stale}"
        );
        let mut bytes = bytes_of(&token().encode()).unwrap();
        bytes[0] = 9;
        let body = bytes.len() - CHECKSUM_BYTES;
        let checksum = crc24(&bytes[..body]);
        bytes[body..].copy_from_slice(&checksum.to_be_bytes()[1..]);
        assert_eq!(
            Token::decode(&base32(&bytes)),
            Err(TokenError::Version { found: 9 })
        );
        assert!(matches!(Token::decode(""), Err(TokenError::Damaged(_))));
    }
}
