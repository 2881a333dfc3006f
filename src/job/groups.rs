//! Megatron's process groups.
//!
//! Rules read in megatron-core 0.19.2 (`parallel_state.py`, `RankGenerator`): ranks are
//! mixed-radix numbers whose leftmost axis in `order` is the fastest; a group joins the ranks that
//! differ in some axes only. Dense layers have the axes tp, cp, dp, pp; expert layers tp (of its
//! own size), ep, dp (of its own size), pp.

use std::collections::BTreeMap;

use crate::job::layout::{Layout, LayoutError, Sizes};

/// A kind of process group, under the short names that Megatron's getters use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GroupKind {
    /// Data-parallel ranks, context-parallel ones included: gradients are reduced over it.
    DpCp,
    /// Blocks of `DpCp`, one for each distributed-optimizer instance (only with several).
    IntraDpCp,
    Dp,
    Cp,
    /// A level of hierarchical context parallelism, 0 innermost.
    HierarchicalCp(u32),
    /// Blocks of `DpCp` of a power-of-two size.
    HybridDpCp(u32),
    /// One model replica: tp and pp.
    Mp,
    Tp,
    Pp,
    /// First and last pipeline stage, which share the word embedding.
    Embd,
    /// The first stage alone.
    PosEmbd,
    TpDpCp,
    TpDp,
    TpCp,
    Ep,
    ExptTp,
    TpEp,
    TpEpPp,
    ExptDp,
    IntraExptDp,
    InterExptDp,
    /// All ranks of one distributed-optimizer instance; the world where there is one.
    IntraDistOpt,
}

/// All groups of a layout, each a list of global ranks in Megatron's order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Groups {
    pub by_kind: BTreeMap<GroupKind, Vec<Vec<u32>>>,
}

impl Groups {
    /// The groups of one kind, in the order in which they are made; none where the layout has none.
    pub fn of(&self, kind: GroupKind) -> &[Vec<u32>] {
        self.by_kind.get(&kind).map_or(&[], Vec::as_slice)
    }

    /// The members of `rank`'s group of a kind, ascending, as torch numbers them in a
    /// communicator. `None` where the rank is in none.
    pub fn members(&self, kind: GroupKind, rank: u32) -> Option<Vec<u32>> {
        let mut members = self
            .of(kind)
            .iter()
            .find(|group| group.contains(&rank))?
            .clone();
        members.sort_unstable();
        Some(members)
    }
}

/// The process groups of a layout.
pub fn groups(layout: &Layout) -> Result<Groups, LayoutError> {
    let sizes = layout.sizes()?;
    let Sizes {
        tp,
        cp,
        dp,
        pp,
        ep,
        expert_tp,
        expert_dp,
    } = sizes;
    let dense = Grid::new(
        &layout.order,
        [("tp", tp), ("cp", cp), ("ep", 1), ("dp", dp), ("pp", pp)],
    )?;
    let expert = Grid::new(
        &layout.order,
        [
            ("tp", expert_tp),
            ("cp", 1),
            ("ep", ep),
            ("dp", expert_dp),
            ("pp", pp),
        ],
    )?;
    let pipelines = dense.groups(&["pp"]);
    if pipelines != expert.groups(&["pp"]) {
        return Err(LayoutError::PipelineGroupsDiffer {
            order: layout.order.clone(),
        });
    }
    let embedding = pipelines.iter().map(|stages| match stages[..] {
        [only] => vec![only],
        [first, .., last] => vec![first, last],
        [] => unreachable!("a group has ranks"),
    });
    let first_stage = pipelines.iter().map(|stages| vec![stages[0]]);
    let mut by_kind = BTreeMap::from([
        (GroupKind::Embd, embedding.collect()),
        (GroupKind::PosEmbd, first_stage.collect()),
        (GroupKind::DpCp, dense.groups(&["dp", "cp"])),
        (GroupKind::Dp, dense.groups(&["dp"])),
        (GroupKind::Cp, dense.groups(&["cp"])),
        (GroupKind::Mp, dense.groups(&["tp", "pp"])),
        (GroupKind::Tp, dense.groups(&["tp"])),
        (GroupKind::TpDpCp, dense.groups(&["tp", "dp", "cp"])),
        (GroupKind::TpDp, dense.groups(&["tp", "dp"])),
        (GroupKind::TpCp, dense.groups(&["tp", "cp"])),
        (GroupKind::Ep, expert.groups(&["ep"])),
        (GroupKind::ExptTp, expert.groups(&["tp"])),
        (GroupKind::TpEp, expert.groups(&["tp", "ep"])),
        (GroupKind::TpEpPp, expert.groups(&["tp", "ep", "pp"])),
        (GroupKind::ExptDp, expert.groups(&["dp"])),
    ]);
    by_kind.insert(GroupKind::Pp, pipelines);
    derived(layout, &mut by_kind);
    Ok(Groups { by_kind })
}

/// Groups that are cut from, or joined of, other groups.
fn derived(layout: &Layout, by_kind: &mut BTreeMap<GroupKind, Vec<Vec<u32>>>) {
    let instances = layout.num_distributed_optimizer_instances as usize;
    let data = by_kind[&GroupKind::DpCp].clone();
    if instances > 1 {
        by_kind.insert(
            GroupKind::IntraDpCp,
            blocks(&data, data[0].len() / instances),
        );
        let experts = by_kind[&GroupKind::ExptDp].clone();
        let share = experts[0].len() / instances;
        by_kind.insert(GroupKind::IntraExptDp, blocks(&experts, share));
        by_kind.insert(GroupKind::InterExptDp, strided(&experts, share));
    }
    let replicas = &by_kind[&GroupKind::TpEpPp];
    let joined = replicas
        .chunks(replicas.len() / instances)
        .map(|replicas| replicas.concat());
    let joined = joined.collect();
    by_kind.insert(GroupKind::IntraDistOpt, joined);
    let levels = &layout.hierarchical_context_parallel_sizes;
    for level in 0..levels.len() {
        let groups = by_kind[&GroupKind::Cp]
            .iter()
            .flat_map(|cp| hierarchy(cp, levels, level));
        let groups = groups.collect();
        by_kind.insert(GroupKind::HierarchicalCp(level as u32), groups);
    }
    if layout.hybrid_context_parallel {
        let mut size = 2;
        while size < data[0].len() {
            by_kind.insert(GroupKind::HybridDpCp(size as u32), blocks(&data, size));
            size *= 2;
        }
    }
}

/// Each group cut into runs of `size`; a last one may be short.
fn blocks(groups: &[Vec<u32>], size: usize) -> Vec<Vec<u32>> {
    groups
        .iter()
        .flat_map(|group| group.chunks(size).map(<[u32]>::to_vec))
        .collect()
}

/// Each group dealt into `count` groups: every `count`-th rank.
fn strided(groups: &[Vec<u32>], count: usize) -> Vec<Vec<u32>> {
    let dealt = |group: &'_ Vec<u32>| -> Vec<Vec<u32>> {
        (0..count)
            .map(|at| group.iter().copied().skip(at).step_by(count).collect())
            .collect()
    };
    groups.iter().flat_map(dealt).collect()
}

/// The groups of one level inside one context-parallel group.
fn hierarchy(group: &[u32], levels: &[u32], level: usize) -> Vec<Vec<u32>> {
    let axes: Vec<(usize, u32)> = levels.iter().copied().enumerate().collect();
    let places = orthogonal(&axes, &|axis| axis == level);
    let ranks = |places: Vec<u32>| places.iter().map(|place| group[*place as usize]).collect();
    places.into_iter().map(ranks).collect()
}

/// A mixed-radix numbering of the ranks, fastest axis first.
struct Grid {
    axes: Vec<(&'static str, u32)>,
}

impl Grid {
    fn new(order: &str, sizes: [(&'static str, u32); 5]) -> Result<Grid, LayoutError> {
        let mut axes: Vec<(&'static str, u32)> = Vec::new();
        for token in order.split('-') {
            let known = sizes
                .into_iter()
                .find(|(name, _)| token.eq_ignore_ascii_case(name));
            let Some((name, size)) = known else {
                let (order, axis) = (order.to_owned(), token.to_owned());
                return Err(LayoutError::UnknownAxis { order, axis });
            };
            if axes.iter().any(|(seen, _)| *seen == name) {
                let (order, axis) = (order.to_owned(), token.to_owned());
                return Err(LayoutError::RepeatedAxis { order, axis });
            }
            axes.push((name, size));
        }
        for (name, size) in sizes {
            let absent = axes.iter().all(|(seen, _)| *seen != name);
            // 0.19.2 looks tp up even where its size is 1.
            if absent && (size > 1 || name == "tp") {
                return Err(LayoutError::MissingAxis {
                    order: order.to_owned(),
                    axis: name,
                });
            }
        }
        Ok(Grid { axes })
    }

    /// The groups whose members differ in the axes of `within` only.
    fn groups(&self, within: &[&str]) -> Vec<Vec<u32>> {
        orthogonal(&self.axes, &|axis| within.contains(&axis))
    }
}

/// `generate_masked_orthogonal_rank_groups`: groups by the other axes, members by those chosen,
/// both with the fastest axis first.
fn orthogonal<A: Copy>(axes: &[(A, u32)], chosen: &dyn Fn(A) -> bool) -> Vec<Vec<u32>> {
    let mut offsets = [vec![0u32], vec![0u32]];
    let mut stride = 1;
    for (axis, size) in axes {
        let list = &mut offsets[usize::from(chosen(*axis))];
        *list = (0..*size)
            .flat_map(|digit| list.iter().map(move |offset| offset + digit * stride))
            .collect();
        stride *= size;
    }
    let [groups, members] = offsets;
    groups
        .iter()
        .map(|group| members.iter().map(|member| group + member).collect())
        .collect()
}
