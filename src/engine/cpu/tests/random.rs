//! Random programs, run by the JIT and by a small interpreter of the same tree in Rust.

use std::fmt::Write as _;

use proptest::prelude::*;
use proptest::strategy::LazyJust;

use super::run_body;

/// An expression over the variables v0..v3. A float is made from, and given back as, its bits.
#[derive(Clone, Debug)]
enum Expr {
    Var(u8),
    Word(u32),
    Unary(&'static str, Box<Expr>),
    Binary(&'static str, Box<Expr>, Box<Expr>),
    Select(Box<Expr>, Box<Expr>, Box<Expr>),
}

#[derive(Clone, Debug)]
enum Stmt {
    Assign(u8, Expr),
    If(Expr, Vec<Stmt>, Vec<Stmt>),
    /// At most seven times round; breaks early when the expression is odd.
    Loop(u8, Expr, Vec<Stmt>),
}

const BINARY: [&str; 16] = [
    "+", "-", "*", "/", "%", "&", "|", "^", "<<", ">>", "<", "s<", "f+", "f*", "f/", "f<",
];
const UNARY: [&str; 6] = ["~", "clz", "sneg", "fneg", "ffloor", "f32"];

fn expr() -> impl Strategy<Value = Expr> {
    let word = prop_oneof![
        any::<u32>(),
        0u32..40,
        prop::sample::select(vec![
            0x3f80_0000,
            0x8000_0000,
            0xff80_0000,
            1,
            u32::MAX,
            0x4b00_0001
        ]),
    ];
    let leaf = prop_oneof![(0u8..4).prop_map(Expr::Var), word.prop_map(Expr::Word)];
    leaf.prop_recursive(4, 24, 3, |inner| {
        let boxed = inner.prop_map(Box::new).boxed();
        prop_oneof![
            (prop::sample::select(&UNARY[..]), boxed.clone())
                .prop_map(|(op, x)| Expr::Unary(op, x)),
            (
                prop::sample::select(&BINARY[..]),
                boxed.clone(),
                boxed.clone()
            )
                .prop_map(|(op, x, y)| Expr::Binary(op, x, y)),
            (boxed.clone(), boxed.clone(), boxed).prop_map(|(c, x, y)| Expr::Select(c, x, y)),
        ]
    })
}

fn block() -> impl Strategy<Value = Vec<Stmt>> {
    let assign = (0u8..4, expr())
        .prop_map(|(v, e)| Stmt::Assign(v, e))
        .boxed();
    let empty = LazyJust::new(|| Stmt::Assign(0, Expr::Var(0)));
    let stmt = prop_oneof![9 => assign, 1 => empty].prop_recursive(2, 12, 4, |inner| {
        let body = prop::collection::vec(inner, 0..4).boxed();
        prop_oneof![
            (expr(), body.clone(), body.clone()).prop_map(|(c, a, b)| Stmt::If(c, a, b)),
            (1u8..8, expr(), body).prop_map(|(n, c, b)| Stmt::Loop(n, c, b)),
        ]
    });
    prop::collection::vec(stmt, 1..6)
}

// --- as WGSL ---

fn text(e: &Expr) -> String {
    let float = |x: &Expr| format!("bitcast<f32>({})", text(x));
    let signed = |x: &Expr| format!("bitcast<i32>({})", text(x));
    match e {
        Expr::Var(v) => format!("v{v}"),
        Expr::Word(w) => format!("opaque({w}u)"),
        Expr::Unary("~", x) => format!("(~{})", text(x)),
        Expr::Unary("clz", x) => format!("countLeadingZeros({})", text(x)),
        Expr::Unary("sneg", x) => format!("bitcast<u32>(-{})", signed(x)),
        Expr::Unary("fneg", x) => format!("bitcast<u32>(-{})", float(x)),
        Expr::Unary("ffloor", x) => format!("bitcast<u32>(floor({}))", float(x)),
        Expr::Unary(_, x) => format!("bitcast<u32>(f32({}))", text(x)),
        Expr::Binary("s<", x, y) => format!("u32({} < {})", signed(x), signed(y)),
        Expr::Binary("f<", x, y) => format!("u32({} < {})", float(x), float(y)),
        Expr::Binary("<", x, y) => format!("u32({} < {})", text(x), text(y)),
        Expr::Binary(op @ ("<<" | ">>"), x, y) => format!("({} {op} ({} & 31u))", text(x), text(y)),
        Expr::Binary(op, x, y) => match op.strip_prefix('f') {
            Some(op) => format!("bitcast<u32>({} {op} {})", float(x), float(y)),
            None => format!("({} {op} {})", text(x), text(y)),
        },
        Expr::Select(c, x, y) => {
            format!("select({}, {}, ({} & 1u) == 1u)", text(y), text(x), text(c))
        }
    }
}

fn write_block(block: &[Stmt], depth: usize, out: &mut String) {
    for stmt in block {
        match stmt {
            Stmt::Assign(v, e) => {
                let _ = writeln!(out, "v{v} = {};", text(e));
            }
            Stmt::If(c, a, b) => {
                let _ = writeln!(out, "if ({} & 1u) == 1u {{", text(c));
                write_block(a, depth + 1, out);
                out.push_str("} else {\n");
                write_block(b, depth + 1, out);
                out.push_str("}\n");
            }
            Stmt::Loop(n, c, b) => {
                let _ = writeln!(
                    out,
                    "for (var n{depth} = 0u; n{depth} < {n}u; n{depth}++) {{"
                );
                write_block(b, depth + 1, out);
                let _ = writeln!(out, "if ({} & 1u) == 1u {{ break; }}\n}}", text(c));
            }
        }
    }
}

// --- as Rust ---

/// Bits of a float result: a NaN is canonical once it is seen as an integer.
fn seen(x: f32) -> u32 {
    if x.is_nan() { 0x7fc0_0000 } else { x.to_bits() }
}

fn value(e: &Expr, v: &[u32; 4]) -> u32 {
    let of = |x: &Expr| value(x, v);
    let float = |x: &Expr| f32::from_bits(value(x, v));
    match e {
        Expr::Var(n) => v[*n as usize],
        Expr::Word(w) => *w,
        Expr::Unary(op, x) => match *op {
            "~" => !of(x),
            "clz" => of(x).leading_zeros(),
            "sneg" => of(x).wrapping_neg(),
            "fneg" => seen(-float(x)),
            "ffloor" => seen(float(x).floor()),
            _ => (of(x) as f32).to_bits(),
        },
        Expr::Binary(op, x, y) => {
            let (a, b) = (of(x), of(y));
            let (p, q) = (f32::from_bits(a), f32::from_bits(b));
            match *op {
                "+" => a.wrapping_add(b),
                "-" => a.wrapping_sub(b),
                "*" => a.wrapping_mul(b),
                "/" => a.checked_div(b).unwrap_or(a),
                "%" => a.checked_rem(b).unwrap_or(0),
                "&" => a & b,
                "|" => a | b,
                "^" => a ^ b,
                "<<" => a << (b & 31),
                ">>" => a >> (b & 31),
                "<" => u32::from(a < b),
                "s<" => u32::from((a as i32) < (b as i32)),
                "f+" => seen(p + q),
                "f*" => seen(p * q),
                "f/" => seen(p / q),
                _ => u32::from(p < q),
            }
        }
        Expr::Select(c, x, y) => {
            if of(c) & 1 == 1 {
                of(x)
            } else {
                of(y)
            }
        }
    }
}

fn run(block: &[Stmt], v: &mut [u32; 4]) {
    for stmt in block {
        match stmt {
            Stmt::Assign(n, e) => v[*n as usize] = value(e, v),
            Stmt::If(c, a, b) => run(if value(c, v) & 1 == 1 { a } else { b }, v),
            Stmt::Loop(n, c, b) => {
                for _ in 0..*n {
                    run(b, v);
                    if value(c, v) & 1 == 1 {
                        break;
                    }
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]
    #[test]
    fn the_jit_and_an_interpreter_agree(program in block(), start in any::<[u32; 2]>()) {
        // `opaque` keeps naga from computing (and refusing) constant expressions.
        let helpers = "fn opaque(x: u32) -> u32 { return x; }";
        let mut body = "var v0 = input[i]; var v1 = i; var v2 = 7u; var v3 = 0u;\n".to_owned();
        write_block(&program, 0, &mut body);
        body.push_str("out[i] = v0 ^ (v1 * 3u) ^ (v2 << 7u) ^ (v3 >> 5u);");
        let inputs = [start[0], start[1], 0, 1.5f32.to_bits(), 9];
        let got = run_body(helpers, &body, &inputs);
        for (i, (input, got)) in inputs.iter().zip(got).enumerate() {
            let mut v = [*input, i as u32, 7, 0];
            run(&program, &mut v);
            let want = v[0] ^ v[1].wrapping_mul(3) ^ (v[2] << 7) ^ (v[3] >> 5);
            prop_assert_eq!(got, want, "input {} of\n{}", i, body);
        }
    }
}
