//! The kernel ABI of engines that bind whole arenas: many instances in one dispatch.
//!
//! Instances lie one after the other along z: instance = workgroup_id.z / grid.z. A table, bound
//! after the operands, holds a row for each instance:
//!
//! ```text
//! header  [grid z, 0, 0, 0]
//! row     [grid x, y, z] [offset, extent of each operand, in elements] [words of params]
//! ```
//!
//! A flag follows the table. Every access to an operand becomes a call of a small function that
//! compares the index with the extent; outside, it notes instance x 16 + operand in the flag (the
//! least one stays) and the access yields 0 or stores nothing. Operand k stays binding k of its
//! own type, whatever arena is bound there, always read_write.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use naga::valid::{Capabilities, FunctionInfo, ModuleInfo, ValidationFlags, Validator};
use naga::{
    AddressSpace, Arena, Binding, Block, BuiltIn, Expression, Function, Handle, Literal, Module,
    Range, ScalarKind, Span, Statement, TypeInner,
};

use super::rebuild::rebuild;
use super::{Kernel, canonical};

/// Words before the first row of a table.
pub const HEADER_WORDS: u32 = 4;

/// A kernel with the ABI above; its entry point is `bp_entry`.
pub struct Lowered {
    pub module: Module,
    pub info: ModuleInfo,
    /// Words of one row of the table.
    pub row_words: u32,
}

/// The built-in values that `bp_body` takes, in order.
const BODY_ARGUMENTS: [BuiltIn; 5] = [
    BuiltIn::GlobalInvocationId,
    BuiltIn::WorkGroupId,
    BuiltIn::LocalInvocationId,
    BuiltIn::LocalInvocationIndex,
    BuiltIn::NumWorkGroups,
];

/// Rewrites a kernel for the ABI.
///
/// # Errors
/// What the kernel does that the ABI has no form for.
pub fn lower(kernel: &Kernel) -> Result<Lowered, String> {
    let row_words = 3 + 2 * kernel.operands.len() as u32 + kernel.params_words;
    let text = text_with_helpers(kernel, row_words);
    let mut module = naga::front::wgsl::parse_str(&text).map_err(|e| e.emit_to_string(&text))?;
    let info = validate(&module)?;
    let main = module
        .entry_points
        .iter()
        .position(|entry| entry.name == "main");
    let main = main.ok_or("a kernel without main")?;
    let main_info = info.get_entry_point(main).clone();
    let main = module.entry_points.remove(main).function;
    let names: BTreeMap<String, Handle<Function>> = module
        .functions
        .iter()
        .filter_map(|(handle, function)| Some((function.name.clone()?, handle)))
        .collect();
    let body = names["bp_body"];
    become_body(&mut module.functions[body], main)?;
    let handles: Vec<Handle<Function>> = module.functions.iter().map(|(h, _)| h).collect();
    for handle in handles {
        let is_helper = names
            .iter()
            .any(|(name, known)| *known == handle && is_helper(name));
        if !is_helper {
            let info = if handle == body {
                &main_info
            } else {
                &info[handle]
            };
            let mut function = std::mem::take(&mut module.functions[handle]);
            lower_function(&module, &names, info, &mut function)?;
            module.functions[handle] = function;
        }
    }
    let info = validate(&module)?;
    canonical::canonicalise_nans(&mut module, &info);
    naga::compact::compact(&mut module, naga::compact::KeepUnused::No);
    let info = validate(&module)?;
    Ok(Lowered {
        module,
        info,
        row_words,
    })
}

fn validate(module: &Module) -> Result<ModuleInfo, String> {
    Validator::new(ValidationFlags::all(), Capabilities::empty())
        .validate(module)
        .map_err(|error| error.emit_to_string("(lowered kernel)"))
}

fn is_helper(name: &str) -> bool {
    [
        "bp_load_",
        "bp_store_",
        "bp_lane_",
        "bp_param_",
        "bp_inside",
    ]
    .iter()
    .any(|start| name.starts_with(start))
}

/// The kernel's text with the functions that its accesses become, and the new entry point.
fn text_with_helpers(kernel: &Kernel, row_words: u32) -> String {
    let table = kernel.operands.len();
    let flag = table + 1;
    let mut text = format!(
        "@group(0) @binding({table}) var<storage, read_write> bp_table: array<u32>;\n\
         @group(0) @binding({flag}) var<storage, read_write> bp_flag: atomic<u32>;\n\
         var<private> bp_row: u32;\n\
         var<private> bp_instance: u32;\n\
         fn bp_inside(index: u32, operand: u32) -> bool {{\n\
             if index < bp_table[bp_row + 4u + 2u * operand] {{ return true; }}\n\
             atomicMin(&bp_flag, bp_instance * 16u + operand);\n\
             return false;\n\
         }}\n"
    );
    for place in 0..kernel.operands.len() {
        operand_helpers(kernel, place, &mut text);
    }
    for (word, scalar) in params_types(&kernel.module).iter().enumerate() {
        let at = 3 + 2 * kernel.operands.len() + word;
        let _ = writeln!(
            text,
            "fn bp_param_{word}() -> {scalar} {{\n\
                 return bitcast<{scalar}>(bp_table[bp_row + {at}u]);\n\
             }}"
        );
    }
    text.push_str(&kernel.text);
    let [x, y, z] = kernel.workgroup;
    let _ = writeln!(
        text,
        "fn bp_body(gid: vec3<u32>, group: vec3<u32>, local: vec3<u32>, index: u32, \
             groups: vec3<u32>) {{}}\n\
         @compute @workgroup_size({x}, {y}, {z})\n\
         fn bp_entry(@builtin(workgroup_id) place: vec3<u32>,\n\
                     @builtin(local_invocation_id) local: vec3<u32>,\n\
                     @builtin(local_invocation_index) index: u32) {{\n\
             bp_instance = place.z / bp_table[0];\n\
             bp_row = {HEADER_WORDS}u + bp_instance * {row_words}u;\n\
             let group = vec3<u32>(place.xy, place.z % bp_table[0]);\n\
             let groups =\n\
                 vec3<u32>(bp_table[bp_row], bp_table[bp_row + 1u], bp_table[bp_row + 2u]);\n\
             bp_body(group * vec3<u32>({x}u, {y}u, {z}u) + local, group, local, index, groups);\n\
         }}"
    );
    text
}

fn operand_helpers(kernel: &Kernel, place: usize, text: &mut String) {
    let name = &kernel.operands[place].name;
    let (scalar, lanes) = element_type(&kernel.module, place as u32);
    let element = if lanes == 1 {
        scalar.to_owned()
    } else {
        format!("vec{lanes}<{scalar}>")
    };
    let at = format!("{name}[bp_table[bp_row + {}u] + index]", 3 + 2 * place);
    let _ = write!(
        text,
        "fn bp_load_{place}(index: u32) -> {element} {{\n\
             if bp_inside(index, {place}u) {{ return {at}; }}\n\
             return {element}();\n\
         }}\n\
         fn bp_store_{place}(index: u32, value: {element}) {{\n\
             if bp_inside(index, {place}u) {{ {at} = value; }}\n\
         }}\n"
    );
    if lanes > 1 {
        let _ = write!(
            text,
            "fn bp_lane_{place}(index: u32, lane: u32, value: {scalar}) {{\n\
                 if bp_inside(index, {place}u) {{ {at}[lane] = value; }}\n\
             }}\n"
        );
    }
}

fn scalar_name(inner: &TypeInner) -> &'static str {
    match inner.scalar_kind() {
        Some(ScalarKind::Float) => "f32",
        Some(ScalarKind::Sint) => "i32",
        _ => "u32",
    }
}

fn element_type(module: &Module, binding: u32) -> (&'static str, u32) {
    let variable = module
        .global_variables
        .iter()
        .map(|(_, variable)| variable)
        .find(|variable| {
            variable
                .binding
                .is_some_and(|at| at.group == 0 && at.binding == binding)
        });
    let variable = variable.expect("the signature has shown contiguous bindings");
    let TypeInner::Array { base, .. } = module.types[variable.ty].inner else {
        unreachable!("the signature has shown an array");
    };
    let inner = &module.types[base].inner;
    let lanes = if let TypeInner::Vector { size, .. } = inner {
        *size as u32
    } else {
        1
    };
    (scalar_name(inner), lanes)
}

fn params_types(module: &Module) -> Vec<&'static str> {
    let uniform = module
        .global_variables
        .iter()
        .find(|(_, v)| v.space == AddressSpace::Uniform);
    match uniform.map(|(_, variable)| &module.types[variable.ty].inner) {
        Some(TypeInner::Struct { members, .. }) => members
            .iter()
            .map(|member| scalar_name(&module.types[member.ty].inner))
            .collect(),
        _ => Vec::new(),
    }
}

/// Puts the code of `main` into `body`, which takes all built-in values.
fn become_body(body: &mut Function, main: Function) -> Result<(), String> {
    let mut places = Vec::new();
    for argument in &main.arguments {
        let Some(Binding::BuiltIn(built_in)) = argument.binding else {
            return Err("built-in values in a struct".to_owned());
        };
        let place = BODY_ARGUMENTS.iter().position(|known| *known == built_in);
        places.push(place.ok_or(format!("built-in value {built_in:?}"))? as u32);
    }
    let arguments = std::mem::take(&mut body.arguments);
    let name = body.name.take();
    *body = Function {
        arguments,
        name,
        ..main
    };
    for (_, expression) in body.expressions.iter_mut() {
        if let Expression::FunctionArgument(place) = expression {
            *place = places[*place as usize];
        }
    }
    Ok(())
}

/// An index or a lane: written in the kernel, or an expression.
#[derive(Clone, Copy)]
enum Index {
    Fixed(u32),
    At(Handle<Expression>),
}

/// What a pointer expression points to, when it is not a local.
#[derive(Clone, Copy)]
enum Target {
    Operand(u32),
    Element(u32, Index),
    Lane(u32, Index, Index),
    Params,
    Param(u32),
}

fn target(
    module: &Module,
    expressions: &Arena<Expression>,
    handle: Handle<Expression>,
) -> Option<Target> {
    let (base, index) = match expressions[handle] {
        Expression::GlobalVariable(variable) => {
            let variable = &module.global_variables[variable];
            return match (variable.space, variable.binding) {
                (AddressSpace::Storage { .. }, Some(at)) => Some(Target::Operand(at.binding)),
                (AddressSpace::Uniform, _) => Some(Target::Params),
                _ => None,
            };
        }
        Expression::Access { base, index } => (base, Index::At(index)),
        Expression::AccessIndex { base, index } => (base, Index::Fixed(index)),
        _ => return None,
    };
    Some(match (target(module, expressions, base)?, index) {
        (Target::Operand(operand), index) => Target::Element(operand, index),
        (Target::Element(operand, at), lane) => Target::Lane(operand, at, lane),
        (Target::Params, Index::Fixed(word)) => Target::Param(word),
        _ => return None,
    })
}

/// A call that stands for a load or a store, in new handles.
struct Call {
    function: Handle<Function>,
    arguments: Vec<Handle<Expression>>,
}

/// What the new expressions of a function stand for.
#[derive(Default)]
struct Plan {
    /// Loads, by their new expression: a call before it gives the value.
    loads: BTreeMap<usize, Call>,
    /// Pointers to operands, by their new expression: never emitted; the call that stores there,
    /// to which the value is added.
    pointers: BTreeMap<usize, Call>,
}

fn lower_function(
    module: &Module,
    names: &BTreeMap<String, Handle<Function>>,
    info: &FunctionInfo,
    function: &mut Function,
) -> Result<(), String> {
    let old = function.expressions.clone();
    let targets: Vec<Option<Target>> = old
        .iter()
        .map(|(handle, _)| target(module, &old, handle))
        .collect();
    let mut fixed = BTreeSet::new();
    for found in targets.iter().flatten() {
        let indices = match *found {
            Target::Element(_, index) => [Some(index), None],
            Target::Lane(_, index, lane) => [Some(index), Some(lane)],
            _ => [None, None],
        };
        fixed.extend(
            indices
                .into_iter()
                .flatten()
                .filter_map(|index| match index {
                    Index::Fixed(value) => Some(value),
                    Index::At(_) => None,
                }),
        );
    }
    let signed = |handle: Handle<Expression>| {
        info[handle].ty.inner_with(&module.types).scalar_kind() == Some(ScalarKind::Sint)
    };
    let mut rewriter = Rewriter {
        names,
        targets,
        signed: old.iter().map(|(handle, _)| signed(handle)).collect(),
        new_of: Vec::new(),
        plan: Plan::default(),
        error: None,
    };
    rebuild(
        function,
        |arena| {
            let literal = |value: &u32| {
                let literal = Expression::Literal(Literal::U32(*value));
                (*value, arena.append(literal, Span::UNDEFINED))
            };
            fixed
                .iter()
                .map(literal)
                .collect::<BTreeMap<u32, Handle<Expression>>>()
        },
        |literals, handle, expression, span, arena| {
            let new = rewriter.rewrite(literals, &old, handle, expression, span, arena);
            rewriter.new_of.push(new);
            new
        },
    );
    if let Some(error) = rewriter.error {
        return Err(error);
    }
    let mut body = std::mem::take(&mut function.body);
    split(&rewriter.plan, &function.expressions, &mut body);
    function.body = body;
    Ok(())
}

struct Rewriter<'a> {
    names: &'a BTreeMap<String, Handle<Function>>,
    /// By old expression.
    targets: Vec<Option<Target>>,
    signed: Vec<bool>,
    new_of: Vec<Handle<Expression>>,
    plan: Plan,
    error: Option<String>,
}

impl Rewriter<'_> {
    fn rewrite(
        &mut self,
        literals: &BTreeMap<u32, Handle<Expression>>,
        old: &Arena<Expression>,
        handle: Handle<Expression>,
        expression: Expression,
        span: Span,
        arena: &mut Arena<Expression>,
    ) -> Handle<Expression> {
        if let Expression::Load { pointer } = old[handle]
            && let Some(target) = self.targets[pointer.index()]
        {
            return self.load(literals, target, span, arena);
        }
        let Some(target) = self.targets[handle.index()] else {
            return arena.append(expression, span);
        };
        let call = match target {
            Target::Element(operand, index) => Some((format!("bp_store_{operand}"), vec![index])),
            Target::Lane(operand, index, lane) => {
                Some((format!("bp_lane_{operand}"), vec![index, lane]))
            }
            Target::Operand(_) | Target::Params | Target::Param(_) => None,
        };
        let call = call.map(|(name, indices)| {
            let indices = indices.into_iter();
            let arguments = indices
                .map(|index| self.index(literals, index, span, arena))
                .collect();
            Call {
                function: self.names[&name],
                arguments,
            }
        });
        let is_global = matches!(expression, Expression::GlobalVariable(_));
        let new = arena.append(expression, span);
        match call {
            Some(call) => {
                self.plan.pointers.insert(new.index(), call);
            }
            None if !is_global => {
                let nothing = Call {
                    function: self.names["bp_body"],
                    arguments: Vec::new(),
                };
                self.plan.pointers.insert(new.index(), nothing);
            }
            None => {}
        }
        new
    }

    /// An index as a u32.
    fn index(
        &self,
        literals: &BTreeMap<u32, Handle<Expression>>,
        index: Index,
        span: Span,
        arena: &mut Arena<Expression>,
    ) -> Handle<Expression> {
        match index {
            Index::Fixed(value) => literals[&value],
            Index::At(old) => {
                let new = self.new_of[old.index()];
                if !self.signed[old.index()] {
                    return new;
                }
                let cast = Expression::As {
                    expr: new,
                    kind: ScalarKind::Uint,
                    convert: None,
                };
                arena.append(cast, span)
            }
        }
    }

    fn load(
        &mut self,
        literals: &BTreeMap<u32, Handle<Expression>>,
        target: Target,
        span: Span,
        arena: &mut Arena<Expression>,
    ) -> Handle<Expression> {
        let (name, index, lane) = match target {
            Target::Element(operand, index) => (format!("bp_load_{operand}"), Some(index), None),
            Target::Lane(operand, index, lane) => {
                (format!("bp_load_{operand}"), Some(index), Some(lane))
            }
            Target::Param(word) => (format!("bp_param_{word}"), None, None),
            Target::Operand(_) | Target::Params => {
                self.error = Some("params as one value".to_owned());
                return literals
                    .values()
                    .next()
                    .copied()
                    .unwrap_or_else(|| arena.append(Expression::Literal(Literal::U32(0)), span));
            }
        };
        let function = self.names[&name];
        let arguments = index.map(|index| self.index(literals, index, span, arena));
        let value = arena.append(Expression::CallResult(function), span);
        let call = Call {
            function,
            arguments: arguments.into_iter().collect(),
        };
        self.plan.loads.insert(value.index(), call);
        match lane {
            None => value,
            Some(Index::Fixed(index)) => {
                arena.append(Expression::AccessIndex { base: value, index }, span)
            }
            Some(Index::At(old)) => {
                let index = self.new_of[old.index()];
                arena.append(Expression::Access { base: value, index }, span)
            }
        }
    }
}

/// Puts the calls where the loads and stores were.
fn split(plan: &Plan, arena: &Arena<Expression>, block: &mut Block) {
    let old = std::mem::take(block);
    for (mut statement, span) in old.span_into_iter() {
        match &mut statement {
            Statement::Emit(range) => {
                split_emit(plan, arena, range.clone(), span, block);
                continue;
            }
            Statement::Store { pointer, value } => {
                if let Some(call) = plan.pointers.get(&pointer.index()) {
                    let mut arguments = call.arguments.clone();
                    arguments.push(*value);
                    let function = call.function;
                    let store = Statement::Call {
                        function,
                        arguments,
                        result: None,
                    };
                    block.push(store, span);
                    continue;
                }
            }
            Statement::Block(inner) => split(plan, arena, inner),
            Statement::If { accept, reject, .. } => {
                split(plan, arena, accept);
                split(plan, arena, reject);
            }
            Statement::Switch { cases, .. } => {
                cases
                    .iter_mut()
                    .for_each(|case| split(plan, arena, &mut case.body));
            }
            Statement::Loop {
                body, continuing, ..
            } => {
                split(plan, arena, body);
                split(plan, arena, continuing);
            }
            _ => {}
        }
        block.push(statement, span);
    }
}

fn split_emit(
    plan: &Plan,
    arena: &Arena<Expression>,
    range: Range<Expression>,
    span: Span,
    block: &mut Block,
) {
    let all = range.index_range();
    let mut start = all.start;
    for at in all.clone().chain([all.end]) {
        let load = plan.loads.get(&(at as usize));
        if at < all.end && load.is_none() && !plan.pointers.contains_key(&(at as usize)) {
            continue;
        }
        if start < at {
            block.push(
                Statement::Emit(Range::from_index_range(start..at, arena)),
                span,
            );
        }
        start = at + 1;
        if at < all.end
            && let Some(load) = load
        {
            let result = Range::from_index_range(at..at + 1, arena).next();
            let (function, arguments) = (load.function, load.arguments.clone());
            block.push(
                Statement::Call {
                    function,
                    arguments,
                    result,
                },
                span,
            );
        }
    }
}
