//! The NCCL variables that decide a plan.

use super::error::joined;
use super::list::{self, Lists};
use super::{Algorithm, EnvironmentError, Function, Protocol};

/// The variables that plans follow (NCCL 2.30's documentation of its environment).
pub const SIMULATED: [&str; 5] = [
    "NCCL_ALGO",
    "NCCL_BUFFSIZE",
    "NCCL_MAX_NCHANNELS",
    "NCCL_MIN_NCHANNELS",
    "NCCL_PROTO",
];

/// NCCL's `MAXCHANNELS`.
const MAX_CHANNELS: u64 = 64;

/// What the variables say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Environment {
    algorithms: Lists<Algorithm>,
    protocols: Lists<Protocol>,
    pub min_channels: u32,
    pub max_channels: u32,
    /// `NCCL_BUFFSIZE`, bytes.
    pub buffer_bytes: u64,
}

impl Default for Environment {
    /// Ring (the default of Megatron's deterministic mode), Simple, NCCL's own channel limits and
    /// buffer size.
    fn default() -> Environment {
        Environment {
            algorithms: Lists::new(),
            protocols: Lists::new(),
            min_channels: 1,
            max_channels: MAX_CHANNELS as u32,
            buffer_bytes: 4 << 20,
        }
    }
}

impl Environment {
    /// Reads the [`SIMULATED`] variables; others say nothing here. An empty value is none, as for
    /// NCCL.
    pub fn parse<'a>(
        variables: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Environment, EnvironmentError> {
        let mut environment = Environment::default();
        for (name, value) in variables {
            if value.is_empty() {
                continue;
            }
            match name {
                "NCCL_ALGO" => {
                    let known = Algorithm::ALL.map(|algorithm| (algorithm.name(), algorithm));
                    environment.algorithms = list::parse("NCCL_ALGO", value, &known)?;
                }
                "NCCL_PROTO" => {
                    let known = Protocol::ALL.map(|protocol| (protocol.name(), protocol));
                    environment.protocols = list::parse("NCCL_PROTO", value, &known)?;
                }
                "NCCL_MIN_NCHANNELS" => {
                    let count = number("NCCL_MIN_NCHANNELS", value, 1, MAX_CHANNELS)?;
                    environment.min_channels = count as u32;
                }
                "NCCL_MAX_NCHANNELS" => {
                    let count = number("NCCL_MAX_NCHANNELS", value, 1, MAX_CHANNELS)?;
                    environment.max_channels = count as u32;
                }
                "NCCL_BUFFSIZE" => {
                    environment.buffer_bytes = number("NCCL_BUFFSIZE", value, 4096, 1 << 30)?;
                }
                _ => {}
            }
        }
        Ok(environment)
    }

    /// The algorithms that `NCCL_ALGO` leaves for `function` and NCCL has for it; `None` where it
    /// does not speak of it.
    pub fn left(&self, function: Function) -> Option<Vec<Algorithm>> {
        let allowed = self.algorithms.get(&function)?.allowed.iter().copied();
        Some(
            allowed
                .filter(|algorithm| algorithm.serves(function))
                .collect(),
        )
    }

    /// The protocols that `NCCL_PROTO` leaves for `function`: all where it does not speak of it.
    pub fn protocols_left(&self, function: Function) -> Vec<Protocol> {
        match self.protocols.get(&function) {
            None => Protocol::ALL.to_vec(),
            Some(choice) => choice.allowed.iter().copied().collect(),
        }
    }

    /// The algorithms that `NCCL_ALGO` asks for by name for `function`, and does not merely leave.
    pub fn asked(&self, function: Function) -> Vec<Algorithm> {
        let by_exclusion = |choice: &list::Choice<_>| choice.by_exclusion;
        match self.algorithms.get(&function).is_none_or(by_exclusion) {
            true => Vec::new(),
            false => self.left(function).unwrap_or_default(),
        }
    }

    /// The algorithm that `function` uses: Ring where `NCCL_ALGO` does not speak of it, as in
    /// Megatron's deterministic mode.
    pub fn algorithm(&self, function: Function) -> Result<Algorithm, EnvironmentError> {
        let Some(left) = self.left(function) else {
            return Ok(Algorithm::Ring);
        };
        let function = function.name();
        match left[..] {
            [] => Err(EnvironmentError::NoAlgorithm { function }),
            [only] if only.planned() => Ok(only),
            [only] => Err(EnvironmentError::NotModelled {
                function,
                only: only.name(),
            }),
            _ => {
                let left = joined(left.iter().map(|algorithm| algorithm.name()));
                Err(EnvironmentError::Ambiguous { function, left })
            }
        }
    }

    /// The protocol that `function` uses: of those that `NCCL_PROTO` leaves, the first of Simple,
    /// LL128, LL. NCCL's own choice goes by size and hardware; it is not modelled.
    pub fn protocol(&self, function: Function) -> Result<Protocol, EnvironmentError> {
        let Some(choice) = self.protocols.get(&function) else {
            return Ok(Protocol::Simple);
        };
        [Protocol::Simple, Protocol::Ll128, Protocol::Ll]
            .into_iter()
            .find(|protocol| choice.allowed.contains(protocol))
            .ok_or(EnvironmentError::NoProtocol {
                function: function.name(),
            })
    }

    /// Why no plan can be made for one of `functions`: the first reason.
    pub fn refused(&self, functions: &[Function]) -> Option<EnvironmentError> {
        let one = |function: &Function| {
            let algorithm = self.algorithm(*function).err();
            algorithm.or_else(|| self.protocol(*function).err())
        };
        functions.iter().find_map(one)
    }

    /// What is assumed for those of `functions` for which NCCL would choose by size and topology,
    /// in words.
    pub fn assumed(&self, functions: &[Function]) -> Vec<String> {
        let mut assumed = Vec::new();
        let names = |open: &dyn Fn(Function) -> bool| {
            joined(
                functions
                    .iter()
                    .filter(|one| open(**one))
                    .map(|one| one.name()),
            )
        };
        let algorithm = names(&|one| !self.algorithms.contains_key(&one));
        if !algorithm.is_empty() {
            let said = match self.algorithms.is_empty() {
                true => "NCCL_ALGO is not set".to_string(),
                false => format!("NCCL_ALGO does not speak of {algorithm}"),
            };
            assumed.push(format!(
                "the algorithms NCCL would choose by size and topology: {said}, and Ring is \
                 assumed, as Megatron's deterministic mode sets it"
            ));
        }
        let protocol = names(&|one| {
            let choice = self.protocols.get(&one);
            choice.is_none_or(|choice| choice.allowed.len() > 1)
        });
        if !protocol.is_empty() {
            let said = match self.protocols.is_empty() {
                true => "NCCL_PROTO is not set, Simple is assumed".to_string(),
                false => format!(
                    "NCCL_PROTO leaves several for {protocol}, the first of Simple, LL128 and LL \
                     is assumed"
                ),
            };
            assumed.push(format!("the protocol NCCL would choose: {said}"));
        }
        assumed
    }
}

/// A whole number as `strtoll` reads it with base 0 (NCCL's `ncclLoadParam`): decimal, `0x`
/// hexadecimal, or octal after a `0`. What `strtoll` would cut short, such as `4M`, is refused.
fn number(
    variable: &'static str,
    value: &str,
    least: u64,
    most: u64,
) -> Result<u64, EnvironmentError> {
    let text = value.trim_start();
    let text = text.strip_prefix('+').unwrap_or(text);
    let lower = text.to_ascii_lowercase();
    let (digits, base) = match (lower.strip_prefix("0x"), lower.strip_prefix('0')) {
        (Some(digits), _) => (digits, 16),
        (None, Some(digits)) if !digits.is_empty() => (digits, 8),
        _ => (&*lower, 10),
    };
    let is_plain = digits.chars().all(|digit| digit.is_digit(base));
    let parsed = u64::from_str_radix(digits, base).ok();
    parsed
        .filter(|number| is_plain && (least..=most).contains(number))
        .ok_or_else(|| EnvironmentError::BadNumber {
            variable,
            value: value.to_owned(),
            least,
            most,
        })
}
