//! What other placements do to a job's plans, for people and for programs.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::{Value, json};

use super::names::{counted, grouped};
use super::plans::{NamedPlans, hex};
use crate::prove::placements::{Argument, Found, Survey};

/// Collectives that people are shown of a list.
const SHOWN: usize = 4;

/// A survey, and what its job is called.
pub struct NamedSurvey<'a> {
    pub recipe: &'a str,
    pub survey: &'a Survey,
    /// The two topology files of the smallest difference, where they were written.
    pub files: Option<[String; 2]>,
}

impl NamedSurvey<'_> {
    fn names<'n>(&'n self, places: impl IntoIterator<Item = &'n usize>) -> Vec<&'n str> {
        let all = &self.survey.own.collectives;
        let name = |place: &usize| &*all[*place].collective.name;
        places.into_iter().map(name).collect()
    }

    pub fn to_human(&self) -> String {
        let own = &self.survey.own;
        let topology = &own.allocation().name;
        let world = own.allocation().placement.world();
        let recipe = self.recipe;
        let mut text = format!("{recipe} on {topology}: {world} ranks, and other placements\n");
        for found in &self.survey.classes {
            self.class(&mut text, found);
        }
        self.pair(&mut text);
        let named = NamedPlans {
            recipe,
            plans: own,
            changes: &[],
        };
        text.push('\n');
        text.push_str(&named.foundations());
        text
    }

    fn class(&self, text: &mut String, found: &Found) {
        let count = match found.count {
            Some(count) => format!(
                "{} of {} tried",
                grouped(found.tried as u64),
                grouped(count)
            ),
            None => format!(
                "{} tried, of more than are counted",
                grouped(found.tried as u64)
            ),
        };
        let marked = marked(found);
        let (name, about) = (found.class.name(), found.class.about());
        let _ = writeln!(text, "\n{name}: {about}");
        let all = found.differing.len() + found.same.len() + found.untold.len();
        let plans = match found.plans {
            1 => "no other plans".to_string(),
            plans => format!("{} different plans of the job met", grouped(plans as u64)),
        };
        let _ = writeln!(text, "  {marked}: {count}, {plans}");
        if !found.differing.is_empty() {
            let listed = shortened(&self.names(&found.differing));
            let _ = writeln!(
                text,
                "  other plans: {} of {all}: {listed}",
                found.differing.len()
            );
        }
        for (why, places) in by_argument(found) {
            let listed = shortened(&self.names(places));
            let _ = writeln!(text, "  the same in all, as {}: {listed}", why.in_words());
        }
        if !found.untold.is_empty() {
            let listed = shortened(&self.names(&found.untold));
            let _ = writeln!(
                text,
                "  the same in those tried, not known of others: {listed}"
            );
        }
        let base = self.survey.own.allocation();
        if let Some(why) = found.class.rests_on(base).filter(|_| found.tried > 0) {
            let _ = writeln!(text, "  taken for granted: {why}");
        }
    }

    fn pair(&self, text: &mut String) {
        let Some(witness) = &self.survey.smallest else {
            return;
        };
        let moved = counted(u64::from(witness.moved), "rank");
        let what = shortened(&self.names(&witness.differing));
        let class = witness.class.name();
        let _ = writeln!(
            text,
            "\nsmallest difference met: {class}, {moved} on another GPU: {what}"
        );
        match &self.files {
            Some([a, b]) => {
                let recipe = self.recipe;
                let _ = writeln!(
                    text,
                    "  bitproof plan diff {recipe} --topology {a} --topology {b}"
                );
            }
            None => text.push_str("  `--out DIR` writes it as two topology files\n"),
        }
    }

    pub fn to_json(&self) -> Value {
        let own = &self.survey.own;
        let classes = self.survey.classes.iter().map(|found| self.object(found));
        let pair = self.survey.smallest.as_ref().map(|witness| {
            json!({
                "class": witness.class.name(),
                "moved": witness.moved,
                "differing": self.names(&witness.differing),
                "files": self.files,
            })
        });
        json!({
            "recipe": self.recipe,
            "topology": own.allocation().name,
            "world_size": own.allocation().placement.world(),
            "basis": own.basis(),
            "assumed": own.assumed,
            "hash": hex(&own.hash()),
            "classes": classes.collect::<Vec<_>>(),
            "pair": pair,
        })
    }

    fn object(&self, found: &Found) -> Value {
        let same = found.same.iter().map(|(place, why)| {
            json!({
                "name": self.names([place])[0],
                "because": why.in_words(),
            })
        });
        json!({
            "class": found.class.name(),
            "about": found.class.about(),
            "placements": found.count,
            "tried": found.tried,
            "marked": marked(found),
            "different_plans": found.plans,
            "differing": self.names(&found.differing),
            "same": same.collect::<Vec<_>>(),
            "untold": self.names(&found.untold),
            "rests_on": found.class.rests_on(self.survey.own.allocation()),
        })
    }
}

fn marked(found: &Found) -> &'static str {
    match found.is_derived() {
        true => "derived",
        false => "sampled",
    }
}

fn by_argument(found: &Found) -> BTreeMap<Argument, Vec<&usize>> {
    let mut lists: BTreeMap<Argument, Vec<&usize>> = BTreeMap::new();
    for (place, why) in &found.same {
        lists.entry(*why).or_default().push(place);
    }
    lists
}

fn shortened(names: &[&str]) -> String {
    let shown = names[..names.len().min(SHOWN)].join(", ");
    match names.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
