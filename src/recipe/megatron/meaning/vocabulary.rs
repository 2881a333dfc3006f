//! The padded vocabulary (`vocab_size_with_padding`, `megatron/training/utils.py`).

use super::understood::{Derivation, Padding};
use super::values::Values;
use crate::diagnostic::{Diagnostic, Findings};

/// Words of GPT-2's tokenizer, Megatron's default.
const GPT2: u64 = 50_257;

/// Tokenizers whose size does not depend on a file that bitproof does not read.
const SIZES: [(&str, u64); 5] = [
    ("GPT2BPETokenizer", GPT2),
    ("BertWordPieceLowerCase", 30_522),
    ("BertWordPieceCase", 28_996),
    ("Llama2Tokenizer", 32_000),
    ("TikTokenizer", 131_072),
];

const UNIT: &str = "make_vocab_size_divisible_by";

/// The padded size, and how it was found.
pub(super) fn padded(values: &Values<'_>, tp: u32, findings: &mut Findings) -> (u64, Derivation) {
    let derive = |value: u64, reason: String| {
        let derivation = Derivation {
            key: "padded_vocab_size",
            value: value.to_string(),
            reason,
        };
        (value, derivation)
    };
    if let Some(padded) = natural(values, "padded_vocab_size").filter(|size| *size > 0) {
        return derive(padded, "--padded-vocab-size".to_string());
    }
    let (words, source) = words(values, findings);
    if !values.flag("pad_vocab_size") {
        return derive(words, format!("{source}, not padded"));
    }
    let unit = unit(values).unwrap_or_else(|| {
        let place = values.place(UNIT);
        findings.push(
            Diagnostic::error("out-of-range", "a vocabulary in multiples of nothing")
                .at(place, "expected a whole number above 0")
                .with_note("Megatron divides by it (vocab_size_with_padding)")
                .with_help("leave it out: 128 is the default"),
        );
        128
    });
    derive(
        Padding { words, unit }.padded(tp),
        format!("{source}, padded to a multiple of {unit} x tensor_model_parallel_size {tp}"),
    )
}

/// How the vocabulary is padded; nothing where its size is said, or is not padded.
pub(super) fn padding(values: &Values<'_>) -> Option<Padding> {
    let is_said = natural(values, "padded_vocab_size").is_some_and(|size| size > 0);
    if is_said || !values.flag("pad_vocab_size") {
        return None;
    }
    let (words, _) = words(values, &mut Findings::default());
    let unit = unit(values)?;
    Some(Padding { words, unit })
}

fn natural(values: &Values<'_>, dest: &str) -> Option<u64> {
    values.integer(dest).and_then(|n| u64::try_from(n).ok())
}

fn unit(values: &Values<'_>) -> Option<u64> {
    natural(values, UNIT).filter(|unit| *unit > 0)
}

/// The words of the tokenizer with those that are added, before padding.
fn words(values: &Values<'_>, findings: &mut Findings) -> (u64, String) {
    let (size, source) = size(values, findings);
    let extra = natural(values, "vocab_extra_ids").filter(|_| has_extra_ids(values));
    (size.saturating_add(extra.unwrap_or(0)), source)
}

/// Whether the tokenizer takes `--vocab-extra-ids`: the legacy ones of these kinds
/// (`megatron/training/tokenizer/tokenizer.py`), and none that `build_tokenizer` of
/// `megatron/core/tokenizers` makes.
pub(super) fn has_extra_ids(values: &Values<'_>) -> bool {
    const WITH: [&str; 3] = [
        "BertWordPieceLowerCase",
        "BertWordPieceCase",
        "SentencePieceTokenizer",
    ];
    let tokenizer = values.text("tokenizer_type");
    values.flag("legacy_tokenizer") && tokenizer.is_some_and(|kind| WITH.contains(&kind))
}

/// Tokenizers that take their size from `--vocab-size`. Others do not read it (`build_tokenizer`).
const SAID: [&str; 2] = ["NullTokenizer", "TikTokenizer"];

/// What a tokenizer adds to its `--vocab-size`. The legacy `NullTokenizer` adds an end of
/// documents; since `--null-tokenizer-eod-id` that is one of the words
/// (`megatron/core/tokenizers/text/libraries/null_tokenizer.py`).
fn added(tokenizer: &str, values: &Values<'_>) -> u64 {
    // A log of an older version shows no such argument.
    let is_log = values.resolved("vocab_size").is_some();
    let is_old = is_log && values.setting("null_tokenizer_eod_id").is_none();
    let adds = values.flag("legacy_tokenizer") || is_old;
    u64::from(tokenizer == "NullTokenizer" && adds)
}

fn size(values: &Values<'_>, findings: &mut Findings) -> (u64, String) {
    let said = natural(values, "vocab_size");
    let Some(tokenizer) = values.text("tokenizer_type") else {
        return (
            GPT2,
            format!("GPT2BPETokenizer's {GPT2} words, the default of pretrain_gpt.py"),
        );
    };
    let is_said = SAID.contains(&tokenizer);
    if let (true, Some(size)) = (is_said, said) {
        let (more, shown) = match added(tokenizer, values) {
            0 => (0, String::new()),
            more => (more, format!(" + {more}")),
        };
        return (
            size.saturating_add(more),
            format!("{tokenizer}'s --vocab-size {size}{shown}"),
        );
    }
    if let Some((_, size)) = SIZES.iter().find(|(name, _)| *name == tokenizer) {
        let has_file = ["vocab_file", "tokenizer_model"].into_iter();
        let open = match has_file.into_iter().any(|dest| values.is_given(dest)) {
            true => ", if its files are the usual ones: they are not read",
            false => "",
        };
        return (*size, format!("{tokenizer}'s {size} words{open}"));
    }
    let message = match is_said {
        true => format!("{tokenizer} takes its size from `--vocab-size`, which is not given"),
        false => format!("the size of the vocabulary stands in {tokenizer}'s files"),
    };
    findings.push(
        Diagnostic::warning("assumed-vocabulary", message)
            .at(
                values.place("tokenizer_type"),
                format!("{GPT2} words assumed"),
            )
            .with_help("say it: `--padded-vocab-size N`"),
    );
    (
        GPT2,
        format!("{GPT2} words assumed, {tokenizer}'s files are not read"),
    )
}
