use std::sync::Arc;

use super::*;

const TENSOR: &str = "{\"event\":\"tensor\",\"iteration\":1,\"metadata\":{\"tp\":0},\
    \"microbatch\":0,\"name\":\"decoder.layer0.input\",\"occurrence\":0,\"phase\":\"forward\",\
    \"rank\":3,\"schema_version\":1,\"sequence\":7,\"tensor\":{\"all_finite\":true,\
    \"captured_numel\":2,\"device_type\":\"cuda\",\"dtype\":\"float32\",\
    \"exact_value_certificate\":true,\"layout\":\"strided\",\"mode\":\"full\",\"numel\":2,\
    \"requires_grad\":false,\"sha256\":\
    \"1190c2ff6137a974acc4e1dcb9e7752a66901d1d258d8d72079d3a34608b01a3\",\"shape\":[2],\
    \"stride\":[1],\"value_observed\":true}}";

const EVENT: &str = "{\"event\":\"event\",\"fields\":{\"value\":0.5},\"iteration\":null,\
    \"microbatch\":null,\"name\":\"loss.lm loss\",\"occurrence\":0,\"phase\":\"train\",\"rank\":0,\
    \"schema_version\":1,\"sequence\":0}";

fn read(line: &str) -> Result<String, Damage> {
    let file: Arc<str> = Arc::from("x");
    let here = Whereabouts {
        file: &file,
        line: 1,
        offset: 0,
        bytes: line.as_bytes(),
    };
    Boundary::read(&here).map(|record| serde_json::to_string(&record).unwrap())
}

#[test]
fn what_is_read_is_written_as_it_was() {
    for line in [TENSOR, EVENT] {
        assert_eq!(read(line).unwrap(), line);
    }
}

#[test]
fn what_the_validator_refuses_is_refused() {
    for (from, to) in [
        ("\"schema_version\":1", "\"schema_version\":2"),
        ("\"iteration\":1,", ""),
        ("\"iteration\":1,", "\"iteration\":-1,"),
        ("\"iteration\":1,", "\"iteration\":1.5,"),
        ("\"iteration\":1,", "\"iteration\":NaN,"),
        ("\"iteration\":1,", "\"iteration\":1,\"iteration\":1,"),
        ("\"microbatch\":0,", ""),
        ("{\"tp\":0}", "[]"),
        ("{\"tp\":0}", "{\"tp\":0,\"tp\":1}"),
        ("{\"tp\":0}", "{\"a\":[{\"b\":1,\"b\":1}]}"),
        ("{\"tp\":0}", "null"),
        ("\"decoder.layer0.input\"", "\"\""),
        ("\"decoder.layer0.input\"", "\"a\\u0007\""),
        ("\"event\":\"tensor\"", "\"event\":\"event\""),
        ("\"event\":\"tensor\"", "\"event\":\"other\""),
        ("\"event\":\"tensor\"", "\"event\":\"tensor\",\"fields\":{}"),
        ("\"event\":\"tensor\"", "\"event\":\"tensor\",\"extra\":0"),
        ("\"numel\":2", "\"numel\":3"),
        ("\"captured_numel\":2", "\"captured_numel\":1"),
        ("\"mode\":\"full\"", "\"mode\":\"sampled\""),
        ("\"mode\":\"full\"", "\"mode\":\"metadata\""),
        ("\"mode\":\"full\"", "\"mode\":\"summary\""),
        ("\"mode\":\"full\"", "\"mode\":\"whole\""),
        ("\"value_observed\":true", "\"value_observed\":false"),
        (
            "\"exact_value_certificate\":true",
            "\"exact_value_certificate\":false",
        ),
        ("\"all_finite\":true,", ""),
        ("\"stride\":[1],", ""),
        ("\"1190c2", "\"1190C2"),
        ("\"1190c2", "\"90c2"),
        ("\"shape\":[2]", "\"sample_indices\":[0,1],\"shape\":[2]"),
        ("}}", "}"),
        ("}}", "}}x"),
    ] {
        let line = TENSOR.replace(from, to);
        assert_ne!(line, TENSOR, "{from}");
        assert!(read(&line).is_err(), "{from} -> {to}");
    }
    assert!(read(&EVENT.replace("{\"value\":0.5}", "1")).is_err());
    assert!(read(&EVENT.replace("0.5", "Infinity")).is_err());
}

#[test]
fn every_mode_has_its_own_fields() {
    let digest = TENSOR
        .find("\"all_finite\":true,\"captured_numel\":2,")
        .unwrap();
    assert!(digest > 0);
    let sampled = TENSOR
        .replace("\"mode\":\"full\"", "\"mode\":\"sampled\"")
        .replace(
            "\"exact_value_certificate\":true",
            "\"exact_value_certificate\":false",
        )
        .replace("\"captured_numel\":2", "\"captured_numel\":3")
        .replace("\"numel\":2", "\"numel\":5")
        .replace("\"shape\":[2]", "\"shape\":[5]");
    let with = |indices: &str| sampled.replace("\"sha256\"", &format!("{indices}\"sha256\""));
    assert!(read(&with("\"sample_indices\":[0,2,4],")).is_ok());
    assert!(read(&with("\"sample_indices\":[0,1,4],")).is_err());
    assert!(read(&with("\"sample_indices\":[0,4],")).is_err());
    let bare = TENSOR
        .replace("\"all_finite\":true,\"captured_numel\":2,", "")
        .replace(
            "\"exact_value_certificate\":true",
            "\"exact_value_certificate\":false",
        );
    let start = bare.find("\"sha256\"").unwrap();
    let end = bare.find("\"shape\"").unwrap();
    let bare = [&bare[..start], &bare[end..]].concat();
    let metadata = bare
        .replace("\"mode\":\"full\"", "\"mode\":\"metadata\"")
        .replace("\"value_observed\":true", "\"value_observed\":false");
    assert!(read(&metadata).is_ok(), "{:?}", read(&metadata));
    let summary = "\"summary\":{\"all_finite\":true,\"l2_norm\":2.5,\"maximum\":2,\"mean\":1.5,\
        \"minimum\":1},";
    let summary = bare
        .replace("\"mode\":\"full\"", "\"mode\":\"summary\"")
        .replace(
            "\"value_observed\"",
            &format!("{summary}\"value_observed\""),
        );
    assert!(read(&summary).is_ok(), "{:?}", read(&summary));
    assert!(read(&summary.replace("\"all_finite\":true", "\"all_finite\":false")).is_err());
}
