//! The NCCL variables that decide a plan.

use std::collections::{BTreeMap, BTreeSet};

use crate::plan::partition::Protocol;

/// NCCL's functions that `NCCL_ALGO` and `NCCL_PROTO` can name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Function {
    Broadcast,
    Reduce,
    AllGather,
    ReduceScatter,
    AllReduce,
}

impl Function {
    const ALL: [Function; 5] = [
        Function::Broadcast,
        Function::Reduce,
        Function::AllGather,
        Function::ReduceScatter,
        Function::AllReduce,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Function::Broadcast => "Broadcast",
            Function::Reduce => "Reduce",
            Function::AllGather => "AllGather",
            Function::ReduceScatter => "ReduceScatter",
            Function::AllReduce => "AllReduce",
        }
    }
}

/// The algorithms of NCCL 2.30.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Algorithm {
    Tree,
    Ring,
    CollNetDirect,
    CollNetChain,
    Nvls,
    NvlsTree,
    Pat,
}

impl Algorithm {
    const ALL: [Algorithm; 7] = [
        Algorithm::Tree,
        Algorithm::Ring,
        Algorithm::CollNetDirect,
        Algorithm::CollNetChain,
        Algorithm::Nvls,
        Algorithm::NvlsTree,
        Algorithm::Pat,
    ];

    /// As `NCCL_ALGO` spells it.
    pub const fn name(self) -> &'static str {
        match self {
            Algorithm::Tree => "Tree",
            Algorithm::Ring => "Ring",
            Algorithm::CollNetDirect => "CollNetDirect",
            Algorithm::CollNetChain => "CollNetChain",
            Algorithm::Nvls => "NVLS",
            Algorithm::NvlsTree => "NVLSTree",
            Algorithm::Pat => "PAT",
        }
    }

    /// Its order of additions is modelled.
    const fn modelled(self) -> bool {
        matches!(self, Algorithm::Tree | Algorithm::Ring)
    }

    /// NCCL has it for `function`.
    const fn serves(self, function: Function) -> bool {
        match self {
            Algorithm::Ring => true,
            Algorithm::Tree | Algorithm::CollNetChain | Algorithm::NvlsTree => {
                matches!(function, Function::AllReduce)
            }
            Algorithm::CollNetDirect | Algorithm::Nvls => {
                !matches!(function, Function::Broadcast | Function::Reduce)
            }
            Algorithm::Pat => matches!(function, Function::AllGather | Function::ReduceScatter),
        }
    }
}

/// Why an environment gives no plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EnvironmentError {
    #[error("{variable}: unknown function `{token}`, expected one of {expected}")]
    UnknownFunction {
        variable: &'static str,
        token: String,
        expected: String,
    },
    #[error("{variable}: unknown value `{token}`, expected one of {expected}")]
    UnknownToken {
        variable: &'static str,
        token: String,
        expected: String,
    },
    #[error("NCCL_ALGO: the order of `{token}` is not modelled; supported are Ring and Tree")]
    Unsupported { token: &'static str },
    #[error(
        "NCCL_ALGO leaves {left} open for {function}, and NCCL's cost model that would choose is \
         not modelled: pin Ring or Tree"
    )]
    Ambiguous {
        function: &'static str,
        left: String,
    },
    #[error("NCCL_ALGO leaves no algorithm for {function}: NCCL refuses the call")]
    NoAlgorithm { function: &'static str },
    #[error("NCCL_PROTO leaves no protocol for {function}: NCCL refuses the call")]
    NoProtocol { function: &'static str },
    #[error("{variable} = `{value}`: expected a whole number from {least} to {most}")]
    BadNumber {
        variable: &'static str,
        value: String,
        least: u64,
        most: u64,
    },
}

/// What the variables say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Environment {
    algorithms: BTreeMap<Function, BTreeSet<Algorithm>>,
    protocols: BTreeMap<Function, BTreeSet<Protocol>>,
    pub min_channels: u32,
    pub max_channels: u32,
    /// `NCCL_BUFFSIZE`, bytes.
    pub buffer_bytes: u64,
    /// Other `NCCL_*` variables that were given: they are not modelled.
    pub not_modelled: Vec<String>,
}

impl Default for Environment {
    /// Ring (the default of Megatron's deterministic mode), Simple, NCCL's own channel limits and
    /// buffer size.
    fn default() -> Environment {
        Environment {
            algorithms: BTreeMap::new(),
            protocols: BTreeMap::new(),
            min_channels: 1,
            max_channels: MAX_CHANNELS as u32,
            buffer_bytes: 4 << 20,
            not_modelled: Vec::new(),
        }
    }
}

/// NCCL's `MAXCHANNELS`.
const MAX_CHANNELS: u64 = 64;

impl Environment {
    /// Reads `NCCL_ALGO`, `NCCL_PROTO`, `NCCL_MIN_NCHANNELS`, `NCCL_MAX_NCHANNELS` and
    /// `NCCL_BUFFSIZE`; names of other `NCCL_*` variables are kept in `not_modelled`.
    pub fn parse<'a>(
        variables: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Environment, EnvironmentError> {
        let mut environment = Environment::default();
        for (name, value) in variables {
            match name {
                "NCCL_ALGO" => environment.algorithms = algorithms(value)?,
                "NCCL_PROTO" => {
                    environment.protocols =
                        lists("NCCL_PROTO", value, &Protocol::ALL.map(|p| (p.name(), p)))?;
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
                other if other.starts_with("NCCL_") => {
                    environment.not_modelled.push(other.to_owned());
                }
                _ => {}
            }
        }
        Ok(environment)
    }

    /// The algorithm that `function` uses: Ring where `NCCL_ALGO` does not speak of it, as in
    /// Megatron's deterministic mode.
    pub fn algorithm(&self, function: Function) -> Result<Algorithm, EnvironmentError> {
        let Some(allowed) = self.algorithms.get(&function) else {
            return Ok(Algorithm::Ring);
        };
        let left: Vec<Algorithm> = allowed
            .iter()
            .copied()
            .filter(|algorithm| algorithm.serves(function))
            .collect();
        match left[..] {
            [] => Err(EnvironmentError::NoAlgorithm {
                function: function.name(),
            }),
            [only] if only.modelled() => Ok(only),
            _ => {
                let left = joined(left.iter().map(|algorithm| algorithm.name()));
                Err(EnvironmentError::Ambiguous {
                    function: function.name(),
                    left,
                })
            }
        }
    }

    /// The protocol that `function` uses: of those that `NCCL_PROTO` leaves, the first of Simple,
    /// LL128, LL. NCCL's own choice goes by size and hardware; it is not modelled.
    pub fn protocol(&self, function: Function) -> Result<Protocol, EnvironmentError> {
        let Some(allowed) = self.protocols.get(&function) else {
            return Ok(Protocol::Simple);
        };
        [Protocol::Simple, Protocol::Ll128, Protocol::Ll]
            .into_iter()
            .find(|protocol| allowed.contains(protocol))
            .ok_or(EnvironmentError::NoProtocol {
                function: function.name(),
            })
    }
}

fn algorithms(value: &str) -> Result<BTreeMap<Function, BTreeSet<Algorithm>>, EnvironmentError> {
    let known = Algorithm::ALL.map(|algorithm| (algorithm.name(), algorithm));
    let lists = lists("NCCL_ALGO", value, &known)?;
    // A named algorithm that is not modelled is refused here, where it can still be named; one that
    // a `^` list leaves is refused where it would be chosen.
    for part in value.split(';') {
        let tokens = part.rsplit(':').next().unwrap_or(part);
        if tokens.trim_start().starts_with('^') {
            continue;
        }
        let named = known.iter().filter(|(name, algorithm)| {
            !algorithm.modelled()
                && tokens
                    .split(',')
                    .any(|token| token.trim().eq_ignore_ascii_case(name))
        });
        if let Some((token, _)) = named.into_iter().next() {
            return Err(EnvironmentError::Unsupported { token });
        }
    }
    Ok(lists)
}

/// `[function:][^]token,token;...`, as NCCL's `parseList` reads it: a part without a function sets
/// all of them, later parts overrule earlier ones, `^` takes tokens away from the full set.
fn lists<T: Copy + Ord>(
    variable: &'static str,
    value: &str,
    known: &[(&'static str, T)],
) -> Result<BTreeMap<Function, BTreeSet<T>>, EnvironmentError> {
    let mut lists = BTreeMap::new();
    for part in value
        .split(';')
        .map(str::trim)
        .filter(|part| !part.is_empty())
    {
        let (functions, tokens) = match part.split_once(':') {
            None => (Function::ALL.to_vec(), part),
            Some((name, tokens)) => (vec![function(variable, name.trim())?], tokens.trim()),
        };
        let (negated, tokens) = match tokens.strip_prefix('^') {
            Some(tokens) => (true, tokens),
            None => (false, tokens),
        };
        let mut named = BTreeSet::new();
        for token in tokens.split(',').map(str::trim) {
            let found = known
                .iter()
                .find(|(name, _)| token.eq_ignore_ascii_case(name));
            let (_, value) = found.ok_or_else(|| EnvironmentError::UnknownToken {
                variable,
                token: token.to_owned(),
                expected: joined(known.iter().map(|(name, _)| *name)),
            })?;
            named.insert(*value);
        }
        let all = known.iter().map(|(_, value)| *value);
        let allowed: BTreeSet<T> = all
            .filter(|value| named.contains(value) != negated)
            .collect();
        for function in functions {
            lists.insert(function, allowed.clone());
        }
    }
    Ok(lists)
}

fn function(variable: &'static str, name: &str) -> Result<Function, EnvironmentError> {
    let mut all = Function::ALL.into_iter();
    all.find(|function| name.eq_ignore_ascii_case(function.name()))
        .ok_or_else(|| EnvironmentError::UnknownFunction {
            variable,
            token: name.to_owned(),
            expected: joined(Function::ALL.iter().map(|function| function.name())),
        })
}

fn number(
    variable: &'static str,
    value: &str,
    least: u64,
    most: u64,
) -> Result<u64, EnvironmentError> {
    let parsed = value
        .trim()
        .parse()
        .ok()
        .filter(|number| (least..=most).contains(number));
    parsed.ok_or_else(|| {
        let value = value.to_owned();
        EnvironmentError::BadNumber {
            variable,
            value,
            least,
            most,
        }
    })
}

fn joined<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn algo(value: &str) -> Result<Environment, EnvironmentError> {
        Environment::parse([("NCCL_ALGO", value)])
    }

    #[test]
    fn one_algorithm_for_each_function() {
        let environment = algo("ring;allreduce:tree").unwrap();
        assert_eq!(
            environment.algorithm(Function::AllReduce),
            Ok(Algorithm::Tree)
        );
        assert_eq!(
            environment.algorithm(Function::ReduceScatter),
            Ok(Algorithm::Ring)
        );
        let environment = algo("Tree").unwrap();
        assert_eq!(
            environment.algorithm(Function::ReduceScatter),
            Err(EnvironmentError::NoAlgorithm {
                function: "ReduceScatter"
            })
        );
        // Tree serves all-reduce only, so for the others the choice is no choice.
        let environment = algo("Ring,Tree").unwrap();
        assert_eq!(environment.algorithm(Function::Reduce), Ok(Algorithm::Ring));
        assert!(matches!(
            environment.algorithm(Function::AllReduce),
            Err(EnvironmentError::Ambiguous { .. })
        ));
    }

    #[test]
    fn what_is_not_modelled_is_refused_by_name() {
        assert_eq!(
            algo("Ring,nvls"),
            Err(EnvironmentError::Unsupported { token: "NVLS" })
        );
        let left = algo("^NVLS")
            .unwrap()
            .algorithm(Function::AllReduce)
            .unwrap_err();
        assert!(left.to_string().contains("NVLSTree"), "{left}");
        let only = algo("^tree,collnetdirect,collnetchain,nvls,nvlstree,pat").unwrap();
        assert_eq!(only.algorithm(Function::AllReduce), Ok(Algorithm::Ring));
        let error = algo("Rign").unwrap_err().to_string();
        assert!(
            error.contains("`Rign`") && error.contains("Ring"),
            "{error}"
        );
        let error = algo("allreduc:ring").unwrap_err().to_string();
        assert!(
            error.contains("`allreduc`") && error.contains("AllReduce"),
            "{error}"
        );
    }

    #[test]
    fn protocols_numbers_and_the_rest() {
        let environment = Environment::parse([
            ("NCCL_PROTO", "^Simple"),
            ("NCCL_MAX_NCHANNELS", "1"),
            ("NCCL_P2P_LEVEL", "SYS"),
            ("OMP_NUM_THREADS", "1"),
        ])
        .unwrap();
        assert_eq!(
            environment.protocol(Function::AllReduce),
            Ok(Protocol::Ll128)
        );
        assert_eq!(environment.max_channels, 1);
        assert_eq!(environment.not_modelled, ["NCCL_P2P_LEVEL"]);
        for bad in ["0", "65", "many", ""] {
            let error = Environment::parse([("NCCL_MIN_NCHANNELS", bad)]).unwrap_err();
            assert!(
                matches!(error, EnvironmentError::BadNumber { .. }),
                "{error}"
            );
        }
    }
}
