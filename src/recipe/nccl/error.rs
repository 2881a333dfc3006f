//! Why an environment gives no plan.

/// What NCCL refuses, or what is not modelled.
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
    #[error("{variable}: `{part}` names no function, and only the first part may lack one")]
    NoFunction {
        variable: &'static str,
        part: String,
    },
    #[error(
        "NCCL_ALGO takes {only} for {function}, whose order is not modelled; supported are Ring \
         and Tree"
    )]
    NotModelled {
        function: &'static str,
        only: &'static str,
    },
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

impl EnvironmentError {
    /// The variable that it is about.
    pub fn variable(&self) -> &'static str {
        match self {
            EnvironmentError::UnknownFunction { variable, .. }
            | EnvironmentError::UnknownToken { variable, .. }
            | EnvironmentError::NoFunction { variable, .. }
            | EnvironmentError::BadNumber { variable, .. } => variable,
            EnvironmentError::NotModelled { .. }
            | EnvironmentError::Ambiguous { .. }
            | EnvironmentError::NoAlgorithm { .. } => "NCCL_ALGO",
            EnvironmentError::NoProtocol { .. } => "NCCL_PROTO",
        }
    }

    /// What the job would need for a plan, where NCCL itself has one.
    pub fn need(&self) -> Option<String> {
        match self {
            EnvironmentError::NotModelled { only, .. } => Some(format!("the order of {only}")),
            EnvironmentError::Ambiguous { left, .. } => {
                Some(format!("NCCL's own choice between {left}"))
            }
            _ => None,
        }
    }

    /// What to do about it.
    pub fn help(&self) -> &'static str {
        match self {
            EnvironmentError::UnknownToken { token, .. } if token.starts_with('^') => {
                "`^` stands once, before the whole list: `^NVLS,NVLSTree`"
            }
            EnvironmentError::UnknownToken { token, .. } if token.contains(char::is_whitespace) => {
                "NCCL takes no spaces in a list: `Ring,Tree`"
            }
            EnvironmentError::UnknownFunction { .. }
            | EnvironmentError::UnknownToken { .. }
            | EnvironmentError::NoFunction { .. } => {
                "a list is such as `Ring`, `^NVLS,NVLSTree` or `Ring;AllReduce:Tree`"
            }
            EnvironmentError::NotModelled { .. } | EnvironmentError::Ambiguous { .. } => {
                "to check the job as it would run with it: NCCL_ALGO=Ring"
            }
            EnvironmentError::NoAlgorithm { .. } => {
                "name one for it, such as `Ring;AllReduce:Tree`"
            }
            EnvironmentError::NoProtocol { .. } => "leave one of Simple, LL and LL128",
            EnvironmentError::BadNumber { .. } => "leave it out to have NCCL's default",
        }
    }
}

pub(super) fn joined<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.collect::<Vec<_>>().join(", ")
}
