//! Refuses, by name, file and line, what no engine runs or what would leave the bits open.
//!
//! Two reasons, told apart in the message: an operation whose rounding WGSL leaves to the driver
//! (`fma`, `dot`, `min`, `exp`, ...), and a feature not built yet (barriers, atomics, workgroup
//! memory: they need invocations that stop and resume).

use naga::valid::{FunctionInfo, ModuleInfo};
use naga::{
    AddressSpace, BinaryOperator, Block, Expression, Function, Handle, MathFunction, ScalarKind,
    Span, Statement, TypeInner,
};

use super::error::KernelError;
use super::link::Linked;

const INEXACT: &str = ": its result is left to the driver";
const UNBUILT: &str = ": invocations that wait for each other are not built yet";

/// Checks every type, global and function of the module.
pub(super) fn check(
    module: &naga::Module,
    info: &ModuleInfo,
    linked: &Linked,
) -> Result<(), KernelError> {
    let refuse = |span: Span, what: String, why: &str| KernelError::Unsupported {
        location: linked.location_of(span),
        what,
        why: why.to_owned(),
    };
    for (handle, ty) in module.types.iter() {
        if let Some((what, why)) = unsupported_type(&ty.inner) {
            return Err(refuse(module.types.get_span(handle), what, why));
        }
    }
    for (handle, variable) in module.global_variables.iter() {
        let span = module.global_variables.get_span(handle);
        match variable.space {
            AddressSpace::Storage { .. } | AddressSpace::Uniform => {}
            AddressSpace::WorkGroup => {
                return Err(refuse(span, "workgroup memory".into(), UNBUILT));
            }
            space => return Err(refuse(span, format!("a global in {space:?} space"), "")),
        }
    }
    if let Some((handle, _)) = module.overrides.iter().next() {
        return Err(refuse(
            module.overrides.get_span(handle),
            "override".into(),
            "",
        ));
    }
    let entries = module.entry_points.iter().enumerate();
    let entries = entries.map(|(place, entry)| (&entry.function, info.get_entry_point(place)));
    let functions = module
        .functions
        .iter()
        .map(|(handle, function)| (function, &info[handle]));
    for (function, info) in functions.chain(entries) {
        let scope = Scope {
            module,
            function,
            info,
        };
        scope
            .check()
            .map_err(|(span, what, why)| refuse(span, what, why))?;
    }
    Ok(())
}

fn unsupported_type(inner: &TypeInner) -> Option<(String, &'static str)> {
    match inner {
        TypeInner::Scalar(scalar) | TypeInner::Vector { scalar, .. } => {
            let word = scalar.width == 4 || scalar.kind == ScalarKind::Bool;
            (!word).then(|| (format!("a scalar of {} bytes", scalar.width), ""))
        }
        TypeInner::Atomic(_) => Some(("atomic".to_owned(), UNBUILT)),
        TypeInner::Matrix { .. } => Some(("a matrix type".to_owned(), "")),
        TypeInner::Array { .. } | TypeInner::Struct { .. } | TypeInner::ValuePointer { .. } => None,
        TypeInner::Pointer {
            space: AddressSpace::Function,
            ..
        } => None,
        TypeInner::Pointer { space, .. } => Some((format!("a pointer into {space:?} space"), "")),
        _ => Some(("a texture, sampler or ray type".to_owned(), "")),
    }
}

type Refusal = (Span, String, &'static str);

struct Scope<'a> {
    module: &'a naga::Module,
    function: &'a Function,
    info: &'a FunctionInfo,
}

impl Scope<'_> {
    fn check(&self) -> Result<(), Refusal> {
        for (handle, expression) in self.function.expressions.iter() {
            if let Some((what, why)) = self.unsupported_expression(expression) {
                return Err((self.function.expressions.get_span(handle), what, why));
            }
        }
        check_block(&self.function.body)
    }

    fn kind(&self, handle: Handle<Expression>) -> Option<ScalarKind> {
        self.info[handle]
            .ty
            .inner_with(&self.module.types)
            .scalar_kind()
    }

    fn unsupported_expression(&self, expression: &Expression) -> Option<(String, &'static str)> {
        match *expression {
            Expression::Literal(_)
            | Expression::Constant(_)
            | Expression::ZeroValue(_)
            | Expression::Compose { .. }
            | Expression::Access { .. }
            | Expression::AccessIndex { .. }
            | Expression::Splat { .. }
            | Expression::Swizzle { .. }
            | Expression::FunctionArgument(_)
            | Expression::GlobalVariable(_)
            | Expression::LocalVariable(_)
            | Expression::Load { .. }
            | Expression::Unary { .. }
            | Expression::Select { .. }
            | Expression::Relational { .. }
            | Expression::As { .. }
            | Expression::CallResult(_) => None,
            Expression::Binary {
                op: BinaryOperator::Modulo,
                left,
                ..
            } => {
                let float = self.kind(left) == Some(ScalarKind::Float);
                float.then(|| ("`%` of floats".to_owned(), INEXACT))
            }
            Expression::Binary { .. } => None,
            Expression::Math { fun, arg, .. } => {
                unsupported_math(fun, self.kind(arg) == Some(ScalarKind::Float))
            }
            Expression::ArrayLength(_) => {
                Some(("arrayLength".to_owned(), ": lengths come in params"))
            }
            Expression::AtomicResult { .. } => Some(("an atomic operation".to_owned(), UNBUILT)),
            ref other => Some((variant_name(other), "")),
        }
    }
}

fn unsupported_math(fun: MathFunction, float: bool) -> Option<(String, &'static str)> {
    use MathFunction as M;
    match fun {
        M::Abs => None,
        M::Floor | M::Trunc | M::Sqrt => None,
        M::CountLeadingZeros | M::CountTrailingZeros | M::CountOneBits => None,
        M::Min | M::Max if !float => None,
        _ => Some((
            format!("`{}`", wgsl_name(fun)),
            if float { INEXACT } else { "" },
        )),
    }
}

/// The builtin as WGSL spells it: naga's names with a small first letter.
fn wgsl_name(fun: MathFunction) -> String {
    let mut name = format!("{fun:?}");
    name[..1].make_ascii_lowercase();
    name
}

/// `Foo` of `Foo { .. }`.
fn variant_name(value: &impl std::fmt::Debug) -> String {
    let text = format!("{value:?}");
    let end = text
        .find(|c: char| !c.is_ascii_alphanumeric())
        .unwrap_or(text.len());
    text[..end].to_owned()
}

fn check_block(block: &Block) -> Result<(), Refusal> {
    for (statement, span) in block.span_iter() {
        match statement {
            Statement::Emit(_)
            | Statement::Break
            | Statement::Continue
            | Statement::Return { .. }
            | Statement::Store { .. }
            | Statement::Call { .. } => {}
            Statement::Block(inner) => check_block(inner)?,
            Statement::If { accept, reject, .. } => {
                check_block(accept)?;
                check_block(reject)?;
            }
            Statement::Switch { cases, .. } => {
                for case in cases {
                    check_block(&case.body)?;
                }
            }
            Statement::Loop {
                body, continuing, ..
            } => {
                check_block(body)?;
                check_block(continuing)?;
            }
            Statement::ControlBarrier(_) | Statement::MemoryBarrier(_) => {
                return Err((*span, "a barrier".to_owned(), UNBUILT));
            }
            Statement::Atomic { .. } => {
                return Err((*span, "an atomic operation".to_owned(), UNBUILT));
            }
            other => return Err((*span, variant_name(other), "")),
        }
    }
    Ok(())
}
