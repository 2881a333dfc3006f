//! What a job does at full size: process groups, gradient buckets, pipeline tables.

mod buckets;
mod ddp_buckets;
mod groups;
mod layout;
mod schedule;

pub use buckets::{
    Bucket, BucketError, BucketOptions, Buffer, DataParallelSizes, Param, PlacedParam, Scale,
    Storage, bucket_groups, buckets, buffers,
};
pub use ddp_buckets::{
    BUCKET_CAP_BYTES, DdpBucketError, DdpBuckets, DdpOptions, DdpParam, FIRST_BUCKET_BYTES,
    GradientType, assignment, ddp_buckets,
};
pub use groups::{GroupKind, Groups, groups};
pub use layout::{Layout, LayoutError};
pub use schedule::{
    PipelineOptions, ScheduleError, Slot, Work, interleaved, one_f_one_b, pipeline_schedule,
    schedule_table,
};
