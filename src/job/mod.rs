//! What a job does at full size: process groups, gradient buckets, pipeline tables.

mod buckets;
mod groups;
mod layout;
mod schedule;

pub use buckets::{
    Bucket, BucketError, BucketOptions, Buffer, DataParallelSizes, Param, PlacedParam, Scale,
    Storage, bucket_groups, buckets, buffers,
};
pub use groups::{GroupKind, Groups, groups};
pub use layout::{Layout, LayoutError};
pub use schedule::{ScheduleError, Slot, Work, interleaved, one_f_one_b, schedule_table};
