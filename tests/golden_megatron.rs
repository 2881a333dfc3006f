//! Process groups, buckets and pipeline schedules against the real megatron-core 0.19.2.

use std::collections::BTreeMap;

use bitproof::job::{
    BucketOptions, Buffer, DataParallelSizes, GroupKind, Layout, LayoutError, Param,
    PipelineOptions, Storage, Work, bucket_groups, buffers, groups, pipeline_schedule,
    schedule_table,
};
use golden::golden;
use serde_json::Value;

#[path = "support/golden.rs"]
mod golden;
#[path = "support/sha256.rs"]
mod sha256;

fn list(value: &Value) -> &[Value] {
    value.as_array().expect("a list")
}

fn number(value: &Value) -> u32 {
    value
        .as_u64()
        .unwrap_or_else(|| panic!("a number: {value}")) as u32
}

fn optional(value: &Value) -> Option<u32> {
    value.as_u64().map(|number| number as u32)
}

fn flag(value: &Value) -> bool {
    value.as_bool().unwrap_or(false)
}

fn layout(case: &Value) -> Layout {
    let levels = case["hcp"].as_array().map_or(&[][..], Vec::as_slice);
    Layout {
        world: number(&case["world"]),
        tensor_model_parallel_size: number(&case["tp"]),
        pipeline_model_parallel_size: number(&case["pp"]),
        virtual_pipeline_model_parallel_size: optional(&case["vpp"]),
        context_parallel_size: number(&case["cp"]),
        hierarchical_context_parallel_sizes: levels.iter().map(number).collect(),
        hybrid_context_parallel: flag(&case["hybrid_cp"]),
        expert_model_parallel_size: number(&case["ep"]),
        expert_tensor_parallel_size: optional(&case["etp"]),
        num_distributed_optimizer_instances: number(&case["instances"]),
        order: case["order"].as_str().expect("a text").to_owned(),
    }
}

fn kind(name: &str) -> GroupKind {
    let size = |prefix: &str| name.strip_prefix(prefix)?.parse().ok();
    match name {
        "dp_cp" => GroupKind::DpCp,
        "intra_dp_cp" => GroupKind::IntraDpCp,
        "dp" => GroupKind::Dp,
        "cp" => GroupKind::Cp,
        "mp" => GroupKind::Mp,
        "tp" => GroupKind::Tp,
        "pp" => GroupKind::Pp,
        "embd" => GroupKind::Embd,
        "pos_embd" => GroupKind::PosEmbd,
        "tp_dp_cp" => GroupKind::TpDpCp,
        "tp_dp" => GroupKind::TpDp,
        "tp_cp" => GroupKind::TpCp,
        "ep" => GroupKind::Ep,
        "expt_tp" => GroupKind::ExptTp,
        "tp_ep" => GroupKind::TpEp,
        "tp_ep_pp" => GroupKind::TpEpPp,
        "expt_dp" => GroupKind::ExptDp,
        "intra_expt_dp" => GroupKind::IntraExptDp,
        "inter_expt_dp" => GroupKind::InterExptDp,
        "intra_dist_opt" => GroupKind::IntraDistOpt,
        _ => size("hcp_")
            .map(GroupKind::HierarchicalCp)
            .or_else(|| size("hybrid_dp_cp_").map(GroupKind::HybridDpCp))
            .unwrap_or_else(|| panic!("unknown group {name}")),
    }
}

fn json_text(groups: &[Vec<u32>]) -> String {
    let group = |ranks: &Vec<u32>| {
        let ranks: Vec<String> = ranks.iter().map(u32::to_string).collect();
        format!("[{}]", ranks.join(","))
    };
    format!(
        "[{}]",
        groups.iter().map(group).collect::<Vec<_>>().join(",")
    )
}

#[test]
fn golden_megatron_groups_of_every_layout() {
    let file = golden("megatron_groups.json");
    let layouts = list(&file["layouts"]);
    assert!(layouts.len() >= 26);
    for case in layouts {
        let found = groups(&layout(case)).unwrap_or_else(|e| panic!("{}: {e}", case["id"]));
        let (expected, digests) = match case.get("groups") {
            Some(groups) => (groups, false),
            None => (&case["groups_digest"], true),
        };
        let expected = expected.as_object().expect("a table");
        for (name, groups) in expected {
            let found = json_text(found.of(kind(name)));
            if digests {
                let hash = groups["sha256"].as_str().expect("a hash");
                assert_eq!(sha256::hex(found.as_bytes()), hash, "{} {name}", case["id"]);
            } else {
                assert_eq!(found, groups.to_string(), "{} {name}", case["id"]);
            }
        }
        assert_eq!(
            found.by_kind.len(),
            expected.len(),
            "{}: kinds of groups",
            case["id"]
        );
    }
}

#[test]
fn golden_megatron_layouts_that_are_refused() {
    let file = golden("megatron_groups.json");
    let refusals = list(&file["refusals"]);
    assert!(refusals.len() >= 15);
    for case in refusals {
        let meaning = case["meaning"].as_str().expect("a text");
        let error = groups(&layout(case)).expect_err(meaning);
        let as_meant = match meaning {
            "world not a multiple of tp*pp*cp" => {
                matches!(error, LayoutError::WorldNotDivisible { .. })
            }
            "world not a multiple of etp*ep*pp" => {
                matches!(error, LayoutError::WorldNotDivisibleByExperts { .. })
            }
            "vpp with pp = 1" => error == LayoutError::InterleavedWithoutPipeline,
            "pp groups of the dense and the expert grid differ" => {
                matches!(error, LayoutError::PipelineGroupsDiffer { .. })
            }
            "order leaves out an axis of size > 1 (dense)"
            | "order leaves out an axis of size > 1 (expert)"
            | "order leaves out tp, even with tp = 1" => {
                matches!(error, LayoutError::MissingAxis { .. })
            }
            "unknown axis in the order" => matches!(error, LayoutError::UnknownAxis { .. }),
            "instances do not divide dp*cp" => matches!(error, LayoutError::Instances { .. }),
            "instances divide dp*cp but not expert dp" => {
                matches!(error, LayoutError::ExpertInstances { .. })
            }
            "product of the hierarchical cp sizes is not cp" => {
                matches!(error, LayoutError::HierarchicalSizes { .. })
            }
            "hybrid cp with an odd dp_cp group" => {
                matches!(error, LayoutError::OddHybridGroup { .. })
            }
            "pp not last in the order and expert dp differs from dp"
            | "upper-case order: the pp-last test is case sensitive" => {
                matches!(error, LayoutError::PipelineNotLast { .. })
            }
            other => panic!("a refusal this test does not know: {other}"),
        };
        assert!(as_meant, "{meaning}: {error}");
    }
}

fn storage(name: &str) -> Storage {
    match name {
        "fp32" => Storage::Fp32,
        "bf16" => Storage::Bf16,
        "fp16" => Storage::Fp16,
        "uint8" => Storage::Fp8,
        other => panic!("type {other}"),
    }
}

fn param(entry: &Value) -> Param {
    let shape = list(&entry[1]);
    let flags: Vec<&str> = list(entry)[3..].iter().filter_map(Value::as_str).collect();
    let grad = storage(entry[2].as_str().expect("a type"));
    Param {
        elements: shape.iter().map(|size| u64::from(number(size))).product(),
        storage: if flags.contains(&"fp8") {
            Storage::Fp8
        } else {
            grad
        },
        grad,
        expert: flags.contains(&"expert"),
        shared_embedding: flags.contains(&"shared_embedding"),
        frozen: flags.contains(&"frozen"),
    }
}

fn bucket_options(case: &Value) -> BucketOptions {
    BucketOptions {
        bucket_size: case["bucket_size"].as_u64(),
        overlap_grad_reduce: flag(&case["overlap_grad_reduce"]),
        use_distributed_optimizer: flag(&case["use_distributed_optimizer"]),
        pad_buckets_for_high_nccl_busbw: flag(&case["pad_buckets_for_high_nccl_busbw"]),
        grad_reduce_in_fp32: flag(&case["grad_reduce_in_fp32"]),
        average_in_collective: flag(&case["average_in_collective"]),
        disable_bucketing: flag(&case["disable_bucketing"]),
        reduce_scatter_with_fp32_accumulation: flag(&case["reduce_scatter_with_fp32_accumulation"]),
        pipeline_rank: number(&case["pp_rank"]),
    }
}

fn data_parallel_sizes(topology: &Value) -> DataParallelSizes {
    let size = |key: &str| optional(&topology[key]).unwrap_or(1);
    let expert_tp = optional(&topology["etp"]).unwrap_or(size("tp"));
    DataParallelSizes {
        dp: size("dp"),
        dp_cp: size("dp") * size("cp"),
        expert_dp: size("world") / expert_tp / size("ep") / size("pp"),
        num_distributed_optimizer_instances: size("instances"),
    }
}

#[test]
fn golden_megatron_buffers_and_buckets() {
    let file = golden("megatron_buckets.json");
    let cases = list(&file["cases"]);
    assert!(cases.len() >= 119);
    for case in cases {
        let id = &case["id"];
        let params = &file["param_lists"][case["params"].as_str().expect("a name")];
        let params: Vec<Param> = list(params).iter().map(param).collect();
        let (options, sizes) = (bucket_options(case), data_parallel_sizes(&case["topology"]));
        let found = buffers(&params, &sizes, &options);
        if case.get("refused").is_some() {
            assert!(found.is_err(), "{id}");
            continue;
        }
        let found = found.unwrap_or_else(|e| panic!("{id}: {e}"));
        let effective = options.effective_bucket_size(sizes.dp);
        assert_eq!(effective, case["effective_bucket_size"].as_u64(), "{id}");
        let expected = list(&case["buffers"]);
        assert_eq!(found.len(), expected.len(), "{id}: buffers");
        for (found, expected) in found.iter().zip(expected) {
            compare_buffer(found, expected, id);
        }
        let [dense, expert] = bucket_groups(&found, &options).map(|groups| group_text(&groups));
        assert_eq!(dense, case["bucket_groups"].to_string(), "{id}");
        assert_eq!(expert, case["expert_bucket_groups"].to_string(), "{id}");
    }
}

fn compare_buffer(found: &Buffer, expected: &Value, id: &Value) {
    let kind = |key: &str| storage(expected[key].as_str().expect("a type"));
    assert_eq!(
        (found.storage, found.grad),
        (kind("param_dtype"), kind("grad_dtype"))
    );
    assert_eq!(found.expert, flag(&expected["expert"]), "{id}");
    assert_eq!(found.dp_size, number(&expected["dp_size"]), "{id}");
    assert_eq!(
        Some(found.elements),
        expected["numel"].as_u64(),
        "{id}: numel"
    );
    let unpadded: u64 = found.buckets.iter().map(|bucket| bucket.unpadded).sum();
    assert_eq!(Some(unpadded), expected["numel_unpadded"].as_u64(), "{id}");
    let scale = found.gradient_scale;
    let scale = f64::from(scale.numerator) / f64::from(scale.denominator);
    assert_eq!(
        Some(scale),
        expected["gradient_scaling_factor"].as_f64(),
        "{id}"
    );
    let params = found.params.iter().map(|p| {
        format!(
            "[{},{},{},{}]",
            p.param, p.range.start, p.range.end, p.bucket
        )
    });
    let params = params.collect::<Vec<_>>().join(",");
    assert_eq!(
        format!("[{params}]"),
        expected["params"].to_string(),
        "{id}"
    );
    let buckets = found.buckets.iter().map(|b| {
        let params: Vec<String> = b.params.iter().map(usize::to_string).collect();
        format!(
            "[{},{},{},[{}]]",
            b.offset,
            b.elements,
            b.unpadded,
            params.join(",")
        )
    });
    let buckets = buckets.collect::<Vec<_>>().join(",");
    assert_eq!(
        format!("[{buckets}]"),
        expected["buckets"].to_string(),
        "{id}"
    );
}

fn group_text(groups: &[Vec<(usize, usize)>]) -> String {
    let pair = |(buffer, bucket): &(usize, usize)| format!("[{buffer},{bucket}]");
    let group = |pairs: &Vec<(usize, usize)>| {
        format!("[{}]", pairs.iter().map(pair).collect::<Vec<_>>().join(","))
    };
    format!(
        "[{}]",
        groups.iter().map(group).collect::<Vec<_>>().join(",")
    )
}

fn events_by_rank(case: &Value) -> BTreeMap<u32, &Value> {
    match case.get("events") {
        Some(events) => (0..).zip(list(events)).collect(),
        // Long schedules show some ranks only.
        None => {
            let by_rank = case["events_of_rank"].as_object().expect("a table");
            by_rank
                .iter()
                .map(|(rank, events)| (rank.parse().expect("a rank"), events))
                .collect()
        }
    }
}

#[test]
fn golden_megatron_pipeline_schedules() {
    let file = golden("megatron_schedules.json");
    let (mut ranks_checked, mut refused) = (0, 0);
    for case in list(&file["cases"]) {
        let id = &case["id"];
        let options = PipelineOptions {
            pipeline_model_parallel_size: number(&case["pp"]),
            virtual_pipeline_model_parallel_size: optional(&case["vpp"]),
            microbatches: number(&case["microbatches"]),
            microbatch_group_size_per_vp_stage: optional(&case["group"]),
            overlap_p2p_comm: flag(&case["overlap_p2p_comm"]),
        };
        let slots = |rank| pipeline_schedule(&options, rank);
        if case.get("refused").is_some() {
            assert!(slots(0).is_err(), "{id}");
            refused += 1;
            continue;
        }
        let (chunks, microbatches) = (optional(&case["vpp"]), options.microbatches);
        let group = options.microbatch_group_size_per_vp_stage;
        let group = group.unwrap_or(options.pipeline_model_parallel_size);
        if let (Some(chunks), Value::Array(table)) = (chunks, &case["schedule_table"]) {
            let found = schedule_table(microbatches, chunks, group);
            let expected: Vec<(u32, u32)> = table
                .iter()
                .map(|row| (number(&row[0]), number(&row[1])))
                .collect();
            assert_eq!(found, expected, "{id}");
        }
        let events = events_by_rank(case);
        let forward_only = flag(&case["forward_only"]);
        let syncs_shown = !flag(&case["grad_sync_func"]);
        for (rank, events) in events {
            let found = slots(rank).unwrap_or_else(|e| panic!("{id}: {e}"));
            let found = found
                .iter()
                .filter(|slot| !forward_only || slot.work == Work::Forward);
            let found = found.map(|slot| {
                let letter = if slot.work == Work::Forward { 'F' } else { 'B' };
                let sync = if slot.grad_sync && syncs_shown {
                    "*"
                } else {
                    ""
                };
                format!("{letter}{}.{}{sync}", slot.microbatch, slot.chunk)
            });
            let expected = events.as_str().expect("a text").split(' ');
            let expected = expected
                .filter(|event| event.starts_with(['F', 'B']))
                .map(|event| {
                    if syncs_shown {
                        event.to_owned()
                    } else {
                        event.replace('*', "")
                    }
                });
            assert!(found.eq(expected), "{id} rank {rank}");
            ranks_checked += 1;
        }
    }
    assert!(
        ranks_checked >= 90 && refused >= 5,
        "{ranks_checked} ranks, {refused} refusals"
    );
}
