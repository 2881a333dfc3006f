//! The entries of a mapping, with those that `<<` merges in.
//!
//! Source: "Merge Key Language-Independent Type for YAML" (yaml.org/type/merge): an explicit key
//! wins over a merged one, an earlier mapping of a list over a later one.

use std::collections::BTreeMap;
use std::ops::Range;

use super::{Child, Document, Kind, Scalar};
use crate::diagnostic::{Diagnostic, Findings};
use crate::recipe::limits::{YAML_DEPTH_MAX, YAML_MERGED_KEYS_MAX};

/// A key and its value, in order of first appearance.
#[derive(Clone, Debug)]
pub(in super::super) struct Entry<'a> {
    pub key: &'a Scalar,
    pub key_span: &'a Range<usize>,
    pub value: &'a Child,
    is_merged: bool,
}

/// How much was merged so far: aliases of aliases of aliases grow without end.
#[derive(Debug, Default)]
pub(in super::super) struct Merges {
    key_count: usize,
    is_exhausted: bool,
}

impl Document {
    /// The entries of a mapping; none of anything else.
    pub fn entries<'a>(
        &'a self,
        mapping: &'a Child,
        merges: &mut Merges,
        findings: &mut Findings,
    ) -> Vec<Entry<'a>> {
        self.gathered(mapping, 0, merges, findings)
    }

    fn gathered<'a>(
        &'a self,
        mapping: &'a Child,
        depth: usize,
        merges: &mut Merges,
        findings: &mut Findings,
    ) -> Vec<Entry<'a>> {
        let Kind::Mapping(pairs) = &self.nodes[mapping.node].kind else {
            return Vec::new();
        };
        let mut entries = Entries::default();
        for (key, value) in pairs {
            let Kind::Scalar(scalar) = &self.nodes[key.node].kind else {
                unreachable!("keys are scalars, or composing failed");
            };
            if !(scalar.is_plain && scalar.text == "<<") {
                entries.put(Entry {
                    key: scalar,
                    key_span: &key.span,
                    value,
                    is_merged: false,
                });
                continue;
            }
            for target in self.merge_targets(value, findings) {
                for entry in self.merged(target, depth + 1, merges, findings) {
                    entries.put(entry);
                }
            }
        }
        entries.list
    }

    /// The mappings that the value of `<<` names: one, or a list of them.
    fn merge_targets<'a>(&'a self, value: &'a Child, findings: &mut Findings) -> Vec<&'a Child> {
        let targets = match &self.nodes[value.node].kind {
            Kind::Sequence(items) => items.iter().collect(),
            Kind::Scalar(_) | Kind::Mapping(_) => vec![value],
        };
        let is_mapping = |target: &&Child| matches!(self.nodes[target.node].kind, Kind::Mapping(_));
        if let Some(wrong) = targets.iter().find(|target| !is_mapping(target)) {
            findings.push(
                Diagnostic::error("yaml-merge", "`<<` merges mappings only")
                    .at(&self.place_of(wrong), "this is none")
                    .with_help("write `<<: *NAME`, where `&NAME` stands before a mapping"),
            );
        }
        targets.into_iter().filter(is_mapping).collect()
    }

    fn merged<'a>(
        &'a self,
        target: &'a Child,
        depth: usize,
        merges: &mut Merges,
        findings: &mut Findings,
    ) -> Vec<Entry<'a>> {
        if merges.is_exhausted {
            return Vec::new();
        }
        let mut entries = match depth > YAML_DEPTH_MAX {
            true => Vec::new(),
            false => self.gathered(target, depth, merges, findings),
        };
        // One for the mapping itself: empty ones may be many, too.
        merges.key_count += entries.len() + 1;
        if depth > YAML_DEPTH_MAX || merges.key_count > YAML_MERGED_KEYS_MAX {
            if !merges.is_exhausted {
                merges.is_exhausted = true;
                findings.push(
                    Diagnostic::error("yaml-merge-size", "`<<` merges too much")
                        .at(&self.place_of(target), "the limit is reached here")
                        .with_note(format!(
                            "at most {YAML_MERGED_KEYS_MAX} keys are merged, over at most \
                             {YAML_DEPTH_MAX} mappings that merge each other"
                        )),
                );
            }
            return Vec::new();
        }
        entries.iter_mut().for_each(|entry| entry.is_merged = true);
        entries
    }
}

#[derive(Default)]
struct Entries<'a> {
    list: Vec<Entry<'a>>,
    by_key: BTreeMap<&'a str, usize>,
}

impl<'a> Entries<'a> {
    fn put(&mut self, entry: Entry<'a>) {
        match self.by_key.get(entry.key.text.as_str()) {
            None => {
                self.by_key.insert(&entry.key.text, self.list.len());
                self.list.push(entry);
            }
            Some(&index) if self.list[index].is_merged && !entry.is_merged => {
                self.list[index] = entry;
            }
            Some(_) => {}
        }
    }
}
