//! Carries out a request: algorithm, protocol, channels, and the builder that they call for.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::numerics::Dtype;
use crate::plan::channels::{Channel, Communicator};
use crate::plan::partition::{self, Operation, PartitionedBy};
use crate::plan::request::{Backend, Collective, MAX_PIECES, PlanError, Reduction, Request};
use crate::plan::{
    Arithmetic, Piece, Plan, Tree, all_to_all_sum, gloo, local, open_mpi, pat, ring,
};
use crate::recipe::nccl::{Algorithm, Environment, Function, Protocol};

/// The plan of one operation of one communicator.
pub(super) fn build(
    environment: &Environment,
    communicator: &Communicator,
    request: &Request<'_>,
) -> Result<Plan, PlanError> {
    let ranks = communicator.ranks();
    let blocks = match request.collective {
        Collective::ReduceScatter
        | Collective::ReduceScatterFp32Accumulation
        | Collective::AllGather
        | Collective::AllToAll => u64::from(ranks),
        _ => 1,
    };
    if !request.elements.is_multiple_of(blocks) {
        return Err(PlanError::UnevenBlocks {
            elements: request.elements,
            ranks,
        });
    }
    if let Collective::Reduce { root } = request.collective
        && root >= ranks
    {
        return Err(PlanError::NoSuchRoot { root, ranks });
    }
    let Request {
        elements, dtype, ..
    } = *request;
    let pieces = match request.collective {
        Collective::AllGather | Collective::Broadcast | Collective::AllToAll => {
            return Ok(local::ascending(
                1,
                elements,
                Arithmetic::sum(dtype, dtype, dtype),
            ));
        }
        Collective::ReduceScatterFp32Accumulation => {
            check_fp32_accumulation(request)?;
            return Ok(all_to_all_sum::reduce_scatter(ranks, elements, dtype));
        }
        collective => match request.backend {
            Backend::Gloo => match collective {
                Collective::Reduce { .. } => gloo::reduce(ranks, elements, dtype.wire_bytes()),
                _ => gloo::all_reduce(ranks, elements, dtype.wire_bytes()),
            },
            Backend::OpenMpi => open_mpi(ranks, request)?,
            Backend::Nccl => nccl(environment, communicator, request)?,
        },
    };
    let arithmetic = arithmetic(request, ranks)?;
    let plan = Plan {
        addend_count: ranks,
        element_count: elements,
        arithmetic,
        pieces,
    };
    Ok(plan.merged())
}

fn check_fp32_accumulation(request: &Request<'_>) -> Result<(), PlanError> {
    if request.reduction == Reduction::Sum && request.dtype != Dtype::U32 {
        return Ok(());
    }
    Err(PlanError::Unsupported {
        collective: request.collective,
        reduction: request.reduction,
        dtype: request.dtype,
        reason: "only sums of floats are accumulated in fp32",
    })
}

/// Open MPI's own choice. A reduce-scatter of equal blocks is `MPI_Reduce_scatter_block`.
fn open_mpi(ranks: u32, request: &Request<'_>) -> Result<Vec<Piece>, PlanError> {
    if !matches!(request.dtype, Dtype::F32 | Dtype::U32) {
        return Err(PlanError::Unsupported {
            collective: request.collective,
            reduction: request.reduction,
            dtype: request.dtype,
            reason: "Open MPI 4.1 has no such type",
        });
    }
    let (elements, bytes) = (request.elements, request.dtype.wire_bytes());
    Ok(match request.collective {
        Collective::Reduce { root } => {
            open_mpi::reduce(ranks, root, elements, bytes, open_mpi::Reduce::Default)
        }
        Collective::ReduceScatter => {
            let count = elements / u64::from(ranks);
            let algorithm = open_mpi::ReduceScatterBlock::Default;
            open_mpi::reduce_scatter_block(ranks, count, bytes, algorithm)
        }
        _ => open_mpi::all_reduce(ranks, elements, bytes, open_mpi::AllReduce::Default),
    })
}

fn arithmetic(request: &Request<'_>, ranks: u32) -> Result<Arithmetic, PlanError> {
    let dtype = request.dtype;
    let sum = Arithmetic::sum(dtype, dtype, dtype);
    match (request.reduction, request.backend) {
        (Reduction::Sum, _) => Ok(sum),
        (Reduction::Max, _) => Ok(Arithmetic::max(dtype)),
        (Reduction::Avg, _) if dtype == Dtype::U32 => Err(PlanError::Unsupported {
            collective: request.collective,
            reduction: request.reduction,
            dtype,
            reason: "averages are of floats",
        }),
        (Reduction::Avg, Backend::Nccl) => {
            let factor = dtype.round(1.0 / ranks as f32);
            let pre_multiply_bits = Some(factor.to_bits());
            Ok(Arithmetic {
                pre_multiply_bits,
                contraction_free: true,
                ..sum
            })
        }
        (Reduction::Avg, Backend::OpenMpi) => Err(PlanError::Unsupported {
            collective: request.collective,
            reduction: request.reduction,
            dtype,
            reason: "MPI has no averages",
        }),
        (Reduction::Avg, Backend::Gloo) => {
            let post_divide_bits = Some((ranks as f32).to_bits());
            Ok(Arithmetic {
                post_divide_bits,
                ..sum
            })
        }
    }
}

/// How NCCL carries an operation out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CarriedOut {
    pub algorithm: Algorithm,
    pub protocol: Protocol,
    /// Channels that carry something.
    pub channels: u32,
    /// Bytes of a chunk, where the order of a sum depends on it: an all-reduce by rings.
    pub chunk_bytes: Option<u64>,
}

/// What NCCL does with a request before it looks at a ring or tree. `None` where the request is no
/// sum of NCCL's.
pub(super) fn carried_out(
    environment: &Environment,
    communicator: &Communicator,
    request: &Request<'_>,
) -> Result<Option<CarriedOut>, PlanError> {
    let adds = matches!(
        request.collective,
        Collective::AllReduce | Collective::ReduceScatter | Collective::Reduce { .. }
    );
    if request.backend != Backend::Nccl || !adds {
        return Ok(None);
    }
    let chosen = Chosen::of(environment, communicator, request)?;
    let by_rings = request.collective == Collective::AllReduce && chosen.by == PartitionedBy::Ring;
    let chunk = || chosen.protocol.ring_chunk_bytes(environment.buffer_bytes);
    Ok(Some(CarriedOut {
        algorithm: chosen.algorithm,
        protocol: chosen.protocol,
        channels: chosen.parts.len() as u32,
        chunk_bytes: by_rings.then(chunk),
    }))
}

/// Algorithm, protocol, and the elements of the count argument on each channel.
struct Chosen {
    algorithm: Algorithm,
    by: PartitionedBy,
    protocol: Protocol,
    operation: Operation,
    parts: Vec<(Channel, Range<u64>)>,
}

impl Chosen {
    fn of(
        environment: &Environment,
        communicator: &Communicator,
        request: &Request<'_>,
    ) -> Result<Chosen, PlanError> {
        let function = match request.collective {
            Collective::AllReduce => Function::AllReduce,
            Collective::ReduceScatter => Function::ReduceScatter,
            Collective::Reduce { .. } => Function::Reduce,
            other => unreachable!("{other:?} reduces nothing in NCCL"),
        };
        let algorithm = environment.algorithm(function)?;
        let protocol = environment.protocol(function)?;
        let ranks = u64::from(communicator.ranks());
        let (blocks, traffic) = match function {
            Function::AllReduce => (1, 2),
            Function::ReduceScatter => (ranks, ranks),
            _ => (1, 1),
        };
        let operation = Operation {
            count: request.elements / blocks,
            element_bytes: request.dtype.wire_bytes(),
            blocks,
            traffic,
        };
        if algorithm == Algorithm::Pat {
            check_pat(communicator, request, protocol)?;
        }
        let by = match algorithm {
            Algorithm::Tree => PartitionedBy::Tree,
            Algorithm::Pat => PartitionedBy::Pat,
            _ => PartitionedBy::Ring,
        };
        let channels = communicator.channels(environment.min_channels, environment.max_channels);
        let count = channels.len() as u64;
        let limit = partition::channel_limit(&operation, by, protocol, ranks, count);
        let ranges = partition::channel_ranges(&operation, protocol, limit, count);
        Ok(Chosen {
            algorithm,
            by,
            protocol,
            operation,
            parts: channels.into_iter().zip(ranges).collect(),
        })
    }
}

fn nccl(
    environment: &Environment,
    communicator: &Communicator,
    request: &Request<'_>,
) -> Result<Vec<Piece>, PlanError> {
    let Chosen {
        algorithm,
        protocol,
        operation,
        parts,
        ..
    } = Chosen::of(environment, communicator, request)?;
    match (request.collective, algorithm) {
        (Collective::AllReduce, Algorithm::Tree) => tree_all_reduce(communicator, parts),
        (Collective::AllReduce, _) => ring_all_reduce(
            communicator,
            parts,
            protocol,
            environment.buffer_bytes,
            &operation,
        ),
        (Collective::ReduceScatter, Algorithm::Pat) => {
            pat_reduce_scatter(parts, environment.buffer_bytes, &operation)
        }
        (Collective::ReduceScatter, _) => ring_reduce_scatter(communicator, parts, &operation),
        (Collective::Reduce { root }, _) => {
            let piece = |(channel, range)| Piece {
                range,
                tree: ring::reduce_tree(communicator.ring(channel), root),
            };
            Ok(parts.into_iter().map(piece).collect())
        }
        (other, _) => unreachable!("{other:?} reduces nothing in NCCL"),
    }
}

fn tree_all_reduce(
    communicator: &Communicator,
    parts: Vec<(Channel, Range<u64>)>,
) -> Result<Vec<Piece>, PlanError> {
    let mut known: BTreeMap<Channel, Tree> = BTreeMap::new();
    let mut pieces = Vec::new();
    for (channel, range) in parts {
        let tree = match known.get(&channel) {
            Some(tree) => tree.clone(),
            None => communicator.tree(channel).ok_or(PlanError::NoTrees {
                ranks: communicator.ranks(),
            })?,
        };
        known.insert(channel, tree.clone());
        pieces.push(Piece { range, tree });
    }
    Ok(pieces)
}

fn ring_all_reduce(
    communicator: &Communicator,
    parts: Vec<(Channel, Range<u64>)>,
    protocol: Protocol,
    buffer_bytes: u64,
    operation: &Operation,
) -> Result<Vec<Piece>, PlanError> {
    let chunk = (protocol.ring_chunk_bytes(buffer_bytes) / operation.element_bytes).max(1);
    let ranks = u64::from(communicator.ranks());
    let pieces = parts
        .iter()
        .map(|(_, range)| ring::all_reduce_pieces(range, ranks, chunk))
        .sum();
    check_pieces(operation.count, pieces)?;
    let piece = |(channel, range): (Channel, Range<u64>)| {
        ring::all_reduce(
            range,
            communicator.ring(channel),
            chunk,
            operation.element_bytes,
        )
    };
    Ok(parts.into_iter().flat_map(piece).collect())
}

/// Every block is split over the channels alike.
fn ring_reduce_scatter(
    communicator: &Communicator,
    parts: Vec<(Channel, Range<u64>)>,
    operation: &Operation,
) -> Result<Vec<Piece>, PlanError> {
    check_pieces(
        operation.count * operation.blocks,
        operation.blocks * parts.len() as u64,
    )?;
    let mut pieces = Vec::new();
    // Positions are looked up once a ring: a search a block would cost n^2.
    let rings: Vec<_> = parts
        .iter()
        .map(|(channel, _)| ring::Places::of(communicator.ring(*channel)))
        .collect();
    for block in 0..operation.blocks {
        let start = block * operation.count;
        for (places, (_, range)) in rings.iter().zip(&parts) {
            pieces.push(Piece {
                range: start + range.start..start + range.end,
                tree: places.reduce_scatter_tree(block as u32),
            });
        }
    }
    Ok(pieces)
}

/// What NCCL has PAT for (`graph/tuning.cc`, `ncclPatEnable`).
fn check_pat(
    communicator: &Communicator,
    request: &Request<'_>,
    protocol: Protocol,
) -> Result<(), PlanError> {
    let reason = if communicator.has_one_rank_a_node() != Some(true) {
        "NCCL takes PAT for groups with one rank on each node (NCCL_PAT_ENABLE=1 is not modelled)"
    } else if protocol != Protocol::Simple {
        "PAT has the protocol Simple alone"
    } else if request.reduction == Reduction::Avg {
        "PAT takes no averages"
    } else {
        return Ok(());
    };
    Err(PlanError::Unsupported {
        collective: request.collective,
        reduction: request.reduction,
        dtype: request.dtype,
        reason,
    })
}

/// Every block is split over the channels alike. Ranks are those of the communicator: no ring.
fn pat_reduce_scatter(
    parts: Vec<(Channel, Range<u64>)>,
    buffer_bytes: u64,
    operation: &Operation,
) -> Result<Vec<Piece>, PlanError> {
    let ranks = operation.blocks;
    // Each block has a tree of its own, of 2 n - 1 steps, for each aggregation.
    check_pieces(operation.count * ranks, 2 * ranks * ranks)?;
    let delta = |range: &Range<u64>| {
        let bytes = (range.end - range.start) * operation.element_bytes;
        let chunk = pat::chunk_bytes(buffer_bytes, ranks, bytes);
        pat::delta_log2(ranks, bytes, chunk)
    };
    let parts: Vec<(u32, Range<u64>)> = parts
        .into_iter()
        .map(|(_, range)| (delta(&range), range))
        .collect();
    let mut pieces = Vec::new();
    for block in 0..ranks {
        let start = block * operation.count;
        let mut known: BTreeMap<u32, Tree> = BTreeMap::new();
        for (delta, range) in &parts {
            let made = || pat::reduce_scatter_tree(ranks as u32, block as u32, *delta);
            pieces.push(Piece {
                range: start + range.start..start + range.end,
                tree: known.entry(*delta).or_insert_with(made).clone(),
            });
        }
    }
    Ok(pieces)
}

fn check_pieces(elements: u64, pieces: u64) -> Result<(), PlanError> {
    if pieces > MAX_PIECES {
        return Err(PlanError::TooLarge { elements, pieces });
    }
    Ok(())
}
