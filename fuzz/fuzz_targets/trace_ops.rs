//! Any bytes, read as both streams of a trace: a reason with a place, or a record; never a panic.
#![no_main]

use std::sync::Arc;

use bitproof::trace::boundary::Boundary;
use bitproof::trace::convert::{op_line, op_of_boundary};
use bitproof::trace::damage::Whereabouts;
use bitproof::trace::header::Header;
use bitproof::trace::lines::{Limits, Lines};
use bitproof::trace::op::Record;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let limits = Limits {
        line_bytes: 1 << 16,
        ..Limits::default()
    };
    let mut lines = Lines::of_bytes("rank_0.jsonl", bytes.to_vec(), limits);
    while let Ok(true) = lines.ready() {
        one(&lines.whereabouts());
        lines.advance();
    }
});

fn one(here: &Whereabouts<'_>) {
    match Record::read(here) {
        Ok(record) => {
            // What is written is read as the same record, and its header says what it says.
            let line = op_line(&record, record.seq);
            let file = Arc::from("again");
            let again = Whereabouts {
                file: &file,
                bytes: line.as_bytes(),
                ..*here
            };
            let again = Record::read(&again).expect("a record that was written");
            assert_eq!(format!("{record:?}"), format!("{again:?}"));
            if let Some(header) = Header::scan(here.bytes) {
                assert_eq!((header.seq, header.rank), (record.seq, record.rank));
                assert_eq!((header.iteration, header.kind), (record.iteration, &*record.kind));
            }
        }
        Err(damage) => drop(damage.to_diagnostic().to_plain()),
    }
    match Boundary::read(here) {
        Ok(record) => drop(op_of_boundary(&record, 0)),
        Err(damage) => drop(damage.to_diagnostic().to_plain()),
    }
}
