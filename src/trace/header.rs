//! The start of a record in the order in which recorders write it, read without the rest.

/// What stands before a record's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header<'a> {
    pub seq: u64,
    pub rank: u64,
    pub iteration: Option<u64>,
    pub kind: &'a str,
}

impl<'a> Header<'a> {
    /// Reads the header of a line that has the usual form; nothing of any other line, which a
    /// parser must read. Keys that come twice within the payload are not seen here.
    pub fn scan(line: &'a [u8]) -> Option<Header<'a>> {
        let rest = line.strip_prefix(b"{\"schema_version\":1,\"seq\":")?;
        let (seq, rest) = number(rest)?;
        let (rank, rest) = number(rest.strip_prefix(b",\"rank\":")?)?;
        let (iteration, rest) = optional(rest.strip_prefix(b",\"iteration\":")?)?;
        let (_, rest) = optional(rest.strip_prefix(b",\"microbatch\":")?)?;
        let (_, rest) = text(rest.strip_prefix(b",\"phase\":\"")?)?;
        let (kind, rest) = text(rest.strip_prefix(b",\"kind\":\"")?)?;
        rest.strip_prefix(b",\"name\":\"")?;
        if !line.ends_with(b"}}") || kind.is_empty() {
            return None;
        }
        Some(Header {
            seq,
            rank,
            iteration,
            kind: std::str::from_utf8(kind).ok()?,
        })
    }
}

fn number(text: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0u64;
    let mut at = 0;
    while let Some(digit) = text.get(at).filter(|byte| byte.is_ascii_digit()) {
        value = value
            .checked_mul(10)?
            .checked_add(u64::from(digit - b'0'))?;
        at += 1;
    }
    let is_padded = at > 1 && text[0] == b'0';
    (at > 0 && !is_padded).then(|| (value, &text[at..]))
}

fn optional(text: &[u8]) -> Option<(Option<u64>, &[u8])> {
    match text.strip_prefix(b"null") {
        Some(rest) => Some((None, rest)),
        None => number(text).map(|(value, rest)| (Some(value), rest)),
    }
}

/// A short string without escapes, and what follows its end.
fn text(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let shown = &text[..text.len().min(64)];
    let end = shown
        .iter()
        .position(|byte| matches!(byte, b'"' | b'\\' | 0..=31))?;
    (text[end] == b'"').then(|| (&text[..end], &text[end + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::damage::Whereabouts;
    use crate::trace::op::Record;

    const LINE: &str = "{\"schema_version\":1,\"seq\":19,\"rank\":2,\"iteration\":null,\
        \"microbatch\":0,\"phase\":\"\",\"kind\":\"op\",\"name\":\"a\",\
        \"payload\":{\"id\":\"a:0\"}}";

    #[test]
    fn a_header_says_what_the_parser_says() {
        let file = "x".into();
        let here = Whereabouts {
            file: &file,
            line: 1,
            offset: 0,
            bytes: LINE.as_bytes(),
        };
        let record = Record::read(&here).unwrap();
        let header = Header::scan(LINE.as_bytes()).unwrap();
        assert_eq!((header.seq, header.rank), (record.seq, record.rank));
        assert_eq!(
            (header.iteration, header.kind),
            (record.iteration, &*record.kind)
        );
    }

    #[test]
    fn any_other_form_is_left_to_the_parser() {
        for (from, to) in [
            ("\"seq\":19", "\"seq\": 19"),
            ("\"seq\":19", "\"seq\":019"),
            ("\"seq\":19", "\"seq\":99999999999999999999"),
            ("\"seq\":19", "\"seq\":NaN"),
            ("version\":1", "version\":2"),
            ("\"op\"", "\"o\\u0070\""),
            ("\"op\"", "\"\""),
            ("}}", "}"),
        ] {
            let other = LINE.replace(from, to);
            assert_eq!(Header::scan(other.as_bytes()), None, "{other}");
        }
        for end in 0..LINE.len() {
            assert_eq!(Header::scan(&LINE.as_bytes()[..end]), None);
        }
    }
}
