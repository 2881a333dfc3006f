//! `torch.hash_tensor`, for exchange with traces that carry it: the XOR of all elements, each as 64
//! bits. It sees neither order nor pairs of equal changes; what bitproof compares by itself is
//! stronger.
//!
//! Three rules go by that name; a trace must say which. Source: PyTorch 2.15's `hash_tensor` on
//! the CPU, its DebugMode, and the snippet of Megatron-LM pull request 7262.

use half::{bf16, f16};

/// Which of the three rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// `torch.hash_tensor`, mode 0: floats are widened to float64, signed integers extended by
    /// their sign, `uint8` and `bool` by zeros. Other types and empty tensors are refused.
    Torch,
    /// Pull request 7262's snippet and our recorder: unsigned integers and float8 are viewed as
    /// signed integers of their width first; an empty tensor is 0.
    SignedView,
    /// PyTorch's DebugMode: floats as float64, everything else by value as int64; empty is 0.
    DebugMode,
}

/// A tensor's element type, by PyTorch's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    Float64,
    Float32,
    Bfloat16,
    Float16,
    Float8E4m3fn,
    Float8E5m2,
    Int64,
    Int32,
    Int16,
    Int8,
    Uint64,
    Uint32,
    Uint16,
    Uint8,
    Bool,
}

impl Element {
    const NAMES: [(&str, Element); 15] = [
        ("float64", Element::Float64),
        ("float32", Element::Float32),
        ("bfloat16", Element::Bfloat16),
        ("float16", Element::Float16),
        ("float8_e4m3fn", Element::Float8E4m3fn),
        ("float8_e5m2", Element::Float8E5m2),
        ("int64", Element::Int64),
        ("int32", Element::Int32),
        ("int16", Element::Int16),
        ("int8", Element::Int8),
        ("uint64", Element::Uint64),
        ("uint32", Element::Uint32),
        ("uint16", Element::Uint16),
        ("uint8", Element::Uint8),
        ("bool", Element::Bool),
    ];

    /// The type of that name, if it is one that is known here.
    pub fn named(name: &str) -> Option<Element> {
        let found = Element::NAMES.iter().find(|(known, _)| *known == name);
        found.map(|(_, element)| *element)
    }

    pub fn bytes(self) -> usize {
        match self {
            Element::Float64 | Element::Int64 | Element::Uint64 => 8,
            Element::Float32 | Element::Int32 | Element::Uint32 => 4,
            Element::Bfloat16 | Element::Float16 | Element::Int16 | Element::Uint16 => 2,
            _ => 1,
        }
    }

    /// One element as 64 bits; nothing where the rule refuses the type.
    fn widened(self, dialect: Dialect, bytes: &[u8]) -> Option<u64> {
        let mut raw = [0u8; 8];
        raw[..bytes.len()].copy_from_slice(bytes);
        let raw = u64::from_le_bytes(raw);
        let signed = || {
            let unused = 64 - 8 * self.bytes() as u32;
            ((raw << unused) as i64 >> unused) as u64
        };
        let is_view = dialect == Dialect::SignedView;
        let is_value = dialect == Dialect::DebugMode;
        Some(match self {
            Element::Float64 => raw,
            Element::Float32 => widened_f32(raw as u32),
            Element::Bfloat16 => widened_f32((raw as u32) << 16),
            Element::Float16 => widened_f32(f32_of_f16(raw as u16)),
            Element::Int64 | Element::Int32 | Element::Int16 | Element::Int8 => signed(),
            Element::Bool => raw,
            Element::Uint8 if !is_view => raw,
            Element::Uint64 | Element::Uint32 | Element::Uint16 if is_value => raw,
            Element::Float8E4m3fn if is_value => value_of(e4m3(raw as u8)),
            Element::Float8E5m2 if is_value => value_of(f16::from_bits((raw as u16) << 8).to_f32()),
            _ if is_view => signed(),
            _ => return None,
        })
    }
}

/// The widening of IEEE 754 on bits: a signalling NaN turns quiet, its payload moves up.
fn widened_f32(bits: u32) -> u64 {
    let sign = u64::from(bits >> 31) << 63;
    let (exponent, fraction) = (bits >> 23 & 0xff, u64::from(bits & 0x7f_ffff));
    match exponent {
        0xff if fraction != 0 => sign | 0x7ff8 << 48 | fraction << 29,
        _ => f64::from(f32::from_bits(bits)).to_bits(),
    }
}

/// float16 to float32 on bits. A NaN keeps its payload.
fn f32_of_f16(bits: u16) -> u32 {
    let is_nan = bits & 0x7c00 == 0x7c00 && bits & 0x3ff != 0;
    match is_nan {
        true => u32::from(bits & 0x8000) << 16 | 0x7f80_0000 | u32::from(bits & 0x3ff) << 13,
        false => f16::from_bits(bits).to_f32().to_bits(),
    }
}

/// The value of an E4M3 code without infinities, exact in bfloat16.
fn e4m3(code: u8) -> f32 {
    let sign = if code & 0x80 == 0 { 1.0 } else { -1.0 };
    let (exponent, fraction) = (i32::from(code >> 3 & 0xf), f32::from(code & 7));
    let power = |exponent: i32| f32::from_bits(((exponent + 127) as u32) << 23);
    match (exponent, code & 7) {
        (0xf, 7) => f32::NAN,
        (0, _) => sign * fraction * power(-9),
        _ => sign * bf16::from_f32(1.0 + fraction / 8.0).to_f32() * power(exponent - 7),
    }
}

/// A float cast to int64, towards zero; what has no value there is the least integer, as x86 has
/// it.
fn value_of(value: f32) -> u64 {
    match value.is_finite() {
        true => value as i64 as u64,
        false => i64::MIN as u64,
    }
}

/// The hash of all elements of contiguous little-endian bytes.
///
/// # Errors
/// A type that the rule refuses, an empty tensor where it does, bytes that are no whole elements.
pub fn hash(dialect: Dialect, element: Element, bytes: &[u8]) -> Result<u64, &'static str> {
    let size = element.bytes();
    if !bytes.len().is_multiple_of(size) {
        return Err("the bytes are no whole elements");
    }
    if bytes.is_empty() && dialect == Dialect::Torch {
        return Err("an empty tensor has no hash");
    }
    bytes.chunks_exact(size).try_fold(0, |all, bytes| {
        let widened = element.widened(dialect, bytes);
        widened
            .map(|bits| all ^ bits)
            .ok_or("not implemented for this type")
    })
}

/// The hash over some dimensions of a tensor: the sizes that stay, and a hash for each place.
///
/// # Errors
/// As [`hash`]; a dimension that is not there, or twice.
pub fn hash_over(
    element: Element,
    shape: &[usize],
    bytes: &[u8],
    dims: &[i64],
    keepdim: bool,
) -> Result<(Vec<usize>, Vec<u64>), &'static str> {
    let rank = shape.len().max(1) as i64;
    let mut is_reduced = vec![dims.is_empty(); shape.len()];
    for dim in dims {
        let at = if *dim < 0 { dim + rank } else { *dim };
        if !(0..rank).contains(&at) {
            return Err("a dimension out of range");
        }
        // A tensor without dimensions takes 0 and -1.
        if let Some(reduced) = is_reduced.get_mut(at as usize)
            && std::mem::replace(reduced, true)
        {
            return Err("a dimension twice");
        }
    }
    let size = element.bytes();
    let numel: usize = shape.iter().product();
    if bytes.len() != numel * size {
        return Err("the bytes are not the shape's");
    }
    let is_empty = is_reduced
        .iter()
        .zip(shape)
        .any(|(reduced, size)| *reduced && *size == 0);
    if is_empty || (numel == 0 && dims.is_empty()) {
        return Err("a reduction over nothing");
    }
    let kept = |(reduced, size): (&bool, &usize)| match (reduced, keepdim) {
        (false, _) => Some(*size),
        (true, true) => Some(1),
        (true, false) => None,
    };
    let out_shape: Vec<usize> = is_reduced.iter().zip(shape).filter_map(kept).collect();
    let mut hashes = vec![0u64; out_shape.iter().product()];
    for (index, bytes) in bytes.chunks_exact(size).enumerate() {
        let (mut rest, mut place, mut stride) = (index, 0, 1);
        for (reduced, size) in is_reduced.iter().zip(shape).rev() {
            if !reduced {
                place += rest % size * stride;
                stride *= size;
            }
            rest /= size;
        }
        let widened = element.widened(Dialect::Torch, bytes);
        hashes[place] ^= widened.ok_or("not implemented for this type")?;
    }
    Ok((out_shape, hashes))
}
