//! Any bytes as the files of a check's own recording: headers, frames, ends. A reason, or a folder
//! that is the same as itself; never a panic.
//!
//! Input: the lengths of `run.json` and of the boundary stream (two bytes each, little-endian), then
//! those two, then the op stream, all of rank 0.
#![no_main]

use bitproof::trace::Folder;
use bitproof::trace::certify::certify;
use bitproof::trace::diff::{Verdict, compare};
use bitproof::trace::timeline::{Extent, TimelineError, draw};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((lengths, rest)) = bytes.split_first_chunk::<4>() else {
        return;
    };
    let [a, b, c, d] = *lengths;
    let cut = |bytes: &[u8], length: [u8; 2]| {
        let length = usize::from(u16::from_le_bytes(length)).min(bytes.len());
        let (part, rest) = bytes.split_at(length);
        (part.to_vec(), rest.to_vec())
    };
    let (run, rest) = cut(rest, [a, b]);
    let (boundary, ops) = cut(&rest, [c, d]);
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("run.json"), run).expect("it is written");
    std::fs::create_dir(folder.path().join("boundary")).expect("it is made");
    for (name, bytes) in [("", ops), ("boundary", boundary)] {
        let file = folder.path().join(name).join("rank_000000.jsonl.zst");
        std::fs::write(file, bytes).expect("it is written");
    }
    let open = || Folder::open(folder.path());
    let found = match open() {
        Ok(found) => found,
        Err(damages) => {
            damages.iter().for_each(|one| drop(one.to_diagnostic().to_plain()));
            return;
        }
    };
    let certificate = certify(&found);
    let reasons = certificate.reasons.iter();
    reasons.for_each(|one| drop(one.to_diagnostic().to_plain()));
    let drawn = draw(&found, |_| true, &Extent::default(), &mut Vec::new());
    if certificate.is_trusted() {
        let is_drawn = !matches!(drawn, Err(TimelineError::Damaged(_)));
        assert!(is_drawn, "what can be trusted is read");
        let again = open().expect("it was there before");
        let verdict = compare(&found, &again, true).verdict;
        assert!([Verdict::Same, Verdict::NothingCompared].contains(&verdict), "{verdict:?}");
    }
});
