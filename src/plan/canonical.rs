//! Canonical hashes: equal hashes mean equal bits for all finite inputs.
//!
//! What does not change a bit does not change the hash: the order of the two operands of one
//! addition, a rounding to a type that the value already has, where a ring is stored to begin, a
//! factor of one, and for an associative operation (a maximum in total order, a wrapping integer
//! sum) the tree altogether.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use crate::numerics::Dtype;
use crate::plan::shape::{Node, Shape};
use crate::plan::walk::first_addend;
use crate::plan::{Arithmetic, Combine, Init, Op, Piece, Plan, Tree};

/// A canonical hash (BLAKE3).
pub type Digest = [u8; 32];

/// Whether every value of `narrow` is a value of `wide`.
fn holds(wide: Dtype, narrow: Dtype) -> bool {
    wide == narrow || (wide == Dtype::F32 && matches!(narrow, Dtype::Bf16 | Dtype::F16))
}

impl Arithmetic {
    /// The same function of the addends, with everything idle removed.
    fn normal(mut self, addends: u32) -> Arithmetic {
        let one = Some(1f32.to_bits());
        let exact_addends = holds(self.partial, self.addend);
        if self.pre_multiply_bits == one && exact_addends {
            self.pre_multiply_bits = None;
        }
        if self.post_divide_bits == one {
            self.post_divide_bits = None;
        }
        let can_fuse = self.pre_multiply_bits.is_some() && self.combine == Combine::Sum;
        self.contraction_free &= can_fuse && addends >= 2;
        if self.combine == Combine::Max && exact_addends && self.pre_multiply_bits.is_none() {
            self.partial = self.addend;
        }
        self
    }

    /// Every tree gives the same bits: the operation is associative and commutative as it stands.
    fn any_order(&self) -> bool {
        let exact_addends = holds(self.partial, self.addend);
        match self.combine {
            Combine::Max => exact_addends && self.pre_multiply_bits.is_none(),
            Combine::Sum => self.addend == Dtype::U32 && self.partial == Dtype::U32,
        }
    }

    /// Two addends that meet can change places: not where the second one is added unrounded, or
    /// multiplied and added in one step.
    fn leaf_pairs_commute(&self) -> bool {
        holds(self.partial, self.addend)
            && !(self.contraction_free && self.pre_multiply_bits.is_some())
    }

    /// A start value that is told apart from an addend. (+0 is not: wherever it stands, it changes
    /// the result only when all addends are -0.)
    fn start_stands_first(&self) -> bool {
        self.init == Init::Accumulator || (self.init == Init::Zero && !self.leaf_pairs_commute())
    }

    fn digest(&self, hasher: &mut blake3::Hasher) {
        let optional = |bits: Option<u32>| bits.map_or(1 << 32, u64::from).to_le_bytes();
        let init = match self.init {
            Init::First => 0,
            Init::Zero => 1,
            Init::Accumulator => 2,
        };
        let combine = match self.combine {
            Combine::Sum => 0,
            Combine::Max => 1,
        };
        hasher.update(&[combine, init, u8::from(self.contraction_free)]);
        for dtype in [self.addend, self.partial, self.out] {
            hasher.update(dtype.name().as_bytes()).update(&[0]);
        }
        hasher.update(&optional(self.pre_multiply_bits));
        hasher.update(&optional(self.post_divide_bits));
    }
}

/// The links of a ring, hashed so that a chain along it costs the same whatever its length.
///
/// A chain is named by its first three addends and by the *set* of its further links (who follows
/// whom), hashed as a sum of link hashes modulo 2^256 in two halves. Together they give back the
/// chain, and a rotation of the ring has all but one link in common: n chains cost O(n), not n^2.
struct Links {
    of: Arc<[u32]>,
    links: Vec<[u128; 2]>,
    all: [u128; 2],
}

fn plus(a: [u128; 2], b: [u128; 2]) -> [u128; 2] {
    [a[0].wrapping_add(b[0]), a[1].wrapping_add(b[1])]
}

fn minus(a: [u128; 2], b: [u128; 2]) -> [u128; 2] {
    [a[0].wrapping_sub(b[0]), a[1].wrapping_sub(b[1])]
}

impl Links {
    fn of(ring: &Arc<[u32]>) -> Links {
        let link = |at: usize| {
            let mut bytes = [0; 8];
            bytes[..4].copy_from_slice(&ring[at].to_le_bytes());
            bytes[4..].copy_from_slice(&ring[(at + 1) % ring.len()].to_le_bytes());
            let hash = *blake3::hash(&bytes).as_bytes();
            let half = |from: usize| {
                u128::from_le_bytes(hash[from..from + 16].try_into().expect("16 bytes"))
            };
            [half(0), half(16)]
        };
        let links: Vec<_> = (0..ring.len()).map(link).collect();
        let all = links.iter().fold([0; 2], |sum, link| plus(sum, *link));
        Links {
            of: ring.clone(),
            links,
            all,
        }
    }

    fn chain(&self, start: u32, commute: bool) -> Digest {
        let len = self.of.len();
        let at = |step: usize| (start as usize + step) % len;
        let mut firsts: Vec<u32> = (0..len.min(3)).map(|step| self.of[at(step)]).collect();
        if commute && len >= 2 && firsts[0] > firsts[1] {
            firsts.swap(0, 1);
        }
        // Links 2.. of the chain: not the two that its first three addends give, not the one that
        // closes the ring.
        let further = if len > 3 {
            let named = plus(self.links[at(0)], self.links[at(1)]);
            minus(minus(self.all, named), self.links[at(len - 1)])
        } else {
            [0; 2]
        };
        let mut hasher = blake3::Hasher::new_derive_key("bitproof plan chain");
        hasher.update(&(len as u64).to_le_bytes());
        for first in firsts {
            hasher.update(&first.to_le_bytes());
        }
        hasher
            .update(&further[0].to_le_bytes())
            .update(&further[1].to_le_bytes());
        *hasher.finalize().as_bytes()
    }
}

/// Hashes the trees of plans with one arithmetic; remembers rings and programs it has met.
struct Canonical {
    arithmetic: Arithmetic,
    rings: Vec<Links>,
    programs: Vec<(Arc<[Op]>, Digest)>,
}

impl Canonical {
    fn new(arithmetic: Arithmetic) -> Canonical {
        Canonical {
            arithmetic,
            rings: Vec::new(),
            programs: Vec::new(),
        }
    }

    fn tree(&mut self, tree: &Tree) -> Digest {
        if self.arithmetic.any_order() {
            return any_order(tree.addend_count());
        }
        match tree {
            Tree::Chain { ring, start } => self.chain(ring, *start),
            Tree::Ops(ops) => {
                let known = self
                    .programs
                    .iter()
                    .rev()
                    .find(|known| Arc::ptr_eq(&known.0, ops));
                if let Some((_, digest)) = known {
                    return *digest;
                }
                let digest = self.program(tree, ops);
                self.programs.push((ops.clone(), digest));
                digest
            }
        }
    }

    fn chain(&mut self, ring: &Arc<[u32]>, start: u32) -> Digest {
        let rules = &self.arithmetic;
        let commute = rules.leaf_pairs_commute() && !rules.start_stands_first();
        let known = self
            .rings
            .iter()
            .rev()
            .position(|links| Arc::ptr_eq(&links.of, ring));
        let index = match known {
            Some(from_end) => self.rings.len() - 1 - from_end,
            None => {
                self.rings.push(Links::of(ring));
                self.rings.len() - 1
            }
        };
        self.rings[index].chain(start, commute)
    }

    fn program(&mut self, tree: &Tree, ops: &[Op]) -> Digest {
        let shape = Shape::of_program(ops);
        let started = self
            .arithmetic
            .start_stands_first()
            .then(|| first_addend(tree));
        if let Some(order) = shape.chain_order()
            && let Some(order) = put_first(order, started)
        {
            return self.chain(&order.into(), 0);
        }
        let commute = self.arithmetic.leaf_pairs_commute();
        let mut digests: Vec<Digest> = Vec::with_capacity(shape.nodes().len());
        for node in shape.nodes() {
            digests.push(match *node {
                Node::Leaf(addend) => leaf(addend, started == Some(addend)),
                Node::Pair(left, right) => {
                    let leaves = [left, right]
                        .iter()
                        .all(|side| matches!(shape.nodes()[*side as usize], Node::Leaf(_)));
                    let (left, right) = (digests[left as usize], digests[right as usize]);
                    if left <= right || (leaves && !commute) {
                        pair(left, right)
                    } else {
                        pair(right, left)
                    }
                }
            });
        }
        *digests.last().expect("a tree has at least one addend")
    }
}

/// `order` with `started` at its head, where its first addition allows that.
fn put_first(mut order: Vec<u32>, started: Option<u32>) -> Option<Vec<u32>> {
    match started {
        Some(started) if order[0] != started => {
            if order.get(1) != Some(&started) {
                return None;
            }
            order.swap(0, 1);
            Some(order)
        }
        _ => Some(order),
    }
}

fn leaf(addend: u32, after_start_value: bool) -> Digest {
    let mut hasher = blake3::Hasher::new_derive_key("bitproof plan leaf");
    hasher
        .update(&addend.to_le_bytes())
        .update(&[u8::from(after_start_value)]);
    *hasher.finalize().as_bytes()
}

fn pair(left: Digest, right: Digest) -> Digest {
    let mut hasher = blake3::Hasher::new_derive_key("bitproof plan pair");
    *hasher.update(&left).update(&right).finalize().as_bytes()
}

fn any_order(addends: u32) -> Digest {
    let mut hasher = blake3::Hasher::new_derive_key("bitproof plan any order");
    *hasher.update(&addends.to_le_bytes()).finalize().as_bytes()
}

impl Plan {
    /// Ranges of elements with their trees' canonical hashes; neighbours differ.
    pub fn classes(&self) -> Vec<(Range<u64>, Digest)> {
        let mut canonical = Canonical::new(self.arithmetic.normal(self.addend_count));
        let mut merged: Vec<(Range<u64>, Digest)> = Vec::new();
        for piece in &self.pieces {
            let digest = canonical.tree(&piece.tree);
            match merged.last_mut() {
                Some((range, last)) if *last == digest => range.end = piece.range.end,
                _ => merged.push((piece.range.clone(), digest)),
            }
        }
        merged
    }

    /// How many elements each distinct tree has.
    pub fn class_sizes(&self) -> BTreeMap<Digest, u64> {
        let mut sizes = BTreeMap::new();
        for (range, digest) in self.classes() {
            *sizes.entry(digest).or_insert(0) += range.end - range.start;
        }
        sizes
    }

    /// The canonical hash of the plan: arithmetic, addends, and the tree of every element.
    pub fn hash(&self) -> Digest {
        let mut hasher = blake3::Hasher::new_derive_key("bitproof plan");
        hasher.update(&self.addend_count.to_le_bytes());
        hasher.update(&self.element_count.to_le_bytes());
        self.arithmetic
            .normal(self.addend_count)
            .digest(&mut hasher);
        for (range, digest) in self.classes() {
            hasher.update(&range.start.to_le_bytes()).update(&digest);
        }
        *hasher.finalize().as_bytes()
    }

    /// Both plans give the same bits at every element, for all finite inputs.
    pub fn same_bits(&self, other: &Plan) -> bool {
        self.hash() == other.hash()
    }

    /// Whatever trees the elements have, their bits are the same, in any library that rounds the
    /// result once: two addends that can change places, or an associative operation (rungs P and
    /// L0 of the ladder).
    pub fn has_one_order(&self) -> bool {
        let rules = self.arithmetic.normal(self.addend_count);
        let swap = rules.leaf_pairs_commute() && !rules.start_stands_first();
        rules.any_order() || self.addend_count <= 1 || (self.addend_count == 2 && swap)
    }

    /// The same addends in the same number, joined by the same arithmetic.
    pub(super) fn same_rules(&self, other: &Plan) -> bool {
        let normal = |plan: &Plan| plan.arithmetic.normal(plan.addend_count);
        self.addend_count == other.addend_count && normal(self) == normal(other)
    }

    /// The same plan with neighbouring pieces of equal canonical hash merged.
    pub fn merged(mut self) -> Plan {
        let mut canonical = Canonical::new(self.arithmetic.normal(self.addend_count));
        let mut merged: Vec<(Piece, Digest)> = Vec::new();
        for piece in self.pieces {
            let digest = canonical.tree(&piece.tree);
            match merged.last_mut() {
                Some((last, known)) if *known == digest => last.range.end = piece.range.end,
                _ => merged.push((piece, digest)),
            }
        }
        self.pieces = merged.into_iter().map(|(piece, _)| piece).collect();
        self
    }
}
