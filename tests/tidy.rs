#[test]
fn placeholder_replaced_soon() {}
