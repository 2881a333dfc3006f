//! The state of the machine for people.

use super::{AdapterLine, Arithmetic, Doctor, Examined, Variable};
use crate::diagnostic::escaped;
use crate::engine::EngineIdentity;
use crate::engine::self_test::{SelfTest, Tested};
use crate::report::counted;
use crate::report::names::grouped;

impl Doctor {
    /// The report as text. What drivers and variables say is escaped.
    pub fn to_human(&self) -> String {
        let mut text = format!("bitproof {}\n\nengines:\n", self.version);
        self.engines
            .iter()
            .for_each(|engine| text += &examined(engine));
        text += "\nadapters:\n";
        self.adapters
            .iter()
            .for_each(|adapter| text += &self.adapter(adapter));
        if self.adapters.is_empty() {
            text += &self.no_adapter();
        }
        if !self.variables.is_empty() {
            text += "\nvariables that decide which drivers are seen:\n";
            for set in &self.variables {
                text += &variable(set);
                text += self.overridden(set);
            }
        }
        if let Some(missing) = self.missing() {
            text += &format!("\nmissing: {}\n", escaped(&missing));
        }
        text
    }

    /// The Vulkan loader reads the older name only where the newer one is not set.
    fn overridden(&self, set: &Variable) -> &'static str {
        let mut all = self.variables.iter();
        let newer = all.any(|other| other.name == "VK_DRIVER_FILES");
        match (set.name, newer) {
            ("VK_ICD_FILENAMES", true) => "    not read: VK_DRIVER_FILES is set\n",
            _ => "",
        }
    }

    fn adapter(&self, adapter: &AdapterLine) -> String {
        let (name, driver) = (escaped(&adapter.name), escaped(&adapter.driver));
        let features = match adapter.features.as_slice() {
            [] => "none of those that matter".to_owned(),
            features => features.join(", "),
        };
        let limits = adapter.limits.iter();
        let limits = limits.map(|(name, most)| format!("{} {name}", grouped(*most)));
        let tested = match (self.tested(adapter), &adapter.refused) {
            (Some(engine), _) => format!("the {} engine ran its self-test on it", engine.engine),
            (None, Some(reason)) => format!("cannot be used: {}", escaped(reason)),
            (None, None) => "not tested: no engine was opened on it".to_owned(),
        };
        format!(
            "  {name}\n    {} {}, driver {driver}\n    features: {features}\n    limits: {}\n    \
             {tested}\n",
            adapter.backend,
            adapter.kind,
            limits.collect::<Vec<_>>().join(", "),
        )
    }

    fn no_adapter(&self) -> String {
        if !self.adapters_built {
            return "  this build has none: it was made without the feature `wgpu`\n".to_owned();
        }
        if let (Some(name), false) = (&self.asked.name, self.others.is_empty()) {
            let (name, others) = (escaped(name), self.others.join(", "));
            return format!("  none is called `{name}`; there is {}\n", escaped(&others));
        }
        let mut text = "  none was found; the cpu engine needs none\n".to_owned();
        if let Some(command) = &self.unset {
            text += &format!("  `{command}` first: it decides which drivers are seen\n");
        }
        if let Some(limited) = &self.limited {
            text += &format!("  {}\n", escaped(limited));
        }
        if let Some(command) = &self.install {
            let still = match self.unset.is_some() || self.limited.is_some() {
                true => "if there is still none, ",
                false => "",
            };
            text += &format!("  {still}one in software: {command}\n");
        }
        text
    }
}

fn examined(engine: &Examined) -> String {
    let identity = match &engine.identity {
        Some(identity) => described(identity),
        None => "not there".to_owned(),
    };
    let mut text = format!("  {}: {identity}\n", engine.engine);
    match (&engine.self_test, &engine.failure) {
        (Some(test), _) => text += &table(test),
        (None, Some(failure)) => {
            text += &format!("    not tested: {}\n", escaped(&failure.reason));
            if let Some(help) = failure.help {
                text += &format!("    {help}\n");
            }
        }
        (None, None) => unreachable!("no self-test without a reason"),
    }
    let meaning = match engine.arithmetic {
        Arithmetic::Strict => "strict: a proof here holds for every strict engine, bit for bit",
        Arithmetic::Unguarded => {
            "not strict: exact here, but nothing keeps the driver from rewriting other \
             expressions; bits are this adapter's own, and a certificate says so"
        }
        Arithmetic::Differs => "not strict: bits are this adapter's own, and a certificate says so",
        Arithmetic::Unknown => return text,
    };
    text + &format!("    {meaning}\n")
}

fn described(identity: &EngineIdentity) -> String {
    // The adapter stands among the versions too, for tokens.
    let versions = identity
        .versions
        .iter()
        .filter(|(name, _)| name != "adapter");
    let versions = versions.map(|(name, version)| format!("{name} {version}"));
    let versions = versions.collect::<Vec<_>>().join(", ");
    escaped(&format!("{}, {versions}", identity.adapter)).into_owned()
}

/// One line if all is exact, else each expression that is not.
fn table(test: &SelfTest) -> String {
    let count = test.expressions.len();
    let inputs = test
        .expressions
        .iter()
        .map(|tested| u64::from(tested.inputs));
    let inputs = counted(inputs.min().unwrap_or(0), "input");
    let differing: Vec<&Tested> = test.expressions.iter().filter(|t| !t.passed()).collect();
    if differing.is_empty() {
        return format!("    self-test: all {count} expressions exact, on {inputs} each\n");
    }
    let others = differing.len();
    let mut text =
        format!("    self-test: {others} of {count} expressions differ, {inputs} each\n");
    differing.iter().for_each(|tested| text += &row(tested));
    text
}

fn row(tested: &Tested) -> String {
    let mut text = format!(
        "      {}, {}: other bits for {}\n        guards against {}\n",
        tested.name,
        tested.formula,
        counted(u64::from(tested.differing), "input"),
        tested.guards
    );
    if let Some(first) = &tested.first {
        let [x, y, z, expected, got] = [first.x, first.y, first.z, first.expected, first.got]
            .map(|bits| format!("{bits:#010x}"));
        text += &format!("        at x {x}, y {y}, z {z}: expected {expected}, got {got}\n");
    }
    text
}

fn variable(variable: &Variable) -> String {
    let mut text = format!("  {}={}\n", variable.name, escaped(&variable.value));
    for file in &variable.missing {
        text += &format!("    {} is not there\n", escaped(file));
    }
    text
}
