#[test]
fn tmp_validate() {
    let math = |n: &str| std::fs::read_to_string(format!("/work/h2/shaders/{n}.wgsl")).unwrap();
    for e in std::fs::read_dir("shaders").unwrap() {
        let p = e.unwrap().path();
        if p.extension().is_none() { continue; }
        let t = std::fs::read_to_string(&p).unwrap();
        let mut out = String::new();
        for l in t.lines() { if let Some(n) = l.strip_prefix("// use: ") { if n != "math/combine" { let m = math(n); out += &m; if m.contains("// use: math/product") { out += &math("math/product"); } } } }
        out += &t;
        match naga::front::wgsl::parse_str(&out) {
            Err(e) => println!("{p:?}\n{}", e.emit_to_string(&out)),
            Ok(m) => { if let Err(e) = naga::valid::Validator::new(naga::valid::ValidationFlags::all(), naga::valid::Capabilities::all()).validate(&m) { println!("{p:?} INVALID {:?}", e); } }
        }
    }
}
