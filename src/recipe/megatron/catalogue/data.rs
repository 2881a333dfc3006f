//! Arguments of data, tokenizer and evaluation (`_add_data_args`, `TokenizerConfig`,
//! `ValidationConfig`).

use super::Feature::{EncoderDecoder, FillInTheMiddle, Sft};
use super::argument::{Argument, Effect::*, Kind::*, arg, default_on, flag, negation};

const TEXT: super::Effect = Replaced(
    "bitproof trains on a text of its own, or on that of `data`: other text gives other values, \
     and the same orders of sums",
);
const LOADER: super::Effect =
    NoBits("how files are read, not what is in them (megatron/core/datasets)");
const EVALUATION: super::Effect = NoBits(
    "evaluation runs without gradients, dropout or updates, on another data set (training.py: \
     evaluate)",
);
const TOKENIZER: super::Effect =
    Replaced("bitproof reads bytes; of the tokenizer it takes the size of the vocabulary");
const FIM: super::Effect = Part(FillInTheMiddle);

pub(super) const ARGUMENTS: &[Argument] = &[
    arg("seq-length", Int, "", Used("the model's shape")),
    arg(
        "encoder-seq-length",
        Int,
        "",
        Used("the sequence length, where --seq-length is not given"),
    ),
    arg(
        "decoder-seq-length",
        Int,
        "",
        Needs("an encoder-decoder model"),
    ),
    arg("data-path", Texts, "", TEXT),
    arg("train-data-path", Texts, "", TEXT),
    arg("valid-data-path", Texts, "", EVALUATION),
    arg("test-data-path", Texts, "", EVALUATION),
    arg("data-args-path", Text, "", TEXT),
    arg("per-split-data-args-path", Text, "", TEXT),
    arg("per-dataset-sequences-path", Text, "", LOADER),
    arg("data-cache-path", Text, "", LOADER),
    arg("split", Text, "", TEXT),
    flag("mock-data", TEXT),
    arg("sample-rate", Float, "1.0", TEXT),
    arg(
        "dataloader-type",
        Word(&["single", "cyclic", "external"]),
        "",
        TEXT,
    ),
    arg("mid-level-dataset-surplus", Float, "0.005", TEXT),
    arg("num-workers", Int, "2", LOADER),
    arg("num-dataset-builder-threads", Int, "1", LOADER),
    negation("no-mmap-bin-files", "mmap_bin_files", LOADER),
    arg("object-storage-cache-path", Text, "", LOADER).also(&["s3-cache-path"]),
    arg("dataloader-save", Text, "", LOADER),
    flag("legacy-tokenizer", TOKENIZER),
    flag("dataloader-fast-cache-load", LOADER),
    flag("dataloader-defer-npy-index-mmap", LOADER),
    flag("enable-msc", LOADER),
    flag("disable-msc", LOADER).dest_of("disable_msc_deprecated"),
    negation(
        "no-create-attention-mask-in-dataloader",
        "create_attention_mask_in_dataloader",
        NoBits("the causal mask is made by the loader or by the attention: the same mask"),
    ),
    flag("reset-position-ids", Needs("document boundaries")),
    flag("reset-attention-mask", Needs("document boundaries")),
    flag(
        "dataloader-inter-document-masking",
        Needs("document boundaries"),
    ),
    flag("eod-mask-loss", Needs("masked losses")),
    flag("allow-ambiguous-pad-tokens", TEXT),
    arg("mask-prob", Float, "0.15", Part(EncoderDecoder)),
    arg("short-seq-prob", Float, "0.1", Part(EncoderDecoder)),
    flag("fim-data", Needs("fill-in-the-middle data")),
    arg("fim-rate", Float, "0.5", FIM),
    arg("fim-spm-rate", Float, "0.5", FIM),
    arg("fim-split-sample", Text, "", FIM),
    arg("fim-fragment-rate", Float, "", FIM),
    arg("fim-no-prefix", Text, "", FIM),
    arg("fim-prefix-token", Text, "<fim_prefix>", FIM),
    arg("fim-middle-token", Text, "<fim_middle>", FIM),
    arg("fim-suffix-token", Text, "<fim_suffix>", FIM),
    arg("fim-pad-token", Text, "<fim_pad>", FIM),
    arg("fim-eod-token", Text, "<|endoftext|>", FIM),
    flag("sft", Needs("supervised fine-tuning data")),
    arg(
        "sft-tokenizer-prompt-format",
        Text,
        "nemotron-h-aligned",
        Part(Sft),
    ),
    arg("sft-mock-dataset-config-json", Text, "", Part(Sft)),
    // Tokenizer.
    arg(
        "tokenizer-type",
        Word(&[
            "BertWordPieceLowerCase",
            "BertWordPieceCase",
            "GPT2BPETokenizer",
            "SentencePieceTokenizer",
            "GPTSentencePieceTokenizer",
            "HuggingFaceTokenizer",
            "Llama2Tokenizer",
            "TikTokenizer",
            "MultimodalTokenizer",
            "NullTokenizer",
            "NullMultimodalTokenizer",
            "SFTTokenizer",
        ]),
        "",
        TOKENIZER,
    ),
    arg("tokenizer-model", Text, "", TOKENIZER),
    arg("tokenizer-metadata", Text, "", TOKENIZER).dest_of("metadata_path"),
    arg("tokenizer-special-tokens", Texts, "", TOKENIZER).dest_of("special_tokens"),
    arg("tiktoken-pattern", Word(&["v1", "v2"]), "", TOKENIZER),
    arg("tiktoken-num-special-tokens", Int, "1000", TOKENIZER),
    arg("tiktoken-special-tokens", Texts, "", TOKENIZER),
    flag("tokenizer-sentencepiece-legacy", TOKENIZER),
    default_on(
        "tokenizer-sentencepiece-ignore-extra-whitespaces",
        TOKENIZER,
    ),
    flag("tokenizer-hf-no-use-fast", TOKENIZER),
    flag("tokenizer-hf-use-fast", TOKENIZER),
    flag("tokenizer-hf-no-include-special-tokens", TOKENIZER),
    flag("tokenizer-hf-include-special-tokens", TOKENIZER),
    flag("trust-remote-code", TOKENIZER),
    arg("null-tokenizer-eod-id", Int, "", TOKENIZER),
    arg("null-tokenizer-pad-id", Int, "-1", TOKENIZER),
    arg("chat-template", Text, "", TOKENIZER),
    arg("vocab-file", Text, "", TOKENIZER),
    arg("merge-file", Text, "", TOKENIZER),
    arg(
        "vocab-extra-ids",
        Int,
        "0",
        Used("the padded vocabulary of a BertWordPiece or SentencePiece tokenizer"),
    ),
    arg("vocab-size", Int, "", Used("the padded vocabulary")),
    arg("padded-vocab-size", Int, "", Used("the padded vocabulary")),
    default_on("pad-vocab-size", Used("the padded vocabulary")),
    // Evaluation.
    arg("eval-iters", Int, "100", EVALUATION),
    arg("eval-interval", Int, "", EVALUATION),
    arg("start-eval-at-iter", Int, "", EVALUATION),
    arg("eval-global-batch-size", Int, "", EVALUATION),
    arg("eval-micro-batch-size", Int, "", EVALUATION),
    flag("full-validation", EVALUATION),
    flag("multiple-validation-sets", EVALUATION),
    arg("validation-set-names", Texts, "", EVALUATION),
    flag("skip-train", Needs("a run without training")),
];
