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
    let none = EnvironmentError::NoAlgorithm {
        function: "ReduceScatter",
    };
    assert_eq!(
        environment.algorithm(Function::ReduceScatter),
        Err(none.clone())
    );
    assert_eq!(environment.refused(&[Function::AllReduce]), None);
    let both = [Function::AllReduce, Function::ReduceScatter];
    assert_eq!(environment.refused(&both), Some(none));
    // Tree serves all-reduce only, so for the others the choice is no choice.
    let environment = algo("Ring,Tree").unwrap();
    assert_eq!(environment.algorithm(Function::Reduce), Ok(Algorithm::Ring));
    assert!(matches!(
        environment.algorithm(Function::AllReduce),
        Err(EnvironmentError::Ambiguous { .. })
    ));
}

#[test]
fn lists_are_read_as_nccl_reads_them() {
    let left = |value: &str| algo(value).unwrap().left(Function::AllReduce).unwrap();
    let ring = vec![Algorithm::Ring];
    for value in [
        "Ring",
        "RING",
        "ring,",
        ",ring",
        "ring;",
        "ring;broadcast:tree",
        "tree;allreduce:ring",
        "AllReduce:ring",
        "allreduce:tree;ALLREDUCE:ring",
        "^tree,collnetdirect,collnetchain,nvls,nvlstree,pat",
        // strtok never asks for a third piece.
        "allreduce:ring:tree",
    ] {
        assert_eq!(left(value), ring, "{value}");
    }
    // `^` is of the whole list.
    assert!(!left("^NVLS,NVLSTree").contains(&Algorithm::NvlsTree));
    assert!(left("^NVLS").contains(&Algorithm::NvlsTree));
    assert_eq!(left("^").len(), 6, "PAT serves no all-reduce");
    for (value, said) in [
        ("foo", "`foo`"),
        ("Rign", "Ring"),
        ("Ring,^NVLS", "`^NVLS`"),
        ("Ring, Tree", "` Tree`"),
        (" Ring", "` Ring`"),
        ("Ring;Tree", "`Tree` names no function"),
        (";Ring", "`Ring` names no function"),
        ("allreduce:tree;ring", "`ring` names no function"),
        ("allreduc:ring", "AllReduce"),
        ("allreduce:", "unknown value `allreduce`"),
        (":", "unknown value `:`"),
    ] {
        let error = algo(value).unwrap_err();
        assert!(error.to_string().contains(said), "{value}: {error}");
        assert!(error.help().len() > 10 && error.variable() == "NCCL_ALGO");
    }
    // An empty value is none.
    assert_eq!(algo("").unwrap(), Environment::default());
}

#[test]
fn what_is_not_modelled_is_refused_by_name() {
    let error = algo("nvls").unwrap().algorithm(Function::AllReduce);
    let error = error.unwrap_err();
    assert_eq!(error.need().unwrap(), "the order of NVLS");
    assert!(error.to_string().contains("NVLS"), "{error}");
    let left = algo("^NVLS").unwrap().algorithm(Function::AllReduce);
    let left = left.unwrap_err();
    assert!(left.to_string().contains("NVLSTree"), "{left}");
    assert!(left.need().unwrap().contains("NVLSTree"));
    assert_eq!(algo("foo").unwrap_err().need(), None);
}

#[test]
fn protocols_and_numbers() {
    let environment = Environment::parse([
        ("NCCL_PROTO", "^Simple"),
        ("NCCL_MAX_NCHANNELS", "1"),
        ("NCCL_MIN_NCHANNELS", ""),
        ("NCCL_BUFFSIZE", "0x400000"),
        ("NCCL_P2P_LEVEL", "SYS"),
        ("OMP_NUM_THREADS", "1"),
    ])
    .unwrap();
    assert_eq!(
        environment.protocol(Function::AllReduce),
        Ok(Protocol::Ll128)
    );
    assert_eq!((environment.min_channels, environment.max_channels), (1, 1));
    assert_eq!(environment.buffer_bytes, 4 << 20);
    for (octal, value) in [("010", 8), ("8", 8), (" 8", 8), ("+8", 8)] {
        let read = Environment::parse([("NCCL_MIN_NCHANNELS", octal)]).unwrap();
        assert_eq!(read.min_channels, value, "{octal}");
    }
    for bad in ["0", "65", "many", "-1", "4M", "8 ", "0x", "09", "+-8"] {
        let error = Environment::parse([("NCCL_MIN_NCHANNELS", bad)]).unwrap_err();
        assert!(
            matches!(error, EnvironmentError::BadNumber { .. }),
            "{bad}: {error}"
        );
    }
    let none = Environment::parse([("NCCL_PROTO", "^LL,LL128,Simple")]).unwrap();
    assert!(none.refused(&[Function::AllReduce]).is_some());
}

#[test]
fn what_nccl_would_choose_is_named() {
    let functions = [Function::AllReduce, Function::ReduceScatter];
    let said = |variables: &[(&str, &str)]| {
        let environment = Environment::parse(variables.iter().copied()).unwrap();
        environment.assumed(&functions).join("\n")
    };
    let nothing = said(&[]);
    assert!(nothing.contains("NCCL_ALGO is not set") && nothing.contains("NCCL_PROTO is not set"));
    let partly = said(&[("NCCL_ALGO", "allreduce:tree"), ("NCCL_PROTO", "Simple")]);
    assert!(partly.contains("NCCL_ALGO does not speak of ReduceScatter,"));
    assert!(!partly.contains("AllReduce") && !partly.contains("NCCL_PROTO"));
    let several = said(&[("NCCL_ALGO", "Ring"), ("NCCL_PROTO", "LL,Simple")]);
    assert!(
        several.contains("NCCL_PROTO leaves several for AllReduce, ReduceScatter"),
        "{several}"
    );
    assert_eq!(said(&[("NCCL_ALGO", "Ring"), ("NCCL_PROTO", "Simple")]), "");
}
